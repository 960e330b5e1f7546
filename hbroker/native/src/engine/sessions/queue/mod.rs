//! The queue of a session: messages that its link does not take now, or that it has no link for (§7.8).
//!
//! It keeps the order in which the messages were accepted, and is bounded in number and in bytes. If it is
//! too large, expired messages are removed first. Then the overflow policy applies of the subscription that
//! the newest message matched.

use std::collections::VecDeque;

use crate::Micros;
use crate::engine::handover::stored_copies::StoredPart;
use crate::engine::sessions::backlog::Backlog;
use crate::engine::sessions::bounds::Bounds;
use crate::engine::sessions::message::QueuedMessage;
use crate::shrink::shrink;
use crate::tables::subscriber::Overflow;

/// The cost of keeping one message, in addition to its bytes.
const OVERHEAD: usize = size_of::<QueuedMessage>();

/// What is removed from a queue that is too large.
#[derive(Debug)]
pub enum Excess {
    Dropped(QueuedMessage),
    /// This message, and the session has to end.
    End(QueuedMessage),
}

/// Messages in order, outside of a queue.
#[derive(Debug)]
pub struct MessageList {
    pub queued_messages: VecDeque<QueuedMessage>,
    /// The cost of keeping them.
    pub bytes: usize,
    /// None of them expires before this time.
    pub next_expiry: Micros,
}

#[derive(Debug)]
pub struct SessionQueue {
    queued_messages: VecDeque<QueuedMessage>,
    bytes: usize,
    /// Its own bounds in messages and bytes. More than 4 GiB count as 4 GiB.
    most_messages: u32,
    most_bytes: u32,
    /// No message in it expires before this time.
    next_expiry: Micros,
    /// What only the store has: messages behind all others.
    backlog: Option<Box<Backlog>>,
}

impl SessionQueue {
    pub fn new(bounds: Bounds) -> Self {
        let mut queue = Self {
            queued_messages: VecDeque::new(),
            bytes: 0,
            most_messages: 0,
            most_bytes: 0,
            next_expiry: Micros::MAX,
            backlog: None,
        };
        queue.set_bounds(bounds);
        queue
    }

    pub fn set_bounds(&mut self, bounds: Bounds) {
        let at_most = |number| u32::try_from(number).unwrap_or(u32::MAX);
        (self.most_messages, self.most_bytes) = (at_most(bounds.messages), at_most(bounds.bytes));
    }

    /// The bounds that apply: its own, or `kept_size` if that is more, but at most `most` bytes.
    pub fn limit(&self, kept_size: Bounds, most: usize) -> Bounds {
        Bounds {
            messages: kept_size.messages.max(self.most_messages as usize),
            bytes: kept_size.bytes.max(self.most_bytes as usize).min(most),
        }
    }

    /// The number of messages, and the cost of keeping them in memory, with the backlog.
    pub fn size(&self) -> Bounds {
        let backlog = self.backlog.as_ref().map_or(Bounds::default(), |backlog| backlog.size());
        Bounds { messages: self.queued_messages.len() + backlog.messages, bytes: self.bytes + backlog.bytes }
    }

    /// The same, of the messages that count in its bounds.
    pub fn counted_size(&self) -> Bounds {
        let backlog = self.backlog.as_ref().map_or(Bounds::default(), |backlog| backlog.counted_size());
        Bounds { messages: self.queued_messages.len() + backlog.messages, bytes: self.bytes + backlog.bytes }
    }

    /// All messages count in its bounds.
    pub fn count_all(&mut self) {
        self.backlog.iter_mut().for_each(|backlog| backlog.count_all());
    }

    /// Appends a message. The queue may then be too large: call [`Self::next_excess`] until it is not.
    pub fn push(&mut self, queued_message: QueuedMessage) {
        self.count(&queued_message);
        self.queued_messages.push_back(queued_message);
    }

    /// Appends many messages. The queue may then be too large: call [`Self::next_excess`] until it is not.
    pub fn append(&mut self, mut list: MessageList) {
        self.bytes += list.bytes;
        self.next_expiry = self.next_expiry.min(list.next_expiry);
        if self.queued_messages.is_empty() {
            self.queued_messages = list.queued_messages;
        } else {
            self.queued_messages.append(&mut list.queued_messages);
        }
    }

    /// Takes all messages out at once.
    pub fn take_all(&mut self) -> MessageList {
        let queued_messages = std::mem::take(&mut self.queued_messages);
        MessageList { queued_messages, bytes: std::mem::take(&mut self.bytes), next_expiry: self.next_expiry }
    }

    /// Takes the selected messages out, in order.
    pub fn extract_list(&mut self, is_meant: impl FnMut(&QueuedMessage) -> bool) -> MessageList {
        let mut list = MessageList::default();
        self.extract(is_meant).into_iter().for_each(|queued_message| list.push(queued_message));
        list
    }

    /// Puts messages at the head of the queue, in their order. The queue may then be too large: call
    /// [`Self::next_excess`] until it is not.
    pub fn put_back(&mut self, queued_messages: impl DoubleEndedIterator<Item = QueuedMessage>) {
        for queued_message in queued_messages.rev() {
            self.count(&queued_message);
            self.queued_messages.push_front(queued_message);
        }
    }

    pub fn front(&self) -> Option<&QueuedMessage> {
        self.queued_messages.front()
    }

    /// The message after `before` older ones.
    pub fn nth(&self, before: usize) -> Option<&QueuedMessage> {
        self.queued_messages.get(before)
    }

