//! The handshake of one association: a TLS 1.3 connection whose bytes travel as a stream in datagrams.
//!
//! `rustls` makes and reads the bytes. This module carries them: each direction is a stream of bytes with offsets
//! and acknowledgements. An end sends what is not acknowledged again, after a time that doubles. Bytes are taken
//! in order alone: a flight has one or two datagrams.
//!
//! ```text
//!     initiator                          acceptor
//!     Greeting   ClientHello ->                       not known yet
//!                            <- ServerHello to Finished
//!     Proved     Finished ->             Proved       both have the secrets
//!                proof of a reset, token ->
//!                            <- ticket, proof of a reset
//!     over                               over         all is acknowledged: the TLS connection is dropped
//! ```

use std::io::{Read, Write};

use ring::aead::Algorithm;
use rustls::Connection;
use rustls::pki_types::CertificateDer;

use crate::Micros;
use crate::association::credentials::algorithm;
use crate::association::keys::SECRET;
use crate::association::packet::{PROOF, Segment};

/// The first time after which a flight is sent again. It doubles each time.
const FIRST_RETRY: Micros = 100_000;
const LONGEST_RETRY: Micros = 3_000_000;
/// The time that a handshake may take.
pub const HANDSHAKE_TIMEOUT: Micros = 8_000_000;
/// The bytes of a stream in one datagram.
const MOST_BYTES: usize = 1_100;
/// The bytes that a peer may send in a handshake: some certificates.
const MOST_RECEIVED: u32 = 32 * 1_024;
/// The most that a peer may write after the handshake.
const MOST_WRITTEN: usize = PROOF + 2 + MOST_TOKEN;
/// The longest token of a client.
pub const MOST_TOKEN: usize = 4_096;
/// How often the first flight is sent to a peer that has not answered, for each time that there is something to seal
/// for it.
const FIRST_FLIGHTS: u8 = 2;
const LABEL: &[u8] = b"EXPORTER-hbroker-association";

/// One end of a handshake.
pub struct Handshake {
    tls: Connection,
    /// What TLS wrote and the peer has not acknowledged. `base`: the offset of its first byte.
    unacked: Vec<u8>,
    base: u32,
    /// How many bytes have come.
    received: u32,
    owes_ack: bool,
    /// How often the first flight may be sent before the peer has answered.
    flights_left: u8,
    /// When to send again; `Micros::MAX`: nothing is unacknowledged.
    retry_at: Micros,
    retry_after: Micros,
    ends_at: Micros,
    /// What this end writes after the handshake: the proof of its resets; an initiator's token. `None`: it was
    /// written.
    last_words: Option<Vec<u8>>,
    /// What the peer wrote after the handshake.
    written: Vec<u8>,
}

/// What a handshake made: the first secret of each direction.
pub struct Secrets {
    pub algorithm: &'static Algorithm,
    pub sent: [u8; SECRET],
    pub received: [u8; SECRET],
}

impl Handshake {
    /// `proof`: what this end's resets will hold. `token`: of an initiator; empty: it has none.
    pub fn new(now: Micros, tls: Connection, proof: [u8; PROOF], token: &[u8]) -> Self {
        let mut last_words = proof.to_vec();
        if matches!(tls, Connection::Client(_)) {
            last_words.extend_from_slice(&(token.len() as u16).to_be_bytes());
            last_words.extend_from_slice(token);
        }
        let mut handshake = Self {
            tls,
            unacked: Vec::new(),
            base: 0,
            received: 0,
            owes_ack: false,
            flights_left: FIRST_FLIGHTS,
            retry_at: Micros::MAX,
            retry_after: FIRST_RETRY,
            ends_at: now + HANDSHAKE_TIMEOUT,
            last_words: Some(last_words),
            written: Vec::new(),
        };
        handshake.write();
        handshake
    }

    /// Takes a part of the peer's stream.
    ///
    /// # Errors
    /// The peer's handshake is not valid, or TLS refuses it. The association cannot be made.
    pub fn handle_segment(&mut self, now: Micros, segment: &Segment<'_>) -> Result<(), rustls::Error> {
        self.handle_ack(now, segment.acked);
        if segment.bytes.is_empty() {
            return Ok(());
        }
        self.owes_ack = true;
        let end = u64::from(segment.offset) + segment.bytes.len() as u64;
        if segment.offset > self.received || end <= u64::from(self.received) || end > MOST_RECEIVED.into() {
            return Ok(()); // A part before it is missing, it is known, or it is too much.
        }
        let mut fresh = &segment.bytes[(self.received - segment.offset) as usize..];
        self.received = end as u32;
        while !fresh.is_empty() {
            if self.tls.read_tls(&mut fresh).unwrap_or(0) == 0 {
                return Err(rustls::Error::General("the buffer of TLS is full".to_owned()));
            }
            let state = self.tls.process_new_packets()?;
            let room = MOST_WRITTEN.saturating_sub(self.written.len());
            let mut plain = vec![0; state.plaintext_bytes_to_read().min(room)];
            _ = self.tls.reader().read(&mut plain);
            self.written.extend_from_slice(&plain);
        }
        self.write();
        self.retry_after = FIRST_RETRY;
        self.retry_at = now; // What TLS wrote is sent at once.
        Ok(())
    }

