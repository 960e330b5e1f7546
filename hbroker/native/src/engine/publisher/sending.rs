//! Sends a client's messages: from `publish` to the links of their topics' owners, and again if an owner
//! refuses.
//!
//! The fast path is for a message on the topic of the message before, to a known owner, with room on the
//! link: a sensor publishes on one topic again and again. Its route is kept together with the link that it
//! leads to, as long as the zones do not change and nothing older waits (see
//! [`Publisher::holds`](crate::engine::publisher::outgoing::Publisher::holds)). The message is made from the
//! one before it. At `QoS` 0 it is queued on the link. At `QoS` 1 and 2 messages are *gathered* into a batch,
//! which is sent before any other message of this client, and before datagrams are built.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;

use crate::Micros;
use crate::broken::Defect;
use crate::config::Config;
use crate::engine::fragmentation::fragments::{Fragment, Fragments, Split};
use crate::engine::metrics::counters::Drop;
use crate::engine::publisher::outgoing::{EndedMessage, Next, PublishRoute};
use crate::engine::publisher::pauses::Pause;
use crate::engine::transport::credit::{self, Room};
use crate::engine::transport::delivery_records::{Positions, Ticket};
use crate::engine::transport::event::{Event, Flow};
use crate::engine::{Client, Engine, Side, Unpublishable};
use crate::link::{Chain, Role};
use crate::link_id::LinkId;
use crate::rights::LinkRights;
use crate::schema::reason;
use crate::tables::jurisdiction::Cut;
use crate::wire::{self, Delta, PubAckView, PublishOut};

/// How many fragments one topic sends in its turn, if other topics wait for the same owner.
const FRAGMENTS_PER_TURN: usize = 64;
/// How many unsent bytes of `QoS` 0 a link may have before the next fragment of a large message waits. (No
/// credit bounds these, because nobody acknowledges them.)
const UNSENT_BYTES: usize = 1 << 20;

impl Engine {
    /// Sends a message to its owner, or makes it wait. Returns `Ok(None)` if there is no room; then the
    /// caller tries again. `share` gives the payload, if it has to be kept.
    pub(in crate::engine) fn publish_out(
        &mut self,
        now: Micros,
        message: &PublishOut<'_>,
        share: impl FnOnce() -> Bytes,
    ) -> Result<Option<u64>, Unpublishable> {
        self.send_pending(now);
        let Side::Client(client) = &mut self.side else {
            return Err(Unpublishable::NotOwned);
        };
        let route = client.publisher.route(now, message.topic);
        let (topic, owner) = (Arc::clone(&route.topic), route.owner);
        let bytes = message.payload.len() + message.topic.len();
        let may_wait = client.publisher.may_wait(bytes);
        let was_waiting = client.publisher.is_waiting(&topic);
        if !may_wait && !owner.is_some_and(|owner| self.takes(owner, message.qos, bytes)) {
            return Ok(None);
        }
        let split = self.splitter.split(Arc::clone(&topic), message);
        let mut split = split.map_err(|_| Unpublishable::TooLarge)?;
        let sequence = split.message();
        match (owner, &mut split) {
            (Some(owner), Split::Single(fragment)) => {
                self.send_fragment(now, owner, fragment.clone());
                self.keep_route(route, message.qos);
                return Ok(Some(sequence));
            }
            (owner, Split::LargeMessage(fragments)) => {
                if let Side::Client(client) = &mut self.side {
                    client.publisher.open(fragments);
                }
                let owner = owner.filter(|_| now < fragments.expires_at());
                let has_begun =
                    owner.is_some_and(|owner| self.send_fragments(now, owner, fragments, message.payload));
                if fragments.is_exhausted() {
                    return Ok(Some(sequence));
                }
                if let (Side::Client(client), Some(owner), true) = (&mut self.side, owner, has_begun) {
                    client.publisher.push(split.keep(share));
                    client.publisher.block(owner, &topic);
                    return Ok(Some(sequence));
                }
            }
            (None, Split::Single(_)) => {}
        }
        if let Side::Client(client) = &mut self.side {
            client.publisher.push(split.keep(share));
        }
        if !was_waiting {
            self.send_topic(now, &topic);
        }
        Ok(Some(sequence))
    }

