//! From the network to a client (MQTT 5 §4.3, MQTT 5 §4.4): what waits, what was sent and is not acknowledged, and what PUBREL is owed for.
//!
//! A message of `QoS` 1 or 2 waits in the queue, and is sent under a packet id. It ends with PUBACK; or, at `QoS` 2, the client has it from
//! PUBREC on, and is owed PUBREL until PUBCOMP comes. Until then its owner is not answered: a client may hand a message on at PUBREL
//! only (MQTT 5 §4.3.3, method A), and one that was never released would be lost to it with the gateway. On a new connection PUBREL goes first for all that it is owed for, then what was sent before, marked as sent again, then what waits: each in
//! its order (MQTT 5 §4.4, MQTT 5 §4.6).
//!
//! A client that leaves a message unanswered for too long, counted from when the message came here, is *stalled*: its claims to what came
//! through the member that many sessions share are released, so that it holds up nobody else's acknowledgement, and its messages stay,
//! within its queue's bounds. It counts again once nothing waits for it. What came through a member of its own holds up nobody else: it is
//! never answered in the client's stead, and its owner decides what a client that is too slow may miss (§7.3).

use std::collections::VecDeque;
use std::sync::Arc;

use crate::Micros;
use crate::mqtt::Turn;
use crate::mqtt::claim::{Claim, MessageId};
use crate::mqtt::codec::frame::kind;
use crate::mqtt::codec::packets::Version;
use crate::mqtt::codec::reason::Reason;
use crate::mqtt::counters::{Counters, Drop};
use crate::mqtt::distribution::batch::Series;
use crate::mqtt::distribution::encoder::Encoder;
use crate::mqtt::distribution::message::Terms;
use crate::mqtt::session::channel::{Channel, NEVER};
use crate::mqtt::session::inherited::{Inherited, Known, NO_MESSAGE};
use crate::mqtt::session::packet_ids::{IN_BLOCK, PacketIds};
use crate::mqtt::session::queue::{Parcel, Queue};
use crate::mqtt::settings::SessionSettings;

/// Messages that are sent without an acknowledgement, whatever the settings say. With what is inherited they have packet ids in one block.
const MOST_INFLIGHT: u16 = IN_BLOCK / 2;

/// A message that was sent.
struct Flight {
    packet_id: u16,
    parcel: Parcel,
}

/// PUBREL was sent, and PUBCOMP has not come.
struct Owed {
    packet_id: u16,
    /// `NO_MESSAGE`: the network does not bring it again.
    message: MessageId,
    claim: Option<Claim>,
    /// When the message came.
    since: Micros,
    /// Its PUBLISH went over this connection, and took of its quota.
    is_fresh: bool,
}

/// As [`super::SessionState`], of what was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SentState {
    /// Not acknowledged, in order.
    pub sent: Vec<(MessageId, u16)>,
    /// PUBREC came, PUBCOMP did not: PUBREL is owed, in order. `NO_MESSAGE`: the network does not bring it again.
    pub owed: Vec<(MessageId, u16)>,
    /// PUBCOMP came, too; the network is to be told when it brings them again.
    pub had: Vec<MessageId>,
    /// Where packet ids are from.
    pub block: u8,
}

#[derive(Default)]
pub struct Outgoing {
    queue: Queue,
    /// Not acknowledged, in order.
    sent: VecDeque<Flight>,
    sent_bytes: usize,
    /// How many of these, from the front on, have gone over this connection.
    fresh: usize,
    /// In the order of PUBREC.
    owed: VecDeque<Owed>,
    inherited: Inherited,
    ids: PacketIds,
    /// No message that others wait for came before; exact once that is too long ago. `None`: there is none.
    oldest: Option<Micros>,
    is_stalled: bool,
}

impl Outgoing {
    /// Goes on with what another gateway had sent.
    pub fn resuming(state: SentState) -> Self {
        let SentState { sent, owed, had, block } = state;
        let inherited = Inherited::new(sent, had.into_iter().chain(owed.iter().map(|(message, _)| *message)));
        let owed = owed.into_iter().map(|(message, packet_id)| Owed {
            packet_id,
            message,
            claim: None,
            since: 0,
            is_fresh: false,
        });
        Self { inherited, owed: owed.collect(), ids: PacketIds::of(block), ..Self::default() }
    }

