//! What a session knows of its messages in the store: under which numbers they are there.
//!
//! Each message that is stored has a number in the session's *stored queue*, in the order of the queue. When the
//! session has none of them any more, its stored queue ends, and the next one begins with number 1.

use crate::engine::handover::spooled::Spooled;
use crate::engine::sessions::message::QueuedMessage;
use crate::engine::sessions::session::Session;
use crate::engine::sessions::storing::Storing;
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

    /// Whether messages in its queue may be only in the store (see `backlog`).
    pub fn can_spill(&self) -> bool {
        !self.is_member && self.busy.as_ref().is_some_and(|busy| busy.moving == 0)
    }

    /// In the stored queue, the ranges of numbers of the messages that were given to a link: they do not expire.
    pub fn stored_launched(&self) -> Vec<(u64, u64)> {
        let ranges = self.busy.iter().flat_map(|busy| &busy.launched_before).copied();
        ranges.chain([(0, self.busy.as_ref().map_or(0, |busy| busy.launched))]).collect()
    }

    /// Whether only the store has some messages of its queue.
    pub fn has_backlog(&self) -> bool {
        self.queue.backlog().is_some()
    }

    /// Whether memory does not bound its queue, if there is a store.
    pub fn is_kept_on_disk(&self) -> bool {
        !self.is_ready() && !self.is_member || self.has_backlog()
    }

    /// A message is to be stored. Returns its number in the stored queue.
    pub fn next_stored(&mut self) -> u64 {
        let busy = self.busy.get_or_insert_default();
        busy.stored += 1;
        busy.stored
    }

    /// Nothing of its stored queue is needed any more, and the next message is the first of a new one. False:
    /// it has none, or some of it is needed.
    pub fn end_stored(&mut self) -> bool {
        let is_over = self.is_ready() && self.is_idle() && self.has_stored();
        let busy = self.busy.as_mut().filter(|busy| is_over && busy.moving == 0);
        busy.map(|busy| {
            (busy.stored, busy.launched) = (0, 0);
            busy.launched_before.clear();
        })
        .is_some()
    }

    /// Messages of its stored queue have moved to another owner.
    pub fn forget_moved(&mut self, count: u64) {
        if let Some(busy) = &mut self.busy {
            busy.moving -= count;
        }
    }

    /// Gives all messages to the store, with their tickets. Those that are not stored yet are newer than those
    /// that are.
    pub(super) fn store_all(&mut self, storing: &mut Storing) {
        self.store_others(storing);
        self.release_all(storing.tickets());
    }

    /// This run ends: gives the store the messages that no publisher sends again, because it has its PUBACK.
    pub fn store_acknowledged(&mut self, storing: &mut Storing) {
        self.store_some(storing, |queued_message| queued_message.ticket.is_none());
    }

    /// Gives the messages that are not stored to the store, oldest first. The session keeps their tickets.
    pub(super) fn store_others(&mut self, storing: &mut Storing) {
        self.store_some(storing, |_| true);
    }

    fn store_some(&mut self, storing: &mut Storing, is_wanted: impl Fn(&QueuedMessage) -> bool) {
        let Self { id, in_flight, queue, busy, .. } = self;
        let busy = busy.get_or_insert_default();
        let is_new = |queued_message: &QueuedMessage| queued_message.stored == 0 && is_wanted(queued_message);
        for (queued_batch, open) in in_flight.iter_mut().filter(|(sent, _)| is_new(&sent.queued_message)) {
            queued_batch.queued_message.stored = busy.stored + 1;
            // The messages behind the last one that is not acknowledged get no numbers.
            busy.stored += open.runs().last().map_or(0, |(first, count)| u64::from(first + count));
            busy.launched = busy.stored;
            let queued_messages = queued_batch.clone().into_queued_messages(open);
            queued_messages.iter().for_each(|queued_message| storing.add(*id, queued_message, None));
        }
        for queued_message in queue.iter_mut().filter(|queued_message| is_new(queued_message)) {
            busy.stored += 1;
            queued_message.stored = busy.stored;
            storing.add(*id, queued_message, None);
        }
    }

    /// What this node's store got of its queue while that moved here becomes the end of its stored queue. Returns what
    /// is added to the numbers of these messages.
    pub fn append_stored(&mut self, spooled: &Spooled, storing: &mut Storing) -> u64 {
        self.store_others(storing); // The numbers in the stored queue are in the order of the queue.
        let busy = self.busy.get_or_insert_default();
        let base = busy.stored;
        storing.append(AppendedBody { session: self.id, queue: spooled.queue, base });
        busy.stored += spooled.last();
        if spooled.launched() > 0 {
            busy.launched_before.push((base + 1, base + spooled.launched()));
        }
        base
    }

    /// An earlier run has stored messages for it, the last of them under the number `last`.
    pub fn resume_stored(&mut self, last: u64) {
        self.busy.get_or_insert_default().stored = last;
    }
}