    /// Sends fragments of a new message to its owner: as many as there is room for, and as a topic sends in
    /// its turn. True: the rest has to wait for its topic's turn.
    fn send_fragments(
        &mut self,
        now: Micros,
        owner: SocketAddr,
        fragments: &mut Fragments,
        payload: &[u8],
    ) -> bool {
        let Some(id) = self.link_to(now, owner) else {
            return false;
        };
        let others_wait =
            matches!(&self.side, Side::Client(client) if client.publisher.has_blocked_topics(owner));
        for _ in 0..if others_wait { 0 } else { FRAGMENTS_PER_TURN } {
            if !self.has_room_for_fragment(owner, fragments.qos(), fragments.fragment_bytes())
                || !self.send_next(now, owner, id, fragments, payload)
            {
                break;
            }
        }
        true
    }

    /// Sends the next fragment of a message on the link to its owner. False: there is none, or it has to
    /// wait.
    fn send_next(
        &mut self,
        now: Micros,
        owner: SocketAddr,
        id: LinkId,
        fragments: &mut Fragments,
        payload: &[u8],
    ) -> bool {
        if fragments.qos() == 0 {
            let field = self.splitter.next_field(fragments, payload);
            return field.inspect(|field| self.out.queue_copy(id, field)).is_some();
        }
        let Some(fragment) = fragments.next(payload) else {
            return false;
        };
        self.send_fragment(now, owner, fragment);
        matches!(&self.side, Side::Client(client) if !client.publisher.is_waiting(fragments.topic()))
    }

    /// Takes back the fragments that a link has not delivered. Sends them elsewhere, together with the topics
    /// that waited for room on the link.
    pub(in crate::engine) fn take_back(
        &mut self,
        now: Micros,
        owner: SocketAddr,
        tickets: Vec<(Ticket, Positions)>,
    ) {
        let Side::Client(client) = &mut self.side else {
            return;
        };
        let mut topics = BTreeSet::new();
        for (ticket, positions) in tickets {
            for fragment in client.publisher.settle(ticket, positions) {
                topics.insert(Arc::clone(&fragment.topic));
                client.publisher.give_back(fragment);
            }
        }
        topics.extend(std::iter::from_fn(|| client.publisher.unblock(owner)));
        self.send_topics(now, topics);
    }

    /// A zone has become known: sends the messages that waited for it.
    pub(in crate::engine) fn send_waiting(&mut self, now: Micros) {
        let Side::Client(client) = &mut self.side else {
            return;
        };
        let topics = client.publisher.routable(now);
        self.send_topics(now, topics);
    }

    /// Sends the messages that wait for room on this link, topic by topic in turns, as far as there is room
    /// now.
    pub(in crate::engine) fn use_room(&mut self, now: Micros, id: LinkId) {
        if matches!(self.side, Side::Node(_)) {
            return;
        }
        let Some(owner) = self.out.links.awake(id).map(|entry| entry.link.peer()) else {
            return;
        };
        while let Side::Client(client) = &mut self.side
            && let Some(topic) = client.publisher.unblock(owner)
        {
            if !self.send_topic(now, &topic) {
                return;
            }
        }
    }

    /// On a new link, sends this client's credit, and whether it publishes for many, if that differs from the
    /// default (§7.7).
    pub(in crate::engine) fn offer_credit(&mut self, id: LinkId) {
        let Config { receive_messages, receive_bytes, for_many, .. } = self.config;
        let is_usual = (receive_messages, receive_bytes) == (credit::MESSAGES, credit::BYTES) && !for_many;
        if matches!(self.side, Side::Client(_)) && !is_usual {
            let mut field = Vec::new();
            wire::put_credit_field(&mut field, receive_messages, receive_bytes, for_many);
            self.out.queue_control(id, field.into());
        }
    }

    /// An owner sends its credit (§7.7).
    pub(in crate::engine) fn take_credit(&mut self, now: Micros, id: LinkId, messages: u32, bytes: u64) {
        if let Some(entry) = self.out.links.get_mut(id) {
            entry.credit.grant(messages, bytes);
            self.use_room(now, id);
        }
    }

    /// Ends the waiting messages that have expired.
    pub(in crate::engine) fn expire_waiting(&mut self, now: Micros) {
        let Side::Client(client) = &mut self.side else {
            return;
        };
        for EndedMessage { topic, message, qos } in client.publisher.expire(now) {
            if qos == 0 {
                self.out.counters.drop(Drop::Expired);
            } else {
                self.report(&topic, message, 1, reason::MESSAGE_EXPIRED);
            }
        }
    }

