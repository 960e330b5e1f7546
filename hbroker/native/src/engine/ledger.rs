//! What each delivery of one direction of a link stands for, until the peer's PUBACK settles it (§7.3).
//!
//! Only deliveries that need a PUBACK have an entry; a control packet has none. Entries are opened in the order of their numbers and
//! most often settled in it, so they lie in one queue. One that is settled out of turn leaves a gap. Gaps end when the front
//! reaches them, and all at once where they are more than what is open, or were stepped over more often than there are places: so a PUBACK
//! costs what it settles, whatever ranges a hostile peer names, and what is kept is in proportion to what is open.

use std::collections::VecDeque;

use crate::shrink::shrink;

/// So few gaps are not worth closing.
const FEW_GAPS: usize = 64;

/// What a delivery stands for: at an owner a copy of a message that `worker` took over, at a client a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub worker: u8,
    /// Which of the messages that were taken over together.
    pub place: u16,
    pub key: u32,
}

/// Tickets that came back: those that follow one another are counted as one.
#[derive(Debug, Default)]
pub struct Tickets {
    spans: Vec<Span>,
}

/// So many tickets of messages that were taken over together, from one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub first: Ticket,
    pub count: u16,
}

/// Open entries by delivery number.
#[derive(Debug)]
pub struct Ledger<T = Ticket> {
    /// Ascending; `None`: a gap, which the first never is.
    entries: VecDeque<(u64, Option<T>)>,
    gaps: usize,
    /// Steps over gaps since they were closed last.
    steps: usize,
}

impl Tickets {
    /// Takes them out.
    pub fn drain(&mut self) -> impl Iterator<Item = Span> + '_ {
        self.spans.drain(..)
    }

    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }
}

impl Extend<Ticket> for Tickets {
    fn extend<I: IntoIterator<Item = Ticket>>(&mut self, tickets: I) {
        for ticket in tickets {
            match self.spans.last_mut() {
                Some(span) if span.is_followed_by(ticket) => span.count += 1,
                _ => self.spans.push(ticket.into()),
            }
        }
    }
}

impl From<Ticket> for Span {
    fn from(first: Ticket) -> Self {
        Self { first, count: 1 }
    }
}

impl Span {
    /// Each of them.
    pub fn tickets(self) -> impl Iterator<Item = Ticket> {
        (0..self.count).map(move |behind| Ticket { place: self.first.place + behind, ..self.first })
    }

    fn is_followed_by(self, ticket: Ticket) -> bool {
        let next = self.first.place.checked_add(self.count);
        next.is_some_and(|place| ticket == Ticket { place, ..self.first })
    }
}

impl<T> Default for Ledger<T> {
    fn default() -> Self {
        Self { entries: VecDeque::new(), gaps: 0, steps: 0 }
    }
}

impl<T> Ledger<T> {
    /// Opens an entry, for a later delivery than all before.
    pub fn open(&mut self, delivery: u64, entry: T) {
        debug_assert!(self.entries.back().is_none_or(|(newest, _)| *newest < delivery));
        self.entries.push_back((delivery, Some(entry)));
    }

    /// Settles the open entries from `first` to `last`, oldest first.
    pub fn settle(&mut self, first: u64, last: u64, mut each: impl FnMut(T)) {
        if self.entries.front().is_some_and(|(oldest, _)| *oldest >= first) {
            while let Some((delivery, entry)) = self.entries.front_mut()
                && (*delivery <= last || entry.is_none())
            {
                match entry.take() {
                    Some(entry) => each(entry),
                    None => self.gaps -= 1,
                }
                self.entries.pop_front();
            }
            return shrink(&mut self.entries);
        }
        let start = self.entries.partition_point(|(delivery, _)| *delivery < first);
        for (delivery, entry) in self.entries.range_mut(start..) {
            if *delivery > last {
                break;
            }
            match entry.take() {
                Some(entry) => {
                    self.gaps += 1;
                    each(entry);
                }
                None => self.steps += 1,
            }
        }
        if self.gaps > self.len() + FEW_GAPS || self.steps > self.entries.len() {
            self.close_gaps();
        }
    }

    /// Gives back the memory that it does not need now.
    pub fn rest(&mut self) {
        self.entries.shrink_to_fit();
    }

    /// Takes every open entry, oldest first.
    pub fn take_all(&mut self) -> impl DoubleEndedIterator<Item = T> + use<T> {
        std::mem::take(self).entries.into_iter().filter_map(|(_, entry)| entry)
    }

