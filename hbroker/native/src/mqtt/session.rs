//! A session (MQTT 5 §4.1): the state of a client that outlives its connection, without its subscriptions,
//! which Python keeps.
//!
//! ```text
//! Session (this file)
//!   incoming    PUBLISH from the client at `QoS` 1 and 2, until it is acknowledged
//!   outgoing    messages to the client; with queue, packet_ids, inherited (sent by another gateway)
//!   channel     the connection's side of sending: quota, aliases, room in the output
//! ```
//!
//! While the client is connected the connection owns the session and calls it to send. While the client is
//! offline the session is parked and queues messages.

mod channel;
mod incoming;
mod inherited;
mod outgoing;
mod packet_ids;
mod queue;

use std::sync::Arc;

use crate::Micros;
use crate::mqtt::access::rules::Access;
use crate::mqtt::ack_guard::AckGuard;
use crate::mqtt::codec::reason::Reason;
use crate::mqtt::counters::{Counters, Drop};
use crate::mqtt::distribution::batch::MessageBatch;
use crate::mqtt::distribution::encoder::Encoder;
use crate::mqtt::distribution::message::{DeliveryOptions, Message};
use crate::mqtt::settings::SessionSettings;
use crate::mqtt::{Key, Turn};

pub use channel::{Channel, NEVER};
pub use incoming::Arrival;
use incoming::Incoming;
#[cfg(test)]
pub use inherited::NO_MESSAGE;
use outgoing::Outgoing;
pub use outgoing::SentState;
use queue::QueuedMessage;

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

/// How much a session holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Queued messages, and the bytes that they count for.
    pub queued: usize,
    pub queued_bytes: usize,
    /// Messages in flight: sent, and not acknowledged yet.
    pub inflight: usize,
}

/// The state of a client that outlives its connection.
#[derive(Default)]
pub struct Session {
    settings: SessionSettings,
    outgoing: Outgoing,
    incoming: Incoming,
    access: Access,
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

    /// Whether the network has answered every PUBLISH that it took. An export before that omits the
    /// unanswered ones, and the next gateway would take the client's retransmission for a new message.
    pub fn is_settled(&self) -> bool {
        self.incoming.is_settled()
    }

    /// Sets the topics that the client may read and write from now on.
    pub fn set_access(&mut self, access: Access) {
        self.access = access;
    }

    /// Sets the limits from now on.
    pub fn set_settings(&mut self, settings: SessionSettings) {
        self.settings = settings;
    }

    /// Queues a message for an offline client. False: the queue overflowed, and by its policy the session is
    /// to end.
    #[must_use]
    pub fn deliver(&mut self, now: Micros, delivery: Delivery, counters: &mut Counters) -> bool {
        let Some(queued_message) = self.admit(now, delivery, counters) else {
            return true;
        };
        if queued_message.delivery_options.qos == 0 {
            counters.drop(Drop::Away);
            return true;
        }
        self.outgoing.deliver(queued_message, &self.settings, counters)
    }

    /// The network's answer to a PUBLISH of a connection that has ended.
    pub fn answer(&mut self, key: Key, reason: Reason) {
        self.incoming.answer(key, reason);
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

    pub fn load(&self) -> Load {
        Load {
            queued: self.outgoing.queue().len(),
            queued_bytes: self.outgoing.queue().bytes(),
            inflight: self.outgoing.inflight(),
        }
    }

    /// Delivers a message to a connected client. False: the queue overflowed, and by its policy the session
    /// is to end.
    #[must_use]
    pub(super) fn deliver_over(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &mut Channel,
        delivery: Delivery,
        encoder: &mut Encoder,
    ) -> bool {
        let Some(queued_message) = self.admit(turn.now, delivery, turn.counters) else {
            return true;
        };
        let (qos, id) = (queued_message.delivery_options.qos, queued_message.message.id);
        if self.outgoing.is_free(qos, id, channel, turn, &self.settings) {
            self.outgoing.send(turn, channel, queued_message, Some(encoder));
            return true;
        }
        let is_kept = self.outgoing.deliver(queued_message, &self.settings, turn.counters);
        self.outgoing.flush(turn, channel, &self.settings);
        is_kept
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
        self.access.may_read(batch.topic())
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

    pub(super) fn incoming(&mut self) -> &mut Incoming {
        &mut self.incoming
    }

    pub(super) fn may_write(&mut self, topic: &str) -> bool {
        self.access.may_write(topic)
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
        if !self.access.may_read(&message.topic) {
            counters.drop(Drop::Denied);
            return None;
        }
        delivery_options.qos = delivery_options.qos.min(message.qos);
        let ack_guard = ack_guard.filter(|_| delivery_options.qos > 0);
        Some(QueuedMessage { message, delivery_options, ack_guard, since: now })
    }
}
