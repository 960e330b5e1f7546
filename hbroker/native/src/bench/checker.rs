//! What one subscriber received of one topic of one publisher: which messages, and which of them out of order
//! or repeated.
//!
//! All numbers below `next` were received, except those in the gaps. So a load in order costs one comparison
//! for each message. The number of gaps is bounded. A message from before the remembered gaps may be a first
//! one or a duplicate; it counts as out of order.

use std::ops::Range;

/// The most gaps that are remembered.
const MOST_GAPS: usize = 4_096;

/// What a received message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The first with its number, and no later number was received before.
    InOrder,
    /// The first with its number, after a later number.
    Late,
    /// A duplicate.
    Again,
}

/// What one subscriber received of one topic.
#[derive(Debug, Default)]
pub struct Reception {
    next: u64,
    received: u64,
    gaps: Vec<Range<u64>>,
    /// Gaps below this number were dropped.
    forgotten: u64,
}

impl Reception {
    /// Records a received message.
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

    /// How many different messages were received.
    pub fn received(&self) -> u64 {
        self.received
    }

    fn open(&mut self, gap: Range<u64>) {
        if self.gaps.len() == MOST_GAPS {
            self.forgotten = self.gaps.remove(0).end;
        }
        self.gaps.push(gap);
    }

    /// Takes a number out of its gap; false: it is in none.
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