    /// Ends the messages that wait for a topic's owner, with this reason.
    pub(in crate::engine) fn fail_waiting(&mut self, topic: &str, reason: i32) {
        while let Side::Client(client) = &mut self.side
            && let Some(fragment) = client.publisher.take_first(topic)
        {
            self.fail(&fragment, reason);
        }
    }

    /// Handles a PUBACK from an owner: a message has succeeded, has to be sent again there or elsewhere, or
    /// has failed.
    pub(in crate::engine) fn complete(&mut self, now: Micros, id: LinkId, puback: &PubAckView<'_>) {
        let Some(owner) = self.out.links.awake(id).map(|entry| entry.link.peer()) else {
            return;
        };
        if !puback.topic.is_empty() {
            self.learn(now, owner, puback.topic, puback);
        }
        let mut topics = BTreeSet::new();
        for (first, last) in puback.ranges() {
            let Side::Client(client) = &mut self.side else {
                return;
            };
            let mut answered = std::mem::take(&mut client.answered);
            if let Some(entry) = self.out.links.get_mut(id) {
                entry
                    .delivery_records
                    .settle(first, last, |ticket, positions| answered.push((*ticket, positions)));
            }
            for (ticket, positions) in answered.drain(..) {
                let Side::Client(client) = &mut self.side else {
                    return;
                };
                let fragments = client.publisher.settle(ticket, positions);
                if let Some(entry) = self.out.links.get_mut(id) {
                    let bytes = fragments.iter().map(|fragment| fragment.field.len()).sum();
                    entry.credit.settle(positions.len(), bytes);
                }
                if moves(puback.reason) || client.publisher.is_blocked(&fragments[0].topic) {
                    topics.insert(Arc::clone(&fragments[0].topic));
                }
                fragments.into_iter().for_each(|fragment| self.end_fragment(now, owner, fragment, puback));
            }
            if let Side::Client(client) = &mut self.side {
                client.answered = answered; // Its memory serves the next ones.
            }
        }
        if waits(puback.reason) {
            self.pause(now, id, topics, puback.reason);
        } else {
            self.send_topics(now, topics);
        }
    }

    fn end_fragment(&mut self, now: Micros, owner: SocketAddr, fragment: Fragment, puback: &PubAckView<'_>) {
        match puback.reason {
            reason::SUCCESS | reason::NO_MATCHING_SUBSCRIBERS => self.finish(&fragment, puback.reason),
            reason if moves(reason) => {
                self.learn(now, owner, &fragment.topic, puback);
                if let Side::Client(client) = &mut self.side {
                    client.publisher.give_back(fragment);
                }
            }
            reason => self.fail(&fragment, reason),
        }
    }

    /// Corrects the zones with a refusal. A plain HANDOVER without a cut comes from the next owner (§5.4):
    /// then there is nothing to correct.
    fn learn(&mut self, now: Micros, owner: SocketAddr, topic: &str, puback: &PubAckView<'_>) {
        let Side::Client(client) = &mut self.side else {
            return;
        };
        match puback.referral().and_then(Cut::from_view) {
            _ if Defect::LearnsNothing.is_present() => {}
            Some(cut) if moves(puback.reason) => client.publisher.learn(now, owner, topic, &cut),
            None if puback.reason == reason::NOT_RESPONSIBLE => client.publisher.zones.forget(Some(owner)),
            _ => {}
        }
    }

    /// Pauses the topics whose messages were refused for this reason.
    fn pause(&mut self, now: Micros, id: LinkId, topics: BTreeSet<Arc<str>>, reason: i32) {
        let rtt = self.out.links.awake(id).map_or(0, |entry| entry.link.rtt());
        let is_congested = self.config.for_many && reason == reason::QUOTA_EXCEEDED;
        let pause = if is_congested { Pause::congested(rtt) } else { Pause::Handover };
        if let Side::Client(client) = &mut self.side {
            topics.into_iter().for_each(|topic| client.paused.add(now, topic, pause));
        }
    }

    fn send_topics(&mut self, now: Micros, topics: impl IntoIterator<Item = Arc<str>>) {
        for topic in topics {
            self.send_topic(now, &topic);
        }
    }

