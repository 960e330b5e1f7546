//! Sets of numbers that are mostly consecutive: received datagrams, deliveries to acknowledge.
//!
//! Numbers arrive mostly in order, so the set is a short sorted list of inclusive runs, and the usual
//! insertion lengthens the last one. A set with a limit forgets its lowest runs (RFC 9000 §13.2.3): numbers
//! up to the forgotten ones count as present. So a number that is too old to know counts as a duplicate,
//! never as new.

/// Sorted, disjoint, non-adjacent inclusive runs of numbers from 1.
#[derive(Debug, Clone)]
pub struct RangeSet {
    ranges: Vec<(u64, u64)>,
    limit: usize,
    /// Numbers up to here were forgotten.
    floor: u64,
}

impl Default for RangeSet {
    /// An empty set without a limit.
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

impl RangeSet {
    /// An empty set that keeps at most `limit` runs.
    pub fn new(limit: usize) -> Self {
        Self { ranges: Vec::new(), limit, floor: 0 }
    }

    /// Adds a number. False: it was present, or is too old to know.
    pub fn insert(&mut self, number: u64) -> bool {
        if let Some(last) = self.ranges.last_mut()
            && last.1.checked_add(1) == Some(number)
        {
            last.1 = number;
            return true;
        }
        if self.contains(number) {
            return false;
        }
        self.insert_range(number, number);
        true
    }

    /// Adds every number from `low` to `high`.
    pub fn insert_range(&mut self, low: u64, high: u64) {
        if let Some(last) = self.ranges.last_mut()
            && (last.0..=last.1.saturating_add(1)).contains(&low)
        {
            last.1 = last.1.max(high);
            return;
        }
        let first = self.ranges.partition_point(|run| run.1 < low.saturating_sub(1));
        let end = self.ranges.partition_point(|run| run.0 <= high.saturating_add(1));
        if first == end {
            self.ranges.insert(first, (low, high));
        } else {
            let merged = (low.min(self.ranges[first].0), high.max(self.ranges[end - 1].1));
            self.ranges[first] = merged;
            self.ranges.drain(first + 1..end);
        }
        while self.ranges.len() > self.limit {
            self.floor = self.ranges.remove(0).1;
        }
    }

    /// Adds every number of another set.
    pub fn insert_all(&mut self, others: &Self) {
        let mut ranges: Vec<(u64, u64)> = self.ascending().chain(others.ascending()).collect();
        ranges.sort(); // Two sorted parts, which this merges.
        self.ranges.clear();
        ranges.into_iter().for_each(|(low, high)| self.insert_range(low, high));
    }

    /// Removes every number from `low` to `high`. No run may have been forgotten.
    pub fn remove_range(&mut self, low: u64, high: u64) {
        debug_assert_eq!(self.floor, 0, "it is not known which of the forgotten ones were there");
        let first = self.ranges.partition_point(|run| run.1 < low);
        let end = self.ranges.partition_point(|run| run.0 <= high);
        if first < end {
            let (lowest, highest) = (self.ranges[first].0, self.ranges[end - 1].1);
            let before = (lowest < low).then(|| (lowest, low - 1));
            let behind = (high < highest).then(|| (high + 1, highest));
            self.ranges.splice(first..end, before.into_iter().chain(behind));
        }
    }

    /// Removes every number of another set. No run may have been forgotten.
    pub fn remove_all(&mut self, others: &Self) {
        debug_assert_eq!(self.floor, 0, "it is not known which of the forgotten ones were there");
        let mut left = Vec::with_capacity(self.ranges.len());
        let mut removed = others.ranges.iter().peekable();
        for &(mut first, last) in &self.ranges {
            while removed.next_if(|run| run.1 < first).is_some() {}
            let mut is_left = true;
            while let Some(&&(from, to)) = removed.peek()
                && is_left
                && from <= last
            {
                if first < from {
                    left.push((first, from - 1));
                }
                is_left = to < last;
                if is_left {
                    first = to + 1;
                    removed.next();
                }
            }
            if is_left {
                left.push((first, last));
            }
        }
        self.ranges = left;
    }

