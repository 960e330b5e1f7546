//! The client side of TLS (rustls), sans-IO: its inputs and outputs are TLS records and plain bytes.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

/// The authorities and the host name by which the connections of a load verify their broker.
#[derive(Clone, Debug)]
pub struct Trust {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Trust {
    /// Trusts a server with a certificate for this host (a name or an address) that one of these authorities
    /// (PEM) has signed.
    ///
    /// # Errors
    /// The host is not valid, or the authorities are not certificates. The text is for people.
    pub fn new(authorities: &[u8], host: &str) -> Result<Self, String> {
        let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(authorities) {
            let authority = authority.map_err(|error| error.to_string())?;
            roots.add(authority).map_err(|error| error.to_string())?;
        }
        if roots.is_empty() {
            return Err("there is no certificate".into());
        }
        let mut config = ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        // Each connection is a separate client.
        config.resumption = Resumption::disabled();
        Ok(Self { config: Arc::new(config), name })
    }
}

/// The TLS of one connection.
pub struct Tls(ClientConnection);

impl Tls {
    /// The first output of `encrypt` contains its first record.
    ///
    /// # Errors
    /// As of rustls.
    pub fn new(trust: &Trust) -> io::Result<Self> {
        let made = ClientConnection::new(Arc::clone(&trust.config), trust.name.clone());
        let mut session = made.map_err(io::Error::other)?;
        // Written bytes are encrypted at once, so the connection's limit applies.
        session.set_buffer_limit(None);
        Ok(Self(session))
    }

    /// Decrypts records, and appends the result to `plain`. The next output of `encrypt` contains the answers
    /// of TLS itself.
    ///
    /// # Errors
    /// The broker violated TLS, its certificate is not trusted, or it closed.
    pub fn open(&mut self, mut records: &[u8], plain: &mut Vec<u8>) -> io::Result<()> {
        while !records.is_empty() {
            self.0.read_tls(&mut records)?;
            let state = self
                .0
                .process_new_packets()
                .map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            let start = plain.len();
            plain.resize(start + state.plaintext_bytes_to_read(), 0);
            self.0.reader().read_exact(&mut plain[start..])?;
            if state.peer_has_closed() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    /// Encrypts plain bytes, once the handshake is complete.
    ///
    /// # Errors
    /// None: both sides are in memory.
    pub fn encrypt(&mut self, plain: &mut Vec<u8>, wire: &mut Vec<u8>) -> io::Result<()> {
        self.0.writer().write_all(plain)?;
        plain.clear();
        while self.0.wants_write() {
            self.0.write_tls(wire)?;
        }
        Ok(())
    }
}
