//! Handshakes and seals of links (docs/adr/0035-sealed-associations.md): TLS 1.3 as QUIC uses it, of `rustls`, beside Noise, of
//! `snow`. `handshakes` prints a line for each.
//!
//! Both peers are in this process and on one thread, so a handshake has the CPU time of both. No datagram is sent: the
//! bytes are those that a link would have to carry, without its own headers.

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SignatureAlgorithm};
use ring::aead::{AES_128_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::quic::{self, ClientConnection, KeyChange, Keys, ServerConnection, Version};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// How long each line is measured.
const TIME: Duration = Duration::from_secs(2);
/// What a peer says of itself in a handshake: as many bytes as QUIC's transport parameters have.
const PARAMETERS: &[u8] = &[7; 60];
const SHORT: usize = 64;
const LONG: usize = 1_200;

fn main() -> Outcome<()> {
    for (library, provider) in [
        ("ring", rustls::crypto::ring::default_provider()),
        ("aws-lc-rs", rustls::crypto::aws_lc_rs::default_provider()),
    ] {
        for (keys, algorithm) in
            [("Ed25519", &rcgen::PKCS_ED25519), ("P-256", &rcgen::PKCS_ECDSA_P256_SHA256)]
        {
            let tls = Tls::new(provider.clone(), algorithm)?;
            let name = format!("TLS 1.3, {library}, {keys}");
            measure(&format!("{name}: server proves itself"), || tls.shake(&tls.anonymous()?))?;
            measure(&format!("{name}: both prove themselves"), || tls.shake(&tls.known()?))?;
            let resuming = tls.anonymous()?;
            tls.shake(&resuming)?;
            measure(&format!("{name}: resumed"), || tls.shake(&resuming))?;
        }
        seals(library, provider)?;
    }
    for pattern in ["XX", "IK", "NK"] {
        for cipher in ["AESGCM", "ChaChaPoly"] {
            let noise = Noise::new(pattern, cipher)?;
            measure(&format!("Noise {pattern}, {cipher}"), || noise.shake())?;
        }
    }
    ring_seals("AES-128-GCM", &AES_128_GCM)?;
    ring_seals("ChaCha20-Poly1305", &CHACHA20_POLY1305)
}

/// The bytes of one handshake, in each direction, and how many flights it has.
#[derive(Debug, Default)]
struct Shaken {
    sent: usize,
    received: usize,
    flights: usize,
}

fn measure(name: &str, mut shake: impl FnMut() -> Outcome<Shaken>) -> Outcome<()> {
    let Shaken { sent, received, flights } = shake()?;
    let (began, mut count) = (Instant::now(), 0);
    while began.elapsed() < TIME {
        shake()?;
        count += 1;
    }
    let rate = f64::from(count) / began.elapsed().as_secs_f64();
    println!("{name:<52} {rate:7.0}/s of both peers' CPU  {sent:5} + {received:5} bytes, {flights} flights");
    Ok(())
}

/// What peers of a network have for TLS: certificates of its authority.
struct Tls {
    provider: Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
    server: Arc<ServerConfig>,
    client: (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>),
}

impl Tls {
    fn new(provider: CryptoProvider, algorithm: &'static SignatureAlgorithm) -> Outcome<Self> {
        let provider = Arc::new(provider);
        let authority = KeyPair::generate_for(algorithm)?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        let root = params.self_signed(&authority)?;
        let issuer = Issuer::new(params, &authority);
        let peer = |name: &str| -> Outcome<_> {
            let key = KeyPair::generate_for(algorithm)?;
            let certificate = CertificateParams::new(vec![name.to_owned()])?.signed_by(&key, &issuer)?;
            let key = PrivateKeyDer::try_from(key.serialize_der())?;
            Ok((vec![certificate.der().clone()], key))
        };
        let mut roots = RootCertStore::empty();
        roots.add(root.der().clone())?;
        let roots = Arc::new(roots);
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()?;
        let (chain, key) = peer("node")?;
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)?;
        server.ticketer = rustls::crypto::ring::Ticketer::new()?;
        server.send_tls13_tickets = 1;
        Ok(Self { provider, roots, server: Arc::new(server), client: peer("client")? })
    }

    fn builder(&self) -> Outcome<rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>> {
        Ok(ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(Arc::clone(&self.roots)))
    }

    /// A client that proves nothing. It resumes if it is used again.
    fn anonymous(&self) -> Outcome<Arc<ClientConfig>> {
        let mut config = self.builder()?.with_no_client_auth();
        config.resumption = Resumption::in_memory_sessions(8);
        Ok(Arc::new(config))
    }

    fn known(&self) -> Outcome<Arc<ClientConfig>> {
        let (chain, key) = &self.client;
        Ok(Arc::new(self.builder()?.with_client_auth_cert(chain.clone(), key.clone_key())?))
    }

    /// One handshake, and the ticket after it.
    fn shake(&self, config: &Arc<ClientConfig>) -> Outcome<Shaken> {
        let (version, parameters) = (Version::V1, PARAMETERS.to_vec());
        let name = ServerName::try_from("node")?;
        let mut client = ClientConnection::new(Arc::clone(config), version, name, parameters.clone())?;
        let mut server = ServerConnection::new(Arc::clone(&self.server), version, parameters)?;
        let mut shaken = Shaken::default();
        loop {
            let (sent, _) = flight(&mut |bytes| client.write_hs(bytes));
            sent.iter().try_for_each(|level| server.read_hs(level))?;
            let (received, _) = flight(&mut |bytes| server.write_hs(bytes));
            received.iter().try_for_each(|level| client.read_hs(level))?;
            shaken.sent += sent.concat().len();
            shaken.received += received.concat().len();
            shaken.flights += usize::from(!sent.is_empty()) + usize::from(!received.is_empty());
            if sent.is_empty() && received.is_empty() {
                return Ok(shaken);
            }
        }
    }

    /// The keys of a link after a handshake.
    fn keys(&self) -> Outcome<(Keys, Keys)> {
        let (version, parameters) = (Version::V1, PARAMETERS.to_vec());
        let name = ServerName::try_from("node")?;
        let mut client = ClientConnection::new(self.anonymous()?, version, name, parameters.clone())?;
        let mut server = ServerConnection::new(Arc::clone(&self.server), version, parameters)?;
        let (mut of_client, mut of_server) = (None, None);
        while of_client.is_none() || of_server.is_none() {
            let (sent, keys) = flight(&mut |bytes| client.write_hs(bytes));
            of_client = keys.or(of_client);
            sent.iter().try_for_each(|level| server.read_hs(level))?;
            let (received, keys) = flight(&mut |bytes| server.write_hs(bytes));
            of_server = keys.or(of_server);
            received.iter().try_for_each(|level| client.read_hs(level))?;
        }
        Ok((of_client.ok_or("no keys")?, of_server.ok_or("no keys")?))
    }
}

