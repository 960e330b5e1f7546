//! When to acknowledge datagrams (docs/protocol.md §3.2, after RFC 9000 §13.2).
//!
//! At once on the first datagram, a duplicate or a gap; else with the next datagram to the peer, or at the tenth that
//! asks for it, or after 5 ms.

use crate::Micros;
use crate::link::ranges::RangeSet;

/// How long an acknowledgement waits for company.
pub const MAX_ACK_DELAY: Micros = 5_000;
const MOST_UNACKNOWLEDGED: u32 = 10;
/// Runs of numbers remembered: what is older counts as received (RFC 9000 §13.2.3).
const MOST_RUNS: usize = 64;

/// The numbers received from a peer, and when to tell it.
#[derive(Debug)]
pub struct Acks {
    received: RangeSet,
    /// When the highest number came.
    highest_at: Micros,
    /// Datagrams that ask for an acknowledgement and have had none.
    waiting: u32,
    deadline: Option<Micros>,
    is_due: bool,
    duplicates: u64,
}

impl Acks {
    /// Nothing received yet.
    pub fn new() -> Self {
        Self {
            received: RangeSet::new(MOST_RUNS),
            highest_at: 0,
            waiting: 0,
            deadline: None,
            is_due: false,
            duplicates: 0,
        }
    }

    /// Whether a number was received. If so, its sender does not know: the acknowledgement becomes due.
    pub fn is_duplicate(&mut self, number: u64) -> bool {
        let is_known = self.received.contains(number);
        if is_known {
            self.duplicates += 1;
            self.is_due = true;
        }
        is_known
    }

    /// Whether a number is higher than all received.
    pub fn is_newest(&self, number: u64) -> bool {
        self.received
            .highest()
            .is_none_or(|highest| number > highest)
    }

    /// Records that a datagram was received and kept.
    pub fn record(&mut self, now: Micros, number: u64, ack_eliciting: bool) {
        let expected = self
            .received
            .highest()
            .map(|highest| highest.saturating_add(1));
        if self.is_newest(number) {
            self.highest_at = now;
        }
        if !self.received.insert(number) || !ack_eliciting {
            return;
        }
        self.waiting += 1;
        if expected == Some(number) && self.waiting < MOST_UNACKNOWLEDGED {
            self.deadline.get_or_insert(now + MAX_ACK_DELAY);
        } else {
            self.is_due = true;
        }
    }

    /// An acknowledgement of all up to the deadline is due from now on.
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

    /// Whether an acknowledgement must leave now, alone if need be.
    pub fn is_due(&self) -> bool {
        self.is_due
    }

    /// Whether the next datagram should carry an acknowledgement.
    pub fn is_pending(&self) -> bool {
        self.is_due || self.waiting > 0
    }

    /// The numbers to acknowledge, how long ago the highest came, and the highest.
    pub fn received(&self) -> &RangeSet {
        &self.received
    }

    /// How long ago the highest number came.
    pub fn delay(&self, now: Micros) -> Micros {
        now.saturating_sub(self.highest_at)
    }

    /// A datagram with all that is known leaves.
    pub fn on_sent(&mut self) {
        self.waiting = 0;
        self.deadline = None;
        self.is_due = false;
    }

    /// The peer has the acknowledgement up to this number: runs below need not be repeated (RFC 9000 §13.2.4).
    pub fn on_acknowledged(&mut self, through: u64) {
        self.received.forget_below(through);
    }

    /// How many datagrams came again.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_first() -> Acks {
        let mut acks = Acks::new();
        acks.record(0, 1, true);
        assert!(acks.is_due(), "the first is acknowledged at once");
        acks.on_sent();
        acks
    }

    #[test]
    fn waits_for_company_or_five_milliseconds() {
        let mut acks = after_first();
        acks.record(100, 2, true);
        acks.record(200, 3, true);
        assert!(acks.is_pending() && !acks.is_due());
        assert_eq!(acks.deadline(), Some(5_100));
        acks.handle_timeout(5_099);
        assert!(!acks.is_due());
        acks.handle_timeout(5_100);
        assert!(acks.is_due() && acks.deadline().is_none() && acks.delay(5_100) == 4_900);
        acks.on_sent();
        assert!(!acks.is_pending());
    }

    #[test]
    fn the_tenth_a_gap_and_a_duplicate_are_told_at_once() {
        let mut acks = after_first();
        for number in 2..=10 {
            acks.record(0, number, true);
            assert!(!acks.is_due());
        }
        acks.record(0, 11, true);
        assert!(acks.is_due());
        acks.on_sent();
        acks.record(0, 13, true);
        assert!(acks.is_due(), "12 is missing");
        acks.on_sent();
        acks.record(0, 12, true);
        assert!(acks.is_due(), "a gap was filled");
        acks.on_sent();
        assert!(acks.is_duplicate(12) && acks.is_due());
    }

    #[test]
    fn what_asks_for_no_acknowledgement_gets_none() {
        let mut acks = after_first();
        acks.record(0, 2, false);
        assert!(!acks.is_pending() && acks.is_duplicate(2));
    }
}
