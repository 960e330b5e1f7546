//! A session (MQTT 5 §4.1): the state of a client that outlives its connection, without its subscriptions,
//! which Python keeps.
//!
//! ```text
//! Session (this file)
//!   incoming    PUBLISH from the client at `QoS` 1 and 2, until it is acknowledged
//!   outgoing    messages to the client; with queue, packet_ids, inherited (sent by another gateway)
//! Channel (this file)   the connection's side of sending: quota, aliases, room in the output
//! ```
//!
//! While the client is connected the connection owns the session and calls it to send. While the client is
//! offline the session is parked and queues messages.

mod incoming;
mod inherited;
mod outgoing;
mod packet_ids;
mod queue;

use std::sync::Arc;

use crate::Micros;
use crate::mqtt::access::rules::Access;
use crate::mqtt::codec::acks;
use crate::mqtt::codec::packets::Version;
use crate::mqtt::codec::reason::Reason;
use crate::mqtt::distribution::ack_guard::AckGuard;
use crate::mqtt::distribution::batch::MessageBatch;
use crate::mqtt::distribution::encoder::Encoder;
use crate::mqtt::distribution::message::{Alias, DeliveryOptions, Message, PacketFormat};
use crate::mqtt::metrics;
use crate::mqtt::metrics::counters::{Counters, Drop};
use crate::mqtt::settings::SessionSettings;
use crate::mqtt::{Turn, aliases};

pub use incoming::Incoming;
pub use incoming::PublishArrival;
#[cfg(test)]
pub use inherited::NO_MESSAGE;
use outgoing::Outgoing;
pub use outgoing::SentState;
use queue::QueuedMessage;

/// The deadline that never comes.
pub const NEVER: Micros = Micros::MAX;

/// A message for one client.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub message: Arc<Message>,
    pub delivery_options: DeliveryOptions,
    /// None: no acknowledgement depends on this client.
    pub ack_guard: Option<AckGuard>,
}

/// The state that another gateway needs to resume a session: packet ids without messages. A message keeps its
/// packet id when the network sends it again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionState {
    pub outgoing: SentState,
    /// Packet ids of `QoS` 2 messages that were received from the client, without a PUBREL yet.
    pub received: Vec<u16>,
}

/// How many messages a session has queued and in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionLoad {
    /// Queued messages, and the bytes that they count for.
    pub queued: usize,
    pub queued_bytes: usize,
    /// Messages in flight: sent, and not acknowledged yet.
    pub inflight: usize,
}

/// How much is queued in several sessions together.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueTotals {
    pub messages: u64,
    pub bytes: u64,
}

/// The state of a client that outlives its connection.
#[derive(Default)]
pub struct Session {
    settings: SessionSettings,
    outgoing: Outgoing,
    pub incoming: Incoming,
    pub access: Access,
}

impl QueueTotals {
    /// The totals with another session.
    pub fn plus(self, session: SessionLoad) -> Self {
        Self {
            messages: self.messages + session.queued as u64,
            bytes: self.bytes + session.queued_bytes as u64,
        }
    }
}