/// What a peer has to send, by the level of its keys (RFC 9001 §4), and its keys for data if it has them now.
fn flight(write: &mut dyn FnMut(&mut Vec<u8>) -> Option<KeyChange>) -> (Vec<Vec<u8>>, Option<Keys>) {
    let (mut levels, mut one_rtt) = (Vec::new(), None);
    loop {
        let mut bytes = Vec::new();
        let change = write(&mut bytes);
        levels.extend((!bytes.is_empty()).then_some(bytes));
        match change {
            Some(KeyChange::OneRtt { keys, .. }) => one_rtt = Some(keys),
            Some(KeyChange::Handshake { .. }) => {}
            None => return (levels, one_rtt),
        }
    }
}

/// Seals and opens datagrams with the keys of a handshake.
fn seals(library: &str, provider: CryptoProvider) -> Outcome<()> {
    let (client, server) = Tls::new(provider, &rcgen::PKCS_ED25519)?.keys()?;
    let (local, remote): (&dyn quic::PacketKey, &dyn quic::PacketKey) =
        (&*client.local.packet, &*server.remote.packet);
    for length in [SHORT, LONG] {
        let header = [1; 12];
        let mut bytes = vec![3; length];
        let mut number = 0;
        let sealed = per_call(|| {
            number += 1;
            let tag = local.encrypt_in_place(number, &header, &mut bytes).expect("it is sealed");
            black_box(tag.as_ref().len());
        });
        bytes.resize(length, 3);
        let tag = local.encrypt_in_place(1, &header, &mut bytes).expect("it is sealed");
        bytes.extend_from_slice(tag.as_ref());
        let whole = bytes.clone();
        let opened = per_call(|| {
            bytes.copy_from_slice(&whole);
            black_box(remote.decrypt_in_place(1, &header, &mut bytes).expect("it is intact").len());
        });
        println!(
            "rustls with {library}, {length} bytes: {sealed:.0} ns to seal, {opened:.0} ns to open (with a copy)"
        );
    }
    Ok(())
}

