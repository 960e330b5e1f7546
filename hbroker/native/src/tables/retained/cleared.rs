//! Topics that were cleared a short time ago, and the messages that cleared them (§7.6).
//!
//! A message of QoS 0 may be overtaken by a later message that clears its topic. When the earlier message
//! arrives, there is no stored message to compare it with, only this record.

use std::collections::{BTreeMap, BTreeSet};

use super::OVERHEAD;
use crate::Micros;

/// The maximum size of all records. The oldest are dropped first.
const MAX_BYTES: usize = 1 << 20;

/// The last message that cleared each topic, for a while.
#[derive(Default)]
pub struct Cleared {
    bytes: usize,
    latest: BTreeMap<Box<str>, ClearingMessage>,
    /// The topics, in the order in which they are dropped.
    order: BTreeSet<(Micros, Box<str>)>,
}

/// The message that cleared a topic, and when its record is dropped.
struct ClearingMessage {
    until: Micros,
    publisher: u64,
    sequence: u64,
}

impl Cleared {
    /// Records the message that cleared a topic. Returns how many other records were dropped for lack of
    /// room.
    pub fn note(&mut self, topic: &str, publisher: u64, sequence: u64, until: Micros) -> usize {
        self.forget(topic);
        self.bytes += cost(topic);
        self.order.insert((until, topic.into()));
        self.latest.insert(topic.into(), ClearingMessage { until, publisher, sequence });
        let mut forgotten = 0;
        while self.bytes > MAX_BYTES
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.forget(&oldest);
            forgotten += 1;
        }
        forgotten
    }

    /// Drops at most `most` records whose time is over. Returns how many were dropped.
    pub fn expire(&mut self, now: Micros, most: usize) -> usize {
        let mut forgotten = 0;
        while forgotten < most
            && self.order.first().is_some_and(|(until, _)| *until <= now)
            && let Some((_, topic)) = self.order.pop_first()
        {
            self.forget(&topic);
            forgotten += 1;
        }
        forgotten
    }

    /// Whether a message was published before a recorded message of the same publisher cleared the topic.
    pub fn is_after(&self, now: Micros, topic: &str, publisher: u64, sequence: u64) -> bool {
        let is_after = |clearing: &ClearingMessage| {
            clearing.until > now && clearing.publisher == publisher && sequence <= clearing.sequence
        };
        self.latest.get(topic).is_some_and(is_after)
    }

    fn forget(&mut self, topic: &str) {
        if let Some((topic, clearing)) = self.latest.remove_entry(topic) {
            self.bytes -= cost(&topic);
            self.order.remove(&(clearing.until, topic));
        }
    }
}

fn cost(topic: &str) -> usize {
    2 * (topic.len() + OVERHEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clears_counts_for_its_publisher_and_for_a_while() {
        let mut cleared = Cleared::default();
        cleared.note("a", 1, 5, 100);
        cleared.note("a", 1, 7, 200);
        cleared.note("b", 2, 9, 150);
        assert!(cleared.is_after(99, "a", 1, 7) && !cleared.is_after(99, "a", 1, 8));
        assert!(!cleared.is_after(99, "a", 2, 1) && !cleared.is_after(99, "c", 1, 1));
        assert!(cleared.is_after(149, "b", 2, 9) && !cleared.is_after(150, "b", 2, 9), "though it is there");
        assert_eq!(cleared.expire(150, 8), 1);
        assert!(cleared.is_after(150, "a", 1, 6) && !cleared.is_after(150, "b", 2, 1));
        assert_eq!(cleared.expire(200, 8), 1);
        assert_eq!((cleared.bytes, cleared.latest.len(), cleared.order.len()), (0, 0, 0));
    }

    #[test]
    fn the_oldest_give_way() {
        let mut cleared = Cleared::default();
        for number in 0..100_000 {
            assert!(cleared.note(&number.to_string(), 1, number, number + 1) <= 2);
        }
        assert!(cleared.bytes <= MAX_BYTES && cleared.latest.len() == cleared.order.len());
        assert!(cleared.is_after(0, "99999", 1, 1) && !cleared.is_after(0, "0", 1, 0));
        assert_eq!(cleared.expire(Micros::MAX, 8), 8, "no more at once");
    }
}
