//! The settings of a link, and the results that it returns.

use crate::Micros;

/// The identity of a link's end, and its limits.
#[derive(Debug, Clone)]
pub struct LinkConfig {
    /// The session id, chosen by the initiator.
    pub session: u64,
    /// This end's incarnation.
    pub incarnation: u64,
    /// The peer's incarnation in the previous link with it. A datagram with it is late.
    pub past: Option<u64>,
    /// The number of the first datagram. If this end opens the link, none of its ended links has used the
    /// number (§3.6).
    pub first_number: u64,
    /// The size of the largest bundle, on a path that carries it (`mtu`). A larger packet is sent in a
    /// datagram of its own.
    pub max_datagram: usize,
    /// The bound for the bytes of unreliable packets that may wait, and the same for reliable ones.
    pub queue_bytes: usize,
    /// The silence after which the initiator sends PING.
    pub keep_alive: Micros,
    /// The silence after which the peer is gone.
    pub idle_timeout: Micros,
    /// How this end began.
    pub role: Role,
}

/// How an end of a link began (§3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Has the session: it sends the token until that is acknowledged, and keeps the link alive. (A client's
    /// end of a link that a node opened is an initiator, too. It has the token from that node.)
    Initiator,
    /// Was opened by a datagram with a valid token.
    Acceptor,
    /// A node's end towards a session that was handed over to it (§5.4): an acceptor that sends first.
    Adopter,
}

/// The result for the header of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// Handle its packets, then call `finish_datagram`.
    Fresh,
    /// Fresh, the newest so far, and from another address than the peer's: the caller decides whether to call
    /// `move_to`.
    Moved,
    /// Received before, or too old to know: drop it.
    Duplicate,
    /// A late datagram of an earlier link: drop it.
    Past,
    /// It acknowledges a datagram that was never sent: drop it (RFC 9000 §13.1).
    Unsent,
    /// The peer's incarnation has changed: the link has ended (§3.6).
    Restarted,
}

/// Whether a link is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// It is.
    Alive,
    /// The peer has been silent for the idle timeout.
    TimedOut,
}

/// The link's queue has no room for a packet, or the packet fits no datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueFull;

/// The counters of links.
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
