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
use crate::tables::subscriber::Overflow;
use crate::wire::GoneRecord as Gone;

/// A record says of so many ranges at most that they are settled.
const MOST_RANGES: usize = 65_536;
/// About the memory of a queue, without its runs.
const COST: usize = 512;

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
            settled: RangeSet::default(),
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

    /// Settles the messages that are gone. If none is left, the store has to drop the queue.
    pub fn settle(&mut self, gone: &Gone, records: &mut Batch) {
        let mut settled = RangeSet::default();
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
        let count = settled.count();
        self.bytes -= (self.bytes as u128 * u128::from(count) / u128::from(self.live)) as usize;
        self.live -= count;
        if self.live > 0 {
            let ranges: Vec<(u64, u64)> = settled.ascending().collect();
            ranges.chunks(MOST_RANGES).for_each(|some| records.add_settled(self.queue, some.iter().copied()));
        }
    }

    // Read

    /// The number of the first message that is not settled.
    pub fn head(&self) -> u64 {
        self.settled.lowest().filter(|(first, _)| *first == 1).map_or(1, |(_, last)| last + 1)
    }

    /// The number of the last message that is not settled.
    pub fn last_live(&self) -> u64 {
        let newest = self.settled.descending().next().filter(|(_, last)| *last == self.last());
        newest.map_or(self.last(), |(first, _)| first - 1)
    }

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

    /// What the live messages would cost in memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The memory that it takes, with what the store keeps for it.
    pub fn cost(&self) -> usize {
        COST + (self.runs.len() + self.settled.runs()) * size_of::<(u64, u64)>()
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::engine::handover::held_queues::tests::queued_message as unlimited;
    use crate::store::record::{Kind, MessageBody, SettledBody, split};

    fn queued_message(number: u64) -> QueuedMessage {
        QueuedMessage { expires: 9, ..unlimited(number) }
    }

    /// What the store has, by the number there: the numbers of `own` that are in it.
    fn apply(records: &mut Batch, own: &mut BTreeMap<u64, u64>, number: u64) {
        let bytes = records.take();
        let mut rest = &bytes[..];
        while let Some((kind, body, behind)) = split(rest) {
            rest = behind;
            match kind {
                Kind::Message => {
                    let target = MessageBody::parse(body).unwrap().targets().next().unwrap();
                    assert_eq!(target.session, 5);
                    own.insert(target.number, number);
                }
                Kind::Settled => {
                    let settled = SettledBody::parse(body).unwrap();
                    for (first, last) in settled.ranges() {
                        (first..=last).for_each(|number| assert!(own.remove(&number).is_some(), "{number}"));
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn the_store_has_what_is_not_gone() {
        for seed in 0..200 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let (mut spooled, mut records, mut own) = (Spooled::new(5), Batch::default(), BTreeMap::new());
            let (mut next, mut launched) = (rng.random_range(1..1_000), 0);
            for _ in 0..40 {
                for _ in 0..rng.random_range(0..30) {
                    next += if rng.random_bool(0.7) { 1 } else { rng.random_range(1..50) };
                    spooled.add(&queued_message(next), &mut records);
                    apply(&mut records, &mut own, next);
                }
                let mut gone = Gone { queue: 1, below: rng.random_range(0..=next), ..Gone::default() };
                gone.below = gone.below.saturating_sub(400);
                gone.launched = rng.random_range(0..=next + 1);
                launched = gone.launched.max(launched);
                for _ in 0..rng.random_range(0..5) {
                    let first = rng.random_range(0..next + 10);
                    gone.ranges.push((first, first.saturating_add(rng.random_range(0..30))));
                }
                let (before, live) = (own.clone(), spooled.live());
                spooled.settle(&gone, &mut records);
                apply(&mut records, &mut own, 0);
                let is_gone = |number: &u64| {
                    *number < gone.below || gone.ranges.iter().any(|run| (run.0..=run.1).contains(number))
                };
                let left: Vec<u64> = before.values().copied().filter(|number| !is_gone(number)).collect();
                if left.is_empty() {
                    assert_eq!((spooled.live(), own.len() as u64), (0, live), "the queue is dropped");
                    break;
                }
                assert!(own.values().copied().eq(left), "seed {seed}");
                assert_eq!(spooled.live(), own.len() as u64);
                let ends = [own.first_key_value(), own.last_key_value()].map(|entry| *entry.unwrap().0);
                assert_eq!([spooled.head(), spooled.last_live()], ends, "seed {seed}");
                for (number, at_source) in &own {
                    let is_launched = *number <= spooled.launched();
                    assert_eq!(is_launched, *at_source < launched, "seed {seed}: {number}");
                }
            }
        }
    }

    #[test]
    fn any_numbers_are_taken() {
        let (mut spooled, mut records) = (Spooled::new(5), Batch::default());
        spooled.add(&queued_message(3), &mut records);
        spooled.add(&queued_message(u64::MAX), &mut records);
        let ranges = vec![(u64::MAX, u64::MAX), (u64::MAX, 0), (0, 0)];
        spooled.settle(&Gone { queue: 1, below: 0, ranges, launched: u64::MAX }, &mut records);
        assert_eq!((spooled.live(), spooled.launched()), (2, 1));
        spooled.settle(&Gone { queue: 1, below: u64::MAX, ..Gone::default() }, &mut records);
        assert_eq!((spooled.live(), spooled.head()), (1, 2));
    }
}
