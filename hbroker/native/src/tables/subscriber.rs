//! A session that has subscribed, as the tables know it.

use crate::link_id::SessionKey;

/// A session that receives the messages of a filter, and its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscriber {
    /// The session of the subscription.
    pub session: SessionKey,
    /// The highest QoS wanted.
    pub qos: u8,
    /// Without messages that the session itself published (No Local).
    pub no_local: bool,
    /// Keeps the publisher's RETAIN flag.
    pub retain_as_published: bool,
    /// What happens to a message that finds the session's queue full.
    pub overflow: Overflow,
}

/// What the queue of a session does when it is full (§7.8), as encoded in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Overflow {
    /// The oldest queued message is dropped.
    #[default]
    DropOldest = 0,
    /// The new message is dropped.
    DropNewest = 1,
    /// The session ends.
    EndSession = 2,
}

impl Overflow {
    /// An unknown value is the default.
    pub fn from_wire(value: i32) -> Self {
        match value {
            1 => Self::DropNewest,
            2 => Self::EndSession,
            _ => Self::DropOldest,
        }
    }

    pub fn on_wire(self) -> i32 {
        i32::from(self as u8)
    }
}

impl Subscriber {
    /// A subscriber without options.
    pub fn new(session: SessionKey, qos: u8) -> Self {
        let overflow = Overflow::default();
        Self { session, qos, no_local: false, retain_as_published: false, overflow }
    }

    /// Combines two subscriptions of one session: the higher QoS, each message and each flag that either of
    /// them asks for, and the stricter overflow policy.
    pub fn merge(&mut self, other: Subscriber) {
        self.qos = self.qos.max(other.qos);
        self.no_local &= other.no_local;
        self.retain_as_published |= other.retain_as_published;
        self.overflow = self.overflow.max(other.overflow);
    }
}
