//! Nodes and clients, and the network between them: it loses, delays, reorders and duplicates, from one seed.
//!
//! What Python decides is reduced to what a test needs: a client that asks for an owner is told by a table, and
//! subscriptions are made by the test.

mod audit;
mod hosts;
mod line;
mod stores;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use bytes::Bytes;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::Micros;
use crate::config::Config;
use crate::engine::Engine;
use crate::engine::owner::subscriptions::Opened;
use crate::engine::retained::replay::Request;
use crate::engine::sessions::bounds::Bounds;
use crate::engine::transport::event::{DownReason, Event, Message};
use crate::link_id::SessionKey;
use crate::schema::reason;
use crate::tables::jurisdiction::{Cut, Grant};
use crate::tables::subscriber::Subscriber;
use crate::topic;
use crate::wire::{self, Body, PacketView, PublishOut};
pub use audit::Audits;
pub use hosts::{GRANT, Host, Read, config};
pub use line::Faults;
pub use line::Forgery;
use line::OnItsWay;
pub use stores::HostStore;

pub const SECOND: Micros = 1_000_000;
pub const MILLISECOND: Micros = 1_000;

pub struct Network {
    pub now: Micros,
    pub rng: SmallRng,
    pub faults: Faults,
    pub hosts: Vec<Host>,
    /// Who owns what, the deepest first.
    pub owners: Vec<(&'static str, usize)>,
    /// Nothing passes between these two.
    pub parted: Option<(usize, usize)>,
    /// The host whose work is timed, and how long it took.
    pub timed: Option<usize>,
    pub spent: Duration,
    on_its_way: BinaryHeap<Reverse<OnItsWay>>,
    carried: u64,
    audits: Audits,
    /// What one host does to its datagrams before they leave.
    pub forgery: Option<(usize, Forgery)>,
    /// What workers have for one another stays with them meanwhile.
    pub holds_handoffs: bool,
}

pub fn message<'a>(topic: &'a str, payload: &'a [u8], qos: u8) -> PublishOut<'a> {
    PublishOut { topic, payload, qos, ..PublishOut::default() }
}

/// A counter or gauge.
pub fn value(engine: &Engine, name: &str) -> u64 {
    let mut sum = 0;
    engine.counters(|known, value| sum += if known == name { value } else { 0 });
    engine.gauges(|known, value| sum += if known == name { value } else { 0 });
    sum
}

/// The field `publish` of a packet.
pub fn publish_field(message: &PublishOut<'_>) -> Vec<u8> {
    let mut field = Vec::new();
    wire::put_publish_field(&mut field, message);
    field
}

/// A CREDIT.
pub fn credit_field(messages: u32, bytes: u64, for_many: bool) -> Vec<u8> {
    let mut field = Vec::new();
    wire::put_credit_field(&mut field, messages, bytes, for_many);
    field
}

/// A request for all retained messages that match.
pub fn request(filter: &str, qos: u8, listener: u64) -> Request<'_> {
    Request { filter, qos, listener, subtree: "", first: "" }
}

