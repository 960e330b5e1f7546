//! Messages from the network to a client (MQTT 5 §4.3, MQTT 5 §4.4): those that wait, those in flight, and
//! those that wait for PUBCOMP.
//!
//! A message of `QoS` 1 or 2 goes through these states:
//!
//! 1. It waits in the queue.
//! 2. It is sent with a packet id, and is in flight.
//! 3. `QoS` 1: PUBACK ends it. `QoS` 2: with PUBREC the client has received it. PUBREL is sent, and PUBCOMP
//!    ends it.
//!
//! The gateway acknowledges a `QoS` 2 message to its owner only after PUBCOMP. A client may process a message
//! only at PUBREL (MQTT 5 §4.3.3, method A), and if the gateway failed before PUBREL the client would lose
//! the message.
//!
//! A new connection begins with PUBREL for all messages that wait for PUBCOMP. The messages in flight follow,
//! with the DUP flag, and then the queued messages. Each kind keeps its order (MQTT 5 §4.4, MQTT 5 §4.6).
//!
//! A client that leaves a message unacknowledged for too long, counted from the arrival of the message here,
//! is *stalled*:
//!
//! - Its ack guards of messages that the shared pool client received are dropped, so it no longer delays the
//!   acknowledgement of messages that other clients receive, too. Its messages stay, within the limits of its
//!   queue. The client counts again once nothing is queued for it.
//! - Messages that a pool client of its own received delay no other client. They are never acknowledged in
//!   the client's stead; their owner decides what a slow client may miss (§7.3).

use std::collections::VecDeque;
use std::sync::Arc;

use crate::Micros;
use crate::mqtt::Turn;
use crate::mqtt::codec::frame::kind;
use crate::mqtt::codec::packets::Version;
use crate::mqtt::codec::reason::Reason;
use crate::mqtt::distribution::ack_guard::{AckGuard, MessageId};
use crate::mqtt::distribution::batch::MessageBatch;
use crate::mqtt::distribution::encoder::Encoder;
use crate::mqtt::distribution::message::DeliveryOptions;
use crate::mqtt::metrics::counters::{Counters, Drop};
use crate::mqtt::session::inherited::{EarlierDelivery, Inherited, NO_MESSAGE};
use crate::mqtt::session::packet_ids::{DoubtfulIds, IN_BLOCK, PacketIds};
use crate::mqtt::session::queue::{Queue, QueuedMessage};
use crate::mqtt::session::{Channel, NEVER};
use crate::mqtt::settings::SessionSettings;

/// The most messages in flight, whatever the settings are. Together with the inherited ones their packet ids
/// fit into one block.
const MOST_INFLIGHT: u16 = IN_BLOCK / 2;

/// A message in flight.
struct Flight {
    packet_id: u16,
    queued_message: QueuedMessage,
}

/// A message for which PUBREL was sent, and no PUBCOMP has arrived.
struct AwaitingPubcomp {
    packet_id: u16,
    /// `NO_MESSAGE`: the network does not send it again.
    message: MessageId,
    ack_guard: Option<AckGuard>,
    /// When the message arrived.
    since: Micros,
    /// Whether its PUBLISH was sent on this connection, and used its quota.
    is_fresh: bool,
}

/// The part of [`super::SessionState`] about sent messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SentState {
    /// Not acknowledged, in order.
    pub sent: Vec<(MessageId, u16)>,
    /// PUBREC arrived and PUBCOMP did not, in order: PUBREL must be sent again. `NO_MESSAGE`: the network
    /// does not send it again.
    pub awaiting_pubcomp: Vec<(MessageId, u16)>,
    /// PUBCOMP arrived, too: when the network sends them again, they are to be acknowledged.
    pub completed: Vec<MessageId>,
    /// The block of the packet ids.
    pub block: u8,
}

#[derive(Default)]
pub struct Outgoing {
    queue: Queue,
    /// In flight, in order.
    sent: VecDeque<Flight>,
    sent_bytes: usize,
    /// How many of these, the oldest first, were sent on this connection.
    fresh: usize,
    /// In the order of PUBREC.
    awaiting_pubcomp: VecDeque<AwaitingPubcomp>,
    inherited: Inherited,
    ids: PacketIds,
    doubtful_ids: DoubtfulIds,
    /// A lower bound for the arrival of the oldest message with a shared ack guard. It is made exact when it
    /// is too long ago. `None`: there is no such message.
    oldest: Option<Micros>,
    is_stalled: bool,
}