    /// Sends the messages that wait on a topic, as far as possible now. If the owner is unknown, asks Python
    /// for it. False: there is no room with the owner.
    pub(in crate::engine) fn send_topic(&mut self, now: Micros, topic: &Arc<str>) -> bool {
        let is_blocked =
            matches!(&self.side, Side::Client(client) if client.paused.allows_only_probes(topic));
        is_blocked || self.send_some(now, topic, usize::MAX)
    }

    /// The same, for at most `most` messages or fragments.
    pub(in crate::engine) fn send_some(&mut self, now: Micros, topic: &Arc<str>, most: usize) -> bool {
        self.expire_waiting(now);
        let mut sent = 0;
        while sent < most {
            let Side::Client(client) = &mut self.side else {
                return true;
            };
            let (owner, qos, bytes) = match client.publisher.next(now, topic) {
                Next::Send { owner, qos, bytes } => (owner, qos, bytes),
                Next::Resolve(start) => {
                    self.events.push(Flow::Own, Event::Unresolved { topic: Box::from(&**topic), start });
                    return true;
                }
                Next::AwaitInFlight | Next::Nothing => return true,
            };
            let has_room = self.has_room_for_fragment(owner, qos, bytes);
            if has_room && !self.has_share(owner, topic, qos, 1, bytes) {
                return true; // The next acknowledgement continues it.
            }
            if has_room && !self.check_window(now, topic, qos, None) {
                return true;
            }
            let room = self.room_for_run(owner, topic).of_messages(most - sent);
            let Side::Client(client) = &mut self.side else {
                return true;
            };
            if sent >= FRAGMENTS_PER_TURN || !has_room {
                client.publisher.block(owner, topic);
                return has_room;
            }
            let Some(fragment) = client.publisher.take_batch(topic, room) else {
                return true;
            };
            sent += fragment.count as usize;
            self.send_fragment(now, owner, fragment);
        }
        true
    }

    /// Queues a fragment on the link to its owner. If there is no room after all, it waits for that.
    pub(in crate::engine) fn send_fragment(&mut self, now: Micros, owner: SocketAddr, fragment: Fragment) {
        let Some(id) = self.link_to(now, owner) else {
            return self.fail(&fragment, reason::QUOTA_EXCEEDED);
        };
        let (count, bytes) = (fragment.count, fragment.field.len());
        let has_room = self.has_room_on(id, fragment.qos, count, bytes);
        let has_share = self.has_share(owner, &fragment.topic, fragment.qos, count, bytes)
            && self.check_window(now, &fragment.topic, fragment.qos, Some(fragment.last_sequence()));
        let (Side::Client(client), Some(entry)) = (&mut self.side, self.out.links.get_mut(id)) else {
            return;
        };
        if has_room && fragment.qos == 0 {
            return self.out.queue_copy(id, &fragment.field);
        }
        let before = Chain::After(client.publisher.last(&fragment.topic));
        if has_room
            && has_share
            && let Ok(delivery) = entry.link.queue_batch(before, fragment.field.clone(), count, None)
        {
            entry.credit.open_all(count, bytes);
            entry.delivery_records.open_batch(
                delivery,
                count,
                client.publisher.keep(owner, fragment, delivery),
            );
            self.out.counters.messages_out += u64::from(count);
            return self.out.links.mark_dirty(id);
        }
        let topic = Arc::clone(&fragment.topic);
        client.publisher.give_back(fragment);
        if count > 1 {
            // There may be room for some of its messages.
            self.send_topic(now, &topic);
        } else if has_share {
            client.publisher.block(owner, &topic);
        }
    }

    /// Whether a topic leaves enough of its owner's credit to other topics, if this client publishes for
    /// many.
    fn has_share(&self, owner: SocketAddr, topic: &str, qos: u8, count: u32, bytes: usize) -> bool {
        let Side::Client(client) = &self.side else {
            return true;
        };
        if !self.config.for_many || qos == 0 {
            return true;
        }
        let entry = self.out.links.by_address(owner).and_then(|id| self.out.links.awake(id));
        entry.is_none_or(|entry| entry.credit.has_share_for(client.publisher.open_on(topic), count, bytes))
    }

    /// What may be sent of a topic in one batch, at `QoS` 1. The first message may be sent whatever this
    /// returns.
    fn room_for_run(&self, owner: SocketAddr, topic: &str) -> Room {
        let entry = self.out.links.by_address(owner).and_then(|id| self.out.links.awake(id));
        let (Side::Client(client), Some(entry)) = (&self.side, entry) else {
            return Room::default();
        };
        let own = self.config.for_many.then(|| client.publisher.open_on(topic));
        let on_link = self.config.link_queue_bytes.saturating_sub(entry.link.queued_bytes() + 1);
        entry.credit.room(own).of_bytes(on_link)
    }

