//! A message of the network on its way to MQTT clients: one copy, whoever gets it.

use bytes::Bytes;
use smallvec::SmallVec;

use crate::Micros;
use crate::mqtt::claim::MessageId;
use crate::wire::PublishView;

/// A message, and what MQTT 5 says of it, encoded.
#[derive(Debug)]
pub struct Message {
    /// The publisher's, for resumption after an import.
    pub id: MessageId,
    pub topic: Box<str>,
    pub payload: Bytes,
    pub qos: u8,
    /// The publisher's flag.
    pub retain: bool,
    /// When it dies, by the clock of `now`; `Micros::MAX`: never.
    pub expires: Micros,
    /// The properties that are the same for every recipient, as PUBLISH has them.
    properties: Box<[u8]>,
}

/// How one client gets a message: what its matching subscriptions say together (§3.3.4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// The highest granted.
    pub qos: u8,
    /// The flag to send: retained messages sent for a subscription have it, others where the publisher and a
    /// subscription with retain-as-published say so.
    pub retain: bool,
    /// The subscription identifiers.
    pub identifiers: SmallVec<[u32; 2]>,
}

impl Message {
    /// From the network. `payload`: the whole, where the view holds a part.
    pub fn from_network(publish: &PublishView<'_>, payload: Bytes) -> Self {
        Self {
            id: (publish.publisher, publish.sequence),
            topic: publish.topic.into(),
            payload,
            qos: publish.qos,
            retain: publish.retain,
            expires: publish.expires(),
            properties: Box::default(),
        }
    }
}
