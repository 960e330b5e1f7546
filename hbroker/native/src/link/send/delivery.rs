//! The reliable packets that one end of a link sends (docs/protocol.md §3.3).
//!
//! They are numbered from 1 without gaps. Each keeps its body until a datagram that carried it is
//! acknowledged. Each names the packet of its chain before it as its predecessor, unless the whole chain was
//! acknowledged when it was queued: the receiver delivers it after that one. (It is not enough that the
//! predecessor itself is acknowledged: the receiver may buffer it behind a missing one.) A lost packet is
//! sent again in the next datagram, never together with the rest of its old datagram.
//!
//! Packets of one chain that are queued together share a record (`Batch`). A record is divided only when a
//! datagram takes some of its packets and not the others. So a datagram always carries whole records.

use std::collections::VecDeque;

use bytes::Bytes;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::broken::Defect;
use crate::wire::{self, MeantFor, PacketHead};

/// The most deliveries that may be sent and not acknowledged, counted from the oldest (§9).
pub const WINDOW: u64 = 4_096;

/// Which earlier packet a reliable one follows (§3.3).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Chain {
    /// All packets but PUBLISH.
    #[default]
    Control,
    /// The messages of one publisher and topic, by a hash of both. (If two collide they are one chain.)
    Topic(u64),
    /// This delivery, whose outcome is not known yet, for a sender that keeps the order of its messages
    /// itself; 0: none.
    After(u64),
}

/// The cost of a packet in addition to its body, if it has a record of its own.
const RECORD_BYTES: usize = size_of::<Batch>();

/// The deliveries that are queued or sent, and not acknowledged.
#[derive(Debug, Default)]
pub struct Deliveries {
    /// How many numbers were acknowledged and removed: the first number in `sent`, less one.
    settled: u64,
    /// The records that were sent at least once, by their numbers.
    sent: VecDeque<Batch>,
    /// The records that were never sent.
    fresh: VecDeque<Batch>,
    /// The highest number in `sent`, and in `fresh`.
    newest: (u64, u64),
    /// What has to be retransmitted, in the order in which the losses were detected: the first numbers of
    /// records. Some may have been acknowledged since.
    to_retransmit: VecDeque<u64>,
    /// The end of each chain with an unacknowledged delivery, except for `current`.
    tails: HashMap<Chain, Tail>,
    /// The chain that grew twice in succession; most often it grows again.
    current: Chain,
    current_tail: Tail,
    bytes: usize,
    retransmits: u64,
}

#[derive(Debug, Default)]
struct Tail {
    /// The chain's last delivery.
    last: u64,
    /// How many packets of the chain are not acknowledged.
    outstanding: u32,
}

/// Packets of one chain with consecutive numbers.
#[derive(Debug)]
struct Batch {
    first: u64,
    count: u32,
    /// Their body fields, end to end.
    bodies: Bytes,
    chain: Chain,
    /// The predecessor of the first; each of the others follows the one before it.
    after: u64,
    meant_for: Option<MeantFor>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    /// In flight in this datagram, the newest that carries them.
    InFlight(u64),
    /// In the queue `to_retransmit`.
    Lost,
    Acknowledged,
}

impl Deliveries {
    /// Every delivery up to this one was acknowledged, and none is queued.
    pub fn after(settled: u64) -> Self {
        Self { settled, newest: (settled, settled), ..Self::default() }
    }

    /// Numbers packets, whose body fields are end to end. Returns the first number. The caller keeps the
    /// order in which to send them (`outbox`).
    pub fn push(&mut self, chain: Chain, bodies: Bytes, count: u32, meant_for: Option<MeantFor>) -> u64 {
        let first = self.newest.1 + 1;
        let last = self.newest.1 + u64::from(count);
        let after = match chain {
            _ if Defect::KeepsNoOrder.is_present() => 0,
            Chain::After(before) => before,
            Chain::Control | Chain::Topic(_) => {
                let tail = self.tail(chain);
                tail.outstanding += count;
                std::mem::replace(&mut tail.last, last)
            }
        };
        self.newest.1 = last;
        self.bytes += bodies.len() + count as usize * RECORD_BYTES;
        self.fresh.push_back(Batch { first, count, bodies, chain, after, meant_for, state: State::Waiting });
        first
    }

