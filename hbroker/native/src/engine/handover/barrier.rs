//! What is on its way between the workers of a node, and when it has come (§5.4).
//!
//! A message for a session of another worker goes through that one's mailbox, and may have been acknowledged before it comes there
//! (`ACK_MODE_QUEUED`): then it is in no worker's account. Before a subtree is exported every worker sends every other a barrier, behind all
//! that it had for it. When each has those of all others, nothing of the subtree is on its way any more.
//!
//! From then on nothing may set out again. A member of a shared group may leave or end until the account is taken, and what it had goes to
//! another (§6.5): where that one is another worker's, and no publisher would send the message again, it is left here in its name, and moves from here. Should
//! the subtree not move after all, it goes on when that is served again, or is this node's no more.
//!
//! Several subtrees may move at once, and leases are renewed meanwhile: so each has a barrier of its own.

use crate::engine::owner::forward::Forwarder;
use crate::engine::sessions::message::QueuedMessage;
use crate::engine::transport::outbound::Handoff;
use crate::engine::{Engine, Side};
use crate::tables::jurisdiction::Decision;
use crate::topic::{self, Region};

/// The barriers that have come to one worker, and those that it has raised.
pub struct Barriers {
    /// The number of the last one of each worker.
    last: Box<[u64]>,
    /// The subtrees whose account is to be taken yet.
    raised: Vec<Box<str>>,
}

impl Barriers {
    pub fn new(workers: u8) -> Self {
        Self { last: vec![0; workers.into()].into(), raised: Vec::new() }
    }

    /// One has come.
    pub fn come(&mut self, worker: u8, number: u64) {
        if let Some(last) = self.last.get_mut(usize::from(worker)) {
            *last = number.max(*last);
        }
    }

    /// Whether a message is of a subtree whose account is to be taken yet.
    pub fn holds(&self, queued_message: &QueuedMessage) -> bool {
        let is_raised = |topic| self.raised.iter().any(|subtree| topic::is_within(topic, subtree));
        !self.raised.is_empty() && queued_message.topic().is_some_and(is_raised)
    }
}

impl Engine {
    /// Sends every other worker a barrier, for a subtree that is not served any more. The numbers ascend, from 1.
    pub fn raise_barrier(&mut self, number: u64, subtree: &str) {
        for other in (0..self.workers).filter(|&other| other != self.worker) {
            self.out.handoffs.push_back((other, Handoff::Barrier { worker: self.worker, number }));
        }
        let worker = self.worker;
        self.node(|node| {
            node.barriers.come(worker, number);
            if !node.barriers.raised.iter().any(|raised| **raised == *subtree) {
                node.barriers.raised.push(subtree.into());
            }
        });
    }

    /// What is owned has changed: no account is taken of what is served again, or is this node's no more.
    pub(in crate::engine) fn review_barriers(&mut self) {
        let reviewed = self.node(|node| {
            let jurisdiction = node.routes.jurisdiction();
            let is_leaving = |decision| matches!(decision, Decision::HandingOver | Decision::Elsewhere(_));
            let raised = node.barriers.raised.len();
            // The end of a lease gives nothing back: so the time does not matter.
            node.barriers.raised.retain(|subtree| is_leaving(jurisdiction.decide(subtree, 0)));
            raised > 0
        });
        if reviewed == Some(true) {
            self.release_deferred();
        }
    }

    /// The account of a region is taken: takes out what was left for it.
    pub(in crate::engine) fn pass_barrier(&mut self, region: Region<'_>) -> Vec<(u64, QueuedMessage)> {
        let is_of =
            |queued_message: &QueuedMessage| queued_message.topic().is_some_and(|topic| region.holds(topic));
        let moving = self.node(|node| {
            node.barriers.raised.retain(|subtree| **subtree != *region.subtree);
            node.deferred.extract_if(.., |(_, queued_message)| is_of(queued_message)).collect()
        });
        self.release_deferred();
        moving.unwrap_or_default()
    }

    /// Lets go on what was left behind barriers that are lowered.
    fn release_deferred(&mut self) {
        let Self { side, out, .. } = self;
        if let Side::Node(node) = side {
            let Forwarder { deferred, barriers, .. } = &mut **node;
            let released = deferred.extract_if(.., |(_, queued_message)| !barriers.holds(queued_message));
            let before = out.pending.orphans.len();
            out.pending.orphans.extend(released.map(|(_, queued_message)| queued_message));
            if out.pending.orphans.len() > before {
                out.sessions.look_by(0); // They are found new members then.
            }
        }
    }

    /// Whether all that the other workers had for this one before their barriers of this number has come.
    pub fn has_passed(&self, number: u64) -> bool {
        match &self.side {
            Side::Node(node) => node.barriers.last.iter().all(|&last| last >= number),
            Side::Client(_) => true,
        }
    }
}
