//! Who still owes the network an answer for a message.
//!
//! A message goes to many clients. Its owner is answered once all those have acknowledged it that get it at `QoS` 1 or 2, or no longer
//! count. Each of them holds a claim; a claim that is dropped, for whatever reason, is settled. So nothing can be answered twice or
//! forgotten, wherever a message ends: acknowledged, expired, too large, pushed out of a queue, or with its session.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// The member that holds the subscriptions of all sessions that have none of their own.
pub const SHARED_POOL_CLIENT: u64 = 0;

/// A message's publisher and sequence number.
pub type MessageId = (u64, u64);

/// Names a message to be acknowledged to its owner: the member of the gateway that received it, and its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    pub pool_client: u64,
    pub message: MessageId,
}

/// Where the tickets of settled messages gather.
#[derive(Debug, Default)]
pub struct Releases {
    settled: Mutex<Vec<Ticket>>,
}

impl Releases {
    /// Takes the tickets out that were settled since the last time.
    pub fn take(&self) -> Vec<Ticket> {
        std::mem::take(&mut self.settled.lock())
    }

    pub fn is_empty(&self) -> bool {
        self.settled.lock().is_empty()
    }
}

/// A share in the answer to a message: its ticket is released when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct AckGuard {
    answer: Arc<Answer>,
}

impl AckGuard {
    pub fn new(ticket: Ticket, releases: &Arc<Releases>) -> Self {
        let answer = Answer { ticket, releases: Arc::clone(releases), is_forsaken: AtomicBool::new(false) };
        Self { answer: Arc::new(answer) }
    }

    #[cfg(test)]
    pub fn ticket(&self) -> Ticket {
        self.answer.ticket
    }

    /// Whether other clients' messages wait for its answer, too: it came to the member that they share.
    pub fn is_shared(&self) -> bool {
        self.answer.ticket.pool_client == SHARED_POOL_CLIENT
    }

    /// Leaves the message unanswered, whatever becomes of the other shares: it is to come again.
    pub fn forsake(&self) {
        self.answer.is_forsaken.store(true, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Answer {
    ticket: Ticket,
    releases: Arc<Releases>,
    is_forsaken: AtomicBool,
}

impl Drop for Answer {
    fn drop(&mut self) {
        if self.is_forsaken.load(Ordering::Relaxed) {
            return;
        }
        self.releases.settled.lock().push(self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forsaken_is_never_answered() {
        let releases = Arc::new(Releases::default());
        let ack_guard = AckGuard::new(Ticket { pool_client: 1, message: (7, 1) }, &releases);
        ack_guard.clone().forsake();
        drop(ack_guard);
        assert!(releases.is_empty());
    }

    #[test]
    fn a_ticket_is_released_once_and_by_the_last_ack_guard() {
        let releases = Arc::new(Releases::default());
        let ticket = Ticket { pool_client: 3, message: (7, 1) };
        let first = AckGuard::new(ticket, &releases);
        let second = first.clone();
        drop(first);
        assert!(releases.is_empty());
        drop(second);
        assert_eq!(releases.take(), [ticket]);
        assert!(releases.is_empty());
    }
}
