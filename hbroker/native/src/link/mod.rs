//! One end of the link with one peer (docs/protocol.md §3), after QUIC (RFC 9000, RFC 9002). A link knows
//! nothing of topics.
//!
//! The folders and files know nothing of each other; [`Link`] calls all of them:
//!
//! ```text
//!     in     receive        acks: which datagrams were received, when to acknowledge them
//!                           reorder_buffer: received reliable packets, in the order of their chains
//!                           delivery: sent reliable packets until they are acknowledged
//!                           pubacks: PUBACKs until they are acknowledged
//!     out    send           outbox: packets that were never sent
//!                           datagram_builder: makes datagrams of what is due
//!     both   loss_recovery  recovery: what is acknowledged, what is lost, how much may be in flight
//!                           retransmission: carries that out
//!            incarnation    which run of the peer a datagram is of
//!            keep_alive     PING, and the idle timeout
//!            mtu            the datagram size of the path
//!            idle           the small state of a link on which nothing is under way
//! ```
//!
//! For each datagram call [`Link::handle_header`], then [`Link::receive`] for each reliable packet, then
//! [`Link::finish_datagram`]. After a batch of datagrams, or when packets have been queued, call
//! [`Link::poll_transmit`].

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
use crate::broken::Defect;
use crate::link::incarnation::Incarnations;
use crate::link::keep_alive::KeepAliveTimer;
use crate::link::loss_recovery::recovery::Recovery;
use crate::link::mtu::PathMtu;
use crate::link::receive::acks::Acks;
use crate::link::receive::pubacks::{Pubacks, Success};
use crate::link::receive::reorder_buffer::ReorderBuffer;
use crate::link::send::budget::Budget;
use crate::link::send::datagram_builder::{Contents, HEADER_BYTES};
use crate::link::send::delivery::Deliveries;
use crate::link::send::outbox::{Outbox, PacketRun};
use crate::wire::{self, Header, MeantFor};

pub use crate::link::receive::reorder_buffer::ReceiveOutcome;
pub use crate::link::send::delivery::Chain;

/// A peer that answers none of this number of probes within the idle timeout is gone. The intervals between
/// probes are doubled only up to this part of it.
const PROBES_BEFORE_TIMEOUT: Micros = 10;
/// Room in the queue that only control packets may use.
const CONTROL_RESERVE: usize = 1 << 20;
/// The most bytes of a datagram outside of a single body field: a field of `max_datagram` less this fits a
/// bundle.
pub const DATAGRAM_OVERHEAD: usize = 128;
/// The largest body field: what is left of a UDP datagram with the largest link header.
pub const MOST_BODY: usize = wire::MAX_DATAGRAM - 1_024;

/// A packet that was queued.
#[derive(Clone, Copy, Debug)]
pub enum Queued {
    /// By its number among the unreliable packets.
    Unreliable(u64),
    /// By its delivery number.
    Reliable(u64),
}

/// One end of a link.
#[derive(Debug)]
pub struct Link {
    config: LinkConfig,
    peer: SocketAddr,
    /// Sent in every datagram until one that contains it is acknowledged; then empty.
    token: Vec<u8>,
    /// The first datagram with that token.
    token_since: u64,
    is_established: bool,
    /// The peer has acknowledged a datagram of this end.
    is_answered: bool,
    /// The peer's end belongs to a link with an earlier end on this side (`mismatch`).
    is_mismatched: bool,
    /// This end opened the link and was not answered yet: nothing else is known of the peer's end (§3.6).
    awaits_answer: bool,
    /// It was opened here, to an address that another node named, and the peer has not proved this address
    /// yet.
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

    /// How many datagrams to send whatever the window allows.
    probes: u32,
    /// When sending may continue.
    resume_at: Option<Micros>,
    keep_alive_timer: KeepAliveTimer,
    body_field: Vec<u8>,
}

impl Link {
    /// A link to `peer`. The token proves this end's address; it may be empty if the peer needs no proof.
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

    /// Whether the peer has to prove with a token that it means this link. The link was opened here for a
    /// session that may have another link, to an earlier run of this node.
    pub fn awaits_token(&self) -> bool {
        self.config.role == Role::Adopter && self.incarnations.peer().is_none()
    }

    /// Whether only one small datagram may be sent to the peer's address, because only another node has named
    /// it (§5.4).
    pub fn is_unproved(&self) -> bool {
        self.is_unproved
    }

    /// A datagram was received from the peer's address, with a token for this address.
    pub fn prove(&mut self) {
        self.is_unproved = false;
    }

    /// The peer's end has received a datagram of an earlier end on this side, so it belongs to a link with
    /// that (§3.6). Its acknowledgements have the numbers of that link. It ends with the first datagram that
    /// it receives from here.
    pub fn mismatch(&mut self) {
        self.is_mismatched = true;
    }

    /// Whether the peer's acknowledgements do not concern this link.
    pub fn is_mismatched(&self) -> bool {
        self.is_mismatched
    }

    /// The peer began the link, with a datagram that answers nothing: it is a node to which the session was
    /// handed over (§5.4).
    pub fn begun_by_peer(&mut self) {
        self.awaits_answer = false;
    }

