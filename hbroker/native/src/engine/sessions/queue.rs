//! What waits for a session: messages that its link does not take now, or that it has no link for (§7.8).
//!
//! A queue in the order in which the messages came, with an end in number and in bytes. What is dead gives way first; then it goes
//! by the overflow policy of the subscription that the newest message matched.

use std::collections::VecDeque;

use crate::Micros;
use crate::engine::sessions::message::QueuedMessage;
use crate::shrink::shrink;
use crate::tables::match_set::Overflow;

/// What keeping one message costs beside its bytes.
const OVERHEAD: usize = size_of::<QueuedMessage>();

/// How much may wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    pub messages: usize,
    pub bytes: usize,
}

/// What gave way to the bounds.
#[derive(Debug)]
pub enum Excess {
    Dropped(QueuedMessage),
    /// A message, and the session is to end.
    End(QueuedMessage),
}

/// Messages in order, apart from a queue.
#[derive(Debug)]
pub struct MessageList {
    pub queued_messages: VecDeque<QueuedMessage>,
    /// What they cost.
    pub bytes: usize,
    /// None of them expires before.
    pub next_expiry: Micros,
}

#[derive(Debug)]
pub struct SessionQueue {
    queued_messages: VecDeque<QueuedMessage>,
    bytes: usize,
    bounds: Bounds,
    /// Nothing in it expires before.
    next_expiry: Micros,
}

impl SessionQueue {
    pub fn new(bounds: Bounds) -> Self {
        Self { queued_messages: VecDeque::new(), bytes: 0, bounds, next_expiry: Micros::MAX }
    }

    pub fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    /// How much may be in it: its bounds, or what it may have beyond them, but at most so many bytes.
    pub fn limit(&self, beyond: Bounds, most: usize) -> Bounds {
        let Bounds { messages, bytes } = self.bounds;
        Bounds { messages: messages.max(beyond.messages), bytes: bytes.max(beyond.bytes).min(most) }
    }

    /// How much is in it.
    pub fn size(&self) -> Bounds {
        Bounds { messages: self.queued_messages.len(), bytes: self.bytes }
    }

    /// Puts a message last. There may be too much in it then: call [`Self::next_excess`] until there is not.
    pub fn push(&mut self, queued_message: QueuedMessage) {
        self.count(&queued_message);
        self.queued_messages.push_back(queued_message);
    }

    /// Puts many messages last. There may be too much in it then: call [`Self::next_excess`] until there is not.
    pub fn append(&mut self, mut list: MessageList) {
        self.bytes += list.bytes;
        self.next_expiry = self.next_expiry.min(list.next_expiry);
        if self.queued_messages.is_empty() {
            self.queued_messages = list.queued_messages;
        } else {
            self.queued_messages.append(&mut list.queued_messages);
        }
    }

    /// Takes all that is in it, at once.
    pub fn take_all(&mut self) -> MessageList {
        let queued_messages = std::mem::take(&mut self.queued_messages);
        MessageList { queued_messages, bytes: std::mem::take(&mut self.bytes), next_expiry: self.next_expiry }
    }

    /// Takes out those that are meant, in order.
    pub fn extract_list(&mut self, is_meant: impl FnMut(&QueuedMessage) -> bool) -> MessageList {
        let mut list = MessageList::default();
        self.extract(is_meant).into_iter().for_each(|queued_message| list.push(queued_message));
        list
    }

    /// Puts messages first, in their order. There may be too much in it then: call [`Self::next_excess`] until there is not.
    pub fn put_back(&mut self, queued_messages: impl DoubleEndedIterator<Item = QueuedMessage>) {
        for queued_message in queued_messages.rev() {
            self.count(&queued_message);
            self.queued_messages.push_front(queued_message);
        }
    }

    pub fn front(&self) -> Option<&QueuedMessage> {
        self.queued_messages.front()
    }

    /// The message behind so many older ones.
    pub fn nth(&self, before: usize) -> Option<&QueuedMessage> {
        self.queued_messages.get(before)
    }

    pub fn pop(&mut self) -> Option<QueuedMessage> {
        let queued_message = self.queued_messages.pop_front();
        self.discount(queued_message)
    }

    /// Whether there is more in it.
    pub fn is_over(&self, limit: Bounds) -> bool {
        self.queued_messages.len() > limit.messages || self.bytes > limit.bytes
    }

    /// Takes out what outlived its expiry. The whole queue is searched, but only when something in it can have died since the search
    /// before.
    pub fn take_dead(&mut self, now: Micros) -> Vec<QueuedMessage> {
        if now < self.next_expiry {
            return Vec::new();
        }
        let dead = self.extract(|queued_message| queued_message.expires <= now);
        self.next_expiry = self
            .queued_messages
            .iter()
            .map(|queued_message| queued_message.expires)
            .min()
            .unwrap_or(Micros::MAX);
        dead
    }

