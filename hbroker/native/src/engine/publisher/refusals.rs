//! At the owner: where a publisher's chain of messages broke. The messages that follow a refused one in its
//! chain are refused, too (§7.3).
//!
//! An owner may refuse a message and become ready to take it before later messages of the chain arrive. It
//! must not take these, or they would overtake the retransmitted one. Their `after` names the refused
//! delivery, or one that was refused because of it. A message that is sent after its publisher has learnt of
//! the refusal names none.

use std::collections::HashMap;

use crate::engine::fragmentation::fragments::chain_of;
use crate::engine::owner::routes::Refusal;
use crate::keyed_hash::KeyedHash;
use crate::wire::PublishView;

/// At least this number of the most recently broken chains is remembered for a link, and at most twice as
/// many. A link may have this number of unacknowledged messages (§7.7), so every chain with a message under
/// way is among them.
const MOST: usize = 4_096;

/// The last refused delivery of each broken chain of one link.
pub struct Refusals {
    last: HashMap<u64, u64, KeyedHash>,
    /// The chains that broke before these.
    before: HashMap<u64, u64, KeyedHash>,
}

impl Refusals {
    pub fn new(hasher: KeyedHash) -> Self {
        Self { last: HashMap::with_hasher(hasher), before: HashMap::with_hasher(hasher) }
    }

    /// Whether no chain is broken.
    pub fn is_empty(&self) -> bool {
        self.last.is_empty() && self.before.is_empty()
    }

    /// Whether a message follows one that was refused.
    pub fn precede(&self, publish: &PublishView<'_>, after: u64) -> bool {
        after > 0 && !self.is_empty() && self.of(chain(publish)) == Some(after)
    }

    /// Records the result of a message: a refusal after which it is retransmitted breaks its chain; the next
    /// message that is taken over repairs it.
    pub fn note(&mut self, publish: &PublishView<'_>, delivery: u64, taken: &Result<(), Refusal>) {
        match taken {
            Err(Refusal::NotResponsible(_) | Refusal::Handover | Refusal::QueuesFull | Refusal::OverRate)
                if delivery > 0 =>
            {
                self.insert(chain(publish), delivery);
            }
            Ok(()) if delivery > 0 && !self.is_empty() => self.remove(chain(publish)),
            _ => {}
        }
    }

    fn of(&self, chain: u64) -> Option<u64> {
        self.last.get(&chain).or_else(|| self.before.get(&chain)).copied()
    }

    fn insert(&mut self, chain: u64, delivery: u64) {
        if self.last.len() >= MOST {
            std::mem::swap(&mut self.last, &mut self.before);
            self.last.clear();
        }
        self.last.insert(chain, delivery);
    }

    fn remove(&mut self, chain: u64) {
        self.last.remove(&chain);
        self.before.remove(&chain);
    }
}

fn chain(publish: &PublishView<'_>) -> u64 {
    chain_of(publish.publisher, publish.topic.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_broke_last_are_remembered_and_no_more_than_twice_as_many() {
        let mut refusals = Refusals::new(KeyedHash::new(1));
        for chain in 0..10 * MOST as u64 {
            refusals.insert(chain, chain + 7);
            assert!(refusals.last.len() + refusals.before.len() <= 2 * MOST);
            let oldest = (chain + 1).saturating_sub(MOST as u64);
            assert_eq!(refusals.of(oldest), Some(oldest + 7));
        }
        let chain = 10 * MOST as u64 - 1;
        refusals.insert(chain, 3);
        assert_eq!(refusals.of(chain), Some(3), "it broke again");
        (0..=chain).for_each(|chain| refusals.remove(chain));
        assert!(refusals.is_empty());
    }
}
