//! One transport stream of a client, from its first byte to its last.
//!
//! ```text
//! this file   state, timers, packets to the client
//!   input      bytes to packets ──> handshake   until the client is accepted
//!                               ──> session, upper   once it is accepted
//!   event      the calls and events upwards
//! ```
//!
//! | state | what the connection handles |
//! |---|---|
//! | `ExpectConnect` | bytes until CONNECT is complete, within a size limit and a time limit |
//! | `Deciding` | nothing: bytes behind CONNECT are buffered. With enhanced authentication (MQTT 5 §4.12): AUTH and DISCONNECT |
//! | `Open` | every packet of the client, unless the connection is paused |
//! | `Closed` | nothing |
//!
//! The connection pauses in three cases: the network has no room, the client exceeded its rate, or a client
//! that cannot receive a receive maximum (before MQTT 5) has that many unanswered messages. A paused
//! connection does not count the client's silence.

pub mod event;
mod handshake;
mod input;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::Micros;
use crate::engine::transport::token_bucket::RateLimit;
use crate::mqtt::aliases;
use crate::mqtt::codec::acks;
use crate::mqtt::codec::answers::{
    ResponseOptions, put_acknowledgement, put_auth, put_disconnect, put_refusal,
};
use crate::mqtt::codec::frame::kind;
use crate::mqtt::codec::packets::{Auth, CloseReason, Version};
use crate::mqtt::codec::reason::Reason;
use crate::mqtt::connection::event::{Cause, Closed, Event, UpperLayer};
use crate::mqtt::distribution::batch::MessageBatch;
use crate::mqtt::distribution::encoder::Encoder;
use crate::mqtt::distribution::message::DeliveryOptions;
use crate::mqtt::session::{Channel, Delivery, NEVER, Session};
use crate::mqtt::settings::ListenerSettings;
use crate::mqtt::{Key, Turn};
use crate::workspace::Workspace;

/// The server's end of a client's stream.
pub struct Connection {
    settings: Arc<ListenerSettings>,
    state: State,
    /// Bytes that were read and not handled: an incomplete packet, or the bytes that arrived while the
    /// connection is paused.
    rest: Vec<u8>,
    paused: Option<Pause>,
    /// When the client last sent something. Before CONNECT: when the connection began.
    last_received: Micros,
    /// How long the client may be silent; `NEVER` if there is no limit.
    patience: Micros,
    client: Client,
    aliases: aliases::Incoming,
    channel: Channel,
    /// The client's message rate; `None`: it has no limit.
    rate: Option<RateLimit>,
    session: Option<Box<Session>>,
    /// In which the client's topics are.
    workspace: Workspace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    ExpectConnect,
    Deciding,
    Open,
    Closed,
}

/// Why the connection handles no more packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    /// Until the call of `resume`.
    Network,
    /// Until the network has answered a message.
    Window,
    /// Until this time.
    Rate(Micros),
}

/// The properties of CONNECT that are needed later.
#[derive(Default)]
struct Client {
    keep_alive: u16,
    has_session_expiry: bool,
    wants_text: bool,
    receive_maximum: u16,
    topic_alias_maximum: u16,
    authentication_method: Option<Box<str>>,
}

impl Connection {
    /// A stream that was accepted at `now`.
    pub fn new(now: Micros, settings: &Arc<ListenerSettings>) -> Self {
        Self {
            settings: Arc::clone(settings),
            state: State::ExpectConnect,
            rest: Vec::new(),
            paused: None,
            last_received: now,
            patience: settings.handshake_time,
            client: Client { wants_text: true, ..Client::default() },
            aliases: aliases::Incoming::default(),
            channel: Channel::new(Version::V311, usize::MAX, true, 1, 0, settings.output_bytes),
            rate: bucket(settings.rate),
            session: None,
            workspace: Workspace::default(),
        }
    }

    /// The stream ended, in whatever way.
    pub fn handle_end(&mut self, upper: &mut impl UpperLayer) {
        self.close(Cause::Lost, Reason::UNSPECIFIED, None, upper);
    }

    /// Closes the connection if the client was silent for too long, drops the ack guards of a stalled client,
    /// and resumes a client that was paused for its rate.
    pub fn handle_timeout(&mut self, turn: &mut Turn<'_>, upper: &mut impl UpperLayer) {
        if self.silence_ends() <= turn.now {
            // MQTT 5 §3.1.2.10. Before the client is accepted no DISCONNECT may be sent.
            if self.state == State::Open {
                put_disconnect(turn.out, self.response_options(), &Reason::KEEP_ALIVE_TIMEOUT.into());
            }
            return self.close(Cause::Silent, Reason::KEEP_ALIVE_TIMEOUT, None, upper);
        }
        if let Some(session) = &mut self.session {
            session.handle_timeout(turn.now, turn.counters);
        }
        if let Some(Pause::Rate(until)) = self.paused
            && until <= turn.now
        {
            self.go_on(turn, upper);
        }
    }