impl Outgoing {
    /// Resumes with the messages that another gateway had sent.
    pub fn resuming(state: SentState) -> Self {
        let SentState { sent, awaiting_pubcomp, completed, block } = state;
        let inherited = Inherited::new(
            sent,
            completed.into_iter().chain(awaiting_pubcomp.iter().map(|(message, _)| *message)),
        );
        let awaiting_pubcomp = awaiting_pubcomp.into_iter().map(|(message, packet_id)| AwaitingPubcomp {
            packet_id,
            message,
            ack_guard: None,
            since: 0,
            is_fresh: false,
        });
        Self {
            inherited,
            awaiting_pubcomp: awaiting_pubcomp.collect(),
            ids: PacketIds::of(block),
            doubtful_ids: DoubtfulIds::of(block),
            ..Self::default()
        }
    }

    /// Queues a message.
    pub fn deliver(
        &mut self,
        mut queued_message: QueuedMessage,
        settings: &SessionSettings,
        counters: &mut Counters,
    ) {
        self.take_on(&mut queued_message);
        let earlier = if queued_message.delivery_options.qos > 0 {
            self.inherited.take(queued_message.message.id)
        } else {
            None
        };
        match earlier {
            Some(EarlierDelivery::Sent(packet_id)) => self.push_sent(Flight { packet_id, queued_message }),
            Some(EarlierDelivery::Received) => self.answer_with_pubcomp(queued_message),
            None => self.queue.push(queued_message, settings, counters),
        }
    }

    /// Whether a message can be sent at once, without the queue.
    pub fn is_free(
        &self,
        qos: u8,
        message: MessageId,
        channel: &Channel,
        turn: &Turn<'_>,
        settings: &SessionSettings,
    ) -> bool {
        channel.has_room(turn)
            && match qos {
                0 => !self.queue.has_qos0(),
                2 if self.doubtful_ids.are_unreleased() => false,
                _ => {
                    self.queue.is_empty() && self.may_send(channel, settings) && !self.inherited.has(message)
                }
            }
    }

    /// Sends a batch of `QoS` 0 at once, without the queue; false: it cannot be sent in this way.
    #[must_use]
    pub fn send_batch(
        &self,
        turn: &mut Turn<'_>,
        channel: &mut Channel,
        batch: &Arc<MessageBatch>,
        delivery_options: &DeliveryOptions,
        encoder: &mut Encoder,
    ) -> bool {
        !self.queue.has_qos0() && channel.put_batch(turn, batch, delivery_options, encoder)
    }

    /// Sends a message. No message of its kind may be queued before it.
    pub fn send(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &mut Channel,
        mut queued_message: QueuedMessage,
        encoder: Option<&mut Encoder>,
    ) {
        if queued_message.delivery_options.qos == 0 {
            if let Err(why) = channel.put_message(turn, &queued_message, 0, false, encoder) {
                turn.counters.drop(why);
            }
            return;
        }
        self.take_on(&mut queued_message);
        let used = used_ids(&self.sent, &self.awaiting_pubcomp, &self.inherited);
        let Some(packet_id) = self.ids.next(used) else {
            turn.counters.drop(Drop::QueueFull);
            return;
        };
        match channel.put_message(turn, &queued_message, packet_id, false, encoder) {
            Ok(()) => {
                self.push_sent(Flight { packet_id, queued_message });
                self.fresh += 1;
            }
            Err(why) => turn.counters.drop(why),
        }
    }

    /// Sends queued messages, as far as the client's quota and the output allow.
    pub fn flush(&mut self, turn: &mut Turn<'_>, channel: &mut Channel, settings: &SessionSettings) {
        while channel.has_room(turn) {
            let Some(queued_message) = self.queue.pop_qos0() else {
                break;
            };
            self.send(turn, channel, queued_message, None);
        }
        while self.fresh < self.sent.len() && channel.has_quota() && channel.has_room(turn) {
            let Flight { packet_id, queued_message } = &self.sent[self.fresh];
            match channel.put_message(turn, queued_message, *packet_id, true, None) {
                Ok(()) => self.fresh += 1,
                Err(why) => {
                    turn.counters.drop(why);
                    self.remove(self.fresh);
                }
            }
        }
        self.release_doubtful_ids(turn, channel);
        while channel.has_room(turn) && self.may_send(channel, settings) {
            if self.doubtful_ids.are_unreleased() && self.queue.next_qos() == Some(2) {
                self.doubtful_ids.begin(&mut self.ids);
                self.release_doubtful_ids(turn, channel);
                break;
            }
            let Some(queued_message) = self.queue.pop() else {
                break;
            };
            self.send(turn, channel, queued_message, None);
        }
    }