    /// Takes a message to wait. False: the queue overflowed, and the session is to end.
    #[must_use]
    pub fn deliver(
        &mut self,
        mut parcel: Parcel,
        settings: &SessionSettings,
        counters: &mut Counters,
    ) -> bool {
        self.take_on(&mut parcel);
        let known = if parcel.terms.qos > 0 { self.inherited.take(parcel.message.id) } else { None };
        match known {
            Some(Known::Sent(packet_id)) => {
                self.push_sent(Flight { packet_id, parcel });
                return true;
            }
            Some(Known::Had) => {
                self.answer_with_pubcomp(parcel);
                return true;
            }
            None => {}
        }
        self.queue.push(parcel, settings, counters)
    }

    /// Whether a message can be sent at once, past the queue.
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
                0 => !self.queue.has_loose(),
                _ => {
                    self.queue.is_empty() && self.may_send(channel, settings) && !self.inherited.has(message)
                }
            }
    }

    /// Sends messages of `QoS` 0 that came together, at once, past the queue; false: not all of them may go so.
    #[must_use]
    pub fn send_series(
        &self,
        turn: &mut Turn<'_>,
        channel: &mut Channel,
        series: &Arc<Series>,
        terms: &Terms,
        encoder: &mut Encoder,
    ) -> bool {
        !self.queue.has_loose() && channel.put_series(turn, series, terms, encoder)
    }

    /// Sends a message that nothing waits before.
    pub fn send(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &mut Channel,
        mut parcel: Parcel,
        encoder: Option<&mut Encoder>,
    ) {
        if parcel.terms.qos == 0 {
            if let Err(why) = channel.put_message(turn, &parcel, 0, false, encoder) {
                turn.counters.drop(why);
            }
            return;
        }
        self.take_on(&mut parcel);
        let used = self.sent.iter().map(|flight| flight.packet_id);
        let used = used
            .chain(self.owed.iter().map(|owed| owed.packet_id))
            .chain(self.inherited.sent().map(|(_, id)| id));
        let Some(packet_id) = self.ids.next(used) else {
            turn.counters.drop(Drop::QueueFull);
            return;
        };
        match channel.put_message(turn, &parcel, packet_id, false, encoder) {
            Ok(()) => {
                self.push_sent(Flight { packet_id, parcel });
                self.fresh += 1;
            }
            Err(why) => turn.counters.drop(why),
        }
    }

    /// Sends on what waits, as far as the client and the output take it.
    pub fn flush(&mut self, turn: &mut Turn<'_>, channel: &mut Channel, settings: &SessionSettings) {
        while channel.has_room(turn) {
            let Some(parcel) = self.queue.pop_loose() else {
                break;
            };
            self.send(turn, channel, parcel, None);
        }
        while self.fresh < self.sent.len() && channel.has_quota() && channel.has_room(turn) {
            let Flight { packet_id, parcel } = &self.sent[self.fresh];
            match channel.put_message(turn, parcel, *packet_id, true, None) {
                Ok(()) => self.fresh += 1,
                Err(why) => {
                    turn.counters.drop(why);
                    self.remove(self.fresh);
                }
            }
        }
        while channel.has_room(turn) && self.may_send(channel, settings) {
            let Some(parcel) = self.queue.pop() else {
                break;
            };
            self.send(turn, channel, parcel, None);
        }
    }

    /// A new connection: PUBREL for what it is owed, then all that was sent before, then what waits (MQTT 5 §4.4).
    pub fn resume(&mut self, turn: &mut Turn<'_>, channel: &mut Channel, settings: &SessionSettings) {
        self.fresh = 0;
        for owed in &mut self.owed {
            owed.is_fresh = false;
            channel.put_ack(turn, kind::PUBREL, owed.packet_id, Reason::SUCCESS);
        }
        self.flush(turn, channel, settings);
    }

    /// The connection is gone, and with it what was of `QoS` 0.
    pub fn detach(&mut self, counters: &mut Counters) {
        self.fresh = 0;
        for _ in 0..self.queue.drop_loose() {
            counters.drop(Drop::Away);
        }
    }

    /// PUBACK, PUBREC or PUBCOMP. What names nothing that was sent is passed over: MQTT 3.1 clients repeat theirs.
    ///
    /// # Errors
    /// It is not what a message of this `QoS` is answered with next.
    pub fn acknowledged(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &mut Channel,
        ack: u8,
        packet_id: u16,
        reason: Reason,
    ) -> Result<(), Reason> {
        let flight = self.find(packet_id);
        match (ack, flight.map(|index| (index, self.sent[index].parcel.terms.qos))) {
            (kind::PUBACK, Some((index, 1))) => self.finish(channel, index),
            // MQTT 5 §4.3.3: a refusal ends it, too.
            (kind::PUBREC, Some((index, 2))) if reason.is_failure() => self.finish(channel, index),
            (kind::PUBREC, Some((index, 2))) => {
                let is_fresh = index < self.fresh;
                if let Some(Flight { parcel, .. }) = self.remove(index) {
                    let Parcel { message, claim, since, .. } = parcel;
                    self.owed.push_back(Owed { packet_id, message: message.id, claim, since, is_fresh });
                }
                channel.put_ack(turn, kind::PUBREL, packet_id, Reason::SUCCESS);
            }
            // MQTT 5 §4.3: the answer to another message than this one.
            (_, Some(_)) if channel.version > Version::V31 => return Err(Reason::PROTOCOL_ERROR),
            (kind::PUBREC, _) if !reason.is_failure() => {
                let is_owed = self.owed.iter().any(|owed| owed.packet_id == packet_id);
                let is_known = is_owed || channel.version < Version::V5;
                let reason = if is_known { Reason::SUCCESS } else { Reason::PACKET_ID_NOT_FOUND };
                channel.put_ack(turn, kind::PUBREL, packet_id, reason);
                return Ok(());
            }
            (kind::PUBCOMP, _) => {
                let owed = self.owed.iter().position(|owed| owed.packet_id == packet_id);
                match owed.and_then(|index| self.owed.remove(index)) {
                    Some(owed) if owed.is_fresh => channel.restore(),
                    Some(_) => {}
                    None => return Ok(()),
                }
            }
            _ => return Ok(()),
        }
        self.answered();
        Ok(())
    }

    /// When the client is to be taken for stalled.
    pub fn stalls_at(&self, settings: &SessionSettings) -> Micros {
        self.oldest.map_or(NEVER, |oldest| oldest.saturating_add(settings.stall))
    }

    /// Releases the claims of a client that others wait for, if it owes an answer for too long.
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
        let sent = self.sent.iter_mut().map(|flight| &mut flight.parcel.claim);
        let owed = self.owed.iter_mut().map(|owed| &mut owed.claim);
        let waiting = self.queue.iter_mut().map(|parcel| &mut parcel.claim);
        for claim in sent.chain(owed).chain(waiting) {
            claim.take_if(|claim| claim.is_shared());
        }
    }

    /// When the oldest message came that others wait for. Only what waits lies in that order: what is owed lies in that of PUBREC, and what
    /// was sent under another gateway comes when its owner brings it.
    fn find_oldest(&self) -> Option<Micros> {
        let holds = |claim: &Option<Claim>| claim.as_ref().is_some_and(Claim::is_shared);
        let sent = self.sent.iter().map(|flight| &flight.parcel).filter(|parcel| holds(&parcel.claim));
        let waiting = self.queue.iter().find(|parcel| holds(&parcel.claim));
        let owed = self.owed.iter().filter(|owed| holds(&owed.claim)).map(|owed| owed.since);
        sent.chain(waiting).map(|parcel| parcel.since).chain(owed).min()
    }

    pub fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    /// What another gateway needs to go on with it. A message whose claim was released does not come again.
    pub fn export(&self) -> SentState {
        let sent = self.sent.iter().map(|flight| (flight.parcel.message.id, flight.packet_id));
        let comes = |owed: &Owed| owed.claim.is_some() || self.inherited.had(owed.message);
        let message = |owed: &Owed| if comes(owed) { owed.message } else { NO_MESSAGE };
        let is_owed = |message: &MessageId| self.owed.iter().any(|owed| owed.message == *message);
        SentState {
            sent: self.inherited.sent().chain(sent).collect(),
            owed: self.owed.iter().map(|owed| (message(owed), owed.packet_id)).collect(),
            had: self.inherited.all_had().filter(|message| !is_owed(message)).collect(),
            block: self.ids.block(),
        }
    }

    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Shares in messages that may go to whoever has the session next, or, once it is over, to another member of its group: not those
    /// of `QoS` 2 whose delivery has begun (MQTT 5 §4.8.2).
    pub fn claims(&self, is_over: bool) -> impl Iterator<Item = &Claim> {
        let may_go = move |qos| !is_over || qos < 2;
        let sent = self.sent.iter().filter(move |flight| may_go(flight.parcel.terms.qos));
        let owed = self.owed.iter().filter(move |_| may_go(2));
        let begun = sent.filter_map(|flight| flight.parcel.claim.as_ref());
        begun.chain(owed.filter_map(|owed| owed.claim.as_ref())).chain(self.queue.claims())
    }

    pub fn inflight(&self) -> usize {
        self.sent.len() + self.owed.len()
    }

    /// Messages that end with the session.
    pub fn remaining(&self) -> usize {
        self.queue.len() + self.sent.len()
    }

    fn may_send(&self, channel: &Channel, settings: &SessionSettings) -> bool {
        let has_bytes = self.sent.is_empty() || self.sent_bytes < settings.queue_bytes;
        self.fresh == self.sent.len()
            && channel.has_quota()
            && self.inflight() < usize::from(settings.inflight.min(MOST_INFLIGHT))
            && has_bytes
    }

    fn push_sent(&mut self, flight: Flight) {
        self.sent_bytes += flight.parcel.message.cost();
        self.sent.push_back(flight);
    }

    fn remove(&mut self, index: usize) -> Option<Flight> {
        let flight = self.sent.remove(index)?;
        self.sent_bytes -= flight.parcel.message.cost();
        if index < self.fresh {
            self.fresh -= 1;
        }
        Some(flight)
    }

    /// A message that the client has: its owner is answered with PUBCOMP, or now, if that has come.
    fn answer_with_pubcomp(&mut self, parcel: Parcel) {
        let is_it = |owed: &&mut Owed| owed.message == parcel.message.id && owed.claim.is_none();
        if let Some(owed) = self.owed.iter_mut().find(is_it) {
            (owed.claim, owed.since) = (parcel.claim, parcel.since);
        }
    }

    fn finish(&mut self, channel: &mut Channel, index: usize) {
        if index < self.fresh {
            channel.restore();
        }
        self.remove(index);
    }

    /// Where the flight with this packet id is. Mostly at the front; ids rise along the deque, unless some go round while an old one
    /// stays.
    fn find(&self, packet_id: u16) -> Option<usize> {
        let first = self.sent.front()?.packet_id;
        let distance = |flight: &Flight| flight.packet_id.wrapping_sub(first);
        let guess = self.sent.partition_point(|flight| distance(flight) < packet_id.wrapping_sub(first));
        let is_it = |index: &usize| self.sent.get(*index).is_some_and(|flight| flight.packet_id == packet_id);
        Some(guess)
            .filter(is_it)
            .or_else(|| self.sent.iter().position(|flight| flight.packet_id == packet_id))
    }

    /// The client owes an answer to this message: others wait for it, unless the client is stalled.
    fn take_on(&mut self, parcel: &mut Parcel) {
        if self.is_stalled && self.sent.is_empty() && self.queue.is_empty() {
            self.is_stalled = false;
        }
        if parcel.claim.as_ref().is_some_and(Claim::is_shared) {
            if self.is_stalled {
                parcel.claim = None;
            } else {
                self.oldest.get_or_insert(parcel.since);
            }
        }
    }

    /// The client has answered: it counts again once it has caught up.
    fn answered(&mut self) {
        if self.queue.is_empty() {
            self.is_stalled = false;
        }
    }
}
