//! The way out of an engine: sessions, their links and queues, what goes to other workers, and what is counted.

use std::collections::VecDeque;
use std::iter::once;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::engine::handover::transfer::Exporting;
use crate::engine::metrics::counters::{Counters, Drop};
use crate::engine::owner::distribution::Origin;
use crate::engine::owner::full_sessions::FullSessions;
use crate::engine::owner::holds::{Hold, Holds};
use crate::engine::owner::member_load::MemberLoads;
use crate::engine::owner::worker_copies::Copies;
use crate::engine::sessions::message::QueuedBatch;
use crate::engine::sessions::send::PendingSettlement;
use crate::engine::sessions::table::Sessions;
use crate::engine::transport::delivery_records::Span;
use crate::engine::transport::links::Links;
use crate::link::receive::pubacks::Success;
use crate::link::send::outbox::Stretch;
use crate::link::{Chain, Link, QueueFull};
use crate::link_id::{LinkId, SessionKey};
use crate::load::Load;
use crate::tables::match_set::{Overflow, Subscriber};
use crate::wire::MeantFor;

/// What one worker asks of another.
#[expect(
    clippy::large_enum_variant,
    reason = "most bytes are moved in the largest, and a box for it costs more"
)]
#[derive(Clone, Debug)]
pub enum Handoff {
    /// These messages are for these sessions, which are yours. The tickets are held once for each that wants them at `QoS` 1 or 2.
    Deliver { queued_batch: QueuedBatch, targets: Targets },
    /// These are for sessions that are yours.
    Copies(Copies),
    /// A copy of each of these messages, which you took over, is settled.
    Settled { tickets: Span },
    /// A session has ended: forget its subscriptions.
    Gone { session: SessionKey },
    /// What this worker holds for its sessions is too much, or so much that nothing more is taken over for them, or is so no more (§7.7).
    Pressure { worker: u8, is_high: bool, is_full: bool },
    /// A session that is mine holds a link that is yours, or lets go of it.
    Hold(Hold),
    /// A session that is mine is full, or is so no more.
    Full { session: SessionKey, is_full: bool },
    /// A message that came over a link of mine was refused, for a session that is yours is full.
    Refused { session: SessionKey, link: LinkId },
    /// A link is gone that sessions of yours may hold.
    LinkGone { link: LinkId },
    /// All that this worker had for you before its barrier of this number has come.
    Barrier { worker: u8, number: u64 },
    /// A datagram for a session that you have.
    Datagram { source: std::net::SocketAddr, datagram: Bytes },
}

pub type Targets = SmallVec<[Target; 4]>;

/// What is for each of the other workers.
pub struct ByWorker<T>(SmallVec<[(u8, SmallVec<[T; 4]>); 4]>);

impl<T> ByWorker<T> {
    pub fn new() -> Self {
        Self(SmallVec::new())
    }

    /// One more for a worker.
    pub fn add(&mut self, worker: u8, one: T) {
        match self.0.iter_mut().find(|(other, _)| *other == worker) {
            Some((_, all)) => all.push(one),
            None => self.0.push((worker, SmallVec::from_iter([one]))),
        }
    }

    /// Takes it all out, by worker. (Not moved: where there is none, as most often, that would be all that it costs.)
    pub fn drain(&mut self) -> impl Iterator<Item = (u8, SmallVec<[T; 4]>)> + '_ {
        self.0.drain(..)
    }
}

/// A session that gets a message.
#[derive(Clone, Debug)]
pub struct Target {
    pub session: SessionKey,
    pub qos: u8,
    /// The id of the shared subscription that it gets it for; 0: it is for its own.
    pub shared: u64,
    pub overflow: Overflow,
    /// The shared group that it gets it for.
    pub group: Option<Arc<str>>,
}

impl From<&Subscriber> for Target {
    fn from(subscriber: &Subscriber) -> Self {
        let &Subscriber { session, qos, overflow, .. } = subscriber;
        Self { session, qos, shared: 0, overflow, group: None }
    }
}

impl Target {
    /// As in a packet.
    pub fn meant_for(&self) -> Option<MeantFor> {
        MeantFor::of(None, self.shared)
    }
}

pub struct Outbound {
    pub member_loads: Option<Arc<MemberLoads>>,
    pub links: Links,
    pub sessions: Sessions,
    pub pending: PendingSettlement,
    pub exports: Vec<Exporting>,
    pub holds: Holds,
    pub full: FullSessions,
    /// Another worker takes nothing more over for its sessions.
    pub others_are_full: bool,
    pub counters: Counters,
    /// What is counted by topic; `None`: nobody asks.
    pub load: Option<Box<Load>>,
    /// For which worker, and what.
    pub handoffs: VecDeque<(u8, Handoff)>,
}

impl Outbound {
    /// Whether too much waits for sessions that count as connected: then nothing more is taken over at `QoS` 1 and 2 (§7.7).
    pub fn is_full(&self) -> bool {
        self.others_are_full || self.sessions.is_full()
    }

    /// Lets a PUBACK go, if its link is still there.
    pub fn acknowledge(&mut self, origin: Origin, success: Success) {
        self.acknowledge_batch(origin, 1, success);
    }

    /// Lets the PUBACKs of messages go that came one behind the other. `origin`: of the first.
    pub fn acknowledge_batch(&mut self, origin: Origin, count: u64, success: Success) {
        if let Some(entry) = self.links.get_mut(origin.link) {
            entry.link.acknowledge(origin.delivery, origin.delivery + count - 1, success);
            self.links.touch(origin.link);
        }
    }

    /// Queues a message at `QoS` 0: dropped, and counted, where there is no room.
    pub fn queue_copy(&mut self, id: LinkId, field: &[u8]) {
        self.queue_message(id, |link| link.queue_unreliable(field, None));
    }

    /// The same, of a message that is a whole packet already; how many had been queued on its link with it.
    pub fn queue_packet(&mut self, id: LinkId, packet: &[u8]) -> u64 {
        self.queue_message(id, |link| link.queue_encoded(packet, once(Stretch::one(packet.len()))));
        self.links.get_mut(id).map_or(0, |entry| entry.link.passed().0)
    }

    /// Queues a message at `QoS` 0 that is like the one before it, as [`Link::queue_delta`] does.
    pub fn queue_delta(&mut self, id: LinkId, payload: &[u8], before: u64) -> bool {
        let is_queued = self.links.get_mut(id).is_some_and(|entry| entry.link.queue_delta(payload, before));
        if is_queued {
            self.counters.messages_out += 1;
            self.links.touch(id);
        }
        is_queued
    }

    fn queue_message(&mut self, id: LinkId, queue: impl FnOnce(&mut Link) -> Result<(), QueueFull>) {
        let Some(entry) = self.links.get_mut(id) else {
            return;
        };
        if queue(&mut entry.link).is_err() {
            self.counters.drop(Drop::QueueFull);
            return;
        }
        self.counters.messages_out += 1;
        self.links.touch(id);
    }

    /// Queues a control packet, or the body of one; false where there is no room or no such link.
    pub fn queue_control(&mut self, id: LinkId, packet: Bytes) -> bool {
        let Some(entry) = self.links.get_mut(id) else {
            return false;
        };
        let queued = entry.link.queue_reliable(Chain::Control, packet, None).is_ok();
        if !queued {
            self.counters.drop(Drop::QueueFull);
        }
        self.links.touch(id);
        queued
    }
}
