//! Handles the packets of an accepted client.

use crate::mqtt::Turn;
use crate::mqtt::codec::answers::PINGRESP;
use crate::mqtt::codec::frame::{Frame, kind};
use crate::mqtt::codec::packets::Version;
use crate::mqtt::codec::publish::Publish;
use crate::mqtt::codec::reason::Reason;
use crate::mqtt::codec::{acks, control};
use crate::mqtt::connection::input::Flow;
use crate::mqtt::connection::{Connection, Pause};
use crate::mqtt::event::{Cause, Event, Taken, Upper};
use crate::mqtt::metrics;
use crate::mqtt::session::Arrival;

impl Connection {
    pub(super) fn handle_open(
        &mut self,
        turn: &mut Turn<'_>,
        frame: &Frame<'_>,
        upper: &mut impl Upper,
    ) -> Result<Flow, Reason> {
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
        Ok(Flow::Next)
    }

    fn handle_publish(
        &mut self,
        turn: &mut Turn<'_>,
        frame: &Frame<'_>,
        upper: &mut impl Upper,
    ) -> Result<Flow, Reason> {
        let version = self.channel.version;
        let mut publish = Publish::parse(version, frame)?;
        if publish.topic_alias > 0 {
            let most = self.settings.topic_alias_maximum;
            publish.topic = self.aliases.resolve(most, publish.topic_alias, publish.topic)?;
        }
        let Some(session) = &mut self.session else {
            return Err(Reason::UNSPECIFIED);
        };
        if publish.qos > 0 {
            match session.incoming().arrive(publish.qos, publish.packet_id) {
                Arrival::New => {}
                Arrival::Awaited => return Ok(Flow::Next),
                Arrival::Again => {
                    self.channel.put_ack(turn, kind::PUBREC, publish.packet_id, Reason::SUCCESS);
                    return Ok(Flow::Next);
                }
            }
            // MQTT 5 §3.3.4. Before MQTT 5 the client knows no receive maximum, so the connection pauses
            // instead.
            let most = usize::from(self.settings.receive_maximum);
            if version == Version::V5 && session.incoming().open() >= most {
                return Err(Reason::RECEIVE_MAXIMUM_EXCEEDED);
            }
            if version < Version::V5 && session.incoming().unanswered() >= most {
                self.paused = Some(Pause::Window);
                return Ok(Flow::Stay);
            }
        }
        let key = (publish.qos > 0).then(|| session.incoming().next_key());
        let taken = if session.may_write(publish.topic) {
            upper.publish(&publish, key)
        } else {
            Taken::Refused(Reason::NOT_AUTHORIZED)
        };
        if taken == Taken::Yes {
            metrics::note_in(turn, publish.topic, publish.payload.len());
        }
        let (qos, packet_id, bytes) = (publish.qos, publish.packet_id, publish.payload.len());
        self.conclude(turn, taken, qos, packet_id, bytes, upper)
    }

    /// Acts on the network's answer to a message.
    fn conclude(
        &mut self,
        turn: &mut Turn<'_>,
        taken: Taken,
        qos: u8,
        packet_id: u16,
        bytes: usize,
        upper: &mut impl Upper,
    ) -> Result<Flow, Reason> {
        let outcome = match taken {
            Taken::Later => {
                self.paused = Some(Pause::Network);
                return Ok(Flow::Stay);
            }
            Taken::Yes => None,
            Taken::Refused(reason) => Some(reason),
        };
        turn.counters.messages_in += 1;
        turn.counters.payload_in += bytes as u64;
        turn.counters.refused += u64::from(outcome.is_some());
        if let Some(rate) = &mut self.rate {
            rate.charge(turn.now, 1);
        }
        if qos == 0 {
            return Ok(Flow::Next);
        }
        let key = self.session.as_mut().map(|session| {
            let key = session.incoming().next_key();
            session.incoming().take(qos, packet_id, None);
            key
        });
        if let (Some(key), Some(reason)) = (key, outcome) {
            self.answer(turn, key, reason, upper);
        }
        Ok(Flow::Next)
    }

    fn handle_ack(&mut self, turn: &mut Turn<'_>, frame: &Frame<'_>) -> Result<(), Reason> {
        let (packet_id, reason) = acks::parse(self.channel.version, frame)?;
        let Some(session) = &mut self.session else {
            return Ok(());
        };
        if frame.kind == kind::PUBREL {
            // MQTT 5 §4.3.3. Before MQTT 5, PUBCOMP has no reason code and is always the answer.
            let reason = session.incoming().release(packet_id);
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

    fn handle_disconnect(&mut self, frame: &Frame<'_>, upper: &mut impl Upper) -> Result<(), Reason> {
        let disconnect = control::disconnect(self.channel.version, frame)?;
        // MQTT 5 §3.14.2.2.2
        if disconnect.session_expiry.is_some_and(|expiry| expiry > 0) && !self.client.has_session_expiry {
            return Err(Reason::PROTOCOL_ERROR);
        }
        self.close(Cause::Client, disconnect.reason, disconnect.session_expiry, upper);
        Ok(())
    }

    /// MQTT 5 §4.12.1: re-authentication.
    fn handle_auth(&mut self, frame: &Frame<'_>, upper: &mut impl Upper) -> Result<(), Reason> {
        let auth = control::auth(frame)?;
        self.check_method(&auth.method)?;
        upper.event(Event::Auth(auth));
        Ok(())
    }
}
