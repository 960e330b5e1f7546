//! Whether a session gets on with what it was sent, or is too slow to be waited for (§7.3).
//!
//! What counts is the *front*: the oldest messages without an answer, sixteen of them where there are so many. The owner marks it each
//! time it looks. A front is passed when the session has none of its messages any more, whether they are in flight or wait. A session that
//! has not passed a front two seconds after it was marked is too slow. So neither a message that is left out nor a trickle of answers holds
//! publishers up for longer, and a session that answers eight messages a second or more, in order, is waited for as long as it does. No
//! message costs anything for this.

use std::collections::VecDeque;

use crate::Micros;

/// A session that gets on with fewer than so many of those that wait …
pub const MARK_SPAN: usize = 16;
/// … in so long is stalled (§9).
pub const STALL: Micros = 2_000_000;
/// Fronts that are remembered of one session: the owner looks eight times in `STALL`.
const MOST_MARKS: usize = 12;

/// A front that was marked.
#[derive(Clone, Copy, Debug)]
struct ProgressMark {
    marked_at: Micros,
    /// The number of its newest message.
    through: u64,
}

/// The fronts of one session that are not passed, the oldest first.
#[derive(Debug, Default)]
pub struct ProgressMarks(VecDeque<ProgressMark>);

impl ProgressMarks {
    /// Adds a front, unless it is the last one still. `through`: the number of its newest message.
    pub fn mark(&mut self, marked_at: Micros, through: u64) {
        if self.0.len() < MOST_MARKS && self.0.back().is_none_or(|last| last.through < through) {
            self.0.push_back(ProgressMark { marked_at, through });
        }
    }

    /// Forgets those that were passed: true if there is no other. `oldest`: the number of the oldest message that the session has.
    pub fn pass(&mut self, oldest: u64) -> bool {
        while self.0.front().is_some_and(|front| front.through < oldest) {
            self.0.pop_front();
        }
        self.0.is_empty()
    }

    /// Whether the oldest was marked too long ago.
    pub fn is_overdue(&self, now: Micros) -> bool {
        self.0.front().is_some_and(|front| now > front.marked_at + STALL)
    }

    /// Forgets all.
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
