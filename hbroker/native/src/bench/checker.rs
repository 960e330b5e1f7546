//! What one subscriber has of one topic of one publisher: which messages came, and which of them late or again.
//!
//! Everything below `next` has come but for the gaps, so that a load in order costs one comparison a message. The gaps that are
//! remembered are bounded; of a message from before them nobody can tell whether it came already, and it is taken for late.

use std::ops::Range;

/// Gaps that are remembered.
const MOST_GAPS: usize = 4_096;

/// What a message was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The first of its number, behind all before it.
    InOrder,
    /// The first of its number, behind one that came after it.
    Late,
    /// It was here before.
    Again,
}

/// What came of one topic.
#[derive(Debug, Default)]
pub struct Reception {
    next: u64,
    received: u64,
    gaps: Vec<Range<u64>>,
    /// Gaps below this were given up.
    forgotten: u64,
}

impl Reception {
    /// A message with this number came.
    pub fn note(&mut self, number: u64) -> Arrival {
        if number >= self.next {
            if number > self.next {
                self.open(self.next..number);
            }
            self.next = number + 1;
            self.received += 1;
            return Arrival::InOrder;
        }
        if self.fill(number) {
            self.received += 1;
            return Arrival::Late;
        }
        if number < self.forgotten { Arrival::Late } else { Arrival::Again }
    }

    /// How many different messages came.
    pub fn received(&self) -> u64 {
        self.received
    }

    fn open(&mut self, gap: Range<u64>) {
        if self.gaps.len() == MOST_GAPS {
            self.forgotten = self.gaps.remove(0).end;
        }
        self.gaps.push(gap);
    }

    /// Takes a number out of the gap that it is in; false: it is in none.
    fn fill(&mut self, number: u64) -> bool {
        let index = self.gaps.partition_point(|gap| gap.end <= number);
        let Some(gap) = self.gaps.get(index).filter(|gap| gap.start <= number).cloned() else {
            return false;
        };
        let left = [gap.start..number, number + 1..gap.end];
        self.gaps.splice(index..=index, left.into_iter().filter(|role| !role.is_empty()));
        true
    }
}