    /// Whether a number was added, or is too old to know.
    pub fn contains(&self, number: u64) -> bool {
        let at = self.ranges.partition_point(|run| run.1 < number);
        number <= self.floor || self.ranges.get(at).is_some_and(|run| run.0 <= number)
    }

    /// Forgets every run that ends below `number`.
    pub fn forget_below(&mut self, number: u64) {
        let end = self.ranges.partition_point(|run| run.1 < number);
        if end > 0 {
            self.floor = self.ranges[end - 1].1;
            self.ranges.drain(..end);
        }
    }

    /// Removes and returns up to `count` of the lowest runs.
    pub fn take_lowest(&mut self, count: usize) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.drain(..count.min(self.ranges.len()))
    }

    /// The highest forgotten number, and the run that is left, if it is the only one.
    pub fn only_range(&self) -> Option<(u64, (u64, u64))> {
        match self.ranges.as_slice() {
            &[run] => Some((self.floor, run)),
            _ => None,
        }
    }

    /// The set of one run that forgot the numbers up to `floor`, as `only_range` returned them.
    pub fn with_range(limit: usize, floor: u64, run: (u64, u64)) -> Self {
        Self { ranges: vec![run], limit, floor }
    }

    /// The numbers from `low` to `high` that are not in the set, as runs, lowest first.
    pub fn missing(&self, low: u64, high: u64) -> Vec<(u64, u64)> {
        let (mut missing, mut next) = (Vec::new(), low.max(self.floor + 1));
        let at = self.ranges.partition_point(|run| run.1 < next);
        for &(first, last) in self.ranges[at..].iter().take_while(|run| run.0 <= high) {
            if next < first {
                missing.push((next, first - 1));
            }
            next = next.max(last + 1);
        }
        if next <= high {
            missing.push((next, high));
        }
        missing
    }

    /// The lowest number from `number` on that is not in the set.
    pub fn next_missing(&self, number: u64) -> u64 {
        let at = self.ranges.partition_point(|run| run.1 < number);
        self.ranges.get(at).filter(|run| run.0 <= number).map_or(number, |run| run.1.saturating_add(1))
    }

    /// The highest number up to `number` that is not in the set.
    pub fn previous_missing(&self, number: u64) -> u64 {
        let at = self.ranges.partition_point(|run| run.1 < number);
        self.ranges.get(at).filter(|run| run.0 <= number).map_or(number, |run| run.0 - 1)
    }

    /// The lowest run.
    pub fn lowest(&self) -> Option<(u64, u64)> {
        self.ranges.first().copied()
    }

    /// The highest number.
    pub fn highest(&self) -> Option<u64> {
        self.ranges.last().map(|run| run.1)
    }

