//! What is on its way between the workers of a node, and when it has come (§5.4).
//!
//! A message for a session of another worker goes through that one's mailbox, and may have been acknowledged before it comes there
//! (`ACK_MODE_QUEUED`): then it is in no worker's account. Before a subtree is exported every worker sends every other a barrier, behind all
//! that it had for it. When each has those of all others, nothing of the subtree is on its way any more.
//!
//! From then on nothing may set out again. A member of a shared group may leave or end until the account is taken, and what it had goes to
//! another (§6.5): where that one is another worker's, and no publisher would send the message again, it is left here in its name, and moves from here. Should
//! the subtree not move after all, it goes on when the next subtree comes or goes.

use super::Engine;
use crate::engine::outlet::Handoff;

/// The barriers that have come to one worker.
pub struct Barriers {
    /// The number of the last one of each worker.
    last: Box<[u64]>,
    /// One was raised, and the account is not taken yet.
    pub is_raised: bool,
}

impl Barriers {
    pub fn new(workers: u8) -> Self {
        Self { last: vec![0; workers.into()].into(), is_raised: false }
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
        self.barriers.is_raised = true;
    }

    /// The account is taken, or what is owned is no more what it was when the barrier was raised.
    pub(super) fn lower_barrier(&mut self) {
        if std::mem::take(&mut self.barriers.is_raised) {
            let stranded = self.node(|node| std::mem::take(&mut node.stranded)).unwrap_or_default();
            if !stranded.is_empty() {
                self.out.loose.orphans.extend(stranded.into_iter().map(|(_, parcel)| parcel));
                self.out.sessions.look_by(0); // They are found new members then.
            }
        }
    }

    /// Whether all that the other workers had for this one before their barriers of this number has come.
    pub fn has_passed(&self, number: u64) -> bool {
        self.barriers.last.iter().all(|&last| last >= number)
    }
}
