//! What an engine does when a subtree moves to another owner (§5.4).
//!
//! At the source, once it does not serve the subtree any more:
//!
//! 1. The source waits for a while for *open* messages, for whose PUBACK a publisher still waits.
//! 2. It refuses those that are left with HANDOVER, so that their publishers send them to the target, under
//!    the same ids.
//! 3. It transfers the messages of sessions, queued or in flight, that no publisher would send again, and the
//!    knowledge of which messages were taken over.
//!
//! The target takes all of that in before it serves.
//!
//! The duplicate window is kept by publisher, not by topic, so all of it moves with every subtree. A message
//! that is open in another subtree must not be reported as seen: it may yet be refused, and come to the
//! target of both subtrees. A refused message is not seen any more, neither here nor wherever the next
//! subtree moves.

use crate::Micros;
use crate::engine::handover::held_queues::HeldQueue;
use crate::engine::handover::session_export::CopyStep;
use crate::engine::handover::stored_copies::StoredPart;
use crate::engine::handover::worker_export::WorkerExport;
use crate::engine::metrics::counters::Drop;
use crate::engine::owner::forward::Forwarder;
use crate::engine::sessions::message::QueuedMessage;
use crate::engine::sessions::stored_before::{StoredBefore, StoredCopy};
use crate::engine::transport::delivery_records::Origin;
use crate::engine::transport::outbound::Outbound;
use crate::engine::{Engine, Side};
use crate::link_id::SessionKey;
use crate::schema::reason;
use crate::store::Messages;
use crate::store::queues::queue::QueueState;
use crate::tables::jurisdiction::{Cut, Decision};
use crate::tables::window::Seen;
use crate::topic::Region;
use crate::wire::publish_of;
use crate::wire::{self, ChoiceRecord, GoneRecord as Gone, SeenRecord};

/// A publisher that was silent for longer has no messages under way that may be retransmitted: its links
/// timed out long ago.
const SEEN_FOR: Micros = 300_000_000;
/// Words of bits in one record, so that it fits a packet of TRANSFER with others (§3.4).
const RECORD_WORDS: usize = 64;

impl Engine {
    /// The number of messages of a region that are open, or that connected subscribers have not acknowledged:
    /// the target would send those to them again.
    pub fn unanswered_within(&mut self, region: Region<'_>) -> usize {
        let open = self.node(|node| node.distribution.open_within(region)).unwrap_or(0);
        let ready = self.out.sessions.watched().filter(|session| session.is_ready());
        open + ready
            .map(|session| session.unticketed_in_flight(|queued_message| queued_message.is_of(region)))
            .sum::<usize>()
    }

    /// Refuses the open messages of a region. If one is received again, it counts as new here.
    pub fn refuse_open(&mut self, now: Micros, region: Region<'_>) {
        let taken = self.node(|node| node.distribution.take_within(region)).unwrap_or_default();
        for (origin, id, topic) in taken {
            if let Some((publisher, sequence)) = id {
                self.node(|node| node.window.take_back(now, publisher, sequence));
            }
            self.refuse_taken(now, origin, &topic);
        }
    }

    /// Begins to copy the messages of a region from the sessions, which keep them meanwhile.
    pub fn begin_export(&mut self, id: u64) {
        self.out.exports.push(WorkerExport::new(id));
    }

    /// Takes the next step of copying; the result also contains the copies that are void. True: all sessions
    /// have been looked at, and the next step begins with the first again.
    pub fn copy_export(&mut self, id: u64, region: Region<'_>) -> (CopyStep, bool) {
        let mut step = CopyStep::default();
        let Outbound { exports, sessions, storing, .. } = &mut self.out;
        let Some(worker_export) = exports.iter_mut().find(|worker_export| worker_export.id == id) else {
            return (step, true);
        };
        step.gone.extend(worker_export.ended.drain(..).map(Gone::all));
        let is_over = worker_export.copy(region, sessions, storing.as_deref_mut(), &mut step);
        (step, is_over)
    }

    /// The next of these messages, which were taken out of a session, from the number `from` in its stored queue on;
    /// and from which number on there may be more. `None`: the store is reading them.
    pub fn copy_held(
        &mut self,
        id: u64,
        stored: &StoredPart,
        from: u64,
    ) -> Option<(Vec<QueuedMessage>, u64)> {
        let Outbound { exports, sessions, storing, .. } = &mut self.out;
        let worker_export = exports.iter_mut().find(|worker_export| worker_export.id == id);
        let is_left = stored.numbers.highest().is_some_and(|last| from <= last);
        match (worker_export, sessions.get(stored.key).filter(|_| is_left)) {
            (Some(worker_export), Some(session)) => {
                worker_export.copy_held(session, stored, from, storing.as_deref_mut())
            }
            _ => Some((Vec::new(), u64::MAX)), // Or the session has ended, and its messages with it.
        }
    }

