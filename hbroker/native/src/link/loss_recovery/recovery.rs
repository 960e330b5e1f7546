//! The datagrams that are sent and not acknowledged: loss detection and probing as in RFC 9002 §6, for one
//! direction of a link.
//!
//! The contents of a datagram are the caller's, and are given back when it is acknowledged or lost. A
//! datagram is lost once one sent three later is acknowledged, or once 9/8 of a round trip has passed since
//! it was sent and a later one is acknowledged. If no acknowledgement is received at all, a probe asks for
//! one, and the timeout doubles.

use std::collections::VecDeque;
use std::ops::Range;

use crate::Micros;
use crate::link::loss_recovery::congestion::Cubic;
use crate::link::loss_recovery::rtt::{PackedRtt, Probing, RttEstimator};
use crate::link::receive::acks::MAX_ACK_DELAY;
use crate::link::send::pacer::{Pacer, Rate};

/// RFC 9002 §6.1.1, kPacketThreshold.
const PACKET_THRESHOLD: u64 = 3;
/// RFC 9002 §7.6.1, kPersistentCongestionThreshold.
const PERSISTENT_CONGESTION_THRESHOLD: Micros = 3;
/// The most records, so that tiny datagrams take no more memory than the window's bytes would suggest.
const MOST_RECORDS: usize = 65_536;

/// The state of the datagrams in one direction of a link.
#[derive(Debug)]
pub struct Recovery<C> {
    flight: Flight<C>,
    largest_acknowledged: u64,
    /// When the next datagram passes the time threshold.
    loss_deadline: Option<Micros>,
    probing: Probing,
    waiting_since: Option<Micros>,
    first_sample_at: Option<Micros>,
    /// The first number that was sent on this path: datagrams over another path are no measure of this one
    /// (RFC 9000 §9.4).
    path_start: u64,
    rtt: RttEstimator,
    congestion: Cubic,
    pacer: Pacer,
    max_datagram: usize,
    lost: u64,
}

/// The state that is kept while nothing is in flight, or only one datagram that carries nothing.
#[derive(Debug)]
pub struct IdleRecovery {
    /// The last number that is not in flight.
    settled: u64,
    /// `None`: there was no sample on this path.
    rtt: Option<PackedRtt>,
    pacer: Pacer,
    sole_in_flight: Option<SoleInFlight>,
}

/// The only datagram in flight.
#[derive(Debug, Clone, Copy)]
struct SoleInFlight {
    at: Micros,
    size: u32,
    acknowledged_through: u64,
}

impl IdleRecovery {
    /// When a probe for the datagram in flight is due, or when the link ends because it has been silent for
    /// `idle_timeout`.
    pub fn deadline(&self, longest: Micros, idle_timeout: Micros) -> Option<Micros> {
        let SoleInFlight { at, .. } = self.sole_in_flight?;
        let mut probing = Probing::new(longest);
        probing.on_sent(at);
        Some(probing.deadline(self.rtt().probe_timeout(MAX_ACK_DELAY)).min(at + idle_timeout))
    }

    fn rtt(&self) -> RttEstimator {
        self.rtt.map_or_else(RttEstimator::new, RttEstimator::from)
    }
}

/// Whether a datagram may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    Now,
    /// The pacer allows it at this time.
    Later(Micros),
    /// Once a datagram is acknowledged or lost.
    Full,
}

impl<C> Recovery<C> {
    /// `first` is the number of the first datagram. `longest_probe_wait` bounds the doubling of the probe
    /// timeout.
    pub fn new(first: u64, max_datagram: usize, longest_probe_wait: Micros) -> Self {
        Self {
            flight: Flight::after(first - 1),
            largest_acknowledged: 0,
            loss_deadline: None,
            probing: Probing::new(longest_probe_wait),
            waiting_since: None,
            first_sample_at: None,
            path_start: first,
            rtt: RttEstimator::new(),
            congestion: Cubic::new(max_datagram),
            pacer: Pacer::default(),
            max_datagram,
            lost: 0,
        }
    }

