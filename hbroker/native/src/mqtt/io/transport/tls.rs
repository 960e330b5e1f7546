//! TLS at a listener (rustls), sans-IO: its inputs and outputs are TLS records and plain bytes.

use std::io::{Read, Write};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::{WebPkiClientVerifier, danger::ClientCertVerifier};
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::der::asn1::{PrintableStringRef, Utf8StringRef};
use x509_cert::der::oid::db::rfc4519::COMMON_NAME;

use super::Failure;
use crate::mqtt::io::output::Output;

/// Whether clients authenticate by a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificates {
    /// The server requests no certificate.
    #[default]
    None,
    /// The server requests a certificate. A client may have none; an invalid one is refused.
    Optional,
    Required,
}

/// The TLS settings of a listener: the contents of PEM files, not their names.
#[derive(Clone, Debug, Default)]
pub struct TlsSettings {
    /// The certificate of the server first, then the intermediate certificates.
    pub certificates: Vec<u8>,
    pub key: Vec<u8>,
    /// The certificates of the authorities that sign clients' certificates.
    pub client_authorities: Vec<u8>,
    pub client_certificates: ClientCertificates,
}

/// Why the settings are not valid for a TLS server, as a text for people.
#[derive(Debug, PartialEq, Eq)]
pub struct BadTls(pub String);

/// What the connections of a listener are made from.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    config: Arc<ServerConfig>,
    /// Verifies the certificates of clients.
    verifier: Arc<dyn ClientCertVerifier>,
}

impl TlsSettings {
    pub fn build(&self) -> Result<TlsConfig, BadTls> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain = read_certificates(&self.certificates, "certificate")?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|error| bad("key", error))?;
        let verifier = match self.client_certificates {
            ClientCertificates::None => WebPkiClientVerifier::no_client_auth(),
            mode => self.verifier(Arc::clone(&provider), mode)?,
        };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| bad("protocol version", error))?
            .with_client_cert_verifier(Arc::clone(&verifier))
            .with_single_cert(chain, key)
            .map_err(|error| bad("certificate and key", error))?;
        // Session tickets: the server keeps no state, and a device that resumes costs neither side a
        // signature.
        config.ticketer = rustls::crypto::ring::Ticketer::new().map_err(|error| bad("ticket key", error))?;
        Ok(TlsConfig { config: Arc::new(config), verifier })
    }

    fn verifier(
        &self,
        provider: Arc<rustls::crypto::CryptoProvider>,
        mode: ClientCertificates,
    ) -> Result<Arc<dyn ClientCertVerifier>, BadTls> {
        let mut roots = RootCertStore::empty();
        for authority in read_certificates(&self.client_authorities, "client authority")? {
            roots.add(authority).map_err(|error| bad("client authority", error))?;
        }
        let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        if mode == ClientCertificates::Optional {
            builder = builder.allow_unauthenticated();
        }
        builder.build().map_err(|error| bad("client authority", error))
    }
}

fn read_certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, BadTls> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = read.map_err(|error| bad(what, error))?;
    if certificates.is_empty() { Err(bad(what, "there is none")) } else { Ok(certificates) }
}

fn bad(what: &str, error: impl std::fmt::Display) -> BadTls {
    BadTls(format!("{what}: {error}"))
}

/// The TLS of one connection.
#[derive(Debug)]
pub struct Tls {
    session: ServerConnection,
}

impl Tls {
    pub fn new(tls: &TlsConfig) -> Result<Self, Failure> {
        let mut session = ServerConnection::new(Arc::clone(&tls.config)).map_err(|_| Failure::Tls)?;
        // Written bytes are encrypted at once, so the limit of the output applies.
        session.set_buffer_limit(None);
        Ok(Self { session })
    }

    /// Receives TLS records; true: the peer has closed.
    pub fn receive(
        &mut self,
        mut input: &[u8],
        plain: &mut Vec<u8>,
        wire: &mut Output,
    ) -> Result<bool, Failure> {
        let mut ended = false;
        let mut result = Ok(());
        while !input.is_empty() && !ended && result.is_ok() {
            // Reading from memory fails only if rustls' buffer is full, and it is emptied each time.
            self.session.read_tls(&mut input).map_err(|_| Failure::Tls)?;
            match self.session.process_new_packets() {
                Ok(state) => {
                    let start = plain.len();
                    plain.resize(start + state.plaintext_bytes_to_read(), 0);
                    ended = state.peer_has_closed();
                    let read = self.session.reader().read_exact(&mut plain[start..]);
                    result = read.map_err(|_| Failure::Tls);
                }
                Err(_) => result = Err(Failure::Tls),
            }
        }
        self.emit(wire);
        result.map(|()| ended)
    }

    /// Encrypts plain bytes.
    pub fn encrypt(&mut self, plain: &mut Output, wire: &mut Output) {
        for slice in plain.slices() {
            // Without a buffer limit, rustls takes all bytes.
            let _ = self.session.writer().write_all(slice);
            self.emit(wire);
        }
        plain.clear();
    }

    /// Sends `close_notify`: nothing follows.
    pub fn close(&mut self, wire: &mut Output) {
        self.session.send_close_notify();
        self.emit(wire);
    }

    /// Whether the client could connect with its certificate, or without one, if the listener had this
    /// configuration. During the handshake it could not: the former configuration decides it.
    pub fn is_admitted_by(&self, tls: &TlsConfig) -> bool {
        let verifier = &tls.verifier;
        if self.session.is_handshaking() {
            return false;
        }
        if !verifier.offer_client_auth() {
            return true;
        }
        match self.session.peer_certificates() {
            Some([leaf, intermediates @ ..]) => {
                verifier.verify_client_cert(leaf, intermediates, UnixTime::now()).is_ok()
            }
            _ => !verifier.client_auth_mandatory(),
        }
    }

    /// The last common name of the client's certificate, empty if it has none; `None`: there is no certificate.
    pub fn identity(&self) -> Option<String> {
        let leaf = self.session.peer_certificates()?.first()?;
        let certificate = Certificate::from_der(leaf).ok()?;
        let subject = certificate.tbs_certificate().subject();
        let names = subject.iter().filter(|name| name.oid == COMMON_NAME);
        let text = |value: &x509_cert::der::Any| {
            let utf8 = value.decode_as::<Utf8StringRef<'_>>().map(|text| text.as_str().to_owned());
            utf8.or_else(|_| value.decode_as::<PrintableStringRef<'_>>().map(|text| text.as_str().to_owned()))
        };
        Some(names.filter_map(|name| text(&name.value).ok()).last().unwrap_or_default())
    }

    fn emit(&mut self, wire: &mut Output) {
        while self.session.wants_write() {
            // Writing to memory does not fail.
            if self.session.write_tls(&mut **wire).is_err() {
                return;
            }
        }
    }
}
