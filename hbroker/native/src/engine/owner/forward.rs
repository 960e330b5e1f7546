//! The owner's part in a message: does this node own it, who gets it, and when is it distributed (§7)?
//!
//! A PUBLISH is never re-encoded: its bytes are copied from the datagram that it arrived in to the bundles
//! that it leaves in. A session whose home is another worker gets its copy by a handoff. No table is shared
//! between workers on this path.

use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::Micros;
use crate::broken::Defect;
use crate::engine::handover::barrier::Barriers;
use crate::engine::metrics::counters::Drop;
use crate::engine::metrics::message_metrics::{Departed, MessageMetrics};
use crate::engine::owner::distribution::Distribution;
use crate::engine::owner::routes::{Refusal, Route, Routes};
use crate::engine::owner::shared_groups::SharedGroups;
use crate::engine::owner::throttle::Throttle;
use crate::engine::owner::workspace_rates::WorkspaceRates;
use crate::engine::retained::replay::Replays;
use crate::engine::sessions::message::{MessageOrigin, QueuedBatch, QueuedMessage};
use crate::engine::sessions::target::{Target, Targets};
use crate::engine::transport::delivery_records::{Origin, TicketSpan};
use crate::engine::transport::outbound::{Handoff, Outbound};
use crate::engine::{Engine, Side};
use crate::keyed_hash::KeyedHash;
use crate::link::receive::pubacks::Success;
use crate::link_id::{LinkId, SessionKey};
use crate::load::spans::{SpanKind, TraceContext, Traced};
use crate::publisher_id::publisher_id;
use crate::tables::jurisdiction::{Cut, Decision};
use crate::tables::retained::{Offer, RetainedFragment, RetainedStore};
use crate::tables::subscriber::Subscriber;
use crate::tables::window::{self, DuplicateWindow};
use crate::wire::publish_of;
use crate::wire::{self, PacketView, PubAckView, PublishView};

/// How many publishers are remembered, to recognise retransmitted messages.
const WINDOW_PUBLISHERS: usize = 65_536;
/// How long the message that cleared a topic is remembered: longer than an older message can be on its way.
const CLEARED_FOR: Micros = 15_000_000;

/// The tables and open messages of an owner, in one worker.
pub struct Forwarder {
    worker: u8,
    pub routes: Routes,
    pub retained: Arc<Mutex<RetainedStore>>,
    pub replays: Replays,
    /// Since when this worker knows of something in the store to free; `Micros::MAX`: of nothing.
    untidy_since: Micros,
    pub window: DuplicateWindow,
    pub distribution: Distribution,
    pub shared_groups: SharedGroups,
    /// Messages for sessions of other workers, each with the session's id, while their subtree is about to
    /// move (`barrier`).
    pub deferred: Vec<(u64, QueuedMessage)>,
    pub barriers: Barriers,
    pub throttle: Throttle,
    pub workspace_rates: WorkspaceRates,
    pub departed: Departed,
}

impl Forwarder {
    /// That of worker number `worker` of `workers`.
    pub fn new(
        worker: u8,
        workers: u8,
        retained: Arc<Mutex<RetainedStore>>,
        workspace_rates: WorkspaceRates,
        seed: u64,
    ) -> Self {
        Self {
            worker,
            routes: Routes::new(seed),
            retained,
            replays: Replays::default(),
            untidy_since: Micros::MAX,
            window: DuplicateWindow::new(WINDOW_PUBLISHERS, window::SPAN, seed),
            distribution: Distribution::new(worker),
            shared_groups: SharedGroups::new(KeyedHash::new(seed)),
            deferred: Vec::new(),
            barriers: Barriers::new(workers),
            throttle: Throttle::default(),
            workspace_rates,
            departed: Departed::default(),
        }
    }

    pub fn worker(&self) -> u8 {
        self.worker
    }