    /// As it was when `idle_state` was called, with the controller of its path. `contents` makes the contents
    /// of a datagram that carried nothing, from the highest number that it acknowledged.
    pub fn from_idle_state(
        idle_recovery: &IdleRecovery,
        congestion: Cubic,
        max_datagram: usize,
        longest: Micros,
        contents: impl FnOnce(u64) -> C,
    ) -> Self {
        let rtt = idle_recovery.rtt();
        let mut recovery = Self {
            first_sample_at: rtt.is_measured().then_some(0),
            rtt,
            congestion,
            pacer: idle_recovery.pacer,
            ..Self::new(idle_recovery.settled + 1, max_datagram, longest)
        };
        if let Some(SoleInFlight { at, size, acknowledged_through }) = idle_recovery.sole_in_flight {
            let contents = contents(acknowledged_through);
            recovery.flight.begin(Sent { at, size: size as usize, is_mtu_probe: false, contents });
            recovery.probing.on_sent(at);
            recovery.waiting_since = Some(at);
        }
        recovery
    }

    /// Records the datagram `next_number`.
    pub fn on_sent(&mut self, sent: Sent<C>) {
        let (now, size) = (sent.at, sent.weight());
        self.flight.begin(sent);
        self.pacer.on_sent(now, self.rate(), size);
        self.probing.on_sent(now);
        self.waiting_since.get_or_insert(now);
    }

    /// Handles an acknowledgement: the largest number, the inclusive ranges from the highest down, and how
    /// long the peer delayed it. All of these numbers were sent.
    pub fn on_acknowledgement(
        &mut self,
        now: Micros,
        largest: u64,
        ranges: impl Iterator<Item = (u64, u64)>,
        delay: Micros,
        mut acknowledged: impl FnMut(&Sent<C>),
    ) {
        debug_assert!(largest < self.next_number());
        let outstanding = self.flight.outstanding();
        let first = self.flight.numbers().start;
        for (low, high) in ranges {
            for number in low.max(first)..=high {
                let Some(sent) = self.flight.get(number) else {
                    continue;
                };
                let (sent_at, weight) = (sent.at, sent.weight());
                acknowledged(sent);
                self.flight.discard(number);
                if number >= self.path_start {
                    if number == largest {
                        self.take_sample(now, sent_at, delay.min(MAX_ACK_DELAY));
                    }
                    self.congestion.on_acknowledged(now, sent_at, weight, self.rtt.smoothed());
                }
            }
            if low < first {
                break;
            }
        }
        self.largest_acknowledged = self.largest_acknowledged.max(largest);
        if self.flight.outstanding() < outstanding {
            self.probing.reset();
            self.waiting_since = (self.flight.outstanding() > 0).then_some(now);
        }
        self.flight.forget_ended();
    }

    /// Calls `lost` with the number and the record of each datagram that counts as lost by now.
    pub fn detect_lost(&mut self, now: Micros, mut lost: impl FnMut(u64, Sent<C>)) {
        self.loss_deadline = None;
        let delay = self.rtt.loss_delay();
        let (mut newest, mut run_start, mut is_persistent) = (None, None, false);
        for number in self.flight.numbers().start..self.largest_acknowledged {
            let Some(at) = self.flight.get(number).map(|sent| sent.at) else {
                run_start = None;
                continue;
            };
            if number + PACKET_THRESHOLD > self.largest_acknowledged && at + delay > now {
                self.loss_deadline = Some(at + delay);
                break;
            }
            let Some(sent) = self.flight.end(number) else {
                continue;
            };
            self.lost += u64::from(!sent.is_mtu_probe);
            if sent.is_mtu_probe || number < self.path_start {
                lost(number, sent);
                continue;
            }
            newest = Some(at);
            let start = *run_start.get_or_insert(at);
            is_persistent |= at - start > self.persistent_period()
                && self.first_sample_at.is_some_and(|sampled_at| sampled_at < start);
            lost(number, sent);
        }
        if let Some(sent_at) = newest {
            self.congestion.on_lost(now, sent_at);
        }
        if is_persistent {
            self.congestion.on_persistent_congestion();
            self.rtt.forget_least();
        }
        self.flight.forget_ended();
        if self.flight.outstanding() == 0 {
            self.waiting_since = None;
        }
    }

    /// The number of consecutive probe timeouts without an acknowledgement.
    pub fn unanswered(&self) -> u32 {
        self.probing.unanswered()
    }