    /// The size of the next packet to be retransmitted.
    pub fn next_retransmission(&mut self) -> Option<usize> {
        while let Some(&first) = self.to_retransmit.front() {
            let position = self.position_of(first);
            if let Some(batch) = self.sent.get(position)
                && (batch.first, batch.state) == (first, State::Lost)
            {
                return Some(batch.next_len());
            }
            self.to_retransmit.pop_front();
        }
        None
    }

    /// Whether a packet was never sent, and the window has room for it.
    pub fn has_fresh(&self) -> bool {
        !self.fresh.is_empty() && self.room() > 0
    }

    /// The size of that packet.
    pub fn next_fresh(&self) -> Option<usize> {
        self.fresh.front().filter(|_| self.room() > 0).map(Batch::next_len)
    }

    /// The newest delivery that was ever sent.
    pub fn sent(&self) -> u64 {
        self.newest.0
    }

    /// Whether half of the window is unacknowledged.
    pub fn is_half_full(&self) -> bool {
        self.room() <= WINDOW / 2
    }

    /// Puts packets to be retransmitted into a datagram, as long as `admits` allows, which gets the
    /// datagram's length and the packet's. Returns the first and the last number. `None`: there is no packet,
    /// or the first was not admitted. More packets may be left.
    pub fn build_retransmissions(
        &mut self,
        out: &mut Vec<u8>,
        datagram: u64,
        admits: impl FnMut(usize, usize) -> bool,
    ) -> Option<(u64, u64)> {
        self.next_retransmission()?;
        let position = self.position_of(*self.to_retransmit.front()?);
        let batch = self.sent.get_mut(position)?;
        let (built, bytes) = batch.build(out, u32::MAX, admits);
        if built == 0 {
            return None;
        }
        let (first, last) = (batch.first, batch.first + u64::from(built) - 1);
        if built == batch.count {
            batch.state = State::InFlight(datagram);
            self.to_retransmit.pop_front();
        } else {
            let divided = Batch { state: State::InFlight(datagram), ..batch.split_off(built, bytes) };
            self.to_retransmit[0] = batch.first;
            self.sent.insert(position, divided);
        }
        self.retransmits += u64::from(built);
        Some((first, last))
    }

    /// Puts up to `most` packets that were never sent into a datagram, as [`Self::build_retransmissions`]
    /// does.
    pub fn build_new(
        &mut self,
        out: &mut Vec<u8>,
        most: u32,
        datagram: u64,
        admits: impl FnMut(usize, usize) -> bool,
    ) -> Option<(u64, u64)> {
        let room = u32::try_from(self.room()).unwrap_or(u32::MAX);
        let batch = self.fresh.front_mut()?;
        let (built, bytes) = batch.build(out, room.min(most), admits);
        let divided = match built {
            0 => return None,
            _ if built < batch.count => batch.split_off(built, bytes),
            _ => self.fresh.pop_front()?,
        };
        let (first, last) = (divided.first, divided.last());
        self.sent.push_back(Batch { state: State::InFlight(datagram), ..divided });
        self.newest.0 = last;
        Some((first, last))
    }

    /// A datagram that carried the deliveries from `first` to `last` was acknowledged.
    pub fn on_acknowledged(&mut self, first: u64, last: u64) {
        for position in self.position_of(first).. {
            let Some(batch) = self.sent.get_mut(position).filter(|batch| batch.first <= last) else {
                break;
            };
            if std::mem::replace(&mut batch.state, State::Acknowledged) != State::Acknowledged {
                let (chain, count) = (batch.chain, batch.count);
                self.bytes -= std::mem::take(&mut batch.bodies).len() + count as usize * RECORD_BYTES;
                self.shorten(chain, count);
            }
        }
        while let Some(batch) = self.sent.front()
            && batch.state == State::Acknowledged
        {
            self.settled = batch.last();
            self.sent.pop_front();
        }
    }