    /// What must give way next, where there is too much.
    pub fn next_excess(&mut self, limit: Bounds) -> Option<Excess> {
        if !self.is_over(limit) {
            return None;
        }
        let newest = self.queued_messages.back()?;
        // All of the queue would not make room for one that is larger.
        let fits = newest.cost() <= limit.bytes && limit.messages > 0;
        let dropped = match newest.overflow {
            Overflow::EndSession => return self.pop_newest().map(Excess::End),
            Overflow::DropOldest if fits => self.pop(),
            Overflow::DropOldest | Overflow::DropNewest => self.pop_newest(),
        };
        dropped.map(Excess::Dropped)
    }

    /// Gives back the memory that it does not need now.
    pub fn shrink(&mut self) {
        self.queued_messages.shrink_to_fit();
    }

    /// Takes out those that are meant, in order.
    pub fn extract(&mut self, mut is_meant: impl FnMut(&QueuedMessage) -> bool) -> Vec<QueuedMessage> {
        let (taken, left): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.queued_messages)
            .into_iter()
            .partition(|queued_message| is_meant(queued_message));
        self.queued_messages = left;
        taken.into_iter().inspect(|queued_message| self.bytes -= queued_message.cost()).collect()
    }

    /// What waits, to change, oldest first.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut QueuedMessage> {
        self.queued_messages.iter_mut()
    }

    /// Whether more than half as much waits as its bounds say.
    pub fn is_half_full(&self) -> bool {
        self.is_fuller_than(2)
    }

    /// Whether more than a quarter as much waits as its bounds say.
    pub fn is_quarter_full(&self) -> bool {
        self.is_fuller_than(4)
    }

    /// What is in it from this number on, oldest first.
    pub fn beginning_with(&self, number: u64) -> impl Iterator<Item = &QueuedMessage> {
        self.queued_messages
            .range(self.queued_messages.partition_point(|queued_message| queued_message.number < number)..)
    }

    /// What came last.
    pub fn newest(&self) -> Option<&QueuedMessage> {
        self.queued_messages.back()
    }

    pub fn is_empty(&self) -> bool {
        self.queued_messages.is_empty()
    }

    pub fn len(&self) -> usize {
        self.queued_messages.len()
    }

    /// Bytes that wait, and what keeping them costs.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes out what came last.
    pub fn pop_newest(&mut self) -> Option<QueuedMessage> {
        let queued_message = self.queued_messages.pop_back();
        self.discount(queued_message)
    }

    fn count(&mut self, queued_message: &QueuedMessage) {
        self.bytes += queued_message.cost();
        self.next_expiry = self.next_expiry.min(queued_message.expires);
    }

    fn discount(&mut self, queued_message: Option<QueuedMessage>) -> Option<QueuedMessage> {
        self.bytes -= queued_message.as_ref().map_or(0, QueuedMessage::cost);
        shrink(&mut self.queued_messages);
        queued_message
    }

    /// Whether more than this part of its bounds waits.
    pub fn is_fuller_than(&self, fraction: usize) -> bool {
        fraction * self.queued_messages.len() > self.bounds.messages
            || fraction * self.bytes > self.bounds.bytes
    }
}

impl Default for MessageList {
    fn default() -> Self {
        Self { queued_messages: VecDeque::new(), bytes: 0, next_expiry: Micros::MAX }
    }
}

impl MessageList {
    /// Puts a message last.
    pub fn push(&mut self, queued_message: QueuedMessage) {
        self.bytes += queued_message.cost();
        self.next_expiry = self.next_expiry.min(queued_message.expires);
        self.queued_messages.push_back(queued_message);
    }

    /// Puts a message first.
    pub fn push_first(&mut self, queued_message: QueuedMessage) {
        self.bytes += queued_message.cost();
        self.next_expiry = self.next_expiry.min(queued_message.expires);
        self.queued_messages.push_front(queued_message);
    }

    /// Takes out the first.
    pub fn pop(&mut self) -> Option<QueuedMessage> {
        let queued_message = self.queued_messages.pop_front()?;
        self.bytes -= queued_message.cost();
        Some(queued_message)
    }

    /// Takes out what it has from this number on.
    pub fn split_off(&mut self, number: u64) -> VecDeque<QueuedMessage> {
        let behind = self
            .queued_messages
            .split_off(self.queued_messages.partition_point(|queued_message| queued_message.number < number));
        self.bytes -= behind.iter().map(QueuedMessage::cost).sum::<usize>();
        behind
    }
}

impl QueuedMessage {
    /// What it counts for in a bounded queue.
    pub fn cost(&self) -> usize {
        self.field.len() + OVERHEAD
    }
}

#[cfg(test)]
mod tests;