    /// As [`Core::has_uncopied`](crate::core::Core::has_uncopied).
    pub fn has_uncopied(&mut self, id: u64) -> bool {
        let Outbound { exports, sessions, .. } = &mut self.out;
        let worker_export = exports.iter_mut().find(|worker_export| worker_export.id == id);
        worker_export.is_some_and(|worker_export| worker_export.has_uncopied(sessions))
    }

    /// Begins again, because the region has changed. The copies so far are void.
    pub fn restart_copy(&mut self, id: u64) {
        for worker_export in self.out.exports.iter_mut().filter(|worker_export| worker_export.id == id) {
            worker_export.begin_again();
        }
        self.out.sessions.iter_mut().for_each(|session| session.restart_copy(id));
    }

    /// The subtree does not move after all.
    pub fn stop_export(&mut self, id: u64) {
        self.out.exports.retain(|worker_export| worker_export.id != id);
        self.out.sessions.iter_mut().for_each(|session| session.stop_copying(id));
        self.out.spill_all();
    }

    /// Takes those messages of a region out of this worker's sessions that no publisher would send again.
    /// Also returns which copies are void.
    pub fn finish_export(&mut self, now: Micros, id: u64, region: Region<'_>) -> (Vec<HeldQueue>, Vec<Gone>) {
        let ended = self
            .out
            .exports
            .extract_if(.., |worker_export| worker_export.id == id)
            .flat_map(|worker_export| worker_export.ended);
        let mut gone: Vec<Gone> = ended.map(Gone::all).collect();
        let mut all = Vec::new();
        for extracted in self.out.extract_region(id, region) {
            gone.extend(extracted.gone);
            all.push(extracted.held_queue);
        }
        all.retain(|held_queue| held_queue.len() > 0);
        all.extend(self.pass_barrier(region).into_iter().map(|(session, queued_message)| {
            let mut held_queue = HeldQueue::new(0, session);
            held_queue.push(queued_message);
            held_queue
        }));
        self.out.spill_all();
        self.settle_pending(now);
        (all, gone)
    }

    /// Gives messages that were queued at another owner to their sessions, whose home is here. Returns how
    /// many had no room.
    pub fn install(&mut self, now: Micros, all: Vec<HeldQueue>) -> usize {
        let mut refused = 0;
        for mut held_queue in all {
            let (count, session) = (held_queue.len() as u64, self.out.sessions.by_id(held_queue.session));
            let (spooled, mut stored) = (held_queue.take_spooled(), held_queue.take_stored());
            if let Some(ended) = stored.take_if(|stored| session.is_some_and(|key| key != stored.key)) {
                // The store has dropped them with their session.
                self.out.counters.drop_many(Drop::SessionEnded, ended.numbers.count());
            }
            match session.and_then(|key| {
                self.out.take_in(now, key, (spooled.as_ref(), stored), held_queue.into_list_for(key))
            }) {
                Some(dropped) => refused += dropped as usize,
                None => {
                    self.out.counters.drop_many(Drop::InvalidRecord, count);
                    let queue = spooled.map(|spooled| spooled.queue);
                    self.out.storing.iter_mut().zip(queue).for_each(|(storing, queue)| storing.end(queue));
                }
            }
            self.settle_pending(now);
        }
        refused
    }

    /// An earlier run has stored messages for a session, whose home is here. They stay in the store until they
    /// are needed. Returns whether they are needed now (see `sessions::backlog`).
    pub fn restore(&mut self, now: Micros, state: QueueState) -> bool {
        let Some(key) = self.out.sessions.by_id(state.session) else {
            return false;
        };
        self.out.restore(now, key, state);
        self.settle_pending(now);
        self.out.sessions.get(key).is_some_and(|session| session.is_member && session.has_backlog())
    }

    /// This run ends: gives the store what waits for persistent sessions, or is in flight to them, and no publisher
    /// sends again.
    pub fn store_queues(&mut self) {
        let Outbound { sessions, storing, .. } = &mut self.out;
        if let Some(storing) = storing.as_deref_mut() {
            for session in sessions.iter_mut().filter(|session| session.persistent) {
                session.store_acknowledged(storing);
                storing.submit();
            }
            storing.end_run();
        }
    }

    /// An earlier run has stored these messages of `QoS` 2 for a session.
    pub fn note_stored_before(&mut self, now: Micros, key: SessionKey, copies: &[StoredCopy]) {
        self.out.stored_before.get_or_insert_with(|| Box::new(StoredBefore::new(now))).add(key, copies);
    }

