//! What each delivery of one direction of a link stands for, until the peer's PUBACK settles it (§7.3).
//!
//! Delivery numbers rise without gaps, so the ledger is a queue that starts at the oldest open entry; a delivery that needs no
//! PUBACK (a control packet) takes no place of its own.

use std::collections::VecDeque;

/// What a delivery stands for: at an owner a copy of a message that `worker` took over, at a client a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub worker: u8,
    pub key: u32,
}

/// Open entries by delivery number.
#[derive(Default)]
pub struct Ledger {
    first: u64,
    entries: VecDeque<Option<Ticket>>,
    open: usize,
}

impl Ledger {
    /// Opens an entry. Deliveries must come in rising order.
    pub fn open(&mut self, delivery: u64, ticket: Ticket) {
        if self.entries.is_empty() {
            self.first = delivery;
        }
        let next = self.first + self.entries.len() as u64;
        debug_assert!(delivery >= next, "deliveries rise");
        for _ in next..delivery {
            self.entries.push_back(None);
        }
        self.entries.push_back(Some(ticket));
        self.open += 1;
    }

    /// Settles an entry; `None` where it is not open (settled before, or never there).
    pub fn settle(&mut self, delivery: u64) -> Option<Ticket> {
        let index = usize::try_from(delivery.checked_sub(self.first)?).ok()?;
        let entry = self.entries.get_mut(index)?.take()?;
        self.open -= 1;
        while let Some(None) = self.entries.front() {
            self.entries.pop_front();
            self.first += 1;
        }
        Some(entry)
    }

    /// The part of a peer's range that can be open at all: what a liar may make us walk is bounded by what we sent.
    pub fn within(&self, first: u64, last: u64) -> std::ops::RangeInclusive<u64> {
        let end = self.first + self.entries.len() as u64;
        if self.entries.is_empty() || last < self.first || first >= end {
            #[allow(clippy::reversed_empty_ranges)]
            return 1..=0;
        }
        first.max(self.first)..=last.min(end - 1)
    }

    /// Takes every open entry, oldest first.
    pub fn take_all(&mut self) -> impl Iterator<Item = Ticket> + '_ {
        self.first += self.entries.len() as u64;
        self.open = 0;
        self.entries.drain(..).flatten()
    }

    pub fn len(&self) -> usize {
        self.open
    }

    pub fn is_empty(&self) -> bool {
        self.open == 0
    }
}

#[cfg(test)]
mod tests {
    use super::{Ledger, Ticket};

    const fn ticket(key: u32) -> Ticket {
        Ticket { worker: 0, key }
    }

    #[test]
    fn settles_each_entry_once() {
        let mut ledger = Ledger::default();
        ledger.open(3, ticket(1));
        ledger.open(4, ticket(2));
        ledger.open(7, ticket(3));
        assert_eq!(ledger.settle(5), None);
        assert_eq!(ledger.settle(4), Some(ticket(2)));
        assert_eq!(ledger.settle(4), None);
        assert_eq!(ledger.settle(3), Some(ticket(1)));
        assert_eq!(ledger.len(), 1);
        assert_eq!(ledger.settle(3), None);
        assert_eq!(ledger.settle(7), Some(ticket(3)));
        assert!(ledger.is_empty());
        ledger.open(9, ticket(4));
        assert_eq!(ledger.take_all().collect::<Vec<_>>(), [ticket(4)]);
        assert_eq!(ledger.settle(9), None);
    }

    #[test]
    fn a_range_is_cut_to_what_is_open() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.within(1, u64::MAX).count(), 0);
        ledger.open(5, ticket(1));
        ledger.open(8, ticket(2));
        assert_eq!(ledger.within(0, u64::MAX), 5..=8);
        assert_eq!(ledger.within(6, 7), 6..=7);
        assert_eq!(ledger.within(9, u64::MAX).count(), 0);
        assert_eq!(ledger.within(0, 4).count(), 0);
    }
}
