//! The way of members' messages out of the hive, inside its worker's thread.
//!
//! Whoever takes them answers for them: a member's engine holds its owner's acknowledgement back until it is told that the
//! message was handled. So a taker that is slow costs its owners' credit (§7.7), and never memory without bound. At QoS 0, for
//! which there is no credit, a taker that is full leaves messages in the members' inboxes, which drop and count.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::Micros;
use crate::endpoint::worker::TurnHook;
use crate::engine::subscriber::batch::InboxItem;
use crate::engine::transport::event::Message;
use crate::link_id::PoolClientId;

/// Takes members' messages.
pub trait MessageSink: Send + 'static {
    /// Takes messages of one member, in their order.
    fn take(&mut self, now: Micros, pool_client: PoolClientId, items: Vec<InboxItem>);
    /// The turn is over: what was gathered is to go on its way.
    fn flush(&mut self, _now: Micros) {}
    /// What became of a message of `QoS` 1 or 2 that the first member published (`reason`: a `Reason` of the wire protocol). False: it is
    /// not this taker's, and goes on as an event.
    fn answered(&mut self, _now: Micros, _sequence: u64, _reason: i32) -> bool {
        false
    }
    /// There is no room: messages stay where they are until a turn finds some.
    fn is_full(&self) -> bool {
        false
    }
    /// Whether somebody is to be woken to read.
    fn has_output(&self) -> bool {
        false
    }
    /// What follows from what it took, once the hive is free again.
    fn turn_hook(&self) -> Option<Arc<dyn TurnHook>> {
        None
    }
}

/// A queue, bounded in bytes, from which another thread reads. Clones are the same queue.
#[derive(Clone)]
pub struct Mailbox(Arc<Mutex<MailboxState>>);

struct MailboxState {
    queue: VecDeque<(PoolClientId, Message)>,
    bytes: usize,
    limit: usize,
}

impl Mailbox {
    /// Empty; full at `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Mutex::new(MailboxState { queue: VecDeque::new(), bytes: 0, limit })))
    }

    /// The next messages. The hive is to be told.
    pub fn read(&self, limit: usize) -> Vec<(PoolClientId, Message)> {
        let mut items = self.0.lock();
        let count = items.queue.len().min(limit);
        let read: Vec<_> = items.queue.drain(..count).collect();
        items.bytes -= read.iter().map(|(_, message)| message.bytes()).sum::<usize>();
        read
    }
}

impl MessageSink for Mailbox {
    fn take(&mut self, _now: Micros, pool_client: PoolClientId, items: Vec<InboxItem>) {
        let mut own = self.0.lock();
        own.bytes += items.iter().map(InboxItem::bytes).sum::<usize>();
        own.queue.extend(
            items.into_iter().flat_map(InboxItem::into_messages).map(|message| (pool_client, message)),
        );
    }

    fn is_full(&self) -> bool {
        let items = self.0.lock();
        items.bytes >= items.limit
    }

    fn has_output(&self) -> bool {
        !self.0.lock().queue.is_empty()
    }
}
