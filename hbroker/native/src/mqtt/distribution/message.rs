//! A message of the network on its way to MQTT clients. All recipients share one copy.

use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::Micros;
use crate::load::latency::Sample;
use crate::mqtt::codec::frame::{MAX_REMAINING, kind, put_binary, put_varint, varint_len};
use crate::mqtt::codec::packets::Version;
use crate::mqtt::codec::publish::property;
use crate::mqtt::distribution::ack_guard::MessageId;
use crate::mqtt::io::output::Output;
use crate::wire::PublishView;
use crate::workspace;

/// The longest string or binary data (MQTT 5 §1.5.4).
const MAX_BINARY: usize = 65_535;
/// `PayloadFormat` on the wire of the network (`packet.proto`): 1 is UTF-8 text.
const TEXT: i32 = 1;

/// A message with its encoded MQTT 5 properties.
#[derive(Debug)]
pub struct Message {
    /// Publisher and sequence number. A session that was imported recognises a message by it.
    pub id: MessageId,
    /// Its name in the network.
    pub topic: Arc<str>,
    /// Where the name begins in it by which the clients of its workspace know it.
    local_at: usize,
    pub payload: Bytes,
    pub qos: u8,
    /// The RETAIN flag of the publisher.
    pub retain: bool,
    /// When it expires, by the clock of `now`; `Micros::MAX`: never.
    pub expires: Micros,
    /// Set if it is timed until it is first sent to a client.
    pub sample: Option<Arc<Sample>>,
    /// The encoded PUBLISH properties that are the same for every recipient.
    properties: Box<[u8]>,
}

/// How one client receives a message, by all its matching subscriptions together (MQTT 5 §3.3.4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveryOptions {
    /// The highest QoS that was granted.
    pub qos: u8,
    /// The RETAIN flag to send. It is set for a retained message that is sent because of a subscription. For
    /// other messages it is set if the publisher set it and a subscription has Retain As Published.
    pub retain: bool,
    /// The subscription identifiers.
    pub identifiers: SmallVec<[u32; 2]>,
}

/// Everything that the encoding of a message depends on, except its packet id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketFormat<'a> {
    pub version: Version,
    pub qos: u8,
    pub retain: bool,
    pub dup: bool,
    pub identifiers: &'a [u32],
    pub alias: Alias,
}

/// How a PUBLISH contains its topic (MQTT 5 §3.3.2.3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alias {
    None,
    /// The topic and an alias, which the client is to remember.
    Announce(u16),
    /// The alias alone.
    Instead(u16),
}

impl Message {
    /// A message from the network, on a topic that clients know. `topic`: that of the view, shared with other messages. `payload`: the
    /// whole payload, also if the view holds a fragment.
    pub fn from_network(publish: &PublishView<'_>, topic: Arc<str>, payload: Bytes) -> Self {
        Self {
            id: (publish.publisher, publish.sequence),
            local_at: workspace::local_at(&topic).unwrap_or(0),
            topic,
            payload,
            qos: publish.qos,
            retain: publish.retain,
            expires: publish.expires(),
            sample: None,
            properties: properties(publish),
        }
    }

    /// A message of `QoS` 0 without properties, on a topic that clients know.
    pub fn bare(topic: Arc<str>, payload: Bytes) -> Self {
        Self {
            id: (0, 0),
            local_at: workspace::local_at(&topic).unwrap_or(0),
            topic,
            payload,
            qos: 0,
            retain: false,
            expires: Micros::MAX,
            sample: None,
            properties: Box::default(),
        }
    }

    /// The topic, as the recipients know it.
    pub fn local_topic(&self) -> &str {
        &self.topic[self.local_at..]
    }

    /// The size that counts towards the limits of a queue, in bytes.
    pub fn cost(&self) -> usize {
        self.payload.len() + self.topic.len() + self.properties.len() + 128
    }

    /// The size of the packet in this format.
    pub fn packet_len(&self, packet_format: &PacketFormat<'_>) -> usize {
        let remaining = self.remaining(packet_format);
        1 + varint_len(remaining) + remaining
    }

    /// Whether the message fits into a packet.
    pub fn fits(&self, packet_format: &PacketFormat<'_>) -> bool {
        self.remaining(packet_format) <= MAX_REMAINING
    }

    /// Appends PUBLISH (MQTT 5 §3.3). The message must fit and must not have expired. All recipients share a
    /// large payload.
    pub fn put_to(&self, out: &mut Output, now: Micros, packet_format: &PacketFormat<'_>, packet_id: u16) {
        self.put_head(out, now, packet_format, packet_id);
        out.share(&self.payload);
    }

    /// As `put_to`, with a copy of the payload. Returns the offset of the packet id from the beginning of the
    /// packet.
    pub fn put(
        &self,
        out: &mut Vec<u8>,
        now: Micros,
        packet_format: &PacketFormat<'_>,
        packet_id: u16,
    ) -> usize {
        let id_at = self.put_head(out, now, packet_format, packet_id);
        out.extend_from_slice(&self.payload);
        id_at
    }

