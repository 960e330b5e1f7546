//! A client's messages: out to the owners of their topics, in to its application.

use std::collections::HashMap;
use std::net::SocketAddr;

use super::{Client, Engine, HOUSEKEEPING, Side};
use crate::Micros;
use crate::config::Config;
use crate::engine::counters::Drop;
use crate::engine::event::{Event, Message};
use crate::engine::inbox::{Inbox, Taken};
use crate::engine::parts::{Part, chain_of};
use crate::engine::publisher::{Publisher, Route};
use crate::engine::reason;
use crate::keyed::Keyed;
use crate::link::{Chain, Role};
use crate::link_id::LinkId;
use crate::tables::jurisdiction::Cut;
use crate::tables::zones::{Lookup, Zones};
use crate::wire::{PacketView, PubAckView, PublishOut, PublishView};

/// Zones and cuts that a client remembers.
const MAX_ZONES: usize = 100_000;
/// Tokens that wait for the first message to their owner.
const MAX_TOKENS: usize = 4_096;

impl Client {
    pub(super) fn new(config: &Config, keyed: Keyed) -> Self {
        Self {
            publisher: Publisher::new(
                Zones::new(MAX_ZONES, config.seed),
                config.link_queue_bytes,
                keyed,
            ),
            inbox: Inbox::new(config.message_queue_bytes, config.seed),
            tokens: HashMap::with_hasher(keyed),
            blocked: false,
        }
    }
}

impl Engine {
    /// Sends a message to its owner, or has it wait for one; `None` where there is no room: try again.
    pub(super) fn publish_out(&mut self, now: Micros, message: &PublishOut<'_>) -> Option<u64> {
        let Side::Client(client) = &mut self.side else {
            return None;
        };
        let route = client.publisher.route(now, message.topic);
        let room = match route {
            Route::Ask(_) => client.publisher.may_wait(message.payload.len()),
            Route::Owner(owner) => {
                let queued = self
                    .out
                    .links
                    .by_address(owner)
                    .and_then(|id| self.out.links.get(id));
                let queued = queued.map_or(0, |entry| entry.link.queued_bytes());
                queued + message.payload.len() + message.topic.len() < self.config.link_queue_bytes
            }
        };
        if !room {
            return None;
        }
        let parts = self.splitter.split(message);
        client.publisher.open(&parts);
        let sequence = parts.first().map(|part| part.message);
        match route {
            Route::Owner(owner) => parts
                .into_iter()
                .for_each(|part| self.send_part(now, owner, part)),
            Route::Ask(_) => self.wait_all(now, parts),
        }
        sequence
    }

    /// Has parts wait for the owner of their topic, and asks Python for it where nobody did.
    pub(super) fn wait_all(&mut self, now: Micros, parts: Vec<Part>) {
        for part in parts {
            self.wait(now, part);
        }
    }

    /// A zone is known: what waited for it goes.
    pub(super) fn send_waiting(&mut self, now: Micros) {
        let Side::Client(client) = &mut self.side else {
            return;
        };
        client.blocked = false;
        for (owner, part) in client.publisher.take_routable(now) {
            self.send_part(now, owner, part);
        }
    }

    /// Tries again to queue what a full link left waiting.
    pub(super) fn retry_blocked(&mut self, now: Micros) {
        if matches!(&self.side, Side::Client(client) if client.blocked) {
            self.send_waiting(now);
        }
    }

    /// The messages that wait for a topic's owner fail.
    pub(super) fn fail_waiting(&mut self, topic: &str, reason: i32) {
        let Side::Client(client) = &mut self.side else {
            return;
        };
        for part in client.publisher.take_waiting(topic) {
            self.fail(&part, reason);
        }
    }

    /// A PUBLISH from an owner.
    pub(super) fn read(
        &mut self,
        now: Micros,
        id: LinkId,
        packet: &PacketView<'_>,
        publish: &PublishView<'_>,
    ) {
        let Side::Client(client) = &mut self.side else {
            return;
        };
        let receipt = (packet.delivery > 0).then_some((id, packet.delivery));
        let taken = client.inbox.take(
            now,
            publish,
            packet.retained,
            receipt,
            &mut self.out.counters,
        );
        if client.inbox.is_waiting_for_parts() && self.housekeeping == Micros::MAX {
            self.housekeeping = now + HOUSEKEEPING;
        }
        if let (Taken::Done, Some((id, delivery))) = (taken, receipt) {
            self.acknowledge(id, delivery);
        }
    }

    /// Messages for the application, which takes them over: they are acknowledged.
    pub fn take_messages(&mut self, now: Micros, limit: usize) -> Vec<Message> {
        let Side::Client(client) = &mut self.side else {
            return Vec::new();
        };
        let messages = client.inbox.read(limit);
        for message in &messages {
            if let Some((id, delivery)) = message.receipt {
                self.acknowledge(id, delivery);
            }
        }
        self.release_stalled(now);
        messages
    }