    /// The path carries datagrams of this size.
    pub fn set_max_datagram(&mut self, max_datagram: usize) {
        self.max_datagram = max_datagram;
        self.congestion.set_max_datagram(max_datagram);
    }

    /// Whether the probe timeout is over: then a probe has to be sent, whatever the window allows.
    pub fn is_probe_due(&mut self, now: Micros) -> bool {
        let is_due =
            self.loss_deadline.is_none() && self.probe_deadline().is_some_and(|deadline| deadline <= now);
        if is_due {
            self.probing.on_timeout(now);
        }
        is_due
    }

    /// Calls `lost` for every datagram, although none is lost: the peer has answered that it knows none of
    /// them.
    pub fn abandon(&mut self, mut lost: impl FnMut(u64, C)) {
        for number in self.flight.numbers() {
            if let Some(sent) = self.flight.end(number) {
                lost(number, sent.contents);
            }
        }
        self.flight.forget_ended();
        self.loss_deadline = None;
        self.probing.reset();
    }

    /// The path is new: its round-trip time and its capacity are unknown (RFC 9000 §9.4).
    pub fn reset_path(&mut self) {
        self.rtt = RttEstimator::new();
        self.congestion = Cubic::new(self.max_datagram);
        self.pacer = Pacer::default();
        self.first_sample_at = None;
        self.path_start = self.next_number();
        self.probing.reset();
    }

    /// The sender stopped because it may send no more (true), or because it had nothing more to send. If the
    /// pacer is the reason, that counts only while the sender uses half of the window, because it may have
    /// had no more than a burst (RFC 9002 §7.8).
    pub fn set_window_limited(&mut self, is_limited: bool) {
        let allowance = self.congestion.allowance(self.in_flight());
        let is_used = self.in_flight() >= allowance || allowance < self.max_datagram;
        self.congestion.set_limiting(is_limited && is_used);
    }

    /// Whether a datagram of `size` bytes may be sent. If none is in flight, a datagram larger than the
    /// window may be sent.
    pub fn admit(&self, now: Micros, size: usize) -> Admission {
        if self.in_flight() == 0 {
            return Admission::Now;
        }
        if size > self.congestion.allowance(self.in_flight()) || self.flight.records() >= MOST_RECORDS {
            return Admission::Full;
        }
        self.pacer
            .next_departure(now, self.rate(), self.max_datagram)
            .map_or(Admission::Now, Admission::Later)
    }

    /// When `detect_lost` or `is_probe_due` has to be called next.
    pub fn deadline(&self) -> Option<Micros> {
        self.loss_deadline.or_else(|| self.probe_deadline())
    }

    /// When the last acknowledgement was received or, if that is later, when waiting for one began. `None`:
    /// nothing is outstanding.
    pub fn waiting_since(&self) -> Option<Micros> {
        self.waiting_since
    }

    /// The number of the next datagram.
    pub fn next_number(&self) -> u64 {
        self.flight.numbers().end
    }

    /// The contents of the oldest datagrams in flight.
    pub fn oldest(&self, count: usize) -> impl Iterator<Item = &C> {
        self.flight.oldest(count)
    }

    /// The bytes that are sent, and neither acknowledged nor lost.
    pub fn in_flight(&self) -> usize {
        self.flight.bytes()
    }

    /// The congestion window, in bytes.
    pub fn window(&self) -> usize {
        self.congestion.window()
    }

    /// The smoothed round-trip time; an initial value until the first sample.
    pub fn rtt(&self) -> Micros {
        self.rtt.smoothed()
    }

    /// The idle state, apart from `congestion`. `None`: more is in flight, or is waited for. `through`: the
    /// highest number that a datagram acknowledged, if it carried nothing.
    pub fn idle_state(&self, through: impl FnOnce(&C) -> Option<u64>) -> Option<IdleRecovery> {
        let sole_in_flight = match self.flight.records() {
            0 if self.waiting_since.is_none() && self.probing.unanswered() == 0 => None,
            1 => {
                let sent = self.flight.only().filter(|sent| !sent.is_mtu_probe)?;
                let is_first = self.waiting_since == Some(sent.at) && self.probing.waits_from(sent.at);
                let is_of_path = self.flight.numbers().start >= self.path_start;
                let size = u32::try_from(sent.size).ok().filter(|_| is_first && is_of_path)?;
                Some(SoleInFlight { at: sent.at, size, acknowledged_through: through(&sent.contents)? })
            }
            _ => return None,
        };
        let rtt = self.rtt.packed();
        (self.loss_deadline.is_none() && rtt.is_some() == self.rtt.is_measured()).then(|| IdleRecovery {
            settled: self.flight.numbers().start - 1,
            rtt,
            pacer: self.pacer,
            sole_in_flight,
        })
    }