    /// The messages of a session's backlog from this number on are being read. `None`: it has no backlog.
    pub fn begin_to_load(&mut self, key: SessionKey) -> Option<u64> {
        self.out.begin_to_load(key)
    }

    /// Messages of a session's backlog, from this number on, were read.
    pub fn load(&mut self, now: Micros, key: SessionKey, from: u64, messages: Messages) {
        self.out.load(now, key, from, messages);
        self.settle_pending(now);
    }

    /// Messages that were taken from a session have moved: the store need not keep them any more.
    pub fn forget_moved(&mut self, stored: &StoredPart) {
        let Outbound { sessions, storing, exports, .. } = &mut self.out;
        if let (Some(session), Some(storing)) = (sessions.get_mut(stored.key), storing.as_deref_mut()) {
            session.forget_moved(&stored.numbers);
            storing.moved(session.id, &stored.numbers);
            // What was read before has them still.
            exports.iter_mut().for_each(WorkerExport::forget_read);
        }
    }

    /// Counts invalid records of messages.
    pub fn count_invalid_records(&mut self, count: u64) {
        self.out.counters.drop_many(Drop::InvalidRecord, count);
    }

    /// This worker's duplicate windows of all publishers without their open messages, whatever the topics,
    /// serialised. (The open messages of a publisher are with the worker that has its window. Those of other
    /// subtrees change meanwhile, so they are looked up here.)
    pub fn export_seen(&mut self, now: Micros) -> Vec<Vec<u8>> {
        let since = now.saturating_sub(SEEN_FOR);
        let export = |node: &mut Forwarder| node.window.export(since, node.distribution.open_ids());
        let seen = self.node(export).unwrap_or_default();
        seen.iter().flat_map(seen_records).collect()
    }

    /// Adds the duplicate windows of another owner. An invalid record is dropped.
    pub fn import_seen(&mut self, now: Micros, records: &[Vec<u8>]) {
        for record in records {
            let Ok(record) = SeenRecord::parse(record) else {
                self.out.counters.drop(Drop::InvalidRecord);
                continue;
            };
            let seen =
                Seen { publisher: record.publisher, floor: record.floor, words: record.words().collect() };
            self.node(|node| node.window.import(now, &seen));
        }
    }

    /// Which members of shared groups get the rests of large messages, whatever the topics.
    pub fn export_choices(&mut self) -> Vec<ChoiceRecord> {
        self.node(|node| node.shared_groups.choices().collect()).unwrap_or_default()
    }

    /// Adds the choices of another owner.
    pub fn import_choices(&mut self, choices: &[ChoiceRecord]) {
        self.node(|node| choices.iter().for_each(|choice| node.shared_groups.import(choice)));
    }

    /// Publishes a client's message, a serialised `Publish`, in the client's name. Returns the reason that
    /// its publisher would get in a PUBACK.
    pub fn publish_raw(&mut self, now: Micros, message: &[u8]) -> i32 {
        let field = wire::field_of(message);
        let (Side::Node(forwarder), Some(publish)) = (&mut self.side, publish_of(&field)) else {
            return reason::PROTOCOL_ERROR;
        };
        let taken = forwarder.forward(now, &publish, None, &mut self.out);
        self.settle_pending(now);
        taken.map_or_else(|refusal| refusal.drop_and_reason().1, |()| reason::SUCCESS)
    }

    fn refuse_taken(&mut self, now: Micros, origin: Origin, topic: &str) {
        let cut = self.node(|node| match node.routes.jurisdiction().decide(topic, now) {
            Decision::Elsewhere(cut) => Some(cut.clone()),
            _ => None,
        });
        let cut = cut.flatten();
        let Some(entry) = self.out.links.get_mut(origin.link) else {
            return;
        };
        self.out.counters.drop(Drop::Handover);
        let mut body = Vec::new();
        let (delivery, cut) = (origin.delivery, cut.as_ref().map(Cut::view));
        wire::put_puback_field(&mut body, [(delivery, delivery)], reason::HANDOVER, "", cut.as_ref());
        if entry.link.refuse(body.into()).is_err() {
            self.out.counters.drop(Drop::QueueFull);
        }
        self.out.links.mark_dirty(origin.link);
    }
}

/// The duplicate window of one publisher, in as many records as necessary.
fn seen_records(seen: &Seen) -> Vec<Vec<u8>> {
    let record = |words: &[(u64, u64)]| wire::seen_record(seen.publisher, seen.floor, words);
    match seen.words.as_slice() {
        [] if seen.floor == 0 => Vec::new(),
        [] => vec![record(&[])],
        words => words.chunks(RECORD_WORDS).map(record).collect(),
    }
}
