//! The counters of an engine. They only rise. Gauges are computed by the engine when they are read.

use std::ops::AddAssign;

use crate::link::LinkStats;

/// Declares the reasons, each with its name in the counter `drop.<name>`.
macro_rules! drops {
    ($($(#[$meaning:meta])* $reason:ident = $name:literal,)*) => {
        /// Why something that was received or was to be sent went no further.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Drop {
            $($(#[$meaning])* $reason,)*
        }

        const DROPS: &[&str] = &[$($name,)*];
    };
}

drops! {
    /// A datagram that is no protobuf `Datagram` (§2.1).
    Malformed = "malformed",
    /// A datagram for a session that is not known here (§3.6).
    UnknownSession = "unknown_session",
    /// A request from an address that has not proved itself (§4.1).
    AddressUnproven = "address_unproven",
    /// A packet that must not be sent here (§2.3).
    UnexpectedPacket = "unexpected_packet",
    /// A datagram that was received before (§3.2).
    DuplicateDatagram = "duplicate_datagram",
    /// A datagram that acknowledges a datagram that was never sent (§3.2).
    UnsentAcknowledged = "unsent_acknowledged",
    /// A reliable packet that was received before (§3.3).
    DuplicateDelivery = "duplicate_delivery",
    /// A message that was delivered before, by its id (§7.4).
    DuplicateMessage = "duplicate_message",
    /// A datagram that could not be kept, and so is not acknowledged (§3.3).
    NoRoom = "no_room",
    /// A packet that arrived out of order, and for which there was no room: it will be retransmitted (§3.3).
    EarlyFull = "out_of_order_full",
    /// A message for a topic that this node does not own (§7.2).
    NotResponsible = "not_responsible",
    /// A message for a subtree that is being handed over (§7.2).
    Handover = "handover",
    /// A message for a topic that only the node itself publishes to (§7.2).
    NotAuthorized = "not_authorized",
    /// A message under a publisher id that is not its session's (§7.9).
    ForeignPublisher = "foreign_publisher",
    /// A message that breaks a rule: topic, `QoS`, fragment (§7.2).
    InvalidMessage = "invalid_message",
    /// A message that a subscriber's queue had no room for (§7.8).
    QueueFull = "queue_full",
    /// A message of `QoS` 1 or 2 that an owner refused because of its queues: its publisher sends it again
    /// (§7.7).
    QueuesFull = "queues_full",
    /// A message beyond the rate of its workspace. At `QoS` 1 and 2 its publisher sends it again.
    WorkspaceRate = "workspace_rate",
    /// A message that was queued for a session that ended, and not acknowledged.
    SessionEnded = "session_ended",
    /// A message in the queue of a persistent session that expired without a link.
    SessionExpired = "session_expired",
    /// A message of `QoS` 0 for a session that had no link.
    Offline = "offline",
    /// A message that is queued at another owner since a handover: no loss.
    Moved = "moved",
    /// A message that went to another member of its shared group (§6.5): no loss.
    Regrouped = "regrouped",
    /// A ticket that was returned and was not outstanding: a defect of this program.
    UnknownTicket = "unknown_ticket",
    /// A record of a handover that is invalid, or is for a session that is not here (§5.4).
    InvalidRecord = "invalid_record",
    /// A stored message that the store cannot read any more, because the disk is damaged.
    Damaged = "damaged",
    /// A retained message that the store had no room for.
    RetainedFull = "retained_full",
    /// The rest of the retained messages for a subscription whose session has too many replays (§7.6).
    ReplaysFull = "replays_full",
    /// A message that the application of this client did not read in time.
    InboxFull = "inbox_full",
    /// A fragmented message that was given up: fragments were missing, or there was no room.
    Incomplete = "incomplete",
    /// A message that expired (§7.8).
    Expired = "expired",
    /// A message that no listener wanted in time (§6.4).
    Unclaimed = "unclaimed",
    /// A message whose owner could not be found.
    Unresolved = "unresolved",
    /// An answer outside of sessions beyond the rate limit.
    RateLimited = "rate_limited",
    /// A link beyond the limit.
    TooManyLinks = "too_many_links",
    /// A link, or a session that moves to this host, beyond the limit for one host.
    TooManyOfHost = "too_many_of_host",
    /// An event that Python did not take in time.
    EventQueueFull = "event_queue_full",
    /// A datagram outside of sessions that could not be sent in time.
    EgressFull = "egress_full",
}

impl Drop {
    pub fn name(self) -> &'static str {
        DROPS[self as usize]
    }
}

/// The counters of one engine.
#[derive(Clone)]
pub struct Counters {
    pub datagrams_in: u64,
    pub datagrams_out: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub messages_in: u64,
    pub messages_out: u64,
    drops: [u64; DROPS.len()],
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            datagrams_in: 0,
            datagrams_out: 0,
            bytes_in: 0,
            bytes_out: 0,
            messages_in: 0,
            messages_out: 0,
            drops: [0; DROPS.len()],
        }
    }
}

impl Counters {
    pub fn drop(&mut self, why: Drop) {
        self.drop_many(why, 1);
    }

    pub fn drop_many(&mut self, why: Drop, count: u64) {
        self.drops[why as usize] += count;
    }

    /// Every counter by name; drops as `drop.<reason>`, without those that are zero.
    pub fn each(&self, mut with: impl FnMut(&str, u64)) {
        with("datagrams_in", self.datagrams_in);
        with("datagrams_out", self.datagrams_out);
        with("bytes_in", self.bytes_in);
        with("bytes_out", self.bytes_out);
        with("messages_in", self.messages_in);
        with("messages_out", self.messages_out);
        for (name, count) in DROPS.iter().zip(self.drops) {
            if count > 0 {
                with(&format!("drop.{name}"), count);
            }
        }
    }
}

impl AddAssign<&Self> for Counters {
    fn add_assign(&mut self, other: &Self) {
        let Self { datagrams_in, datagrams_out, bytes_in, bytes_out, messages_in, messages_out, drops } =
            other;
        self.datagrams_in += datagrams_in;
        self.datagrams_out += datagrams_out;
        self.bytes_in += bytes_in;
        self.bytes_out += bytes_out;
        self.messages_in += messages_in;
        self.messages_out += messages_out;
        self.drops.iter_mut().zip(drops).for_each(|(sum, count)| *sum += count);
    }
}

/// The counters of one client's engine, or the sum of several.
#[derive(Clone, Default)]
pub struct EngineCounters {
    pub counters: Counters,
    pub links: LinkStats,
}

impl EngineCounters {
    /// Every counter by name.
    pub fn each(&self, mut with: impl FnMut(&str, u64)) {
        self.counters.each(&mut with);
        let LinkStats { lost, retransmits } = self.links;
        with("datagrams_lost", lost);
        with("retransmits", retransmits);
    }
}

impl AddAssign for EngineCounters {
    fn add_assign(&mut self, other: Self) {
        self.counters += &other.counters;
        self.links += other.links;
    }
}