    fn release_doubtful_ids(&mut self, turn: &mut Turn<'_>, channel: &mut Channel) {
        let in_use = self.in_use();
        let Self { doubtful_ids, ids, sent, awaiting_pubcomp, inherited, .. } = self;
        for id in doubtful_ids.release(ids, in_use, || used_ids(sent, awaiting_pubcomp, inherited)) {
            channel.put_ack(turn, kind::PUBREL, id, Reason::SUCCESS);
        }
    }

    /// How many packet ids are in use.
    fn in_use(&self) -> usize {
        self.inflight() + self.inherited.sent().len()
    }

    /// A new connection: sends PUBREL for the messages that wait for PUBCOMP, then the messages in flight,
    /// then the queued ones (MQTT 5 §4.4).
    pub fn resume(&mut self, turn: &mut Turn<'_>, channel: &mut Channel, settings: &SessionSettings) {
        self.fresh = 0;
        for awaiting_pubcomp in &mut self.awaiting_pubcomp {
            awaiting_pubcomp.is_fresh = false;
            channel.put_ack(turn, kind::PUBREL, awaiting_pubcomp.packet_id, Reason::SUCCESS);
        }
        for id in self.doubtful_ids.awaited() {
            channel.put_ack(turn, kind::PUBREL, id, Reason::SUCCESS);
        }
        self.flush(turn, channel, settings);
    }

    /// The connection has ended. Queued messages of `QoS` 0 are dropped.
    pub fn detach(&mut self, counters: &mut Counters) {
        self.fresh = 0;
        for _ in 0..self.queue.drop_qos0() {
            counters.drop(Drop::Offline);
        }
    }

    /// Handles PUBACK, PUBREC or PUBCOMP. One whose packet id is not in flight is ignored, because MQTT 3.1
    /// clients repeat them.
    ///
    /// # Errors
    /// It is not the next acknowledgement of a message of this `QoS`.
    pub fn acknowledged(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &mut Channel,
        ack: u8,
        packet_id: u16,
        reason: Reason,
    ) -> Result<(), Reason> {
        if ack == kind::PUBCOMP && self.doubtful_ids.complete(&mut self.ids, packet_id) {
            return Ok(());
        }
        let flight = self.find(packet_id);
        match (ack, flight.map(|index| (index, self.sent[index].queued_message.delivery_options.qos))) {
            (kind::PUBACK, Some((index, 1))) => self.finish(channel, index),
            // MQTT 5 §4.3.3: a refusal ends the message, too.
            (kind::PUBREC, Some((index, 2))) if reason.is_failure() => self.finish(channel, index),
            (kind::PUBREC, Some((index, 2))) => {
                let is_fresh = index < self.fresh;
                if let Some(Flight { queued_message, .. }) = self.remove(index) {
                    let QueuedMessage { message, ack_guard, since, .. } = queued_message;
                    self.awaiting_pubcomp.push_back(AwaitingPubcomp {
                        packet_id,
                        message: message.id,
                        ack_guard,
                        since,
                        is_fresh,
                    });
                }
                channel.put_ack(turn, kind::PUBREL, packet_id, Reason::SUCCESS);
            }
            // MQTT 5 §4.3: it does not acknowledge a message in this state.
            (_, Some(_)) if channel.version > Version::V31 => return Err(Reason::PROTOCOL_ERROR),
            (kind::PUBREC, _) if !reason.is_failure() => {
                let awaits_pubcomp = self
                    .awaiting_pubcomp
                    .iter()
                    .any(|awaiting_pubcomp| awaiting_pubcomp.packet_id == packet_id);
                let is_known = awaits_pubcomp || channel.version < Version::V5;
                let reason = if is_known { Reason::SUCCESS } else { Reason::PACKET_ID_NOT_FOUND };
                channel.put_ack(turn, kind::PUBREL, packet_id, reason);
                return Ok(());
            }
            (kind::PUBCOMP, _) => {
                let awaiting_pubcomp = self
                    .awaiting_pubcomp
                    .iter()
                    .position(|awaiting_pubcomp| awaiting_pubcomp.packet_id == packet_id);
                match awaiting_pubcomp.and_then(|index| self.awaiting_pubcomp.remove(index)) {
                    Some(awaiting_pubcomp) if awaiting_pubcomp.is_fresh => channel.restore(),
                    Some(_) => {}
                    None => return Ok(()),
                }
            }
            _ => return Ok(()),
        }
        self.answered();
        Ok(())
    }

