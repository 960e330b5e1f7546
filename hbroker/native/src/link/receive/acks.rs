//! When to acknowledge datagrams (docs/protocol.md §3.2, after RFC 9000 §13.2).
//!
//! The first datagram, a duplicate and a gap are acknowledged at once. Others are acknowledged with the next
//! datagram to the peer, at the tenth that asks for it, once a first window of bytes was received, or after 5
//! ms. A peer whose window is far from full asks for fewer acknowledgements: each is a datagram, too, and
//! costs as much as a bundle. After a gap the peer's window may be small, and the peer may have to wait for
//! an acknowledgement. So every second datagram is acknowledged then (RFC 9000 §13.2.2).

use crate::Micros;
use crate::link::receive::ranges::RangeSet;

/// The longest time for which an acknowledgement waits for other packets to be sent with.
pub const MAX_ACK_DELAY: Micros = 5_000;
/// When it is sent alone: earlier by the lateness of a worker's timer (`endpoint/socket/sleeper.rs`; RFC 9000
/// §13.2.1).
const HOLD_OFF: Micros = MAX_ACK_DELAY - 1_000;
const USUAL: u32 = 10;
/// A peer may ask for at least one acknowledgement for this number of datagrams, which fits one byte.
const MOST: u32 = 127;
/// A window has fewer of larger datagrams, so this number of bytes counts as one.
const BYTES: usize = 1_200;
/// RFC 9000 §13.2.2: at least every second one, while the path loses.
const MOST_UNACKNOWLEDGED_AFTER_GAP: u32 = 2;
/// For how many datagrams a gap is remembered. If CUBIC keeps a window at one loss in this number of
/// datagrams, the window is larger than twenty.
const GAP_REMEMBERED: u32 = 256;
/// How many runs of numbers are remembered: older numbers count as received (RFC 9000 §13.2.3).
const MOST_RANGES: usize = 64;

/// The numbers received from a peer, and when to acknowledge them.
#[derive(Debug)]
pub struct Acks {
    received: RangeSet,
    /// When the highest number was received.
    highest_at: Micros,
    /// Datagrams that ask for an acknowledgement and have had none.
    waiting: u32,
    waiting_bytes: usize,
    /// How many datagrams the peer lets pass unacknowledged.
    every: u32,
    /// How many more datagrams are acknowledged sooner because of a gap.
    after_gap: u32,
    deadline: Option<Micros>,
    is_due: bool,
}

/// The state that is kept while nothing has to be acknowledged and nothing is missing.
#[derive(Debug, Clone, Copy)]
pub struct IdleAcks {
    floor: u64,
    run: (u64, u64),
    highest_at: Micros,
    after_gap: u32,
}

/// How many datagrams the peer may leave unacknowledged, if `in_flight` bytes of the window `window` are in
/// flight; 0: the usual number. `datagram` is the size of a full one.
///
/// While a window is less than three quarters full, acknowledgements may wait for this part of it, because
/// its sender need not wait; or for less if another datagram would not fit then. A fuller window is
/// acknowledged as usual. A sender that fills a path should send in even steps; if the steps grew with the
/// window, it would share the path less fairly.
pub fn ask(window: usize, in_flight: usize, datagram: usize) -> u32 {
    let most = (window - window / 4).min(window.saturating_sub(datagram));
    let datagrams = u32::try_from(most / BYTES).unwrap_or(MOST).min(MOST);
    if in_flight < most && datagrams > USUAL { datagrams } else { 0 }
}

impl Acks {
    /// As it was when `idle_state` was called.
    pub fn from_idle_state(idle_acks: IdleAcks) -> Self {
        let IdleAcks { floor, run, highest_at, after_gap } = idle_acks;
        Self { received: RangeSet::with_range(MOST_RANGES, floor, run), highest_at, after_gap, ..Self::new() }
    }

    /// Nothing was received yet.
    pub fn new() -> Self {
        Self {
            received: RangeSet::new(MOST_RANGES),
            highest_at: 0,
            waiting: 0,
            waiting_bytes: 0,
            every: USUAL,
            after_gap: 0,
            deadline: None,
            is_due: false,
        }
    }