/// The same, with `ring` alone.
fn ring_seals(name: &str, algorithm: &'static ring::aead::Algorithm) -> Outcome<()> {
    let key = || {
        UnboundKey::new(algorithm, &[5; 32][..algorithm.key_len()]).map(LessSafeKey::new).map_err(|_| "a key")
    };
    let key = key()?;
    for length in [SHORT, LONG] {
        let mut bytes = vec![3; length];
        let mut number = 0_u64;
        let sealed = per_call(|| {
            number += 1;
            let mut nonce = [0; 12];
            nonce[4..].copy_from_slice(&number.to_be_bytes());
            let nonce = Nonce::assume_unique_for_key(nonce);
            let tag =
                key.seal_in_place_separate_tag(nonce, Aad::from([1; 12]), &mut bytes).expect("it is sealed");
            black_box(tag.as_ref().len());
        });
        println!(
            "ring, {name}, {length} bytes: {sealed:.0} ns to seal; a key has {} bytes",
            size_of::<LessSafeKey>()
        );
    }
    let expanded = per_call(|| {
        black_box(UnboundKey::new(algorithm, &[5; 32][..algorithm.key_len()]).map(LessSafeKey::new).is_ok());
    });
    println!("ring, {name}: {expanded:.0} ns to expand a key");
    Ok(())
}

/// Nanoseconds for each call.
fn per_call(mut call: impl FnMut()) -> f64 {
    let (began, mut count) = (Instant::now(), 0_u32);
    while began.elapsed() < TIME / 4 {
        (0..1_000).for_each(|_| call());
        count += 1_000;
    }
    began.elapsed().as_nanos() as f64 / f64::from(count)
}

/// What peers of a network have for Noise: keys alone.
struct Noise {
    params: snow::params::NoiseParams,
    pattern: &'static str,
    client: snow::Keypair,
    server: snow::Keypair,
}

impl Noise {
    fn new(pattern: &'static str, cipher: &str) -> Outcome<Self> {
        let params: snow::params::NoiseParams = format!("Noise_{pattern}_25519_{cipher}_SHA256").parse()?;
        let pair = || snow::Builder::new(params.clone()).generate_keypair();
        Ok(Self { client: pair()?, server: pair()?, params, pattern })
    }

    fn shake(&self) -> Outcome<Shaken> {
        let mut client = snow::Builder::new(self.params.clone());
        if self.pattern != "NK" {
            client = client.local_private_key(&self.client.private)?;
        }
        if self.pattern != "XX" {
            client = client.remote_public_key(&self.server.public)?;
        }
        let server = snow::Builder::new(self.params.clone()).local_private_key(&self.server.private)?;
        let (mut peers, mut shaken) =
            ([client.build_initiator()?, server.build_responder()?], Shaken::default());
        let (mut bytes, mut read) = ([0; 2_048], [0; 2_048]);
        while !peers[shaken.flights % 2].is_handshake_finished() {
            let [one, other] = &mut peers;
            let (from, to) = if shaken.flights % 2 == 0 { (one, other) } else { (other, one) };
            let length = from.write_message(PARAMETERS, &mut bytes)?;
            to.read_message(&bytes[..length], &mut read)?;
            *(if shaken.flights % 2 == 0 { &mut shaken.sent } else { &mut shaken.received }) += length;
            shaken.flights += 1;
        }
        for peer in peers {
            black_box(peer.into_stateless_transport_mode()?);
        }
        Ok(shaken)
    }
}
