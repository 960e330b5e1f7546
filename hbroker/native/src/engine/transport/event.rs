//! What an engine reports to Python: events that need a decision, and messages for the application.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::engine::subscriber::unacknowledged::MessageId;
use crate::link_id::LinkId;
use crate::wire::{Body, MeantFor, PacketView, PublishView};

/// Why a link has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownReason {
    /// The peer was silent for too long (§3.2, §3.5).
    Timeout,
    /// The peer does not know the session (§3.6).
    Reset,
    /// The peer opens no session for this side, because it has too many (§3.6).
    Refused,
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
            Self::Refused => "refused",
            Self::Restarted => "restarted",
            Self::TakenOver => "taken_over",
            Self::Closed => "closed",
        }
    }
}

/// The other end of a link.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    pub link: LinkId,
    pub address: SocketAddr,
    pub session: u64,
    /// Whether the peer opened it.
    pub inbound: bool,
}

/// Something that Python has to decide, or to know for a decision.
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
    /// A client's message waits for the owner of its topic. `start`: the node to ask; `None`: the root.
    Unresolved {
        topic: Box<str>,
        start: Option<SocketAddr>,
    },
    /// The outcome of `count` messages of `QoS` 1 or 2 with consecutive sequence numbers, from `first` on.
    Published {
        first: u64,
        count: u64,
        topic: Arc<str>,
        reason: i32,
    },
}

/// A message for a client's application.
#[derive(Clone, Debug)]
pub struct Message {
    /// The body of a serialised `Publish`. If the message was fragmented, it lacks the payload.
    pub publish: Bytes,
    /// The payload, reassembled from fragments; `None`: it is in `publish`.
    pub whole: Option<Bytes>,
    /// As in a packet.
    pub meant_for: Option<MeantFor>,
    /// The flag that the application sees (§7.6).
    pub retain: bool,
    pub qos: u8,
    /// The listeners that it matches.
    pub subscriptions: SmallVec<[u64; 2]>,
    /// The id of this copy for `handled` and `give_back`; `None`: it was received at `QoS` 0.
    pub awaiting_acknowledgement: Option<MessageId>,
}

impl Message {
    /// Its fields, parsed anew in each call. If it was fragmented, the payload is not there.
    pub fn view(&self) -> PublishView<'_> {
        match PacketView::from_raw(&self.publish) {
            Ok(PacketView { body: Body::Publish(publish), .. }) => publish,
            // It was parsed when it was received.
            _ => PublishView::default(),
        }
    }

    /// The payload, without a copy. `fields`: its view.
    pub fn payload(&self, fields: &PublishView<'_>) -> Bytes {
        self.whole.clone().unwrap_or_else(|| self.publish.slice_ref(fields.payload))
    }

    /// The id of this copy for those that handle it. `fields`: its view.
    pub fn copy_id(&self, fields: &PublishView<'_>) -> MessageId {
        self.awaiting_acknowledgement.unwrap_or_else(|| self.id(fields))
    }

    /// The id that its publisher gave it: the number is that of its first fragment (§7.5). `fields`: its
    /// view.
    pub fn id(&self, fields: &PublishView<'_>) -> MessageId {
        let index = fields.fragment.map_or(0, |fragment| u64::from(fragment.index));
        (fields.publisher, fields.sequence.saturating_sub(index))
    }

    pub fn is_retained(&self) -> bool {
        self.meant_for.is_some_and(MeantFor::is_retained)
    }

    /// The size that it counts for in a bounded queue.
    pub fn bytes(&self) -> usize {
        Self::cost(self.publish.len() + self.whole.as_ref().map_or(0, Bytes::len))
    }

    /// The size that a message of `bytes` counts for.
    pub fn cost(bytes: usize) -> usize {
        bytes + 64
    }
}

impl Event {
    /// Merges the next event into this one, if both report the same outcome of consecutive messages. Its size
    /// does not change.
    pub fn absorb(&mut self, next: &Self) -> bool {
        let (
            Self::Published { first, count, topic, reason },
            Self::Published { first: next_first, count: next_count, topic: next_topic, reason: next_reason },
        ) = (self, next)
        else {
            return false;
        };
        let is_next = *next_first == *first + *count && reason == next_reason && topic == next_topic;
        *count += if is_next { *next_count } else { 0 };
        is_next
    }

    /// The size that it counts for in a bounded queue.
    pub fn bytes(&self) -> usize {
        let variable = match self {
            Self::Control { packet, .. } => packet.len(),
            Self::LinkUp(_) | Self::LinkDown(..) | Self::Overflow { .. } => 0,
            Self::Unresolved { topic, .. } => topic.len(),
            Self::Published { topic, .. } => topic.len(),
        };
        size_of::<Self>() + variable
    }
}