    /// The congestion controller of the path.
    pub fn congestion(&self) -> &Cubic {
        &self.congestion
    }

    /// How many datagrams were lost.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn probe_deadline(&self) -> Option<Micros> {
        let timeout = self.rtt.probe_timeout(MAX_ACK_DELAY);
        (self.flight.outstanding() > 0).then(|| self.probing.deadline(timeout))
    }

    fn rate(&self) -> Rate {
        Rate { window: self.congestion.window(), round_trip: self.rtt.smoothed() }
    }

    fn take_sample(&mut self, now: Micros, sent_at: Micros, delay: Micros) {
        let round_trip = now.saturating_sub(sent_at);
        if self.first_sample_at.is_none() {
            self.first_sample_at = Some(now);
            // The datagrams sent so far were paced at the rate of the initial estimate. On a faster path the
            // next ones would have to wait for that.
            self.pacer = Pacer::default();
        }
        self.rtt.sample(round_trip, delay);
        self.congestion.on_round_trip(now, sent_at, round_trip.saturating_sub(delay));
    }

    fn persistent_period(&self) -> Micros {
        self.rtt.probe_timeout(MAX_ACK_DELAY) * PERSISTENT_CONGESTION_THRESHOLD
    }
}

/// The datagrams in flight: a record of each numbered one, until it is acknowledged or lost. Numbers are
/// consecutive, so the records are one queue, indexed by number. A record that ended out of order leaves a gap
/// until all before it have ended.
#[derive(Debug)]
pub struct Flight<C> {
    /// Numbers up to here are acknowledged or lost: the first record's number, less one.
    settled: u64,
    records: VecDeque<Option<Sent<C>>>,
    outstanding: usize,
    /// Without probes of the datagram size.
    bytes: usize,
}

/// A datagram in flight.
#[derive(Debug)]
pub struct Sent<C> {
    pub at: Micros,
    pub size: usize,
    /// It probes whether the path carries its size: its loss is no sign of congestion (RFC 9000 §14.4).
    pub is_mtu_probe: bool,
    pub contents: C,
}

impl<C> Sent<C> {
    /// The bytes that it takes of the congestion window. A probe of the datagram size is sent outside of the
    /// window (RFC 8899 §3), and takes nothing of it. Otherwise a large probe would stop a link with a small
    /// window until the probe is found lost.
    pub fn weight(&self) -> usize {
        if self.is_mtu_probe { 0 } else { self.size }
    }
}

impl<C> Default for Flight<C> {
    fn default() -> Self {
        Self { settled: 0, records: VecDeque::new(), outstanding: 0, bytes: 0 }
    }
}

impl<C> Flight<C> {
    /// Datagrams up to this one were sent, and none is in flight.
    pub fn after(settled: u64) -> Self {
        Self { settled, ..Self::default() }
    }

    /// Records the datagram `next_number`.
    pub fn begin(&mut self, sent: Sent<C>) {
        self.outstanding += 1;
        self.bytes += sent.weight();
        self.records.push_back(Some(sent));
    }

    /// Ends a datagram's flight. `None`: it is not in flight. Call `forget_ended` after the last one of a
    /// batch.
    pub fn end(&mut self, number: u64) -> Option<Sent<C>> {
        let index = self.index(number)?;
        let sent = self.records.get_mut(index)?.take()?;
        self.outstanding -= 1;
        self.bytes -= sent.weight();
        Some(sent)
    }

    /// The same, for a caller that has seen the record: it is not moved.
    pub fn discard(&mut self, number: u64) {
        if let Some(record) = self.index(number).and_then(|index| self.records.get_mut(index))
            && let Some(sent) = record
        {
            self.outstanding -= 1;
            self.bytes -= sent.weight();
            *record = None;
        }
    }

