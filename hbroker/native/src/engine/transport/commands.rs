//! The verbs of Python: links, control packets, tables, messages.

use std::net::SocketAddr;

use bytes::Bytes;

use crate::Micros;
use crate::engine::fragmentation::fragments::{Fragment, Split};
use crate::engine::metrics::counters::EngineCounters;
use crate::engine::owner::forward::Forwarder;
use crate::engine::sessions::counters::SessionCounters;
#[cfg(test)]
use crate::engine::sessions::session::Session;
use crate::engine::transport::event::{DownReason, Event};
use crate::engine::transport::links::LinkSlot;
use crate::engine::{Engine, Side, Unpublishable};
use crate::link::{Link, Role};
use crate::link_id::LinkId;
use crate::publisher_id::will_publisher_id;
use crate::rights::LinkRights;
use crate::tables::jurisdiction::{Cut, Decision, Grant};
use crate::topic;
use crate::wire::{Body, PacketView, PublishOut};

impl Engine {
    /// The next events for Python.
    pub fn take_events(&mut self, now: Micros, limit: usize) -> Vec<Event> {
        let events = self.events.take(limit);
        self.release_stalled(now);
        events
    }

    /// Opens a link to a node, or returns the one that is open; `None`: there are too many.
    pub fn connect(&mut self, now: Micros, address: SocketAddr, token: Vec<u8>) -> Option<LinkId> {
        self.open_link(now, Role::Initiator, self.config.session, address, token, LinkRights::default()).ok()
    }

    /// Opens the link of a session that was handed over (§5.4), or returns the one that is open; `None`:
    /// there are too many. `rights`: the key of its client's rights.
    pub fn adopt(&mut self, now: Micros, session: u64, address: SocketAddr, rights: u64) -> Option<LinkId> {
        let token = self.token_for(now, address);
        let rights = LinkRights::expected(if self.config.requires_tokens { rights } else { 0 });
        self.open_link(now, Role::Adopter, session, address, token, rights).ok()
    }

    /// Whether the peer of a link has never answered on it.
    pub fn is_half_open(&self, link: LinkId) -> bool {
        self.out.links.get(link).is_some_and(LinkSlot::is_half_open)
    }

    /// The present address of a link's peer (§4.4); `None`: there is no such link.
    pub fn peer_of(&self, link: LinkId) -> Option<SocketAddr> {
        self.out.links.get(link).map(LinkSlot::address)
    }

    /// The publisher id for the wills of the client at one end of a link: of the peer if the peer opened it,
    /// else of this engine. 0: there is no such link.
    pub fn will_publisher(&self, link: LinkId) -> u64 {
        let of_wills = |link_slot: &LinkSlot| match link_slot.inbound() {
            true => Some(will_publisher_id(link_slot.session(), link_slot.peer_incarnation()?)),
            false => Some(will_publisher_id(self.config.session, self.config.incarnation)),
        };
        self.out.links.get(link).and_then(of_wills).unwrap_or(0)
    }

    /// The session of this link is a child's: as long as it has the link, its events wait only for the events
    /// of other nodes (`Class`).
    pub fn prioritise(&mut self, link: LinkId) {
        if let Some(link_slot) = self.out.links.get(link) {
            self.events.prioritise(link_slot.session());
        }
    }

    pub fn close(&mut self, now: Micros, link: LinkId) {
        self.end_link(now, link, DownReason::Closed);
    }

    /// Queues a control packet. False: there is no such link, or no room.
    pub fn send(&mut self, link: LinkId, packet: Vec<u8>) -> bool {
        self.out.queue_control(link, Bytes::from(packet))
    }

    pub fn grant(&mut self, subtree: &str, grant: Grant) {
        self.node(|node| node.routes.jurisdiction_mut().grant(subtree, grant));
        self.review_barriers();
    }

    pub fn revoke(&mut self, subtree: &str) {
        self.node(|node| node.routes.jurisdiction_mut().revoke(subtree));
        self.review_barriers();
    }

    pub fn cut(&mut self, cut: Cut) {
        self.node(|node| node.routes.jurisdiction_mut().cut(cut));
    }

    pub fn uncut(&mut self, subtree: &str) {
        self.node(|node| node.routes.jurisdiction_mut().uncut(subtree));
        self.review_barriers();
    }

    /// Whether a message on this topic would be taken over at this time (§7.2).
    pub fn owns(&self, now: Micros, topic: &str) -> bool {
        match &self.side {
            Side::Node(node) => matches!(node.routes.jurisdiction().decide(topic, now), Decision::Own(_)),
            Side::Client(_) => false,
        }
    }

    pub fn matching(&mut self, topic: &str) -> usize {
        self.node(|node| node.routes.matching(topic)).unwrap_or(0)
    }

    pub fn install_zone(
        &mut self,
        now: Micros,
        scope: &str,
        cuts: &[Cut],
        owner: SocketAddr,
        token: Vec<u8>,
        ttl: Micros,
    ) {
        self.keep_token(owner, token);
        if let Side::Client(client) = &mut self.side {
            client.publisher.zones.install(scope, cuts, owner, now.saturating_add(ttl));
        }
        self.send_waiting(now);
    }

    pub fn forget_zones(&mut self, owner: Option<SocketAddr>) {
        if let Side::Client(client) = &mut self.side {
            client.publisher.zones.forget(owner);
        }
    }

    pub fn zone(&mut self, now: Micros, topic: &str) -> crate::tables::zones::Lookup {
        match &self.side {
            Side::Client(client) => client.publisher.zones.lookup(topic, now),
            Side::Node(_) => crate::tables::zones::Lookup::Unknown,
        }
    }

    /// Ends the messages that wait for this topic's owner, with this reason.
    pub fn reject(&mut self, topic: &str, reason: i32) {
        self.fail_waiting(topic, reason);
    }

