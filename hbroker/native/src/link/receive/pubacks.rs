//! The PUBACKs that one end of a link has to send (docs/protocol.md §3.3, §7.3).
//!
//! A PUBACK is an unreliable packet that is made again until a datagram that carried it is acknowledged.
//! Successes are runs of delivery numbers; all runs of one kind that are due make one packet. A refusal
//! concerns one delivery, and is repeated unchanged.

use std::collections::VecDeque;

use bytes::Bytes;
use hashbrown::HashMap;

use crate::link::receive::ranges::RangeSet;
use crate::schema::reason;

/// The most runs in the PUBACKs of one datagram: at most 640 bytes.
pub const MOST_RANGES: usize = 32;
/// The most refusals that may wait for their acknowledgement.
const MOST_REFUSALS: usize = 4_096;

/// A successful outcome of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Success {
    /// It was distributed, or the application took it over.
    Done,
    /// It was distributed, and there were no subscribers.
    Unmatched,
}

impl Success {
    pub const ALL: [Self; 2] = [Self::Done, Self::Unmatched];

    /// The reason in its PUBACK.
    pub fn reason(self) -> i32 {
        match self {
            Self::Done => reason::SUCCESS,
            Self::Unmatched => reason::NO_MATCHING_SUBSCRIBERS,
        }
    }
}

/// The PUBACKs that are due, and the refusals that are sent and not acknowledged.
#[derive(Debug)]
pub struct Pubacks {
    /// By `Success`.
    due: [RangeSet; Success::ALL.len()],
    refusals: HashMap<u64, Bytes>,
    refusals_due: VecDeque<u64>,
    refused: u64,
}

impl Pubacks {
    /// No PUBACK is due.
    pub fn new() -> Self {
        Self {
            due: Success::ALL.map(|_| RangeSet::default()),
            refusals: HashMap::new(),
            refusals_due: VecDeque::new(),
            refused: 0,
        }
    }

    /// A success is due, for the first time or because the datagram that carried it was lost.
    pub fn acknowledge(&mut self, success: Success, first: u64, last: u64) {
        self.due[success as usize].insert_range(first, last);
    }

    /// A refusal is due: `body_field` is the PUBACK. False: too many wait.
    pub fn refuse(&mut self, body_field: Bytes) -> bool {
        let has_room = self.refusals.len() < MOST_REFUSALS;
        if has_room {
            self.refused += 1;
            self.refusals.insert(self.refused, body_field);
            self.refusals_due.push_back(self.refused);
        }
        has_room
    }

    /// A refusal is due again, unless it was acknowledged meanwhile.
    pub fn refuse_again(&mut self, refusal: u64) {
        if self.refusals.contains_key(&refusal) && !self.refusals_due.contains(&refusal) {
            self.refusals_due.push_back(refusal);
        }
    }

    /// A datagram that carried the refusal was acknowledged.
    pub fn on_refusal_acknowledged(&mut self, refusal: u64) {
        self.refusals.remove(&refusal);
    }

    /// Takes up to `count` runs for one PUBACK, the lowest first.
    pub fn take_due(&mut self, success: Success, count: usize) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.due[success as usize].take_lowest(count)
    }

    /// The refusal to send next, and its PUBACK.
    pub fn next_refusal(&mut self) -> Option<(u64, &Bytes)> {
        while let Some(&refusal) = self.refusals_due.front() {
            if self.refusals.contains_key(&refusal) {
                return Some((refusal, &self.refusals[&refusal]));
            }
            self.refusals_due.pop_front();
        }
        None
    }

    /// The refusal that `next_refusal` returned was put into a datagram.
    pub fn on_refusal_built(&mut self) {
        self.refusals_due.pop_front();
    }

    /// Whether successes are due.
    pub fn has_due(&self) -> bool {
        self.due.iter().any(|ranges| !ranges.is_empty())
    }

    /// Whether nothing is due and no refusal is unacknowledged. (Successes in flight are not counted.)
    pub fn is_empty(&self) -> bool {
        !self.has_due() && self.refusals.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_merge_and_come_in_bounded_portions() {
        let mut pubacks = Pubacks::new();
        for delivery in [3, 1, 2] {
            pubacks.acknowledge(Success::Done, delivery, delivery);
        }
        assert_eq!(pubacks.take_due(Success::Done, MOST_RANGES).collect::<Vec<_>>(), [(1, 3)]);
        for delivery in 0..100 {
            pubacks.acknowledge(Success::Done, 2 * delivery + 10, 2 * delivery + 10);
        }
        assert_eq!(pubacks.take_due(Success::Done, MOST_RANGES).count(), MOST_RANGES);
        assert!(pubacks.has_due());
    }

    #[test]
    fn a_refusal_is_repeated_until_it_is_acknowledged() {
        let mut pubacks = Pubacks::new();
        assert!(pubacks.refuse(Bytes::from_static(b"no")));
        let (refusal, body) = pubacks.next_refusal().unwrap();
        assert_eq!(body, "no");
        pubacks.on_refusal_built();
        assert!(pubacks.next_refusal().is_none());
        pubacks.refuse_again(refusal);
        pubacks.refuse_again(refusal);
        pubacks.on_refusal_built();
        assert!(pubacks.next_refusal().is_none(), "due once, however often it was found lost");
        pubacks.refuse_again(refusal);
        pubacks.on_refusal_acknowledged(refusal);
        assert!(pubacks.next_refusal().is_none() && pubacks.is_empty());
        pubacks.refuse_again(refusal);
        assert!(pubacks.next_refusal().is_none());
    }

    #[test]
    fn refusals_are_bounded() {
        let mut pubacks = Pubacks::new();
        assert_eq!((0..5_000).filter(|_| pubacks.refuse(Bytes::new())).count(), MOST_REFUSALS);
    }
}
