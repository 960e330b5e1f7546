//! What the workers of a server did since its start.

use std::sync::atomic::{AtomicU64, Ordering};

use super::transport::Failure;

/// The counters of one worker. Only the thread that has the worker's lock writes them.
#[derive(Debug, Default)]
pub struct Counters {
    pub accepted: AtomicU64,
    /// A limit of the listener was reached: the client was refused, or the connection closed without an
    /// answer.
    pub turned_away: AtomicU64,
    pub closed: AtomicU64,
    pub bytes_in: AtomicU64,
    pub bytes_out: AtomicU64,
    pub reads: AtomicU64,
    pub writes: AtomicU64,
    /// Iterations that another thread ran while the worker's thread slept.
    pub stand_ins: AtomicU64,
    /// The client's socket took no more bytes.
    pub writes_blocked: AtomicU64,
    pub proxy_failed: AtomicU64,
    pub tls_failed: AtomicU64,
    pub websocket_failed: AtomicU64,
    /// The kernel could not accept a connection: no memory, no descriptors.
    pub accept_errors: AtomicU64,
    /// Iterations in which new connections were left in the kernel.
    pub accepts_held: AtomicU64,
}

impl Counters {
    /// The values, by name.
    pub fn snapshot(&self) -> [(&'static str, u64); 14] {
        [
            ("mqtt.accepted", &self.accepted),
            ("mqtt.turned_away", &self.turned_away),
            ("mqtt.closed", &self.closed),
            ("mqtt.bytes_in", &self.bytes_in),
            ("mqtt.bytes_out", &self.bytes_out),
            ("mqtt.reads", &self.reads),
            ("mqtt.writes", &self.writes),
            ("mqtt.stand_ins", &self.stand_ins),
            ("mqtt.writes_blocked", &self.writes_blocked),
            ("mqtt.proxy_failed", &self.proxy_failed),
            ("mqtt.tls_failed", &self.tls_failed),
            ("mqtt.websocket_failed", &self.websocket_failed),
            ("mqtt.accept_errors", &self.accept_errors),
            ("mqtt.accepts_held", &self.accepts_held),
        ]
        .map(|(name, value)| (name, value.load(Ordering::Relaxed)))
    }

    /// Counts a connection that failed at a layer.
    pub fn count_failure(&self, failure: Failure) {
        let counter = match failure {
            Failure::Proxy => &self.proxy_failed,
            Failure::Tls => &self.tls_failed,
            Failure::WebSocket => &self.websocket_failed,
        };
        add(counter, 1);
    }
}

/// Adds without a locked instruction: each counter has one writer.
pub fn add(counter: &AtomicU64, amount: usize) {
    counter.store(counter.load(Ordering::Relaxed) + amount as u64, Ordering::Relaxed);
}
