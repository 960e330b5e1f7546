//! The verbs of the native API for subtrees that change their owner (§5.4). Their state is in
//! [`Moves`].

use std::collections::BTreeMap;

use rand::Rng;

use super::Core;
use crate::engine::handover::held_queues::{HeldQueue, HeldQueues, add_queued};
use crate::engine::handover::moves::{HeldCursor, Move, Moves, NodeExport};
use crate::engine::handover::session_export::CopyStep;
use crate::engine::handover::worker_export::HELD_STEP;
use crate::engine::sessions::session::copying::CopyProgress;
use crate::topic::Region;
use crate::wire::Transfers;

/// A round over all sessions that copies fewer bytes than this ends the copying; the rest is sent as the
/// difference.
const LITTLE: usize = 64 << 10;
/// Copying also ends after twice the bytes that were queued when it began, plus this.
const SLACK: usize = 16 << 20;

impl Core {
    /// Begins to copy the queues of a region, after what is held under `before` (0: nothing). Returns the
    /// number of the export.
    pub fn begin_export(&self, region: Region<'_>, before: u64) -> u64 {
        let mut moves = self.shared.moves.lock();
        let before = moves.take_held(before);
        moves.last += 1;
        let id = moves.last;
        let mut waiting = before.bytes();
        self.each(|engine, _| {
            engine.begin_export(id);
            waiting += engine.queued_bytes();
        });
        let node_export = NodeExport {
            subtree: region.subtree.into(),
            excluded: region.excluded.to_vec(),
            before,
            at: HeldCursor::default(),
            worker: 0,
            round: 0,
            copied: 0,
            most: 2 * waiting + SLACK,
        };
        moves.all.insert(id, Move::Export(node_export));
        id
    }

    /// Copies the next step, as serialised TRANSFERs. True: little is left, or more arrives than can be
    /// copied. `excluded`: the region's current cuts.
    pub fn copy_export(&self, id: u64, excluded: &[String]) -> (Vec<Vec<u8>>, bool) {
        let mut moves = self.shared.moves.lock();
        let Some(Move::Export(node_export)) = moves.all.get_mut(&id) else {
            return (Vec::new(), true);
        };
        self.set_excluded(id, node_export, excluded);
        let mut out = Transfers::default();
        if self.copy_held(id, node_export, &mut out) != CopyProgress::Done {
            return (out.into_all(), false);
        }
        let region = Region { subtree: &node_export.subtree, excluded: &node_export.excluded };
        let (step, is_round_over) = self.on(node_export.worker, |engine, _| engine.copy_export(id, region));
        node_export.round += step.bytes;
        node_export.copied += step.bytes;
        let copies = step.copies.len() as u64;
        add_step(&mut out, step);
        let mut is_near = node_export.copied > node_export.most;
        if is_round_over {
            node_export.worker = (node_export.worker + 1) % self.workers();
            if node_export.worker == 0 {
                is_near |= std::mem::take(&mut node_export.round) < LITTLE;
            }
        }
        moves.copied += copies;
        (out.into_all(), is_near)
    }

    /// Whether messages that move are still to be copied by [`Self::copy_export`]: those that only the store has, and
    /// those that were held before. The first call, and the first one after a change of `excluded`, determines which
    /// messages these are. From then on no message of the region may be accepted.
    pub fn has_uncopied(&self, id: u64, excluded: &[String]) -> bool {
        let mut moves = self.shared.moves.lock();
        let Some(Move::Export(node_export)) = moves.all.get_mut(&id) else {
            return false;
        };
        self.set_excluded(id, node_export, excluded);
        let uncopied =
            (0..self.workers()).find(|&worker| self.on(worker, |engine, _| engine.has_uncopied(id)));
        uncopied.inspect(|&worker| node_export.worker = worker).is_some()
            || node_export.at.queue < node_export.before.queues.len()
    }

    /// Takes the next step of copying queues that were held before.
    fn copy_held(&self, id: u64, node_export: &mut NodeExport, out: &mut Transfers) -> CopyProgress {
        let NodeExport { before, at, .. } = node_export;
        let Some(held_queue) = before.queues.get(at.queue) else {
            return CopyProgress::Done;
        };
        if let Some(stored) = held_queue.stored().filter(|_| at.stored < u64::MAX) {
            let copy = self.on(stored.key.worker(), |engine, _| engine.copy_held(id, stored, at.stored));
            let Some((queued_messages, next)) = copy else {
                return CopyProgress::AwaitsStore;
            };
            held_queue.send(queued_messages.iter(), out);
            at.stored = if stored.numbers.highest().is_none_or(|last| next > last) { u64::MAX } else { next };
            return CopyProgress::StepFull;
        }
        let mut count = 0;
        held_queue.send(held_queue.left_from(at.position).take(HELD_STEP).inspect(|_| count += 1), out);
        match count < HELD_STEP {
            true => *at = HeldCursor { queue: at.queue + 1, ..HeldCursor::default() },
            false => at.position += count,
        }
        CopyProgress::StepFull
    }

    /// Cancels an export: nothing moves. Returns the number under which earlier records are still held; 0:
    /// there are none.
    pub fn stop_export(&self, id: u64) -> u64 {
        let mut moves = self.shared.moves.lock();
        let Some(Move::Export(node_export)) = moves.all.remove(&id) else {
            return 0;
        };
        self.each(|engine, _| engine.stop_export(id));
        if node_export.before.is_empty() {
            return 0;
        }
        moves.all.insert(id, Move::HeldQueues(node_export.before));
        id
    }