    fn put_head(
        &self,
        out: &mut Vec<u8>,
        now: Micros,
        packet_format: &PacketFormat<'_>,
        packet_id: u16,
    ) -> usize {
        let start = out.len();
        let remaining = self.remaining(packet_format);
        out.reserve(5 + remaining - self.payload.len());
        out.push(
            kind::PUBLISH << 4
                | u8::from(packet_format.dup) << 3
                | packet_format.qos << 1
                | u8::from(packet_format.retain),
        );
        put_varint(out, remaining);
        self.put_variable(out, now, packet_format, packet_id) - start
    }

    /// Appends PUBLISH from its topic up to the payload. Returns the offset of the packet id in `out`.
    pub fn put_variable(
        &self,
        out: &mut Vec<u8>,
        now: Micros,
        packet_format: &PacketFormat<'_>,
        packet_id: u16,
    ) -> usize {
        let topic = if matches!(packet_format.alias, Alias::Instead(_)) { "" } else { self.local_topic() };
        put_binary(out, topic.as_bytes());
        let id_at = out.len();
        if packet_format.qos > 0 {
            out.extend_from_slice(&packet_id.to_be_bytes());
        }
        if packet_format.version == Version::V5 {
            put_varint(out, self.properties_len(packet_format));
            self.put_properties(out, now, packet_format);
        }
        id_at
    }

    fn put_properties(&self, out: &mut Vec<u8>, now: Micros, packet_format: &PacketFormat<'_>) {
        if self.expires < Micros::MAX {
            // MQTT 5 §3.3.2.3.3: the interval less the time that the message has waited. Rounded up, so that
            // a message that has not expired never has 0.
            let left = self.expires.saturating_sub(now).div_ceil(1_000_000);
            out.push(property::MESSAGE_EXPIRY);
            out.extend_from_slice(&u32::try_from(left).unwrap_or(u32::MAX).to_be_bytes());
        }
        if let Alias::Announce(alias) | Alias::Instead(alias) = packet_format.alias {
            out.push(property::TOPIC_ALIAS);
            out.extend_from_slice(&alias.to_be_bytes());
        }
        for &identifier in packet_format.identifiers {
            out.push(property::SUBSCRIPTION_IDENTIFIER);
            put_varint(out, identifier as usize);
        }
        out.extend_from_slice(&self.properties);
    }

    fn properties_len(&self, packet_format: &PacketFormat<'_>) -> usize {
        let expiry = if self.expires < Micros::MAX { 5 } else { 0 };
        let alias = if packet_format.alias == Alias::None { 0 } else { 3 };
        let identifiers: usize =
            packet_format.identifiers.iter().map(|identifier| 1 + varint_len(*identifier as usize)).sum();
        expiry + alias + identifiers + self.properties.len()
    }

    /// The remaining length: the bytes after the fixed header.
    pub fn remaining(&self, packet_format: &PacketFormat<'_>) -> usize {
        let topic =
            if matches!(packet_format.alias, Alias::Instead(_)) { 0 } else { self.local_topic().len() };
        let packet_id = if packet_format.qos > 0 { 2 } else { 0 };
        let properties = if packet_format.version == Version::V5 {
            let length = self.properties_len(packet_format);
            varint_len(length) + length
        } else {
            0
        };
        2 + topic + packet_id + properties + self.payload.len()
    }
}

/// The properties of the publisher, unaltered and in order (MQTT 5 §3.3.2.3).
fn properties(publish: &PublishView<'_>) -> Box<[u8]> {
    if !publish.has_properties {
        return Box::default();
    }
    let mut out = Vec::new();
    let properties = publish.properties();
    if let Some(format) = properties.payload_format {
        out.extend_from_slice(&[property::PAYLOAD_FORMAT, u8::from(format == TEXT)]);
    }
    let mut put = |id: u8, bytes: &[u8]| {
        if !bytes.is_empty() {
            out.push(id);
            put_binary(&mut out, bytes);
        }
    };
    if is_text(properties.content_type) {
        put(property::CONTENT_TYPE, properties.content_type.as_bytes());
    }
    if is_text(properties.response_topic) {
        put(property::RESPONSE_TOPIC, properties.response_topic.as_bytes());
    }
    if properties.correlation_data.len() <= MAX_BINARY {
        put(property::CORRELATION_DATA, properties.correlation_data);
    }
    for (name, value) in publish.user_properties().filter(|(name, value)| is_text(name) && is_text(value)) {
        out.push(property::USER_PROPERTY);
        put_binary(&mut out, name.as_bytes());
        put_binary(&mut out, value.as_bytes());
    }
    out.into()
}

/// Whether MQTT can encode this string (MQTT 5 §1.5.4). The network's own clients may publish others, which
/// are omitted.
fn is_text(text: &str) -> bool {
    text.len() <= MAX_BINARY && !text.as_bytes().contains(&0)
}

#[cfg(test)]
impl Message {
    /// For tests: `QoS` 1 and 2 by `qos`, without properties.
    pub fn plain(sequence: u64, topic: &str, payload: &[u8], qos: u8) -> Self {
        Self {
            id: (7, sequence),
            local_at: workspace::local_at(topic).unwrap_or(0),
            topic: topic.into(),
            payload: Bytes::copy_from_slice(payload),
            qos,
            retain: false,
            expires: Micros::MAX,
            sample: None,
            properties: Box::default(),
        }
    }
}
