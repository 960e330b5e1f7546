//! The queue of messages for a client, bounded in messages and in bytes.
//!
//! A message with an ack guard is never dropped for lack of room: its owner waits for the acknowledgement and
//! sends no more than its credit, so the credit bounds these messages (§7.7). The limits here are for the
//! others: messages of `QoS` 0, and messages that were acknowledged in the client's stead
//! (`Outgoing::stall`).
//!
//! Messages of `QoS` 0 have a queue of their own: they wait only for room in the output, never delay other
//! messages, and are dropped first.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::Micros;
use crate::mqtt::distribution::ack_guard::AckGuard;
use crate::mqtt::distribution::message::{DeliveryOptions, Message};
use crate::mqtt::metrics::counters::{Counters, Drop};
use crate::mqtt::settings::SessionSettings;

/// A message for one client.
#[derive(Clone, Debug)]
pub struct QueuedMessage {
    pub message: Arc<Message>,
    /// With the `QoS` to send at.
    pub delivery_options: DeliveryOptions,
    pub ack_guard: Option<AckGuard>,
    /// When it arrived.
    pub since: Micros,
}

#[derive(Default)]
pub struct Queue {
    certain: VecDeque<QueuedMessage>,
    qos0: VecDeque<QueuedMessage>,
    bytes: usize,
}

impl Queue {
    /// The next message of `QoS` 1 or 2.
    pub fn pop(&mut self) -> Option<QueuedMessage> {
        let queued_message = self.certain.pop_front();
        self.gone(queued_message)
    }

    /// The `QoS` of the message that `pop` returns next.
    pub fn next_qos(&self) -> Option<u8> {
        self.certain.front().map(|queued_message| queued_message.delivery_options.qos)
    }

    /// The next message of `QoS` 0.
    pub fn pop_qos0(&mut self) -> Option<QueuedMessage> {
        let queued_message = self.qos0.pop_front();
        self.gone(queued_message)
    }

    /// Queues a message behind the others of its kind. If there is no room, the oldest is dropped that may be,
    /// or this one.
    pub fn push(
        &mut self,
        queued_message: QueuedMessage,
        settings: &SessionSettings,
        counters: &mut Counters,
    ) {
        let cost = queued_message.message.cost();
        let is_certain = queued_message.delivery_options.qos > 0;
        while self.is_full(cost, settings) {
            if !self.qos0.is_empty() {
                self.pop_qos0();
            } else if queued_message.ack_guard.is_some() {
                break;
            } else if is_certain && self.may_drop_oldest() {
                self.pop();
            } else {
                return counters.drop(Drop::QueueFull);
            }
            counters.drop(Drop::QueueFull);
        }
        self.bytes += cost;
        if is_certain { &mut self.certain } else { &mut self.qos0 }.push_back(queued_message);
    }

    /// Drops the messages of `QoS` 0. Returns how many there were.
    pub fn drop_qos0(&mut self) -> usize {
        let count = self.qos0.len();
        while self.pop_qos0().is_some() {}
        self.qos0.shrink_to_fit();
        count
    }

    /// The queued messages of `QoS` 1 and 2, to change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut QueuedMessage> {
        self.certain.iter_mut()
    }

    /// The queued messages of `QoS` 1 and 2, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &QueuedMessage> {
        self.certain.iter()
    }

    pub fn ack_guards(&self) -> impl Iterator<Item = &AckGuard> {
        self.certain.iter().filter_map(|queued_message| queued_message.ack_guard.as_ref())
    }

    pub fn has_qos0(&self) -> bool {
        !self.qos0.is_empty()
    }

    pub fn is_empty(&self) -> bool {
        self.certain.is_empty()
    }

    pub fn len(&self) -> usize {
        self.certain.len() + self.qos0.len()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the oldest message has no ack guard.
    fn may_drop_oldest(&self) -> bool {
        self.certain.front().is_some_and(|oldest| oldest.ack_guard.is_none())
    }

    /// Whether there is no room. A single message may be larger than the limit.
    fn is_full(&self, cost: usize, settings: &SessionSettings) -> bool {
        self.len() >= settings.queue_messages || (self.bytes > 0 && self.bytes + cost > settings.queue_bytes)
    }

    fn gone(&mut self, queued_message: Option<QueuedMessage>) -> Option<QueuedMessage> {
        let queued_message = queued_message?;
        self.bytes -= queued_message.message.cost();
        if self.certain.is_empty() && self.certain.capacity() > 64 {
            self.certain.shrink_to_fit();
        }
        Some(queued_message)
    }
}
