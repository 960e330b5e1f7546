//! How much may be retransmitted, so that a receiver that cannot keep up is not flooded with retransmissions.
//!
//! A receiver does not acknowledge what it cannot keep (docs/protocol.md §3.3). Its sender takes that for a
//! loss, and would retransmit all of it in each round trip, thousands of times a second on a short path. The
//! window does not prevent it, because the window only counts what is in flight. So retransmissions need
//! credit:
//!
//! - Every acknowledged byte earns one byte, up to a window, because at most a window can be lost at once.
//! - Time earns ten datagrams a second, so that a link finds out when it may continue.
//!
//! A path that loses half of all datagrams retransmits as much as arrives, and is not slowed down. A path
//! that loses more becomes slower. A receiver that takes nothing costs the first window, and then only what
//! time earns. (Retry budgets of remote calls follow the same rule.) Probes are not counted: their timeout
//! doubles.

use crate::Micros;

/// A byte is earned in this time, whatever is acknowledged: 12,500 a second.
const BYTE_EARNED_IN: Micros = 80;
/// Time earns no more than this.
const MOST_FOR_TIME: i64 = 12_000;

/// The credit of one link for retransmissions. It may be overdrawn by one packet, so that the largest can be
/// sent.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    credit: i64,
    /// Until when time was turned into credit.
    earned_until: Micros,
}

impl Budget {
    /// With credit for a first window.
    pub fn new(window: usize, now: Micros) -> Self {
        Self { credit: bytes(window), earned_until: now }
    }

    /// The packets to be sent again were not refused by the receiver: credit for a window.
    pub fn restore(&mut self, window: usize) {
        self.credit = self.credit.max(bytes(window));
    }

    /// Bytes were acknowledged.
    pub fn on_acknowledged(&mut self, size: usize, window: usize) {
        let most = bytes(window).max(self.credit);
        self.credit = self.credit.saturating_add(bytes(size)).min(most);
    }

    /// When a packet may be retransmitted; `None`: now.
    pub fn next_repetition(&mut self, now: Micros) -> Option<Micros> {
        if self.credit > 0 {
            return None;
        }
        self.earn(now);
        let missing = u64::try_from(1 - self.credit).unwrap_or(0);
        (missing > 0).then(|| self.earned_until + missing * BYTE_EARNED_IN)
    }

    /// A packet of this size is retransmitted.
    pub fn spend(&mut self, now: Micros, size: usize) {
        self.earn(now);
        self.credit = self.credit.saturating_sub(bytes(size));
    }

    fn earn(&mut self, now: Micros) {
        let earned = now.saturating_sub(self.earned_until) / BYTE_EARNED_IN;
        self.earned_until += earned * BYTE_EARNED_IN;
        let most = MOST_FOR_TIME.max(self.credit);
        self.credit = self.credit.saturating_add(i64::try_from(earned).unwrap_or(i64::MAX)).min(most);
    }
}

/// Cannot saturate: sizes are those of packets and windows.
fn bytes(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Micros = 1_000_000;

    /// Retransmits packets of 1,000 bytes whenever allowed; returns their number by the end.
    fn repeated(budget: &mut Budget, from: Micros, until: Micros) -> u64 {
        let (mut now, mut count) = (from, 0);
        while now < until {
            match budget.next_repetition(now) {
                Some(later) => {
                    assert!(later > now);
                    now = later;
                }
                None => {
                    budget.spend(now, 1_000);
                    count += 1;
                }
            }
        }
        count
    }

    #[test]
    fn a_receiver_that_takes_nothing_costs_a_window_and_ten_datagrams_a_second() {
        let mut budget = Budget::new(100_000, 0);
        let count = repeated(&mut budget, 0, 60 * SECOND);
        assert!((840..=860).contains(&count), "100 of the window and 12.5 a second: {count}");
    }

    #[test]
    fn as_much_is_repeated_as_is_acknowledged() {
        let mut budget = Budget::new(12_000, 0);
        repeated(&mut budget, 0, 1);
        (0..50).for_each(|_| budget.on_acknowledged(1_000, 50_000));
        assert!((49..=51).contains(&repeated(&mut budget, 1, 2)));
    }

    #[test]
    fn no_more_than_a_window_is_saved_up() {
        let mut budget = Budget::new(12_000, 0);
        (0..1_000).for_each(|_| budget.on_acknowledged(1_000, 50_000));
        assert_eq!(repeated(&mut budget, 0, 1), 50);
        let later = repeated(&mut budget, 3_600 * SECOND, 3_600 * SECOND + 1);
        assert!((12..=13).contains(&later), "an hour earns ten datagrams: {later}");
    }

    #[test]
    fn the_largest_packet_goes_on_credit() {
        let mut budget = Budget::new(1, 0);
        assert_eq!(budget.next_repetition(0), None);
        budget.spend(0, 65_000);
        let at = budget.next_repetition(0).unwrap();
        assert!((5 * SECOND..6 * SECOND).contains(&at));
        assert_eq!(budget.next_repetition(at), None);
    }
}