    /// Handles a datagram's header, which has this link's session, and the acknowledgement in it.
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

    /// Takes a reliable packet, `raw` as received, as [`ReorderBuffer::receive`] does. The caller has to
    /// empty `next_released` before the next packet.
    pub fn receive(
        &mut self,
        delivery: u64,
        after: u64,
        raw: &[u8],
        has_room: impl FnOnce(usize) -> bool,
    ) -> ReceiveOutcome {
        self.arrivals.receive(delivery, after, raw, has_room)
    }

    /// As [`ReorderBuffer::buffered_bytes`].
    pub fn buffered_bytes(&self) -> usize {
        self.arrivals.buffered_bytes()
    }

    /// Whether this delivery is the next, and no later one has been received.
    pub fn is_next(&self, delivery: u64) -> bool {
        self.arrivals.is_next(delivery)
    }

    /// `count` packets, the next ones, have been delivered.
    pub fn receive_next(&mut self, count: u64) {
        self.arrivals.receive_next(count);
    }

    /// The packet that `next_released` would return.
    pub fn peek_released(&self) -> Option<&[u8]> {
        self.arrivals.peek_released()
    }

    /// The next buffered packet whose predecessor has been delivered.
    pub fn next_released(&mut self) -> Option<Box<[u8]>> {
        self.arrivals.next_released()
    }

    /// Ends a fresh datagram of `size` bytes. If all of it was `kept` it will be acknowledged. If not, its
    /// reliable packets will be retransmitted, and those that were kept are duplicates then.
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

    /// A success: a PUBACK for the peer's deliveries from `first` to `last` is due.
    pub fn acknowledge(&mut self, first: u64, last: u64, success: Success) {
        self.pubacks.acknowledge(success, first, last);
    }

    /// A failure: this PUBACK is due, and is retransmitted until it is acknowledged.
    pub fn refuse(&mut self, puback_field: Bytes) -> Result<(), QueueFull> {
        let is_taken = puback_field.len() <= MOST_BODY && self.pubacks.refuse(puback_field);
        if is_taken { Ok(()) } else { Err(QueueFull) }
    }

    /// The peer's address has changed (§4.4). Packets that were sent to the old address, and the
    /// acknowledgements, are sent again.
    pub fn move_to(&mut self, peer: SocketAddr) {
        self.peer = peer;
        self.is_unproved = false;
        self.acks.repeat();
        self.send_all_again();
        self.begin_path();
    }

    /// The peer asks for a proof of this end's address, which has changed (§4.4): sends the token until it is
    /// acknowledged. False: it is being sent already, or the link is not established.
    pub fn prove_address(&mut self, token: Vec<u8>) -> bool {
        // This end may move again before the proof of its previous address arrives: the latest token counts.
        if !self.is_established || self.token == token {
            return false;
        }
        self.token = token;
        self.token_since = self.recovery.next_number();
        self.begin_path();
        self.probe();
        true
    }

    /// The peer has answered RESET before it acknowledged anything: sends everything again, with this token
    /// (§3.6).
    pub fn renew_token(&mut self, token: Vec<u8>) {
        if self.is_established {
            return;
        }
        self.token = token;
        self.send_all_again();
    }

    // Out

    /// Queues a message to be sent once. `body_field` is as for `wire::put_packet`.
    pub fn queue_unreliable(
        &mut self,
        body_field: &[u8],
        meant_for: Option<MeantFor>,
    ) -> Result<(), QueueFull> {
        self.check_unreliable(body_field)?;
        self.outbox.push_unreliable(body_field, meant_for);
        Ok(())
    }

    /// Queues messages to be sent once, all or none. `packets` are `packets` fields.
    pub fn queue_encoded(
        &mut self,
        packets: &[u8],
        packet_runs: impl Iterator<Item = PacketRun>,
    ) -> Result<(), QueueFull> {
        self.check_unreliable(packets)?;
        self.outbox.push_encoded(packets, packet_runs);
        Ok(())
    }

    /// Queues a message to be sent once, as a delta of the one before it (§2.4). `before` is the number of
    /// queued packets that [`Self::passed`] returned after that one. False: that one is not the last in the
    /// queue any more, or there is no room, or a message and its deltas would not fit one datagram, here and
    /// (if the path is no narrower) at the next hop.
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

    /// Whether a message to be sent once has room, and leaves most of the room to others.
    pub fn has_room_for_copy(&self, bytes: usize) -> bool {
        let queued = self.queued_bytes();
        queued == 0 || 4 * (queued + bytes) <= self.config.queue_bytes
    }

