//! Which retained messages the listeners of a client have had lately (§7.6).
//!
//! An owner sends retained messages for each SUBSCRIBE that requests them. A client repeats a request if an
//! owner was slow to answer, if an owner has lost the subscription, or if the subtree moved. The memory is
//! bounded: the oldest message is forgotten first, and could then be delivered twice.

use std::collections::VecDeque;

use hashbrown::HashSet;

use crate::keyed_hash::KeyedHash;
use crate::wire::MessageId;

/// How many messages are remembered, each for one listener.
const MOST: usize = 65_536;

pub struct DeliveredRetained {
    hasher: KeyedHash,
    /// Made with the first message: few clients of a pool request retained messages.
    memory: Option<Box<Memory>>,
}

struct Memory {
    known: HashSet<(u64, MessageId), KeyedHash>,
    /// The same, the oldest first.
    order: VecDeque<(u64, MessageId)>,
}

impl DeliveredRetained {
    pub fn new(seed: u64) -> Self {
        Self { hasher: KeyedHash::new(seed), memory: None }
    }

    /// Records that a listener gets a retained message. False: it has had it.
    pub fn is_new(&mut self, listener: u64, message: MessageId) -> bool {
        let Memory { known, order } = &mut **self.memory.get_or_insert_with(|| {
            Box::new(Memory { known: HashSet::with_hasher(self.hasher), order: VecDeque::new() })
        });
        let is_new = known.insert((listener, message));
        if is_new {
            if order.len() == MOST
                && let Some(oldest) = order.pop_front()
            {
                known.remove(&oldest);
            }
            order.push_back((listener, message));
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_listener_is_told_each_message_once() {
        let mut delivered = DeliveredRetained::new(1);
        assert!(delivered.is_new(1, (7, 1)));
        assert!(!delivered.is_new(1, (7, 1)));
        assert!(delivered.is_new(2, (7, 1)));
        assert!(delivered.is_new(1, (7, 2)));
        assert!(delivered.is_new(1, (8, 1)));
    }

    #[test]
    fn the_oldest_is_forgotten_first_and_no_more_is_kept() {
        let mut delivered = DeliveredRetained::new(1);
        for sequence in 0..=MOST as u64 {
            assert!(delivered.is_new(1, (7, sequence)));
        }
        let memory = delivered.memory.as_ref().expect("it was made with the first");
        assert_eq!((memory.known.len(), memory.order.len()), (MOST, MOST));
        assert!(!delivered.is_new(1, (7, 1)));
        assert!(delivered.is_new(1, (7, 0)));
    }
}
