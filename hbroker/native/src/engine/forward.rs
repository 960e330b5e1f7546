//! The owner's part in a message: is it ours, who wants it, and when is it distributed (§7).
//!
//! A PUBLISH is never re-encoded: its bytes are copied from the datagram it came in to the bundles it leaves in. A subscriber
//! whose link another worker has gets its copy by a hand-off; no table is shared between workers on the way.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::Micros;
use crate::engine::counters::Drop;
use crate::engine::distribution::{Distribution, Origin};
use crate::engine::ledger::Ticket;
use crate::engine::outlet::{Handoff, Outlet};
use crate::engine::parts::chain_of;
use crate::engine::routes::{Refusal, Routes};
use crate::engine::turned_away::TurnedAway;
use crate::keyed::Keyed;
use crate::link::pubacks::Success;
use crate::link_id::SessionKey;
use crate::tables::match_set::Subscriber;
use crate::tables::retained::{Offer, RetainedPart, RetainedStore};
use crate::tables::window::DuplicateWindow;
use crate::wire::{Body, PacketView, PublishView};

/// Publishers that are remembered for recognising their messages when they come again, and how many of each.
const WINDOW_PUBLISHERS: usize = 65_536;
const WINDOW_SPAN: usize = 65_536;

/// An owner's tables and open messages, in one worker.
pub struct Forwarder {
    worker: u8,
    pub routes: Routes,
    pub retained: Arc<Mutex<RetainedStore>>,
    window: DuplicateWindow,
    distribution: Distribution,
    turned_away: TurnedAway,
}

impl Forwarder {
    pub fn new(worker: u8, retained: Arc<Mutex<RetainedStore>>, seed: u64) -> Self {
        Self {
            worker,
            routes: Routes::new(seed),
            retained,
            window: DuplicateWindow::new(WINDOW_PUBLISHERS, WINDOW_SPAN, seed),
            distribution: Distribution::new(worker, Keyed::new(seed)),
            turned_away: TurnedAway::new(Keyed::new(seed)),
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
        let taken = self.take(now, publish, origin, out);
        if matches!(taken, Err(Refusal::Handover)) && publish.qos > 0 {
            self.turned_away.note(now, publish);
        }
        taken
    }

    fn take(
        &mut self,
        now: Micros,
        publish: &PublishView<'_>,
        origin: Option<Origin>,
        out: &mut Outlet,
    ) -> Result<(), Refusal> {
        if publish.qos > 2 || origin.is_some_and(|origin| (publish.qos > 0) != (origin.delivery > 0)) {
            return Err(Refusal::InvalidMessage);
        }
        let Self { routes, retained, window, distribution, turned_away, .. } = self;
        let route = routes.find(now, publish.topic)?;
        if route.reserved && origin.is_some() {
            return Err(Refusal::NotAuthorized);
        }
        let reliable = origin.filter(|origin| origin.delivery > 0);
        if reliable.is_some() && (route.gathering || turned_away.holds_back(now, publish)) {
            return Err(Refusal::Handover);
        }
        let id = (publish.publisher, publish.sequence);
        if publish.qos == 2 && !window.first_seen(publish.publisher, publish.sequence) {
            out.counters.drop(Drop::DuplicateMessage);
            // §7.3: acknowledged once it is distributed, not because it came twice.
            reliable
                .filter(|&origin| publish.ack_queued || !distribution.redirect(id, origin))
                .inspect(|&origin| out.acknowledge(origin, Success::Done));
            return Ok(());
        }
        out.counters.messages_in += 1;
        if publish.retain && !retain(&mut retained.lock(), publish) {
            out.counters.drop(Drop::RetainedFull);
        }
        let source = origin.and_then(|origin| out.links.get(origin.link)?.subscriber);
        let mut subscribers =
            route.subscribers.iter().filter(|subscriber| wants(subscriber, source)).peekable();
        if subscribers.peek().is_none() {
            reliable.inspect(|&origin| out.acknowledge(origin, Success::Unmatched));
            return Ok(());
        }
        let ticket = reliable
            .filter(|_| !publish.ack_queued)
            .map(|origin| distribution.open(origin, (publish.qos == 2).then_some(id)));
        distribution.distribute(publish, subscribers, ticket, out);
        match ticket {
            Some(ticket) => self.settle(ticket, out),
            None => _ = reliable.inspect(|&origin| out.acknowledge(origin, Success::Done)),
        }
        Ok(())
    }

    /// Returns a ticket: to its message here, or to the worker that took the message over.
    pub fn settle(&mut self, ticket: Ticket, out: &mut Outlet) {
        if ticket.worker != self.worker {
            out.handoffs.push_back((ticket.worker, Handoff::Settled { ticket }));
        } else if let Some(origin) = self.distribution.settle(ticket) {
            out.acknowledge(origin, Success::Done);
        }
    }

    /// Queues another worker's message for this worker's sessions.
    pub fn deliver(
        &mut self,
        field: &Bytes,
        chain: u64,
        targets: &[(SessionKey, u8)],
        ticket: Option<Ticket>,
        out: &mut Outlet,
    ) {
        for &(session, qos) in targets {
            if qos == 0 {
                out.offer_copy(session, field, false);
            } else if !out.offer_shared(session, field.clone(), chain, false, ticket)
                && let Some(ticket) = ticket
            {
                self.settle(ticket, out);
            }
        }
    }

    /// Sends what is retained and matches, and says how many messages that was.
    pub fn send_retained(&mut self, session: SessionKey, filter: &str, qos: u8, out: &mut Outlet) -> usize {
        let mut sent = 0;
        self.retained.lock().for_each_match(filter, |topic, parts| {
            sent += 1;
            for field in parts {
                send_retained_part(session, topic, field, qos, out);
            }
        });
        sent
    }

    /// Messages taken over and not yet acknowledged.
    pub fn open_messages(&self) -> usize {
        self.distribution.len()
    }
}

/// Whether a subscriber gets what this session published.
fn wants(subscriber: &Subscriber, source: Option<SessionKey>) -> bool {
    !subscriber.no_local || source != Some(subscriber.session)
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

fn send_retained_part(session: SessionKey, topic: &str, field: &[u8], qos: u8, out: &mut Outlet) {
    // A field was checked when it came in; what does not parse any more cannot have been stored.
    let Ok(PacketView { body: Body::Publish(publish), .. }) = PacketView::from_raw(field) else {
        return;
    };
    if qos.min(publish.qos) == 0 {
        out.offer_copy(session, field, true);
    } else {
        let chain = chain_of(publish.publisher, topic.as_bytes());
        out.offer_shared(session, Bytes::copy_from_slice(field), chain, true, None);
    }
}
