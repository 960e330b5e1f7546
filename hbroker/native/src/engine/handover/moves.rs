//! The state of subtrees that change their owner (§5.4), each under a number: copies of the workers' queues,
//! queues that were taken out of the workers, and records from another owner.
//!
//! 1. The source begins an *export*. It copies queues in steps while it still serves the subtree.
//! 2. The source finishes the export. From then on the subtree's messages are only here, *held*, until the
//!    target has them or the source needs them again.
//! 3. The target imports the records. They are held until it serves.

use std::collections::HashMap;

use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::config::Config;
use crate::engine::handover::held_queues::HeldQueues;

/// The prefix of the numbers of held queues. No worker has this number.
const HELD_QUEUES: u64 = 0xff << 56;

/// All exports and imports of a core.
pub struct Moves {
    /// How many bytes one import may hold.
    pub most: usize,
    /// How many messages were copied, and how many were sent only after their subtree was not served any
    /// more.
    pub copied: u64,
    pub rest: u64,
    pub last: u64,
    pub last_queue: u64,
    pub all: HashMap<u64, Move>,
    /// If an import has more bytes, large queues go to the store.
    pub most_unspooled: usize,
    /// Gives names to queues in the store. Another run gives others.
    pub names: SmallRng,
}

pub enum Move {
    Export(NodeExport),
    HeldQueues(HeldQueues),
}

/// The next message to copy from queues that were held before. `queue`: the index of its queue. `stored`: its number
/// in the stored queue; `u64::MAX`: all messages there are copied. `position`: its index in the list of the messages in
/// memory.
#[derive(Default)]
pub struct HeldCursor {
    pub queue: usize,
    pub stored: u64,
    pub position: usize,
}

/// An export whose messages are being copied, with the position of the next step. It covers all workers of the node.
pub struct NodeExport {
    pub subtree: Box<str>,
    pub excluded: Vec<String>,
    /// The queues that were held before and move along. They are copied first; `at` is the next message to copy.
    pub before: HeldQueues,
    pub at: HeldCursor,
    pub worker: u8,
    /// Bytes copied in this round, in all, and at most.
    pub round: usize,
    pub copied: usize,
    pub most: usize,
}

impl Moves {
    /// For a run with this seed, which no other run of the node has.
    pub fn new(config: &Config, seed: u64) -> Self {
        Self {
            most: config.queue_memory,
            copied: 0,
            rest: 0,
            last: 0,
            last_queue: 0,
            all: HashMap::new(),
            most_unspooled: config.spool_bytes,
            names: SmallRng::seed_from_u64(seed),
        }
    }

    /// Takes out what is held under a number. Its queues get new numbers, because their sessions may have
    /// other queues by now.
    pub fn take_held(&mut self, id: u64) -> HeldQueues {
        match self.all.remove(&id) {
            Some(Move::HeldQueues(mut held)) => {
                held.rename(|| {
                    self.last_queue += 1;
                    HELD_QUEUES | self.last_queue
                });
                held
            }
            Some(other) => {
                self.all.insert(id, other);
                HeldQueues::default()
            }
            None => HeldQueues::default(),
        }
    }
}
