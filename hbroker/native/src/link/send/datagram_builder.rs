//! Makes datagrams of what is due (docs/protocol.md §3.4).
//!
//! Each datagram is a header, and then packets in this order: PUBACKs, retransmissions, packets that were
//! never sent. It is written directly into the sink's buffer. A packet that is larger than the largest bundle is
//! sent in a datagram of its own.

use smallvec::SmallVec;

use crate::Micros;
use crate::link::loss_recovery::recovery::{Admission, Sent};
use crate::link::receive::acks;
use crate::link::receive::pubacks::{self, Pubacks, Success};
use crate::link::send::delivery::Deliveries;
use crate::link::send::outbox::NextPackets;
use crate::link::{Link, Role};
use crate::sink::DatagramSink;
use crate::wire::{self, AckOut, HeaderOut};

/// The most ranges in one acknowledgement: the newest.
const MOST_ACK_RANGES: usize = 32;
/// The most bytes of a datagram's header, without the ranges after the first, and without the token.
pub(in crate::link) const HEADER_BYTES: usize = 74;
/// The most bytes of a range: two numbers.
const RANGE_BYTES: usize = 20;
/// The smallest datagram of an initiator, so that a RESET, which is never longer than what it answers (§3.6),
/// can answer any.
const LEAST_DATAGRAM: usize = 64;

/// A datagram that is being filled.
struct DatagramBuilder<'a> {
    out: &'a mut Vec<u8>,
    limits: Limits,
    carried: SmallVec<[Carried; 2]>,
}

/// Where the packets of a datagram begin, and where it has to end.
#[derive(Clone, Copy)]
struct Limits {
    packets: usize,
    end: usize,
}

impl Link {
    /// Sends the datagrams that are due, as many as the window and the sink allow. True: the sink is full,
    /// and more may be due.
    pub fn poll_transmit(&mut self, now: Micros, sink: &mut impl DatagramSink) -> bool {
        self.resume_at = None;
        if self.is_unproved {
            return self.send_address_probe(now, sink);
        }
        let mut is_due = self.first_due(now);
        while let Some(size) = is_due {
            if sink.is_full() {
                return true;
            }
            if self.probes == 0 && !self.is_admitted(now, size.max(self.mtu.size())) {
                break;
            }
            self.build(now, size, sink);
            is_due = self.first_due(now);
        }
        self.recovery.set_window_limited(is_due.is_some());
        if self.acks.is_due() {
            self.build_acknowledgement(now, sink);
        }
        self.probe_larger_mtu(now, sink);
        false
    }

    /// §5.4: another node named the peer's address. Until the peer has proved it, only one PING is sent
    /// there, with the token for the proof.
    fn send_address_probe(&mut self, now: Micros, sink: &mut impl DatagramSink) -> bool {
        self.probes = 0;
        let has_pinged = self.recovery.next_number() > self.config.first_number;
        if has_pinged || sink.is_full() {
            return !has_pinged;
        }
        let start = sink.begin();
        let out = sink.buffer();
        let number = self.recovery.next_number();
        self.put_header(now, number, None, out);
        self.body_field.clear();
        wire::put_ping_field(&mut self.body_field, 0);
        wire::put_packet(out, 0, 0, None, &self.body_field);
        let contents = Contents { acknowledged_through: 0, carried: SmallVec::new() };
        self.recovery.on_sent(Sent { at: now, size: out.len() - start, is_mtu_probe: false, contents });
        self.keep_alive_timer.on_active(now);
        sink.commit(&self.peer, start);
        false
    }

    /// Whether the window and the pacer allow a datagram. If the pacer does not, notes when it will.
    fn is_admitted(&mut self, now: Micros, size: usize) -> bool {
        match self.recovery.admit(now, size) {
            Admission::Now => return true,
            Admission::Later(at) => self.resume_no_later_than(at),
            Admission::Full => {}
        }
        false
    }

    fn resume_no_later_than(&mut self, at: Micros) {
        self.resume_at = Some(self.resume_at.map_or(at, |before| before.min(at)));
    }

