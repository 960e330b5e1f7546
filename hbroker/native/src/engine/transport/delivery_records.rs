//! What each delivery in one direction of a link carries, until the peer's PUBACK settles it (§7.3).
//!
//! Only deliveries that need a PUBACK have an entry; a control packet has none. Deliveries that were queued
//! together share an entry, in which each has a position. Entries are opened in the order of their numbers,
//! and most often settled in this order, so they are in one queue. An entry that is settled out of order
//! leaves a gap. A gap ends when it is at the head of the queue. All gaps are closed at once if there are
//! more of them than open entries, or if they were stepped over more often than there are entries. So the
//! cost of a PUBACK is in proportion to what it settles, whatever ranges a hostile peer sends, and memory is
//! in proportion to what is open.

use std::collections::VecDeque;

use crate::link_id::LinkId;
use crate::shrink::shrink;

/// It is not worth while to close fewer gaps than this.
const FEW_GAPS: usize = 64;

/// The meaning of a delivery: at an owner, a copy of a message that `worker` took over; at a client, a
/// message or fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub worker: u8,
    /// Its position among the messages that were taken over together.
    pub position: u16,
    pub key: u32,
}

/// Where a message came from; its PUBACK goes back there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub link: LinkId,
    pub delivery: u64,
}

impl Origin {
    /// The origin of the message that is `position` messages further on.
    pub fn after(self, position: u64) -> Self {
        Self { delivery: self.delivery + position, ..self }
    }
}

/// Returned tickets. Consecutive ones are merged.
#[derive(Debug, Default)]
pub struct Tickets {
    spans: Vec<TicketSpan>,
}

/// `count` consecutive tickets of messages that were taken over together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketSpan {
    pub first: Ticket,
    pub count: u16,
}

/// Open entries by delivery number.
#[derive(Debug)]
pub struct DeliveryRecords<T = Ticket> {
    /// Ascending. The first is never a gap.
    entries: VecDeque<Entry<T>>,
    /// The number of open deliveries.
    open: usize,
    gaps: u32,
    /// Steps over gaps since they were closed last.
    steps: u32,
}

#[derive(Debug)]
struct Entry<T> {
    /// The number of its first delivery.
    first: u64,
    /// Empty for a gap.
    open: Positions,
    /// What its deliveries carry; `None` for a gap.
    value: Option<T>,
}

/// Some of the deliveries that share an entry, by their positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Positions(u64);

impl Tickets {
    /// Takes them out.
    pub fn drain(&mut self) -> impl Iterator<Item = TicketSpan> + '_ {
        self.spans.drain(..)
    }

    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }
}

impl Extend<TicketSpan> for Tickets {
    fn extend<I: IntoIterator<Item = TicketSpan>>(&mut self, spans: I) {
        for next in spans {
            match self.spans.last_mut() {
                Some(span) if span.is_followed_by(next) => span.count += next.count,
                _ => self.spans.push(next),
            }
        }
    }
}

impl Extend<Ticket> for Tickets {
    fn extend<I: IntoIterator<Item = Ticket>>(&mut self, tickets: I) {
        self.extend(tickets.into_iter().map(TicketSpan::from));
    }
}

impl From<Ticket> for TicketSpan {
    fn from(first: Ticket) -> Self {
        Self { first, count: 1 }
    }
}

impl TicketSpan {
    /// `count` of these tickets, from a position on.
    pub fn part(self, from: u16, count: u16) -> Self {
        Self { first: Ticket { position: self.first.position + from, ..self.first }, count }
    }

    fn is_followed_by(self, next: Self) -> bool {
        let position = self.first.position.checked_add(self.count);
        let is_next = position.is_some_and(|position| next.first == Ticket { position, ..self.first });
        is_next && self.count.checked_add(next.count).is_some()
    }
}

impl Positions {
    /// The most deliveries that may share an entry.
    pub const MOST: u32 = u64::BITS;

    /// The first `count` positions.
    pub fn all(count: u32) -> Self {
        debug_assert!((1..=Self::MOST).contains(&count));
        Self(u64::MAX >> (Self::MOST - count))
    }

