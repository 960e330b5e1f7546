//! Whether a session gets on with what it was sent, or is too slow to be waited for (§7.3).
//!
//! What counts is the *front*: the oldest messages without an answer, sixteen of them where there are so many. It is marked; when what of
//! it was in flight is answered, and as many messages as were marked, the next front is. A session whose front stands for two seconds is
//! too slow. So neither a message that is left out nor a trickle of answers holds publishers up for longer, and one that
//! answers eight a second or more is waited for as long as it does. No message costs anything for this: a front is marked when somebody looks.

use crate::Micros;

/// A session that gets on with fewer than so many of those that wait …
pub const FRONT: usize = 16;
/// … in so long is stalled (§9).
pub const STALL: Micros = 2_000_000;

/// A front that was marked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Front {
    /// The deliveries up to this one are to be answered.
    pub through: u64,
    /// So many messages are to have been answered by then, in all.
    pub due: u64,
}

impl Front {
    /// Whether it was passed. `oldest`: the oldest delivery without an answer. `answered`: how many have one.
    pub fn is_behind(&self, oldest: Option<u64>, answered: u64) -> bool {
        answered >= self.due && oldest.is_none_or(|oldest| oldest > self.through)
    }
}

#[cfg(test)]
mod tests {
    use super::Front;

    #[test]
    fn a_front_is_passed_when_none_of_it_was_left_out_and_as_many_were_answered() {
        let front = Front { through: 20, due: 116 };
        assert!(!front.is_behind(Some(21), 115), "too few");
        assert!(!front.is_behind(Some(20), 200), "one is left out");
        assert!(front.is_behind(Some(21), 116) && front.is_behind(None, 116));
    }
}