    /// Whether a reliable message of this size has room.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.deliveries.is_empty() || self.deliveries.bytes() + bytes <= self.config.queue_bytes
    }

    /// Whether reliable messages of this size in total have room.
    pub fn has_room_for_all(&self, bytes: usize) -> bool {
        bytes <= MOST_BODY && self.deliveries.bytes() + bytes <= self.config.queue_bytes
    }

    /// Queues a reliable packet. Returns its delivery number.
    pub fn queue_reliable(
        &mut self,
        chain: Chain,
        body_field: Bytes,
        meant_for: Option<MeantFor>,
    ) -> Result<u64, QueueFull> {
        self.queue_batch(chain, body_field, 1, meant_for)
    }

    /// Queues `count` reliable packets, all or none. Their body fields, one for each, are end to end. Returns
    /// the first one's delivery number.
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

    /// The number of unreliable packets queued so far, and of those that were sent.
    pub fn passed(&self) -> (u64, u64) {
        self.outbox.passed()
    }

    /// Identifies the message of `QoS` 0 that was queued last, for `has_left`.
    pub fn last_unreliable(&self) -> Queued {
        Queued::Unreliable(self.outbox.passed().0)
    }

    /// Whether a packet has been put into a datagram.
    pub fn has_left(&self, packet: Queued) -> bool {
        match packet {
            Queued::Unreliable(number) => number <= self.outbox.passed().1,
            Queued::Reliable(delivery) => delivery <= self.deliveries.sent(),
        }
    }

    /// The number of messages of `QoS` 0 that were never sent.
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

    /// Does what is due by now. `poll_transmit` then sends the result.
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

    /// The peer's incarnation, once it has sent something.
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

    /// Whether the peer is known to have this link.
    pub fn is_established(&self) -> bool {
        self.is_established
    }

    /// Whether the peer has never answered on the link. If the peer opened it, the datagram may have been late,
    /// and the peer may have given the link up long ago. If it was opened here, the one datagram that was sent to
    /// the peer may be lost (§4.5).
    pub fn is_half_open(&self) -> bool {
        let is_unproved = self.is_unproved && !Defect::IgnoresNextRun.is_present();
        is_unproved || (self.config.role == Role::Acceptor && !self.is_answered)
    }

    /// Whether nothing waits to be sent, or to be acknowledged where that matters.
    pub fn is_drained(&self) -> bool {
        self.outbox.is_empty() && self.deliveries.is_empty() && self.pubacks.is_empty()
    }

    /// The smoothed round-trip time; an initial value until the first sample.
    pub fn rtt(&self) -> Micros {
        self.recovery.rtt()
    }

    /// The bytes that the link keeps to send, or to send again.
    pub fn queued_bytes(&self) -> usize {
        self.outbox.unreliable_bytes() + self.deliveries.bytes()
    }

    /// The bytes of unreliable packets that were never sent.
    pub fn unsent_bytes(&self) -> usize {
        self.outbox.unreliable_bytes()
    }

    /// The counters of the link.
    pub fn stats(&self) -> LinkStats {
        LinkStats { lost: self.recovery.lost(), retransmits: self.deliveries.retransmits() }
    }

    // Below

    /// Whether all datagrams that a peer acknowledges were sent on this link.
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

/// The identity of a link's end, and its limits.
#[derive(Debug, Clone)]
pub struct LinkConfig {
    /// The session id, chosen by the initiator.
    pub session: u64,
    /// This end's incarnation.
    pub incarnation: u64,
    /// The peer's incarnation in the previous link with it. A datagram with it is late.
    pub past: Option<u64>,
    /// The number of the first datagram. If this end opens the link, none of its ended links has used the
    /// number (§3.6).
    pub first_number: u64,
    /// The size of the largest bundle, on a path that carries it (`mtu`). A larger packet is sent in a
    /// datagram of its own.
    pub max_datagram: usize,
    /// The bound for the bytes of unreliable packets that may wait, and the same for reliable ones.
    pub queue_bytes: usize,
    /// The silence after which the initiator sends PING.
    pub keep_alive: Micros,
    /// The silence after which the peer is gone.
    pub idle_timeout: Micros,
    /// How this end began.
    pub role: Role,
}

/// How an end of a link began (§3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Has the session: it sends the token until that is acknowledged, and keeps the link alive. (A client's
    /// end of a link that a node opened is an initiator, too. It has the token from that node.)
    Initiator,
    /// Was opened by a datagram with a valid token.
    Acceptor,
    /// A node's end towards a session that was handed over to it (§5.4): an acceptor that sends first.
    Adopter,
}

/// The result for the header of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// Handle its packets, then call `finish_datagram`.
    Fresh,
    /// Fresh, the newest so far, and from another address than the peer's: the caller decides whether to call
    /// `move_to`.
    Moved,
    /// Received before, or too old to know: drop it.
    Duplicate,
    /// A late datagram of an earlier link: drop it.
    Past,
    /// It acknowledges a datagram that was never sent: drop it (RFC 9000 §13.1).
    Unsent,
    /// The peer's incarnation has changed: the link has ended (§3.6).
    Restarted,
}

/// Whether a link is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// It is.
    Alive,
    /// The peer has been silent for the idle timeout.
    TimedOut,
}

/// The link's queue has no room for a packet, or the packet fits no datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueFull;

/// The counters of links.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Numbered datagrams that were lost.
    pub lost: u64,
    /// Reliable packets sent again.
    pub retransmits: u64,
}

impl std::ops::AddAssign for LinkStats {
    fn add_assign(&mut self, other: Self) {
        self.lost += other.lost;
        self.retransmits += other.retransmits;
    }
}
