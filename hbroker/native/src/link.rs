//! One end of the conversation with one peer (docs/protocol.md §3).

use std::net::SocketAddr;

use bytes::Bytes;

use crate::Micros;
use crate::sink::DatagramSink;
use crate::wire::Header;

/// Who a link's end is, and its limits.
#[derive(Debug, Clone)]
pub struct LinkConfig {
    /// The session id, chosen by the initiator.
    pub session: u64,
    /// This end's incarnation.
    pub incarnation: u64,
    /// Bytes of a bundle.
    pub max_datagram: usize,
    /// Bytes that may wait: so many of unreliable packets, and as many of reliable ones.
    pub queue_bytes: usize,
    /// Silence after which the initiator sends PING.
    pub keep_alive: Micros,
    /// Silence after which the peer is gone.
    pub idle_timeout: Micros,
    /// How this end began.
    pub role: Role,
}

/// How an end of a link began (§3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Holds the session: sends the token until it is acknowledged, and keeps the link alive.
    Initiator,
    /// Was opened by a datagram with a valid token.
    Acceptor,
    /// A node's end towards a session that was handed to it (§5.4): an acceptor that speaks first.
    Adopter,
}

/// Which earlier packet a reliable one follows (§3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chain {
    /// All packets but PUBLISH.
    Control,
    /// The messages of one publisher and topic, by a hash of both.
    Topic(u64),
}

/// What a datagram's header says of the datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// Work its packets through, then call `finish_datagram`.
    Fresh,
    /// Fresh, the newest so far, and from another address than the peer's: `move_to` it, or not.
    Moved,
    /// Received before, or too old to tell: drop it.
    Duplicate,
    /// The peer's incarnation changed: the link is over (§3.6).
    Restarted,
}

/// What becomes of a reliable packet that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receipt {
    /// It is next: hand it on, then drain `next_released`.
    Deliver,
    /// It was copied, and comes out of `next_released` once the packet that it follows was handed on.
    Held,
    /// It was handed on, or is held.
    Duplicate,
    /// There is no room: its datagram must not be acknowledged.
    Refused,
}

/// Whether a link lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// It does.
    Alive,
    /// The peer has been silent for the idle timeout.
    TimedOut,
}

/// The link's queue has no room for a packet, or the packet is larger than a datagram can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueFull;

/// What a link measured and counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Smoothed round-trip time; a guess before the first acknowledgement.
    pub rtt: Micros,
    /// Congestion window, in bytes.
    pub window: usize,
    /// Bytes sent and neither acknowledged nor lost.
    pub in_flight: usize,
    /// Numbered datagrams sent.
    pub sent: u64,
    /// Numbered datagrams that were lost.
    pub lost: u64,
    /// Reliable packets sent again.
    pub retransmits: u64,
    /// Datagrams and reliable packets that came more than once.
    pub duplicates: u64,
}

/// One end of a link.
#[derive(Debug)]
pub struct Link {}

#[allow(unused_variables, missing_docs, clippy::needless_pass_by_ref_mut)]
impl Link {
    pub fn new(config: LinkConfig, peer: SocketAddr, token: Vec<u8>, now: Micros) -> Self {
        todo!()
    }
    pub fn handle_header(&mut self, now: Micros, header: &Header<'_>, source: SocketAddr) -> Arrival {
        todo!()
    }
    pub fn receive(&mut self, delivery: u64, after: u64, raw: &[u8]) -> Receipt {
        todo!()
    }
    pub fn next_released(&mut self) -> Option<Box<[u8]>> {
        todo!()
    }
    pub fn finish_datagram(&mut self, now: Micros, number: u64, ack_eliciting: bool, kept: bool) {
        todo!()
    }
    pub fn answer_ping(&mut self, sent_at_us: u64) {
        todo!()
    }
    pub fn acknowledge(&mut self, delivery: u64) {
        todo!()
    }
    pub fn move_to(&mut self, peer: SocketAddr) {
        todo!()
    }
    pub fn renew_token(&mut self, now: Micros, token: Vec<u8>) {
        todo!()
    }
    pub fn queue_unreliable(&mut self, body_field: &[u8], retained: bool) -> Result<(), QueueFull> {
        todo!()
    }
    pub fn queue_reliable(
        &mut self,
        chain: Chain,
        body_field: Bytes,
        retained: bool,
    ) -> Result<u64, QueueFull> {
        todo!()
    }
    pub fn take_unacknowledged(&mut self) -> impl Iterator<Item = (u64, Bytes)> + use<> {
        Vec::new().into_iter()
    }
    pub fn poll_transmit(&mut self, now: Micros, sink: &mut impl DatagramSink) {
        todo!()
    }
    pub fn poll_timeout(&self) -> Option<Micros> {
        todo!()
    }
    pub fn handle_timeout(&mut self, now: Micros) -> Liveness {
        todo!()
    }
    pub fn session(&self) -> u64 {
        todo!()
    }
    pub fn peer(&self) -> SocketAddr {
        todo!()
    }
    pub fn is_established(&self) -> bool {
        todo!()
    }
    pub fn is_drained(&self) -> bool {
        todo!()
    }
    pub fn queued_bytes(&self) -> usize {
        todo!()
    }
    pub fn stats(&self) -> LinkStats {
        todo!()
    }
}
