//! One end of the conversation with one peer (docs/protocol.md §3), after QUIC (RFC 9000, RFC 9002).
//!
//! A link is made of parts that know nothing of each other. In: `acks` remembers which datagrams came and when to say
//! so, `arrivals` puts reliable packets into the order of their chains. Out: `outbox` holds what was never sent,
//! `deliveries` and `pubacks` what must be repeated until it is acknowledged, and `recovery` decides what is
//! acknowledged, what is lost and how much may be in flight. `incarnations` knows the peer's runs apart, `keep_alive_timer` when it was
//! last heard. `rest` keeps a link of which nothing is under way in little memory. `build` makes the datagrams, `verdict` does what `recovery` decided. A link knows nothing of topics.
//!
//! For each datagram: [`Link::handle_header`], then [`Link::receive`] for each reliable packet, then
//! [`Link::finish_datagram`]. After a batch of them, or of packets queued: [`Link::poll_transmit`].

mod config;
pub mod idle;
mod incarnation;
mod keep_alive;
pub mod loss_recovery;
pub mod mtu;
pub mod receive;
pub mod send;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;

use bytes::Bytes;

use crate::Micros;
use crate::link::incarnation::Incarnations;
use crate::link::keep_alive::KeepAliveTimer;
use crate::link::loss_recovery::recovery::Recovery;
use crate::link::mtu::PathMtu;
use crate::link::receive::acks::Acks;
pub use crate::link::receive::delivery::Chain;
use crate::link::receive::delivery::Deliveries;
use crate::link::receive::pubacks::{Pubacks, Success};
pub use crate::link::receive::reorder_buffer::Receipt;
use crate::link::receive::reorder_buffer::ReorderBuffer;
use crate::link::send::budget::Budget;
use crate::link::send::contents::Contents;
use crate::link::send::datagram_builder::HEADER_BYTES;
use crate::link::send::outbox::{Outbox, Stretch};
use crate::wire::{self, Header, MeantFor};
pub use config::{Arrival, LinkConfig, LinkStats, Liveness, QueueFull, Role};

/// A peer that leaves so many probes unanswered in the idle timeout is gone: the waits between them double only so far.
const PROBES_BEFORE_TIMEOUT: Micros = 10;
/// Room in the queue that only control packets may use.
const CONTROL_RESERVE: usize = 1 << 20;
/// What a datagram takes at most beside one body field: one of `max_datagram` less this fits into a bundle.
pub const DATAGRAM_OVERHEAD: usize = 128;
/// The largest body field: what remains of a UDP datagram once the largest link header is in it.
pub const MOST_BODY: usize = wire::MAX_DATAGRAM - 1_024;

/// A packet that was queued.
#[derive(Clone, Copy, Debug)]
pub enum Queued {
    /// By its number among those.
    Unreliable(u64),
    /// By its delivery number.
    Reliable(u64),
}

/// One end of a link.
#[derive(Debug)]
pub struct Link {
    config: LinkConfig,
    peer: SocketAddr,
    /// Sent in every datagram until one that held it is acknowledged; then empty.
    token: Vec<u8>,
    /// The first datagram with that token.
    token_since: u64,
    is_established: bool,
    /// The peer acknowledged something that was sent here.
    is_answered: bool,
    /// The peer's end is of a link with an end before this one (`mismatch`).
    is_mismatched: bool,
    /// Nothing is known of the peer's end but that it answers what this one sends (§3.6).
    awaits_answer: bool,
    /// It was opened here, to an address that another node named, and nothing came from there yet that proves it.
    is_unproved: bool,
    incarnations: Incarnations,

    acks: Acks,
    arrivals: ReorderBuffer,
    outbox: Outbox,
    deliveries: Deliveries,
    pubacks: Pubacks,
    recovery: Recovery<Contents>,
    budget: Budget,
    mtu: PathMtu,

    /// Datagrams that are to leave whatever the window says.
    probes: u32,
    /// When what may not leave yet may.
    resume_at: Option<Micros>,
    keep_alive_timer: KeepAliveTimer,
    body_field: Vec<u8>,
}

impl Link {
    /// A link to `peer`. The token proves this end's address to it; it may be empty where none is needed.
    pub fn new(config: LinkConfig, peer: SocketAddr, token: Vec<u8>, now: Micros) -> Self {
        let mtu = PathMtu::new(config.max_datagram);
        let longest = config.idle_timeout / PROBES_BEFORE_TIMEOUT;
        let recovery = Recovery::new(config.first_number, mtu.size(), longest);
        Self {
            peer,
            token,
            token_since: config.first_number,
            is_established: config.role == Role::Acceptor,
            is_answered: false,
            is_mismatched: false,
            awaits_answer: config.role == Role::Initiator,
            is_unproved: config.role == Role::Adopter,
            incarnations: Incarnations::new(config.past),
            acks: Acks::new(),
            arrivals: ReorderBuffer::default(),
            outbox: Outbox::default(),
            deliveries: Deliveries::default(),
            pubacks: Pubacks::new(),
            budget: Budget::new(recovery.window(), now),
            mtu,
            recovery,
            probes: 0,
            resume_at: None,
            keep_alive_timer: KeepAliveTimer::new(&config, now),
            body_field: Vec::new(),
            config,
        }
    }

