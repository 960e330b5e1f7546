//! Splits bytes into packets, and handles those of an accepted client.
//!
//! A complete packet is handled in place. Only an incomplete packet, and bytes that arrive while the connection
//! is paused, are copied.

use crate::mqtt::Turn;
use crate::mqtt::codec::answers::PINGRESP;
use crate::mqtt::codec::frame::{self, Frame, kind};
use crate::mqtt::codec::packets::Version;
use crate::mqtt::codec::publish::Publish;
use crate::mqtt::codec::reason::Reason;
use crate::mqtt::codec::{acks, control};
use crate::mqtt::connection::event::{Cause, Event, PublishOutcome, UpperLayer};
use crate::mqtt::connection::{Connection, Pause, State};
use crate::mqtt::metrics;
use crate::mqtt::session::PublishArrival;

/// A read of this many bytes resets the keep alive timer: a large packet may take longer than the keep alive.
const SIGN_OF_LIFE: usize = 1_000;
/// The largest packet other than PUBLISH, in bytes. A list of short filters takes many times its size once it
/// is parsed.
const MAX_CONTROL: usize = 1 << 20;
/// The capacity that `rest` keeps between packets.
const KEPT_CAPACITY: usize = 1_024;

/// Whether a packet was handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PacketOutcome {
    /// It was handled.
    Handled,
    /// It was not handled, and stays in the buffer: the connection paused before it.
    Paused,
}

impl Connection {
    /// Handles bytes of the stream, and copies those that it cannot handle yet.
    pub fn handle_bytes(&mut self, turn: &mut Turn<'_>, mut bytes: &[u8], upper: &mut impl UpperLayer) {
        if self.state == State::Open && bytes.len() >= SIGN_OF_LIFE {
            self.last_received = turn.now;
        }
        // Completes the incomplete packet first, and copies no more than it needs.
        while !self.rest.is_empty() && !bytes.is_empty() && self.wants_bytes() {
            let missing = match frame::length(&self.rest, self.maximum_packet(self.rest[0])) {
                Ok(Some(length)) => length.saturating_sub(self.rest.len()).max(1),
                _ => 1,
            };
            let (taken, left) = bytes.split_at(missing.min(bytes.len()));
            self.rest.extend_from_slice(taken);
            bytes = left;
            self.handle_rest(turn, upper);
        }
        let consumed = if self.rest.is_empty() && self.wants_bytes() {
            self.handle_packets(turn, bytes, upper)
        } else {
            0
        };
        self.keep(turn, &bytes[consumed..], upper);
    }

    /// Whether packets are handled now, and bytes may be read. If not, the client's bytes wait in the socket
    /// until the next call of `accept`, `answer`, `resume` or `handle_timeout`.
    pub fn wants_bytes(&self) -> bool {
        match self.state {
            State::ExpectConnect => true,
            // MQTT 5 §3.1.2.11.9: with an authentication method the client may send AUTH and DISCONNECT only.
            State::Deciding => self.client.authentication_method.is_some(),
            State::Open => self.paused.is_none(),
            State::Closed => false,
        }
    }

    /// Resumes handling, beginning with the buffered bytes.
    pub(super) fn go_on(&mut self, turn: &mut Turn<'_>, upper: &mut impl UpperLayer) {
        self.paused = None;
        self.last_received = turn.now;
        self.handle_rest(turn, upper);
    }

    fn handle_rest(&mut self, turn: &mut Turn<'_>, upper: &mut impl UpperLayer) {
        let mut rest = std::mem::take(&mut self.rest);
        let consumed = self.handle_packets(turn, &rest, upper);
        if self.state == State::Closed {
            return;
        }
        rest.drain(..consumed);
        if rest.is_empty() && rest.capacity() > KEPT_CAPACITY {
            rest = Vec::new();
        }
        self.rest = rest;
    }

    /// Handles complete packets until the connection pauses. Returns how many bytes it handled.
    fn handle_packets(&mut self, turn: &mut Turn<'_>, bytes: &[u8], upper: &mut impl UpperLayer) -> usize {
        let mut at = 0;
        while self.wants_bytes() && at < bytes.len() {
            // A first byte other than that of CONNECT ends the connection at once.
            if self.state == State::ExpectConnect && bytes[at] != kind::CONNECT << 4 {
                self.fail(turn, Reason::PROTOCOL_ERROR, upper);
                break;
            }
            match frame::split(&bytes[at..], self.maximum_packet(bytes[at])) {
                Ok(Some(frame)) => match self.handle_packet(turn, &frame, upper) {
                    Ok(PacketOutcome::Handled) => {
                        turn.counters.packets_in += 1;
                        at += frame.bytes.len();
                    }
                    Ok(PacketOutcome::Paused) => break,
                    Err(reason) => self.fail(turn, reason, upper),
                },
                Ok(None) => break,
                Err(reason) => self.fail(turn, reason, upper),
            }
            self.limit_rate(turn);
        }
        at
    }

