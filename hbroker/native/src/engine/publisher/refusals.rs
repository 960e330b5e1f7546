//! Where a publisher's chain of messages broke: those that follow a refused one are refused too (§7.3).
//!
//! An owner refuses a message, and is the owner again before those come that were sent behind it. It must not take these, or
//! they would overtake the one that comes again. They name as `after` the refused delivery, or one refused for its sake;
//! what is sent once its publisher knows of the refusal names none.

use std::collections::HashMap;

use crate::engine::fragmentation::fragments::chain_of;
use crate::engine::owner::routes::Refusal;
use crate::keyed_hash::KeyedHash;
use crate::wire::PublishView;

/// So many chains that broke last are remembered for one link, at least: as many messages as it may have without an answer (§7.7), and so all that may have
/// one that follows under way. At most twice as many.
const MOST: usize = 4_096;

/// The last refused delivery of each broken chain of one link.
pub struct Refusals {
    last: HashMap<u64, u64, KeyedHash>,
    /// Those that broke before these.
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

    /// What became of a message: a chain is broken by a refusal after which it comes again, and whole with the next that is taken.
    pub fn note(&mut self, publish: &PublishView<'_>, delivery: u64, taken: &Result<(), Refusal>) {
        match taken {
            Err(Refusal::NotResponsible(_) | Refusal::Handover | Refusal::QueuesFull) if delivery > 0 => {
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
