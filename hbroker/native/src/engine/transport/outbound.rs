//! The output side of an engine: sessions, their links and queues, handoffs to other workers, and counters.

use std::collections::VecDeque;
use std::iter::once;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::engine::handover::worker_export::WorkerExport;
use crate::engine::metrics::counters::{Counters, Drop};
use crate::engine::owner::member_fitness::MemberFitness;
use crate::engine::owner::throttled_links::{FullSessions, ThrottleChange, ThrottledLinks};
use crate::engine::sessions::message::QueuedBatch;
use crate::engine::sessions::session::Session;
use crate::engine::sessions::settlement::PendingSettlement;
use crate::engine::sessions::stored_before::StoredBefore;
use crate::engine::sessions::storing::Storing;
use crate::engine::sessions::table::Sessions;
use crate::engine::sessions::target::Targets;
use crate::engine::transport::copy_batch::CopyBatch;
use crate::engine::transport::delivery_records::{Origin, TicketSpan};
use crate::engine::transport::links::Links;
use crate::engine::transport::session_claims::SessionClaims;
use crate::link::receive::pubacks::Success;
use crate::link::send::outbox::PacketRun;
use crate::link::{Chain, Link, QueueFull};
use crate::link_id::{LinkId, SessionKey};
use crate::load::Load;
use crate::load::spans::SpanLog;
use crate::rights::Rights;

/// What one worker sends to another.
#[expect(
    clippy::large_enum_variant,
    reason = "most bytes are moved in the largest, and a box for it costs more"
)]
#[derive(Clone, Debug)]
pub enum Handoff {
    /// Messages for sessions of the receiving worker. Each target at `QoS` 1 or 2 holds the tickets once.
    Deliver { queued_batch: QueuedBatch, targets: Targets },
    /// Copies at `QoS` 0 for sessions of the receiving worker.
    Copies(CopyBatch),
    /// One copy of each of these messages, which the receiving worker took over, is settled.
    Settled { tickets: TicketSpan },
    /// A session has ended: the receiving worker forgets its subscriptions.
    SessionEnded { session: SessionKey },
    /// Whether the sending worker has too many queued bytes, and whether it takes over no more messages (§7.7).
    Pressure { worker: u8, is_high: bool, is_full: bool },
    /// A session of the sending worker begins to throttle a link of the receiving worker, or releases it.
    Throttle(ThrottleChange),
    /// A session of the sending worker is full from now on, or is not full any more.
    Full { session: SessionKey, is_full: bool },
    /// A message over a link of the sending worker was refused, because a session of the receiving worker is
    /// full.
    RefusedFull { session: SessionKey, link: LinkId },
    /// A link has ended that sessions of the receiving worker may throttle.
    LinkEnded { link: LinkId },
    /// All handoffs of the sending worker before its barrier of this number have arrived.
    Barrier { worker: u8, number: u64 },
    /// A datagram for a session of the receiving worker.
    Datagram { source: SocketAddr, rights: Option<Arc<Rights>>, datagram: Bytes },
}

/// Items, collected for each of the other workers.
pub struct ByWorker<T>(SmallVec<[(u8, SmallVec<[T; 4]>); 4]>);

impl<T> ByWorker<T> {
    pub fn new() -> Self {
        Self(SmallVec::new())
    }

    /// Adds an item for a worker.
    pub fn add(&mut self, worker: u8, one: T) {
        match self.0.iter_mut().find(|(other, _)| *other == worker) {
            Some((_, all)) => all.push(one),
            None => self.0.push((worker, SmallVec::from_iter([one]))),
        }
    }

    /// Takes all items out, by worker. (Not by value: usually there are none, and the move would be the only
    /// cost.)
    pub fn drain(&mut self) -> impl Iterator<Item = (u8, SmallVec<[T; 4]>)> + '_ {
        self.0.drain(..)
    }
}