    fn handle_packet(
        &mut self,
        turn: &mut Turn<'_>,
        frame: &Frame<'_>,
        upper: &mut impl UpperLayer,
    ) -> Result<PacketOutcome, Reason> {
        self.last_received = turn.now;
        match self.state {
            State::ExpectConnect => self.handle_connect(turn, frame, upper),
            State::Deciding => self.handle_while_deciding(frame, upper)?,
            State::Open => return self.handle_open(turn, frame, upper),
            State::Closed => {}
        }
        Ok(PacketOutcome::Handled)
    }

    /// Buffers unhandled bytes. Before the client is accepted `handshake_bytes` bounds the buffer, later the
    /// size of one read does.
    fn keep(&mut self, turn: &mut Turn<'_>, bytes: &[u8], upper: &mut impl UpperLayer) {
        if self.state == State::Closed || bytes.is_empty() {
            return;
        }
        if self.state != State::Open && self.rest.len() + bytes.len() > self.settings.handshake_bytes {
            return self.fail(turn, Reason::PACKET_TOO_LARGE, upper);
        }
        self.rest.extend_from_slice(bytes);
        self.limit_rate(turn);
    }

    /// The largest packet whose first byte is `first`.
    fn maximum_packet(&self, first: u8) -> usize {
        match self.state {
            State::Open if first >> 4 == kind::PUBLISH => self.settings.maximum_packet,
            State::Open => self.settings.maximum_packet.min(MAX_CONTROL),
            _ => self.settings.maximum_packet.min(self.settings.handshake_bytes),
        }
    }

    fn limit_rate(&mut self, turn: &Turn<'_>) {
        if self.state == State::Open && self.paused.is_none() {
            let free_at = self.rate.as_mut().map(|rate| rate.free_at(turn.now));
            self.paused = free_at.filter(|free_at| *free_at > turn.now).map(Pause::Rate);
        }
    }

    /// Handles a packet of an accepted client.
    fn handle_open(
        &mut self,
        turn: &mut Turn<'_>,
        frame: &Frame<'_>,
        upper: &mut impl UpperLayer,
    ) -> Result<PacketOutcome, Reason> {
        let version = self.channel.version;
        match frame.kind {
            kind::PUBLISH => return self.handle_publish(turn, frame, upper),
            kind::PUBACK | kind::PUBREC | kind::PUBREL | kind::PUBCOMP => self.handle_ack(turn, frame)?,
            kind::PINGREQ => self.handle_ping(turn, frame)?,
            kind::SUBSCRIBE => upper.event(Event::Subscribe(control::subscribe(version, frame)?)),
            kind::UNSUBSCRIBE => upper.event(Event::Unsubscribe(control::unsubscribe(version, frame)?)),
            kind::DISCONNECT => self.handle_disconnect(frame, upper)?,
            kind::AUTH if version == Version::V5 => self.handle_auth(frame, upper)?,
            // MQTT 5 §3.1.0: a second CONNECT is a protocol error, and so is a packet that only a server
            // sends.
            kind::CONNECT | kind::CONNACK | kind::SUBACK | kind::UNSUBACK | kind::PINGRESP => {
                return Err(Reason::PROTOCOL_ERROR);
            }
            _ => return Err(Reason::MALFORMED),
        }
        Ok(PacketOutcome::Handled)
    }

