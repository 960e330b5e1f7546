//! The owner's part in a message: is it ours, who wants it, and when is it distributed (§7).
//!
//! A PUBLISH is never re-encoded: its bytes are copied from the datagram it came in to the bundles it leaves in. A subscriber
//! whose link another worker has gets its copy by a hand-off; no table is shared between workers on the way.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::Micros;
use crate::engine::counters::Drop;
use crate::engine::distribution::{Distribution, Origin};
use crate::engine::ledger::Ticket;
use crate::engine::outlet::{Handoff, Outlet, Targets};
use crate::engine::parts::chain_of;
use crate::keyed::Keyed;
use crate::link_id::LinkId;
use crate::tables::jurisdiction::{Cut, Decision, Jurisdiction};
use crate::tables::match_set::MatchSet;
use crate::tables::retained::{Offer, RetainedPart, RetainedStore};
use crate::tables::trie::SubscriptionTrie;
use crate::tables::window::DuplicateWindow;
use crate::topic;
use crate::wire::{Body, PacketView, PublishView};

/// Publishers that are remembered for recognising their messages when they come again, and how many of each.
const WINDOW_PUBLISHERS: usize = 65_536;
const WINDOW_SPAN: usize = 65_536;

/// Why an owner did not take a message over.
#[derive(Clone, Debug)]
pub enum Refusal {
    InvalidTopic,
    InvalidMessage,
    /// Not ours; the cut that it lies in, where we know.
    NotResponsible(Option<Cut>),
    Handover,
}

/// An owner's tables and open messages, in one worker.
pub struct Forwarder {
    worker: u8,
    pub jurisdiction: Jurisdiction,
    pub subscriptions: SubscriptionTrie,
    pub retained: Arc<Mutex<RetainedStore>>,
    window: DuplicateWindow,
    distribution: Distribution,
    matches: MatchSet,
}

impl Forwarder {
    pub fn new(worker: u8, retained: Arc<Mutex<RetainedStore>>, seed: u64) -> Self {
        Self {
            worker,
            jurisdiction: Jurisdiction::new(seed),
            subscriptions: SubscriptionTrie::new(seed),
            retained,
            window: DuplicateWindow::new(WINDOW_PUBLISHERS, WINDOW_SPAN, seed),
            distribution: Distribution::new(worker, Keyed::new(seed)),
            matches: MatchSet::default(),
        }
    }

    /// Takes a message over: queues it for all who want it, and acknowledges it when that is due (§7.3). `origin`: the link that
    /// it came over, with its delivery there (0: `QoS` 0); `None`: this node's own message.
    ///
    /// # Errors
    /// The refusal that its publisher is to be told.
    pub fn forward(
        &mut self,
        now: Micros,
        publish: &PublishView<'_>,
        origin: Option<Origin>,
        out: &mut Outlet,
    ) -> Result<(), Refusal> {
        self.admit(now, publish, origin)?;
        let reliable = origin.filter(|origin| origin.delivery > 0);
        let id = (publish.publisher, publish.sequence);
        if publish.qos == 2 && !self.window.first_seen(publish.publisher, publish.sequence) {
            out.counters.drop(Drop::DuplicateMessage);
            // §7.3: acknowledged once it is distributed, not because it came twice.
            reliable
                .filter(|&origin| publish.ack_queued || !self.distribution.redirect(id, origin))
                .inspect(|&origin| out.acknowledge(origin));
            return Ok(());
        }
        out.counters.messages_in += 1;
        if publish.retain {
            self.retain(publish, out);
        }
        let ticket = reliable
            .filter(|_| !publish.ack_queued)
            .map(|origin| self.distribution.open(origin, (publish.qos == 2).then_some(id)));
        self.distribute(publish, origin, ticket, out);
        match ticket {
            Some(ticket) => self.settle(ticket, out),
            None => _ = reliable.inspect(|&origin| out.acknowledge(origin)),
        }
        Ok(())
    }

    /// Returns a ticket: to its message here, or to the worker that took the message over.
    pub fn settle(&mut self, ticket: Ticket, out: &mut Outlet) {
        if ticket.worker != self.worker {
            out.handoffs.push_back((ticket.worker, Handoff::Settled { ticket }));
        } else if let Some(origin) = self.distribution.settle(ticket) {
            out.acknowledge(origin);
        }
    }

    /// Queues another worker's message for this worker's links.
    pub fn deliver(
        &mut self,
        field: &Bytes,
        chain: u64,
        targets: &[(LinkId, u8)],
        ticket: Option<Ticket>,
        out: &mut Outlet,
    ) {
        for &(link, qos) in targets {
            if qos == 0 {
                out.queue_copy(link, field, false);
            } else if !out.queue_shared(link, field, chain, false, ticket)
                && let Some(ticket) = ticket
            {
                self.settle(ticket, out);
            }
        }
    }

