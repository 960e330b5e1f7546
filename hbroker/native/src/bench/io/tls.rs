//! A client's TLS (rustls), sans-IO: records in and out, plain bytes in and out.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

/// Whom all connections of a load take for their broker.
#[derive(Clone, Debug)]
pub struct Trust {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Trust {
    /// Whoever shows a certificate for this host, a name or an address, that one of these authorities (PEM) has signed.
    ///
    /// # Errors
    /// That is no host, or those are no certificates. The text is for people.
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
        // Each connection is a client of its own.
        config.resumption = Resumption::disabled();
        Ok(Self { config: Arc::new(config), name })
    }
}

/// The TLS of one connection.
pub struct Tls(ClientConnection);

impl Tls {
    /// Its first record is what `encrypt` says first.
    ///
    /// # Errors
    /// As rustls has them.
    pub fn new(trust: &Trust) -> io::Result<Self> {
        let made = ClientConnection::new(Arc::clone(&trust.config), trust.name.clone());
        let mut session = made.map_err(io::Error::other)?;
        // What is written is sealed at once; the bound is the connection's.
        session.set_buffer_limit(None);
        Ok(Self(session))
    }

    /// Adds what records hold to `plain`. What TLS itself has to answer is in what is sealed next.
    ///
    /// # Errors
    /// The broker broke TLS, is not whom it should be, or ended the conversation.
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

    /// Moves plain bytes into records, as soon as the two have shaken hands.
    ///
    /// # Errors
    /// None: both ends are memory.
    pub fn encrypt(&mut self, plain: &mut Vec<u8>, wire: &mut Vec<u8>) -> io::Result<()> {
        self.0.writer().write_all(plain)?;
        plain.clear();
        while self.0.wants_write() {
            self.0.write_tls(wire)?;
        }
        Ok(())
    }
}