    fn handle_publish(
        &mut self,
        turn: &mut Turn<'_>,
        frame: &Frame<'_>,
        upper: &mut impl UpperLayer,
    ) -> Result<PacketOutcome, Reason> {
        let version = self.channel.version;
        let mut buffer = String::new();
        let mut publish = Publish::parse(version, frame)?;
        if publish.topic_alias > 0 {
            let most = self.settings.topic_alias_maximum;
            publish.topic = self.aliases.resolve(most, publish.topic_alias, publish.topic)?;
        }
        let Some(session) = &mut self.session else {
            return Err(Reason::UNSPECIFIED);
        };
        if publish.qos > 0 {
            match session.incoming.arrive(publish.qos, publish.packet_id) {
                PublishArrival::New => {}
                PublishArrival::PendingDuplicate => return Ok(PacketOutcome::Handled),
                PublishArrival::AnsweredDuplicate => {
                    self.channel.put_ack(turn, kind::PUBREC, publish.packet_id, Reason::SUCCESS);
                    return Ok(PacketOutcome::Handled);
                }
            }
            // MQTT 5 §3.3.4. Before MQTT 5 the client knows no receive maximum, so the connection pauses
            // instead.
            let most = usize::from(self.settings.receive_maximum);
            if version == Version::V5 && session.incoming.open() >= most {
                return Err(Reason::RECEIVE_MAXIMUM_EXCEEDED);
            }
            if version < Version::V5 && session.incoming.unanswered() >= most {
                self.paused = Some(Pause::Window);
                return Ok(PacketOutcome::Paused);
            }
        }
        let key = (publish.qos > 0).then(|| session.incoming.next_key());
        let may_write = session.access.may_write(publish.topic);
        let outcome = match self.workspace.absolute(publish.topic, &mut buffer).filter(|_| may_write) {
            Some(absolute) => {
                publish.topic = absolute;
                upper.publish(&publish, key)
            }
            None => PublishOutcome::Refused(Reason::NOT_AUTHORIZED),
        };
        if outcome == PublishOutcome::Accepted {
            metrics::note_in(turn, publish.topic, publish.payload.len());
        }
        let (qos, packet_id, bytes) = (publish.qos, publish.packet_id, publish.payload.len());
        self.conclude(turn, outcome, qos, packet_id, bytes, upper)
    }

    /// Acts on the network's answer to a message.
    fn conclude(
        &mut self,
        turn: &mut Turn<'_>,
        outcome: PublishOutcome,
        qos: u8,
        packet_id: u16,
        bytes: usize,
        upper: &mut impl UpperLayer,
    ) -> Result<PacketOutcome, Reason> {
        let refusal = match outcome {
            PublishOutcome::Later => {
                self.paused = Some(Pause::Network);
                return Ok(PacketOutcome::Paused);
            }
            PublishOutcome::Accepted => None,
            PublishOutcome::Refused(reason) => Some(reason),
        };
        turn.counters.messages_in += 1;
        turn.counters.payload_in += bytes as u64;
        turn.counters.refused += u64::from(refusal.is_some());
        if let Some(rate) = &mut self.rate {
            rate.charge(turn.now, 1);
        }
        if qos == 0 {
            return Ok(PacketOutcome::Handled);
        }
        let key = self.session.as_mut().map(|session| {
            let key = session.incoming.next_key();
            session.incoming.take(qos, packet_id, None);
            key
        });
        if let (Some(key), Some(reason)) = (key, refusal) {
            self.answer(turn, key, reason, upper);
        }
        Ok(PacketOutcome::Handled)
    }

    fn handle_ack(&mut self, turn: &mut Turn<'_>, frame: &Frame<'_>) -> Result<(), Reason> {
        let (packet_id, reason) = acks::parse(self.channel.version, frame)?;
        let Some(session) = &mut self.session else {
            return Ok(());
        };
        if frame.kind == kind::PUBREL {
            // MQTT 5 §4.3.3. Before MQTT 5, PUBCOMP has no reason code and is always the answer.
            let reason = session.incoming.release(packet_id);
            self.channel.put_ack(turn, kind::PUBCOMP, packet_id, reason);
        } else {
            session.acknowledged(turn, &mut self.channel, frame.kind, packet_id, reason)?;
        }
        Ok(())
    }

    fn handle_ping(&mut self, turn: &mut Turn<'_>, frame: &Frame<'_>) -> Result<(), Reason> {
        if frame.flags != 0 || !frame.body.is_empty() {
            return Err(Reason::MALFORMED);
        }
        turn.counters.packets_out += 1;
        turn.out.extend_from_slice(&PINGRESP);
        Ok(())
    }

    fn handle_disconnect(&mut self, frame: &Frame<'_>, upper: &mut impl UpperLayer) -> Result<(), Reason> {
        let disconnect = control::disconnect(self.channel.version, frame)?;
        // MQTT 5 §3.14.2.2.2
        if disconnect.session_expiry.is_some_and(|expiry| expiry > 0) && !self.client.has_session_expiry {
            return Err(Reason::PROTOCOL_ERROR);
        }
        self.close(Cause::Client, disconnect.reason, disconnect.session_expiry, upper);
        Ok(())
    }

    /// MQTT 5 §4.12.1: re-authentication.
    fn handle_auth(&mut self, frame: &Frame<'_>, upper: &mut impl UpperLayer) -> Result<(), Reason> {
        let auth = control::auth(frame)?;
        self.check_method(&auth.method)?;
        upper.event(Event::Auth(auth));
        Ok(())
    }
}
