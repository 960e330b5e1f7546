//! Sessions that stall, go away and come back, and what becomes of their messages (§6.4, §7.3, §7.7, §7.8).

use rand::Rng;

use super::network::{Faults, MILLISECOND, Network, SECOND, message};
use crate::Micros;
use crate::engine::counters::Drop;
use crate::engine::session::Status;
use crate::engine::session_queue::Bounds;
use crate::link_id::{LinkId, SessionKey};
use crate::schema::reason;
use crate::tables::match_set::{Overflow, Subscriber};
use crate::wire::{self, PublishOut};

const OWN: Bounds = Bounds { messages: 0, bytes: 0 };

/// A client whose session outlives its links, subscribed at a node.
fn add_persistent(network: &mut Network, node: usize, filter: &str, qos: u8, bounds: Bounds) -> usize {
    let client = network.add_client();
    network.hosts[client].engines[0].listen(0, 1, filter, qos, false);
    network.connect(client, node);
    let session = network.open_bounded(client, node, true, bounds);
    subscribe(network, node, filter, "", Subscriber::new(session, qos));
    client
}

fn subscribe(network: &mut Network, node: usize, filter: &str, group: &str, subscriber: Subscriber) {
    for engine in &mut network.hosts[node].engines {
        assert!(engine.subscribe(filter, group, subscriber).is_some());
    }
}

fn status(network: &Network, node: usize, client: usize) -> Status {
    let session = network.hosts[client].session;
    let mut all = network.hosts[node].engines.iter().flat_map(|engine| engine.sessions(usize::MAX));
    all.find(|status| status.session == session).expect("the session is there")
}

fn dropped(status: &Status, why: &str) -> u64 {
    status.accounts.dropped().find(|(name, _)| *name == why).map_or(0, |(_, count)| count)
}

/// Ends the link at both its ends, if there is one.
fn put_away(network: &mut Network, node: usize, client: usize) {
    let (now, session) = (network.now, network.hosts[client].session);
    for engine in &mut network.hosts[node].engines {
        engine.out.links.by_session(session).into_iter().for_each(|link| engine.close(now, link));
    }
    let link = link_to(network, client, node);
    link.into_iter().for_each(|link| network.hosts[client].engines[0].close(now, link));
    network.run(10 * MILLISECOND);
}

/// A client's link to a node.
fn link_to(network: &Network, client: usize, node: usize) -> Option<LinkId> {
    network.hosts[client].engines[0].out.links.by_address(network.hosts[node].address)
}

fn grant(network: &mut Network, client: usize, node: usize, messages: u32) {
    let mut field = Vec::new();
    wire::put_credit_field(&mut field, messages, 1 << 20);
    let link = link_to(network, client, node).expect("it is connected");
    assert!(network.hosts[client].engines[0].out.queue_control(link, field.into()));
}

fn publish_many(network: &mut Network, publisher: usize, count: u64, qos: u8) {
    for _ in 0..count {
        network.publish(publisher, &message("a/b", b"x", qos));
        network.run(MILLISECOND);
    }
}

/// What must hold of a node's sessions at any time.
fn check(network: &Network, node: usize) {
    for engine in &network.hosts[node].engines {
        for session in engine.out.sessions.iter() {
            assert!(session.is_ready() || session.tickets() == 0, "who is away or stalled holds nobody up");
            let (messages, bytes) = session.credit_used();
            assert!(messages <= 65_536 && bytes <= 64 << 20);
        }
        let (accounts, queued) = engine.balance();
        assert_eq!(accounts.open(), queued, "{accounts:?}");
    }
}

fn firsts(sequences: &[u64]) -> Vec<u64> {
    let mut seen = std::collections::BTreeSet::new();
    sequences.iter().copied().filter(|&sequence| seen.insert(sequence)).collect()
}

