//! The backlog as a part of its session: what joins it and leaves it, and when it ends.

use super::{Backlog, Loaded, StoredQueueView};
use crate::Micros;
use crate::engine::handover::session_export::SessionExport;
use crate::engine::handover::spooled::Spooled;
use crate::engine::handover::stored_copies::StoredPart;
use crate::engine::metrics::counters::{Counters, Drop};
use crate::engine::sessions::bounds::Bounds;
use crate::engine::sessions::message::QueuedMessage;
use crate::engine::sessions::queue::{MessageList, SessionQueue};
use crate::engine::sessions::session::{BusyState, Session};
use crate::engine::sessions::settlement::PendingSettlement;
use crate::engine::sessions::storing::Storing;
use crate::engine::transport::delivery_records::Ticket;
use crate::link::receive::ranges::RangeSet;
use crate::store::Messages;
use crate::tables::subscriber::Overflow;

impl SessionQueue {
    /// The newest messages become the backlog, until `most` bytes are left in memory. All of them are stored.
    pub(super) fn spill(&mut self, most: usize) {
        while self.bytes() > most
            && let Some(newest) = self.newest()
            && newest.stored > 0
            && newest.ticket.is_none()
        {
            let Some(newest) = self.pop_newest() else { return };
            match self.backlog_mut() {
                Some(backlog) => backlog.take_in(&newest),
                none => *none = Some(Box::new(Backlog::of(&newest))),
            }
        }
    }

    /// These messages of the stored queue have moved to another owner.
    pub fn exclude_moved(&mut self, moved: &RangeSet) {
        self.backlog_mut().iter_mut().for_each(|backlog| backlog.exclude_moved(moved));
    }

    /// The link has ended. The messages that were on it, and are newer than the first one of the backlog, become a part of
    /// the backlog.
    pub fn restore_order(&mut self) {
        while let Some(first) = self.backlog().filter(|backlog| !backlog.passed_over.is_empty())
            && self.newest().is_some_and(|newest| newest.stored > first.next)
            && let Some(newest) = self.pop_newest()
        {
            self.backlog_mut().iter_mut().for_each(|backlog| backlog.take_in(&newest));
        }
        self.backlog_mut().iter_mut().for_each(|backlog| backlog.passed_over = RangeSet::default());
    }

    /// Drops the oldest message of all. A message from memory is returned, of another the number in the stored
    /// queue.
    fn drop_oldest(&mut self) -> Option<Result<QueuedMessage, u64>> {
        if let Some(queued_message) = self.pop() {
            return Some(Ok(queued_message));
        }
        let backlog = self.backlog_mut().as_mut().filter(|backlog| backlog.messages > 0)?;
        Some(Err(backlog.drop_first()))
    }
}

impl Session {
    /// Ends the backlog if the store has nothing more of it, and owes no answer.
    pub fn end_backlog_if_empty(&mut self) {
        self.trim_backlog();
        let last = self.last_stored();
        let is_over = |backlog: &mut Box<Backlog>| {
            backlog.messages == 0 && backlog.next > last && backlog.requested.is_none()
        };
        self.queue.backlog_mut().take_if(is_over);
    }

    fn trim_backlog(&mut self) {
        let Self { queue, busy, .. } = self;
        if let (Some(backlog), Some(busy)) = (queue.backlog_mut(), busy) {
            backlog.trim(&busy.moving);
        }
    }

    /// `count` messages of its backlog were taken out, because they move.
    pub(in crate::engine::sessions) fn note_taken_from_backlog(&mut self, count: u64, cost: usize) {
        let extra = self.queue.backlog_mut().as_mut().map_or(0, |backlog| backlog.note_taken(count, cost));
        self.session_counters.accepted += extra;
        self.end_backlog_if_empty();
    }

    /// Takes messages back that were to move, and are in its stored queue still. They are older than all that it gets
    /// from now on; those in memory that are newer become a part of the backlog, too.
    pub fn take_back(&mut self, now: Micros, stored: StoredPart, storing: &mut Storing) {
        let Some((first, _)) = stored.numbers.lowest() else { return };
        self.begin(now);
        self.store_all(storing);
        let (is_ready, count) = (self.is_ready(), stored.numbers.count());
        let Self { queue, in_flight, busy, session_counters, .. } = self;
        let busy = busy.get_or_insert_default();
        busy.moving.remove_all(&stored.numbers);
        busy.session_exports.iter_mut().for_each(SessionExport::begin_again);
        session_counters.accepted += count;
        while queue.newest().is_some_and(|newest| newest.stored > first)
            && let Some(newest) = queue.pop_newest()
        {
            let backlog = queue
                .backlog_mut()
                .get_or_insert_with(|| Box::new(Backlog::empty(u64::MAX, 0, newest.overflow)));
            backlog.take_in(&newest);
            backlog.newest = backlog.newest.max(newest.stored);
        }
        let backlog = queue
            .backlog_mut()
            .get_or_insert_with(|| Box::new(Backlog::empty(first, 0, Overflow::default())));
        backlog.take_back(&stored);
        backlog.add_uncounted(is_ready, count);
        for (sent, open) in in_flight.iter() {
            for (position, count) in open.runs() {
                let (from, last) = (
                    sent.queued_message.stored_at(position),
                    sent.queued_message.stored_at(position + count - 1),
                );
                if last > first {
                    backlog.passed_over.insert_range(from, last);
                }
            }
        }
        self.trim_backlog();
    }