    /// Takes a message over: queues it for all subscribers, and acknowledges it when that is due (§7.3).
    /// `origin` is the link that the message came over, with its delivery there (0 at `QoS` 0); `None`: this
    /// node published it itself.
    ///
    /// # Errors
    /// The refusal that the publisher gets.
    pub fn forward(
        &mut self,
        now: Micros,
        publish: &PublishView<'_>,
        origin: Option<Origin>,
        out: &mut Outbound,
    ) -> Result<(), Refusal> {
        if publish.qos > 2 || origin.is_some_and(|origin| (publish.qos > 0) != (origin.delivery > 0)) {
            return Err(Refusal::InvalidMessage);
        }
        let Self { worker, routes, retained, untidy_since, window, distribution, shared_groups, .. } = self;
        let workspace_rates = &self.workspace_rates;
        let route = routes.find(now, publish.topic)?;
        admit(now, (publish, origin), &route, shared_groups, out)?;
        if origin.is_some() && !workspace_rates.take(now, publish.topic, 1) {
            return Err(Refusal::OverRate);
        }
        let reliable = origin.filter(|origin| origin.delivery > 0);
        let id = (publish.publisher, publish.sequence);
        if publish.qos == 2 && !window.first_seen(now, publish.publisher, publish.sequence) {
            out.counters.drop(Drop::DuplicateMessage);
            // §7.3: a retransmission is acknowledged once the message is distributed, not at once.
            reliable
                .filter(|&origin| {
                    publish.ack_queued && out.storing.is_none() || !distribution.redirect(id, origin)
                })
                .inspect(|&origin| out.acknowledge(origin, 1, Success::Done));
            return Ok(());
        }
        out.counters.messages_in += 1;
        let mut message_metrics = MessageMetrics::arrives(&mut out.load, now, publish, route.topic_slot);
        let traced = traced(now, publish, origin, out);
        traced.iter().for_each(|traced| message_metrics.trace(traced));
        // A status of this node is of no use to its next run.
        let journal =
            if route.reserved { Journaled::No } else { Journaled::Yes { waits: waits(publish, origin) } };
        let is_stored = publish.retain && retain_one(now, retained, untidy_since, (publish, journal), out);
        let session = origin.and_then(|origin| out.links.awake(origin.link)?.subscriber);
        let mut plain = route.subscribers.iter().filter(|subscriber| wants(subscriber, session));
        let mut chosen: SmallVec<[Target; 2]> =
            route.groups.iter().filter_map(|group| shared_groups.choose(&group, publish, out)).collect();
        if chosen.is_empty() && plain.clone().next().is_none() && !(is_stored && reliable.is_some()) {
            reliable.inspect(|&origin| out.acknowledge(origin, 1, Success::Unmatched));
            traced.inspect(|traced| traced.end(SpanKind::Owner, now, None));
            return Ok(());
        }
        let sessions = plain.clone().map(|subscriber| subscriber.session);
        let sessions = sessions.chain(chosen.iter().map(|target| target.session));
        let is_early = publish.ack_queued && !is_stored && !out.waits_for_the_disk(*worker, sessions);
        let targets = plain.by_ref().map(Target::from).chain(chosen.drain(..));
        let ticket = reliable
            .filter(|_| !is_early)
            .filter(|_| !Defect::AcknowledgesEarly.is_present())
            .map(|origin| distribution.open(origin, 1, (publish.qos == 2).then_some(id), publish.topic));
        let source = origin.map(|origin| origin.link);
        let message_origin = MessageOrigin { source, ticket: ticket.map(|span| span.first), message_metrics };
        distribution.distribute(now, publish, targets, &message_origin, out);
        if let Some(span) = ticket.filter(|_| is_stored)
            && let Some(storing) = &mut out.storing
        {
            distribution.add_copies(span, 1);
            storing.tickets().extend([span]);
        }
        match ticket {
            Some(span) => {
                traced.into_iter().for_each(|traced| self.distribution.trace(span.first, traced));
                self.settle(span, out);
            }
            None => {
                reliable.inspect(|&origin| out.acknowledge(origin, 1, Success::Done));
                traced.inspect(|traced| traced.end(SpanKind::Owner, now, None));
            }
        }
        Ok(())
    }

