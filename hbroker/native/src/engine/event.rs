//! What an engine hands up to Python: decisions to take, and messages to read.

use std::net::SocketAddr;

use bytes::Bytes;

use crate::engine::held::MessageId;
use crate::link_id::LinkId;

/// Why a link is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownReason {
    /// The peer was silent for too long (§3.2, §3.5).
    Timeout,
    /// The peer does not know the session (§3.6).
    Reset,
    /// The peer runs under another incarnation (§3.6).
    Restarted,
    /// Another run of the peer began a link in its session (§6.4).
    TakenOver,
    /// This side closed it.
    Closed,
}

impl DownReason {
    pub fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Reset => "reset",
            Self::Restarted => "restarted",
            Self::TakenOver => "taken_over",
            Self::Closed => "closed",
        }
    }
}

/// Who is at the other end of a link.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    pub link: LinkId,
    pub address: SocketAddr,
    pub session: u64,
    /// The peer opened it.
    pub inbound: bool,
}

/// A decision for Python to take, or news that it needs for one.
#[derive(Clone, Debug)]
pub enum Event {
    /// A control packet. `link`: `None` outside of a session.
    Control {
        link: Option<LinkId>,
        source: SocketAddr,
        packet: Vec<u8>,
        inbound: bool,
    },
    LinkUp(Peer),
    LinkDown(Peer, DownReason),
    /// A session ended because its queue overflowed (§7.8).
    Overflow {
        session: u64,
        link: Option<LinkId>,
    },
    /// A client's message waits for the owner of its topic. `start`: where to ask; `None`: the root.
    Unresolved {
        topic: Box<str>,
        start: Option<SocketAddr>,
    },
    /// What became of a client's message of `QoS` 1 or 2.
    Published {
        sequence: u64,
        topic: Box<str>,
        reason: i32,
    },
}

/// A message for a client's application.
#[derive(Clone, Debug)]
pub struct Message {
    /// The body of a serialised `Publish`, all but its payload where that came in fragments.
    pub publish: Bytes,
    /// The payload put together from fragments; `None`: it is in `publish`.
    pub whole: Option<Vec<u8>>,
    /// Sent because it was retained when a subscription was made.
    pub retained: bool,
    /// The flag that the application sees (§7.6).
    pub retain: bool,
    pub qos: u8,
    /// The listeners that it matches.
    pub subscriptions: Vec<u64>,
    /// What is owed an answer once the application has it; `None`: it came at `QoS` 0.
    pub owed: Option<MessageId>,
}

impl Message {
    /// What it counts for in a bounded queue.
    pub fn bytes(&self) -> usize {
        self.publish.len() + self.whole.as_ref().map_or(0, Vec::len) + 64
    }
}

impl Event {
    /// What it counts for in a bounded queue.
    pub fn bytes(&self) -> usize {
        let variable = match self {
            Self::Control { packet, .. } => packet.len(),
            Self::LinkUp(_) | Self::LinkDown(..) | Self::Overflow { .. } => 0,
            Self::Unresolved { topic, .. } | Self::Published { topic, .. } => topic.len(),
        };
        size_of::<Self>() + variable
    }
}