    /// When `handle_timeout` is due; `Micros::MAX` if never. Each packet moves it later, so the caller asks
    /// again when the time has come.
    pub fn poll_timeout(&self) -> Micros {
        if self.state == State::Closed {
            return NEVER;
        }
        let stall = self.session.as_ref().map_or(NEVER, |session| session.poll_timeout());
        let resumption = if let Some(Pause::Rate(until)) = self.paused { until } else { NEVER };
        self.silence_ends().min(stall).min(resumption)
    }

    /// How many bytes may be read now. Before the client is accepted this is the rest of `handshake_bytes`:
    /// reading more of a client that sends much behind CONNECT would close the connection.
    pub fn read_limit(&self) -> usize {
        match self.state {
            _ if !self.wants_bytes() => 0,
            State::Open => usize::MAX,
            _ => self.settings.handshake_bytes.saturating_sub(self.rest.len()),
        }
    }

    /// Bytes that were read and not handled.
    pub fn buffered_bytes(&self) -> usize {
        self.rest.len()
    }

    /// Whether the connection is closed. The worker writes the buffered bytes and closes the stream.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Limits the client to this many messages a second, in place of the listener's limit; 0 for any number.
    pub fn set_rate(&mut self, rate: u32) {
        self.rate = bucket(rate);
    }

    /// From now on the client publishes in this workspace.
    pub fn set_workspace(&mut self, workspace: Workspace) {
        self.workspace = workspace;
    }

    /// Sends AUTH, which continues the authentication (MQTT 5 §4.12). False: the AUTH cannot be sent, and the
    /// caller must refuse the connection.
    #[must_use]
    pub fn challenge(&mut self, turn: &mut Turn<'_>, auth: &Auth) -> bool {
        if self.state == State::Deciding {
            self.last_received = turn.now;
            self.patience = self.settings.handshake_time;
        }
        turn.counters.packets_out += 1;
        self.state != State::Closed && put_auth(turn.out, self.response_options(), auth)
    }

    /// Sends SUBACK or UNSUBACK, by `kind`, with one reason code for each filter. Retained messages of the
    /// subscription (MQTT 5 §3.8.4) are sent after SUBACK.
    pub fn acknowledge(
        &mut self,
        turn: &mut Turn<'_>,
        kind: u8,
        packet_id: u16,
        reasons: &[Reason],
        text: &str,
        upper: &mut impl UpperLayer,
    ) {
        if self.state == State::Open {
            turn.counters.packets_out += 1;
            if !put_acknowledgement(turn.out, self.response_options(), kind, packet_id, reasons, text) {
                self.fail(turn, Reason::PACKET_TOO_LARGE, upper);
            }
        }
    }

    /// Closes the connection, with a DISCONNECT if the version allows it. A client that is not accepted yet
    /// is refused.
    pub fn disconnect(
        &mut self,
        turn: &mut Turn<'_>,
        close_reason: &CloseReason,
        upper: &mut impl UpperLayer,
    ) {
        match self.state {
            State::Closed => {}
            State::ExpectConnect => self.close(Cause::Server, close_reason.reason, None, upper),
            State::Deciding => self.refuse(turn, close_reason, upper),
            State::Open => {
                turn.counters.packets_out += 1;
                put_disconnect(turn.out, self.response_options(), close_reason);
                self.close(Cause::Server, close_reason.reason, None, upper);
            }
        }
    }

    /// The network answered a PUBLISH that it took: sends PUBACK or PUBREC, in the order of the messages
    /// (MQTT 5 §4.6).
    pub fn answer(&mut self, turn: &mut Turn<'_>, key: Key, reason: Reason, upper: &mut impl UpperLayer) {
        let Some(session) = &mut self.session else {
            return;
        };
        if self.state != State::Open {
            return session.incoming.answer(key, reason);
        }
        if self.channel.version < Version::V5 && reason.is_failure() && !is_final(reason) {
            // MQTT 3.1.1 §3.3.5: no packet reports the failure. After a reconnect the client sends the
            // message again.
            session.incoming.answer(key, reason);
            return self.close(Cause::Server, reason, None, upper);
        }
        session.incoming.answer(key, reason_for(self.channel.version, reason));
        self.put_due(turn);
        if self.paused == Some(Pause::Window) {
            self.go_on(turn, upper);
        }
    }

    /// The network has room again, after `PublishOutcome::Later`.
    pub fn resume(&mut self, turn: &mut Turn<'_>, upper: &mut impl UpperLayer) {
        if self.paused == Some(Pause::Network) {
            self.go_on(turn, upper);
        }
    }