    /// The sessions that would get a message now, if it came from the session `source`. None, if it would not
    /// be taken over.
    pub fn sessions_for(
        &mut self,
        now: Micros,
        publish: &PublishView<'_>,
        source: Option<SessionKey>,
        out: &Outbound,
    ) -> SmallVec<[SessionKey; 4]> {
        let Self { routes, shared_groups, .. } = self;
        let Ok(route) = routes.find(now, publish.topic) else {
            return SmallVec::new();
        };
        let plain = route.subscribers.iter().filter(|subscriber| wants(subscriber, source));
        let chosen = route.groups.iter().filter_map(|group| shared_groups.look_up(&group, publish, out));
        plain.copied().chain(chosen).map(|subscriber| subscriber.session).collect()
    }

    /// Returns tickets to their messages here, or to the worker that took the messages over.
    pub fn settle(&mut self, tickets: TicketSpan, out: &mut Outbound) {
        let worker = tickets.first.worker;
        if worker != self.worker {
            out.handoffs.push_back((worker, Handoff::Settled { tickets }));
        } else {
            let acknowledge = |origin, count| out.acknowledge(origin, count, Success::Done);
            let unknown = self.distribution.settle(tickets, acknowledge);
            out.counters.drop_many(Drop::UnknownTicket, unknown);
        }
    }

    /// Offers another worker's messages to this worker's sessions.
    pub fn deliver(
        &mut self,
        now: Micros,
        mut queued_batch: QueuedBatch,
        targets: Targets,
        out: &mut Outbound,
    ) {
        queued_batch.changes_hands(&mut out.load);
        if queued_batch.count > 1 {
            return self.pass_all(now, &queued_batch, targets, out);
        }
        for target in targets {
            if self.has_left(now, &queued_batch.queued_message, &target) {
                out.pending.orphans.push(queued_batch.queued_message.clone().addressed(target));
            } else {
                self.pass(now, queued_batch.queued_message.clone(), target, out);
            }
        }
    }

    /// Finds another member for a message of a shared group (§6.5), also while its subtree is handed over;
    /// the message then moves with its new member. If there is none, the message is dropped. The message
    /// expires for the new member as any other message does, even if it had been sent to the previous one.
    ///
    /// `is_leaving`: a snapshot of its subtree is about to be made, which must contain the message.
    pub fn reassign(
        &mut self,
        now: Micros,
        mut queued_message: QueuedMessage,
        is_leaving: bool,
        out: &mut Outbound,
    ) {
        let member = publish_of(&queued_message.field).and_then(|publish| {
            queued_message.expires = publish.expires();
            let groups = self.routes.groups(publish.topic);
            let group =
                groups.find(queued_message.group.as_deref()?, queued_message.meant_for?.shared_for())?;
            let target = self.shared_groups.choose(&group, &publish, out)?;
            Some(Target { qos: target.qos.min(publish.qos), ..target })
        });
        let Some(target) = member else {
            out.counters.drop(Drop::SessionEnded);
            return out.pending.tickets.extend(queued_message.ticket);
        };
        if target.qos == 0 {
            out.pending.tickets.extend(queued_message.ticket.take());
        }
        let worker = target.session.worker();
        if worker == self.worker {
            return self.pass(now, queued_message, target, out);
        }
        if is_leaving
            && queued_message.ticket.is_none()
            && target.qos > 0
            && !self.serves(now, &queued_message)
            && let Some((id, _)) = out.fitness_of(target.session)
        {
            return self.deferred.push((id, queued_message.addressed(target)));
        }
        let targets = Targets::from_iter([target]);
        out.handoffs.push_back((worker, Handoff::Deliver { queued_batch: queued_message.into(), targets }));
    }