    /// Sends what is retained and matches, and says how many messages that was.
    pub fn send_retained(&mut self, link: LinkId, filter: &str, qos: u8, out: &mut Outlet) -> usize {
        let mut sent = 0;
        self.retained.lock().for_each_match(filter, |topic, parts| {
            sent += 1;
            for field in parts {
                send_retained_part(link, topic, field, qos, out);
            }
        });
        sent
    }

    /// How many subscriptions match a topic.
    pub fn matching(&mut self, topic: &str) -> usize {
        self.subscriptions.collect_matches(topic, &mut self.matches);
        self.matches.subscriptions()
    }

    /// Messages taken over and not yet acknowledged.
    pub fn open_messages(&self) -> usize {
        self.distribution.len()
    }

    fn admit(&self, now: Micros, publish: &PublishView<'_>, origin: Option<Origin>) -> Result<(), Refusal> {
        if publish.qos > 2 || origin.is_some_and(|origin| (publish.qos > 0) != (origin.delivery > 0)) {
            return Err(Refusal::InvalidMessage);
        }
        if !topic::topic_is_valid(publish.topic) {
            return Err(Refusal::InvalidTopic);
        }
        match self.jurisdiction.decide(publish.topic, now) {
            Decision::Own => Ok(()),
            Decision::HandingOver => Err(Refusal::Handover),
            Decision::Elsewhere(cut) => Err(Refusal::NotResponsible(Some(cut.clone()))),
            Decision::NotMine => Err(Refusal::NotResponsible(None)),
        }
    }

    fn retain(&mut self, publish: &PublishView<'_>, out: &mut Outlet) {
        if !retain(&mut self.retained.lock(), publish) {
            out.counters.drop(Drop::RetainedFull);
        }
    }

    fn distribute(
        &mut self,
        publish: &PublishView<'_>,
        origin: Option<Origin>,
        ticket: Option<Ticket>,
        out: &mut Outlet,
    ) {
        let mut matches = std::mem::take(&mut self.matches);
        self.subscriptions.collect_matches(publish.topic, &mut matches);
        // Only reliable packets have an order to keep.
        let chain = if publish.qos > 0 { chain_of(publish.publisher, publish.topic.as_bytes()) } else { 0 };
        let field = publish.field();
        // One allocation serves all copies that are kept, and is made only if there is one.
        let mut shared: Option<Bytes> = None;
        let mut share = || shared.get_or_insert_with(|| Bytes::copy_from_slice(&field)).clone();
        let mut remote: SmallVec<[(u8, Targets); 4]> = SmallVec::new();
        for subscriber in matches.subscribers() {
            let link = subscriber.link;
            if subscriber.no_local && origin.is_some_and(|origin| origin.link == link) {
                continue;
            }
            let qos = subscriber.qos.min(publish.qos);
            if link.worker() != self.worker {
                match remote.iter_mut().find(|(worker, _)| *worker == link.worker()) {
                    Some((_, targets)) => targets.push((link, qos)),
                    None => remote.push((link.worker(), SmallVec::from_elem((link, qos), 1))),
                }
            } else if qos == 0 {
                out.queue_copy(link, &field, false);
            } else if out.queue_shared(link, &share(), chain, false, ticket)
                && let Some(ticket) = ticket
            {
                self.distribution.add_copies(ticket, 1);
            }
        }
        self.matches = matches;
        for (worker, targets) in remote {
            if let Some(ticket) = ticket {
                let kept = targets.iter().filter(|(_, qos)| *qos > 0).count();
                self.distribution.add_copies(ticket, u32::try_from(kept).unwrap_or(u32::MAX));
            }
            out.handoffs.push_back((worker, Handoff::Deliver { field: share(), chain, targets, ticket }));
        }
    }
}

/// Keeps a message as its topic's retained one; false where there is no room.
pub fn retain(retained: &mut RetainedStore, publish: &PublishView<'_>) -> bool {
    let part = RetainedPart {
        topic: publish.topic,
        field: &publish.field(),
        payload_is_empty: publish.payload.is_empty(),
        publisher: publish.publisher,
        sequence: publish.sequence,
        fragment: publish.fragment.map(|fragment| (fragment.index, fragment.count)),
    };
    !matches!(retained.offer(part), Offer::Refused)
}

fn send_retained_part(link: LinkId, topic: &str, field: &[u8], qos: u8, out: &mut Outlet) {
    // A field was checked when it came in; what does not parse any more cannot have been stored.
    let Ok(PacketView { body: Body::Publish(publish), .. }) = PacketView::from_raw(field) else {
        return;
    };
    if qos.min(publish.qos) == 0 {
        out.queue_copy(link, field, true);
    } else {
        let chain = chain_of(publish.publisher, topic.as_bytes());
        out.queue_shared(link, &Bytes::copy_from_slice(field), chain, true, None);
    }
}