    /// The datagram `datagram`, which carried them, was lost. (A newer one may carry them, too.)
    pub fn on_lost(&mut self, first: u64, last: u64, datagram: u64) {
        self.repeat(first, last, |state| state == State::InFlight(datagram));
    }

    /// Sends them again if they are unacknowledged, although no datagram was lost.
    pub fn probe(&mut self, first: u64, last: u64) {
        self.repeat(first, last, |state| matches!(state, State::InFlight(_)));
    }

    /// The bytes of the packets that are kept, and of their records.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many packets were retransmitted.
    pub fn retransmits(&self) -> u64 {
        self.retransmits
    }

    /// Whether all deliveries are acknowledged.
    pub fn is_empty(&self) -> bool {
        self.sent.is_empty() && self.fresh.is_empty()
    }

    fn repeat(&mut self, first: u64, last: u64, is_meant: impl Fn(State) -> bool) {
        if Defect::SendsOnce.is_present() {
            return;
        }
        let position = self.position_of(first);
        let batches = self.sent.range_mut(position..).take_while(|batch| batch.first <= last);
        for batch in batches.filter(|batch| is_meant(batch.state)) {
            batch.state = State::Lost;
            self.to_retransmit.push_back(batch.first);
        }
    }

    /// The last delivery, if all are acknowledged.
    pub fn idle_state(&self) -> Option<u64> {
        self.is_empty().then_some(self.settled)
    }

    /// The end of a chain that grows.
    fn tail(&mut self, chain: Chain) -> &mut Tail {
        let newest = self.fresh.back().or(self.sent.back());
        let grows_again = newest.is_some_and(|batch| batch.chain == chain);
        if chain != self.current {
            if !grows_again {
                return self.tails.entry(chain).or_default();
            }
            let tail = self.tails.remove(&chain).unwrap_or_default();
            let (before, before_tail) = (
                std::mem::replace(&mut self.current, chain),
                std::mem::replace(&mut self.current_tail, tail),
            );
            if before_tail.outstanding > 0 {
                self.tails.insert(before, before_tail);
            }
        }
        &mut self.current_tail
    }

    /// `count` more packets of a chain are acknowledged.
    fn shorten(&mut self, chain: Chain, count: u32) {
        if matches!(chain, Chain::After(_)) {
            return;
        }
        if chain == self.current {
            self.current_tail.outstanding -= count;
            if self.current_tail.outstanding == 0 {
                self.current_tail = Tail::default();
            }
        } else if let Entry::Occupied(mut tail) = self.tails.entry(chain) {
            tail.get_mut().outstanding -= count;
            if tail.get().outstanding == 0 {
                tail.remove();
            }
        }
    }

    /// How many more packets the window allows.
    fn room(&self) -> u64 {
        WINDOW.saturating_sub(self.newest.0 - self.settled)
    }

    /// The position in `sent` of the record that begins with this number, or of the next one. Most often it
    /// is the first.
    fn position_of(&self, first: u64) -> usize {
        if first <= self.settled + 1 { 0 } else { self.sent.partition_point(|batch| batch.first < first) }
    }
}

impl Batch {
    /// Puts up to `most` packets into a datagram, as long as they are admitted. Returns their number, and the
    /// bytes of their bodies.
    fn build(
        &self,
        out: &mut Vec<u8>,
        most: u32,
        mut admits: impl FnMut(usize, usize) -> bool,
    ) -> (u32, usize) {
        let mut body = self.body(0, &[]);
        let (mut head, mut taken) = (self.head(0, body), 0);
        for built in 0..self.count.min(most) {
            body = self.body(taken, body);
            // Most often the bodies have one length, and a packet differs from the one before it only in its
            // numbers.
            let is_made = built == 0 || built > 1 && head.count_up(body.len());
            if !is_made {
                head = self.head(built, body);
            }
            if !admits(out.len(), head.packet_len()) {
                return (built, taken);
            }
            head.put(out, body);
            taken += body.len();
        }
        (self.count.min(most), taken)
    }