    pub fn len(self) -> u32 {
        self.0.count_ones()
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The position after `before` others.
    fn nth(self, before: usize) -> Option<u32> {
        (0..u64::BITS).filter(|&position| self.contains(position)).nth(before)
    }

    pub fn contains(self, position: u32) -> bool {
        self.0 >> position & 1 == 1
    }

    /// The runs of consecutive positions: the first, and their number.
    pub fn runs(self) -> impl Iterator<Item = (u32, u32)> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let first = left.trailing_zeros();
            let count = left.checked_shr(first)?.trailing_ones();
            left &= !(Self::all(count).0 << first);
            Some((first, count))
        })
    }

    /// Takes out the positions of the deliveries from `first` to `last`. Position 0 is that of the delivery
    /// `start`.
    fn take(&mut self, start: u64, first: u64, last: u64) -> Self {
        let mask = |count: u64| {
            1u64.checked_shl(u32::try_from(count).unwrap_or(u32::MAX)).map_or(u64::MAX, |bit| bit - 1)
        };
        let taken = self.0 & mask((last - start).saturating_add(1)) & !mask(first.saturating_sub(start));
        self.0 &= !taken;
        Self(taken)
    }
}

impl<T> Default for DeliveryRecords<T> {
    fn default() -> Self {
        Self { entries: VecDeque::new(), open: 0, gaps: 0, steps: 0 }
    }
}

impl<T> DeliveryRecords<T> {
    /// Opens an entry for `count` deliveries, which are later than all before.
    pub fn open_batch(&mut self, first: u64, count: u32, value: T) {
        debug_assert!(self.entries.back().is_none_or(|newest| newest.first < first));
        self.entries.push_back(Entry { first, open: Positions::all(count), value: Some(value) });
        self.open += count as usize;
    }

    /// Settles the open deliveries from `first` to `last`, oldest first: calls `each` with the values of
    /// their entries, and their positions.
    pub fn settle(&mut self, first: u64, last: u64, mut each: impl FnMut(&mut T, Positions)) {
        let start = match self.entries.front() {
            Some(oldest) if oldest.first < first => {
                self.entries.partition_point(|entry| entry.first <= first) - 1
            }
            _ => 0,
        };
        for entry in self.entries.range_mut(start..) {
            if entry.first > last {
                break;
            }
            let settled = entry.open.take(entry.first, first, last);
            match &mut entry.value {
                Some(value) if !settled.is_empty() => {
                    self.open -= settled.len() as usize;
                    each(value, settled);
                    if entry.open.is_empty() {
                        entry.value = None;
                        self.gaps += 1;
                    }
                }
                Some(_) => {}
                None => self.steps += 1,
            }
        }
        while self.entries.front().is_some_and(|entry| entry.value.is_none()) {
            self.entries.pop_front();
            self.gaps -= 1;
        }
        let (gaps, all) = (self.gaps as usize, self.entries.len());
        if gaps > all - gaps + FEW_GAPS || self.steps as usize > all {
            self.close_gaps();
        }
        shrink(&mut self.entries);
    }

    /// Frees the memory that it does not need now.
    pub fn shrink(&mut self) {
        self.entries.shrink_to_fit();
    }

    /// Takes all open entries, oldest first.
    pub fn take_all(&mut self) -> impl DoubleEndedIterator<Item = (T, Positions)> + use<T> {
        std::mem::take(self).entries.into_iter().filter_map(Entry::into_open)
    }

    /// Takes the selected open entries, oldest first.
    pub fn extract(&mut self, mut is_meant: impl FnMut(&T) -> bool) -> Vec<(T, Positions)> {
        let entries = self.entries.iter_mut();
        let taken: Vec<_> = entries
            .filter_map(|entry| Some((entry.value.take_if(|value| is_meant(value))?, entry.open)))
            .collect();
        self.open -= taken.iter().map(|(_, open)| open.len() as usize).sum::<usize>();
        self.close_gaps();
        taken
    }

    /// The open entries, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&T, Positions)> {
        self.entries.iter().filter_map(|entry| Some((entry.value.as_ref()?, entry.open)))
    }

    /// The open entries, to be changed, oldest first.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = (&mut T, Positions)> {
        self.entries.iter_mut().filter_map(|entry| Some((entry.value.as_mut()?, entry.open)))
    }

    /// The value of the open delivery after `before` older ones, and its position there.
    pub fn nth(&self, before: usize) -> Option<(&T, u32)> {
        let mut before = before;
        for entry in &self.entries {
            let here = entry.open.len() as usize;
            if before < here {
                return entry.value.as_ref().zip(entry.open.nth(before));
            }
            before -= here;
        }
        None
    }

    /// The number of open deliveries.
    pub fn len(&self) -> usize {
        self.open
    }

    #[cfg(test)]
    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    fn close_gaps(&mut self) {
        self.entries.retain(|entry| entry.value.is_some());
        (self.gaps, self.steps) = (0, 0);
        shrink(&mut self.entries);
    }
}