    /// Whether a number was received before. If it was, the sender may have missed the acknowledgement, so
    /// another becomes due.
    pub fn is_duplicate(&mut self, number: u64) -> bool {
        let is_known = self.received.contains(number);
        if is_known {
            self.is_due = true;
        }
        is_known
    }

    /// Whether a number is higher than all received ones.
    pub fn is_newest(&self, number: u64) -> bool {
        self.received.highest().is_none_or(|highest| number > highest)
    }

    /// The peer asks for an acknowledgement of this number of datagrams; 0: the usual number.
    pub fn set_every(&mut self, datagrams: u32) {
        self.every = datagrams.clamp(USUAL, MOST);
    }

    /// Records that a datagram of `size` bytes was received and kept.
    pub fn record(&mut self, now: Micros, number: u64, size: usize, ack_eliciting: bool) {
        let expected = self.received.highest().map(|highest| highest.saturating_add(1));
        if self.is_newest(number) {
            self.highest_at = now;
        }
        if !self.received.insert(number) || !ack_eliciting {
            return;
        }
        self.waiting += 1;
        self.waiting_bytes += size;
        let is_next = expected == Some(number);
        if !is_next && expected.is_some() {
            self.after_gap = GAP_REMEMBERED;
        }
        if is_next
            && self.waiting < self.most_unacknowledged()
            && self.waiting_bytes < self.every as usize * BYTES
        {
            self.deadline.get_or_insert(now + HOLD_OFF);
        } else {
            self.is_due = true;
        }
        self.after_gap = self.after_gap.saturating_sub(1);
    }