    /// Whether this message (or the first that waits on the topic) is in the window of sequence numbers. Only
    /// clients that publish for many have a window. Outside of it, the topic pauses.
    fn check_window(&mut self, now: Micros, topic: &Arc<str>, qos: u8, sequence: Option<u64>) -> bool {
        let Side::Client(client) = &mut self.side else {
            return true;
        };
        if !self.config.for_many || qos < 2 {
            return true;
        }
        let sequence = sequence.or_else(|| client.publisher.first_on(topic)).unwrap_or_default();
        let is_in_window = client.publisher.is_in_window(now, sequence);
        if !is_in_window {
            client.paused.add(now, Arc::clone(topic), Pause::OutOfWindow);
        }
        is_in_window
    }

    /// Whether a message or fragment that waited may be sent to an owner now.
    fn has_room_for_fragment(&self, owner: SocketAddr, qos: u8, bytes: usize) -> bool {
        self.takes(owner, qos, bytes) && (qos > 0 || self.unsent_bytes(owner) < UNSENT_BYTES)
    }

    /// Whether a message of this `QoS` and size may be sent to an owner now.
    fn takes(&self, owner: SocketAddr, qos: u8, bytes: usize) -> bool {
        self.out.links.by_address(owner).is_none_or(|id| self.has_room_on(id, qos, 1, bytes))
    }

    /// Whether link and credit have room for `count` messages of this size in total.
    fn has_room_on(&self, id: LinkId, qos: u8, count: u32, bytes: usize) -> bool {
        self.out.links.awake(id).is_some_and(|entry| {
            let has_room = entry.link.queued_bytes() + bytes < self.config.link_queue_bytes;
            has_room && (qos == 0 || entry.credit.has_room_for(count, bytes))
        })
    }

    fn unsent_bytes(&self, owner: SocketAddr) -> usize {
        let entry = self.out.links.by_address(owner).and_then(|id| self.out.links.awake(id));
        entry.map_or(0, |entry| entry.link.unsent_bytes())
    }

    /// The link to an owner. It is opened with the token that was kept for it.
    fn link_to(&mut self, now: Micros, owner: SocketAddr) -> Option<LinkId> {
        let known = self.out.links.by_address(owner);
        known.or_else(|| {
            let Side::Client(client) = &mut self.side else {
                return None;
            };
            let token = client.tokens.remove(&owner).unwrap_or_default();
            self.open_link(now, Role::Initiator, self.config.session, owner, token, LinkRights::default())
                .ok()
        })
    }

    fn finish(&mut self, fragment: &Fragment, reason: i32) {
        if let Side::Client(client) = &mut self.side
            && client.publisher.completes(fragment)
        {
            self.report(&fragment.topic, fragment.message, fragment.count, reason);
        }
    }

    fn fail(&mut self, fragment: &Fragment, reason: i32) {
        let Side::Client(client) = &mut self.side else {
            return;
        };
        let was_open = client.publisher.abandon(fragment);
        if fragment.qos == 0 {
            self.out.counters.drop(Drop::Unresolved);
        } else if was_open {
            self.report(&fragment.topic, fragment.message, fragment.count, reason);
        }
    }

    fn report(&mut self, topic: &Arc<str>, first: u64, count: u32, reason: i32) {
        let event = Event::Published { first, count: count.into(), topic: Arc::clone(topic), reason };
        self.events.push(Flow::Own, event);
    }
}

/// Whether a message is sent again after a refusal with this reason, there or elsewhere, under the same id.
fn moves(reason: i32) -> bool {
    reason == reason::NOT_RESPONSIBLE || waits(reason)
}

/// Whether it is sent again only after a pause, and most likely to the same owner.
fn waits(reason: i32) -> bool {
    matches!(reason, reason::HANDOVER | reason::QUOTA_EXCEEDED)
}

/// The fast path for further messages on the last topic: the route that the last message took, and the batch that
/// is being gathered for it.
#[derive(Default)]
pub struct FastPath {
    route: Option<(PublishRoute, LinkId)>,
    qos: u8,
    delta: Delta,
    /// At `QoS` 0: the number of messages that the link had queued after the last one.
    queued: u64,
    pending_batch: PendingBatch,
}