    fn serves(&self, now: Micros, queued_message: &QueuedMessage) -> bool {
        let decide = |topic| self.routes.jurisdiction().decide(topic, now);
        queued_message.topic().is_some_and(|topic| matches!(decide(topic), Decision::Own(_)))
    }

    /// Whether a session has left the group through which another worker had chosen it for a message.
    fn has_left(&mut self, now: Micros, queued_message: &QueuedMessage, target: &Target) -> bool {
        let (Some(group), Some(topic)) = (&target.group, queued_message.topic()) else {
            return false;
        };
        match self.routes.find(now, topic) {
            Ok(route) => !route.groups.has_member(group, target.shared, target.session),
            Err(_) => !self.routes.groups(topic).has_member(group, target.shared, target.session),
        }
    }

    /// Offers messages of a batch, which hold their tickets already, to sessions of this worker. Sessions that do not
    /// take all of them at once are offered one message after the other, so that each is stored once for all these
    /// sessions.
    fn pass_all(&mut self, now: Micros, queued_batch: &QueuedBatch, targets: Targets, out: &mut Outbound) {
        let mut one_by_one = Targets::new();
        for target in targets {
            let holds_ticket = if target.qos > 0 { out.offer_all(now, queued_batch, &target) } else { None };
            match holds_ticket {
                Some(true) => {}
                Some(false) => out.pending.tickets.extend(queued_batch.tickets(queued_batch.positions())),
                None => one_by_one.push(target),
            }
        }
        if one_by_one.is_empty() {
            return;
        }
        for queued_message in queued_batch.clone().into_queued_messages(queued_batch.positions()) {
            for target in &one_by_one {
                self.pass(now, queued_message.clone(), target.clone(), out);
            }
        }
    }

    /// Offers a message, which holds its ticket already, to a session of this worker.
    fn pass(&mut self, now: Micros, mut queued_message: QueuedMessage, target: Target, out: &mut Outbound) {
        let session = target.session;
        let is_expired = queued_message.expires <= now && !Defect::SendsTheDead.is_present();
        if target.qos == 0 {
            return match is_expired {
                true => out.count_expired(session),
                false => out.offer_copy(
                    session,
                    &queued_message.field,
                    target.meant_for(),
                    &queued_message.message_metrics,
                ),
            };
        }
        let shared = target.shared;
        queued_message = queued_message.addressed(target);
        if queued_message.group.is_some() && out.sessions.get(session).is_none() {
            return out.pending.orphans.push(queued_message);
        }
        let ticket = queued_message.ticket;
        if is_expired {
            out.count_expired(session);
            out.pending.tickets.extend(ticket);
        } else if !queued_message.was_stored && out.was_stored_before(session, shared, &queued_message.field)
            || !out.offer(now, session, queued_message)
        {
            out.pending.tickets.extend(ticket);
        }
    }

    /// Frees a part of what the store has discarded.
    pub fn tidy_retained(&mut self, now: Micros) {
        let mut retained = self.retained.lock();
        retained.set_time(now);
        self.untidy_since = if retained.tidy() { now } else { Micros::MAX };
        let freed = retained.take_freed();
        drop((retained, freed)); // The store is unlocked before the memory is freed.
    }

    /// When a replay continues or the store has to be tidied next; `Micros::MAX`: nothing is left to do.
    pub fn next_timeout(&self) -> Micros {
        self.replays.due().min(self.untidy_since)
    }

    /// The number of messages that are taken over and not acknowledged.
    pub fn open_messages(&self) -> usize {
        self.distribution.len()
    }
}

/// Whether a subscriber gets what this session published.
pub fn wants(subscriber: &Subscriber, source: Option<SessionKey>) -> bool {
    !subscriber.no_local || source != Some(subscriber.session)
}

