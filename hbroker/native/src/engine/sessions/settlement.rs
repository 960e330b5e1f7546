//! Work that is put off until the current batch is handled: to return tickets, to settle stored messages, to end
//! sessions. The engine does it afterwards (`settle_pending`).

use crate::engine::owner::throttled_links::ThrottleChange;
use crate::engine::sessions::message::QueuedMessage;
use crate::engine::transport::delivery_records::Tickets;
use crate::link_id::SessionKey;

/// Work that sending messages has put off.
#[derive(Default)]
pub struct PendingSettlement {
    /// Tickets that no copy holds any more.
    pub tickets: Tickets,
    /// Messages that the store need not keep any more: the session, and the number in its stored queue.
    pub settled: Vec<(u64, u64)>,
    /// Messages that moved to another node, or have another number now: session, and number in its stored queue.
    pub moved: Vec<(u64, u64)>,
    /// Sessions whose queue overflowed, and that end for this reason (§7.8).
    pub overflowed: Vec<SessionKey>,
    /// Messages of shared groups whose member has gone.
    pub orphans: Vec<QueuedMessage>,
    /// Publishers' links to be throttled, or released.
    pub throttle_changes: Vec<ThrottleChange>,
    /// Sessions that have become full (true), or are full no more: to be reported to the other workers.
    pub full_changes: Vec<(SessionKey, bool)>,
}

impl PendingSettlement {
    pub fn is_empty(&self) -> bool {
        self.tickets.is_empty()
            && self.settled.is_empty()
            && self.moved.is_empty()
            && self.overflowed.is_empty()
            && self.orphans.is_empty()
            && self.throttle_changes.is_empty()
            && self.full_changes.is_empty()
    }

    /// A session has a message no more: its ticket is returned, and the store need not keep it.
    pub fn release(&mut self, session: u64, queued_message: &QueuedMessage) {
        self.tickets.extend(queued_message.ticket);
        self.forget(session, queued_message);
    }

    /// A session does not have a message under its number any more, but has not received it: the message waits at
    /// another node, or under another number.
    pub fn forget_moved(&mut self, session: u64, queued_message: &QueuedMessage) {
        if queued_message.stored > 0 {
            self.moved.push((session, queued_message.stored));
        }
    }

    /// The store need not keep a message of a session any more.
    pub fn forget(&mut self, session: u64, queued_message: &QueuedMessage) {
        if queued_message.stored > 0 {
            self.settled.push((session, queued_message.stored));
        }
    }
}