impl Network {
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self {
            now: 1_000 * SECOND,
            rng: SmallRng::seed_from_u64(seed),
            faults,
            hosts: Vec::new(),
            owners: Vec::new(),
            parted: None,
            timed: None,
            spent: Duration::ZERO,
            on_its_way: BinaryHeap::new(),
            carried: 0,
            audits: Audits::default(),
            forgery: None,
            holds_handoffs: false,
        }
    }

    /// Without faults, with a node.
    pub fn with_node(seed: u64, workers: u8) -> (Self, usize) {
        Self::with_faults(seed, Faults::default(), workers)
    }

    /// With a node.
    pub fn with_faults(seed: u64, faults: Faults, workers: u8) -> (Self, usize) {
        let mut network = Self::new(seed, faults);
        let node = network.add_node("", workers);
        (network, node)
    }

    /// A node that serves `subtree`, with so many workers.
    pub fn add_node(&mut self, subtree: &'static str, workers: u8) -> usize {
        self.add_node_with(subtree, workers, |_| {})
    }

    /// One with other settings than `config` gives.
    pub fn add_node_with(
        &mut self,
        subtree: &'static str,
        workers: u8,
        change: impl FnOnce(&mut Config),
    ) -> usize {
        let node = self.add_with(true, workers, change);
        self.owners.insert(0, (subtree, node));
        self.grant(node, subtree, GRANT);
        node
    }

    pub fn grant(&mut self, node: usize, subtree: &str, grant: Grant) {
        self.hosts[node].engines.iter_mut().for_each(|engine| engine.grant(subtree, grant));
    }

    pub fn add_client(&mut self) -> usize {
        self.add(false, 1)
    }

    /// A client with other settings than `config` gives.
    pub fn add_client_with(&mut self, change: impl FnOnce(&mut Config)) -> usize {
        self.add_with(false, 1, change)
    }

    /// A client with a subscription at a node.
    pub fn add_subscriber(&mut self, node: usize, filter: &str, qos: u8) -> usize {
        self.add_subscriber_with(node, filter, qos, |_| {})
    }

    /// One with other settings than `config` gives.
    pub fn add_subscriber_with(
        &mut self,
        node: usize,
        filter: &str,
        qos: u8,
        change: impl FnOnce(&mut Config),
    ) -> usize {
        let client = self.add_client_with(change);
        self.listen(client, 1, filter, qos);
        self.subscribe_anew(client, node, filter, qos);
        client
    }

    /// A client with the same subscription at two nodes.
    pub fn add_subscriber_of_both(&mut self, one: usize, other: usize, filter: &str, qos: u8) -> usize {
        let client = self.add_subscriber(one, filter, qos);
        self.subscribe_anew(client, other, filter, qos);
        client
    }

    /// A client with a subscription at a node, which reads nothing by itself.
    pub fn add_idle_subscriber(&mut self, node: usize, filter: &str, qos: u8) -> usize {
        let client = self.add_subscriber(node, filter, qos);
        self.hosts[client].reads = false;
        client
    }

    pub fn listen(&mut self, client: usize, listener: u64, filter: &str, qos: u8) {
        self.listen_in(client, listener, ("", filter), qos);
    }

    pub fn listen_in(&mut self, client: usize, listener: u64, subscription: (&str, &str), qos: u8) {
        self.hosts[client].engines[0].listen(self.now, listener, subscription, qos, false);
    }

    pub fn take_messages(&mut self, client: usize, limit: usize) -> Vec<Message> {
        self.hosts[client].engines[0].take_messages(self.now, limit)
    }

    /// Ends the link of a client at one of its ends.
    pub fn close(&mut self, host: usize, client: usize) {
        let link = self.hosts[host].links[&self.hosts[client].session];
        self.hosts[host].engines[usize::from(link.worker())].close(self.now, link);
    }

    pub fn connect(&mut self, client: usize, node: usize) {
        let (address, to) = (self.hosts[client].address, self.hosts[node].address);
        let token = self.hosts[node].engines[0].token_for(self.now, address);
        let session = self.hosts[client].session;
        self.hosts[node].links.remove(&session);
        self.hosts[client].engines[0].connect(self.now, to, token);
        let until = self.now + 60 * SECOND;
        while !self.hosts[node].links.contains_key(&session) {
            assert!(self.now < until, "the link does not come up");
            self.step(until);
        }
    }

    /// A client with a subscription at a node, as a member of a group.
    pub fn add_member(&mut self, node: usize, filter: &str, group: &str, qos: u8) -> usize {
        let client = self.add_client();
        self.listen_in(client, 1, (group, filter), qos);
        self.connect(client, node);
        self.subscribe_in(client, node, filter, group, qos, false);
        client
    }

    /// Connects the client, and subscribes.
    pub fn subscribe_anew(&mut self, client: usize, node: usize, filter: &str, qos: u8) {
        self.connect(client, node);
        self.subscribe(client, node, filter, qos, false);
    }

    pub fn subscribe(&mut self, client: usize, node: usize, filter: &str, qos: u8, no_local: bool) {
        self.subscribe_in(client, node, filter, "", qos, no_local);
    }

    pub fn subscribe_in(
        &mut self,
        client: usize,
        node: usize,
        filter: &str,
        group: &str,
        qos: u8,
        no_local: bool,
    ) {
        let session = self.hosts[client].session;
        let known = self.hosts[node].engines.iter().find_map(|engine| engine.session_key(session));
        let session = known.unwrap_or_else(|| self.open_session(client, node, false));
        let subscriber = Subscriber { no_local, ..Subscriber::new(session, qos) };
        for engine in &mut self.hosts[node].engines {
            assert_eq!(engine.subscribe(filter, group, subscriber), Some(true));
        }
    }

    /// Makes a client's session at a node; its key there.
    pub fn open_session(&mut self, client: usize, node: usize, persistent: bool) -> SessionKey {
        self.open_bounded(client, node, persistent, Bounds { messages: 0, bytes: 0 })
    }

    pub fn open_bounded(
        &mut self,
        client: usize,
        node: usize,
        persistent: bool,
        bounds: Bounds,
    ) -> SessionKey {
        let (now, session) = (self.now, self.hosts[client].session);
        let engines = &mut self.hosts[node].engines;
        let home = engines[0].shared.home_workers.place_for(session);
        let opened = engines[usize::from(home)].open_session(now, session, persistent, bounds, 0);
        assert_eq!(opened, Opened::Here);
        self.session(client, node)
    }

    pub fn session(&self, client: usize, node: usize) -> SessionKey {
        let session = self.hosts[client].session;
        let found = self.hosts[node].engines.iter().find_map(|engine| engine.session_key(session));
        found.expect("the session is there")
    }

    /// Publishes; the sequence number.
    pub fn publish(&mut self, client: usize, message: &PublishOut<'_>) -> u64 {
        let sent = self.hosts[client].engines[0]
            .publish(self.now, message, || Bytes::copy_from_slice(message.payload));
        sent.expect("a valid message").expect("there is room")
    }

    /// Publishes a message so many times.
    pub fn publish_times(&mut self, client: usize, count: usize, message: &PublishOut<'_>) -> Vec<u64> {
        (0..count).map(|_| self.publish(client, message)).collect()
    }

    pub fn cut(&mut self, from: usize, subtree: &'static str, to: usize) {
        let address = self.hosts[to].address;
        let cut = Cut { subtree: subtree.into(), node: "to".into(), address, epoch: 2 };
        for engine in &mut self.hosts[from].engines {
            engine.cut(cut.clone());
        }
        self.owners.retain(|&(known, _)| known != subtree);
        self.owners.insert(0, (subtree, to));
    }

    /// A subtree that was cut is served here again.
    pub fn uncut(&mut self, node: usize, subtree: &str) {
        self.hosts[node].engines.iter_mut().for_each(|engine| engine.uncut(subtree));
        self.owners.retain(|(known, _)| *known != subtree);
    }

    pub fn run(&mut self, time: Micros) {
        let until = self.now + time;
        while self.now < until {
            self.step(until);
        }
    }

    /// This client reads from now on; runs until nothing is left to do.
    pub fn read_all(&mut self, client: usize) {
        self.hosts[client].reads = true;
        self.run_until_drained();
    }

    /// Runs until every client's messages are settled and every engine has sent all.
    pub fn run_until_drained(&mut self) {
        let limit = self.now + 300 * SECOND;
        loop {
            self.settle();
            if self.on_its_way.is_empty() && self.engines().all(Engine::is_drained) {
                self.audit();
                return;
            }
            assert!(
                self.now < limit,
                "not drained by now: {:?}",
                self.engines().map(Engine::undrained).collect::<Vec<_>>()
            );
            self.step(limit);
        }
    }

    pub fn engines(&self) -> impl Iterator<Item = &Engine> {
        self.hosts.iter().flat_map(|host| &host.engines)
    }

    pub fn counter(&self, host: usize, name: &str) -> u64 {
        self.hosts[host].engines.iter().map(|engine| value(engine, name)).sum()
    }

    /// The sequence numbers that a host read of a topic, in order.
    pub fn sequences(&self, host: usize, topic: &str) -> Vec<u64> {
        self.hosts[host].read.iter().filter(|read| read.topic == topic).map(|read| read.sequence).collect()
    }

    pub fn assert_all_published(&self, client: usize, count: usize) {
        let published = &self.hosts[client].published;
        assert_eq!(published.len(), count);
        assert!(published.values().all(|&why| why == reason::SUCCESS), "{published:?}");
    }

    /// Does all that is to be done at this time.
    fn settle(&mut self) {
        for index in 0..self.hosts.len() {
            self.hand_over(index);
            self.take_events(index);
            self.read(index);
            self.hand_over(index);
            self.end_turn(index);
            self.transmit(index);
        }
    }

    fn hand_over(&mut self, index: usize) {
        if self.holds_handoffs {
            return;
        }
        let engines = &mut self.hosts[index].engines;
        while let Some((to, handoff)) = engines.iter_mut().find_map(Engine::poll_handoff) {
            engines[usize::from(to)].handle_handoff(self.now, handoff);
        }
    }

    fn take_events(&mut self, index: usize) {
        let now = self.now;
        let host = &mut self.hosts[index];
        let events: Vec<Event> =
            host.engines.iter_mut().flat_map(|engine| engine.take_events(now, 1_000)).collect();
        for event in events {
            match event {
                Event::LinkUp(peer) => _ = self.hosts[index].links.insert(peer.session, peer.link),
                Event::LinkDown(_, reason) => {
                    self.hosts[index].downs += 1;
                    self.hosts[index].refused += usize::from(reason == DownReason::Refused);
                }
                Event::Unresolved { topic, .. } => self.resolve(index, &topic),
                Event::Published { first, count, reason, .. } => {
                    for sequence in first..first + count {
                        let before = self.hosts[index].published.insert(sequence, reason);
                        assert_eq!(before, None, "{sequence} was reported twice");
                    }
                }
                Event::Overflow { .. } => self.hosts[index].overflows += 1,
                Event::Control { .. }
                | Event::RightsRequested { .. }
                | Event::SessionClaimed(_)
                | Event::RightsChanged(_) => {}
            }
        }
    }

    fn resolve(&mut self, client: usize, topic: &str) {
        let owned = self.owners.iter().find(|(subtree, _)| topic::is_within(topic, subtree));
        let &(subtree, owner) = owned.expect("every topic has an owner");
        let (address, source) = (self.hosts[owner].address, self.hosts[client].address);
        let token = self.hosts[owner].engines[0].token_for(self.now, source);
        let below =
            self.owners.iter().filter(|(other, _)| *other != subtree && topic::is_within(other, subtree));
        let cuts: Vec<Cut> = below
            .map(|&(other, node)| Cut {
                subtree: other.into(),
                node: "below".into(),
                address: self.hosts[node].address,
                epoch: 2,
            })
            .collect();
        self.hosts[client].engines[0].install_zone(self.now, subtree, &cuts, address, token, 300 * SECOND);
    }

    fn read(&mut self, index: usize) {
        let now = self.now;
        let host = &mut self.hosts[index];
        if !host.reads {
            return;
        }
        for message in host.engines[0].take_messages(now, 1_000) {
            let packet = PacketView::from_raw(&message.publish).expect("it was valid");
            let Body::Publish(publish) = packet.body else { panic!("not a message") };
            host.read.push(Read {
                topic: publish.topic.to_owned(),
                publisher: publish.publisher,
                sequence: publish.sequence,
                copy: message.copy_id(&message.view()),
                payload: message.payload(&message.view()).to_vec(),
                retained: message.is_retained(),
            });
        }
    }
}