/// The gathered messages: the sequence number of the first, and their number. The splitter has their fields.
#[derive(Default)]
struct PendingBatch {
    first: u64,
    count: u32,
}

impl FastPath {
    /// How many messages are gathered.
    pub fn gathered_messages(&self) -> usize {
        self.pending_batch.count as usize
    }
}

impl Client {
    /// How many messages or fragments wait.
    pub(in crate::engine) fn waiting(&self) -> usize {
        self.publisher.waiting() + self.fast_path.gathered_messages()
    }
}

impl Engine {
    /// Sends a message on the fast path and returns its sequence number. `None`: it cannot take the fast path.
    pub(in crate::engine) fn publish_at_once(
        &mut self,
        now: Micros,
        message: &PublishOut<'_>,
    ) -> Option<u64> {
        let Side::Client(client) = &mut self.side else {
            return None;
        };
        let FastPath { route, qos, delta, queued, pending_batch } = &mut client.fast_path;
        let is_it = |route: &PublishRoute| *qos == message.qos && *route.topic == *message.topic;
        let &(ref route, link) = route.as_ref().filter(|(route, _)| is_it(route))?;
        let entry = self.out.links.awake(link).filter(|_| client.publisher.is_valid_route(now, route))?;
        let bytes = self.splitter.gathered_bytes() + message.payload.len() + message.topic.len();
        // A message that expires has to be looked up by itself.
        let may_go = message.qos == 0
            || message.expiry_s.is_none() && entry.credit.has_room_for(pending_batch.count + 1, bytes);
        if !may_go || entry.link.queued_bytes() + bytes >= self.config.link_queue_bytes {
            return None;
        }
        if self.splitter.is_delta(message, delta) && self.out.queue_delta(link, message.payload, *queued) {
            *queued += 1;
            return Some(self.splitter.pass(delta));
        }
        let sequence = self.splitter.encode_delta(message, delta)?;
        if message.qos == 0 {
            *queued = self.out.queue_packet(link, delta.packet());
        } else if !self.gather(sequence, link) {
            self.send_pending(now);
            self.gather(sequence, link);
        }
        Some(sequence)
    }

    /// Sends the gathered batch. If it cannot be sent now after all, it waits.
    pub(in crate::engine) fn send_pending(&mut self, now: Micros) {
        let Side::Client(client) = &mut self.side else {
            return;
        };
        let FastPath { route, qos, pending_batch, .. } = &mut client.fast_path;
        let PendingBatch { first, count } = std::mem::take(pending_batch);
        let route = route.as_ref().filter(|_| count > 0);
        let Some((topic, owner)) =
            route.and_then(|(route, _)| Some((Arc::clone(&route.topic), route.owner?)))
        else {
            return;
        };
        let (field, qos) = (self.splitter.take_pending(), *qos);
        let fragment = Fragment {
            topic,
            field,
            count,
            qos,
            message: first,
            sequence: first,
            fragments: 1,
            expires_at: Micros::MAX,
        };
        if client.publisher.is_free(&fragment.topic, owner) {
            self.send_fragment(now, owner, fragment);
        } else {
            // It is sent with the messages that wait before it.
            client.publisher.give_back(fragment);
        }
    }

    /// Keeps the route of a message that was sent at once, if the message before it had the same topic.
    pub(in crate::engine) fn keep_route(&mut self, route: PublishRoute, qos: u8) {
        let link = route.owner.filter(|_| route.is_last).and_then(|owner| self.out.links.by_address(owner));
        if let (Side::Client(client), Some(link)) = (&mut self.side, link) {
            client.fast_path = FastPath { route: Some((route, link)), qos, ..FastPath::default() };
        }
    }

    /// Adds the message that was just made to the gathered batch. False: the batch has to be sent first.
    fn gather(&mut self, sequence: u64, link: LinkId) -> bool {
        let Side::Client(client) = &mut self.side else {
            return false;
        };
        let FastPath { delta, pending_batch, .. } = &mut client.fast_path;
        let is_taken = pending_batch.count < Positions::MOST && self.splitter.gather(delta.field());
        if is_taken && pending_batch.count == 0 {
            pending_batch.first = sequence;
            self.out.links.mark_dirty(link);
        }
        pending_batch.count += u32::from(is_taken);
        is_taken
    }
}
