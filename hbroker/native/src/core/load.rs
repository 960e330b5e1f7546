//! The metrics of all workers of a core since the last call (docs/telemetry.md).

use parking_lot::Mutex;

use super::Core;
use crate::config::Config;
use crate::endpoint::Endpoint;
use crate::engine::metrics::counters::{Counters, EngineCounters};
use crate::engine::metrics::load::Weight;
use crate::load::{Report, Taker, latency};

/// The taker of a core with this many workers; `None` if metrics are off.
pub fn taker(config: &Config, workers: u8) -> Option<Mutex<Taker>> {
    config.counts_load().then(|| Mutex::new(Taker::new(workers.into())))
}

impl Core {
    /// Ends the interval of the metrics by topic; `None` if they are off. In each worker the metrics by topic
    /// and the counters of messages are of the same moment, so their sums agree.
    pub fn take_load(&self) -> Option<Report> {
        let mut taker = self.taker.as_ref()?.lock();
        let mut counters = Counters::default();
        let every = latency::rate_for(taker.last().topics.total().messages_in);
        let load = taker.take(|worker, spare| {
            let worker = u8::try_from(worker).expect("there are fewer workers");
            counters += &self.on(worker, |engine, _| engine.exchange_load(spare, every));
        });
        let mut report = Report::of(load);
        drop(taker);
        EngineCounters { counters, ..EngineCounters::default() }
            .each(|name, value| report.count(name, value));
        let sockets = self.endpoint().into_iter().flat_map(Endpoint::counters);
        sockets.for_each(|(name, value)| report.count(name, value));
        let Weight { sessions, publishers, queued_messages, queued_bytes } = self.weigh();
        report.gauges.extend([
            ("workers", self.workers().into()),
            ("sessions", sessions),
            ("publishers", publishers),
            ("queued_messages", queued_messages),
            ("queued_bytes", queued_bytes),
            ("subscriptions", self.on(0, |engine, _| engine.subscriptions()) as u64),
        ]);
        Some(report)
    }

    /// The gauges of all workers. No worker's lock is held for long, however many sessions there are.
    fn weigh(&self) -> Weight {
        let mut weight = Weight::default();
        for worker in 0..self.workers() {
            let mut next = Some(0);
            while let Some(from) = next {
                next = self.on(worker, |engine, _| engine.weigh(from, &mut weight));
            }
        }
        weight
    }
}
