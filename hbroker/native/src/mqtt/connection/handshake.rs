//! The handshake: from CONNECT until the client is accepted or refused (MQTT 5 §3.1, MQTT 5 §3.2,
//! MQTT 5 §4.12).

use crate::Micros;
use crate::mqtt::Turn;
use crate::mqtt::codec::answers::{ResponseOptions, put_accept, put_refusal};
use crate::mqtt::codec::frame::{Frame, kind};
use crate::mqtt::codec::packets::{Accept, CloseReason, Connect, Version};
use crate::mqtt::codec::reason::Reason;
use crate::mqtt::codec::{connect, control};
use crate::mqtt::connection::event::{Cause, Event, UpperLayer};
use crate::mqtt::connection::{Client, Connection, State};
use crate::mqtt::session::{Channel, NEVER, Session};

/// How many topic aliases the server assigns at most, to a client that takes some.
const TOPIC_ALIASES: u16 = 64;

impl Connection {
    /// Accepts the client: sends CONNACK, then the session's packets, then handles the packets that the
    /// client sent behind CONNECT.
    pub fn accept(
        &mut self,
        turn: &mut Turn<'_>,
        accept: &Accept,
        session: Box<Session>,
        upper: &mut impl UpperLayer,
    ) {
        self.session = Some(session);
        if self.state != State::Deciding {
            return;
        }
        turn.counters.packets_out += 1;
        if !put_accept(turn.out, self.response_options(), accept, &self.settings) {
            return self.close(Cause::Server, Reason::PACKET_TOO_LARGE, None, upper);
        }
        self.state = State::Open;
        self.patience = patience(accept.keep_alive.unwrap_or(self.client.keep_alive));
        self.channel = Channel::new(
            self.channel.version,
            self.channel.maximum_packet,
            self.client.wants_text,
            self.client.receive_maximum,
            self.client.topic_alias_maximum.min(TOPIC_ALIASES),
            self.settings.output_bytes,
        );
        if let Some(session) = &mut self.session {
            session.resume(turn, &mut self.channel);
        }
        self.go_on(turn, upper);
    }

    /// Refuses the client with the return code or reason code of its version (MQTT 5 §3.2.2.2), and closes.
    pub fn refuse(&mut self, turn: &mut Turn<'_>, close_reason: &CloseReason, upper: &mut impl UpperLayer) {
        if self.state == State::Deciding {
            turn.counters.packets_out += 1;
            put_refusal(turn.out, self.response_options(), close_reason);
            self.close(Cause::Server, close_reason.reason, None, upper);
        }
    }

    pub(super) fn handle_connect(
        &mut self,
        turn: &mut Turn<'_>,
        frame: &Frame<'_>,
        upper: &mut impl UpperLayer,
    ) {
        match connect::parse(frame) {
            Ok(connect) => self.remember(connect, upper),
            Err(connect::InvalidConnect { version: Some(version), reason })
                if has_connack(version, reason) =>
            {
                turn.counters.errors += 1;
                turn.counters.packets_out += 1;
                let response_options =
                    ResponseOptions { version, maximum_packet: usize::MAX, wants_text: true };
                put_refusal(turn.out, response_options, &CloseReason::from(reason));
                self.close(Cause::Error, reason, None, upper);
            }
            Err(connect::InvalidConnect { reason, .. }) => self.fail(turn, reason, upper),
        }
    }

    /// Handles a packet between CONNECT with an authentication method and CONNACK (MQTT 5 §3.1.2.11.9).
    pub(super) fn handle_while_deciding(
        &mut self,
        frame: &Frame<'_>,
        upper: &mut impl UpperLayer,
    ) -> Result<(), Reason> {
        match frame.kind {
            kind::AUTH => {
                let auth = control::auth(frame)?;
                self.check_method(&auth.method)?;
                if auth.reason != Reason::CONTINUE_AUTHENTICATION {
                    return Err(Reason::PROTOCOL_ERROR);
                }
                upper.event(Event::Auth(auth));
                Ok(())
            }
            kind::DISCONNECT => {
                let disconnect = control::disconnect(self.channel.version, frame)?;
                self.close(Cause::Client, disconnect.reason, disconnect.session_expiry, upper);
                Ok(())
            }
            _ => Err(Reason::PROTOCOL_ERROR),
        }
    }

    /// MQTT 5 §4.12: the authentication method never changes.
    pub(super) fn check_method(&self, method: &str) -> Result<(), Reason> {
        let is_same = self.client.authentication_method.as_deref() == Some(method);
        if is_same { Ok(()) } else { Err(Reason::PROTOCOL_ERROR) }
    }

    fn remember(&mut self, connect: Connect, upper: &mut impl UpperLayer) {
        self.state = State::Deciding;
        self.channel.version = connect.version;
        self.channel.maximum_packet = connect.maximum_packet.map_or(usize::MAX, |most| most as usize);
        self.client = Client {
            keep_alive: connect.keep_alive,
            has_session_expiry: connect.session_expiry > 0,
            wants_text: connect.wants_problem_information,
            receive_maximum: connect.receive_maximum,
            topic_alias_maximum: connect.topic_alias_maximum,
            authentication_method: connect.authentication_method.as_deref().map(Into::into),
        };
        upper.event(Event::Connect(Box::new(connect)));
    }
}

/// Whether a CONNACK reports this reason. Before MQTT 5 a CONNACK reports an unsupported version and an
/// invalid client id; a malformed CONNECT closes the connection without an answer (MQTT 3.1.1 §3.1.4).
fn has_connack(version: Version, reason: Reason) -> bool {
    version == Version::V5 || matches!(reason, Reason::UNSUPPORTED_VERSION | Reason::CLIENT_ID_INVALID)
}

/// One and a half times the keep alive, in µs (MQTT 5 §3.1.2.10).
fn patience(keep_alive_s: u16) -> Micros {
    if keep_alive_s == 0 { NEVER } else { Micros::from(keep_alive_s) * 1_500_000 }
}