    /// If the deadline is over, an acknowledgement is due from now on.
    pub fn handle_timeout(&mut self, now: Micros) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.deadline = None;
            self.is_due = true;
        }
    }

    /// When to call `handle_timeout`.
    pub fn deadline(&self) -> Option<Micros> {
        if self.is_due { None } else { self.deadline }
    }

    /// Whether an acknowledgement has to be sent now, alone if necessary.
    pub fn is_due(&self) -> bool {
        self.is_due
    }

    /// Whether the next datagram should carry an acknowledgement.
    pub fn is_pending(&self) -> bool {
        self.is_due || self.waiting > 0
    }

    /// The idle state. `None`: an acknowledgement has to be sent, or a number is missing.
    pub fn idle_state(&self) -> Option<IdleAcks> {
        let (floor, run) = self.received.only_range().filter(|_| !self.is_pending())?;
        Some(IdleAcks { floor, run, highest_at: self.highest_at, after_gap: self.after_gap })
    }

    /// The numbers to acknowledge.
    pub fn received(&self) -> &RangeSet {
        &self.received
    }

    /// How long ago the highest number was received.
    pub fn delay(&self, now: Micros) -> Micros {
        now.saturating_sub(self.highest_at)
    }

    /// A datagram with all these numbers was sent.
    pub fn on_sent(&mut self) {
        self.waiting = 0;
        self.waiting_bytes = 0;
        self.deadline = None;
        self.is_due = false;
    }

    /// An acknowledgement is due now, because the peer cannot have received the earlier ones.
    pub fn repeat(&mut self) {
        self.is_due = self.received.highest().is_some();
    }

    /// The peer has the acknowledgement up to this number: lower runs need not be repeated (RFC 9000
    /// §13.2.4).
    pub fn on_acknowledged(&mut self, through: u64) {
        self.received.forget_below(through);
    }

    fn most_unacknowledged(&self) -> u32 {
        if self.after_gap > 0 { MOST_UNACKNOWLEDGED_AFTER_GAP } else { self.every }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_first() -> Acks {
        let mut acks = Acks::new();
        acks.record(0, 1, 1_200, true);
        assert!(acks.is_due(), "the first is acknowledged at once");
        acks.on_sent();
        acks
    }

    #[test]
    fn waits_for_company_and_leaves_within_five_milliseconds() {
        let mut acks = after_first();
        acks.record(100, 2, 1_200, true);
        acks.record(200, 3, 1_200, true);
        assert!(acks.is_pending() && !acks.is_due());
        assert_eq!(acks.deadline(), Some(4_100));
        acks.handle_timeout(4_099);
        assert!(!acks.is_due());
        acks.handle_timeout(4_100);
        assert!(acks.is_due() && acks.deadline().is_none() && acks.delay(4_100) == 3_900);
        acks.on_sent();
        assert!(!acks.is_pending());
    }

    #[test]
    fn the_tenth_a_gap_and_a_duplicate_are_told_at_once() {
        let mut acks = after_first();
        for number in 2..=10 {
            acks.record(0, number, 1_200, true);
            assert!(!acks.is_due());
        }
        acks.record(0, 11, 1_200, true);
        assert!(acks.is_due());
        acks.on_sent();
        acks.record(0, 13, 1_200, true);
        assert!(acks.is_due(), "12 is missing");
        acks.on_sent();
        acks.record(0, 12, 1_200, true);
        assert!(acks.is_due(), "a gap was filled");
        acks.on_sent();
        assert!(acks.is_duplicate(12) && acks.is_due());
    }

    #[test]
    fn after_a_gap_every_second_one_is_told_for_a_while() {
        let mut acks = after_first();
        acks.record(0, 3, 1_200, true);
        acks.on_sent();
        let acknowledged = |acks: &mut Acks, numbers: std::ops::RangeInclusive<u64>| {
            let mut acknowledged = 0;
            for number in numbers {
                acks.record(0, number, 1_000, true);
                if acks.is_due() {
                    acknowledged += 1;
                    acks.on_sent();
                }
            }
            acknowledged
        };
        assert_eq!(acknowledged(&mut acks, 4..=257), 127);
        assert_eq!(acknowledged(&mut acks, 258..=357), 10);
    }

    #[test]
    fn a_peer_may_ask_for_fewer_and_after_a_gap_gets_more() {
        for (asked, every) in [(0, 10), (3, 10), (25, 25), (127, 127), (1_000, 127)] {
            let mut acks = after_first();
            acks.set_every(asked);
            let due = (2..).find(|&number| {
                acks.record(0, number, 1_000, true);
                acks.is_due()
            });
            assert_eq!(due, Some(1 + every), "{asked}");
            acks.on_sent();
            acks.record(0, 3 + every, 1_000, true);
            acks.on_sent();
            acks.record(0, 4 + every, 1_000, true);
            assert!(!acks.is_due());
            acks.record(0, 5 + every, 1_000, true);
            assert!(acks.is_due());
        }
    }

    #[test]
    fn a_sender_asks_for_so_few_that_its_window_does_not_fill() {
        let of = |window, in_flight| ask(window, in_flight, 1_200);
        assert_eq!([of(14_720, 0), of(14_720, 14_720)], [0, 0], "a first window");
        assert_eq!([of(40_000, 0), of(40_000, 29_999), of(40_000, 30_000)], [25, 25, 0]);
        assert_eq!([of(1 << 20, 0), of(1 << 20, 786_431), of(1 << 20, 786_432)], [127, 127, 0]);
        for datagram in [1_200, 1_472, 8_952, 65_507] {
            for window in (2 * datagram..400_000).step_by(977) {
                let acknowledged = (ask(window, 0, datagram) as usize * BYTES).div_ceil(datagram) * datagram;
                assert!(acknowledged <= window, "{window} of {datagram}: told after {acknowledged}");
            }
        }
    }

    #[test]
    fn a_first_window_of_bytes_is_told_at_once() {
        let mut acks = after_first();
        acks.record(0, 2, 8_952, true);
        assert!(!acks.is_due());
        acks.record(0, 3, 8_952, true);
        assert!(acks.is_due());
    }

    #[test]
    fn what_asks_for_no_acknowledgement_gets_none() {
        let mut acks = after_first();
        acks.record(0, 2, 1_200, false);
        assert!(!acks.is_pending() && acks.is_duplicate(2));
    }
}
