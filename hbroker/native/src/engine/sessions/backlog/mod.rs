//! The part of a session's queue that only the store has: its newest messages, behind those in memory. (Messages that
//! come back may be in front of those on the link, see below.)
//!
//! ```text
//!     backlog      Backlog: numbers, sizes, what was requested (this file)
//!       |-- in_session   what joins and leaves it; when it begins and ends
//!       `-- reading      when a worker's queues become backlogs, and when these are read
//! ```
//!
//! The queue of a session that does not count as connected keeps few messages in memory, if there is a store.
//! The others, which are stored, are its *backlog*. As long as there is a backlog, further messages are stored,
//! too, and become a part of it, whether the session counts as connected or not: so the order is kept. While
//! the session has a link, it reads the backlog in parts, as the subscriber takes the messages. The store
//! answers later, at the end of a turn.
//!
//! While a subtree stops being served, and moves, no message of the worker goes from memory to a backlog. Members of
//! shared groups keep their whole queues in memory, because their messages go to other members when they end.
//!
//! If the messages of a subtree come back that did not move after all (`take_back`), the backlog may begin before
//! messages that are on the link. It is read when these are acknowledged.

mod in_session;
mod reading;

use crate::engine::handover::spooled::Spooled;
use crate::engine::handover::stored_copies::StoredPart;
use crate::engine::sessions::bounds::Bounds;
use crate::engine::sessions::message::QueuedMessage;
use crate::engine::sessions::storing;
use crate::link::receive::ranges::RangeSet;
use crate::store::queues::queue::QueueState;
use crate::store::{Messages, Stored};
use crate::tables::subscriber::Overflow;

/// See the module.
#[derive(Debug)]
pub struct Backlog {
    /// The number of its first message in the stored queue. All later ones in the stored queue are in the
    /// backlog.
    next: u64,
    messages: u64,
    /// The bytes of these messages, with the cost of keeping them in memory. After messages were dropped
    /// unread, an estimate.
    bytes: usize,
    /// The number of messages that came with a subtree while the session counted as connected. The bounds of the queue do
    /// not apply to them.
    uncounted: u64,
    /// The number of its last message in the stored queue, and that message's overflow policy.
    newest: u64,
    overflow: Overflow,
    /// Messages on the link that are newer than the first one of the backlog.
    passed_over: RangeSet,
    /// Messages behind its first one that have moved to another owner.
    moved: RangeSet,
    /// The request that the store has not answered: the number of the first message that was requested, and the number
    /// of the last message that was stored at that time.
    requested: Option<(u64, u64)>,
    /// The answer to that request is not to be used.
    is_void: bool,
}

/// The state of a session's stored queue, borrowed from its `BusyState`.
struct StoredQueueView<'a> {
    base: u64,
    moving: &'a RangeSet,
    launched: &'a RangeSet,
}

/// The messages that an answer of the store brings back into memory, and those that were not as expected.
#[derive(Debug, Default)]
struct Loaded {
    queued_messages: Vec<QueuedMessage>,
    /// Numbers in the stored queue of messages that are not valid.
    invalid: Vec<u64>,
    /// How many messages the store does not have any more.
    lost: u64,
    /// How many messages it had that were not expected.
    extra: u64,
}

impl Backlog {
    // Change

    /// The backlog of one message.
    fn of(only: &QueuedMessage) -> Self {
        Self { messages: 1, bytes: only.cost(), ..Self::empty(only.stored, only.stored, only.overflow) }
    }

    fn empty(next: u64, newest: u64, overflow: Overflow) -> Self {
        Self {
            next,
            messages: 0,
            bytes: 0,
            uncounted: 0,
            newest,
            overflow,
            passed_over: RangeSet::default(),
            moved: RangeSet::default(),
            requested: None,
            is_void: false,
        }
    }

    /// What an earlier run has stored.
    fn restored(state: QueueState) -> Self {
        let overhead = state.live as usize * size_of::<QueuedMessage>();
        Self {
            messages: state.live,
            bytes: state.bytes as usize + overhead,
            ..Self::empty(state.head, state.next - 1, Overflow::default())
        }
    }