pub struct Outbound {
    pub member_fitness: Option<Arc<MemberFitness>>,
    pub links: Links,
    pub claims: SessionClaims,
    pub sessions: Sessions,
    pub pending: PendingSettlement,
    pub exports: Vec<WorkerExport>,
    pub throttled_links: ThrottledLinks,
    pub full_sessions: FullSessions,
    /// Another worker takes nothing more over for its sessions.
    pub other_workers_are_full: bool,
    pub counters: Counters,
    /// The counters by topic; `None`: telemetry is off.
    pub load: Option<Box<Load>>,
    /// For messages that have spans; `None`: none has.
    pub spans: Option<Arc<SpanLog>>,
    /// `None`: this node has no store.
    pub storing: Option<Box<Storing>>,
    /// `None`: this node began long ago, or found nothing of an earlier run.
    pub stored_before: Option<Box<StoredBefore>>,
    /// Each with the worker that it is for.
    pub handoffs: VecDeque<(u8, Handoff)>,
}

impl Outbound {
    /// Whether the queues of sessions that count as connected are too large: then nothing more is taken over
    /// at `QoS` 1 and 2 (§7.7).
    pub fn queues_are_full(&self) -> bool {
        self.other_workers_are_full || self.sessions.is_full()
    }

    /// Whether the store takes no more: then nothing is taken over that has to be stored.
    pub fn store_is_full(&self) -> bool {
        self.storing.as_ref().is_some_and(|storing| storing.is_full())
    }

    /// Whether what this session gets has to be stored.
    pub fn has_to_be_stored(&self, session: SessionKey) -> bool {
        let is_stored = |session: &Session| !session.is_ready() || session.has_backlog();
        self.storing.is_some() && self.sessions.get(session).is_some_and(is_stored)
    }

    /// Whether a message that is acknowledged once it is queued (`ack_queued`, §7.3) must reach the disk first,
    /// because it may have to be stored for one of these sessions. A session of another worker than `worker` is not
    /// known here.
    pub fn waits_for_the_disk(&self, worker: u8, mut sessions: impl Iterator<Item = SessionKey>) -> bool {
        let is_safe = |session: &Session| session.is_ready() && !session.has_backlog() && !session.is_bounded;
        self.storing.is_some()
            && sessions.any(|key| key.worker() != worker || !self.sessions.get(key).is_some_and(is_safe))
    }

    /// Whether an earlier run of this node has stored a message for a session. It is counted, and not offered.
    pub fn was_stored_before(&mut self, session: SessionKey, shared: u64, field: &[u8]) -> bool {
        let is_known = self
            .stored_before
            .as_ref()
            .is_some_and(|stored_before| stored_before.has(session, shared, field));
        if is_known {
            self.counters.drop(Drop::DuplicateMessage);
        }
        is_known
    }

    /// Queues the PUBACKs of messages with consecutive deliveries, if their link still exists. `origin` is that
    /// of the first.
    pub fn acknowledge(&mut self, origin: Origin, count: u64, success: Success) {
        if let Some(entry) = self.links.get_mut(origin.link) {
            entry.link.acknowledge(origin.delivery, origin.delivery + count - 1, success);
            self.links.mark_dirty(origin.link);
        }
    }

    /// Queues a message at `QoS` 0. If there is no room, it is dropped and counted.
    pub fn queue_copy(&mut self, id: LinkId, field: &[u8]) {
        self.queue_message(id, |link| link.queue_unreliable(field, None));
    }

    /// The same, for a message that is a whole packet already. Returns the number of messages that its link
    /// has queued so far.
    pub fn queue_packet(&mut self, id: LinkId, packet: &[u8]) -> u64 {
        self.queue_message(id, |link| link.queue_encoded(packet, once(PacketRun::one(packet.len()))));
        self.links.get_mut(id).map_or(0, |entry| entry.link.passed().0)
    }

    /// Queues a message at `QoS` 0 as a delta of the one before it, as [`Link::queue_delta`] does.
    pub fn queue_delta(&mut self, id: LinkId, payload: &[u8], before: u64) -> bool {
        let is_queued = self.links.get_mut(id).is_some_and(|entry| entry.link.queue_delta(payload, before));
        if is_queued {
            self.counters.messages_out += 1;
            self.links.mark_dirty(id);
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
        self.links.mark_dirty(id);
    }

    /// Queues a control packet, or the body of one. False: there is no room or no such link.
    pub fn queue_control(&mut self, id: LinkId, packet: Bytes) -> bool {
        let Some(entry) = self.links.get_mut(id) else {
            return false;
        };
        let queued = entry.link.queue_reliable(Chain::Control, packet, None).is_ok();
        if !queued {
            self.counters.drop(Drop::QueueFull);
        }
        self.links.mark_dirty(id);
        queued
    }
}