    /// Splits off the first `count` packets, whose bodies have `bytes` bytes.
    fn split_off(&mut self, count: u32, bytes: usize) -> Self {
        let bodies = self.bodies.split_to(bytes);
        let divided = Self { count, bodies, ..*self };
        (self.after, self.first) = (self.after(count), self.number(count));
        self.count -= count;
        divided
    }

    /// The body field that begins at `start`, most often as long as `like`. (A control packet has several
    /// fields, and a record of its own.)
    #[inline]
    fn body(&self, start: usize, like: &[u8]) -> &[u8] {
        let rest = &self.bodies[start..];
        if self.count == 1 { rest } else { wire::first_field(rest, like) }
    }

    fn head(&self, position: u32, body: &[u8]) -> PacketHead {
        PacketHead::new(self.number(position), self.after(position), self.meant_for, body.len())
    }

    /// The size of the first packet.
    fn next_len(&self) -> usize {
        wire::packet_len(self.first, self.after, self.meant_for, self.body(0, &[]).len())
    }

    fn number(&self, position: u32) -> u64 {
        self.first + u64::from(position)
    }

    fn after(&self, position: u32) -> u64 {
        match position {
            0 => self.after,
            _ if Defect::KeepsNoOrder.is_present() => 0,
            _ => self.number(position) - 1,
        }
    }