#[test]
fn what_came_while_a_session_was_away_comes_when_it_is_back_in_order() {
    for seed in 0..6 {
        for qos in [1, 2] {
            let mut network = Network::new(seed, Faults { loss: 0.1, duplication: 0.05, jitter: 2_000 });
            let node = network.add_node("", 1 + (seed % 3) as u8);
            let subscriber = add_persistent(&mut network, node, "a/#", 2, OWN);
            let publisher = network.add_client();
            publish_many(&mut network, publisher, 30, qos);
            for _ in 0..3 {
                put_away(&mut network, node, subscriber);
                publish_many(&mut network, publisher, 20, qos);
                network.run(SECOND);
                assert!(!status(&network, node, subscriber).is_connected);
                let told = network.hosts[publisher].published.len() as u64;
                assert!(told > 20, "a session that is away holds nobody up: {told}");
                network.connect(subscriber, node);
                publish_many(&mut network, publisher, 10, qos);
                check(&network, node);
            }
            network.run_until_drained();
            network.assert_all_published(publisher, 120);
            let sequences = network.sequences(subscriber, "a/b");
            assert_eq!(firsts(&sequences), (1..=120).collect::<Vec<_>>(), "seed {seed}, QoS {qos}");
            assert!(qos == 1 || sequences.len() == 120, "seed {seed}: QoS 2 came twice");
            let Status { accounts, queued, .. } = status(&network, node, subscriber);
            assert_eq!((accounts.accepted, accounts.delivered, queued), (120, 120, 0));
        }
    }
}

#[test]
fn a_session_that_answers_nothing_counts_as_away_after_two_seconds() {
    let mut network = Network::new(1, Faults::default());
    let node = network.add_node("", 1);
    let slow = network.add_subscriber(node, "a/#", 1);
    let publisher = network.add_client();
    network.hosts[slow].reads = false;
    let first = network.publish(publisher, &message("a/b", b"x", 1));
    network.run(2 * SECOND - 100 * MILLISECOND);
    assert!(network.hosts[publisher].published.is_empty() && !status(&network, node, slow).is_stalled);
    network.run(SECOND / 2);
    assert_eq!(network.hosts[publisher].published.get(&first), Some(&reason::SUCCESS));
    publish_many(&mut network, publisher, 50, 1);
    network.run(10 * MILLISECOND);
    network.assert_all_published(publisher, 51);
    check(&network, node);
    assert_eq!((status(&network, node, slow).queued, network.counter(node, "inflight")), (51, 0));
    network.hosts[slow].reads = true;
    network.run(SECOND);
    assert_eq!(network.sequences(slow, "a/b"), (1..=51).collect::<Vec<_>>());
    assert!(!status(&network, node, slow).is_stalled);
    network.hosts[slow].reads = false;
    let last = network.publish(publisher, &message("a/b", b"x", 1));
    network.run(SECOND);
    assert!(!network.hosts[publisher].published.contains_key(&last), "it counts as connected again");
}

#[test]
fn who_acknowledges_datagrams_and_never_a_message_costs_what_its_bounds_say() {
    let mut network = Network::new(2, Faults::default());
    let node = network.add_node("", 1);
    let bounds = Bounds { messages: 100, bytes: 1 << 20 };
    let liar = network.add_client();
    network.connect(liar, node);
    let session = network.open_bounded(liar, node, false, bounds);
    subscribe(&mut network, node, "a/#", "", Subscriber::new(session, 1));
    network.hosts[liar].engines[0].listen(0, 1, "a/#", 1, false);
    network.hosts[liar].reads = false;
    let publisher = network.add_client();
    for _ in 0..200 {
        (0..50).for_each(|_| _ = network.publish(publisher, &message("a/b", &[0; 100], 1)));
        network.run(20 * MILLISECOND);
        check(&network, node);
        assert!(status(&network, node, liar).queued <= 4_096 + 100);
        assert!(network.counter(node, "inflight") <= 4_096 + 100 + 50);
    }
    network.run(SECOND);
    network.assert_all_published(publisher, 10_000);
    let status = status(&network, node, liar);
    assert!(status.is_stalled && dropped(&status, "queue_full") == 10_000 - 4_196);
    assert_eq!(network.counter(node, "inflight"), 0);
}

