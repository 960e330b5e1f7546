//! Room for what is kept, and what gives it: what is kept no more, what has expired, and what was never whole.
//!
//! Each step frees one part, or one message of one part, with its topic.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{Kept, OVERHEAD, Parts, RetainedStore, Waiting, cost_of, cost_of_topic};
use crate::Micros;

/// The parts of a large message that waits to be freed, and what it costs beside them.
pub(super) struct Torn {
    pub(super) parts: BTreeMap<u32, Bytes>,
    pub(super) cost: usize,
}

impl From<Waiting> for Torn {
    fn from(waiting: Waiting) -> Self {
        Self { cost: cost_of(&waiting.topic), parts: waiting.parts }
    }
}

impl RetainedStore {
    /// Makes room for `cost` where `replaced` goes. What waits to be freed gives way first, then unfinished messages, the one longest
    /// without a new part first. No more is freed than is needed.
    pub(super) fn make_room(&mut self, cost: usize, replaced: usize) -> bool {
        if cost > self.max_bytes {
            return false;
        }
        while self.bytes - replaced + cost > self.max_bytes {
            if self.tidy_one() {
                continue;
            }
            if self.waiting.is_empty() {
                return false;
            }
            self.tear_first_waiting();
        }
        true
    }

    /// Frees a part, a message or what is left of one; then what has expired. False: there is nothing.
    pub(super) fn tidy_one(&mut self) -> bool {
        self.steps += 1;
        if let Some(torn) = self.torn.last_mut() {
            match torn.parts.pop_first() {
                Some((_, part)) => self.bytes -= part.len() + OVERHEAD,
                None => self.bytes -= self.torn.pop().map_or(0, |torn| torn.cost),
            }
        } else if let Some((topic, kept)) = self.detached.pop() {
            self.free(&topic, kept);
        } else if let Some((_, topic)) = self.next_expired().and_then(|_| self.mortal.pop_first()) {
            self.remove(&topic);
        } else {
            return false;
        }
        true
    }

    pub(super) fn tidy_by(&mut self, steps: usize) -> bool {
        (0..steps).all(|_| self.tidy_one()) && self.is_untidy()
    }

    pub(super) fn next_expired(&self) -> Option<(Micros, u64)> {
        self.mortal.first_key_value().map(|(&first, _)| first).filter(|&(expires, _)| expires <= self.now)
    }

    /// A message is kept no more: frees it, or lets it wait for that where it has many parts.
    pub(super) fn free(&mut self, topic: &str, kept: Kept) {
        if kept.expires < Micros::MAX {
            self.mortal.remove(&(kept.expires, kept.serial));
        }
        match kept.parts {
            Parts::One(_) => self.bytes -= kept.cost,
            Parts::Many(parts) => self.torn.push(Torn { parts, cost: cost_of_topic(topic, kept.expires) }),
        }
    }

    pub(super) fn tear_first_waiting(&mut self) {
        self.steps += 1;
        let waiting = self.waiting.remove(0);
        self.torn.push(waiting.into());
    }

    pub(super) fn drop_waiting(&mut self, may_go: impl Fn(&Waiting) -> bool) {
        self.torn.extend(self.waiting.extract_if(.., |waiting| may_go(waiting)).map(Torn::from));
    }
}
