//! A session whose messages move to another owner (§5.4): they are copied while it is served, and taken out
//! of it afterwards.

use std::collections::{BTreeSet, VecDeque};

use crate::Micros;
use crate::engine::handover::held_queues::HeldQueue;
use crate::engine::handover::session_export::{CopyStep, SessionExport};
use crate::engine::handover::stored_copies::{Read, SessionReader, StoredPart};
use crate::engine::metrics::counters::Drop;
use crate::engine::sessions::backlog::Backlog;
use crate::engine::sessions::message::{QueuedBatch, QueuedMessage};
use crate::engine::sessions::queue::MessageList;
use crate::engine::sessions::session::{BusyState, ExtractedQueue, Session};
use crate::engine::sessions::settlement::PendingSettlement;
use crate::engine::sessions::storing::Storing;
use crate::link::receive::ranges::RangeSet;
use crate::topic::Region;

/// How a step of copying one session's messages ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyProgress {
    /// This round copies no more of the session: the next message has a ticket, or is newer than the round, or there
    /// is none. What is left is the difference.
    Done,
    /// The step is full.
    StepFull,
    /// The store is reading the next messages.
    AwaitsStore,
}

/// Copies messages that only the store has. Borrows the parts of the session that this needs.
struct StoredCopying<'a, 'b> {
    session_reader: &'a mut SessionReader<'b>,
    region: Region<'a>,
    moving: &'a RangeSet,
    launched: &'a RangeSet,
    backlog: Option<&'a Backlog>,
}

impl StoredCopying<'_, '_> {
    /// Copies messages that only the store has, and whose numbers are below `bound`.
    fn copy(&mut self, session_export: &mut SessionExport, bound: u64, step: &mut CopyStep) -> CopyProgress {
        let Self { session_reader, region, moving, launched, backlog } = self;
        let Some(backlog) = backlog else {
            return CopyProgress::Done;
        };
        if !session_export.is_reading() {
            session_reader.reader.forget();
        }
        let (base, last) = (session_reader.base, session_reader.last);
        let (key, session) = (session_reader.key, session_reader.session);
        loop {
            let from = session_export.next().max(base + backlog.next());
            if from >= bound || from > last {
                return CopyProgress::Done;
            }
            let (queued_messages, next) = match session_reader.read(from - base) {
                Read::Part(queued_messages, next) => (queued_messages, next),
                Read::Requested => {
                    session_export.begin_to_read();
                    return CopyProgress::AwaitsStore;
                }
                Read::Awaited => return CopyProgress::AwaitsStore,
            };
            while let Some(first) = queued_messages.front() {
                let number = base + first.stored;
                if number >= bound {
                    return CopyProgress::Done;
                } else if step.is_full() {
                    return CopyProgress::StepFull;
                }
                let Some(first) = queued_messages.pop_front() else { break };
                let is_unread = number >= from
                    && !moving.contains(first.stored)
                    && !backlog.passes_over(first.stored)
                    && !session_export.is_gone_unread(number);
                if is_unread {
                    let queued_message = first.in_session(base, launched);
                    let is_its = queued_message.is_of(*region);
                    session_export.pass(&queued_message, is_its);
                    step.examined(is_its.then_some((key.0, session, &queued_message)));
                } else {
                    session_export.pass_to(number + 1);
                }
            }
            session_export.pass_to(base + next);
        }
    }
}

