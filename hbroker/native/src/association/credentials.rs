//! What an end proves itself with in a handshake, and whom it believes: certificates of the network's authority.
//!
//! Every node has a certificate; a client may have one. Both ends pin the authority. Certificates of nodes have
//! the name [`NODE_NAME`] beside their own: an initiator asks for any node of the network, and the layer above
//! checks which one it is.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use ring::aead::{AES_128_GCM, Algorithm, CHACHA20_POLY1305};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::cipher_suite::{TLS13_AES_128_GCM_SHA256, TLS13_CHACHA20_POLY1305_SHA256};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection,
};

use crate::association::key_log::KeyLog;
use crate::association::tickets::Tickets;

/// A name that the certificates of all nodes have.
pub const NODE_NAME: &str = "node.hbroker";

/// A certificate chain, the end's own first, and its private key.
pub type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// What begins handshakes, and, at a node, answers them.
#[derive(Clone)]
pub struct Credentials {
    client: Arc<ClientConfig>,
    /// Verifies certificates of nodes.
    verifier: Arc<WebPkiServerVerifier>,
    tickets: Tickets,
    /// Where the secrets of associations are noted; `None`: nowhere.
    pub key_log: Option<KeyLog>,
    /// With which a client shows nodes what it may do; empty: it has none.
    pub token: Arc<[u8]>,
    server: Option<Arc<ServerConfig>>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if self.server.is_some() { "Credentials of a node" } else { "Credentials of a client" })
    }
}

impl Credentials {
    /// `authorities`: whom this end believes; several while an authority is replaced. `identity`: of this end;
    /// `None`: it proves nothing, and answers no handshakes.
    ///
    /// # Errors
    /// A certificate or the key is not valid.
    pub fn new(
        authorities: Vec<CertificateDer<'static>>,
        identity: Option<Identity>,
    ) -> Result<Self, rustls::Error> {
        let provider = Arc::new(provider());
        let mut roots = RootCertStore::empty();
        authorities.into_iter().try_for_each(|authority| roots.add(authority))?;
        let roots = Arc::new(roots);
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(Arc::clone(&roots));
        let of_nodes = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        let of_nodes = of_nodes.build().map_err(|error| rustls::Error::General(error.to_string()))?;
        let Some((chain, key)) = identity else {
            let client = Arc::new(builder.with_no_client_auth());
            return Ok(Self::of(client, of_nodes, None));
        };
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key.clone_key())?;
        server.ticketer = rustls::crypto::ring::Ticketer::new()?;
        server.send_tls13_tickets = 1;
        let client = Arc::new(builder.with_client_auth_cert(chain, key)?);
        Ok(Self::of(client, of_nodes, Some(Arc::new(server))))
    }

    fn of(
        client: Arc<ClientConfig>,
        verifier: Arc<WebPkiServerVerifier>,
        server: Option<Arc<ServerConfig>>,
    ) -> Self {
        Self { client, verifier, tickets: Tickets::default(), key_log: None, token: Arc::default(), server }
    }

    /// Whether this end would take a peer with this certificate, as DER, for a node now.
    pub fn believes(&self, certificate: &[u8]) -> bool {
        let (certificate, name) = (CertificateDer::from(certificate), node_name());
        self.verifier.verify_server_cert(&certificate, &[], &name, &[], UnixTime::now()).is_ok()
    }

    /// Begins a handshake with the node at an address.
    pub fn connect(&self, node: SocketAddr) -> Result<Connection, rustls::Error> {
        let mut config = (*self.client).clone();
        config.resumption = self.tickets.for_node(node);
        ClientConnection::new(Arc::new(config), node_name()).map(Connection::Client)
    }

    /// Answers a handshake; `None`: this end answers none.
    pub fn accept(&self) -> Option<Result<Connection, rustls::Error>> {
        let server = self.server.as_ref()?;
        Some(ServerConnection::new(Arc::clone(server)).map(Connection::Server))
    }
}

fn node_name() -> ServerName<'static> {
    ServerName::try_from(NODE_NAME).expect("it is a name")
}

/// The algorithm for the datagrams of an association whose handshake has ended.
pub fn algorithm(connection: &Connection) -> &'static Algorithm {
    match connection.negotiated_cipher_suite().map(|suite| suite.suite()) {
        Some(CipherSuite::TLS13_CHACHA20_POLY1305_SHA256) => &CHACHA20_POLY1305,
        _ => &AES_128_GCM,
    }
}

/// AES only where the CPU has instructions for it.
fn provider() -> CryptoProvider {
    let (aes, chacha) = (TLS13_AES_128_GCM_SHA256, TLS13_CHACHA20_POLY1305_SHA256);
    let cipher_suites = if has_aes() { vec![aes, chacha] } else { vec![chacha, aes] };
    CryptoProvider { cipher_suites, ..rustls::crypto::ring::default_provider() }
}

fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[allow(unreachable_code)]
    false
}