/// Whether a retained message goes to the store, if there is one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Journaled {
    No,
    /// `waits`: its publisher was, or would have been, refused for want of room.
    Yes {
        waits: bool,
    },
}

/// What the spans of a message need; `None`: it has none.
fn traced(
    now: Micros,
    publish: &PublishView<'_>,
    origin: Option<Origin>,
    out: &Outbound,
) -> Option<Arc<Traced>> {
    let log = out.spans.as_ref().filter(|_| publish.has_properties)?;
    let context = TraceContext::among(publish.user_properties())?;
    let entry = origin.and_then(|origin| out.links.awake(origin.link));
    Some(Arc::new(Traced {
        log: Arc::clone(log),
        context,
        publisher: publish.publisher,
        sequence: publish.sequence,
        topic: publish.topic.into(),
        qos: publish.qos,
        is_from_gateway: entry.is_some_and(|entry| entry.for_many),
        started: now,
    }))
}

/// Whether the publisher of a message waits for its PUBACK, or for the node's own verb: it can be refused for want of
/// room.
fn waits(publish: &PublishView<'_>, origin: Option<Origin>) -> bool {
    origin.map_or(publish.qos > 0, |origin| origin.delivery > 0)
}

/// Whether a message may be taken over.
///
/// # Errors
/// The refusal that the publisher gets.
#[inline]
fn admit(
    now: Micros,
    (publish, origin): (&PublishView<'_>, Option<Origin>),
    route: &Route<'_>,
    shared_groups: &SharedGroups,
    out: &mut Outbound,
) -> Result<(), Refusal> {
    if route.reserved && origin.is_some() {
        return Err(Refusal::NotAuthorized);
    }
    if publish.expires() <= now {
        return Err(Refusal::Expired);
    }
    if route.recovering && origin.is_some_and(|origin| origin.delivery > 0) {
        return Err(Refusal::Handover);
    }
    if !waits(publish, origin) {
        return Ok(());
    }
    if out.queues_are_full() {
        return Err(Refusal::QueuesFull);
    }
    if !out.full_sessions.is_empty() {
        let session = origin.and_then(|origin| out.links.awake(origin.link)?.subscriber);
        let plain = route.subscribers.iter().filter(|subscriber| wants(subscriber, session)).copied();
        let chosen = route.groups.iter().filter_map(|group| shared_groups.look_up(&group, publish, out));
        let full: SmallVec<[SessionKey; 2]> = out.full_sessions.among(plain.chain(chosen)).collect();
        if !full.is_empty() {
            if let Some(Origin { link, .. }) = origin {
                full.into_iter().for_each(|session| out.note_refused(session, link));
            }
            return Err(Refusal::QueuesFull);
        }
    }
    if !route.reserved && out.store_is_full() {
        let plain = route.subscribers.iter().filter(|subscriber| subscriber.qos > 0).copied();
        let chosen = route.groups.iter().filter_map(|group| shared_groups.look_up(&group, publish, out));
        let is_stored = |subscriber: Subscriber| out.has_to_be_stored(subscriber.session);
        if publish.retain || plain.chain(chosen).any(is_stored) {
            return Err(Refusal::QueuesFull);
        }
    }
    Ok(())
}

/// Keeps a message as the retained one of its topic. Returns whether it is to be acknowledged only when it is on
/// disk.
fn retain_one(
    now: Micros,
    retained: &Mutex<RetainedStore>,
    untidy_since: &mut Micros,
    (publish, journaled): (&PublishView<'_>, Journaled),
    out: &mut Outbound,
) -> bool {
    let offer = if journaled == (Journaled::Yes { waits: false }) && out.store_is_full() {
        Offer::Refused
    } else {
        let (mut store, field) = (retained.lock(), publish.field());
        store.set_time(now);
        let is_journaled = journaled != Journaled::No;
        let offer = store.offer(RetainedFragment { is_journaled, ..retained_fragment(now, publish, &field) });
        if store.is_untidy() {
            *untidy_since = now.min(*untidy_since);
        }
        let freed = store.take_freed();
        drop((store, freed)); // The store is unlocked before the memory is freed.
        offer
    };
    if offer == Offer::Refused {
        out.counters.drop(Drop::RetainedFull);
    }
    journaled != Journaled::No
        && out.storing.is_some()
        && !matches!(offer, Offer::Refused | Offer::Incomplete)
}

/// Keeps a message as the retained one of its topic.
pub fn retain(now: Micros, retained: &mut RetainedStore, publish: &PublishView<'_>) -> Offer {
    retained.set_time(now);
    retained.offer(retained_fragment(now, publish, &publish.field()))
}

/// A message that was published with `retain`. `field`: its bytes.
pub fn retained_fragment<'a>(
    now: Micros,
    publish: &PublishView<'a>,
    field: &'a [u8],
) -> RetainedFragment<'a> {
    let clears = publish.payload.is_empty() && publish.fragment.is_none();
    RetainedFragment {
        topic: publish.topic,
        field,
        payload_is_empty: clears,
        publisher: publish.publisher,
        sequence: publish.sequence,
        expires: if clears { now + CLEARED_FOR } else { publish.expires() },
        fragment: publish.fragment.map(|fragment| (fragment.index, fragment.count)),
        is_journaled: true,
    }
}