    /// The size of the next packet to be retransmitted, if there is credit for it, or a probe to carry it.
    fn next_retransmission(&mut self, now: Micros) -> Option<usize> {
        let size = self.deliveries.next_retransmission()?;
        match self.budget.next_repetition(now) {
            Some(at) if self.probes == 0 => {
                self.resume_no_later_than(at);
                None
            }
            _ => Some(size),
        }
    }

    /// The smallest size of the next datagram. `None`: nothing is due.
    fn first_due(&mut self, now: Micros) -> Option<usize> {
        self.pass_blocked();
        let first_packet = if self.pubacks.has_due() {
            pubacks::MOST_RANGES * RANGE_BYTES
        } else if let Some((_, body_field)) = self.pubacks.next_refusal() {
            wire::packet_len(0, 0, None, body_field.len())
        } else if let Some(size) = self.next_retransmission(now) {
            size
        } else {
            match self.outbox.front() {
                Some(NextPackets::Unreliable(size)) => size,
                Some(NextPackets::Reliable(_)) => match self.deliveries.next_fresh() {
                    Some(size) => size,
                    None if self.probes > 0 => 0,
                    None => return None,
                },
                None if self.probes > 0 => 0,
                None => return None,
            }
        };
        Some(HEADER_BYTES + self.token.len() + first_packet)
    }

    /// The order of queueing is kept, except for unreliable packets behind a reliable one that the window
    /// holds back (§3.3).
    fn pass_blocked(&mut self) {
        if matches!(self.outbox.front(), Some(NextPackets::Reliable(_))) && !self.deliveries.has_fresh() {
            self.outbox.pass_reliable();
        }
    }

    /// Builds a datagram. `least`: room for the first packet that is due, and for a header with one range.
    fn build(&mut self, now: Micros, least: usize, sink: &mut impl DatagramSink) {
        let number = self.recovery.next_number();
        let start = sink.begin();
        let out = sink.buffer();
        let ranges = self.mtu.size().saturating_sub(least) / RANGE_BYTES;
        let acknowledged_through = self.put_header(now, number, Some(ranges), out);
        let end = start + self.mtu.size();
        let limits = Limits { packets: out.len(), end };
        let mut builder = DatagramBuilder { out, limits, carried: SmallVec::new() };
        self.put_pubacks(&mut builder);
        self.put_refusals(&mut builder);
        self.put_retransmissions(now, &mut builder, number);
        self.put_queued(&mut builder, number);
        if builder.is_empty() {
            self.put_probe(now, &mut builder);
        }
        if self.config.role == Role::Initiator {
            builder.pad(start + LEAST_DATAGRAM);
        }
        self.probes = self.probes.saturating_sub(1);
        let (size, carried) = (builder.out.len() - start, builder.carried);
        let contents = Contents { acknowledged_through, carried };
        self.recovery.on_sent(Sent { at: now, size, is_mtu_probe: false, contents });
        self.keep_alive_timer.on_active(now);
        sink.commit(&self.peer, start);
    }

    /// Probes whether the path carries larger datagrams, if a probe is due. A full window does not delay the
    /// probe; otherwise a sender that always has more to send would never learn the size. There is at most
    /// one probe for each round trip (RFC 8899 §3).
    fn probe_larger_mtu(&mut self, now: Micros, sink: &mut impl DatagramSink) {
        let Some(size) = self.mtu.due(now) else {
            return;
        };
        if !self.is_established {
            return;
        }
        let number = self.recovery.next_number();
        let start = sink.begin();
        let out = sink.buffer();
        let acknowledged_through = self.put_header(now, number, None, out);
        self.body_field.clear();
        wire::put_ping_field(&mut self.body_field, now);
        wire::put_packet(out, 0, 0, None, &self.body_field);
        wire::put_padding(out, start + size - out.len());
        let contents = Contents { acknowledged_through, carried: SmallVec::new() };
        self.recovery.on_sent(Sent { at: now, size, is_mtu_probe: true, contents });
        self.mtu.on_probe_sent();
        sink.commit(&self.peer, start);
    }

