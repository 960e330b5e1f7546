//! The metrics of one interval: messages and bytes by topic, and latency (docs/telemetry.md).
//!
//! ```text
//! engine, mqtt ──> Load (one for each worker) ──> topics    messages and bytes by topic
//!                                             ──> latency   a histogram
//! core, mqtt::metrics ──> Taker ──> Report
//!
//! engine, mqtt ──> spans (one log for each process)             single messages, for traces
//! ```
//!
//! Each worker counts under the lock that it holds anyway. A reader exchanges the worker's [`Load`] for an
//! empty one under that lock, and does the rest without it.

pub mod latency;
pub mod spans;
pub mod topics;

use std::cell::Cell;
use std::collections::BTreeMap;

use crate::load::latency::Latency;
use crate::load::topics::{TopicSlot, Topics};

/// The metrics of one worker.
pub struct Load {
    pub topics: Topics,
    pub latency: Latency,
}

impl Load {
    pub fn new() -> Self {
        Self { topics: Topics::new(), latency: Latency::default() }
    }

    /// Prepares this load to replace `before`: no topic's slot in `before` is valid here, and one message of
    /// `every` is timed. This load must be empty.
    pub fn succeed(&mut self, before: &Self, every: u32) {
        self.topics.succeed(&before.topics);
        self.latency.restart(every);
    }

    /// The slot of a topic. `cached`: where the caller keeps the slot that it was given last.
    pub fn topic_slot_of(&mut self, topic: &str, cached: Option<&Cell<TopicSlot>>) -> TopicSlot {
        let kept = cached.map(Cell::get).filter(|&topic_slot| self.topics.is_current(topic_slot));
        kept.unwrap_or_else(|| {
            let topic_slot = self.topics.topic_slot(topic);
            cached.inspect(|cached| cached.set(topic_slot));
            topic_slot
        })
    }

    /// Adds the metrics of another worker.
    pub fn absorb(&mut self, other: &Self) {
        self.topics.absorb(&other.topics);
        self.latency.absorb(&other.latency);
    }
}

/// Exchanges the loads of several workers. It always has an empty load for each.
pub struct Taker {
    spares: Vec<Load>,
    merged: Load,
}

impl Taker {
    pub fn new(workers: usize) -> Self {
        let spares = (0..workers).map(|_| Load::new()).collect();
        Self { spares, merged: Load::new() }
    }

    /// The last result of `take`.
    pub fn last(&self) -> &Load {
        &self.merged
    }

    /// Ends the interval of every worker. `exchange` swaps a load with that of worker n.
    pub fn take(&mut self, mut exchange: impl FnMut(usize, &mut Load)) -> &Load {
        for (worker, spare) in self.spares.iter_mut().enumerate() {
            spare.topics.clear();
            exchange(worker, spare);
        }
        self.merged.topics.clear();
        // It adopts the workers' share of timed messages, which may be larger than that of the next interval.
        self.merged.latency.restart(1);
        self.spares.iter().for_each(|spare| self.merged.absorb(spare));
        &self.merged
    }
}

/// The metrics of an interval, and the gauges at its end.
#[derive(Default)]
pub struct Report {
    /// Counters of the core since its start. They only rise.
    pub counters: BTreeMap<String, u64>,
    pub gauges: BTreeMap<&'static str, u64>,
    pub topics: topics::Columns,
    /// Over all topics.
    pub total: topics::Traffic,
    pub latency: Vec<u64>,
    /// One in this many messages was timed.
    pub every: u32,
}

impl Report {
    /// The report of a load. The caller adds counters and gauges.
    pub fn of(load: &Load) -> Self {
        Self {
            topics: load.topics.columns(),
            total: load.topics.total(),
            latency: load.latency.counts().to_vec(),
            every: load.latency.every(),
            ..Self::default()
        }
    }

    /// Adds to a counter.
    pub fn count(&mut self, name: &str, value: u64) {
        *self.counters.entry(name.to_owned()).or_default() += value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_timed_in_a_quiet_interval_stays_though_few_are_to_be_in_the_next() {
        let mut taker = Taker::new(2);
        let mut workers = [Load::new(), Load::new()];
        (0..100).for_each(|_| workers[0].latency.note(100));
        let taken = taker.take(|worker, spare| {
            spare.succeed(&workers[worker], 256);
            std::mem::swap(&mut workers[worker], spare);
        });
        assert_eq!((taken.latency.every(), taken.latency.counts().iter().sum::<u64>()), (1, 100));
        let none = taker.take(|worker, spare| std::mem::swap(&mut workers[worker], spare));
        assert_eq!((none.latency.every(), none.latency.counts().iter().sum::<u64>()), (256, 0));
    }
}