#[test]
fn a_full_queue_gives_way_as_its_policy_says() {
    for (overflow, expected) in [
        (Overflow::DropOldest, (31..=40).collect::<Vec<u64>>()),
        (Overflow::DropNewest, (1..=10).collect()),
        (Overflow::EndSession, vec![]),
    ] {
        let mut network = Network::new(3, Faults::default());
        let node = network.add_node("", 2);
        let client = network.add_client();
        network.hosts[client].engines[0].listen(0, 1, "a/#", 1, false);
        network.connect(client, node);
        let bounds = Bounds { messages: 10, bytes: 0 };
        let session = network.open_bounded(client, node, true, bounds);
        subscribe(&mut network, node, "a/#", "", Subscriber { overflow, ..Subscriber::new(session, 1) });
        put_away(&mut network, node, client);
        let publisher = network.add_client();
        publish_many(&mut network, publisher, 40, 1);
        network.run(SECOND);
        let published = &network.hosts[publisher].published;
        assert!(
            published.len() == 40 && published.values().all(|&why| why <= reason::NO_MATCHING_SUBSCRIBERS)
        );
        check(&network, node);
        let ends = overflow == Overflow::EndSession;
        assert_eq!(network.hosts[node].overflows, usize::from(ends));
        network.connect(client, node);
        network.run(SECOND);
        assert_eq!(network.sequences(client, "a/b"), expected, "{overflow:?}");
        let dropped = network.counter(node, "drop.queue_full") + network.counter(node, "drop.session_ended");
        assert_eq!(dropped, if ends { 11 } else { 30 });
    }
}

#[test]
fn a_message_that_outlived_its_expiry_is_not_sent_on() {
    let mut network = Network::new(4, Faults::default());
    let node = network.add_node("", 1);
    let subscriber = add_persistent(&mut network, node, "a/#", 1, OWN);
    put_away(&mut network, node, subscriber);
    let publisher = network.add_client();
    for expiry_s in [None, Some(5), Some(60), Some(10), None] {
        let published_at_us = network.now;
        network.publish(publisher, &PublishOut { expiry_s, published_at_us, ..message("a/b", b"x", 1) });
    }
    network.run(20 * SECOND);
    let published_at_us = network.now - 2 * SECOND;
    for qos in 0..=2 {
        let late = PublishOut { expiry_s: Some(1), published_at_us, ..message("a/b", b"x", qos) };
        network.publish(publisher, &late);
    }
    network.run(SECOND);
    let told: Vec<i32> = network.hosts[publisher].published.values().copied().collect();
    assert_eq!(told, [[reason::SUCCESS; 5].as_slice(), &[reason::MESSAGE_EXPIRED; 2]].concat());
    assert_eq!(network.counter(node, "drop.expired"), 3);
    network.connect(subscriber, node);
    network.run(SECOND);
    assert_eq!(network.sequences(subscriber, "a/b"), [1, 3, 5]);
    let Status { accounts, .. } = status(&network, node, subscriber);
    assert_eq!((accounts.accepted, accounts.delivered, accounts.expired), (5, 3, 2));
}