    /// Sends a datagram that only acknowledges. It has no number, because it is not acknowledged.
    fn build_acknowledgement(&mut self, now: Micros, sink: &mut impl DatagramSink) {
        let start = sink.begin();
        let out = sink.buffer();
        self.put_header(now, 0, Some(MOST_ACK_RANGES), out);
        sink.commit(&self.peer, start);
    }

    /// Writes the header. Returns the highest number that it acknowledges; 0: none. `more`: how many ranges
    /// it has room for after the first; `None`: received datagrams need not be acknowledged in it.
    fn put_header(&mut self, now: Micros, number: u64, more: Option<usize>, out: &mut Vec<u8>) -> u64 {
        let mut ranges: SmallVec<[(u64, u64); 8]> = SmallVec::new();
        // A datagram with a token may begin a link at the peer, and only the acknowledged numbers tell the peer
        // whether the datagram belongs to this link. And an end that opened a link ignores datagrams that
        // acknowledge nothing, until the first one that does (§3.6).
        if more.is_some() && self.acks.is_pending() || !self.token.is_empty() || !self.is_answered {
            let most = 1 + more.unwrap_or(0).min(MOST_ACK_RANGES - 1);
            ranges.extend(self.acks.received().descending().take(most));
            if more.is_some() {
                self.acks.on_sent();
            }
        }
        let ack = (!ranges.is_empty()).then(|| AckOut { delay_us: self.acks.delay(now), ranges: &ranges });
        let header = HeaderOut {
            session: self.config.session,
            incarnation: self.config.incarnation,
            number,
            ack,
            token: &self.token,
            ack_every: if number == 0 { 0 } else { self.ack_every() },
        };
        wire::put_header(out, &header);
        ranges.first().map_or(0, |range| range.1)
    }

    /// How many datagrams the peer may leave unacknowledged; 0: the usual number. The peer delays an
    /// acknowledgement no longer than both windows let this end continue (§3.2).
    fn ack_every(&self) -> u32 {
        if self.deliveries.is_half_full() {
            return 0;
        }
        acks::ask(self.recovery.window(), self.recovery.in_flight(), self.mtu.size())
    }

    fn put_pubacks(&mut self, builder: &mut DatagramBuilder<'_>) {
        if !self.pubacks.has_due() {
            return;
        }
        let mut room = pubacks::MOST_RANGES;
        let Self { pubacks, body_field, .. } = self;
        for success in Success::ALL {
            let ranges: SmallVec<[(u64, u64); 8]> = pubacks.take_due(success, room).collect();
            if ranges.is_empty() {
                continue;
            }
            room -= ranges.len();
            body_field.clear();
            wire::put_puback_field(body_field, ranges.iter().copied(), success.reason(), "", None);
            wire::put_packet(builder.out, 0, 0, None, body_field);
            builder
                .carried
                .extend(ranges.iter().map(|&(first, last)| Carried::Success(success, first, last)));
        }
    }

    fn put_refusals(&mut self, builder: &mut DatagramBuilder<'_>) {
        while let Some((refusal, body_field)) = self.pubacks.next_refusal() {
            if !builder.fits(wire::packet_len(0, 0, None, body_field.len())) {
                return;
            }
            wire::put_packet(builder.out, 0, 0, None, body_field);
            builder.carried.push(Carried::Refusal(refusal));
            self.pubacks.on_refusal_built();
        }
    }

    fn put_retransmissions(&mut self, now: Micros, builder: &mut DatagramBuilder<'_>, number: u64) {
        while self.next_retransmission(now).is_some() {
            let Self { deliveries, budget, probes, .. } = self;
            let room = builder.limits;
            let built = deliveries.build_retransmissions(builder.out, number, |length, size| {
                let may_go =
                    room.admit(length, size) && (*probes > 0 || budget.next_repetition(now).is_none());
                if may_go {
                    budget.spend(now, size);
                }
                may_go
            });
            let Some(built) = built else {
                return;
            };
            builder.carry_deliveries(built);
        }
    }

