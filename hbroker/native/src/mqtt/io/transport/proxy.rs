//! The PROXY protocol, version 2: a load balancer in front of the listener reports the client's address.
//!
//! (<https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>) One header precedes everything else, TLS
//! included. A listener that expects the header accepts no connection without it, because a client that may
//! omit it could claim any address (ibid. §2). The command LOCAL, which health checks send, leaves the
//! address unchanged.

use std::net::SocketAddr;

use ppp::v2::{Addresses, Command, Header, PROTOCOL_PREFIX, ParseError};

use super::Failure;

/// The size of the fixed fields: prefix, version and command, family and protocol, length.
const FIXED: usize = PROTOCOL_PREFIX.len() + 4;
/// The addresses, and the fields that a load balancer may add (§2.2: TLS version, names, unique id).
const LONGEST: usize = FIXED + 2_048;

/// A header that has not been received completely.
#[derive(Debug, Default)]
pub struct ProxyHeader {
    buffered: Vec<u8>,
}

/// A complete header.
#[derive(Debug, PartialEq, Eq)]
pub struct Proxied<'a> {
    /// The client's address, if the header contains one.
    pub source: Option<SocketAddr>,
    /// The bytes after the header.
    pub rest: &'a [u8],
}

impl ProxyHeader {
    /// Receives bytes; `None`: the header is incomplete.
    pub fn receive<'a>(&mut self, input: &'a [u8]) -> Result<Option<Proxied<'a>>, Failure> {
        let before = self.buffered.len();
        self.buffered.extend_from_slice(&input[..input.len().min(LONGEST - before)]);
        let prefix = self.buffered.len().min(PROTOCOL_PREFIX.len());
        if self.buffered[..prefix] != PROTOCOL_PREFIX[..prefix] {
            return Err(Failure::Proxy);
        }
        match Header::try_from(self.buffered.as_slice()) {
            Ok(header) => {
                let rest = &input[header.len() - before..];
                Ok(Some(Proxied { source: source(&header), rest }))
            }
            Err(ParseError::Incomplete(_) | ParseError::Partial(..)) if self.buffered.len() < LONGEST => {
                Ok(None)
            }
            Err(_) => Err(Failure::Proxy),
        }
    }
}

fn source(header: &Header<'_>) -> Option<SocketAddr> {
    match (header.command, header.addresses) {
        (Command::Proxy, Addresses::IPv4(pair)) => Some((pair.source_address, pair.source_port).into()),
        (Command::Proxy, Addresses::IPv6(pair)) => Some((pair.source_address, pair.source_port).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use ppp::v2::{Builder, Protocol, Version};

    use super::*;

    fn header(command: Command, padding: usize) -> Vec<u8> {
        let client: SocketAddr = "192.0.2.7:4711".parse().unwrap();
        let balancer: SocketAddr = "192.0.2.1:1883".parse().unwrap();
        let addresses: Addresses = (client, balancer).into();
        let mut builder = Builder::with_addresses(Version::Two | command, Protocol::Stream, addresses);
        if padding > 0 {
            builder = builder.write_tlv(ppp::v2::Type::NoOp, &vec![0; padding]).unwrap();
        }
        builder.build().unwrap()
    }

    #[test]
    fn a_header_in_any_two_pieces_names_the_client() {
        let mut bytes = header(Command::Proxy, 30);
        let whole = bytes.len();
        bytes.extend_from_slice(b"\x10\x0cMQTT");
        for cut in 0..bytes.len() {
            let mut header = ProxyHeader::default();
            let first = header.receive(&bytes[..cut]).unwrap();
            if cut < whole {
                assert_eq!(first, None);
                let last = header.receive(&bytes[cut..]).unwrap().unwrap();
                assert_eq!(last.source, Some("192.0.2.7:4711".parse().unwrap()));
                assert_eq!(last.rest, b"\x10\x0cMQTT");
            } else {
                assert_eq!(first.unwrap().rest, &bytes[whole..cut]);
            }
        }
    }

    #[test]
    fn a_health_check_names_nobody() {
        let bytes = header(Command::Local, 0);
        let proxied = ProxyHeader::default().receive(&bytes).unwrap();
        assert_eq!(proxied, Some(Proxied { source: None, rest: b"" }));
    }

    #[test]
    fn other_protocols_are_refused_at_their_first_byte() {
        for start in [&b"\x10"[..], b"GET /", b"\x16\x03\x01", b"PROXY TCP4 ", b"\r\n\r\n\0\r\nQUIT?"] {
            assert_eq!(ProxyHeader::default().receive(start), Err(Failure::Proxy), "{start:?}");
        }
    }

    #[test]
    fn a_header_that_does_not_end_is_refused() {
        let bytes = header(Command::Proxy, 60_000);
        let mut header = ProxyHeader::default();
        let mut pieces = bytes.chunks(100);
        assert!(pieces.any(|piece| header.receive(piece) == Err(Failure::Proxy)));
        assert!(header.buffered.capacity() <= 2 * LONGEST);
    }
}
