//! What a session must know of the connection that it sends over (MQTT 5 §4.9). It ends with the connection.

use std::sync::Arc;

use crate::Micros;
use crate::mqtt::Turn;
use crate::mqtt::aliases;
use crate::mqtt::codec::acks;
use crate::mqtt::codec::packets::Version;
use crate::mqtt::codec::reason::Reason;
use crate::mqtt::counters::Drop;
use crate::mqtt::distribution::batch::MessageBatch;
use crate::mqtt::distribution::encoder::Encoder;
use crate::mqtt::distribution::message::{Alias, DeliveryOptions, PacketFormat};
use crate::mqtt::metrics;
use crate::mqtt::session::queue::QueuedMessage;

/// The sending side of a client's connection.
pub struct Channel {
    pub version: Version,
    /// The client's maximum packet size, in bytes.
    pub maximum_packet: usize,
    /// Whether the client takes reason strings.
    wants_text: bool,
    /// From this many bytes of output on, messages wait in the session.
    output_bytes: usize,
    /// The send quota: how many more messages of `QoS` 1 and 2 may be sent now. It is at most the receive
    /// maximum (MQTT 5 §4.9).
    quota: u16,
    receive_maximum: u16,
    aliases: aliases::Outgoing,
}

impl Channel {
    /// `topic_aliases`: how many aliases may be assigned.
    pub fn new(
        version: Version,
        maximum_packet: usize,
        wants_text: bool,
        receive_maximum: u16,
        topic_aliases: u16,
        output_bytes: usize,
    ) -> Self {
        let aliases = aliases::Outgoing::new(if version == Version::V5 { topic_aliases } else { 0 });
        let quota = receive_maximum;
        Self { version, maximum_packet, wants_text, output_bytes, quota, receive_maximum, aliases }
    }

    /// Whether another message of `QoS` 1 or 2 may be sent.
    pub fn has_quota(&self) -> bool {
        self.quota > 0
    }

    /// Whether the output has room for another packet.
    pub fn has_room(&self, turn: &Turn<'_>) -> bool {
        turn.out.pending() < self.output_bytes
    }

    /// A message of `QoS` 1 or 2 was acknowledged finally: restores the quota.
    pub fn restore(&mut self) {
        self.quota = self.quota.saturating_add(1).min(self.receive_maximum);
    }

    /// Appends PUBLISH. `encoder`: set if other clients may receive the same message in this iteration.
    ///
    /// # Errors
    /// Why the message is dropped instead. The client's other messages are still sent (MQTT 5 §3.1.2.11.4).
    pub fn put_message(
        &mut self,
        turn: &mut Turn<'_>,
        queued_message: &QueuedMessage,
        packet_id: u16,
        dup: bool,
        encoder: Option<&mut Encoder>,
    ) -> Result<(), Drop> {
        let message = &queued_message.message;
        // MQTT 5 §4.3.3: a message that was sent does not expire.
        if !dup && message.expires <= turn.now {
            return Err(Drop::Expired);
        }
        let delivery_options = &queued_message.delivery_options;
        let alias = if self.version == Version::V5 { self.aliases.of(&message.topic) } else { Alias::None };
        let mut packet_format = PacketFormat {
            version: self.version,
            qos: delivery_options.qos,
            retain: delivery_options.retain,
            dup,
            identifiers: &delivery_options.identifiers,
            alias,
        };
        if message.packet_len(&packet_format) > self.maximum_packet && matches!(alias, Alias::Announce(_)) {
            packet_format.alias = Alias::None;
        }
        if message.packet_len(&packet_format) > self.maximum_packet || !message.fits(&packet_format) {
            return Err(Drop::TooLarge);
        }
        match encoder {
            Some(encoder) => encoder.put(turn.out, turn.now, message, &packet_format, packet_id),
            None => message.put_to(turn.out, turn.now, &packet_format, packet_id),
        }
        self.aliases.announced(&message.topic, packet_format.alias);
        if delivery_options.qos > 0 {
            self.quota -= 1;
        }
        turn.counters.packets_out += 1;
        turn.counters.messages_out += 1;
        turn.counters.payload_out += message.payload.len() as u64;
        metrics::note_out(turn, message);
        Ok(())
    }

    /// Appends PUBLISH for each message of a batch of `QoS` 0; false: they cannot all be sent in this way.
    #[must_use]
    pub fn put_batch(
        &mut self,
        turn: &mut Turn<'_>,
        batch: &Arc<MessageBatch>,
        delivery_options: &DeliveryOptions,
        encoder: &mut Encoder,
    ) -> bool {
        let alias = if self.version == Version::V5 { self.aliases.of(batch.topic()) } else { Alias::None };
        let packet_format = PacketFormat {
            version: self.version,
            qos: 0,
            retain: delivery_options.retain,
            dup: false,
            identifiers: &delivery_options.identifiers,
            alias,
        };
        let longest = batch.longest_packet(&packet_format);
        // Only a single PUBLISH may assign an alias.
        if matches!(alias, Alias::Announce(_))
            || longest > self.maximum_packet
            || turn.out.pending() + batch.len() * longest > self.output_bytes
        {
            return false;
        }
        encoder.put_batch(turn.out, batch, &packet_format);
        turn.counters.packets_out += batch.len() as u64;
        turn.counters.messages_out += batch.len() as u64;
        turn.counters.payload_out += batch.payload_bytes() as u64;
        metrics::note_batch_out(turn, batch);
        true
    }

    /// Appends PUBACK, PUBREC, PUBREL or PUBCOMP. A refusal has a reason string if the client wants one and
    /// its maximum packet size allows it (MQTT 5 §3.4.2.2.2).
    pub fn put_ack(&self, turn: &mut Turn<'_>, kind: u8, packet_id: u16, reason: Reason) {
        turn.counters.packets_out += 1;
        let text = reason.explanation();
        let has_text = self.wants_text && acks::len_with(text) <= self.maximum_packet;
        acks::put(turn.out, self.version, kind, packet_id, reason, if has_text { text } else { "" });
    }
}

/// The deadline that never comes.
pub const NEVER: Micros = Micros::MAX;
