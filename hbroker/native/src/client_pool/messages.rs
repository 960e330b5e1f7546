//! Delivers the messages of pool clients, inside their worker's thread.
//!
//! A sink answers for the messages that it takes: a client's engine acknowledges a message to its owner only
//! after the sink has reported it as handled. So a slow sink uses up the credit of the owners (§7.7), and
//! memory stays bounded. `QoS` 0 has no credit. While the sink is full, messages at `QoS` 0 stay in the
//! clients' inboxes, and a full inbox drops and counts them.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::Micros;
use crate::endpoint::machine::TurnHook;
use crate::engine::subscriber::batch::InboxItem;
use crate::engine::transport::event::Message;
use crate::link_id::PoolClientId;

/// Takes the messages of pool clients.
pub trait MessageSink: Send + 'static {
    /// Takes messages of one client, in their order.
    fn take(&mut self, now: Micros, pool_client: PoolClientId, items: Vec<InboxItem>);
    /// The event-loop iteration ends: the sink sends off the messages that it has collected.
    fn flush(&mut self, _now: Micros) {}
    /// The outcome of a message of `QoS` 1 or 2 that the first client published (`reason` is a `Reason` of
    /// the wire protocol). If the sink returns false, the message is not its own, and the outcome becomes an
    /// event.
    fn answered(&mut self, _now: Micros, _sequence: u64, _reason: i32) -> bool {
        false
    }
    /// The sink is full: messages stay in the clients' inboxes until an iteration finds room.
    fn is_full(&self) -> bool {
        false
    }
    /// Whether a reader of the sink has to be woken.
    fn has_output(&self) -> bool {
        false
    }
    /// What the worker runs after the iteration, once it has released the lock of the pool.
    fn turn_hook(&self) -> Option<Arc<dyn TurnHook>> {
        None
    }
}

/// A queue, bounded in bytes, from which another thread reads. Clones share the queue.
#[derive(Clone)]
pub struct Mailbox(Arc<Mutex<MailboxState>>);

struct MailboxState {
    queue: VecDeque<(PoolClientId, Message)>,
    bytes: usize,
    limit: usize,
}

impl Mailbox {
    /// An empty queue. It is full at `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Mutex::new(MailboxState { queue: VecDeque::new(), bytes: 0, limit })))
    }

    /// Takes the next messages out. The caller has to end an iteration of the pool afterwards, because there is
    /// room again.
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