impl Session {
    /// Copies its messages of a region, in steps.
    pub fn copy(
        &mut self,
        region: Region<'_>,
        step: &mut CopyStep,
        session_reader: &mut SessionReader<'_>,
    ) -> CopyProgress {
        let export = session_reader.export;
        let is_known = self
            .busy
            .iter()
            .any(|busy| busy.session_exports.iter().any(|session_export| session_export.is_of(export)));
        if !is_known && self.is_idle() {
            return CopyProgress::Done;
        }
        let oldest = self.oldest();
        let Self { id, key, queue, in_flight, newest, busy, .. } = self;
        let BusyState { session_exports, moving, launched, .. } = &mut **busy.get_or_insert_default();
        let session_export = SessionExport::among(session_exports, export);
        step.gone.extend(session_export.take_gone(key.0, oldest));
        let next = session_export.next();
        let is_waited_for =
            |sent: &QueuedBatch| sent.queued_message.number >= next && sent.queued_message.ticket.is_some();
        if next > *newest || in_flight.iter().next().is_some_and(|(sent, _)| is_waited_for(sent)) {
            return CopyProgress::Done;
        }
        let newer = in_flight
            .iter()
            .rev()
            .take_while(|(sent, _)| sent.queued_message.number + u64::from(sent.count) > next);
        let newer: Vec<_> = newer.collect();
        let sent = newer.into_iter().rev().flat_map(|(sent, open)| sent.clone().into_queued_messages(open));
        let sent: Vec<QueuedMessage> = sent.filter(|queued_message| queued_message.number >= next).collect();
        let backlog = queue.backlog();
        let mut stored_copying = StoredCopying { session_reader, region, moving, launched, backlog };
        for queued_message in sent.iter().chain(queue.beginning_with(next)) {
            let progress = stored_copying.copy(session_export, queued_message.number, step);
            if progress != CopyProgress::Done {
                return progress;
            } else if queued_message.ticket.is_some() {
                return CopyProgress::Done;
            } else if step.is_full() {
                return CopyProgress::StepFull;
            }
            let is_its = queued_message.is_of(region);
            session_export.pass(queued_message, is_its);
            step.examined(is_its.then_some((key.0, *id, queued_message)));
        }
        let progress = stored_copying.copy(session_export, u64::MAX, step);
        if progress == CopyProgress::Done {
            session_export.end_reading();
            stored_copying.session_reader.reader.forget();
        }
        progress
    }

    /// Whether some of its messages up to this number are still to be copied from its stored queue.
    pub fn has_uncopied_up_to(&self, export: u64, last: u64) -> bool {
        let session_export = self
            .busy
            .iter()
            .flat_map(|busy| &busy.session_exports)
            .find(|session_export| session_export.is_of(export));
        let next = session_export.map_or(1, SessionExport::next);
        self.first_unread().is_some_and(|first| first.max(next) <= last)
    }

    /// The region has changed: the copies so far are void.
    pub fn restart_copy(&mut self, export: u64) {
        self.session_exports()
            .filter(|session_export| session_export.is_of(export))
            .for_each(SessionExport::begin_again);
    }

    /// The exports for which messages were copied.
    pub fn exports(&self) -> impl Iterator<Item = u64> {
        let session_exports = self.busy.iter().flat_map(|busy| &busy.session_exports);
        session_exports.filter(|session_export| session_export.has_some()).map(SessionExport::export)
    }

    /// The subtree does not move after all.
    pub fn stop_copying(&mut self, export: u64) {
        if let Some(busy) = &mut self.busy {
            busy.session_exports.retain(|session_export| !session_export.is_of(export));
        }
    }

    /// Takes the session's messages of a region out, in order: those in flight, then the queued ones, and those that
    /// only the store has. The time is in proportion to the messages in memory.
    ///
    /// A message with a ticket is dropped, because its publisher gets a refusal and sends it to the next
    /// owner. It moves all the same if a later message of its topic moves, so that the order is kept.
    pub fn extract_region(
        &mut self,
        export: u64,
        region: Region<'_>,
        pending: &mut PendingSettlement,
    ) -> Option<ExtractedQueue> {
        if self.is_idle() && self.busy.is_none() {
            return None;
        }
        let (oldest, first_unread) = (self.oldest(), self.first_unread());
        let mut session_export =
            SessionExport::take_from(&mut self.busy.get_or_insert_default().session_exports, export);
        let gone = session_export.take_gone(self.key.0, oldest);
        let sent = self.in_flight.extract(|sent| sent.queued_message.is_of(region));
        let sent = sent.into_iter().flat_map(|(sent, open)| sent.into_queued_messages(open));
        let sent: Vec<QueuedMessage> = sent.collect();
        sent.iter().for_each(|queued_message| self.credit.settle(1, queued_message.field.len()));
        let is_whole = !session_export.has_others()
            && self
                .queue
                .beginning_with(session_export.next())
                .all(|queued_message| queued_message.is_of(region));
        let mut list = if is_whole {
            self.queue.take_all()
        } else {
            self.queue.extract_list(|queued_message| queued_message.is_of(region))
        };
        sent.into_iter().rev().for_each(|queued_message| list.push_first(queued_message));
        let (taken, behind) = (list.queued_messages.len() as u64, list.split_off(session_export.next()));
        let mut stored = StoredPart::new(self.key);
        // The messages of a member of a group may go to other members, so they stay in memory, unless newer ones do
        // not.
        if !self.is_member || first_unread.is_some() {
            list.take_stored(&mut stored);
        }
        let unread = self.take_unread(&mut session_export, first_unread, &mut stored);
        let copies = list.queued_messages.len();
        self.tickets -= behind.iter().filter(|queued_message| queued_message.ticket.is_some()).count();
        pending.tickets.extend(behind.iter().filter_map(|queued_message| queued_message.ticket));
        let (kept, dropped) = with_those_before(behind);
        dropped.iter().for_each(|queued_message| pending.forget_moved(self.id, queued_message));
        kept.into_iter()
            .for_each(|queued_message| list.push(QueuedMessage { ticket: None, ..queued_message }));
        let busy = self.busy.get_or_insert_default();
        busy.moving.insert_all(&stored.numbers);
        for queued_message in list.queued_messages.iter().filter(|queued_message| queued_message.stored > 0) {
            busy.moving.insert(queued_message.stored);
        }
        let taken = taken + unread;
        self.note_gone_in_other_exports(&stored, &list);
        self.session_counters.drop(Drop::Moved, taken);
        self.end_backlog_if_empty();
        if self.is_idle() {
            self.shrink();
        }
        Some(ExtractedQueue { taken, gone, held_queue: HeldQueue::of_session(self.id, stored, list, copies) })
    }