    /// Removes the records before the oldest datagram in flight.
    pub fn forget_ended(&mut self) {
        while let Some(None) = self.records.front() {
            self.records.pop_front();
            self.settled += 1;
        }
    }

    /// The record of a datagram in flight.
    pub fn get(&self, number: u64) -> Option<&Sent<C>> {
        self.records.get(self.index(number)?)?.as_ref()
    }

    /// The contents of the oldest datagrams in flight.
    pub fn oldest(&self, count: usize) -> impl Iterator<Item = &C> {
        self.records.iter().flatten().take(count).map(|sent| &sent.contents)
    }

    /// The numbers that have records: none before is in flight, none after was sent.
    pub fn numbers(&self) -> Range<u64> {
        self.settled + 1..self.settled + 1 + self.records.len() as u64
    }

    /// The only record. `None`: there is none, or there are more.
    pub fn only(&self) -> Option<&Sent<C>> {
        match self.records.len() {
            1 => self.records.front()?.as_ref(),
            _ => None,
        }
    }

    /// The number of records: of datagrams in flight, and of ended ones between them.
    pub fn records(&self) -> usize {
        self.records.len()
    }

    /// How many datagrams are in flight.
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// The bytes in flight, without probes of the datagram size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn index(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.settled + 1)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Micros = 1_500_000;

    fn datagram(at: Micros, number: u64) -> Sent<u64> {
        Sent { at, size: 1_000, is_mtu_probe: false, contents: number }
    }

    fn sent(count: u64, interval: Micros) -> Recovery<u64> {
        let mut recovery = Recovery::new(1, 1_200, LONGEST);
        for number in 1..=count {
            recovery.on_sent(datagram(number * interval, number));
        }
        recovery
    }

    /// Acknowledges ranges, highest first; returns what was acknowledged.
    fn acknowledge(recovery: &mut Recovery<u64>, now: Micros, ranges: &[(u64, u64)]) -> Vec<u64> {
        let mut acknowledged = Vec::new();
        recovery.on_acknowledgement(now, ranges[0].1, ranges.iter().copied(), 0, |sent| {
            acknowledged.push(sent.contents);
        });
        acknowledged
    }

    fn lost(recovery: &mut Recovery<u64>, now: Micros) -> Vec<u64> {
        let mut lost = Vec::new();
        recovery.detect_lost(now, |_, sent| lost.push(sent.contents));
        lost
    }

    #[test]
    fn three_later_ones_make_a_loss() {
        let mut recovery = sent(5, 10);
        assert_eq!(acknowledge(&mut recovery, 20_000, &[(3, 4)]), [3, 4]);
        assert_eq!(lost(&mut recovery, 20_000), [1]);
        assert_eq!(recovery.in_flight(), 2_000);
        assert_eq!(recovery.lost(), 1);
    }

    #[test]
    fn a_lost_try_of_a_size_is_no_congestion() {
        let mut recovery = Recovery::new(1, 1_200, LONGEST);
        for number in 1..=5 {
            recovery.on_sent(Sent { is_mtu_probe: number == 1, ..datagram(number * 10, number) });
        }
        assert_eq!(recovery.in_flight(), 4_000, "it takes nothing of the window");
        acknowledge(&mut recovery, 20_000, &[(2, 5)]);
        let window = recovery.window();
        assert_eq!((lost(&mut recovery, 20_000), recovery.lost(), recovery.window()), (vec![1], 0, window));
    }

    #[test]
    fn time_makes_a_loss_and_the_deadline_says_when() {
        let mut recovery = sent(2, 10);
        acknowledge(&mut recovery, 20_020, &[(2, 2)]);
        assert!(lost(&mut recovery, 20_020).is_empty());
        let deadline = recovery.deadline().unwrap();
        assert_eq!(deadline, 10 + 20_000 + 2_500);
        assert!(lost(&mut recovery, deadline - 1).is_empty());
        assert_eq!(lost(&mut recovery, deadline), [1]);
        assert_eq!((recovery.deadline(), recovery.in_flight()), (None, 0));
    }