    /// Takes the open entries that are meant, oldest first.
    pub fn extract(&mut self, mut is_meant: impl FnMut(&T) -> bool) -> Vec<T> {
        let entries = self.entries.iter_mut().map(|(_, entry)| entry);
        let taken = entries.filter_map(|entry| entry.take_if(|entry| is_meant(entry))).collect();
        self.close_gaps();
        taken
    }

    /// The open entries, to change, oldest first.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut T> {
        self.entries.iter_mut().filter_map(|(_, entry)| entry.as_mut())
    }

    /// Open entries.
    pub fn len(&self) -> usize {
        self.entries.len() - self.gaps
    }

    fn close_gaps(&mut self) {
        self.entries.retain(|(_, entry)| entry.is_some());
        (self.gaps, self.steps) = (0, 0);
        shrink(&mut self.entries);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    const fn ticket(place: u16) -> Ticket {
        Ticket { worker: 0, place, key: 7 }
    }

    fn settled(ledger: &mut Ledger<u64>, first: u64, last: u64) -> Vec<u64> {
        let mut settled = Vec::new();
        ledger.settle(first, last, |entry| settled.push(entry));
        settled
    }

    #[test]
    fn settles_each_entry_once_and_lowest_first() {
        let mut ledger = Ledger::default();
        [3, 4, 7, 9].into_iter().for_each(|delivery| ledger.open(delivery, delivery));
        assert_eq!(settled(&mut ledger, 5, 6), [0; 0]);
        assert_eq!(settled(&mut ledger, 4, 4), [4]);
        assert_eq!(settled(&mut ledger, 4, 4), [0; 0]);
        assert_eq!(settled(&mut ledger, 0, 7), [3, 7]);
        assert_eq!(settled(&mut ledger, u64::MAX, 0), [0; 0]);
        assert_eq!(ledger.take_all().collect::<Vec<_>>(), [9]);
        assert_eq!(settled(&mut ledger, 0, u64::MAX), [0; 0]);
    }

    #[test]
    fn agrees_with_a_plain_map_and_keeps_in_proportion_to_what_is_open() {
        for seed in 0..50 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let (mut ours, mut plain, mut newest) = (Ledger::default(), BTreeMap::new(), 0);
            for _ in 0..400 {
                for _ in 0..rng.random_range(0..12) {
                    newest += rng.random_range(1..4);
                    ours.open(newest, newest);
                    plain.insert(newest, newest);
                }
                let first = rng.random_range(newest.saturating_sub(100)..=newest + 1);
                let last = first + rng.random_range(0..20);
                let expected: Vec<u64> = plain.range(first..=last).map(|(&delivery, _)| delivery).collect();
                plain.retain(|delivery, _| !(first..=last).contains(delivery));
                assert_eq!(settled(&mut ours, first, last), expected, "seed {seed}");
                if rng.random_bool(0.05) {
                    let is_meant = |entry: &u64| entry.is_multiple_of(3);
                    let expected: Vec<u64> = plain.values().copied().filter(is_meant).collect();
                    plain.retain(|_, entry| !is_meant(entry));
                    assert_eq!(ours.extract(is_meant), expected);
                }
                assert_eq!(ours.len(), plain.len());
                assert!(ours.entries.len() <= 2 * plain.len() + FEW_GAPS);
                assert!(ours.entries.front().is_none_or(|(_, entry)| entry.is_some()));
            }
            assert!(ours.iter_mut().map(|entry| *entry).eq(plain.into_values()));
        }
    }

    #[test]
    fn ranges_without_anything_open_cost_little() {
        let mut ledger = Ledger::default();
        (1..=10_000).for_each(|delivery| ledger.open(delivery, delivery));
        assert_eq!(settled(&mut ledger, 2, 4_000).len(), 3_999);
        for _ in 0..3 {
            assert_eq!(settled(&mut ledger, 2, 4_000), [0; 0]);
        }
        assert_eq!((ledger.gaps, ledger.entries.len()), (0, 6_001), "closed, since they were stepped over");
    }

    #[test]
    fn tickets_that_follow_one_another_are_one_span() {
        let mut tickets = Tickets::default();
        let other = Ticket { key: 8, ..ticket(6) };
        tickets.extend([
            ticket(3),
            ticket(4),
            ticket(5),
            other,
            ticket(5),
            ticket(4),
            ticket(u16::MAX),
            ticket(0),
        ]);
        let spans: Vec<_> = tickets.drain().map(|span| (span.first, span.count)).collect();
        let expected = [
            (ticket(3), 3),
            (other, 1),
            (ticket(5), 1),
            (ticket(4), 1),
            (ticket(u16::MAX), 1),
            (ticket(0), 1),
        ];
        assert_eq!(spans, expected);
        assert!(tickets.is_empty());
    }
}
