//! Where the retained messages are in the log.
//!
//! A message has a number, and a large one has a number for each fragment. All of them are in memory, because
//! the messages are, too; the index has them for the next run.

use std::collections::BTreeSet;

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

/// The positions of all retained messages and fragments, by number.
#[derive(Debug, Default)]
pub struct RetainedPositions {
    by_number: HashMap<u64, u64, FxBuildHasher>,
    /// The highest number that was ever seen, also of one that is not retained any more: if its end is damaged,
    /// it comes back, and must not be taken for a new one.
    newest: u64,
    /// The numbers that have changed since the last checkpoint.
    changed: BTreeSet<u64>,
}

impl RetainedPositions {
    // Change

    /// A message is in the log. Returns the position of a former one with this number, which was to be gone.
    pub fn add(&mut self, number: u64, position: u64) -> Option<u64> {
        self.newest = self.newest.max(number);
        self.changed.insert(number);
        self.by_number.insert(number, position)
    }

    /// These numbers are not retained any more. Calls `with` with the position of each that was.
    pub fn remove(&mut self, first: u64, last: u64, mut with: impl FnMut(u64)) {
        let Self { by_number, changed, newest } = self;
        *newest = last.max(*newest);
        let mut note = |number, position| {
            changed.insert(number);
            with(position);
        };
        if last - first < by_number.len() as u64 {
            for number in first..=last {
                if let Some(position) = by_number.remove(&number) {
                    note(number, position);
                }
            }
        } else {
            by_number
                .extract_if(|number, _| (first..=last).contains(number))
                .for_each(|(number, position)| note(number, position));
        }
    }

    /// A message of the last checkpoint.
    pub fn restore(&mut self, number: u64, position: u64) {
        self.newest = self.newest.max(number);
        self.by_number.insert(number, position);
    }

    /// The index has everything.
    pub fn checkpointed(&mut self) {
        self.changed.clear();
    }

    // Read

    /// The changes since the last checkpoint: for each number its position; `None`: it is not retained any
    /// more.
    pub fn changes(&self) -> Vec<(u64, Option<u64>)> {
        self.changed.iter().map(|number| (*number, self.by_number.get(number).copied())).collect()
    }

    /// Whether the record at a position is needed.
    pub fn is_at(&self, number: u64, position: u64) -> bool {
        self.by_number.get(&number) == Some(&position)
    }

    /// Whether the message or fragment with this number is retained.
    pub fn contains(&self, number: u64) -> bool {
        self.by_number.contains_key(&number)
    }

    /// The highest number that is known to have been used; 0: none.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    pub fn len(&self) -> usize {
        self.by_number.len()
    }

    /// All numbers with their positions, in the order of numbers.
    pub fn sorted(&self) -> Vec<(u64, u64)> {
        let mut all: Vec<(u64, u64)> = self.by_number.iter().map(|(&number, &at)| (number, at)).collect();
        all.sort_unstable();
        all
    }
}
