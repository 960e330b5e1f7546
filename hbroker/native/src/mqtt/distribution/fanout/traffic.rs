//! The items that [`Fanout`](super::Fanout) routes: from the network to listeners, and to the workers that
//! have their sessions.

use std::sync::Arc;

use crate::mqtt::Key;
use crate::mqtt::ack_guard::Ticket;
use crate::mqtt::codec::reason::Reason;
use crate::mqtt::distribution::batch::MessageBatch;
use crate::mqtt::distribution::message::{DeliveryOptions, Message};
use crate::mqtt::io::connections::ConnectionId;
use crate::mqtt::session::Delivery;

/// The options of a subscription.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub qos: u8,
    pub no_local: bool,
    pub retain_as_published: bool,
    /// The subscription identifier; 0: none.
    pub identifier: u32,
}

/// A message of the network, and its listeners.
pub struct Incoming<'a> {
    /// The message to acknowledge, at `QoS` 1 and 2; `None`: the owner waits for no acknowledgement.
    pub ticket: Option<Ticket>,
    pub message: Message,
    /// Sent as a retained message because a subscription was made.
    pub retained: bool,
    /// The origin of the publishing client; 0: it has none.
    pub origin: u64,
    pub listeners: &'a [u64],
}

/// An item for a session that is with a worker.
pub struct SessionItem {
    pub connection: ConnectionId,
    pub content: ItemContent,
}

pub enum ItemContent {
    Message(Delivery),
    /// A batch of messages of `QoS` 0.
    MessageBatch(Arc<MessageBatch>, DeliveryOptions),
    /// The network's answer to a message that the client published.
    Answer(Key, Reason),
}

impl SessionItem {
    /// The size that counts towards the limit of bytes for a worker.
    pub fn bytes(&self) -> usize {
        match &self.content {
            ItemContent::Message(delivery) => size_of::<Self>() + delivery.message.payload.len(),
            ItemContent::MessageBatch(batch, _) => size_of::<Self>() + batch.payload_bytes(),
            ItemContent::Answer(..) => size_of::<Self>(),
        }
    }

    /// How many messages without an ack guard it has.
    pub fn qos0(&self) -> usize {
        match &self.content {
            ItemContent::Message(delivery) => usize::from(delivery.ack_guard.is_none()),
            ItemContent::MessageBatch(batch, _) => batch.len(),
            ItemContent::Answer(..) => 0,
        }
    }
}

/// The items for each worker, by worker number.
pub type Batches = Vec<Vec<SessionItem>>;

/// How a message reaches a client by one subscription (§3.3.1.3, §3.3.4).
pub fn delivery_options(options: &Options, message: &Message, retained: bool) -> DeliveryOptions {
    DeliveryOptions {
        qos: options.qos.min(message.qos),
        retain: retained || (message.retain && options.retain_as_published),
        identifiers: (options.identifier > 0).then_some(options.identifier).into_iter().collect(),
    }
}

/// Combines the options of two subscriptions.
pub fn merge(delivery_options: &mut DeliveryOptions, other: DeliveryOptions) {
    delivery_options.qos = delivery_options.qos.max(other.qos);
    delivery_options.retain |= other.retain;
    delivery_options.identifiers.extend(other.identifiers);
}
