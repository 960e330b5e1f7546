//! The beginning of a queue that comes from another owner, if it is large: it is in this node's store while the
//! source still serves (§5.4).
//!
//! There it is a queue of its own, which no session has. When this node takes over, it is appended to the queue of its
//! session (`store::record::Kind::Appended`), whatever its size. If the handover fails, or this node ends before, it is
//! dropped: the source has all of it.

use crate::Micros;
use crate::engine::sessions::message::QueuedMessage;
use crate::engine::sessions::storing::put_options;
use crate::link::receive::ranges::RangeSet;
use crate::store::record::{Batch, Target};
use crate::tables::match_set::Overflow;
use crate::wire::GoneRecord as Gone;

/// See the module. Its messages have numbers from 1 on, without holes.
#[derive(Debug)]
pub struct Spooled {
    /// The name of the queue in the store.
    pub queue: u64,
    /// Messages with consecutive numbers at the source: the first of them there, and here. Ascending.
    runs: Vec<(u64, u64)>,
    /// The number of the newest message at the source, and here.
    newest: (u64, u64),
    settled: RangeSet,
    live: u64,
    /// What the live messages would cost in memory; an estimate if some are settled.
    bytes: usize,
    launched: u64,
    overflow: Overflow,
}

impl Spooled {
    pub fn new(queue: u64) -> Self {
        Self {
            queue,
            runs: Vec::new(),
            newest: (0, 0),
            settled: RangeSet::new(usize::MAX),
            live: 0,
            bytes: 0,
            launched: 0,
            overflow: Overflow::default(),
        }
    }

    // Change

    /// Adds a message, whose number at the source is higher than all before.
    pub fn add(&mut self, queued_message: &QueuedMessage, records: &mut Batch) {
        let (number, before) = (self.newest.1 + 1, self.newest.0);
        if self.runs.is_empty() || queued_message.number != before + 1 {
            self.runs.push((queued_message.number, number));
        }
        self.newest = (queued_message.number, number);
        self.live += 1;
        self.bytes += queued_message.cost();
        self.overflow = queued_message.overflow;
        if queued_message.expires == Micros::MAX && self.launched == number - 1 {
            self.launched = number;
        }
        let mut options = Vec::new();
        put_options(&mut options, queued_message);
        records.add_target(Target { session: self.queue, number, options: &options });
        records.add_message(queued_message.expires, &queued_message.field);
    }

    /// Settles the messages that are gone.
    pub fn settle(&mut self, gone: &Gone, records: &mut Batch) {
        let mut settled = RangeSet::new(usize::MAX);
        for (first, last) in [(0, gone.below.saturating_sub(1))].iter().chain(&gone.ranges) {
            let (first, last) = (self.below(*first) + 1, self.below(last.saturating_add(1)));
            if first <= last {
                let missing = self.settled.missing(first, last);
                missing.iter().for_each(|(first, last)| settled.insert_range(*first, *last));
                self.settled.insert_range(first, last);
            }
        }
        self.launched = self.launched.max(self.below(gone.launched));
        if settled.is_empty() {
            return;
        }
        let mut ranges: Vec<(u64, u64)> = settled.descending().collect();
        ranges.reverse();
        let count: u64 = ranges.iter().map(|(first, last)| last - first + 1).sum();
        self.bytes -= (self.bytes as u128 * u128::from(count) / u128::from(self.live)) as usize;
        self.live -= count;
        records.add_settled(self.queue, ranges);
    }

    // Read

    /// The number of its newest message.
    pub fn last(&self) -> u64 {
        self.newest.1
    }

    /// The number of its newest message at the source.
    pub fn last_at_source(&self) -> u64 {
        self.newest.0
    }

    /// How many messages are not settled.
    pub fn live(&self) -> u64 {
        self.live
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// All messages up to this number were given to a link, or do not expire for another reason.
    pub fn launched(&self) -> u64 {
        self.launched
    }

    /// The overflow policy of the newest message.
    pub fn overflow(&self) -> Overflow {
        self.overflow
    }

    /// How many messages have a lower number at the source.
    fn below(&self, number: u64) -> u64 {
        let Some(at) = self.runs.partition_point(|(first, _)| *first < number).checked_sub(1) else {
            return 0;
        };
        let (at_source, here) = self.runs[at];
        let next = self.runs.get(at + 1).map_or(self.newest.1 + 1, |(_, here)| *here);
        (here - 1).saturating_add(number - at_source).min(next - 1)
    }
}
