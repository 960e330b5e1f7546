//! Whether messages of a subtree are still on their way between the workers of a node (§5.4).
//!
//! A message for a session of another worker goes through that worker's mailbox, and may have been
//! acknowledged before it arrives there (`ACK_MODE_QUEUED`). Meanwhile no worker's snapshot would contain it.
//! So before a subtree is exported, every worker sends every other worker a barrier, after all messages for
//! it. When each worker has the barriers of all others, no message of the subtree is on its way any more.
//!
//! From then on no message may be sent between workers. A member of a shared group may leave or end before
//! the snapshot is made, and its messages go to another member (§6.5). If the other member is a session of
//! another worker, and no publisher would retransmit the message, the message stays at this worker (`deferred`),
//! with the id of that session, and is in this worker's snapshot. If the subtree does not move after all, a
//! member is chosen again once the subtree is served again, or belongs to another node.
//!
//! Several subtrees may move at once, and leases are renewed meanwhile, so each subtree has its own barrier.

use crate::engine::sessions::message::QueuedMessage;
use crate::engine::transport::outbound::Handoff;
use crate::engine::{Engine, Side};
use crate::tables::jurisdiction::Decision;
use crate::topic::{self, Region};

/// The barriers that one worker has received, and those that it has raised.
pub struct Barriers {
    /// The number of the last barrier of each worker.
    last: Box<[u64]>,
    /// The subtrees whose snapshot has not been made yet.
    raised: Vec<Box<str>>,
}

impl Barriers {
    pub fn new(workers: u8) -> Self {
        Self { last: vec![0; workers.into()].into(), raised: Vec::new() }
    }

    /// A barrier has arrived.
    pub fn receive(&mut self, worker: u8, number: u64) {
        if let Some(last) = self.last.get_mut(usize::from(worker)) {
            *last = number.max(*last);
        }
    }

    /// Whether a message is of a subtree whose snapshot has not been made yet.
    pub fn holds(&self, queued_message: &QueuedMessage) -> bool {
        let is_raised = |topic| self.raised.iter().any(|subtree| topic::is_within(topic, subtree));
        !self.raised.is_empty() && queued_message.topic().is_some_and(is_raised)
    }
}

impl Engine {
    /// Sends every other worker a barrier for a subtree that is not served any more. The numbers begin with
    /// 1, and ascend.
    pub fn raise_barrier(&mut self, number: u64, subtree: &str) {
        let worker = self.worker;
        self.tell_others(&Handoff::Barrier { worker, number });
        self.node(|node| {
            node.barriers.receive(worker, number);
            if !node.barriers.raised.iter().any(|raised| **raised == *subtree) {
                node.barriers.raised.push(subtree.into());
            }
        });
    }

    /// The jurisdiction has changed: no snapshot is made of a subtree that is served again, or that is this
    /// node's no more.
    pub(in crate::engine) fn review_barriers(&mut self) {
        let reviewed = self.node(|node| {
            let jurisdiction = node.routes.jurisdiction();
            let is_leaving = |decision| matches!(decision, Decision::HandingOver | Decision::Elsewhere(_));
            let raised = node.barriers.raised.len();
            // The time does not matter here: a subtree is not served again because a lease ends.
            node.barriers.raised.retain(|subtree| is_leaving(jurisdiction.decide(subtree, 0)));
            raised > 0
        });
        if reviewed == Some(true) {
            self.release_deferred();
        }
    }

    /// The snapshot of a region is made: takes out the messages that were deferred for it.
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

    /// Continues the deferred messages whose subtree has no barrier any more.
    fn release_deferred(&mut self) {
        let Self { side, out, .. } = self;
        if let Side::Node(node) = side {
            let node = &mut **node;
            let is_released = |(_, message): &mut (u64, QueuedMessage)| !node.barriers.holds(message);
            let released = node.deferred.extract_if(.., is_released);
            let before = out.pending.orphans.len();
            out.pending.orphans.extend(released.map(|(_, queued_message)| queued_message));
            if out.pending.orphans.len() > before {
                out.sessions.check_by(0); // The check finds new members for them.
            }
        }
    }

    /// Whether all messages that the other workers sent before their barriers of this number have arrived.
    pub fn has_passed(&self, number: u64) -> bool {
        match &self.side {
            Side::Node(node) => node.barriers.last.iter().all(|&last| last >= number),
            Side::Client(_) => true,
        }
    }
}
