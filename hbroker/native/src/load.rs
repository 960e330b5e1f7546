//! The load of one interval: what passed, topic by topic, and how long messages took (docs/telemetry.md).
//!
//! Each worker counts for itself, under the lock that it holds anyway. Who reads takes what was counted and leaves an empty [`Load`]
//! in its place: both change hands under the lock, and the rest is done without it.

pub mod latency;
pub mod topics;

use std::cell::Cell;
use std::collections::BTreeMap;

use crate::load::latency::Latency;
use crate::load::topics::{Mark, Topics};

/// What one worker counts.
pub struct Load {
    pub topics: Topics,
    pub latency: Latency,
}

impl Load {
    pub fn new() -> Self {
        Self { topics: Topics::new(), latency: Latency::default() }
    }

    /// Takes the place of `before`: no mark that was good there is good here. One message of `every` is timed. It must be empty.
    pub fn succeed(&mut self, before: &Self, every: u32) {
        self.topics.succeed(&before.topics);
        self.latency.restart(every);
    }

    /// Where a topic is counted. `known`: where that is remembered.
    pub fn mark_of(&mut self, topic: &str, known: Option<&Cell<Mark>>) -> Mark {
        let kept = known.map(Cell::get).filter(|&mark| self.topics.knows(mark));
        kept.unwrap_or_else(|| {
            let mark = self.topics.mark(topic);
            known.inspect(|known| known.set(mark));
            mark
        })
    }

    /// Adds what another worker counted.
    pub fn absorb(&mut self, other: &Self) {
        self.topics.absorb(&other.topics);
        self.latency.absorb(&other.latency);
    }
}

/// Takes the load of several workers in turns, and has always an empty one for each to leave in its place.
pub struct Taker {
    spares: Vec<Load>,
    merged: Load,
}

impl Taker {
    pub fn new(workers: usize) -> Self {
        let spares = (0..workers).map(|_| Load::new()).collect();
        Self { spares, merged: Load::new() }
    }

    /// What was taken last.
    pub fn last(&self) -> &Load {
        &self.merged
    }

    /// Ends the interval of every worker: `exchange` puts a load in the place of worker n's, and leaves that one in its hands.
    pub fn take(&mut self, mut exchange: impl FnMut(usize, &mut Load)) -> &Load {
        for (worker, spare) in self.spares.iter_mut().enumerate() {
            spare.topics.clear();
            exchange(worker, spare);
        }
        self.merged.topics.clear();
        // It takes over the share that the workers timed, which may be larger than that to come.
        self.merged.latency.restart(1);
        self.spares.iter().for_each(|spare| self.merged.absorb(spare));
        &self.merged
    }
}

/// What passed in an interval, and how things are at its end.
#[derive(Default)]
pub struct Report {
    /// As the core's, since it began; those that only rise.
    pub counters: BTreeMap<String, u64>,
    pub gauges: BTreeMap<&'static str, u64>,
    pub topics: topics::Columns,
    /// Of all topics.
    pub total: topics::Traffic,
    pub latency: Vec<u64>,
    /// One message in how many was timed.
    pub every: u32,
}

impl Report {
    /// Of what passed. Counters and gauges are still to be added.
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
