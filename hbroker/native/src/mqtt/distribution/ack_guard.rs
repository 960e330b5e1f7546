//! Decides when a gateway acknowledges a message to the message's owner.
//!
//! A gateway delivers one message to many clients. It acknowledges the message to the owner when each client
//! that receives it at `QoS` 1 or 2 has acknowledged it or no longer counts. Each of these clients holds an
//! ack guard, and each guard is dropped exactly once: when the client acknowledges the message, when the
//! message expires, is too large or is dropped from a full queue, or when the session ends. So the gateway
//! can neither acknowledge a message twice nor forget it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// The pool client that holds the subscriptions of all sessions without a pool client of their own.
pub const SHARED_POOL_CLIENT: u64 = 0;

/// A message's publisher and sequence number.
pub type MessageId = (u64, u64);

/// Identifies a message to acknowledge to its owner: the pool client that received it, and the message's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    pub pool_client: u64,
    pub message: MessageId,
}

/// Collects the tickets of messages that every client has acknowledged.
#[derive(Debug, Default)]
pub struct Releases {
    settled: Mutex<Vec<Ticket>>,
}

impl Releases {
    /// Takes out the tickets that were added since the last call.
    pub fn take(&self) -> Vec<Ticket> {
        std::mem::take(&mut self.settled.lock())
    }

    pub fn is_empty(&self) -> bool {
        self.settled.lock().is_empty()
    }
}

/// A share in the acknowledgement of a message. The ticket is released when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct AckGuard {
    answer: Arc<Answer>,
}

impl AckGuard {
    pub fn new(ticket: Ticket, releases: &Arc<Releases>) -> Self {
        let answer = Answer { ticket, releases: Arc::clone(releases), is_withheld: AtomicBool::new(false) };
        Self { answer: Arc::new(answer) }
    }

    #[cfg(test)]
    pub fn ticket(&self) -> Ticket {
        self.answer.ticket
    }

    /// Whether the shared pool client received the message. Then the acknowledgements of other clients'
    /// messages depend on it too.
    pub fn is_shared(&self) -> bool {
        self.answer.ticket.pool_client == SHARED_POOL_CLIENT
    }

    /// Leaves the message unacknowledged, whatever happens to the other guards: the owner is to send it
    /// again.
    pub fn withhold(&self) {
        self.answer.is_withheld.store(true, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Answer {
    ticket: Ticket,
    releases: Arc<Releases>,
    is_withheld: AtomicBool,
}

impl Drop for Answer {
    fn drop(&mut self) {
        if self.is_withheld.load(Ordering::Relaxed) {
            return;
        }
        self.releases.settled.lock().push(self.ticket);
    }
}
