//! The fast path of a client's message: on the topic of the message before, to a known owner, with room on
//! the link.
//!
//! A sensor publishes on one topic again and again. Its route is kept together with the link that it leads
//! to, as long as the zones do not change and nothing older waits (see
//! [`Publisher::holds`](crate::engine::publisher::outgoing::Publisher::holds)). The message is made from the
//! one before it. At `QoS` 0 it is queued on the link. At `QoS` 1 and 2 messages are *gathered* into a batch,
//! which is sent before any other message of this client, and before datagrams are built. All other messages
//! take the path in `sending`.

use std::sync::Arc;

use crate::Micros;
use crate::engine::fragmentation::fragments::Fragment;
use crate::engine::publisher::outgoing::Route;
use crate::engine::transport::delivery_records::Positions;
use crate::engine::{Client, Engine, Side};
use crate::link_id::LinkId;
use crate::wire::{Delta, PublishOut};

/// A route that was taken, and what is needed to take it again.
#[derive(Default)]
pub struct CachedRoute {
    route: Option<(Route, LinkId)>,
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

impl CachedRoute {
    /// How many messages are gathered.
    pub fn gathered_messages(&self) -> usize {
        self.pending_batch.count as usize
    }
}

impl Client {
    /// How many messages or fragments wait.
    pub(in crate::engine) fn waiting(&self) -> usize {
        self.publisher.waiting() + self.cached_route.gathered_messages()
    }
}

impl Engine {
    /// Sends a message over the cached route and returns its sequence number. `None`: it has to take the path
    /// in `sending`.
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
            // It is sent with the messages that wait before it.
            client.publisher.give_back(fragment);
        }
    }

    /// Keeps the route of a message that was sent at once, if the message before it had the same topic.
    pub(in crate::engine) fn keep_route(&mut self, route: Route, qos: u8) {
        let link = route.owner.filter(|_| route.is_last).and_then(|owner| self.out.links.by_address(owner));
        if let (Side::Client(client), Some(link)) = (&mut self.side, link) {
            client.cached_route = CachedRoute { route: Some((route, link)), qos, ..CachedRoute::default() };
        }
    }

    /// Adds the message that was just made to the gathered batch. False: the batch has to be sent first.
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