    /// The secrets have been agreed on: both directions of the datagrams can be sealed. Panics before
    /// [`Self::is_proved`].
    pub fn secrets(&self) -> Secrets {
        let both: [u8; 2 * SECRET] =
            self.tls.export_keying_material([0; 2 * SECRET], LABEL, None).expect("the handshake is over");
        let (of_initiator, of_acceptor) = both.split_at(SECRET);
        let (sent, received) = match &self.tls {
            Connection::Client(_) => (of_initiator, of_acceptor),
            Connection::Server(_) => (of_acceptor, of_initiator),
        };
        let secret = |half: &[u8]| half.try_into().expect("it is half of it");
        Secrets { algorithm: algorithm(&self.tls), sent: secret(sent), received: secret(received) }
    }

    /// Whether the peer has proved itself, as far as it has to, and there are secrets.
    pub fn is_proved(&self) -> bool {
        !self.tls.is_handshaking()
    }

    /// The next parts of the stream to send, in order; empty: nothing is due. A part without bytes acknowledges.
    pub fn poll_segments(&mut self, now: Micros) -> Vec<Segment<'_>> {
        let mut is_due = now >= self.retry_at && !self.unacked.is_empty();
        if is_due && self.received == 0 {
            match self.flights_left.checked_sub(1) {
                Some(left) => self.flights_left = left,
                None => (is_due, self.retry_at) = (false, Micros::MAX),
            }
        }
        if !is_due && !self.owes_ack {
            return Vec::new();
        }
        self.owes_ack = false;
        let acked = self.received;
        if !is_due {
            return vec![Segment { offset: self.base + self.unacked.len() as u32, acked, bytes: &[] }];
        }
        self.retry_at = now + self.retry_after;
        self.retry_after = (2 * self.retry_after).min(LONGEST_RETRY);
        let parts = self.unacked.chunks(MOST_BYTES).zip((self.base..).step_by(MOST_BYTES));
        parts.map(|(bytes, offset)| Segment { offset, acked, bytes }).collect()
    }

    /// Sends all that is not acknowledged again, without delay: the peer could not take it before.
    pub fn retry_now(&mut self, now: Micros) {
        (self.retry_at, self.flights_left) = (now, FIRST_FLIGHTS);
    }

    /// Sends the first flight once more, at once, if the peer has not answered.
    pub fn repeat(&mut self, now: Micros) {
        if self.received == 0 {
            (self.retry_at, self.flights_left) = (now, 1);
        }
    }

    /// There is something more to seal for the peer. The first flight, if it was sent as often as it may, is sent
    /// again. True: the timer has changed.
    pub fn ask_again(&mut self, now: Micros) -> bool {
        let has_given_up = self.received == 0 && self.retry_at == Micros::MAX && !self.unacked.is_empty();
        if has_given_up {
            self.retry_now(now);
        }
        has_given_up
    }

    /// When `poll_segments` has something, or the handshake has failed.
    pub fn poll_timeout(&self) -> Micros {
        let retry_at = if self.unacked.is_empty() { Micros::MAX } else { self.retry_at };
        if self.owes_ack { 0 } else { retry_at.min(self.ends_at) }
    }

    /// Whether its time is over.
    pub fn has_timed_out(&self, now: Micros) -> bool {
        now >= self.ends_at
    }

    /// Whether nothing of it is needed any more: the secrets are made, the peer has all, and this end has what the
    /// peer sends last.
    pub fn is_over(&self) -> bool {
        let has_all =
            if self.is_acceptor() { self.peer_token().is_some() } else { self.peer_proof().is_some() };
        self.is_proved() && self.last_words.is_none() && self.unacked.is_empty() && has_all
    }

    /// Whether the peer began it.
    pub fn is_acceptor(&self) -> bool {
        matches!(self.tls, Connection::Server(_))
    }

    /// Whether the peer has all that this end has sent.
    pub fn is_acked(&self) -> bool {
        self.unacked.is_empty()
    }

    /// What the resets of the peer hold, once it has said so.
    pub fn peer_proof(&self) -> Option<[u8; PROOF]> {
        self.written.first_chunk().copied()
    }

    /// The initiator's token, once it has said it; empty: it has none.
    pub fn peer_token(&self) -> Option<&[u8]> {
        let (length, rest) = self.written.get(PROOF..)?.split_first_chunk()?;
        rest.get(..usize::from(u16::from_be_bytes(*length)))
    }

    /// The certificate with which the peer proved itself.
    pub fn peer_certificate(&self) -> Option<CertificateDer<'static>> {
        self.tls.peer_certificates()?.first().map(|certificate| certificate.clone().into_owned())
    }

    fn handle_ack(&mut self, now: Micros, acked: u32) {
        let taken = acked.saturating_sub(self.base) as usize;
        if taken == 0 || taken > self.unacked.len() {
            return;
        }
        self.unacked.drain(..taken);
        self.base = acked;
        self.retry_after = FIRST_RETRY;
        self.retry_at = if self.unacked.is_empty() { Micros::MAX } else { now + FIRST_RETRY };
    }

    /// Takes what TLS has to send.
    fn write(&mut self) {
        if self.is_proved()
            && let Some(last_words) = self.last_words.take()
        {
            _ = self.tls.writer().write_all(&last_words);
        }
        let before = self.unacked.len();
        while self.tls.wants_write() {
            if self.tls.write_tls(&mut self.unacked).is_err() {
                break; // Writing to memory does not fail.
            }
        }
        if self.unacked.len() > before {
            self.retry_at = 0;
        }
    }
}
