//! The queue of events to Python.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::endpoint::EndpointState;
use crate::mqtt::codec::packets::{Auth, Connect, Subscribe, Unsubscribe};
use crate::mqtt::connection::event::Closed;
use crate::mqtt::io::connections::ConnectionId;

/// Identifies a session at this gateway. A handle is never reused. 0: none.
pub type SessionHandle = u64;

/// An event for Python to decide on, or to know.
#[derive(Clone, Debug)]
pub enum WorkerEvent {
    /// Python answers with `accept`, `refuse` or `challenge`.
    Connect(ConnectionId, Box<Arrival>),
    /// Python answers with `suback`.
    Subscribe(ConnectionId, Subscribe),
    /// Python answers with `unsuback`.
    Unsubscribe(ConnectionId, Unsubscribe),
    /// Python answers with `challenge`, or as for CONNECT.
    Auth(ConnectionId, Auth),
    /// The last event of this connection. Its session, if it has one, is parked.
    Closed(ConnectionId, Closed),
}

/// A CONNECT, and where it came from.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub listener: u32,
    pub source: SocketAddr,
    /// The common name of the client's certificate, if there is one.
    pub identity: Option<String>,
    pub connect: Connect,
}

/// The queue to Python. Its senders bound it: each connection has at most a few open requests, and no
/// connections are accepted while the queue is long.
#[derive(Default)]
pub struct WorkerEventQueue {
    queue: Mutex<Vec<WorkerEvent>>,
    /// The endpoint whose reader is signalled.
    endpoint_state: OnceLock<Arc<EndpointState>>,
}

impl WorkerEventQueue {
    /// Sets the endpoint whose reader is signalled, once, before there are clients.
    pub fn introduce(&self, endpoint_state: Arc<EndpointState>) {
        let _ = self.endpoint_state.set(endpoint_state);
    }

    /// Moves all of `worker_events` into the queue.
    pub fn push(&self, worker_events: &mut Vec<WorkerEvent>) {
        if worker_events.is_empty() {
            return;
        }
        let mut queue = self.queue.lock();
        if queue.is_empty()
            && let Some(endpoint_state) = self.endpoint_state.get()
        {
            endpoint_state.output.raise();
        }
        queue.append(worker_events);
    }

    /// How many events are queued.
    pub fn waiting(&self) -> usize {
        self.queue.lock().len()
    }

    pub fn take(&self, limit: usize) -> Vec<WorkerEvent> {
        let mut queue = self.queue.lock();
        if queue.is_empty() {
            return Vec::new();
        }
        let rest = if queue.len() > limit { queue.split_off(limit) } else { Vec::new() };
        let taken = std::mem::replace(&mut *queue, rest);
        if queue.is_empty()
            && let Some(endpoint_state) = self.endpoint_state.get()
        {
            endpoint_state.output.lower();
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn the_reader_is_told_as_long_as_there_is_something() {
        let endpoint_state = Arc::new(EndpointState::new().unwrap());
        let queue = WorkerEventQueue::default();
        let is_signalled = || endpoint_state.output.wait_until(Instant::now());
        queue.introduce(Arc::clone(&endpoint_state));
        queue.push(&mut vec![]);
        assert!(!is_signalled() && queue.take(9).is_empty());
        let worker_event =
            |packet_id| WorkerEvent::Unsubscribe(ConnectionId(1), Unsubscribe { packet_id, filters: vec![] });
        queue.push(&mut (1..=5).map(worker_event).collect());
        queue.push(&mut vec![worker_event(6)]);
        assert!(is_signalled());
        assert_eq!(queue.take(4).len(), 4);
        assert!(is_signalled());
        let rest = queue.take(4);
        assert_eq!(format!("{rest:?}"), format!("{:?}", [worker_event(5), worker_event(6)]));
        assert!(!is_signalled());
    }
}