    /// Takes the copied messages out that only the store has. Returns their number.
    fn take_unread(
        &mut self,
        session_export: &mut SessionExport,
        first_unread: Option<u64>,
        stored: &mut StoredPart,
    ) -> u64 {
        let (Some(first_unread), base) = (first_unread, self.stored_base()) else {
            return 0;
        };
        let mut count = 0;
        for (first, last) in session_export.valid_from(first_unread) {
            // Some may be on the link.
            for (first, last) in stored.numbers.missing(first - base, last - base) {
                stored.numbers.insert_range(first, last);
                count += last - first + 1;
            }
        }
        let cost = session_export.mean_cost() * count as usize;
        stored.cost += cost;
        self.note_taken_from_backlog(count, cost);
        count
    }

    /// These messages were taken out of the session: for every other export that copied them, the copies are void.
    fn note_gone_in_other_exports(&mut self, stored: &StoredPart, list: &MessageList) {
        let base = self.stored_base();
        for session_export in self.session_exports() {
            stored
                .numbers
                .ascending()
                .for_each(|(first, last)| session_export.note_gone(base + first, base + last));
            list.queued_messages.iter().for_each(|one| session_export.note_gone(one.number, one.number));
        }
    }

    /// Takes over messages that were queued for it at another owner. The store gets those that it does not
    /// have.
    pub fn take_in(
        &mut self,
        now: Micros,
        mut list: MessageList,
        storing: Option<&mut Storing>,
        pending: &mut PendingSettlement,
    ) {
        if self.is_idle() {
            self.begin(now);
        }
        let (next, count) = (self.newest + 1, list.queued_messages.len() as u64);
        (next..)
            .zip(&mut list.queued_messages)
            .for_each(|(number, queued_message)| queued_message.number = number);
        self.newest += count;
        self.session_counters.accepted += count;
        if let Some(storing) = storing {
            // The numbers in the stored queue are in the order of the queue. A connected session keeps its tickets.
            match self.is_ready() {
                true => self.store_others(storing),
                false => self.store_all(storing),
            }
            for queued_message in &mut list.queued_messages {
                if queued_message.stored > 0 {
                    self.renumber_moved(queued_message.stored); // It comes back.
                    pending.forget_moved(self.id, queued_message);
                }
                queued_message.stored = self.number_to_store(queued_message.number);
                storing.add(self.id, queued_message, None);
            }
        }
        self.queue.append(list);
    }
}

/// The messages without a ticket, and those of the same topic before the last one without; and all others.
fn with_those_before(moving: VecDeque<QueuedMessage>) -> (Vec<QueuedMessage>, Vec<QueuedMessage>) {
    let mut topics = BTreeSet::new();
    let is_kept = |queued_message: &QueuedMessage| {
        if queued_message.ticket.is_none() {
            topics.insert(queued_message.chain);
        }
        topics.contains(&queued_message.chain)
    };
    let (mut kept, others): (Vec<_>, Vec<_>) = moving.into_iter().rev().partition(is_kept);
    kept.reverse();
    (kept, others)
}