impl Engine {
    pub(in crate::engine) fn forward(
        &mut self,
        now: Micros,
        id: LinkId,
        packet: &PacketView<'_>,
        publish: &PublishView<'_>,
    ) {
        let delivery = packet.delivery;
        let Some(entry) = self.out.links.get_mut(id).filter(|entry| entry.inbound) else {
            self.out.counters.drop(Drop::UnexpectedPacket);
            return;
        };
        let is_turned_away = entry.refusals.precede(publish, packet.after);
        let is_too_much = delivery > 0 && entry.is_beyond_allowance(publish);
        let may_be_throttled = delivery > 0 && entry.is_partly_throttled();
        if entry.publisher == 0 {
            // A link that carries a PUBLISH has learnt the incarnation of its peer.
            let incarnation = entry.link.peer_incarnation().unwrap_or_default();
            entry.publisher = publisher_id(entry.session, incarnation);
            self.register_publisher(now, id);
        }
        let is_throttled = may_be_throttled
            && !is_turned_away
            && !is_too_much
            && self.is_throttled_message(now, id, publish);
        let entry = self.out.links.get_mut(id);
        let (is_its_own, may_publish) = entry.map_or((false, false), |entry| {
            (entry.is_of(publish.publisher), entry.may_publish(publish.topic, publish.retain))
        });
        let Side::Node(forwarder) = &mut self.side else {
            return;
        };
        let taken = if !is_its_own {
            Err(Refusal::ForeignPublisher)
        } else if !may_publish {
            Err(Refusal::NotAuthorized)
        } else if is_turned_away {
            Err(Refusal::Handover)
        } else if is_too_much || is_throttled {
            Err(Refusal::QueuesFull)
        } else {
            forwarder.forward(now, publish, Some(Origin { link: id, delivery }), &mut self.out)
        };
        if let Some(entry) = self.out.links.get_mut(id) {
            entry.refusals.note(publish, delivery, &taken);
        }
        if let Err(refusal) = taken {
            self.refuse(now, id, delivery, publish, &refusal);
        }
        self.settle_pending(now);
    }

    /// A subscriber's PUBACK.
    pub(in crate::engine) fn settle(&mut self, now: Micros, id: LinkId, puback: &PubAckView<'_>) {
        let entry = self.out.links.awake(id).filter(|entry| !entry.link.is_mismatched());
        if let Some(session) = entry.and_then(|entry| entry.subscriber) {
            self.out.answer(now, session, puback);
            self.settle_pending(now);
        }
    }