    /// Finishes an export. It takes the region's queues and seen message ids out of the workers, refuses open
    /// messages, and holds the records from now on. Returns the difference to the copies, as serialised
    /// TRANSFERs. A barrier that was sent after the region was cut must have passed, and then [`Self::has_uncopied`]
    /// must be false.
    pub fn finish_export(&self, id: u64, excluded: &[String]) -> Vec<Vec<u8>> {
        let mut moves = self.shared.moves.lock();
        let Some(Move::Export(mut node_export)) = moves.all.remove(&id) else {
            return Vec::new();
        };
        self.set_excluded(id, &mut node_export, excluded);
        let region = Region { subtree: &node_export.subtree, excluded: &node_export.excluded };
        self.each(|engine, now| engine.refuse_open(now, region));
        let mut out = Transfers::default();
        let (mut queues, mut seen) = (Vec::new(), Vec::new());
        self.each(|engine, now| {
            let (held_queues, gone) = engine.finish_export(now, id, region);
            gone.iter().for_each(|gone| out.add_gone(gone));
            queues.extend(held_queues);
        });
        let mut choices = Vec::new();
        self.each(|engine, now| {
            seen.extend(engine.export_seen(now));
            choices.extend(engine.export_choices());
        });
        while self.copy_held(id, &mut node_export, &mut out) == CopyProgress::StepFull {}
        for held_queue in &queues {
            moves.rest += held_queue.uncopied().count() as u64;
            held_queue.send(held_queue.uncopied(), &mut out);
        }
        let mut held = node_export.before;
        held.seen.extend(seen);
        held.seen.iter().for_each(|record| out.add_seen(record));
        held.choices.extend(choices);
        held.choices.iter().for_each(|choice| out.add_choice(*choice));
        held.add(queues);
        moves.all.insert(id, Move::HeldQueues(held));
        out.into_all()
    }

    /// Begins an import. Returns its number.
    pub fn begin_import(&self) -> u64 {
        let mut moves = self.shared.moves.lock();
        moves.last += 1;
        let id = moves.last;
        moves.all.insert(id, Move::HeldQueues(HeldQueues::default()));
        id
    }

    /// Adds the records of a serialised TRANSFER to an import. Returns for how many messages there was no
    /// room. Invalid records are dropped and counted.
    pub fn take_records(&self, id: u64, transfer: &[u8]) -> usize {
        let mut guard = self.shared.moves.lock();
        let Moves { all, names, most, most_unspooled, .. } = &mut *guard;
        let Some(Move::HeldQueues(held)) = all.get_mut(&id) else {
            return 0;
        };
        let (refused, invalid) = held.take(transfer, *most);
        if let Some(mailbox) = self.mailbox() {
            if !mailbox.is_full() {
                held.spool(*most_unspooled, || names.random());
            }
            held.submit(mailbox);
        }
        if invalid > 0 {
            self.on(0, |engine, _| engine.count_invalid_records(invalid));
        }
        refused
    }

    /// Installs what is held: queues into their sessions, which must be open, and seen message ids. Returns
    /// for how many messages there was no room.
    pub fn install(&self, id: u64) -> usize {
        let held = self.shared.moves.lock().take_held(id);
        if !held.seen.is_empty() || !held.choices.is_empty() {
            // A publisher's next message may reach any worker.
            self.each(|engine, now| {
                engine.import_seen(now, &held.seen);
                engine.import_choices(&held.choices);
            });
        }
        let mut of_worker: BTreeMap<u8, Vec<HeldQueue>> = BTreeMap::new();
        for held_queue in held.queues {
            // If there is no such session, worker 0 counts the messages as dropped.
            let home = self.shared.home_workers.worker_of(held_queue.session).unwrap_or(0);
            of_worker.entry(home).or_default().push(held_queue);
        }
        let install = |(home, all): (u8, Vec<_>)| self.on(home, |engine, now| engine.install(now, all));
        of_worker.into_iter().map(install).sum()
    }

    /// Drops what is held under a number.
    pub fn drop_held(&self, id: u64) {
        let mut held = self.shared.moves.lock().take_held(id);
        if let Some(mailbox) = self.mailbox() {
            held.drop_spooled();
            held.submit(mailbox);
        }
        for stored in held.queues.into_iter().filter_map(HeldQueue::into_stored) {
            self.on(stored.key.worker(), |engine, _| engine.forget_moved(&stored));
        }
    }

    /// The counters of all moves.
    pub(super) fn count_moves(&self, mut with: impl FnMut(&str, u64)) {
        let moves = self.shared.moves.lock();
        with("handover_copied", moves.copied);
        with("handover_rest", moves.rest);
    }

    /// Sets the excluded subtrees. If they have changed, all copies are void.
    fn set_excluded(&self, id: u64, node_export: &mut NodeExport, excluded: &[String]) {
        if node_export.excluded != excluded {
            node_export.excluded = excluded.to_vec();
            (node_export.worker, node_export.round, node_export.copied) = (0, 0, 0);
            self.each(|engine, _| engine.restart_copy(id));
        }
    }
}

fn add_step(out: &mut Transfers, step: CopyStep) {
    step.gone.iter().for_each(|gone| out.add_gone(gone));
    for (queue, session, queued_message) in &step.copies {
        add_queued(out, (*queue, *session), queued_message);
    }
}
