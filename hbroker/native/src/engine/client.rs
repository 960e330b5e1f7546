//! A client's messages: out to the owners of their topics, in to its application.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;

use super::{Client, Engine, HOUSEKEEPING, Side};
use crate::Micros;
use crate::broken::Defect;
use crate::config::Config;
use crate::engine::counters::Drop;
use crate::engine::event::{Event, Message};
use crate::engine::inbox::{Inbox, Taken};
use crate::engine::ledger::Ticket;
use crate::engine::parts::{Part, chain_of};
use crate::engine::publisher::{Next, Publisher};
use crate::keyed::Keyed;
use crate::link::pubacks::Success;
use crate::link::{Chain, Role};
use crate::link_id::LinkId;
use crate::schema::reason;
use crate::tables::jurisdiction::Cut;
use crate::tables::zones::Zones;
use crate::wire::{PacketView, PubAckView, PublishOut, PublishView};

/// Zones and cuts that a client remembers.
const MAX_ZONES: usize = 100_000;
/// Tokens that wait for the first message to their owner.
const MAX_TOKENS: usize = 4_096;
/// How long a message waits for a handover to end before it is sent again.
const HANDOVER_PAUSE: Micros = 10_000;

impl Client {
    pub(super) fn new(config: &Config, keyed: Keyed) -> Self {
        Self {
            publisher: Publisher::new(Zones::new(MAX_ZONES, config.seed), config.link_queue_bytes, keyed),
            inbox: Inbox::new(config.message_queue_bytes, config.seed),
            tokens: HashMap::with_hasher(keyed),
            blocked: BTreeSet::new(),
            paused: VecDeque::new(),
        }
    }
}

impl Engine {
    /// Sends a message to its owner, or has it wait; `None` where there is no room: try again.
    pub(super) fn publish_out(&mut self, now: Micros, message: &PublishOut<'_>) -> Option<u64> {
        let Side::Client(client) = &mut self.side else {
            return None;
        };
        let owner = client.publisher.route(now, message.topic);
        let has_room = match owner {
            None => client.publisher.may_wait(message.payload.len()),
            Some(owner) => {
                let queued = self.out.links.by_address(owner).and_then(|id| self.out.links.get(id));
                let queued = queued.map_or(0, |entry| entry.link.queued_bytes());
                queued + message.payload.len() + message.topic.len() < self.config.link_queue_bytes
            }
        };
        if !has_room {
            return None;
        }
        let parts = self.splitter.split(message);
        let sequence = parts.first().map(|part| part.message);
        client.publisher.open(&parts);
        let was_waiting = client.publisher.is_waiting(message.topic);
        self.send_parts(now, owner, parts);
        if owner.is_none() && !was_waiting {
            self.send_topic(now, message.topic);
        }
        sequence
    }

    /// Takes back the parts that a link did not get through, and sends them elsewhere.
    pub(super) fn take_back(&mut self, now: Micros, tickets: Vec<Ticket>) {
        let Side::Client(client) = &mut self.side else {
            return;
        };
        let mut topics = BTreeSet::new();
        for ticket in tickets {
            let part = client.publisher.settle(ticket);
            topics.insert(part.topic.clone());
            client.publisher.wait(part);
        }
        topics.extend(std::mem::take(&mut client.blocked));
        self.send_topics(now, topics);
    }

    /// A zone is known: what waited for it goes.
    pub(super) fn send_waiting(&mut self, now: Micros) {
        let Side::Client(client) = &mut self.side else {
            return;
        };
        let topics = client.publisher.routable(now);
        self.send_topics(now, topics);
    }

    /// Tries again to queue what a full link left waiting.
    pub(super) fn retry_blocked(&mut self, now: Micros) {
        if let Side::Client(client) = &mut self.side
            && !client.blocked.is_empty()
        {
            let topics = std::mem::take(&mut client.blocked);
            self.send_topics(now, topics);
        }
    }

    /// Sends what a handover held up, once it has waited long enough.
    pub(super) fn resume_paused(&mut self, now: Micros) {
        while let Side::Client(client) = &mut self.side
            && client.paused.front().is_some_and(|(until, _)| *until <= now)
            && let Some((_, topic)) = client.paused.pop_front()
        {
            self.send_topic(now, &topic);
        }
    }

