//! TLS, the PROXY header, and stacks of them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use ppp::v2::{Addresses, Builder, Command, Protocol, Version};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tungstenite::Message;
use tungstenite::client::IntoClientRequest;

use super::echo::{Bench, Entry, exchange};
use crate::mqtt::io::listener::Settings;
use crate::mqtt::io::transport::Layers;
use crate::mqtt::io::transport::tls::{ClientCertificates, TlsSettings};

type Authority = CertifiedIssuer<'static, KeyPair>;
/// Certificate and key, as PEM.
type Pair = (String, String);

fn authority() -> Authority {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn issue(authority: &Authority, name: &str) -> Pair {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.distinguished_name.push(DnType::OrganizationName, "House");
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    (certificate.pem(), key.serialize_pem())
}

fn tls(server: &Pair, clients: Option<&Authority>, mode: ClientCertificates) -> TlsSettings {
    TlsSettings {
        certificates: server.0.clone().into(),
        key: server.1.clone().into(),
        client_authorities: clients.map(|authority| authority.pem().into()).unwrap_or_default(),
        client_certificates: mode,
    }
}

fn settings(tls: &TlsSettings) -> Settings {
    let layers = Layers { tls: Some(tls.build().unwrap()), ..Layers::default() };
    Settings { layers, ..Settings::default() }
}

/// A TLS client on a stream, which trusts one authority.
fn secure<S: Read + Write>(
    stream: S,
    trust: &Authority,
    own: Option<&Pair>,
) -> StreamOwned<ClientConnection, S> {
    let mut roots = RootCertStore::empty();
    roots.add(trust.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match own {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let name = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream)
}

fn identity_of(bench: &Bench) -> Option<String> {
    bench.journal.wait(|entry| match entry {
        Entry::Spoke(_, _, identity) => Some(identity.clone()),
        _ => None,
    })
}

#[test]
fn tls_carries_large_and_small() {
    let authority = authority();
    let server = issue(&authority, "localhost");
    let bench = Bench::new(settings(&tls(&server, None, ClientCertificates::None)));
    let mut client = secure(bench.connect(), &authority, None);
    exchange(&mut client, b"small");
    exchange(&mut client, &vec![7; 60_000]);
    assert_eq!(identity_of(&bench), None);
    client.conn.send_close_notify();
    client.flush().unwrap();
    assert_eq!(client.read(&mut [0; 8]).unwrap(), 0, "the end is told");
    drop(client);
    bench.wait_empty();
}

#[test]
fn a_client_is_who_its_certificate_names() {
    let (ours, others) = (authority(), authority());
    let server = issue(&ours, "localhost");
    let device = issue(&ours, "device-7");
    let bench = Bench::new(settings(&tls(&server, Some(&ours), ClientCertificates::Required)));
    exchange(&mut secure(bench.connect(), &ours, Some(&device)), b"it is me");
    assert_eq!(identity_of(&bench).as_deref(), Some("device-7"));

    let stranger = issue(&others, "device-7");
    for own in [None, Some(&stranger)] {
        let mut client = secure(bench.connect(), &ours, own);
        let refused = client.write_all(b"let me in").and_then(|()| client.read_exact(&mut [0; 9]));
        assert!(refused.is_err());
    }
    assert_eq!(bench.journal.count(|entry| matches!(entry, Entry::Spoke(..))), 1);
    assert_eq!(bench.counter("mqtt.tls_failed"), 2);
}

#[test]
fn an_optional_certificate_may_be_left_out_and_must_be_right() {
    let (ours, others) = (authority(), authority());
    let server = issue(&ours, "localhost");
    let bench = Bench::new(settings(&tls(&server, Some(&ours), ClientCertificates::Optional)));
    exchange(&mut secure(bench.connect(), &ours, None), b"nobody");
    assert_eq!(identity_of(&bench), None);
    let mut stranger = secure(bench.connect(), &ours, Some(&issue(&others, "x")));
    assert!(stranger.write_all(b"x").and_then(|()| stranger.read_exact(&mut [0; 1])).is_err());
}

#[test]
fn a_new_certificate_is_for_new_connections() {
    let (old, new) = (authority(), authority());
    let bench = Bench::new(settings(&tls(&issue(&old, "localhost"), None, ClientCertificates::None)));
    let mut before = secure(bench.connect(), &old, None);
    exchange(&mut before, b"old");
    bench.listener.set(settings(&tls(&issue(&new, "localhost"), None, ClientCertificates::None)));
    exchange(&mut secure(bench.connect(), &new, None), b"new");
    exchange(&mut before, b"old goes on");
}

/// Clients of three kinds, and which of them stay when the listener gets other settings.
#[test]
fn who_is_not_admitted_any_more_is_disconnected() {
    let (ours, theirs) = (authority(), authority());
    let server = issue(&ours, "localhost");
    let both = |mode| {
        let pem = format!("{}{}", ours.pem(), theirs.pem()).into();
        settings(&TlsSettings { client_authorities: pem, ..tls(&server, Some(&ours), mode) })
    };
    let only = |mode| settings(&tls(&server, Some(&ours), mode));
    let none = settings(&tls(&server, None, ClientCertificates::None));
    for (next, ours_stays, theirs_stays, nobody_stays) in [
        (both(ClientCertificates::Optional), true, true, true),
        (only(ClientCertificates::Optional), true, false, true),
        (only(ClientCertificates::Required), true, false, false),
        (none, true, true, true),
    ] {
        let bench = Bench::new(both(ClientCertificates::Optional));
        let clients = [Some(issue(&ours, "a")), Some(issue(&theirs, "b")), None];
        let mut clients = clients.map(|own| secure(bench.connect(), &ours, own.as_ref()));
        clients.iter_mut().for_each(|client| exchange(client, b"hello"));
        assert!(bench.server.set_listener(bench.listener.number, next));
        for (client, stays) in clients.iter_mut().zip([ours_stays, theirs_stays, nobody_stays]) {
            if stays {
                exchange(client, b"still here");
            } else {
                assert_eq!(client.read(&mut [0; 8]).unwrap(), 0);
            }
        }
        let expected = [ours_stays, theirs_stays, nobody_stays].iter().filter(|stays| !**stays).count();
        assert_eq!(bench.journal.count(|entry| matches!(entry, Entry::NotAdmitted(_))), expected);
    }
}

/// It is not let in by the authority that was dropped while its handshake was under way.
#[test]
fn a_handshake_that_is_under_way_ends() {
    let (ours, theirs) = (authority(), authority());
    let server = issue(&ours, "localhost");
    let bench = Bench::new(settings(&tls(&server, Some(&theirs), ClientCertificates::Required)));
    let mut client = secure(bench.connect(), &ours, Some(&issue(&theirs, "late")));
    bench.journal.wait_opened();
    let next = settings(&tls(&server, Some(&ours), ClientCertificates::Required));
    assert!(bench.server.set_listener(bench.listener.number, next));
    bench.journal.wait(|entry| matches!(entry, Entry::NotAdmitted(_)).then_some(()));
    assert!(client.write_all(b"x").and_then(|()| client.read_exact(&mut [0; 1])).is_err());
}

#[test]
fn what_is_not_tls_is_refused_and_counted() {
    let authority = authority();
    let bench = Bench::new(settings(&tls(&issue(&authority, "localhost"), None, ClientCertificates::None)));
    let mut client = bench.connect();
    client.write_all(b"\x10\x0c\0\x04MQTT\x04\x02\0\x0a\0\0").unwrap();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    drop(client);
    bench.wait_empty();
    assert_eq!(bench.counter("mqtt.tls_failed"), 1);
    assert_eq!(bench.journal.count(|entry| matches!(entry, Entry::Spoke(..))), 0);
}

#[test]
fn bad_pem_says_what_is_bad() {
    let pair = issue(&authority(), "localhost");
    let other = issue(&authority(), "localhost");
    let refused = |settings: TlsSettings| settings.build().unwrap_err().0;
    let good = tls(&pair, None, ClientCertificates::None);
    assert!(refused(TlsSettings { certificates: vec![], ..good.clone() }).starts_with("certificate: "));
    assert!(refused(TlsSettings { key: b"x".to_vec(), ..good.clone() }).starts_with("key: "));
    assert!(refused(TlsSettings { key: other.1.into(), ..good }).starts_with("certificate and key: "));
    assert!(refused(tls(&pair, None, ClientCertificates::Required)).starts_with("client authority: "));
}

fn proxy_header() -> Vec<u8> {
    let client: std::net::SocketAddr = "[2001:db8::7]:4711".parse().unwrap();
    let balancer: std::net::SocketAddr = "[2001:db8::1]:8883".parse().unwrap();
    let addresses = Addresses::from((client, balancer));
    Builder::with_addresses(Version::Two | Command::Proxy, Protocol::Stream, addresses).build().unwrap()
}

#[test]
fn a_balancer_tells_the_address_and_who_pretends_is_refused() {
    let layers = Layers { proxy_protocol: true, ..Layers::default() };
    let bench = Bench::new(Settings { layers, ..Settings::default() });
    let mut client = bench.connect();
    client.write_all(&proxy_header()).unwrap();
    exchange(&mut client, b"behind");
    let source = bench.journal.wait(|entry| match entry {
        Entry::Spoke(_, source, _) => Some(*source),
        _ => None,
    });
    assert_eq!(source, "[2001:db8::7]:4711".parse().unwrap());
    let mut direct = bench.connect();
    direct.write_all(b"\x10\x0c\0\x04MQTT\x04\x02\0\x0a\0\0").unwrap();
    assert_eq!(direct.read(&mut [0; 8]).unwrap(), 0);
    assert_eq!(bench.counter("mqtt.proxy_failed"), 1);
}

#[test]
fn all_layers_together_in_pieces_of_any_size() {
    let authority = authority();
    let server = issue(&authority, "localhost");
    let device = issue(&authority, "device");
    let websocket = "/mqtt".into();
    let config = tls(&server, Some(&authority), ClientCertificates::Required).build().unwrap();
    let layers = Layers { proxy_protocol: true, tls: Some(config), websocket: Some(websocket) };
    let bench = Bench::new(Settings { layers, ..Settings::default() });
    for piece in [1, 7, 100_000] {
        let mut stream = Pieces { stream: bench.connect(), piece };
        stream.write_all(&proxy_header()).unwrap();
        let mut request = "wss://localhost/mqtt".into_client_request().unwrap();
        request.headers_mut().insert("Sec-WebSocket-Protocol", "mqtt".parse().unwrap());
        let secured = secure(stream, &authority, Some(&device));
        let (mut client, response) = tungstenite::client(request, secured).unwrap();
        assert_eq!(response.headers()["Sec-WebSocket-Protocol"], "mqtt");
        for length in [1, 125, 126, 40_000] {
            let sent = Message::binary(vec![1; length]);
            client.send(sent).unwrap();
            let mut got = 0;
            while got < length {
                got += client.read().unwrap().len();
            }
            assert_eq!(got, length);
        }
        client.close(None).unwrap();
        while client.read().is_ok() {}
    }
    assert_eq!(identity_of(&bench).as_deref(), Some("device"));
    bench.wait_empty();
}

/// A stream that writes small pieces.
struct Pieces {
    stream: TcpStream,
    piece: usize,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.stream.read(buffer)
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.stream.write(&bytes[..bytes.len().min(self.piece)])
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.stream.flush()
    }
}
