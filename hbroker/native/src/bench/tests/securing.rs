//! TLS without a socket: a client of the load and a gateway's side of a connection, in whatever pieces records come.

use std::io::ErrorKind;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::bench::io::tls::{Tls, Trust};
use crate::mqtt::io::output::Output;
use crate::mqtt::io::transport::tls::{Tls as Server, TlsSettings};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A server for this host.
fn server(authority: &Authority, host: &str) -> Server {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![host.into()]).unwrap().signed_by(&key, authority).unwrap();
    let settings = TlsSettings {
        certificates: certificate.pem().into(),
        key: key.serialize_pem().into(),
        ..TlsSettings::default()
    };
    Server::new(&settings.build().unwrap()).unwrap()
}

fn trust(authority: &Authority, host: &str) -> Trust {
    Trust::new(authority.pem().as_bytes(), host).unwrap()
}

/// Has both say what they have to say, in pieces, until neither has more; what each understood of the other.
fn converse(
    client: &mut Tls,
    server: &mut Server,
    says: &[u8],
    answers: &[u8],
    rng: &mut SmallRng,
) -> std::io::Result<(Vec<u8>, Vec<u8>)> {
    let (mut out, mut heard, mut understood) = (says.to_vec(), Vec::new(), Vec::new());
    let mut answer = Output::default();
    answer.extend_from_slice(answers);
    let (mut to_server, mut to_client) = (Vec::new(), Output::default());
    loop {
        client.encrypt(&mut out, &mut to_server)?;
        server.encrypt(&mut answer, &mut to_client);
        if to_server.is_empty() && to_client.is_done() {
            return Ok((heard, understood));
        }
        for piece in pieces(&std::mem::take(&mut to_server), rng) {
            // What it objects to it says itself.
            let _ = server.receive(&piece, &mut understood, &mut to_client);
        }
        for piece in pieces(&std::mem::take(&mut *to_client), rng) {
            client.open(&piece, &mut heard)?;
        }
    }
}

fn pieces(bytes: &[u8], rng: &mut SmallRng) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rng.random_range(1..=rest.len().min(4_000)));
        pieces.push(piece.to_vec());
        rest = after;
    }
    pieces
}

#[test]
fn what_one_side_says_the_other_understands_in_whatever_pieces_it_comes() {
    let authority = authority();
    for seed in 0..10 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut client = Tls::new(&trust(&authority, "127.0.0.1")).unwrap();
        let mut server = server(&authority, "127.0.0.1");
        for _ in 0..3 {
            let [says, answers] = [(); 2]
                .map(|()| -> Vec<u8> { (0..rng.random_range(0..50_000)).map(|_| rng.random()).collect() });
            let found = converse(&mut client, &mut server, &says, &answers, &mut rng).unwrap();
            assert!(found == (answers, says), "seed {seed}");
        }
        let mut close_frames = Output::default();
        server.close(&mut close_frames);
        let end = client.open(&close_frames, &mut Vec::new()).unwrap_err();
        assert_eq!(end.kind(), ErrorKind::UnexpectedEof);
    }
}

#[test]
fn whoever_is_not_whom_it_should_be_is_refused_before_anything_is_said() {
    let (authority, another) = (authority(), authority());
    for (trusted, host) in [(&another, "localhost"), (&authority, "elsewhere.example")] {
        let mut client = Tls::new(&trust(trusted, host)).unwrap();
        let mut server = server(&authority, "localhost");
        let found =
            converse(&mut client, &mut server, b"secret", b"", &mut SmallRng::seed_from_u64(1)).unwrap_err();
        assert_eq!(found.kind(), ErrorKind::InvalidData, "{found}");
        assert!(found.to_string().contains("certificate"), "{found}");
    }
}

#[test]
fn what_is_no_authority_or_no_host_is_refused() {
    let pem = authority().pem();
    assert_eq!(Trust::new(b"", "localhost").unwrap_err(), "there is no certificate");
    assert!(Trust::new(b"-----BEGIN CERTIFICATE-----\nAA\n", "localhost").is_err());
    assert!(Trust::new(pem.as_bytes(), "no host").is_err());
    assert!(Trust::new(pem.as_bytes(), "::1").is_ok());
}

/// Whatever comes is an error or is taken, and never a panic.
#[test]
fn noise_is_an_error() {
    let trust = trust(&authority(), "localhost");
    for seed in 0..200 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let noise: Vec<u8> = (0..rng.random_range(1..200)).map(|_| rng.random()).collect();
        let _ = Tls::new(&trust).unwrap().open(&noise, &mut Vec::new());
    }
}