    /// The messages that wait for a topic's owner fail.
    pub(super) fn fail_waiting(&mut self, topic: &str, reason: i32) {
        while let Side::Client(client) = &mut self.side
            && let Some(part) = client.publisher.take_first(topic)
        {
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
        let taken = client.inbox.take(now, publish, packet.retained, receipt, &mut self.out.counters);
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
        if !puback.topic.is_empty() {
            self.learn(now, owner, puback.topic, puback);
        }
        let mut topics = BTreeSet::new();
        for (first, last) in puback.ranges() {
            while let Some(entry) = self.out.links.get_mut(id)
                && let Some(ticket) = entry.ledger.settle_within(first, last)
                && let Side::Client(client) = &mut self.side
            {
                let part = client.publisher.settle(ticket);
                if client.publisher.is_waiting(&part.topic) || moves(puback.reason) {
                    topics.insert(part.topic.clone());
                }
                self.end_part(now, owner, part, puback);
            }
        }
        if puback.reason == reason::HANDOVER {
            self.pause(now, topics);
        } else {
            self.send_topics(now, topics);
        }
    }

    fn end_part(&mut self, now: Micros, owner: SocketAddr, part: Part, puback: &PubAckView<'_>) {
        match puback.reason {
            reason::SUCCESS | reason::NO_MATCHING_SUBSCRIBERS => self.finish(&part, puback.reason),
            reason if moves(reason) => {
                self.learn(now, owner, &part.topic, puback);
                if let Side::Client(client) = &mut self.side {
                    client.publisher.wait(part);
                }
            }
            reason => self.fail(&part, reason),
        }
    }

    /// Corrects the zones by a refusal. One that says HANDOVER and no more comes from the owner to be (§5.4): there is nothing to correct.
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

    fn pause(&mut self, now: Micros, topics: BTreeSet<Box<str>>) {
        if let Side::Client(client) = &mut self.side {
            client.paused.extend(topics.into_iter().map(|topic| (now + HANDOVER_PAUSE, topic)));
        }
    }

    fn send_topics(&mut self, now: Micros, topics: impl IntoIterator<Item = Box<str>>) {
        for topic in topics {
            self.send_topic(now, &topic);
        }
    }

    /// Sends what waits on a topic, as far as that goes now; asks Python for its owner where nobody is known.
    fn send_topic(&mut self, now: Micros, topic: &str) {
        while let Side::Client(client) = &mut self.side {
            match client.publisher.next(now, topic) {
                Next::Send(owner) => {
                    let part = client.publisher.take_first(topic);
                    if !self.send_parts(now, Some(owner), part) {
                        return;
                    }
                }
                Next::Ask(start) => {
                    return self.events.push(Event::Unresolved { topic: topic.into(), start });
                }
                Next::Hold | Next::Nothing => return,
            }
        }
    }

    /// Queues parts of one topic on the link to its owner. From the first on that has no room there, or where there is no
    /// owner, they wait; then false.
    fn send_parts(
        &mut self,
        now: Micros,
        owner: Option<SocketAddr>,
        parts: impl IntoIterator<Item = Part>,
    ) -> bool {
        let mut open = owner;
        for part in parts {
            let refused = match open {
                Some(owner) => self.send_part(now, owner, part),
                None => Some(part),
            };
            if let (Some(part), Side::Client(client)) = (refused, &mut self.side) {
                if open.take().is_some() {
                    client.blocked.insert(part.topic.clone());
                }
                client.publisher.wait(part);
            }
        }
        open.is_some()
    }

    /// Queues a part on the link to its owner; gives it back where there is no room.
    fn send_part(&mut self, now: Micros, owner: SocketAddr, part: Part) -> Option<Part> {
        let Some(id) = self.link_to(now, owner) else {
            self.fail(&part, reason::QUOTA_EXCEEDED);
            return None;
        };
        if part.qos == 0 {
            self.out.queue_copy(id, &part.field, false);
            return None;
        }
        let (Side::Client(client), Some(entry)) = (&mut self.side, self.out.links.get_mut(id)) else {
            return None;
        };
        let chain = Chain::Topic(chain_of(self.splitter.publisher(), part.topic.as_bytes()));
        let Ok(delivery) = entry.link.queue_reliable(chain, part.field.clone(), false) else {
            return Some(part);
        };
        entry.ledger.open(delivery, client.publisher.keep(owner, part));
        self.out.counters.messages_out += 1;
        self.out.links.touch(id);
        None
    }

    /// The link to an owner, opened with the token that was kept for it.
    fn link_to(&mut self, now: Micros, owner: SocketAddr) -> Option<LinkId> {
        let known = self.out.links.by_address(owner);
        known.or_else(|| {
            let Side::Client(client) = &mut self.side else {
                return None;
            };
            let token = client.tokens.remove(&owner).unwrap_or_default();
            self.open_link(now, Role::Initiator, self.config.session, owner, token)
        })
    }

    fn finish(&mut self, part: &Part, reason: i32) {
        let Side::Client(client) = &mut self.side else {
            return;
        };
        if client.publisher.completes(part) {
            let (sequence, topic) = (part.message, part.topic.clone());
            self.events.push(Event::Published { sequence, topic, reason });
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
            self.events.push(Event::Published { sequence, topic, reason });
        }
    }

    fn acknowledge(&mut self, id: LinkId, delivery: u64) {
        if let Some(entry) = self.out.links.get_mut(id) {
            entry.link.acknowledge(delivery, Success::Done);
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
