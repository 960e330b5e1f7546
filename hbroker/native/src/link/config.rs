//! What a link is told, and what it tells.

use crate::Micros;

/// Who a link's end is, and its limits.
#[derive(Debug, Clone)]
pub struct LinkConfig {
    /// The session id, chosen by the initiator.
    pub session: u64,
    /// This end's incarnation.
    pub incarnation: u64,
    /// The peer's incarnation in the link with it before this one: what comes under it is late.
    pub past: Option<u64>,
    /// The number of the first datagram. Where this end opens the link, no link of its that ended had it (§3.6).
    pub first_number: u64,
    /// Bytes of the largest bundle, on a path that carries it (`mtu`). A packet that is larger leaves alone.
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
    /// Holds the session: sends the token until it is acknowledged, and keeps the link alive. (A client's end of a link
    /// that a node opened is one, too. It has the token from there.)
    Initiator,
    /// Was opened by a datagram with a valid token.
    Acceptor,
    /// A node's end towards a session that was handed to it (§5.4): an acceptor that speaks first.
    Adopter,
}

/// What a header says of its datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// Work its packets through, then call `finish_datagram`.
    Fresh,
    /// Fresh, the newest so far, and from another address than the peer's: `move_to` it, or not.
    Moved,
    /// Received before, or too old to tell: drop it.
    Duplicate,
    /// A late datagram of a link before this one: drop it.
    Past,
    /// It acknowledges what was never sent: drop it (RFC 9000 §13.1).
    Unsent,
    /// The peer's incarnation changed: the link is over (§3.6).
    Restarted,
}

/// Whether a link lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// It does.
    Alive,
    /// The peer has been silent for the idle timeout.
    TimedOut,
}

/// The link's queue has no room for a packet, or the packet fits no datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueFull;

/// What links counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Numbered datagrams that were lost.
    pub lost: u64,
    /// Reliable packets sent again.
    pub retransmits: u64,
}

impl std::ops::AddAssign for LinkStats {
    fn add_assign(&mut self, other: Self) {
        self.lost += other.lost;
        self.retransmits += other.retransmits;
    }
}