    /// When the client counts as stalled.
    pub fn stalls_at(&self, settings: &SessionSettings) -> Micros {
        self.oldest.map_or(NEVER, |oldest| oldest.saturating_add(settings.stall))
    }

    /// Drops the shared ack guards of a client that has left a message unacknowledged for too long.
    pub fn handle_timeout(&mut self, now: Micros, settings: &SessionSettings, counters: &mut Counters) {
        if self.stalls_at(settings) <= now {
            self.oldest = self.find_oldest();
        }
        if self.stalls_at(settings) <= now {
            counters.stalled += 1;
            self.stall();
        }
    }

    fn stall(&mut self) {
        (self.is_stalled, self.oldest) = (true, None);
        let sent = self.sent.iter_mut().map(|flight| &mut flight.queued_message.ack_guard);
        let awaiting_pubcomp =
            self.awaiting_pubcomp.iter_mut().map(|awaiting_pubcomp| &mut awaiting_pubcomp.ack_guard);
        let waiting = self.queue.iter_mut().map(|queued_message| &mut queued_message.ack_guard);
        for ack_guard in sent.chain(awaiting_pubcomp).chain(waiting) {
            ack_guard.take_if(|ack_guard| ack_guard.is_shared());
        }
    }

    /// When the oldest message with a shared ack guard arrived. Only the queue is in order of arrival:
    /// messages that wait for PUBCOMP are in the order of PUBREC, and messages that another gateway sent
    /// arrive when their owners send them.
    fn find_oldest(&self) -> Option<Micros> {
        let holds = |ack_guard: &Option<AckGuard>| ack_guard.as_ref().is_some_and(AckGuard::is_shared);
        let sent = self
            .sent
            .iter()
            .map(|flight| &flight.queued_message)
            .filter(|queued_message| holds(&queued_message.ack_guard));
        let waiting = self.queue.iter().find(|queued_message| holds(&queued_message.ack_guard));
        let awaiting_pubcomp = self
            .awaiting_pubcomp
            .iter()
            .filter(|awaiting_pubcomp| holds(&awaiting_pubcomp.ack_guard))
            .map(|awaiting_pubcomp| awaiting_pubcomp.since);
        sent.chain(waiting).map(|queued_message| queued_message.since).chain(awaiting_pubcomp).min()
    }

    /// The state that another gateway needs to resume. A message whose ack guard was dropped is not sent
    /// again by the network.
    pub fn export(&self) -> SentState {
        let sent = self.sent.iter().map(|flight| (flight.queued_message.message.id, flight.packet_id));
        let comes = |awaiting_pubcomp: &AwaitingPubcomp| {
            awaiting_pubcomp.ack_guard.is_some() || self.inherited.was_received(awaiting_pubcomp.message)
        };
        let message = |awaiting_pubcomp: &AwaitingPubcomp| {
            if comes(awaiting_pubcomp) { awaiting_pubcomp.message } else { NO_MESSAGE }
        };
        let awaits_pubcomp = |message: &MessageId| {
            self.awaiting_pubcomp.iter().any(|awaiting_pubcomp| awaiting_pubcomp.message == *message)
        };
        SentState {
            sent: self.inherited.sent().chain(sent).collect(),
            awaiting_pubcomp: self
                .awaiting_pubcomp
                .iter()
                .map(|awaiting_pubcomp| (message(awaiting_pubcomp), awaiting_pubcomp.packet_id))
                .collect(),
            completed: self.inherited.received().filter(|message| !awaits_pubcomp(message)).collect(),
            block: self.ids.block(),
        }
    }

    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// The ack guards of messages that may go to the next gateway with the session, or, once the session is
    /// over, to another member of a shared group. Then `QoS` 2 messages whose delivery has begun are excluded
    /// (MQTT 5 §4.8.2).
    pub fn ack_guards(&self, is_over: bool) -> impl Iterator<Item = &AckGuard> {
        let may_go = move |qos| !is_over || qos < 2;
        let sent = self.sent.iter().filter(move |flight| may_go(flight.queued_message.delivery_options.qos));
        let awaiting_pubcomp = self.awaiting_pubcomp.iter().filter(move |_| may_go(2));
        let begun = sent.filter_map(|flight| flight.queued_message.ack_guard.as_ref());
        begun
            .chain(awaiting_pubcomp.filter_map(|awaiting_pubcomp| awaiting_pubcomp.ack_guard.as_ref()))
            .chain(self.queue.ack_guards())
    }

