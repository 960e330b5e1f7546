//! A client: its state, and its messages from an owner to its application. (`publisher::sending` has the
//! other direction.)

use std::collections::HashMap;
use std::net::SocketAddr;

use crate::Micros;
use crate::config::Config;
use crate::engine::publisher::outgoing::Publisher;
use crate::engine::publisher::pauses::Pauses;
use crate::engine::publisher::sending::FastPath;
use crate::engine::subscriber::batch::DeliveryRange;
use crate::engine::subscriber::batch::InboxItem;
use crate::engine::subscriber::inbox::{AckTiming, Inbox};
use crate::engine::transport::event::Message;
use crate::engine::{Client, Engine, HOUSEKEEPING, Side};
use crate::keyed_hash::KeyedHash;
use crate::link::receive::pubacks::Success;
use crate::link_id::{LinkId, SessionKey};
use crate::tables::subscriber::Subscriber;
use crate::tables::zones::Zones;
use crate::wire::{MessageId, PacketView, PublishView};

/// How many zones and cuts a client remembers.
const MAX_ZONES: usize = 100_000;
/// How many tokens are kept until the first message to their owner.
const MAX_TOKENS: usize = 4_096;

impl Client {
    pub(in crate::engine) fn new(config: &Config, hasher: KeyedHash) -> Self {
        Self {
            publisher: Publisher::new(Zones::new(MAX_ZONES, config.seed), config.link_queue_bytes, hasher),
            inbox: Inbox::new(config),
            tokens: HashMap::with_hasher(hasher),
            paused: Pauses::new(hasher),
            answered: Vec::new(),
            fast_path: FastPath::default(),
        }
    }

    /// When the next pause ends or the next message expires; `Micros::MAX`: never.
    pub(in crate::engine) fn next_timeout(&self) -> Micros {
        self.paused.next().into_iter().chain(self.publisher.next_expiry()).min().unwrap_or(Micros::MAX)
    }
}

impl Engine {
    /// Handles a PUBLISH from an owner.
    pub(in crate::engine) fn read(
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
        let ack_timing = client.inbox.take(now, publish, packet.meant_for(), receipt, &mut self.out.counters);
        let due = client.inbox.take_due();
        if client.inbox.is_waiting() && self.housekeeping == Micros::MAX {
            self.housekeeping = now + HOUSEKEEPING;
        }
        if let (AckTiming::Now, Some(receipt)) = (ack_timing, receipt) {
            self.acknowledge(receipt.into());
        }
        due.into_iter().for_each(|range| self.acknowledge(range));
    }

    /// Delivers matching messages to this listener from now on, at this `QoS` at most, with or without the
    /// publisher's `retain` flag. `subscription`: a shared group and a filter. If the group is not empty, the
    /// listener gets only the messages that are sent for this group and filter.
    pub fn listen(
        &mut self,
        now: Micros,
        listener: u64,
        subscription: (&str, &str),
        qos: u8,
        retain_as_published: bool,
    ) {
        if let Side::Client(client) = &mut self.side {
            let listener = Subscriber { retain_as_published, ..Subscriber::new(SessionKey(listener), qos) };
            client.inbox.listen(now, listener, subscription, &self.config.workspace, &mut self.out.counters);
            self.acknowledge_due();
        }
    }

    /// Gives up messages that have waited too long for fragments or for a listener.
    pub(in crate::engine) fn run_housekeeping(&mut self, now: Micros) {
        self.housekeeping = Micros::MAX;
        if let Side::Client(client) = &mut self.side {
            if client.inbox.expire(now, &mut self.out.counters) {
                self.housekeeping = now + HOUSEKEEPING;
            }
            self.acknowledge_due();
        }
    }

    pub(in crate::engine) fn acknowledge_due(&mut self) {
        if let Side::Client(client) = &mut self.side {
            client.inbox.take_due().into_iter().for_each(|range| self.acknowledge(range));
        }
    }

    /// The application has handled these messages.
    pub fn handled(&mut self, messages: &[MessageId]) {
        if let Side::Client(client) = &mut self.side {
            client.inbox.handled(messages);
            self.acknowledge_due();
        }
    }

    /// The application will not handle these messages: see
    /// [`Inbox::give_back`](crate::engine::subscriber::inbox::Inbox::give_back).
    pub fn give_back(&mut self, now: Micros, messages: &[MessageId]) {
        if let Side::Client(client) = &mut self.side {
            client.inbox.give_back(now, messages);
            self.acknowledge_due();
        }
    }

    /// Messages for the application. By taking them it takes them over, and they are acknowledged; with
    /// `hold` they are acknowledged only after `handled`.
    pub fn take_messages(&mut self, now: Micros, limit: usize) -> Vec<Message> {
        let Side::Client(client) = &mut self.side else {
            return Vec::new();
        };
        let messages = client.inbox.read(limit);
        self.acknowledge_due();
        self.release_stalled(now);
        messages
    }

    /// As `take_messages`, but messages that were received together stay together. So the result may exceed
    /// `limit`.
    pub fn take_inbox_items(&mut self, now: Micros, limit: usize) -> Vec<InboxItem> {
        let Side::Client(client) = &mut self.side else {
            return Vec::new();
        };
        let items = client.inbox.read_items(limit);
        self.acknowledge_due();
        self.release_stalled(now);
        items
    }

    fn acknowledge(&mut self, DeliveryRange { link, first, last }: DeliveryRange) {
        if let Some(entry) = self.out.links.get_mut(link) {
            entry.link.acknowledge(first, last, Success::Done);
            self.out.links.mark_dirty(link);
        }
    }

    /// Keeps a token for the first message to an owner.
    pub(in crate::engine) fn keep_token(&mut self, owner: SocketAddr, token: Vec<u8>) {
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