    fn last(&self) -> u64 {
        self.first + u64::from(self.count) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(chains: &[Chain]) -> Deliveries {
        let mut deliveries = Deliveries::default();
        for &chain in chains {
            deliveries.push(chain, Bytes::from_static(b"\x7a\x00"), 1, None);
        }
        deliveries
    }

    fn send_fresh(deliveries: &mut Deliveries, datagram: u64) -> Option<u64> {
        deliveries.build_new(&mut Vec::new(), 1, datagram, |_, _| true).map(|(first, _)| first)
    }

    #[test]
    fn each_follows_the_one_before_until_the_whole_chain_is_acknowledged() {
        let mut deliveries = with(&[Chain::Topic(7), Chain::Control, Chain::Topic(7), Chain::Control]);
        let after: Vec<_> = deliveries.fresh.iter().map(|batch| batch.after).collect();
        assert_eq!(after, [0, 0, 1, 2]);
        while send_fresh(&mut deliveries, 1).is_some() {}
        deliveries.on_acknowledged(3, 3);
        deliveries.push(Chain::Topic(7), Bytes::new(), 1, None);
        assert_eq!(deliveries.fresh[0].after, 3, "3 may be held at the receiver: 1 is not acknowledged");
        send_fresh(&mut deliveries, 2);
        deliveries.on_acknowledged(1, 1);
        deliveries.on_acknowledged(5, 5);
        assert!(deliveries.tails.is_empty() && deliveries.current_tail.outstanding == 2);
        deliveries.push(Chain::Topic(7), Bytes::new(), 1, None);
        assert_eq!(deliveries.fresh.back().map(|batch| batch.after), Some(0));
    }

    #[test]
    fn the_window_counts_from_the_oldest_unacknowledged() {
        let mut deliveries = with(&vec![Chain::Control; 5_000]);
        while send_fresh(&mut deliveries, 1).is_some() {}
        assert_eq!(deliveries.sent(), WINDOW);
        deliveries.on_acknowledged(2, 2);
        assert_eq!(deliveries.next_fresh(), None, "1 is still out");
        deliveries.on_acknowledged(1, 1);
        assert_eq!(send_fresh(&mut deliveries, 2), Some(WINDOW + 1));
    }

    #[test]
    fn only_the_newest_carriers_loss_sends_again() {
        let mut deliveries = with(&[Chain::Control]);
        send_fresh(&mut deliveries, 10);
        deliveries.probe(1, 1);
        assert_eq!(send_again(&mut deliveries, 1, 11), [(1, 1)]);
        deliveries.on_lost(1, 1, 10);
        assert_eq!(deliveries.next_retransmission(), None, "datagram 11 carries it still");
        deliveries.on_lost(1, 1, 11);
        assert!(deliveries.next_retransmission().is_some());
        deliveries.on_acknowledged(1, 1);
        assert_eq!(deliveries.next_retransmission(), None, "a late acknowledgement spares the repetition");
        assert!(deliveries.is_empty() && deliveries.bytes() == 0);
    }

    #[test]
    fn numbers_of_every_length_are_counted_up() {
        for length in [7, 14, 21] {
            let mut deliveries =
                Deliveries { newest: ((1 << length) - 5, (1 << length) - 5), ..Deliveries::default() };
            deliveries.settled = deliveries.newest.0;
            let bodies = wire::field_of(b"body").repeat(10);
            let first = deliveries.push(Chain::After(9), bodies.into(), 10, None);
            let (mut built, mut expected) = (Vec::new(), Vec::new());
            deliveries.build_new(&mut built, 10, 1, |_, _| true);
            for number in first..first + 10 {
                let after = if number == first { 9 } else { number - 1 };
                wire::put_packet(&mut expected, number, after, None, &wire::field_of(b"body"));
            }
            assert_eq!(built, expected, "{length} bits");
        }
    }

    #[test]
    fn what_is_queued_together_goes_in_as_many_datagrams_as_it_takes() {
        let (mut together, mut alone) = (Deliveries::default(), Deliveries::default());
        let fields: Vec<Vec<u8>> = (0..10).map(|size| wire::field_of(&vec![7; 3 * size])).collect();
        assert_eq!(together.push(Chain::Topic(1), fields.concat().into(), 10, None), 1);
        for field in &fields {
            alone.push(Chain::Topic(1), field.clone().into(), 1, None);
        }
        assert_eq!(together.bytes(), alone.bytes());
        let mut built: [Vec<u8>; 2] = Default::default();
        for (datagram, portion) in [3, 1, 6].into_iter().enumerate() {
            let mut left = portion;
            let admits = |_, _| {
                left -= 1;
                left >= 0
            };
            together.build_new(&mut built[0], 20, datagram as u64, admits);
            (0..portion).for_each(|_| _ = alone.build_new(&mut built[1], 1, 0, |_, _| true));
        }
        assert_eq!(built[0], built[1]);
        assert_eq!((together.sent(), together.next_fresh()), (10, None));
        together.on_acknowledged(4, 4);
        for (first, last, datagram) in [(5, 10, 2), (4, 4, 1), (1, 3, 7)] {
            together.on_lost(first, last, datagram);
        }
        assert_eq!(send_again(&mut together, 4, 8), [(5, 8), (9, 10)]);
        together.on_lost(5, 8, 8);
        together.on_acknowledged(5, 10);
        assert!(send_again(&mut together, 4, 9).is_empty());
        together.on_acknowledged(1, 3);
        assert!(together.is_empty() && (together.bytes(), together.retransmits()) == (0, 6));
        assert_eq!(together.push(Chain::Topic(1), fields.concat().into(), 10, None), 11);
        assert_eq!(together.fresh[0].after, 0, "the whole chain was acknowledged");
    }

    /// Retransmits what is due, at most `most` packets in a datagram.
    fn send_again(deliveries: &mut Deliveries, most: i32, datagram: u64) -> Vec<(u64, u64)> {
        let mut built = Vec::new();
        loop {
            let mut left = most;
            let admits = |_, _| {
                left -= 1;
                left >= 0
            };
            match deliveries.build_retransmissions(&mut Vec::new(), datagram, admits) {
                Some(range) => built.push(range),
                None => return built,
            }
        }
    }
}