    /// Publishes a message. `Ok(None)`: there is no room, and the caller has to try again. `share` gives its
    /// payload, if it has to be kept.
    ///
    /// # Errors
    /// What is wrong with the message.
    pub fn publish(
        &mut self,
        now: Micros,
        message: &PublishOut<'_>,
        share: impl FnOnce() -> Bytes,
    ) -> Result<Option<u64>, Unpublishable> {
        let is_small = message.payload.len() <= self.config.max_message_bytes;
        // On the fast path the topic was checked with the message before.
        if is_small && let Some(sequence) = self.publish_at_once(now, message) {
            return Ok(Some(sequence));
        }
        if !topic::topic_is_valid(message.topic) {
            return Err(Unpublishable::InvalidTopic);
        }
        if message.qos > 2 {
            return Err(Unpublishable::InvalidQos);
        }
        if !is_small {
            return Err(Unpublishable::TooLarge);
        }
        match self.side {
            Side::Client(_) => self.publish_out(now, message, share),
            Side::Node(_) => self.publish_here(now, message).map(Some),
        }
    }

    /// Delivers nothing more to a listener: see
    /// [`Inbox::unlisten`](crate::engine::subscriber::inbox::Inbox::unlisten).
    pub fn unlisten(&mut self, now: Micros, subscription: u64, gives_back: bool) {
        if let Side::Client(client) = &mut self.side {
            client.inbox.unlisten(now, subscription, gives_back);
            self.acknowledge_due();
            self.release_stalled(now);
        }
    }

    /// Whether this client is leaving a shared group: see
    /// [`Inbox::set_leaving`](crate::engine::subscriber::inbox::Inbox::set_leaving).
    pub fn set_leaving(&mut self, is_leaving: bool) {
        if let Side::Client(client) = &mut self.side {
            client.inbox.set_leaving(is_leaving);
            self.acknowledge_due();
        }
    }

    /// The counters, without what became of messages for sessions.
    pub fn engine_counters(&self) -> EngineCounters {
        EngineCounters { counters: self.out.counters.clone(), links: self.out.links.stats() }
    }

    /// The bytes that are queued for sessions, in memory and in the store, with the cost of keeping them.
    pub fn queued_bytes(&self) -> usize {
        self.out.sessions.iter().map(|session| session.queue.size().bytes).sum()
    }

    /// Whether only the store has some messages of a session (see `sessions::backlog`).
    #[cfg(test)]
    pub fn has_backlog(&self) -> bool {
        self.out.sessions.iter().any(Session::has_backlog)
    }

    /// Every counter by name. They only rise.
    pub fn counters(&self, mut with: impl FnMut(&str, u64)) {
        self.engine_counters().each(&mut with);
        let (SessionCounters { accepted, delivered, expired, .. }, _) = self.balance();
        with("accepted", accepted);
        with("delivered", delivered);
        with("expired", expired);
    }

    /// Every gauge by name.
    pub fn gauges(&self, mut with: impl FnMut(&str, u64)) {
        let links = &self.out.links;
        with("links", links.len() as u64);
        with("sessions", links.iter().filter(|link_slot| link_slot.inbound()).count() as u64);
        with("publishers", links.iter().filter(|link_slot| link_slot.published()).count() as u64);
        let on_links: usize = links.iter().filter_map(LinkSlot::link).map(Link::queued_bytes).sum();
        with("queued_bytes", (on_links + self.out.sessions.waiting_bytes()) as u64);
        with("queued_messages", self.balance().1);
        with("offline_bytes", self.out.sessions.offline_bytes() as u64);
        with("out_of_order_bytes", links.out_of_order_bytes() as u64);
        with(
            "sessions_offline",
            self.out.sessions.iter().filter(|session| session.link.is_none()).count() as u64,
        );
        match &self.side {
            Side::Node(node) => {
                with("inflight", node.open_messages() as u64);
                with("holds", self.out.throttled_links.len() as u64);
                with("replays", node.replays.len() as u64);
            }
            Side::Client(client) => {
                with("inflight", client.publisher.in_flight() as u64);
                with("waiting", client.waiting() as u64);
            }
        }
    }

    /// The number of subscriptions in this worker. Every worker stores all of them.
    pub fn subscriptions(&mut self) -> usize {
        self.node(|node| node.routes.subscriptions()).unwrap_or(0)
    }

    pub(in crate::engine) fn node<R>(&mut self, act: impl FnOnce(&mut Forwarder) -> R) -> Option<R> {
        match &mut self.side {
            Side::Node(forwarder) => Some(act(forwarder)),
            Side::Client(_) => None,
        }
    }

    fn publish_here(&mut self, now: Micros, message: &PublishOut<'_>) -> Result<u64, Unpublishable> {
        let split = self.splitter.split(message.topic.into(), message);
        let split = split.map_err(|_| Unpublishable::TooLarge)?;
        let sequence = split.message();
        match split {
            Split::Single(fragment) => self.forward_own(now, &fragment)?,
            Split::LargeMessage(mut fragments) => {
                while let Some(fragment) = fragments.next(message.payload) {
                    self.forward_own(now, &fragment)?;
                }
            }
        }
        Ok(sequence)
    }

    fn forward_own(&mut self, now: Micros, fragment: &Fragment) -> Result<(), Unpublishable> {
        let Side::Node(forwarder) = &mut self.side else {
            return Err(Unpublishable::NotOwned);
        };
        let Ok(PacketView { body: Body::Publish(publish), .. }) = PacketView::from_raw(&fragment.field)
        else {
            return Err(Unpublishable::InvalidTopic);
        };
        forwarder.forward(now, &publish, None, &mut self.out).map_err(|_| Unpublishable::NotOwned)
    }
}
