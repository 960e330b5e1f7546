//! What is on its way: from the network to listeners, and to the workers that have their sessions.

use std::sync::Arc;

use crate::mqtt::Key;
use crate::mqtt::ack_guard::Ticket;
use crate::mqtt::codec::reason::Reason;
use crate::mqtt::distribution::batch::MessageBatch;
use crate::mqtt::distribution::message::{DeliveryOptions, Message};
use crate::mqtt::io::connections::ConnectionId;
use crate::mqtt::session::Delivery;

/// How a subscription wants its messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub qos: u8,
    pub no_local: bool,
    pub retain_as_published: bool,
    /// The subscription identifier; 0: none.
    pub identifier: u32,
}

/// A message of the network, and for whom.
pub struct Incoming<'a> {
    /// Whom to answer, at `QoS` 1 and 2; `None`: nobody waits.
    pub ticket: Option<Ticket>,
    pub message: Message,
    /// Sent because it was kept when a subscription was made.
    pub retained: bool,
    /// Who published it; 0: nobody says.
    pub origin: u64,
    pub listeners: &'a [u64],
}

/// Something for a session that is with a worker.
pub struct SessionItem {
    pub connection: ConnectionId,
    pub content: ItemContent,
}

pub enum ItemContent {
    Message(Delivery),
    /// Messages of `QoS` 0 that came together.
    MessageBatch(Arc<MessageBatch>, DeliveryOptions),
    /// The network's answer to a message that the client published.
    Answer(Key, Reason),
}

impl SessionItem {
    /// What it counts for.
    pub fn bytes(&self) -> usize {
        match &self.content {
            ItemContent::Message(delivery) => size_of::<Self>() + delivery.message.payload.len(),
            ItemContent::MessageBatch(batch, _) => size_of::<Self>() + batch.payload_bytes(),
            ItemContent::Answer(..) => size_of::<Self>(),
        }
    }

    /// How many messages it is that nobody waits for an answer to.
    pub fn qos0(&self) -> usize {
        match &self.content {
            ItemContent::Message(delivery) => usize::from(delivery.ack_guard.is_none()),
            ItemContent::MessageBatch(batch, _) => batch.len(),
            ItemContent::Answer(..) => 0,
        }
    }
}

/// Parcels for each worker, by number.
pub type Batches = Vec<Vec<SessionItem>>;

/// How a message reaches a client by one subscription (§3.3.1.3, §3.3.4).
pub fn delivery_options(options: &Options, message: &Message, retained: bool) -> DeliveryOptions {
    DeliveryOptions {
        qos: options.qos.min(message.qos),
        retain: retained || (message.retain && options.retain_as_published),
        identifiers: (options.identifier > 0).then_some(options.identifier).into_iter().collect(),
    }
}

/// Both subscriptions' terms together.
pub fn merge(delivery_options: &mut DeliveryOptions, other: DeliveryOptions) {
    delivery_options.qos = delivery_options.qos.max(other.qos);
    delivery_options.retain |= other.retain;
    delivery_options.identifiers.extend(other.identifiers);
}