impl Session {
    #[cfg(test)]
    pub fn new(settings: SessionSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Resumes a session that another gateway exported.
    pub fn import(settings: SessionSettings, state: SessionState) -> Self {
        Self {
            settings,
            outgoing: Outgoing::resuming(state.outgoing),
            incoming: Incoming::resuming(state.received),
            access: Access::default(),
        }
    }

    /// The state that another gateway needs to resume this session.
    pub fn export(&self) -> SessionState {
        SessionState { outgoing: self.outgoing.export(), received: self.incoming.export() }
    }

    /// Sets the limits from now on.
    pub fn set_settings(&mut self, settings: SessionSettings) {
        self.settings = settings;
    }

    /// Queues a message for an offline client.
    pub fn deliver(&mut self, now: Micros, delivery: Delivery, counters: &mut Counters) {
        let Some(queued_message) = self.admit(now, delivery, counters) else {
            return;
        };
        if queued_message.delivery_options.qos == 0 {
            return counters.drop(Drop::Offline);
        }
        self.outgoing.deliver(queued_message, &self.settings, counters);
    }

    /// When `handle_timeout` is due; `Micros::MAX`: never.
    pub fn poll_timeout(&self) -> Micros {
        self.outgoing.stalls_at(&self.settings)
    }

    /// Drops the ack guards of a client that has not acknowledged for too long.
    pub fn handle_timeout(&mut self, now: Micros, counters: &mut Counters) {
        self.outgoing.handle_timeout(now, &self.settings, counters);
    }

    /// The ack guards of messages that the owner is to send again. `is_over`: to other clients, because the
    /// session ends.
    pub fn ack_guards(&self, is_over: bool) -> impl Iterator<Item = &AckGuard> {
        self.outgoing.ack_guards(is_over)
    }

    /// Ends the session. Its messages are dropped and counted.
    pub fn end(self, counters: &mut Counters) {
        for _ in 0..self.outgoing.remaining() {
            counters.drop(Drop::SessionEnded);
        }
    }

    pub fn load(&self) -> SessionLoad {
        SessionLoad {
            queued: self.outgoing.queue().len(),
            queued_bytes: self.outgoing.queue().bytes(),
            inflight: self.outgoing.inflight(),
        }
    }

    /// Delivers a message to a connected client.
    pub(super) fn deliver_over(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &mut Channel,
        delivery: Delivery,
        encoder: &mut Encoder,
    ) {
        let Some(queued_message) = self.admit(turn.now, delivery, turn.counters) else {
            return;
        };
        let (qos, id) = (queued_message.delivery_options.qos, queued_message.message.id);
        if self.outgoing.is_free(qos, id, channel, turn, &self.settings) {
            return self.outgoing.send(turn, channel, queued_message, Some(encoder));
        }
        self.outgoing.deliver(queued_message, &self.settings, turn.counters);
        self.outgoing.flush(turn, channel, &self.settings);
    }

    /// Delivers a batch of messages of `QoS` 0 to a connected client. False: they cannot all be sent now, and
    /// none was sent.
    #[must_use]
    pub(super) fn deliver_batch_over(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &mut Channel,
        batch: &Arc<MessageBatch>,
        delivery_options: &DeliveryOptions,
        encoder: &mut Encoder,
    ) -> bool {
        self.access.may_read(batch.common().local_topic())
            && self.outgoing.send_batch(turn, channel, batch, delivery_options, encoder)
    }

    pub(super) fn resume(&mut self, turn: &mut Turn<'_>, channel: &mut Channel) {
        self.outgoing.resume(turn, channel, &self.settings);
    }

    pub(super) fn flush(&mut self, turn: &mut Turn<'_>, channel: &mut Channel) {
        self.outgoing.flush(turn, channel, &self.settings);
    }

    pub(super) fn acknowledged(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &mut Channel,
        ack: u8,
        packet_id: u16,
        reason: Reason,
    ) -> Result<(), Reason> {
        self.outgoing.acknowledged(turn, channel, ack, packet_id, reason)?;
        self.outgoing.flush(turn, channel, &self.settings);
        Ok(())
    }

    /// The connection has ended.
    pub(super) fn detach(&mut self, counters: &mut Counters) {
        self.outgoing.detach(counters);
        self.incoming.detach();
    }

    /// The message, with the lower of its QoS and the subscription's; None if the client may not read the
    /// topic. At QoS 0 the owner waits for no acknowledgement.
    fn admit(&mut self, now: Micros, delivery: Delivery, counters: &mut Counters) -> Option<QueuedMessage> {
        let Delivery { message, mut delivery_options, ack_guard } = delivery;
        if !self.access.may_read(message.local_topic()) {
            counters.drop(Drop::Denied);
            return None;
        }
        delivery_options.qos = delivery_options.qos.min(message.qos);
        let ack_guard = ack_guard.filter(|_| delivery_options.qos > 0);
        Some(QueuedMessage { message, delivery_options, ack_guard, since: now })
    }
}

/// The sending side of a client's connection: what a session must know of it (MQTT 5 §4.9).
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