    #[test]
    fn probes_wait_twice_as_long_each_time_up_to_the_bound() {
        let mut recovery = sent(1, 10);
        let mut waits = Vec::new();
        let mut now = 10;
        for _ in 0..6 {
            let deadline = recovery.deadline().unwrap();
            assert!(!recovery.is_probe_due(deadline - 1) && recovery.is_probe_due(deadline));
            waits.push(deadline - now);
            now = deadline;
        }
        assert_eq!(waits, [305_000, 610_000, 1_220_000, LONGEST, LONGEST, LONGEST]);
        assert_eq!(recovery.waiting_since(), Some(10));
        acknowledge(&mut recovery, now, &[(1, 1)]);
        assert_eq!((recovery.deadline(), recovery.waiting_since()), (None, None));
    }

    #[test]
    fn what_was_acknowledged_before_is_ignored() {
        let mut recovery = sent(2, 10);
        assert_eq!(acknowledge(&mut recovery, 100, &[(0, 2)]), [1, 2]);
        assert!(acknowledge(&mut recovery, 100, &[(0, 2)]).is_empty());
    }

    #[test]
    fn a_long_run_of_losses_is_persistent_congestion() {
        let mut recovery = sent(1, 10);
        acknowledge(&mut recovery, 1_010, &[(1, 1)]);
        for number in 2..=10 {
            recovery.on_sent(datagram(number * 100_000, number));
        }
        acknowledge(&mut recovery, 1_001_000, &[(10, 10)]);
        assert_eq!(lost(&mut recovery, 1_001_000).len(), 8);
        assert_eq!(recovery.window(), 2_400);
    }

    #[test]
    fn a_guessed_round_trip_holds_nothing_up_once_it_is_measured() {
        let mut recovery = Recovery::new(1, 1_200, LONGEST);
        let at_once = |recovery: &mut Recovery<u64>, now| {
            let mut count = 0;
            while recovery.admit(now, 1_200) == Admission::Now {
                let number = recovery.next_number();
                recovery.on_sent(Sent { at: now, size: 1_200, is_mtu_probe: false, contents: number });
                count += 1;
            }
            count
        };
        assert_eq!(at_once(&mut recovery, 1_000), 10);
        acknowledge(&mut recovery, 1_400, &[(1, 1)]);
        assert_eq!(at_once(&mut recovery, 1_400), 1, "the window has room for it");
        acknowledge(&mut recovery, 6_800, &[(2, 11)]);
        assert_eq!(at_once(&mut recovery, 6_800), 10);
    }

    #[test]
    fn what_is_abandoned_does_not_shrink_the_window() {
        let mut recovery = sent(3, 10);
        let mut abandoned = Vec::new();
        recovery.abandon(|_, number| abandoned.push(number));
        assert_eq!((abandoned, recovery.in_flight(), recovery.window()), (vec![1, 2, 3], 0, 12_000));
        assert_eq!((recovery.next_number(), recovery.deadline()), (4, None));
        assert_eq!(recovery.waiting_since(), Some(10), "the peer still owes an acknowledgement");
    }

    fn flight_of(count: u64) -> Flight<u64> {
        let mut flight = Flight::default();
        for number in 1..=count {
            let size = usize::try_from(number).unwrap();
            flight.begin(Sent { at: 0, size, is_mtu_probe: false, contents: number });
        }
        flight
    }

    #[test]
    fn what_ended_out_of_order_is_kept_until_all_before_it_ended() {
        let mut flight = flight_of(4);
        for (number, numbers) in [(2, 1..5), (1, 3..5), (4, 3..5), (3, 5..5)] {
            assert_eq!(flight.end(number).map(|sent| sent.contents), Some(number));
            flight.forget_ended();
            assert_eq!(flight.numbers(), numbers);
        }
        assert_eq!((flight.records(), flight.outstanding(), flight.bytes()), (0, 0, 0));
    }

    #[test]
    fn a_flight_ends_once() {
        let mut flight = flight_of(3);
        for number in [0, 4, u64::MAX] {
            assert!(flight.end(number).is_none() && flight.get(number).is_none(), "{number} was never sent");
        }
        assert!(flight.end(2).is_some() && flight.end(2).is_none() && flight.get(2).is_none());
        assert_eq!((flight.records(), flight.outstanding(), flight.bytes()), (3, 2, 1 + 3));
        assert_eq!(flight.oldest(2).copied().collect::<Vec<_>>(), [1, 3]);
    }
}
