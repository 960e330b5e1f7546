//! What an engine gives to telemetry (docs/telemetry.md): the load of an interval, and the gauges at its end.

use std::sync::Arc;

use crate::Micros;
use crate::engine::metrics::counters::Counters;
use crate::engine::metrics::message_metrics::Departed;
use crate::engine::{Engine, Side};
use crate::link::Link;
use crate::load::Load;
use crate::load::spans::{SpanKind, SpanLog};

/// How many links and sessions are looked at while the lock is held once.
const POSITIONS: usize = 2_048;

/// The gauges that telemetry reads with the load: how many sessions and publishers there are, and how much is queued.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadGauges {
    pub sessions: u64,
    pub publishers: u64,
    pub queued_messages: u64,
    pub queued_bytes: u64,
}

impl Engine {
    /// Ends the interval: puts `spare`, which is empty, in the place of the load that was counted, and times
    /// one message of `every` from now on. Returns the counters. Without telemetry nothing is exchanged.
    pub fn exchange_load(&mut self, spare: &mut Load, every: u32) -> Counters {
        if let Some(load) = &mut self.out.load {
            spare.succeed(load, every);
            std::mem::swap(&mut **load, spare);
        }
        self.out.counters.clone()
    }

    /// Where the spans of messages go, and the publisher id of this engine; `None`: no message has spans.
    pub fn span_log(&self) -> Option<(&Arc<SpanLog>, u64)> {
        self.out.spans.as_ref().map(|log| (log, self.config.publisher()))
    }

    /// The datagrams that were built last are sent now. `now` is called only if a message is timed, or has
    /// spans.
    pub fn note_departure(&mut self, now: impl FnOnce() -> Micros) {
        let Side::Node(forwarder) = &mut self.side else { return };
        let Departed { timed, copies } = &mut forwarder.departed;
        let distributed = &mut forwarder.distribution.traced_and_distributed;
        if timed.is_empty() && copies.is_empty() && distributed.is_empty() {
            return;
        }
        let now = now();
        for received in timed.drain(..) {
            if let Some(load) = &mut self.out.load {
                load.latency.note(now.saturating_sub(received));
            }
        }
        copies.drain(..).for_each(|(traced, peer)| traced.end(SpanKind::Delivery, now, Some(peer)));
        distributed.drain(..).for_each(|traced| traced.end(SpanKind::Owner, now, None));
    }

    /// Adds the gauges of `POSITIONS` slots of links and sessions, from a position on. Returns the next position;
    /// `None`: those were the last.
    pub fn add_load_gauges(&self, from: usize, gauges: &mut LoadGauges) -> Option<usize> {
        let links = self.out.links.slots(from, POSITIONS);
        let sessions = self.out.sessions.slots(from, POSITIONS);
        let next = (links.is_some() || sessions.is_some()).then_some(from + POSITIONS);
        for entry in links.into_iter().flatten() {
            gauges.sessions += u64::from(entry.inbound());
            gauges.publishers += u64::from(entry.published());
            gauges.queued_bytes += entry.link().map_or(0, Link::queued_bytes) as u64;
        }
        for session in sessions.into_iter().flatten() {
            gauges.queued_messages += session.balance(self.unsent(session)).1;
            gauges.queued_bytes += session.queue.size().bytes as u64;
        }
        next
    }
}
