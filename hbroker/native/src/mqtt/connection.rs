//! One transport stream of a client.

use std::sync::Arc;

use crate::Micros;
use crate::mqtt::encoder::Encoder;
use crate::mqtt::event::Upper;
use crate::mqtt::packets::{Accept, Auth, Farewell};
use crate::mqtt::reason::Reason;
use crate::mqtt::session::{Delivery, Session};
use crate::mqtt::settings::ListenerSettings;
use crate::mqtt::{Key, Turn};

/// The server's end of a client's stream.
pub struct Connection {
    session: Option<Box<Session>>,
}

impl Connection {
    /// A stream that was accepted at `now`.
    pub fn new(now: Micros, settings: &Arc<ListenerSettings>) -> Self {
        let _ = (now, settings);
        Self { session: None }
    }

    /// Takes bytes of the stream. It copies what it cannot handle yet.
    pub fn handle_bytes(&mut self, turn: &mut Turn<'_>, bytes: &[u8], upper: &mut impl Upper) {
        let _ = (turn, bytes, upper);
    }

    /// The stream ended, in whatever way.
    pub fn handle_end(&mut self, upper: &mut impl Upper) {
        let _ = upper;
    }

    pub fn handle_timeout(&mut self, turn: &mut Turn<'_>, upper: &mut impl Upper) {
        let _ = (turn, upper);
    }

    /// When `handle_timeout` is due; `Micros::MAX`: never. It moves later with each packet: ask again when the time has come.
    pub fn poll_timeout(&self) -> Micros {
        Micros::MAX
    }

    /// Whether more bytes may be read; False: until the next call of `accept`, `answer`, `resume` or `handle_timeout` they wait with the client.
    pub fn wants_bytes(&self) -> bool {
        true
    }

    /// It is over: what is in the buffer goes out, then the stream is to be closed.
    pub fn is_closed(&self) -> bool {
        false
    }

    /// Says yes to CONNECT: CONNACK, then what the session owes its client, then what the client sent behind CONNECT.
    pub fn accept(
        &mut self,
        turn: &mut Turn<'_>,
        accept: &Accept,
        session: Box<Session>,
        upper: &mut impl Upper,
    ) {
        let _ = (turn, accept, upper);
        self.session = Some(session);
    }

    /// Says no to CONNECT, with the code that its version has for the reason (§3.2.2.2), and closes.
    pub fn refuse(&mut self, turn: &mut Turn<'_>, farewell: &Farewell, upper: &mut impl Upper) {
        let _ = (turn, farewell, upper);
    }

    /// Goes on with the authentication: AUTH (§4.12).
    pub fn challenge(&mut self, turn: &mut Turn<'_>, auth: &Auth) {
        let _ = (turn, auth);
    }

    /// SUBACK: a reason for each filter.
    pub fn suback(&mut self, turn: &mut Turn<'_>, packet_id: u16, reasons: &[Reason], text: &str) {
        let _ = (turn, packet_id, reasons, text);
    }

    /// UNSUBACK: a reason for each filter.
    pub fn unsuback(&mut self, turn: &mut Turn<'_>, packet_id: u16, reasons: &[Reason], text: &str) {
        let _ = (turn, packet_id, reasons, text);
    }

    /// Ends the connection: DISCONNECT, where the version has it for servers, and close.
    pub fn disconnect(&mut self, turn: &mut Turn<'_>, farewell: &Farewell, upper: &mut impl Upper) {
        let _ = (turn, farewell, upper);
    }

    /// The network's answer to a PUBLISH that it took: PUBACK or PUBREC, in the order of the messages (§4.6).
    pub fn answer(&mut self, turn: &mut Turn<'_>, key: Key, reason: Reason, upper: &mut impl Upper) {
        let _ = (turn, key, reason, upper);
    }

    /// The network has room again, after `Taken::Later`.
    pub fn resume(&mut self, turn: &mut Turn<'_>, upper: &mut impl Upper) {
        let _ = (turn, upper);
    }

    /// A message for the client.
    pub fn deliver(
        &mut self,
        turn: &mut Turn<'_>,
        delivery: Delivery,
        encoder: &mut Encoder,
        upper: &mut impl Upper,
    ) {
        let _ = (turn, delivery, encoder, upper);
    }

    /// The output has room again: sends on what waits.
    pub fn flush(&mut self, turn: &mut Turn<'_>) {
        let _ = turn;
    }

    /// The session, once it is accepted.
    pub fn session(&mut self) -> Option<&mut Session> {
        self.session.as_deref_mut()
    }

    /// Takes the session out of a connection that is closed, to be parked or dropped. None: it never had one.
    pub fn take_session(&mut self, turn: &mut Turn<'_>) -> Option<Box<Session>> {
        let _ = turn;
        self.session.take()
    }
}