#[test]
fn no_more_is_given_to_a_link_than_its_peer_grants() {
    let mut network = Network::new(5, Faults { loss: 0.05, duplication: 0.0, jitter: 1_000 });
    let node = network.add_node("", 1);
    let subscriber = network.add_subscriber(node, "a/#", 1);
    let publisher = network.add_client();
    let mut granted = 4_096;
    for round in 0..60 {
        if round % 6 == 0 {
            granted = network.rng.random_range(0..20);
            grant(&mut network, subscriber, node, granted);
            network.hosts[subscriber].reads = true;
            network.run(200 * MILLISECOND);
        }
        network.hosts[subscriber].reads = round % 6 > 3;
        (0..5).for_each(|_| _ = network.publish(publisher, &message("a/b", b"x", 1)));
        network.run(50 * MILLISECOND);
        let session = network.session(subscriber, node);
        let session = network.hosts[node].engines[0].out.sessions.get(session).expect("it is there");
        assert!(session.credit_used().0 <= granted, "{} of {granted}", session.credit_used().0);
        check(&network, node);
    }
    grant(&mut network, subscriber, node, 10);
    network.hosts[subscriber].reads = true;
    network.run_until_drained();
    network.assert_all_published(publisher, 300);
    assert_eq!(network.sequences(subscriber, "a/b"), (1..=300).collect::<Vec<_>>());
}

#[test]
fn each_message_for_a_group_goes_to_one_member_and_to_another_when_that_one_ends() {
    for (seed, workers) in [(1, 1), (2, 3), (3, 2)] {
        let mut network = Network::new(seed, Faults { loss: 0.05, duplication: 0.05, jitter: 1_000 });
        let node = network.add_node("", workers);
        let members: Vec<usize> = (0..4).map(|_| network.add_client()).collect();
        for &member in &members {
            network.hosts[member].engines[0].listen(0, 1, "a/#", 1, false);
            network.connect(member, node);
            let session = network.open_session(member, node, false);
            subscribe(&mut network, node, "a/#", "g", Subscriber::new(session, 1));
        }
        let publisher = network.add_client();
        publish_many(&mut network, publisher, 100, 1);
        network.run_until_drained();
        let read: usize = members.iter().map(|&member| network.hosts[member].read.len()).sum();
        assert_eq!(read, 100, "one copy each");
        assert!(members.iter().all(|&member| network.hosts[member].read.len() > 5), "everyone gets some");
        for &member in &members[..2] {
            network.hosts[member].reads = false;
        }
        publish_many(&mut network, publisher, 100, 1);
        network.run(100 * MILLISECOND);
        for &member in &members[..2] {
            let now = network.now;
            let link = network.hosts[node].links[&network.hosts[member].session];
            network.hosts[node].engines[usize::from(link.worker())].close(now, link);
        }
        network.run_until_drained();
        network.assert_all_published(publisher, 200);
        let mut had: Vec<u64> = members[2..]
            .iter()
            .flat_map(|&member| network.sequences(member, "a/b"))
            .filter(|&s| s > 100)
            .collect();
        had.sort_unstable();
        assert_eq!(had, (101..=200).collect::<Vec<_>>(), "those who are left had all of it, once");
        assert!(network.counter(node, "drop.regrouped") > 10);
        check(&network, node);
    }
}

#[test]
fn a_member_that_is_away_or_stalled_gets_nothing_while_others_are_there() {
    let mut network = Network::new(6, Faults::default());
    let node = network.add_node("", 2);
    let away = network.add_client();
    let stalled = network.add_client();
    let ready = network.add_client();
    for (client, persistent) in [(away, true), (stalled, false), (ready, true)] {
        network.hosts[client].engines[0].listen(0, 1, "a/#", 1, false);
        network.connect(client, node);
        let session = network.open_session(client, node, persistent);
        subscribe(&mut network, node, "a/#", "g", Subscriber::new(session, 1));
    }
    put_away(&mut network, node, away);
    network.hosts[stalled].reads = false;
    let publisher = network.add_client();
    publish_many(&mut network, publisher, 20, 1);
    network.run(3 * SECOND);
    let before = network.hosts[ready].read.len();
    publish_many(&mut network, publisher, 50, 1);
    network.run(SECOND);
    assert_eq!(network.hosts[ready].read.len() - before, 50);
    assert_eq!(status(&network, node, away).accounts.accepted, 0);
    put_away(&mut network, node, ready);
    let now = network.now;
    let link = network.hosts[node].links[&network.hosts[stalled].session];
    network.hosts[node].engines[usize::from(link.worker())].close(now, link);
    network.run(SECOND);
    publish_many(&mut network, publisher, 50, 1);
    network.run(SECOND);
    network.assert_all_published(publisher, 120);
    let waiting = [away, ready].map(|client| status(&network, node, client).queued);
    assert!(waiting.iter().all(|&count| count > 10), "those who are away share what comes: {waiting:?}");
    check(&network, node);
}

