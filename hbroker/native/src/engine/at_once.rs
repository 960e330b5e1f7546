//! The short way of a client's message of `QoS` 0: on the topic of the message before, to an owner that is known, with room on the link.
//!
//! What a sensor publishes goes to one topic again and again. Its route is kept with the link that it leads to, for as long as the zones
//! say what they said and nothing older waits (see [`Publisher::holds`](crate::engine::publisher::Publisher::holds)); such a message is
//! encoded once, into a buffer that is used again, and queued. Every other way of a message is `sending`'s.

use super::{Engine, Side};
use crate::Micros;
use crate::engine::publisher::Route;
use crate::link_id::LinkId;
use crate::wire::PublishOut;

/// A route that was taken, and what it needs to be taken again.
#[derive(Default)]
pub struct Beaten {
    route: Option<(Route, LinkId)>,
    field: Vec<u8>,
}

impl Engine {
    /// Queues a message on the link that the one before it took; its sequence number. `None`: it has to find its way.
    pub(super) fn publish_at_once(&mut self, now: Micros, message: &PublishOut<'_>) -> Option<u64> {
        let Side::Client(client) = &mut self.side else {
            return None;
        };
        let Beaten { route, field } = &mut client.beaten;
        let (route, link) =
            route.as_ref().filter(|(route, _)| message.qos == 0 && *route.topic == *message.topic)?;
        let entry = self.out.links.awake(*link).filter(|_| client.publisher.holds(now, route))?;
        let bytes = message.payload.len() + message.topic.len();
        if entry.link.queued_bytes() + bytes >= self.config.link_queue_bytes {
            return None;
        }
        let sequence = self.splitter.encode(message, field)?;
        self.out.queue_copy(*link, field, None);
        Some(sequence)
    }

    /// Keeps the route of a message that went at once, where the one before it had the same topic.
    pub(super) fn keep_route(&mut self, route: Route) {
        let link = route.owner.filter(|_| route.is_last).and_then(|owner| self.out.links.by_address(owner));
        if let (Side::Client(client), Some(link)) = (&mut self.side, link) {
            client.beaten.route = Some((route, link));
        }
    }
}