    /// A client sends its credit, and whether it publishes for many (§7.7).
    pub(in crate::engine) fn grant_credit(
        &mut self,
        now: Micros,
        id: LinkId,
        (messages, bytes): (u32, u64),
        for_many: bool,
    ) {
        // If the session is not made here yet, it gets the credit from the link later.
        let Some(entry) = self.out.links.get_mut(id) else {
            return;
        };
        entry.credit.grant(messages, bytes);
        let session = entry.subscriber;
        if std::mem::replace(&mut entry.for_many, for_many) != for_many {
            self.update_credit(now, id); // It may have been held back before this CREDIT arrived.
        }
        if let Some(session) = session {
            self.out.grant(now, session, messages, bytes);
            self.settle_pending(now);
        }
    }

    /// Carries out what handling messages has left to do: tickets, holds, overflowed sessions, messages
    /// without a member.
    pub(in crate::engine) fn settle_pending(&mut self, now: Micros) {
        while !self.out.pending.is_empty() {
            let mut tickets = std::mem::take(&mut self.out.pending.tickets);
            let overflowed = std::mem::take(&mut self.out.pending.overflowed);
            let throttle_changes = std::mem::take(&mut self.out.pending.throttle_changes);
            let orphans = std::mem::take(&mut self.out.pending.orphans);
            let full_changes = std::mem::take(&mut self.out.pending.full_changes);
            let mut settled = std::mem::take(&mut self.out.pending.settled);
            let mut moved = std::mem::take(&mut self.out.pending.moved);
            full_changes
                .into_iter()
                .for_each(|(session, is_full)| self.tell_others(&Handoff::Full { session, is_full }));
            for key in overflowed {
                self.end_overflowed(now, key);
            }
            for change in throttle_changes {
                self.apply_throttle(now, change);
            }
            let Side::Node(forwarder) = &mut self.side else {
                return;
            };
            for queued_message in orphans {
                let is_leaving = forwarder.barriers.holds(&queued_message);
                forwarder.reassign(now, queued_message, is_leaving, &mut self.out);
            }
            // Behind the orphans: what another session gets is stored for it before it is settled.
            if let Some(storing) = &mut self.out.storing {
                storing.settle(&mut settled, &mut moved);
            }
            for span in tickets.drain() {
                forwarder.settle(span, &mut self.out);
            }
            if self.out.pending.tickets.is_empty() {
                self.out.pending.tickets = tickets; // Its memory serves the next ones.
            }
        }
    }

    /// Refuses a message with a PUBACK: at `QoS` 1 and 2 reliably, at 0 once, within the rate limit for
    /// strangers.
    fn refuse(
        &mut self,
        now: Micros,
        id: LinkId,
        delivery: u64,
        publish: &PublishView<'_>,
        refusal: &Refusal,
    ) {
        let (why, reason) = refusal.drop_and_reason();
        self.out.counters.drop(why);
        let cut = match refusal {
            Refusal::NotResponsible(cut) => cut.as_ref().map(Cut::view),
            _ => None,
        };
        let Some(entry) = self.out.links.get_mut(id) else {
            return;
        };
        let mut body = Vec::new();
        let queued = if delivery > 0 {
            // The publisher finds the topic by the delivery.
            wire::put_puback_field(&mut body, [(delivery, delivery)], reason, "", cut.as_ref());
            entry.link.refuse(body.into())
        } else if matches!(refusal, Refusal::Expired | Refusal::OverRate) {
            return; // The publisher learns nothing useful from that.
        } else if self.strangers.take(now) {
            wire::put_puback_field(&mut body, [], reason, publish.topic, cut.as_ref());
            entry.link.queue_own(&body)
        } else {
            return self.out.counters.drop(Drop::RateLimited);
        };
        if queued.is_err() {
            self.out.counters.drop(Drop::QueueFull);
        }
        self.out.links.mark_dirty(id);
    }
}