    /// A queue was appended to the stored queue, with `base` added to its numbers.
    fn append_queue(before: Option<Self>, spooled: &Spooled, base: u64) -> Self {
        let backlog = before.unwrap_or_else(|| Self::empty(base + spooled.head(), 0, spooled.overflow()));
        Self {
            messages: backlog.messages + spooled.live(),
            bytes: backlog.bytes + spooled.bytes(),
            newest: base + spooled.last_live(),
            overflow: spooled.overflow(),
            ..backlog
        }
    }

    /// A message was stored behind all others.
    fn append(&mut self, queued_message: &QueuedMessage) {
        (self.newest, self.overflow) = (queued_message.stored, queued_message.overflow);
        self.messages += 1;
        self.bytes += queued_message.cost();
    }

    /// Takes in a message from memory.
    fn take_in(&mut self, queued_message: &QueuedMessage) {
        self.next = self.next.min(queued_message.stored);
        self.messages += 1;
        self.bytes += queued_message.cost();
    }

    /// Messages come back that did not move.
    fn take_back(&mut self, stored: &StoredPart) {
        let first = stored.numbers.lowest().map_or(self.next, |(first, _)| first);
        self.next = self.next.min(first);
        self.newest = self.newest.max(stored.numbers.highest().unwrap_or_default());
        self.messages += stored.numbers.count();
        self.bytes += stored.cost;
        self.passed_over.remove_all(&stored.numbers);
    }

    /// These messages have moved to another owner, and leave the backlog. The answer to a request from before may still
    /// contain them, so it is void.
    fn exclude_moved(&mut self, moved: &RangeSet) {
        self.moved.insert_all(moved);
        self.is_void = self.requested.is_some();
    }

    /// `count` messages of the backlog were taken out, because they move. Returns by how many these exceed the messages
    /// that the backlog counted.
    fn note_taken(&mut self, count: u64, cost: usize) -> u64 {
        let extra = count.saturating_sub(self.messages);
        self.messages = self.messages.saturating_sub(count);
        self.bytes = if self.messages == 0 { 0 } else { self.bytes.saturating_sub(cost) };
        self.uncounted = self.uncounted.min(self.messages);
        extra
    }

    /// Moves both ends past messages that are not in the backlog: they are on the link, have moved, or were taken out
    /// (`moving`).
    fn trim(&mut self, moving: &RangeSet) {
        let others = [&self.passed_over, &self.moved, moving];
        let next = |number: u64| others.iter().fold(number, |number, set| set.next_missing(number));
        let previous = |number: u64| others.iter().fold(number, |number, set| set.previous_missing(number));
        let (mut first, mut last) = (self.next, self.newest);
        while next(first) > first {
            first = next(first);
        }
        while previous(last) < last {
            last = previous(last);
        }
        (self.next, self.newest) = (first, last);
    }

    /// Drops the first message without reading it. Returns its number in the stored queue.
    fn drop_first(&mut self) -> u64 {
        let dropped = self.next;
        self.take(self.bytes / self.messages.max(1) as usize);
        self.next += 1;
        dropped
    }

    /// Drops the last message without reading it. Returns its number in the stored queue.
    fn drop_last(&mut self) -> u64 {
        let dropped = self.newest;
        self.take(self.bytes / self.messages.max(1) as usize);
        self.newest -= 1;
        dropped
    }

