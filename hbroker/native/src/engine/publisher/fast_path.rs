//! The short way of a client's message: on the topic of the message before, to an owner that is known, with room on the link.
//!
//! What a sensor publishes goes to one topic again and again. Its route is kept with the link that it leads to, for as long as the zones
//! say what they said and nothing older waits (see [`Publisher::holds`](crate::engine::publisher::outgoing::Publisher::holds)); such a message is
//! made from the one before. At `QoS` 0 it is queued on the link. At `QoS` 1 and 2 messages are *gathered*, and go as one part: before any
//! other message of this client, and before datagrams are made. Every other way of a message is `sending`'s.

use std::sync::Arc;

use crate::Micros;
use crate::engine::fragmentation::fragments::Fragment;
use crate::engine::publisher::outgoing::Route;
use crate::engine::transport::delivery_records::Positions;
use crate::engine::{Client, Engine, Side};
use crate::link_id::LinkId;
use crate::wire::{Delta, PublishOut};

/// A route that was taken, and what it needs to be taken again.
#[derive(Default)]
pub struct CachedRoute {
    route: Option<(Route, LinkId)>,
    qos: u8,
    delta: Delta,
    /// At `QoS` 0: how many messages had been queued on the link with the last one.
    queued: u64,
    pending_batch: PendingBatch,
}

/// Messages that go together, and wait for that: the sequence number of the first, and how many. Their fields are the splitter's.
#[derive(Default)]
struct PendingBatch {
    first: u64,
    count: u32,
}

impl CachedRoute {
    /// How many messages are gathered.
    pub fn pending_batch(&self) -> usize {
        self.pending_batch.count as usize
    }
}

impl Client {
    /// How many messages, or parts of them, wait.
    pub(in crate::engine) fn waiting(&self) -> usize {
        self.publisher.waiting() + self.cached_route.pending_batch()
    }
}

impl Engine {
    /// Sends a message the way that the one before it took; its sequence number. `None`: it has to find its way.
    pub(in crate::engine) fn publish_at_once(
        &mut self,
        now: Micros,
        message: &PublishOut<'_>,
    ) -> Option<u64> {
        let Side::Client(client) = &mut self.side else {
            return None;
        };
        let CachedRoute { route, qos, delta, queued, pending_batch } = &mut client.cached_route;
        let is_it = |route: &Route| *qos == message.qos && *route.topic == *message.topic;
        let &(ref route, link) = route.as_ref().filter(|(route, _)| is_it(route))?;
        let entry = self.out.links.awake(link).filter(|_| client.publisher.holds(now, route))?;
        let bytes = self.splitter.pending_batch() + message.payload.len() + message.topic.len();
        // What dies has to be found by itself.
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

    /// Sends what is gathered; where it cannot go now after all, it waits.
    pub(in crate::engine) fn send_pending(&mut self, now: Micros) {
        let Side::Client(client) = &mut self.side else {
            return;
        };
        let CachedRoute { route, qos, pending_batch, .. } = &mut client.cached_route;
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
            dies_at: Micros::MAX,
        };
        if client.publisher.is_free(&fragment.topic, owner) {
            self.send_fragment(now, owner, fragment);
        } else {
            // It goes with what it is behind.
            client.publisher.give_back(fragment);
        }
    }

    /// Keeps the route of a message that went at once, where the one before it had the same topic.
    pub(in crate::engine) fn keep_route(&mut self, route: Route, qos: u8) {
        let link = route.owner.filter(|_| route.is_last).and_then(|owner| self.out.links.by_address(owner));
        if let (Side::Client(client), Some(link)) = (&mut self.side, link) {
            client.cached_route = CachedRoute { route: Some((route, link)), qos, ..CachedRoute::default() };
        }
    }

    /// Has the message that was just made go with those that are gathered. False: they have to go first.
    fn gather(&mut self, sequence: u64, link: LinkId) -> bool {
        let Side::Client(client) = &mut self.side else {
            return false;
        };
        let CachedRoute { delta, pending_batch, .. } = &mut client.cached_route;
        let is_taken = pending_batch.count < Positions::MOST && self.splitter.gather(delta.field());
        if is_taken && pending_batch.count == 0 {
            pending_batch.first = sequence;
            self.out.links.touch(link);
        }
        pending_batch.count += u32::from(is_taken);
        is_taken
    }
}