impl<T> Entry<T> {
    fn into_open(self) -> Option<(T, Positions)> {
        Some((self.value?, self.open))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    const fn ticket(position: u16) -> Ticket {
        Ticket { worker: 0, position, key: 7 }
    }

    fn settled(delivery_records: &mut DeliveryRecords<u64>, first: u64, last: u64) -> Vec<u64> {
        let mut settled = Vec::new();
        delivery_records.settle(first, last, |start, positions| {
            settled.extend(deliveries(*start, positions).map(|(delivery, _)| delivery));
        });
        settled
    }

    /// The deliveries at these positions of an entry whose value is its first delivery.
    fn deliveries(first: u64, positions: Positions) -> impl Iterator<Item = (u64, u64)> {
        let positions = positions.runs().flat_map(|(position, count)| position..position + count);
        positions.map(move |position| (first + u64::from(position), first))
    }

    #[test]
    fn settles_each_entry_once_and_lowest_first() {
        let mut delivery_records = DeliveryRecords::default();
        [3, 4, 7, 9].into_iter().for_each(|delivery| delivery_records.open_batch(delivery, 1, delivery));
        assert_eq!(settled(&mut delivery_records, 5, 6), [0; 0]);
        assert_eq!(settled(&mut delivery_records, 4, 4), [4]);
        assert_eq!(settled(&mut delivery_records, 4, 4), [0; 0]);
        assert_eq!(settled(&mut delivery_records, 0, 7), [3, 7]);
        assert_eq!(settled(&mut delivery_records, u64::MAX, 0), [0; 0]);
        assert_eq!(delivery_records.take_all().collect::<Vec<_>>(), [(9, Positions::all(1))]);
        assert_eq!(settled(&mut delivery_records, 0, u64::MAX), [0; 0]);
    }

    #[test]
    fn agrees_with_a_plain_map_and_keeps_in_proportion_to_what_is_open() {
        for seed in 0..50 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let (mut ours, mut plain, mut newest) = (DeliveryRecords::default(), BTreeMap::new(), 0);
            for _ in 0..400 {
                for _ in 0..rng.random_range(0..12) {
                    let first = newest + rng.random_range(1..4);
                    let count = if rng.random_bool(0.5) { 1 } else { rng.random_range(1..=Positions::MOST) };
                    newest = first + u64::from(count) - 1;
                    ours.open_batch(first, count, first);
                    plain.extend((first..=newest).map(|delivery| (delivery, first)));
                }
                let first = rng.random_range(newest.saturating_sub(900)..=newest + 1);
                let last = first + rng.random_range(0..200);
                let expected: Vec<u64> = plain.range(first..=last).map(|(&delivery, _)| delivery).collect();
                plain.retain(|delivery, _| !(first..=last).contains(delivery));
                assert_eq!(settled(&mut ours, first, last), expected, "seed {seed}");
                if rng.random_bool(0.05) {
                    let is_meant = |entry: &u64| entry.is_multiple_of(3);
                    let meant: Vec<(u64, u64)> = plain
                        .iter()
                        .map(|(&delivery, &first)| (delivery, first))
                        .filter(|(_, first)| is_meant(first))
                        .collect();
                    plain.retain(|_, first| !is_meant(first));
                    let taken = ours
                        .extract(is_meant)
                        .into_iter()
                        .flat_map(|(first, positions)| deliveries(first, positions));
                    assert!(taken.eq(meant));
                }
                assert_eq!(ours.len(), plain.len());
                for before in [0, rng.random_range(1..100)] {
                    let found = ours.nth(before).map(|(first, position)| first + u64::from(position));
                    assert_eq!(found, plain.keys().nth(before).copied(), "behind {before}");
                }
                assert!(ours.entries.len() <= 2 * plain.len() + FEW_GAPS);
                assert!(ours.entries.front().is_none_or(|entry| entry.value.is_some()));
            }
            assert!(ours.iter_mut().flat_map(|(first, positions)| deliveries(*first, positions)).eq(plain));
        }
    }

    #[test]
    fn ranges_without_anything_open_cost_little() {
        let mut delivery_records = DeliveryRecords::default();
        (1..=10_000).for_each(|delivery| delivery_records.open_batch(delivery, 1, delivery));
        assert_eq!(settled(&mut delivery_records, 2, 4_000).len(), 3_999);
        for _ in 0..3 {
            assert_eq!(settled(&mut delivery_records, 2, 4_000), [0; 0]);
        }
        assert_eq!(
            (delivery_records.gaps, delivery_records.entries.len()),
            (0, 6_001),
            "closed, since they were stepped over"
        );
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