    // In

    /// Whether the peer has to prove with a token that it means this link: it was opened here, for a session that may have another, to
    /// the run of this node before.
    pub fn awaits_token(&self) -> bool {
        self.config.role == Role::Adopter && self.incarnations.peer().is_none()
    }

    /// Whether nothing but one small datagram may go to the peer's address, which is another node's word alone (§5.4).
    pub fn is_unproved(&self) -> bool {
        self.is_unproved
    }

    /// A datagram that was taken came from the peer's address, with a token for that.
    pub fn prove(&mut self) {
        self.is_unproved = false;
    }

    /// The peer's end took something from an end before this one, so it is of a link with that (§3.6): what it acknowledges and answers
    /// has the numbers of that link. It ends with the first datagram that it gets from here.
    pub fn mismatch(&mut self) {
        self.is_mismatched = true;
    }

    /// Whether what the peer acknowledges and answers is none of this link's.
    pub fn is_mismatched(&self) -> bool {
        self.is_mismatched
    }

    /// The peer began it, with a datagram that answers nothing: a node that was handed the session (§5.4).
    pub fn begun_by_peer(&mut self) {
        self.awaits_answer = false;
    }

    /// Takes a datagram's header, which names this link's session, and the acknowledgement in it.
    pub fn handle_header(&mut self, now: Micros, header: &Header<'_>, source: SocketAddr) -> Arrival {
        let ack = header.ack.as_ref().filter(|_| !self.is_mismatched);
        if self.awaits_answer && !ack.is_some_and(|ack| self.has_sent(ack)) {
            return Arrival::Past;
        }
        if let Some(stray) = self.incarnations.check(header.incarnation) {
            return stray;
        }
        if ack.is_some_and(|ack| ack.largest >= self.next_number()) {
            return Arrival::Unsent;
        }
        self.awaits_answer = false;
        self.keep_alive_timer.on_received(now);
        if let Some(ack) = ack {
            self.handle_acknowledgement(now, ack);
        }
        if header.number == 0 {
            return Arrival::Fresh;
        }
        let is_newest = self.acks.is_newest(header.number);
        if is_newest {
            self.acks.set_every(header.ack_every);
        }
        if !is_newest && self.acks.is_duplicate(header.number) {
            Arrival::Duplicate
        } else if is_newest && source != self.peer {
            Arrival::Moved
        } else {
            Arrival::Fresh
        }
    }

    /// Takes a reliable packet, `raw` as it came, as [`ReorderBuffer::receive`]. Drain `next_released` before the next.
    pub fn receive(
        &mut self,
        delivery: u64,
        after: u64,
        raw: &[u8],
        has_room: impl FnOnce(usize) -> bool,
    ) -> Receipt {
        self.arrivals.receive(delivery, after, raw, has_room)
    }

    /// As [`ReorderBuffer::buffered_bytes`].
    pub fn buffered_bytes(&self) -> usize {
        self.arrivals.buffered_bytes()
    }

    /// Whether this delivery is next, and none behind it is here.
    pub fn is_next(&self, delivery: u64) -> bool {
        self.arrivals.is_next(delivery)
    }

    /// Takes so many packets in that are next: they are handed on.
    pub fn receive_next(&mut self, count: u64) {
        self.arrivals.receive_next(count);
    }

    /// The packet that `next_released` would give.
    pub fn peek_released(&self) -> Option<&[u8]> {
        self.arrivals.peek_released()
    }

    /// The next packet that was held, and whose predecessor was handed on.
    pub fn next_released(&mut self) -> Option<Box<[u8]>> {
        self.arrivals.next_released()
    }

    /// Ends a datagram of `size` bytes that was fresh. If all of it was `kept` it will be acknowledged; if not, its reliable
    /// packets come again, and those that were kept are then known.
    pub fn finish_datagram(
        &mut self,
        now: Micros,
        number: u64,
        size: usize,
        ack_eliciting: bool,
        kept: bool,
    ) {
        if kept && number != 0 {
            self.acks.record(now, number, size, ack_eliciting);
        }
    }

    /// Answers a PING, unless the queue is full.
    pub fn answer_ping(&mut self, sent_at_us: u64) {
        if self.outbox.unreliable_bytes() > self.config.queue_bytes {
            return;
        }
        self.body_field.clear();
        wire::put_pong_field(&mut self.body_field, sent_at_us);
        self.outbox.push_own(&self.body_field);
    }