    fn put_queued(&mut self, builder: &mut DatagramBuilder<'_>, number: u64) {
        while let Some(turn) = self.outbox.front() {
            match turn {
                NextPackets::Unreliable(size) if builder.fits(size) => {
                    self.outbox.build_unreliable(builder.out, builder.room().max(size));
                }
                NextPackets::Unreliable(_) => return,
                NextPackets::Reliable(count) => {
                    let room = builder.limits;
                    let admits = |length, size| room.admit(length, size);
                    if let Some(built) = self.deliveries.build_new(builder.out, count, number, admits) {
                        self.outbox.pop_reliable((built.1 - built.0) as u32 + 1);
                        builder.carry_deliveries(built);
                    } else if self.deliveries.has_fresh() || !self.outbox.pass_reliable() {
                        return;
                    }
                }
            }
        }
    }

    /// A probe without contents: one PING asks for an acknowledgement as well as two.
    fn put_probe(&mut self, now: Micros, builder: &mut DatagramBuilder<'_>) {
        self.body_field.clear();
        wire::put_ping_field(&mut self.body_field, now);
        wire::put_packet(builder.out, 0, 0, None, &self.body_field);
        self.probes = 0;
    }
}

impl DatagramBuilder<'_> {
    /// Whether a packet of this size may be added.
    fn fits(&self, size: usize) -> bool {
        self.limits.admit(self.out.len(), size)
    }

    fn room(&self) -> usize {
        self.limits.end.saturating_sub(self.out.len())
    }

    /// Pads the datagram up to this end.
    fn pad(&mut self, end: usize) {
        if self.out.len() < end {
            wire::put_padding(self.out, (end - self.out.len()).max(2));
        }
    }

    fn is_empty(&self) -> bool {
        self.out.len() == self.limits.packets
    }

    /// It carries the deliveries from the first to the last.
    fn carry_deliveries(&mut self, (first, last): (u64, u64)) {
        match self.carried.last_mut() {
            Some(Carried::Deliveries(_, newest)) if *newest + 1 == first => *newest = last,
            _ => self.carried.push(Carried::Deliveries(first, last)),
        }
    }
}

impl Limits {
    /// Whether a packet of this size may be added to a datagram that ends here now. The first always may.
    fn admit(self, length: usize, size: usize) -> bool {
        length == self.packets || length + size <= self.end
    }
}

/// What a datagram carries that matters later. (Unreliable packets do not.)
#[derive(Debug)]
pub struct Contents {
    /// The highest number that it acknowledged; 0: none.
    pub acknowledged_through: u64,
    pub carried: SmallVec<[Carried; 2]>,
}

/// Packets of a datagram that are repeated until one that carries them is acknowledged.
#[derive(Debug, Clone, Copy)]
pub enum Carried {
    /// Reliable packets, by their first and last number.
    Deliveries(u64, u64),
    /// Successes in a PUBACK, by the first and last number of a run.
    Success(Success, u64, u64),
    /// A PUBACK for one failure.
    Refusal(u64),
}

impl Contents {
    /// Its datagram was acknowledged.
    pub fn settle(&self, deliveries: &mut Deliveries, pubacks: &mut Pubacks) {
        for &carried in &self.carried {
            match carried {
                Carried::Deliveries(first, last) => deliveries.on_acknowledged(first, last),
                Carried::Success(..) => {}
                Carried::Refusal(refusal) => pubacks.on_refusal_acknowledged(refusal),
            }
        }
    }

    /// The datagram `number`, which carried this, was lost.
    pub fn send_again(&self, number: u64, deliveries: &mut Deliveries, pubacks: &mut Pubacks) {
        for &carried in &self.carried {
            match carried {
                Carried::Deliveries(first, last) => deliveries.on_lost(first, last, number),
                Carried::Success(success, first, last) => pubacks.acknowledge(success, first, last),
                Carried::Refusal(refusal) => pubacks.refuse_again(refusal),
            }
        }
    }

    /// Its datagram may be lost: its contents are the best probe.
    pub fn probe(&self, deliveries: &mut Deliveries, pubacks: &mut Pubacks) {
        for &carried in &self.carried {
            match carried {
                Carried::Deliveries(first, last) => deliveries.probe(first, last),
                Carried::Success(success, first, last) => pubacks.acknowledge(success, first, last),
                Carried::Refusal(refusal) => pubacks.refuse_again(refusal),
            }
        }
    }
}