    pub fn inflight(&self) -> usize {
        self.sent.len() + self.awaiting_pubcomp.len()
    }

    /// How many messages are dropped if the session ends.
    pub fn remaining(&self) -> usize {
        self.queue.len() + self.sent.len()
    }

    fn may_send(&self, channel: &Channel, settings: &SessionSettings) -> bool {
        let has_bytes = self.sent.is_empty() || self.sent_bytes < settings.queue_bytes;
        self.fresh == self.sent.len()
            && channel.has_quota()
            && self.inflight() < usize::from(settings.inflight.min(MOST_INFLIGHT))
            && has_bytes
            && self.doubtful_ids.leave_room(self.in_use(), &self.ids)
    }

    fn push_sent(&mut self, flight: Flight) {
        self.sent_bytes += flight.queued_message.message.cost();
        self.sent.push_back(flight);
    }

    fn remove(&mut self, index: usize) -> Option<Flight> {
        let flight = self.sent.remove(index)?;
        self.sent_bytes -= flight.queued_message.message.cost();
        if index < self.fresh {
            self.fresh -= 1;
        }
        Some(flight)
    }

    /// The client has received this message. If PUBCOMP is still expected, the message is acknowledged to its
    /// owner with PUBCOMP, else now.
    fn answer_with_pubcomp(&mut self, queued_message: QueuedMessage) {
        let is_it = |awaiting_pubcomp: &&mut AwaitingPubcomp| {
            awaiting_pubcomp.message == queued_message.message.id && awaiting_pubcomp.ack_guard.is_none()
        };
        if let Some(awaiting_pubcomp) = self.awaiting_pubcomp.iter_mut().find(is_it) {
            (awaiting_pubcomp.ack_guard, awaiting_pubcomp.since) =
                (queued_message.ack_guard, queued_message.since);
        }
    }

    fn finish(&mut self, channel: &mut Channel, index: usize) {
        if index < self.fresh {
            channel.restore();
        }
        self.remove(index);
    }

    /// The index of the message in flight with this packet id. It mostly is the oldest. Packet ids rise along
    /// the deque, unless they wrap around while an old one is still in flight.
    fn find(&self, packet_id: u16) -> Option<usize> {
        let first = self.sent.front()?.packet_id;
        let distance = |flight: &Flight| flight.packet_id.wrapping_sub(first);
        let guess = self.sent.partition_point(|flight| distance(flight) < packet_id.wrapping_sub(first));
        let is_it = |index: &usize| self.sent.get(*index).is_some_and(|flight| flight.packet_id == packet_id);
        Some(guess)
            .filter(is_it)
            .or_else(|| self.sent.iter().position(|flight| flight.packet_id == packet_id))
    }

    /// The client has to acknowledge this message. Unless the client is stalled, the owner waits for that.
    fn take_on(&mut self, queued_message: &mut QueuedMessage) {
        if self.is_stalled && self.sent.is_empty() && self.queue.is_empty() {
            self.is_stalled = false;
        }
        if queued_message.ack_guard.as_ref().is_some_and(AckGuard::is_shared) {
            if self.is_stalled {
                queued_message.ack_guard = None;
            } else {
                self.oldest.get_or_insert(queued_message.since);
            }
        }
    }

    /// The client has acknowledged a message. If its queue is empty, it is not stalled any more.
    fn answered(&mut self) {
        if self.queue.is_empty() {
            self.is_stalled = false;
        }
    }
}

/// The packet ids in use.
fn used_ids(
    sent: &VecDeque<Flight>,
    awaiting_pubcomp: &VecDeque<AwaitingPubcomp>,
    inherited: &Inherited,
) -> impl Iterator<Item = u16> {
    let sent = sent.iter().map(|flight| flight.packet_id);
    sent.chain(awaiting_pubcomp.iter().map(|awaiting_pubcomp| awaiting_pubcomp.packet_id))
        .chain(inherited.sent().map(|(_, id)| id))
}