    /// Success: a PUBACK for the peer's deliveries from `first` to `last` is due.
    pub fn acknowledge(&mut self, first: u64, last: u64, success: Success) {
        self.pubacks.acknowledge(success, first, last);
    }

    /// Failure: this PUBACK is due, and is repeated until it arrives.
    pub fn refuse(&mut self, puback_field: Bytes) -> Result<(), QueueFull> {
        let is_taken = puback_field.len() <= MOST_BODY && self.pubacks.refuse(puback_field);
        if is_taken { Ok(()) } else { Err(QueueFull) }
    }

    /// The peer's address is another now (§4.4). What went to the one before, and the acknowledgements, go again.
    pub fn move_to(&mut self, peer: SocketAddr) {
        self.peer = peer;
        self.is_unproved = false;
        self.acks.repeat();
        self.send_all_again();
        self.begin_path();
    }

    /// The peer asks for a proof of this end's address, which is another than before (§4.4): sends the token until it has it.
    /// False: one is on its way already, or the link is not open.
    pub fn prove_address(&mut self, token: Vec<u8>) -> bool {
        // It may move on before the proof of the address before has arrived: the latest counts.
        if !self.is_established || self.token == token {
            return false;
        }
        self.token = token;
        self.token_since = self.recovery.next_number();
        self.begin_path();
        self.probe();
        true
    }

    /// The peer answered RESET before it acknowledged anything: sends all again, with this token (§3.6).
    pub fn renew_token(&mut self, token: Vec<u8>) {
        if self.is_established {
            return;
        }
        self.token = token;
        self.send_all_again();
    }

    // Out

    /// Queues a message to be sent once. `body_field` is as `wire::put_packet` takes it.
    pub fn queue_unreliable(
        &mut self,
        body_field: &[u8],
        meant_for: Option<MeantFor>,
    ) -> Result<(), QueueFull> {
        self.check_unreliable(body_field)?;
        self.outbox.push_unreliable(body_field, meant_for);
        Ok(())
    }

    /// Queues messages to be sent once, all or none: `packets` fields.
    pub fn queue_encoded(
        &mut self,
        packets: &[u8],
        stretches: impl Iterator<Item = Stretch>,
    ) -> Result<(), QueueFull> {
        self.check_unreliable(packets)?;
        self.outbox.push_encoded(packets, stretches);
        Ok(())
    }

    /// Queues a message to be sent once that is like the one before it (§2.4). `before`: what [`Self::passed`] said had been queued with
    /// that one. False: that one does not wait any more, or not as the last one, or there is no room; or all that are alike would not leave in
    /// one datagram, here and, if the path is no narrower, at the next hop.
    pub fn queue_delta(&mut self, payload: &[u8], before: u64) -> bool {
        let most = self.mtu.size().saturating_sub(HEADER_BYTES + self.token.len());
        self.check_unreliable(payload).is_ok() && self.outbox.push_delta(payload, before, most)
    }

    /// Queues a packet to be sent once that is no message.
    pub fn queue_own(&mut self, body_field: &[u8]) -> Result<(), QueueFull> {
        self.check_unreliable(body_field)?;
        self.outbox.push_own(body_field);
        Ok(())
    }

    /// Whether a message to be sent once finds room, and leaves most of it to others.
    pub fn has_room_for_copy(&self, bytes: usize) -> bool {
        let queued = self.queued_bytes();
        queued == 0 || 4 * (queued + bytes) <= self.config.queue_bytes
    }

