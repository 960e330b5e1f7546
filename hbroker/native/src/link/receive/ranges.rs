//! Sets of numbers that are dense where they matter: datagrams received, deliveries to acknowledge.
//!
//! Numbers arrive mostly in order, so the set is a short sorted list of inclusive runs and the common insertion
//! lengthens the last. A set with a limit forgets its lowest runs (RFC 9000 §13.2.3): numbers at or below what it
//! forgot count as present, so that what is too old to know is taken for a duplicate, never for new.

/// Sorted, disjoint, non-adjacent inclusive runs of numbers from 1.
#[derive(Debug, Clone)]
pub struct RangeSet {
    runs: Vec<(u64, u64)>,
    limit: usize,
    /// Numbers up to here were forgotten.
    floor: u64,
}

impl RangeSet {
    /// An empty set that keeps at most `limit` runs.
    pub fn new(limit: usize) -> Self {
        Self { runs: Vec::new(), limit, floor: 0 }
    }

    /// Adds a number. False: it was there, or is too old to tell.
    pub fn insert(&mut self, number: u64) -> bool {
        if let Some(last) = self.runs.last_mut()
            && last.1.checked_add(1) == Some(number)
        {
            last.1 = number;
            return true;
        }
        if self.contains(number) {
            return false;
        }
        self.insert_run(number, number);
        true
    }

    /// Adds every number from `low` to `high`.
    pub fn insert_run(&mut self, low: u64, high: u64) {
        if let Some(last) = self.runs.last_mut()
            && (last.0..=last.1.saturating_add(1)).contains(&low)
        {
            last.1 = last.1.max(high);
            return;
        }
        let first = self.runs.partition_point(|run| run.1 < low.saturating_sub(1));
        let end = self.runs.partition_point(|run| run.0 <= high.saturating_add(1));
        if first == end {
            self.runs.insert(first, (low, high));
        } else {
            let merged = (low.min(self.runs[first].0), high.max(self.runs[end - 1].1));
            self.runs[first] = merged;
            self.runs.drain(first + 1..end);
        }
        while self.runs.len() > self.limit {
            self.floor = self.runs.remove(0).1;
        }
    }

    /// Whether a number was added, or is too old to tell.
    pub fn contains(&self, number: u64) -> bool {
        let at = self.runs.partition_point(|run| run.1 < number);
        number <= self.floor || self.runs.get(at).is_some_and(|run| run.0 <= number)
    }

    /// Forgets every run that ends below `number`.
    pub fn forget_below(&mut self, number: u64) {
        let end = self.runs.partition_point(|run| run.1 < number);
        if end > 0 {
            self.floor = self.runs[end - 1].1;
            self.runs.drain(..end);
        }
    }

    /// Removes and returns up to `count` of the lowest runs.
    pub fn take_lowest(&mut self, count: usize) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.runs.drain(..count.min(self.runs.len()))
    }

    /// Up to where numbers were forgotten, and the run that is left, where it is the only one.
    pub fn only_run(&self) -> Option<(u64, (u64, u64))> {
        match self.runs.as_slice() {
            &[run] => Some((self.floor, run)),
            _ => None,
        }
    }

    /// The set of one run that forgot the numbers up to `floor`, as `only_run` gave them.
    pub fn with_run(limit: usize, floor: u64, run: (u64, u64)) -> Self {
        Self { runs: vec![run], limit, floor }
    }

    /// The highest number.
    pub fn highest(&self) -> Option<u64> {
        self.runs.last().map(|run| run.1)
    }

    /// The runs, highest first.
    pub fn descending(&self) -> impl Iterator<Item = (u64, u64)> + Clone + '_ {
        self.runs.iter().rev().copied()
    }

    /// Whether there is no run.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
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
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for &number in set {
            match runs.last_mut() {
                Some(last) if last.1 + 1 == number => last.1 = number,
                _ => runs.push((number, number)),
            }
        }
        runs
    }

    #[test]
    fn agrees_with_a_plain_set() {
        for seed in 0..200 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let (mut ours, mut plain) = (RangeSet::new(usize::MAX), BTreeSet::new());
            for _ in 0..200 {
                let low = rng.random_range(1..120);
                if rng.random_bool(0.7) {
                    assert_eq!(ours.insert(low), plain.insert(low));
                } else {
                    let high = low + rng.random_range(0..6);
                    ours.insert_run(low, high);
                    plain.extend(low..=high);
                }
                let mut runs: Vec<_> = ours.descending().collect();
                runs.reverse();
                assert_eq!(runs, runs_of(&plain), "seed {seed}");
                let probe = rng.random_range(1..130);
                assert_eq!(ours.contains(probe), plain.contains(&probe));
            }
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
        let mut set = RangeSet::new(usize::MAX);
        assert!(set.insert(u64::MAX) && !set.insert(u64::MAX));
        assert!(set.insert(u64::MAX - 1) && set.insert(1));
        assert_eq!(set.descending().collect::<Vec<_>>(), [(u64::MAX - 1, u64::MAX), (1, 1)]);
    }

    #[test]
    fn takes_and_forgets_from_below() {
        let mut set = RangeSet::new(usize::MAX);
        for number in [1, 3, 5, 7] {
            set.insert(number);
        }
        assert_eq!(set.take_lowest(2).collect::<Vec<_>>(), [(1, 1), (3, 3)]);
        set.forget_below(6);
        assert_eq!(set.descending().collect::<Vec<_>>(), [(7, 7)]);
        assert!(set.contains(5));
    }
}