    /// Delivers a message to the client.
    pub fn deliver(&mut self, turn: &mut Turn<'_>, delivery: Delivery, encoder: &mut Encoder) {
        let Some(session) = &mut self.session else {
            return;
        };
        match self.state {
            State::Open => session.deliver_over(turn, &mut self.channel, delivery, encoder),
            _ => session.deliver(turn.now, delivery, turn.counters),
        }
    }

    /// Delivers a batch of messages of `QoS` 0 to the client.
    pub fn deliver_batch(
        &mut self,
        turn: &mut Turn<'_>,
        batch: &Arc<MessageBatch>,
        delivery_options: &DeliveryOptions,
        encoder: &mut Encoder,
    ) {
        if self.state == State::Open
            && let Some(session) = &mut self.session
            && session.deliver_batch_over(turn, &mut self.channel, batch, delivery_options, encoder)
        {
            return;
        }
        for message in batch.messages() {
            let delivery = Delivery { message, delivery_options: delivery_options.clone(), ack_guard: None };
            self.deliver(turn, delivery, encoder);
        }
    }

    /// The output has room again: sends queued messages.
    pub fn flush(&mut self, turn: &mut Turn<'_>) {
        if let (State::Open, Some(session)) = (self.state, &mut self.session) {
            session.flush(turn, &mut self.channel);
        }
    }

    /// The client's session. None before the client is accepted and after `take_session`.
    pub fn session(&mut self) -> Option<&mut Session> {
        self.session.as_deref_mut()
    }

    /// Takes the session out of a closed connection, to be parked or dropped. None: the connection never had
    /// one.
    pub fn take_session(&mut self, turn: &mut Turn<'_>) -> Option<Box<Session>> {
        let mut session = self.session.take()?;
        session.detach(turn.counters);
        Some(session)
    }

    fn response_options(&self) -> ResponseOptions {
        ResponseOptions {
            version: self.channel.version,
            maximum_packet: self.channel.maximum_packet,
            wants_text: self.client.wants_text,
        }
    }

    /// When the connection is closed for the client's silence.
    fn silence_ends(&self) -> Micros {
        let counts = match self.state {
            State::ExpectConnect => true,
            State::Deciding => self.client.authentication_method.is_some(),
            State::Open => self.paused.is_none(),
            State::Closed => false,
        };
        if counts { self.last_received.saturating_add(self.patience) } else { NEVER }
    }

    fn put_due(&mut self, turn: &mut Turn<'_>) {
        let Some(session) = &mut self.session else {
            return;
        };
        while let Some((kind, packet_id, reason)) = session.incoming.next_due() {
            self.channel.put_ack(turn, kind, packet_id, reason);
        }
    }

    /// Closes the connection because the client broke the protocol (MQTT 5 §4.13).
    fn fail(&mut self, turn: &mut Turn<'_>, reason: Reason, upper: &mut impl UpperLayer) {
        turn.counters.errors += 1;
        match self.state {
            State::Open => put_disconnect(turn.out, self.response_options(), &reason.into()),
            // MQTT 5 §3.14: no DISCONNECT before CONNACK.
            State::Deciding => put_refusal(turn.out, self.response_options(), &reason.into()),
            State::ExpectConnect | State::Closed => {}
        }
        self.close(Cause::Error, reason, None, upper);
    }

    fn close(
        &mut self,
        cause: Cause,
        reason: Reason,
        session_expiry: Option<u32>,
        upper: &mut impl UpperLayer,
    ) {
        if self.state != State::Closed {
            self.state = State::Closed;
            self.rest = Vec::new();
            upper.event(Event::Closed(Closed { cause, reason, session_expiry }));
        }
    }
}

/// The reason code for PUBACK or PUBREC. Before MQTT 5 there is no code for a failure, and a message that
/// would fail again is acknowledged (MQTT 3.1.1 §3.3.5).
fn reason_for(version: Version, reason: Reason) -> Reason {
    match version {
        Version::V5 if acks::is_allowed(kind::PUBACK, reason) => reason,
        Version::V5 => Reason::UNSPECIFIED,
        _ => Reason::SUCCESS,
    }
}

/// A rate of messages, with bursts of one second; 0: no limit.
fn bucket(rate: u32) -> Option<RateLimit> {
    (rate > 0).then(|| RateLimit::new(rate, rate))
}

/// Whether the message would be refused for this reason again.
fn is_final(reason: Reason) -> bool {
    matches!(reason, Reason::NOT_AUTHORIZED | Reason::TOPIC_NAME_INVALID | Reason::PAYLOAD_FORMAT_INVALID)
}
