//! What a session knows of its messages in the store: under which numbers they are there.
//!
//! Each message that is stored has a number in the session's *stored queue*: its number in the session, less a
//! constant. So the store needs not be asked for the number in the session of a message that is only there. Messages
//! that were not stored leave holes. When the session has none of the stored ones any more, its stored queue ends,
//! and the next one begins with number 1.

use crate::engine::handover::spooled::Spooled;
use crate::engine::sessions::message::QueuedMessage;
use crate::engine::sessions::session::{BusyState, Session};
use crate::engine::sessions::storing::Storing;
use crate::link::receive::ranges::RangeSet;
use crate::store::record::AppendedBody;

impl Session {
    /// Whether it has or had messages in the store.
    pub fn has_stored(&self) -> bool {
        self.busy.as_ref().is_some_and(|busy| busy.stored > 0)
    }

    /// The number of the last message in its stored queue.
    pub fn last_stored(&self) -> u64 {
        self.busy.as_ref().map_or(0, |busy| busy.stored)
    }

    /// The number in the session of its last message in the store.
    pub fn last_number_in_store(&self) -> u64 {
        self.number_of_stored(self.last_stored())
    }

    /// A message from its stored queue, as [`QueuedMessage::in_session`] makes it.
    pub fn as_its(&self, queued_message: QueuedMessage) -> QueuedMessage {
        match &self.busy {
            Some(busy) => queued_message.in_session(busy.stored_base, &busy.launched),
            None => queued_message,
        }
    }

    /// The number in the session of a stored message.
    pub fn number_of_stored(&self, stored: u64) -> u64 {
        self.stored_base() + stored
    }

    /// This is added to a number in the stored queue.
    pub fn stored_base(&self) -> u64 {
        self.busy.as_ref().map_or(0, |busy| busy.stored_base)
    }

    /// The number of the first message that only the store has; `None`: there is none.
    pub fn first_unread(&self) -> Option<u64> {
        self.queue.backlog().map(|backlog| self.number_of_stored(backlog.next()))
    }

    /// Whether only the store has some messages of its queue.
    pub fn has_backlog(&self) -> bool {
        self.queue.backlog().is_some()
    }

    /// Whether memory does not bound its queue, if there is a store.
    pub fn is_kept_on_disk(&self) -> bool {
        !self.is_ready() && !self.is_member || self.has_backlog()
    }

    /// The message with this number is to be stored, and all older ones that have to be are. Returns its number in the
    /// stored queue.
    pub fn number_to_store(&mut self, number: u64) -> u64 {
        self.busy.get_or_insert_default().number_to_store(number)
    }

    /// Nothing of its stored queue is needed any more, and the next message is the first of a new one. False:
    /// it has none, or some of it is needed.
    pub fn end_stored(&mut self) -> bool {
        let is_over = self.is_ready() && self.is_idle() && self.has_stored();
        let busy = self.busy.as_mut().filter(|busy| is_over && busy.moving.is_empty());
        busy.map(|busy| (busy.stored, busy.launched) = (0, RangeSet::default())).is_some()
    }

    /// Messages of its stored queue have moved to another owner.
    pub fn forget_moved(&mut self, numbers: &RangeSet) {
        if let Some(busy) = &mut self.busy {
            busy.moving.remove_all(numbers);
        }
        self.queue.exclude_moved(numbers);
    }

    /// A message that was to move comes back, and gets another number.
    pub(in crate::engine::sessions) fn renumber_moved(&mut self, stored: u64) {
        if let Some(busy) = &mut self.busy {
            busy.moving.remove_range(stored, stored);
        }
    }

    /// Gives all messages to the store, with their tickets, unless this run has given it all already and ends. Those
    /// that are not stored yet are newer than those that are.
    pub fn store_all(&mut self, storing: &mut Storing) {
        if !storing.run_has_ended() {
            self.store_others(storing);
            self.release_all(storing.tickets());
        }
    }

    /// This run ends: gives the store the messages that no publisher sends again, because it has its PUBACK.
    pub fn store_acknowledged(&mut self, storing: &mut Storing) {
        self.store_some(storing, |queued_message| queued_message.ticket.is_none());
    }

    /// Gives the messages that are not stored to the store, oldest first. The session keeps their tickets. Not once this
    /// run has given it all already and ends.
    pub fn store_others(&mut self, storing: &mut Storing) {
        if !storing.run_has_ended() {
            self.store_some(storing, |_| true);
        }
    }

    fn store_some(&mut self, storing: &mut Storing, is_wanted: impl Fn(&QueuedMessage) -> bool) {
        let Self { id, in_flight, queue, busy, .. } = self;
        let busy = busy.get_or_insert_default();
        let is_new = |queued_message: &QueuedMessage| queued_message.stored == 0 && is_wanted(queued_message);
        for (queued_batch, open) in in_flight.iter_mut().filter(|(sent, _)| is_new(&sent.queued_message)) {
            let first = busy.number_to_store(queued_batch.queued_message.number);
            queued_batch.queued_message.stored = first;
            let count = open.runs().last().map_or(1, |(first, count)| u64::from(first + count));
            busy.stored = first + count - 1; // The last one that is not acknowledged.
            busy.launched.insert_range(first, busy.stored);
            let queued_messages = queued_batch.clone().into_queued_messages(open);
            queued_messages.iter().for_each(|queued_message| storing.add(*id, queued_message, None));
        }
        for queued_message in queue.iter_mut().filter(|queued_message| is_new(queued_message)) {
            queued_message.stored = busy.number_to_store(queued_message.number);
            storing.add(*id, queued_message, None);
        }
    }

    /// What this node's store got of its queue while that moved here becomes the end of its stored queue. Returns what
    /// is added to the numbers of these messages.
    pub fn append_stored(&mut self, spooled: &Spooled, storing: &mut Storing) -> u64 {
        self.store_all(storing); // The numbers in the stored queue are in the order of the queue.
        let busy = self.busy.get_or_insert_default();
        let base = busy.number_to_store(self.newest + 1) - 1;
        storing.append(AppendedBody { session: self.id, queue: spooled.queue, base });
        busy.stored = base + spooled.last();
        self.newest += spooled.last();
        if spooled.launched() > 0 {
            busy.launched.insert_range(base + 1, base + spooled.launched());
        }
        base
    }

    /// An earlier run has stored messages for it, the last of them under the number `last`.
    pub fn resume_stored(&mut self, last: u64) {
        let busy = self.busy.get_or_insert_default();
        (busy.stored, busy.stored_base) = (last, self.newest);
        self.newest += last;
    }
}

impl BusyState {
    /// As [`Session::number_to_store`].
    fn number_to_store(&mut self, number: u64) -> u64 {
        if self.stored == 0 {
            self.stored_base = number - 1;
        }
        debug_assert!(number > self.stored_base + self.stored, "the store takes only ascending numbers");
        self.stored = number - self.stored_base;
        self.stored
    }
}
