//! Splits bytes into packets. A complete packet is handled in place. Only an incomplete packet, and bytes
//! that arrive while the connection is paused, are copied.

use crate::mqtt::Turn;
use crate::mqtt::codec::frame::{self, Frame, kind};
use crate::mqtt::codec::reason::Reason;
use crate::mqtt::connection::{Connection, Pause, State};
use crate::mqtt::event::Upper;

/// A read of this many bytes resets the keep alive timer: a large packet may take longer than the keep alive.
const SIGN_OF_LIFE: usize = 1_000;
/// The largest packet other than PUBLISH, in bytes. A list of short filters takes many times its size once it
/// is parsed.
const MAX_CONTROL: usize = 1 << 20;
/// The capacity that `rest` keeps between packets.
const KEPT_CAPACITY: usize = 1_024;

/// Whether a packet was handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// It was handled.
    Next,
    /// It was not handled, and stays in the buffer: the connection paused before it.
    Stay,
}

impl Connection {
    /// Handles bytes of the stream, and copies those that it cannot handle yet.
    pub fn handle_bytes(&mut self, turn: &mut Turn<'_>, mut bytes: &[u8], upper: &mut impl Upper) {
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
    pub(super) fn go_on(&mut self, turn: &mut Turn<'_>, upper: &mut impl Upper) {
        self.paused = None;
        self.last_received = turn.now;
        self.handle_rest(turn, upper);
    }

    fn handle_rest(&mut self, turn: &mut Turn<'_>, upper: &mut impl Upper) {
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
    fn handle_packets(&mut self, turn: &mut Turn<'_>, bytes: &[u8], upper: &mut impl Upper) -> usize {
        let mut at = 0;
        while self.wants_bytes() && at < bytes.len() {
            // A first byte other than that of CONNECT ends the connection at once.
            if self.state == State::ExpectConnect && bytes[at] != kind::CONNECT << 4 {
                self.fail(turn, Reason::PROTOCOL_ERROR, upper);
                break;
            }
            match frame::split(&bytes[at..], self.maximum_packet(bytes[at])) {
                Ok(Some(frame)) => match self.handle_packet(turn, &frame, upper) {
                    Ok(Flow::Next) => {
                        turn.counters.packets_in += 1;
                        at += frame.bytes.len();
                    }
                    Ok(Flow::Stay) => break,
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
        upper: &mut impl Upper,
    ) -> Result<Flow, Reason> {
        self.last_received = turn.now;
        match self.state {
            State::ExpectConnect => self.handle_connect(turn, frame, upper),
            State::Deciding => self.handle_while_deciding(frame, upper)?,
            State::Open => return self.handle_open(turn, frame, upper),
            State::Closed => {}
        }
        Ok(Flow::Next)
    }

    /// Buffers unhandled bytes. Before the client is accepted `handshake_bytes` bounds the buffer, later the
    /// size of one read does.
    fn keep(&mut self, turn: &mut Turn<'_>, bytes: &[u8], upper: &mut impl Upper) {
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
}
