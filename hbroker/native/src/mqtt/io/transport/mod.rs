//! The layers between the socket and MQTT: any stack of PROXY header, TLS and WebSocket, or none.
//!
//! ```text
//! Transport (this file)   the layers of one connection
//!   proxy                 the PROXY header, with the address of the client
//!   tls                   TLS, and the certificate of the client
//!   websocket             WebSocket: its opening request and its frames
//! ```

mod proxy;
pub mod tls;
pub(super) mod websocket;

use std::net::SocketAddr;

use super::output::Output;

use proxy::ProxyHeader;
use tls::{Tls, TlsConfig};
use websocket::WebSocket;

/// The layers of one connection. A connection without layers costs three empty options.
#[derive(Debug, Default)]
pub struct Transport {
    proxy: Option<Box<ProxyHeader>>,
    tls: Option<Box<Tls>>,
    websocket: Option<Box<WebSocket>>,
}

/// The layers that a listener is configured with.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    pub proxy_protocol: bool,
    pub tls: Option<TlsConfig>,
    /// The path of the WebSocket endpoint; empty: any.
    pub websocket: Option<Box<str>>,
}

/// The layer whose protocol the peer violated. The layer's error message for the peer is in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    Proxy,
    /// Also: the client failed to authenticate.
    Tls,
    /// Also: the client asked for a path or subprotocol that is not served.
    WebSocket,
}

/// The result of receiving bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// The client's address, if these bytes completed a PROXY header that contains one.
    pub source: Option<SocketAddr>,
    /// The peer has closed; nothing follows.
    pub ended: bool,
}

impl Transport {
    pub fn new(layers: &Layers) -> Result<Self, Failure> {
        let tls = layers.tls.as_ref().map(Tls::new).transpose();
        Ok(Self {
            proxy: layers.proxy_protocol.then(Box::default),
            tls: tls?.map(Box::new),
            websocket: layers.websocket.as_ref().map(|path| Box::new(WebSocket::new(path))),
        })
    }

    /// Whether the bytes of the socket are those of MQTT, in both directions.
    pub fn is_plain(&self) -> bool {
        self.proxy.is_none() && self.tls.is_none() && self.websocket.is_none()
    }

    /// Receives bytes of the socket, and appends the decoded bytes to `plain`. The answers of the layers
    /// themselves go to `wire`.
    pub fn receive(
        &mut self,
        mut input: &[u8],
        plain: &mut Vec<u8>,
        wire: &mut Output,
    ) -> Result<Received, Failure> {
        let mut received = Received::default();
        if let Some(proxy) = &mut self.proxy {
            let Some(proxied) = proxy.receive(input)? else {
                return Ok(received);
            };
            (received.source, input) = (proxied.source, proxied.rest);
            self.proxy = None;
        }
        received.ended = match (&mut self.tls, &mut self.websocket) {
            (None, None) => {
                plain.extend_from_slice(input);
                false
            }
            (Some(tls), None) => tls.receive(input, plain, wire)?,
            (None, Some(websocket)) => websocket.receive(input, plain, wire)?,
            (Some(tls), Some(websocket)) => {
                let mut opened = Vec::new();
                let tls_ended = tls.receive(input, &mut opened, wire)?;
                let mut answers = Output::default();
                let ended = websocket.receive(&opened, plain, &mut answers);
                tls.encrypt(&mut answers, wire);
                ended? || tls_ended
            }
        };
        Ok(received)
    }

    /// Encodes MQTT's bytes into the bytes for the socket.
    pub fn encrypt(&mut self, plain: &mut Output, wire: &mut Output) {
        match (&mut self.tls, &mut self.websocket) {
            (None, None) => wire.take(plain),
            (Some(tls), None) => tls.encrypt(plain, wire),
            (None, Some(websocket)) => websocket.encrypt(plain, wire),
            (Some(tls), Some(websocket)) => {
                let mut framed = Output::default();
                websocket.encrypt(plain, &mut framed);
                tls.encrypt(&mut framed, wire);
            }
        }
    }

    /// Closes each layer, which tells the peer that nothing follows. Before the PROXY header is complete
    /// there is nothing to close.
    pub fn close(&mut self, wire: &mut Output) {
        if self.proxy.is_some() {
            return;
        }
        if let Some(websocket) = &mut self.websocket {
            let mut close_frames = Output::default();
            websocket.close(&mut close_frames);
            match &mut self.tls {
                Some(tls) => tls.encrypt(&mut close_frames, wire),
                None => wire.take(&mut close_frames),
            }
        }
        if let Some(tls) = &mut self.tls {
            tls.close(wire);
        }
    }

    /// As [`Tls::is_admitted_by`]; true without TLS.
    pub fn is_admitted_by(&self, layers: &Layers) -> bool {
        let both = self.tls.as_ref().zip(layers.tls.as_ref());
        both.is_none_or(|(tls, config)| tls.is_admitted_by(config))
    }

    /// As [`Tls::identity`].
    pub fn identity(&self) -> Option<String> {
        self.tls.as_ref()?.identity()
    }
}