    /// Whether a message to be delivered finds room.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.deliveries.is_empty() || self.deliveries.bytes() + bytes <= self.config.queue_bytes
    }

    /// Whether messages to be delivered find room, of so many bytes in all.
    pub fn has_room_for_all(&self, bytes: usize) -> bool {
        bytes <= MOST_BODY && self.deliveries.bytes() + bytes <= self.config.queue_bytes
    }

    /// Queues a packet to be delivered; returns its number.
    pub fn queue_reliable(
        &mut self,
        chain: Chain,
        body_field: Bytes,
        meant_for: Option<MeantFor>,
    ) -> Result<u64, QueueFull> {
        self.queue_batch(chain, body_field, 1, meant_for)
    }

    /// Queues so many packets to be delivered, all or none, whose body fields (one for each) lie end to end; returns the first one's number.
    pub fn queue_batch(
        &mut self,
        chain: Chain,
        body_fields: Bytes,
        count: u32,
        meant_for: Option<MeantFor>,
    ) -> Result<u64, QueueFull> {
        let reserve = if chain == Chain::Control { CONTROL_RESERVE } else { 0 };
        let queued = self.deliveries.bytes() + body_fields.len();
        if queued > self.config.queue_bytes + reserve || body_fields.len() > MOST_BODY {
            return Err(QueueFull);
        }
        self.outbox.push_reliable(count);
        Ok(self.deliveries.push(chain, body_fields, count, meant_for))
    }

    /// Unreliable packets queued so far, and those that have left.
    pub fn passed(&self) -> (u64, u64) {
        self.outbox.passed()
    }

    /// Which one the message of `QoS` 0 is that was queued last, to ask `has_left` for.
    pub fn last_unreliable(&self) -> Queued {
        Queued::Unreliable(self.outbox.passed().0)
    }

    /// Whether a packet was sealed into a datagram.
    pub fn has_left(&self, packet: Queued) -> bool {
        match packet {
            Queued::Unreliable(number) => number <= self.outbox.passed().1,
            Queued::Reliable(delivery) => delivery <= self.deliveries.sent(),
        }
    }

    /// Messages of `QoS` 0 that were never sent.
    pub fn unsent(&self) -> usize {
        self.outbox.messages()
    }

    /// When to call `handle_timeout`.
    pub fn poll_timeout(&self) -> Option<Micros> {
        if self.keep_alive_timer.is_over() {
            return None;
        }
        let deadlines = [
            self.recovery.deadline(),
            self.acks.deadline(),
            self.keep_alive_timer.deadline(self.recovery.waiting_since()),
            self.resume_at,
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Does what is due by now; `poll_transmit` then sends what came of it.
    pub fn handle_timeout(&mut self, now: Micros) -> Liveness {
        if self.keep_alive_timer.handle_timeout(now, self.recovery.waiting_since()) {
            return Liveness::TimedOut;
        }
        self.resume_at = self.resume_at.filter(|&at| at > now);
        self.acks.handle_timeout(now);
        self.detect_lost(now);
        self.handle_silence(now);
        if self.keep_alive_timer.is_ping_due(now) {
            self.keep_alive_timer.on_active(now);
            self.keep_alive(now);
        }
        Liveness::Alive
    }

    // Read

    /// The peer's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The peer's incarnation, once something came from it.
    pub fn peer_incarnation(&self) -> Option<u64> {
        self.incarnations.peer()
    }

    /// Whether another incarnation is a later link of the peer's same run, and not another run.
    pub fn is_continued_by(&self, incarnation: u64) -> bool {
        self.incarnations.is_continued_by(incarnation)
    }

    /// The number of the next datagram.
    pub fn next_number(&self) -> u64 {
        self.recovery.next_number()
    }

    /// Whether the peer is known to know this link.
    pub fn is_established(&self) -> bool {
        self.is_established
    }

    /// Whether the peer opened it and has acknowledged nothing since: it may have given it up long ago, if what opened it came late.
    pub fn is_one_sided(&self) -> bool {
        self.config.role == Role::Acceptor && !self.is_answered
    }

    /// Whether nothing waits to be sent, or to be acknowledged where that matters.
    pub fn is_drained(&self) -> bool {
        self.outbox.is_empty() && self.deliveries.is_empty() && self.pubacks.is_empty()
    }

    /// The smoothed round-trip time; a guess until there was a sample.
    pub fn rtt(&self) -> Micros {
        self.recovery.rtt()
    }

    /// Bytes that the link keeps to send, or to send again.
    pub fn queued_bytes(&self) -> usize {
        self.outbox.unreliable_bytes() + self.deliveries.bytes()
    }

    /// Bytes of unreliable packets that were never sent.
    pub fn unsent_bytes(&self) -> usize {
        self.outbox.unreliable_bytes()
    }

    /// What it counted.
    pub fn stats(&self) -> LinkStats {
        LinkStats { lost: self.recovery.lost(), retransmits: self.deliveries.retransmits() }
    }

    // Below

    /// Whether all that a peer acknowledges was sent in this link.
    fn has_sent(&self, ack: &wire::AckView<'_>) -> bool {
        let sent = self.config.first_number..self.next_number();
        sent.contains(&ack.largest) && ack.ranges().all(|(low, _)| sent.contains(&low))
    }

    fn check_unreliable(&self, packets: &[u8]) -> Result<(), QueueFull> {
        let queued = self.outbox.unreliable_bytes() + packets.len();
        let fits = queued <= self.config.queue_bytes && packets.len() <= MOST_BODY;
        if fits { Ok(()) } else { Err(QueueFull) }
    }

    /// Makes sure that something will be sent.
    fn keep_alive(&mut self, now: Micros) {
        if !self.outbox.is_empty() {
            return;
        }
        self.body_field.clear();
        wire::put_ping_field(&mut self.body_field, now);
        self.outbox.push_own(&self.body_field);
    }
}