    pub fn pop(&mut self) -> Option<QueuedMessage> {
        let queued_message = self.queued_messages.pop_front();
        self.discount(queued_message)
    }

    /// Whether it exceeds these bounds.
    pub fn is_over(&self, limit: Bounds) -> bool {
        let Bounds { messages, bytes } = self.counted_size();
        messages > limit.messages || bytes > limit.bytes
    }

    /// Whether it exceeds these bounds with another message, whose cost this is.
    pub fn is_over_with(&self, cost: usize, limit: Bounds) -> bool {
        let Bounds { messages, bytes } = self.counted_size();
        messages + 1 > limit.messages || bytes + cost > limit.bytes
    }

    /// Takes the expired messages out. The whole queue is searched, but only if a message can have expired
    /// since the last search.
    pub fn take_expired(&mut self, now: Micros) -> Vec<QueuedMessage> {
        if now < self.next_expiry {
            return Vec::new();
        }
        let expired = self.extract(|queued_message| queued_message.expires <= now);
        self.next_expiry = self
            .queued_messages
            .iter()
            .map(|queued_message| queued_message.expires)
            .min()
            .unwrap_or(Micros::MAX);
        expired
    }

    /// Removes the next message of a queue that is too large.
    pub fn next_excess(&mut self, limit: Bounds) -> Option<Excess> {
        if !self.is_over(limit) {
            return None;
        }
        let newest = self.queued_messages.back()?;
        // A message larger than the whole queue does not fit, even if the queue is emptied.
        let fits = newest.cost() <= limit.bytes && limit.messages > 0;
        let dropped = match newest.overflow {
            Overflow::EndSession => return self.pop_newest().map(Excess::End),
            Overflow::DropOldest if fits => self.pop(),
            Overflow::DropOldest | Overflow::DropNewest => self.pop_newest(),
        };
        dropped.map(Excess::Dropped)
    }

    /// Frees the memory that it does not need now.
    pub fn shrink(&mut self) {
        self.queued_messages.shrink_to_fit();
    }

    /// Takes the selected messages out, in order.
    pub fn extract(&mut self, mut is_meant: impl FnMut(&QueuedMessage) -> bool) -> Vec<QueuedMessage> {
        let (taken, left): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.queued_messages)
            .into_iter()
            .partition(|queued_message| is_meant(queued_message));
        self.queued_messages = left;
        taken.into_iter().inspect(|queued_message| self.bytes -= queued_message.cost()).collect()
    }

    /// The queued messages, to be changed, oldest first.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut QueuedMessage> {
        self.queued_messages.iter_mut()
    }

    /// The messages from this number on, oldest first.
    pub fn beginning_with(&self, number: u64) -> impl Iterator<Item = &QueuedMessage> {
        self.queued_messages
            .range(self.queued_messages.partition_point(|queued_message| queued_message.number < number)..)
    }

    /// The newest message in memory.
    pub fn newest(&self) -> Option<&QueuedMessage> {
        self.queued_messages.back()
    }

    pub fn is_empty(&self) -> bool {
        self.queued_messages.is_empty() && self.backlog.is_none()
    }

    /// The number of messages in memory.
    pub fn loaded(&self) -> usize {
        self.queued_messages.len()
    }

    pub fn backlog(&self) -> Option<&Backlog> {
        self.backlog.as_deref()
    }

    pub(super) fn backlog_mut(&mut self) -> &mut Option<Box<Backlog>> {
        &mut self.backlog
    }

    /// The bytes of the messages in memory, with the cost of keeping them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes the newest message out.
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

    /// Whether more than one part in `fraction` of its bounds is used.
    pub fn is_fuller_than(&self, fraction: usize) -> bool {
        let Bounds { messages, bytes } = self.counted_size();
        fraction * messages > self.most_messages as usize || fraction * bytes > self.most_bytes as usize
    }
}

impl Default for MessageList {
    fn default() -> Self {
        Self { queued_messages: VecDeque::new(), bytes: 0, next_expiry: Micros::MAX }
    }
}

impl MessageList {
    /// Appends a message.
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

    /// Takes the first message out.
    pub fn pop(&mut self) -> Option<QueuedMessage> {
        let queued_message = self.queued_messages.pop_front()?;
        self.bytes -= queued_message.cost();
        Some(queued_message)
    }

    /// Takes those out that are stored.
    pub fn take_stored(&mut self, stored: &mut StoredPart) {
        let is_stored = |queued_message: &QueuedMessage| queued_message.stored > 0;
        let (taken, left): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.queued_messages).into_iter().partition(is_stored);
        self.queued_messages = left;
        self.bytes -= taken
            .iter()
            .inspect(|queued_message| stored.add(queued_message))
            .map(QueuedMessage::cost)
            .sum::<usize>();
    }

    /// Takes the messages from this number on out.
    pub fn split_off(&mut self, number: u64) -> VecDeque<QueuedMessage> {
        let behind = self
            .queued_messages
            .split_off(self.queued_messages.partition_point(|queued_message| queued_message.number < number));
        self.bytes -= behind.iter().map(QueuedMessage::cost).sum::<usize>();
        behind
    }
}

impl QueuedMessage {
    /// The size that it counts for in a bounded queue.
    pub fn cost(&self) -> usize {
        self.field.len() + OVERHEAD
    }
}

#[cfg(test)]
mod tests;