    /// The runs, highest first.
    pub fn descending(&self) -> impl Iterator<Item = (u64, u64)> + Clone + '_ {
        self.ranges.iter().rev().copied()
    }

    /// The runs, lowest first.
    pub fn ascending(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + Clone + '_ {
        self.ranges.iter().copied()
    }

    /// How many runs there are.
    pub fn runs(&self) -> usize {
        self.ranges.len()
    }

    /// How many numbers are in the set.
    pub fn count(&self) -> u64 {
        self.ranges.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// Whether there is no run.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// The runs of a plain set, by the definition.
    fn runs_of(set: &BTreeSet<u64>) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for &number in set {
            match ranges.last_mut() {
                Some(last) if last.1 + 1 == number => last.1 = number,
                _ => ranges.push((number, number)),
            }
        }
        ranges
    }

    #[test]
    fn agrees_with_a_plain_set() {
        for seed in 0..200 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let (mut ours, mut plain) = (RangeSet::default(), BTreeSet::new());
            for _ in 0..200 {
                let low = rng.random_range(1..120);
                let high = low + rng.random_range(0..6);
                match rng.random_range(0..10) {
                    0..7 => assert_eq!(ours.insert(low), plain.insert(low)),
                    7 => {
                        ours.remove_range(low, high);
                        plain.retain(|number| !(low..=high).contains(number));
                    }
                    _ => {
                        ours.insert_range(low, high);
                        plain.extend(low..=high);
                    }
                }
                let mut ranges: Vec<_> = ours.descending().collect();
                ranges.reverse();
                assert_eq!(ranges, runs_of(&plain), "seed {seed}");
                assert!(ours.ascending().eq(ranges.iter().copied()));
                assert_eq!((ours.count(), ours.runs()), (plain.len() as u64, ranges.len()));
                let probe = rng.random_range(1..130);
                assert_eq!(ours.contains(probe), plain.contains(&probe));
                let missing = (probe..).find(|number| !plain.contains(number));
                assert_eq!(Some(ours.next_missing(probe)), missing);
                let missing = (0..=probe).rev().find(|number| !plain.contains(number));
                assert_eq!(Some(ours.previous_missing(probe)), missing);
            }
        }
    }

    #[test]
    fn adds_and_removes_another_set_as_a_plain_set_does() {
        for seed in 0..2_000 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let mut sets = [(), ()].map(|()| {
                let mut set = RangeSet::default();
                for _ in 0..rng.random_range(0..12) {
                    let low = rng.random_range(1..60);
                    set.insert_range(low, low + rng.random_range(0..9));
                }
                set
            });
            let plain =
                sets.each_ref().map(|set| set.ascending().flat_map(|(low, high)| low..=high).collect());
            let [ours, removed]: [BTreeSet<u64>; 2] = plain;
            let [set, others] = &mut sets;
            let mut union = set.clone();
            union.insert_all(others);
            let expected = runs_of(&ours.union(&removed).copied().collect());
            assert_eq!(union.ascending().collect::<Vec<_>>(), expected, "seed {seed}");
            set.remove_all(others);
            let expected = runs_of(&ours.difference(&removed).copied().collect());
            assert_eq!(set.ascending().collect::<Vec<_>>(), expected, "seed {seed}");
        }
    }

    #[test]
    fn forgets_the_lowest_and_takes_them_for_present() {
        let mut set = RangeSet::new(2);
        for number in [2, 4, 6] {
            assert!(set.insert(number));
        }
        assert_eq!(set.descending().collect::<Vec<_>>(), [(6, 6), (4, 4)]);
        assert!(!set.insert(1) && !set.insert(2), "too old to tell");
        assert!(set.insert(3));
        assert_eq!(set.descending().collect::<Vec<_>>(), [(6, 6), (3, 4)]);
    }

    #[test]
    fn the_ends_of_the_number_space_are_no_special_case() {
        let mut set = RangeSet::default();
        assert!(set.insert(u64::MAX) && !set.insert(u64::MAX));
        assert!(set.insert(u64::MAX - 1) && set.insert(1));
        assert_eq!(set.descending().collect::<Vec<_>>(), [(u64::MAX - 1, u64::MAX), (1, 1)]);
        set.remove_range(u64::MAX, u64::MAX);
        set.remove_range(0, 1);
        assert_eq!(set.descending().collect::<Vec<_>>(), [(u64::MAX - 1, u64::MAX - 1)]);
    }

    #[test]
    fn takes_and_forgets_from_below() {
        let mut set = RangeSet::default();
        for number in [1, 3, 5, 7] {
            set.insert(number);
        }
        assert_eq!(set.take_lowest(2).collect::<Vec<_>>(), [(1, 1), (3, 3)]);
        set.forget_below(6);
        assert_eq!(set.descending().collect::<Vec<_>>(), [(7, 7)]);
        assert!(set.contains(5));
    }
}