#[test]
fn publishers_are_held_back_while_too_much_waits_and_let_go_then() {
    let mut network = Network::new(7, Faults::default());
    let node = network.add_node("", 2);
    for engine in &mut network.hosts[node].engines {
        engine.config.queue_memory = 400_000;
    }
    let slow = network.add_subscriber(node, "a/#", 1);
    let publishers: Vec<usize> = (0..4).map(|_| network.add_client()).collect();
    network.hosts[slow].reads = false;
    let held = |network: &Network| -> Vec<bool> {
        network.hosts[node].engines.iter().map(|engine| engine.throttle.is_on()).collect()
    };
    for &publisher in &publishers {
        (0..60).for_each(|_| _ = network.publish(publisher, &message("a/b", &[0; 1_000], 1)));
    }
    network.run(SECOND);
    assert_eq!(held(&network), [true, true], "both workers hold their publishers back");
    network.run(2 * SECOND);
    assert_eq!(held(&network), [false, false], "who is stalled holds nobody back");
    network.hosts[slow].reads = true;
    network.run_until_drained();
    for &publisher in &publishers {
        network.assert_all_published(publisher, 60);
    }
}

#[test]
fn what_a_peer_grants_before_its_session_is_made_holds_for_it() {
    let mut network = Network::new(9, Faults::default());
    let node = network.add_node("", 1);
    let subscriber = network.add_client_with(|config| config.receive_messages = 3);
    network.connect(subscriber, node);
    network.run(100 * MILLISECOND);
    for _ in 0..2 {
        network.open_session(subscriber, node, true);
        let session = network.session(subscriber, node);
        subscribe(&mut network, node, "a/#", "", Subscriber::new(session, 1));
        let publisher = network.add_client();
        network.hosts[subscriber].reads = false;
        let now = network.now;
        network.hosts[subscriber].engines[0].listen(now, 1, "a/#", 1, false);
        publish_many(&mut network, publisher, 10, 1);
        let session = network.session(subscriber, node);
        let session = network.hosts[node].engines[0].out.sessions.get(session).expect("it is there");
        assert_eq!(session.credit_used().0, 3);
        network.hosts[subscriber].reads = true;
        network.run_until_drained();
        put_away(&mut network, node, subscriber);
        network.connect(subscriber, node);
        network.run(100 * MILLISECOND);
    }
}

/// One life of a few sessions, at random. What must hold is looked at after each step.
struct Life {
    network: Network,
    node: usize,
    publishers: Vec<usize>,
    /// Client, whether its session outlives its links, and the bounds of its queue.
    subscribers: Vec<(usize, bool, Bounds)>,
    published: u64,
}

impl Life {
    fn new(seed: u64) -> Self {
        let mut network = Network::new(seed, Faults { loss: 0.1, duplication: 0.05, jitter: 2_000 });
        let node = network.add_node("", 1 + (seed % 3) as u8);
        let mut subscribers = Vec::new();
        for (index, persistent) in [true, true, false].into_iter().enumerate() {
            let bounds = Bounds { messages: [30, 10_000, 50][index], bytes: 0 };
            let client = network.add_client();
            network.hosts[client].engines[0].listen(0, 1, "a/#", 2, false);
            subscribers.push((client, persistent, bounds));
        }
        let publishers = (0..2).map(|_| network.add_client()).collect();
        let mut life = Self { network, node, publishers, subscribers, published: 0 };
        (0..3).for_each(|index| life.come(index));
        life
    }