    /// Handles the store's answer to the request for the messages from `from` on. `last`: the number of the last
    /// message that was stored for the session.
    fn load(&mut self, from: u64, answer: Messages, last: u64, stored_queue: &StoredQueueView<'_>) -> Loaded {
        let mut loaded = Loaded::default();
        let first = self.next;
        let (requested, is_void) = (self.requested.take(), std::mem::take(&mut self.is_void));
        let is_of_use = |(requested, _): &(u64, u64)| *requested == from && from <= first && !is_void;
        let Some((_, last_then)) = requested.filter(is_of_use) else {
            return loaded; // Or older messages have gone to the backlog since the request.
        };
        // Some may have been dropped since the request.
        let is_in = |stored: &Stored| {
            stored.number >= first
                && !stored_queue.moving.contains(stored.number)
                && !self.passed_over.contains(stored.number)
        };
        let in_backlog: Vec<Stored> = answer.messages.into_iter().filter(is_in).collect();
        for stored in in_backlog {
            let stored_number = stored.number;
            self.uncounted = self.uncounted.saturating_sub(1);
            loaded.extra += u64::from(self.messages == 0);
            match storing::restored(stored) {
                Some(queued_message) => {
                    self.take(queued_message.cost());
                    loaded
                        .queued_messages
                        .push(queued_message.in_session(stored_queue.base, stored_queue.launched));
                }
                None => {
                    self.take(0);
                    loaded.invalid.push(stored_number);
                }
            }
        }
        // At the end of the stored queue may be numbers that the store never got.
        let next = if answer.is_all { answer.next.max(last_then + 1) } else { answer.next };
        self.next = self.next.max(next.min(last + 1));
        self.trim(stored_queue.moving);
        loaded.lost = self.messages.saturating_sub(last + 1 - self.next);
        (0..loaded.lost).for_each(|_| self.take(0));
        self.uncounted = self.uncounted.min(self.messages);
        loaded
    }

    fn take(&mut self, bytes: usize) {
        self.messages = self.messages.saturating_sub(1);
        self.bytes = if self.messages == 0 { 0 } else { self.bytes.saturating_sub(bytes) };
    }

    // Read

    /// The number of its first message in the stored queue.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Whether a message behind its first one is on the link.
    pub fn passes_over(&self, stored: u64) -> bool {
        self.passed_over.contains(stored)
    }

    /// The number of messages, and their bytes with the cost of keeping them in memory.
    pub fn size(&self) -> Bounds {
        Bounds { messages: self.messages as usize, bytes: self.bytes }
    }

    /// The same, of the messages that count in the bounds of the queue.
    pub fn counted_size(&self) -> Bounds {
        let counted = self.messages.saturating_sub(self.uncounted);
        let bytes = self.bytes as u128 * u128::from(counted) / u128::from(self.messages.max(1));
        Bounds { messages: counted as usize, bytes: bytes as usize }
    }

    /// `count` messages came with a subtree. If the session counts as connected, the bounds of the queue do not apply
    /// to them.
    fn add_uncounted(&mut self, is_ready: bool, count: u64) {
        self.uncounted += if is_ready { count } else { 0 };
    }

    /// All messages count in the bounds of the queue.
    pub fn count_all(&mut self) {
        self.uncounted = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{self, PublishOut};

    fn answer(numbers: impl Iterator<Item = u64>) -> Messages {
        let mut field = Vec::new();
        wire::put_publish_field(&mut field, &PublishOut { topic: "a", qos: 1, ..PublishOut::default() });
        let stored = |number| Stored { number, expires: u64::MAX, options: vec![1], field: field.clone() };
        Messages { messages: numbers.map(stored).collect(), next: 11, is_all: true, ..Messages::default() }
    }

    #[test]
    fn what_was_read_before_messages_moved_is_not_used() {
        let state = QueueState { session: 7, head: 1, next: 11, live: 10, bytes: 1_000 };
        let mut backlog = Backlog::restored(state);
        let (mut moving, mut moved) = (RangeSet::default(), RangeSet::default());
        backlog.requested = Some((1, 10));
        moved.insert_range(3, 5);
        moving.insert_range(3, 5);
        assert_eq!(backlog.note_taken(3, 300), 0, "they are taken out");
        moving.remove_all(&moved);
        backlog.exclude_moved(&moved);
        let stored_queue = StoredQueueView { base: 100, moving: &moving, launched: &RangeSet::default() };
        assert!(backlog.load(1, answer(1..=10), 10, &stored_queue).queued_messages.is_empty());
        assert_eq!((backlog.next(), backlog.size().messages, backlog.requested), (1, 7, None));
        backlog.requested = Some((1, 10));
        let loaded = backlog.load(1, answer((1..=2).chain(6..=10)), 10, &stored_queue);
        let numbers: Vec<u64> = loaded.queued_messages.iter().map(|one| one.number).collect();
        assert_eq!(numbers, [101, 102, 106, 107, 108, 109, 110]);
        assert_eq!((loaded.lost, loaded.extra, backlog.size().messages), (0, 0, 0));
    }
}