    /// Whether its backlog may be read: it has to be behind all that is on the link.
    pub(super) fn may_read(&mut self) -> bool {
        let is_on_link = self.in_flight.len() > 0;
        self.queue.backlog_mut().as_mut().is_some_and(|backlog| {
            if !is_on_link {
                backlog.passed_over = RangeSet::default();
            }
            backlog.passed_over.is_empty()
        })
    }

    /// Drops messages of a queue with a backlog that is too large, as the policy of its newest message says.
    /// Returns whether the session has to end.
    pub fn cut_backlog(
        &mut self,
        limit: Bounds,
        pending: &mut PendingSettlement,
        counters: &mut Counters,
    ) -> bool {
        let keeps = self.is_ready() && !self.is_bounded;
        while !keeps && self.queue.is_over(limit) {
            self.trim_backlog();
            let Some(backlog) = self.queue.backlog_mut() else { break };
            match backlog.overflow {
                Overflow::DropOldest if limit.messages > 0 => {
                    if !self.drop_oldest(pending) {
                        return false;
                    }
                    counters.drop(Drop::QueueFull);
                }
                policy if backlog.messages > 0 && backlog.newest >= backlog.next => {
                    let dropped = backlog.drop_last();
                    self.drop_unread(dropped, pending);
                    counters.drop(Drop::QueueFull);
                    if policy == Overflow::EndSession {
                        return true;
                    }
                }
                _ => return false,
            }
        }
        false
    }

    /// A message was accepted, and is to be stored behind all others. False: there is no room for it.
    pub(super) fn make_room(
        &mut self,
        now: Micros,
        queued_message: &QueuedMessage,
        pending: &mut PendingSettlement,
        counters: &mut Counters,
    ) -> bool {
        let (cost, limit) = (queued_message.cost(), self.queue.limit(self.kept_size(), usize::MAX));
        if self.must_keep(queued_message) || !self.queue.is_over_with(cost, limit) {
            return true;
        }
        for expired in self.queue.take_expired(now) {
            self.expire(&expired, pending);
        }
        let fits = cost <= limit.bytes && limit.messages > 0;
        if queued_message.overflow == Overflow::DropOldest && fits {
            while self.queue.is_over_with(cost, limit) && self.drop_oldest(pending) {
                counters.drop(Drop::QueueFull);
            }
        }
        !self.queue.is_over_with(cost, limit)
    }

    /// Drops the oldest message, because the queue is full. False: there is none.
    pub fn drop_oldest(&mut self, pending: &mut PendingSettlement) -> bool {
        self.trim_backlog();
        match self.queue.drop_oldest() {
            Some(Ok(queued_message)) => self.drop(Drop::QueueFull, &queued_message, pending),
            Some(Err(stored)) => self.drop_unread(stored, pending),
            None => return false,
        }
        true
    }

    /// A message that only the store has is dropped, because the queue is full.
    fn drop_unread(&mut self, stored: u64, pending: &mut PendingSettlement) {
        self.session_counters.drop(Drop::QueueFull, 1);
        self.forget(self.number_of_stored(stored));
        pending.settled.push((self.id, stored));
    }

    /// Stores a message behind all others. `ticket`: it is returned when the message is stored.
    pub(super) fn store_behind(
        &mut self,
        storing: &mut Storing,
        mut queued_message: QueuedMessage,
        ticket: Option<Ticket>,
    ) {
        queued_message.stored = self.number_to_store(queued_message.number);
        storing.add(self.id, &queued_message, ticket);
        self.queue.backlog_mut().iter_mut().for_each(|backlog| backlog.append(&queued_message));
    }

    /// Takes over messages that this node's store got while they moved here.
    pub fn take_in_spooled(&mut self, now: Micros, spooled: &Spooled, storing: &mut Storing) {
        if self.is_idle() {
            self.begin(now);
        }
        let base = self.append_stored(spooled, storing);
        self.session_counters.accepted += spooled.live();
        let before = self.queue.backlog_mut().take().map(|backlog| *backlog);
        let mut backlog = Backlog::append_queue(before, spooled, base);
        backlog.add_uncounted(self.is_ready(), spooled.live());
        *self.queue.backlog_mut() = Some(Box::new(backlog));
    }

    /// As [`Self::take_in`], if it has a backlog.
    pub(in crate::engine::sessions) fn take_in_behind(
        &mut self,
        list: MessageList,
        storing: &mut Storing,
        pending: &mut PendingSettlement,
    ) {
        let count = list.queued_messages.len() as u64;
        self.session_counters.accepted += count;
        let is_ready = self.is_ready();
        self.queue.backlog_mut().iter_mut().for_each(|backlog| backlog.add_uncounted(is_ready, count));
        for mut queued_message in list.queued_messages {
            if queued_message.stored > 0 {
                self.renumber_moved(queued_message.stored);
                pending.forget_moved(self.id, &queued_message);
            }
            self.newest += 1;
            queued_message.number = self.newest;
            self.store_behind(storing, queued_message, None);
        }
    }
}

impl Session {
    /// As [`Outbound::load`]. `None`: it has no backlog.
    pub(super) fn load(&mut self, from: u64, answer: Messages) -> Option<Loaded> {
        let last = self.last_stored();
        let Self { queue, busy, .. } = self;
        let BusyState { stored_base, moving, launched, .. } = &**busy.get_or_insert_default();
        let stored_queue = StoredQueueView { base: *stored_base, moving, launched };
        Some(queue.backlog_mut().as_mut()?.load(from, answer, last, &stored_queue))
    }
}