    /// Brings a subscriber back, with its subscription.
    fn come(&mut self, index: usize) {
        let Self { network, node, .. } = self;
        let (client, persistent, bounds) = self.subscribers[index];
        network.parted = None;
        put_away(network, *node, client);
        network.connect(client, *node);
        let session = network.open_bounded(client, *node, persistent, bounds);
        subscribe(network, *node, "a/#", "", Subscriber::new(session, 2));
    }

    fn step(&mut self) {
        let choice = self.network.rng.random_range(0..100);
        let index = self.network.rng.random_range(0..3);
        let (client, persistent, _) = self.subscribers[index];
        match choice {
            0..60 => {
                let publisher = self.publishers[index % 2];
                for _ in 0..self.network.rng.random_range(1..20) {
                    let (qos, ack_queued) =
                        (self.network.rng.random_range(1..3), self.network.rng.random_bool(0.1));
                    let sent = PublishOut { ack_queued, ..message("a/b", b"x", qos) };
                    self.network.publish(publisher, &sent);
                    self.published += 1;
                }
            }
            60..70 => self.network.hosts[client].reads ^= true,
            70..78 if persistent => put_away(&mut self.network, self.node, client),
            78..90 => self.come(index),
            90..93 => self.network.parted = Some((self.node, client)),
            93..97 => self.network.parted = None,
            97 if !persistent => {
                let (now, session) = (self.network.now, self.network.hosts[client].session);
                for engine in &mut self.network.hosts[self.node].engines {
                    if let Some(key) = engine.session_key(session) {
                        engine.end_session(now, key, Drop::SessionEnded);
                    }
                }
            }
            _ => {}
        }
        let time: Micros = match self.network.rng.random_range(0..10) {
            0..7 => self.network.rng.random_range(0..20_000),
            7..9 => SECOND / 2,
            _ => 3 * SECOND,
        };
        self.network.run(time);
        self.check();
    }

    fn check(&self) {
        check(&self.network, self.node);
        for &(client, _, bounds) in &self.subscribers {
            let id = self.network.hosts[client].session;
            for engine in &self.network.hosts[self.node].engines {
                let session = engine.session_key(id).and_then(|key: SessionKey| engine.out.sessions.get(key));
                assert!(session.is_none_or(|session| session.queue.len() <= bounds.messages));
            }
        }
    }

    fn end(mut self, seed: u64) {
        self.network.parted = None;
        for index in 0..3 {
            self.network.hosts[self.subscribers[index].0].reads = true;
            self.come(index);
        }
        self.network.run(5 * SECOND);
        self.network.run_until_drained();
        self.check();
        let told: u64 = self
            .publishers
            .iter()
            .map(|&publisher| self.network.hosts[publisher].published.len() as u64)
            .sum();
        assert_eq!(told, self.published, "seed {seed}: each message is answered once");
        let (patient, ..) = self.subscribers[1];
        for &publisher in &self.publishers {
            let id = self.network.hosts[publisher].publisher;
            for &(client, ..) in &self.subscribers {
                let read = &self.network.hosts[client].read;
                let sequences: Vec<u64> =
                    read.iter().filter(|read| read.publisher == id).map(|read| read.sequence).collect();
                let firsts = firsts(&sequences);
                assert!(firsts.is_sorted(), "seed {seed}: out of order: {firsts:?}");
                let count = self.network.hosts[publisher].published.len();
                assert!(client != patient || firsts.len() == count, "seed {seed}: some of {count} were lost");
            }
        }
    }
}

#[test]
fn whatever_happens_each_message_is_answered_once_and_accounted_for() {
    for seed in 0..12 {
        let mut life = Life::new(seed);
        (0..120).for_each(|_| life.step());
        life.end(seed);
    }
}
