//! Frees memory of the store: of detached messages, of expired ones, and of those that were never complete.
//!
//! Each step frees one fragment, or one message without fragments, with its topic. The memory itself is
//! released without the lock, because an allocator sometimes returns a lot of it to the system at once, which
//! takes a millisecond.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::tree::Node;
use super::{Fragments, IncompleteMessage, OVERHEAD, RetainedMessage, RetainedStore, cost_of, cost_of_topic};
use crate::Micros;

/// What was freed, to be dropped without the lock.
#[derive(Default)]
pub struct Freed(Vec<Leftover>);

/// A part of a freed message.
#[expect(dead_code, reason = "it is only dropped")]
enum Leftover {
    Message(Box<Node<RetainedMessage>>),
    Fragment(Bytes),
    Topic(Box<str>),
}

/// The fragments of a large message that must be freed, and its other cost.
pub(super) struct Dismantled {
    pub(super) fragments: BTreeMap<u32, Bytes>,
    pub(super) cost: usize,
}

impl From<IncompleteMessage> for Dismantled {
    fn from(incomplete: IncompleteMessage) -> Self {
        Self { cost: cost_of(&incomplete.topic), fragments: incomplete.fragments }
    }
}

impl RetainedStore {
    /// Makes room for `cost`, if `replaced` is removed. It frees detached and expired messages first, then
    /// incomplete ones, beginning with the one that has gone longest without a new fragment. It frees no more
    /// than needed.
    pub(super) fn make_room(&mut self, cost: usize, replaced: usize) -> bool {
        if cost > self.max_bytes {
            return false;
        }
        while self.bytes - replaced + cost > self.max_bytes {
            if self.tidy_one() {
                continue;
            }
            if self.incomplete.is_empty() {
                return false;
            }
            self.drop_stalest_incomplete();
        }
        true
    }

    /// Frees a fragment, a message, or the rest of one; then expired messages. False: there is nothing to
    /// free.
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
        } else if let Some((_, topic)) = self.next_expired().and_then(|_| self.expiries.pop_first()) {
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
        self.expiries.first_key_value().map(|(&first, _)| first).filter(|&(expires, _)| expires <= self.now)
    }

    /// A message is not stored any more: frees it, or queues its fragments to be freed.
    pub(super) fn free(&mut self, mut message: Box<Node<RetainedMessage>>) {
        let RetainedMessage { expires, serial, cost, ref mut fragments, .. } = message.value;
        if expires < Micros::MAX {
            self.freed.0.extend(self.expiries.remove(&(expires, serial)).map(Leftover::Topic));
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

    /// What was freed since the last call. If nobody calls, the next offer drops it.
    pub fn take_freed(&mut self) -> Freed {
        std::mem::take(&mut self.freed)
    }

    pub(super) fn drop_stalest_incomplete(&mut self) {
        self.steps += 1;
        let incomplete = self.incomplete.remove(0);
        self.dismantled.push(incomplete.into());
    }

    pub(super) fn drop_incomplete(&mut self, may_go: impl Fn(&IncompleteMessage) -> bool) {
        self.dismantled
            .extend(self.incomplete.extract_if(.., |incomplete| may_go(incomplete)).map(Dismantled::from));
    }
}
