//! Room for what is kept, and what gives it: what is kept no more, what has expired, and what was never whole.
//!
//! Each step frees one part, or one message of one part, with its topic. The memory itself goes back once the lock is released: an allocator gives
//! much of it to the system at once, now and then, and that takes a millisecond.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::tree::Node;
use super::{Fragments, Kept, OVERHEAD, RetainedStore, Waiting, cost_of, cost_of_topic};
use crate::Micros;

/// What was freed, to be dropped without the lock.
#[derive(Default)]
pub struct Freed(Vec<Leftover>);

/// What is left of a message.
#[expect(dead_code, reason = "it is only dropped")]
enum Leftover {
    Message(Box<Node<Kept>>),
    Fragment(Bytes),
    Topic(Box<str>),
}

/// The parts of a large message that waits to be freed, and what it costs beside them.
pub(super) struct Dismantled {
    pub(super) fragments: BTreeMap<u32, Bytes>,
    pub(super) cost: usize,
}

impl From<Waiting> for Dismantled {
    fn from(waiting: Waiting) -> Self {
        Self { cost: cost_of(&waiting.topic), fragments: waiting.fragments }
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
        if let Some(dismantled) = self.dismantled.last_mut() {
            match dismantled.fragments.pop_first() {
                Some((_, fragment)) => {
                    self.bytes -= fragment.len() + OVERHEAD;
                    self.freed.0.push(Leftover::Fragment(fragment));
                }
                None => self.bytes -= self.dismantled.pop().map_or(0, |dismantled| dismantled.cost),
            }
        } else if let Some(message) = self.detached.pop() {
            self.free(message);
        } else if let Some((_, topic)) = self.next_expired().and_then(|_| self.mortal.pop_first()) {
            self.remove(&topic);
            self.freed.0.push(Leftover::Topic(topic));
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
    pub(super) fn free(&mut self, mut message: Box<Node<Kept>>) {
        let Kept { expires, serial, cost, ref mut fragments, .. } = message.value;
        if expires < Micros::MAX {
            self.freed.0.extend(self.mortal.remove(&(expires, serial)).map(Leftover::Topic));
        }
        match fragments {
            Fragments::One(_) => self.bytes -= cost,
            Fragments::Many(fragments) => {
                let (fragments, cost) = (std::mem::take(fragments), cost_of_topic(&message.topic, expires));
                self.dismantled.push(Dismantled { fragments, cost });
            }
        }
        self.freed.0.push(Leftover::Message(message));
    }

    /// What was freed since this was last asked. It is dropped with the next offer where nobody asks.
    pub fn take_freed(&mut self) -> Freed {
        std::mem::take(&mut self.freed)
    }

    pub(super) fn tear_first_waiting(&mut self) {
        self.steps += 1;
        let waiting = self.waiting.remove(0);
        self.dismantled.push(waiting.into());
    }

    pub(super) fn drop_waiting(&mut self, may_go: impl Fn(&Waiting) -> bool) {
        self.dismantled.extend(self.waiting.extract_if(.., |waiting| may_go(waiting)).map(Dismantled::from));
    }
}