    /// A PUBACK from an owner: done, somebody else's, or failed.
    pub(super) fn complete(&mut self, now: Micros, id: LinkId, puback: &PubAckView<'_>) {
        let Some(owner) = self.out.links.get(id).map(|entry| entry.link.peer()) else {
            return;
        };
        let referral = puback.referral().and_then(Cut::from_view);
        if moves(puback.reason) && !puback.topic.is_empty() {
            self.learn(now, owner, puback.topic, referral.as_ref());
        }
        for (first, last) in puback.ranges() {
            let Some(entry) = self.out.links.get(id) else {
                return;
            };
            for delivery in entry.ledger.within(first, last) {
                let ticket = self
                    .out
                    .links
                    .get_mut(id)
                    .and_then(|entry| entry.ledger.settle(delivery));
                let (Some(ticket), Side::Client(client)) = (ticket, &mut self.side) else {
                    continue;
                };
                let part = client.publisher.settle(ticket);
                match puback.reason {
                    reason::SUCCESS | reason::NO_MATCHING_SUBSCRIBERS => {
                        self.finish(&part, puback.reason)
                    }
                    reason if moves(reason) => {
                        self.learn(now, owner, &part.topic, referral.as_ref());
                        self.wait(now, part);
                    }
                    reason => self.fail(&part, reason),
                }
            }
        }
    }

    fn learn(&mut self, now: Micros, owner: SocketAddr, topic: &str, referral: Option<&Cut>) {
        let Side::Client(client) = &mut self.side else {
            return;
        };
        match referral {
            Some(cut) => client.publisher.learn(now, owner, topic, cut),
            None => client.publisher.zones.forget(Some(owner)),
        }
    }

    fn send_part(&mut self, now: Micros, owner: SocketAddr, part: Part) {
        let Side::Client(client) = &mut self.side else {
            return;
        };
        let token = client.tokens.remove(&owner).unwrap_or_default();
        let session = self.config.session;
        let Some(id) = self.open_link(now, Role::Initiator, session, owner, token) else {
            self.fail(&part, reason::QUOTA_EXCEEDED);
            return;
        };
        if part.qos == 0 {
            self.out.queue_copy(id, &part.field, false);
            return;
        }
        let (Side::Client(client), Some(entry)) = (&mut self.side, self.out.links.get_mut(id))
        else {
            return;
        };
        let chain = Chain::Topic(chain_of(self.splitter.publisher(), part.topic.as_bytes()));
        match entry.link.queue_reliable(chain, part.field.clone(), false) {
            Ok(delivery) => {
                self.out.counters.messages_out += 1;
                entry.ledger.open(delivery, client.publisher.keep(part));
                self.out.links.touch(id);
            }
            Err(_) => {
                client.blocked = true;
                client.publisher.wait(part);
            }
        }
    }

    fn wait(&mut self, now: Micros, part: Part) {
        let Side::Client(client) = &mut self.side else {
            return;
        };
        let start = match client.publisher.zones.lookup(&part.topic, now) {
            Lookup::Below(node) => Some(node),
            Lookup::Owner(_) | Lookup::Unknown => None,
        };
        let topic = part.topic.clone();
        if client.publisher.wait(part) {
            self.events.push(Event::Unresolved { topic, start });
        }
    }

    fn finish(&mut self, part: &Part, reason: i32) {
        let Side::Client(client) = &mut self.side else {
            return;
        };
        if client.publisher.completes(part) {
            let (sequence, topic) = (part.message, part.topic.clone());
            self.events.push(Event::Published {
                sequence,
                topic,
                reason,
            });
        }
    }

    fn fail(&mut self, part: &Part, reason: i32) {
        let Side::Client(client) = &mut self.side else {
            return;
        };
        if part.qos == 0 {
            self.out.counters.drop(Drop::Unresolved);
        } else if client.publisher.abandon(part) {
            let (sequence, topic) = (part.message, part.topic.clone());
            self.events.push(Event::Published {
                sequence,
                topic,
                reason,
            });
        }
    }

    fn acknowledge(&mut self, id: LinkId, delivery: u64) {
        if let Some(entry) = self.out.links.get_mut(id) {
            entry.link.acknowledge(delivery);
            self.out.links.touch(id);
        }
    }

    /// Keeps a token for the first message to an owner.
    pub(super) fn keep_token(&mut self, owner: SocketAddr, token: Vec<u8>) {
        let Side::Client(client) = &mut self.side else {
            return;
        };
        if token.is_empty() || self.out.links.by_address(owner).is_some() {
            return;
        }
        if client.tokens.len() >= MAX_TOKENS {
            client.tokens.clear();
        }
        client.tokens.insert(owner, token);
    }
}

/// Whether a refusal says that the message belongs elsewhere: it is sent again there, under the same id.
fn moves(reason: i32) -> bool {
    matches!(reason, reason::NOT_RESPONSIBLE | reason::HANDOVER)
}
