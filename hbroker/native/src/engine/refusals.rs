//! Where a publisher's chain of messages broke: those that follow a refused one are refused too (§7.3).
//!
//! An owner refuses a message, and is the owner again before those come that were sent behind it. It must not take these, or
//! they would overtake the one that comes again. They name as `after` the refused delivery, or one refused for its sake;
//! what is sent once its publisher knows of the refusal names none.

use std::collections::HashMap;

use crate::engine::parts::chain_of;
use crate::engine::routes::Refusal;
use crate::keyed::Keyed;
use crate::wire::PublishView;

/// Chains remembered for one link. A publisher that has more refused at once, each of another topic, may lose their order.
const MOST: usize = 4_096;

/// The last refused delivery of each broken chain of one link.
pub struct Refusals {
    last: HashMap<u64, u64, Keyed>,
}

impl Refusals {
    pub fn new(hasher: Keyed) -> Self {
        Self { last: HashMap::with_hasher(hasher) }
    }

    /// Whether no chain is broken.
    pub fn is_empty(&self) -> bool {
        self.last.is_empty()
    }

    /// Whether a message follows one that was refused.
    pub fn precede(&self, publish: &PublishView<'_>, after: u64) -> bool {
        after > 0 && !self.is_empty() && self.last.get(&chain(publish)) == Some(&after)
    }

    /// What became of a message: a chain is broken by a refusal after which it comes again, and whole with the next that is taken.
    pub fn note(&mut self, publish: &PublishView<'_>, delivery: u64, taken: &Result<(), Refusal>) {
        match taken {
            Err(Refusal::NotResponsible(_) | Refusal::Handover | Refusal::QueuesFull) if delivery > 0 => {
                if self.last.len() >= MOST {
                    self.last.clear();
                }
                self.last.insert(chain(publish), delivery);
            }
            Ok(()) if delivery > 0 && !self.is_empty() => _ = self.last.remove(&chain(publish)),
            _ => {}
        }
    }
}

fn chain(publish: &PublishView<'_>) -> u64 {
    chain_of(publish.publisher, publish.topic.as_bytes())
}
