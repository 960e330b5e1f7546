//! What is on its way between the workers of a node, and when it has come (§5.4).
//!
//! A message for a session of another worker goes through that one's mailbox, and may have been acknowledged before it comes there
//! (`ACK_MODE_QUEUED`): then it is in no worker's account. Before a subtree is exported every worker sends every other a barrier, behind all
//! that it had for it. When each has those of all others, nothing of the subtree is on its way any more.

use super::Engine;
use crate::engine::outlet::Handoff;

/// The barriers that have come to one worker.
pub struct Barriers {
    /// The number of the last one of each worker.
    last: Box<[u64]>,
}

impl Barriers {
    pub fn new(workers: u8) -> Self {
        Self { last: vec![0; workers.into()].into() }
    }

    /// One has come.
    pub fn come(&mut self, worker: u8, number: u64) {
        if let Some(last) = self.last.get_mut(usize::from(worker)) {
            *last = number.max(*last);
        }
    }
}

impl Engine {
    /// Sends every other worker a barrier. The numbers ascend, from 1.
    pub fn raise_barrier(&mut self, number: u64) {
        for other in (0..self.workers).filter(|&other| other != self.worker) {
            self.out.handoffs.push_back((other, Handoff::Barrier { worker: self.worker, number }));
        }
        self.barriers.come(self.worker, number);
    }

    /// Whether all that the other workers had for this one before their barriers of this number has come.
    pub fn has_passed(&self, number: u64) -> bool {
        self.barriers.last.iter().all(|&last| last >= number)
    }
}
