//! Whether a session makes progress, or is stalled (§7.3).
//!
//! The owner checks the head of the session's queue: its oldest sixteen unacknowledged messages, or all if
//! there are fewer. At each check it marks the newest of these. A mark is *passed* when none of the messages up
//! to it is in flight or queued any more. A session that has not passed a mark two seconds after it was set is
//! stalled. So neither a message that is never acknowledged nor slow acknowledgements hold publishers back for
//! longer. A session that acknowledges at least eight messages a second, in order, is never stalled. Marks are
//! set and passed only at checks, so they cost nothing for each message.

use std::collections::VecDeque;

use crate::Micros;

/// A session that acknowledges fewer than this number of its oldest messages …
pub const MARK_SPAN: usize = 16;
/// … in this time is stalled (§9).
pub const STALL: Micros = 2_000_000;
/// How many marks of a session are remembered: there are eight checks in `STALL`.
const MOST_MARKS: usize = 12;

/// A mark in the session's queue.
#[derive(Clone, Copy, Debug)]
struct ProgressMark {
    marked_at: Micros,
    /// The number of the newest message at the head of the queue.
    through: u64,
}

/// The marks of one session that are not passed, the oldest first.
#[derive(Debug, Default)]
pub struct ProgressMarks(VecDeque<ProgressMark>);

impl ProgressMarks {
    /// Adds a mark, unless it is the same as the last one. `through`: the number of the newest message at the
    /// head of the queue.
    pub fn mark(&mut self, marked_at: Micros, through: u64) {
        if self.0.len() < MOST_MARKS && self.0.back().is_none_or(|last| last.through < through) {
            self.0.push_back(ProgressMark { marked_at, through });
        }
    }

    /// Removes the passed marks. Returns whether no mark is left. `oldest`: the number of the oldest message
    /// that the session has.
    pub fn pass(&mut self, oldest: u64) -> bool {
        while self.0.front().is_some_and(|front| front.through < oldest) {
            self.0.pop_front();
        }
        self.0.is_empty()
    }

    /// Whether the oldest mark was set too long ago.
    pub fn is_overdue(&self, now: Micros) -> bool {
        self.0.front().is_some_and(|front| now > front.marked_at + STALL)
    }

    /// Removes all marks.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::{ProgressMarks, STALL};

    #[test]
    fn a_progress_mark_is_passed_when_none_of_it_is_left() {
        let mut progress_marks = ProgressMarks::default();
        progress_marks.mark(0, 20);
        assert!(!progress_marks.pass(20) && progress_marks.pass(21));
    }

    #[test]
    fn a_progress_mark_behind_another_has_its_own_time() {
        let mut progress_marks = ProgressMarks::default();
        progress_marks.mark(0, 2);
        progress_marks.mark(250_000, 18);
        progress_marks.mark(500_000, 18);
        assert!(!progress_marks.pass(3), "the first is passed");
        assert!(!progress_marks.is_overdue(250_000 + STALL));
        assert!(progress_marks.is_overdue(250_001 + STALL), "the second waits since it was marked first");
        assert!(progress_marks.pass(19) && !progress_marks.is_overdue(u64::MAX));
    }
}
