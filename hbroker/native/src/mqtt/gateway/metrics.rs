//! The metrics of a gateway's workers, for telemetry (docs/telemetry.md).
//!
//! Each worker has metrics of its own, which it locks for one iteration. A reader takes them between two
//! iterations. So the metrics by topic agree with the counters, also after the worker has ended.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use crate::load::{Load, Report, Taker, latency};
use crate::mqtt::gateway::command::Command;
use crate::mqtt::gateway::dispatcher::Dispatcher;
use crate::mqtt::metrics::counters::{Counters, Drop};
use crate::mqtt::session::QueueTotals;

/// The metrics of one worker.
pub struct WorkerMetrics {
    pub load: Box<Load>,
    /// The counters at the end of the last iteration.
    pub counters: Counters,
    /// What was queued for clients when a worker last handled [`Command::MeasureQueues`].
    pub queued: QueueTotals,
}

/// The metrics of all workers.
pub struct GatewayMetrics {
    gateway_metrics: Vec<Arc<Mutex<WorkerMetrics>>>,
    reading: Mutex<Reading>,
}

struct Reading {
    taker: Taker,
    /// How many messages of the network were routed so far.
    routed: u64,
}

impl GatewayMetrics {
    pub fn new() -> Self {
        let reading = Reading { taker: Taker::new(0), routed: 0 };
        Self { gateway_metrics: Vec::new(), reading: Mutex::new(reading) }
    }

    /// Adds the metrics of another worker.
    pub fn add(&mut self) -> Arc<Mutex<WorkerMetrics>> {
        let load = Box::new(Load::new());
        let worker_metrics =
            WorkerMetrics { load, counters: Counters::default(), queued: QueueTotals::default() };
        self.gateway_metrics.push(Arc::new(Mutex::new(worker_metrics)));
        self.reading.get_mut().taker = Taker::new(self.gateway_metrics.len());
        Arc::clone(&self.gateway_metrics[self.gateway_metrics.len() - 1])
    }

    /// The load since the last call, without that of the client pool.
    pub fn take(&self, dispatcher: &Dispatcher) -> Report {
        let mut reading = self.reading.lock();
        let Reading { taker, routed } = &mut *reading;
        let (now_routed, listeners, sessions, parked) = dispatcher.routing_totals();
        let every = latency::rate_for(now_routed - std::mem::replace(routed, now_routed));
        dispatcher.timed.store(every, Ordering::Relaxed);
        let mut all = vec![dispatcher.count(&mut |_, _| {})];
        let mut queued = parked;
        let load = taker.take(|worker, spare| {
            let mut worker_metrics = self.gateway_metrics[worker].lock();
            spare.succeed(&worker_metrics.load, every);
            std::mem::swap(&mut *worker_metrics.load, spare);
            all.push(worker_metrics.counters);
            queued.messages += worker_metrics.queued.messages;
            queued.bytes += worker_metrics.queued.bytes;
        });
        let mut report = Report::of(load);
        drop(reading);
        dispatcher.post_all(|| Command::MeasureQueues);
        all.iter().for_each(|counters| add(&mut report, counters));
        report.gauges.extend([
            // The client pool's thread is one more.
            ("workers", self.gateway_metrics.len() as u64 + 1),
            ("sessions", sessions as u64),
            ("subscriptions", listeners as u64),
            ("queued_messages", queued.messages),
            ("queued_bytes", queued.bytes),
        ]);
        report
    }
}

/// A refused message did not come in: it counts as dropped.
fn add(report: &mut Report, counters: &Counters) {
    report.count("messages_in", counters.messages_in - counters.refused);
    report.count("messages_out", counters.messages_out);
    report.count("drop.refused", counters.refused);
    report.count("drop.unfinished_full", counters.unfinished_full);
    for why in Drop::ALL {
        report.count(&format!("drop.{}", why.name()), counters.drops[why as usize]);
    }
}
