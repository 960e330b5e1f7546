//! Messages that go together come as if each had gone by itself, and are answered each for itself (§3.3, §7.3, §7.7).

use std::collections::BTreeMap;

use rand::Rng;

use crate::engine::Side;
use crate::engine::tests::network::{Faults, GRANT, MILLISECOND, Network, SECOND, credit_field, message};
use crate::schema::reason;
use crate::tables::jurisdiction::Grant;
use crate::wire::PublishOut;

const TOPICS: [&str; 3] = ["b/one", "b/two", "b/three"];

/// Records that a client keeps of what is in flight.
fn records(network: &Network, client: usize) -> usize {
    let links = network.hosts[client].engines[0].out.links.iter();
    links
        .filter_map(|position| {
            Some(network.hosts[client].engines[0].out.links.awake(position.id())?.delivery_records.entries())
        })
        .sum()
}

/// The payloads of what was published of each topic at `QoS` 1 and 2, in order. No two are alike.
type Published = BTreeMap<&'static str, Vec<Vec<u8>>>;

/// Publishes a few messages on one topic at once, alike or not; what of them is to come.
fn burst(network: &mut Network, publisher: usize, published: &mut Published) {
    let topic = TOPICS[network.rng.random_range(0..TOPICS.len())];
    let (count, qos) = (network.rng.random_range(1..60), network.rng.random_range(1..=2));
    let size = network.rng.random_range(0..200);
    for _ in 0..count {
        let size = if network.rng.random_bool(0.02) { 3_000 } else { size };
        let qos = if network.rng.random_bool(0.02) { 0 } else { qos };
        let of_topic = published.entry(topic).or_default();
        let mut payload = (of_topic.len() as u64).to_be_bytes().to_vec();
        payload.resize(9 + size, qos);
        let expiry_s = network.rng.random_bool(0.02).then_some(3_600);
        let message = PublishOut { published_at_us: network.now, expiry_s, ..message(topic, &payload, qos) };
        network.publish(publisher, &message);
        if qos > 0 {
            of_topic.push(payload);
        }
    }
}

/// The payloads of what came of a topic at `QoS` 1 and 2 for the first time, in order.
fn firsts(network: &Network, host: usize, topic: &str, published: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut came = Vec::new();
    for read in network.hosts[host].read.iter().filter(|read| read.topic == topic) {
        if published.contains(&read.payload) && !came.contains(&read.payload) {
            came.push(read.payload.clone());
        }
    }
    came
}

fn grant_credit(network: &mut Network, node: usize, client: usize, messages: u32, bytes: u64) {
    let session = network.hosts[client].session;
    if let Some(&link) = network.hosts[node].links.get(&session) {
        let credit = credit_field(messages, bytes, false);
        network.hosts[node].engines[0].send(link, credit);
    }
}

#[test]
fn messages_on_one_topic_go_together_and_are_told_each_once() {
    for qos in [1, 2] {
        let (mut network, node) = Network::with_node(1, 1);
        let subscriber = network.add_subscriber(node, "a", 2);
        let publisher = network.add_client();
        network.publish(publisher, &message("a", b"first", qos));
        network.run_until_drained();
        network.hosts[subscriber].reads = false;
        let published_at_us = network.now;
        for _ in 0..40 {
            network.publish(publisher, &PublishOut { published_at_us, ..message("a", &[1; 50], qos) });
        }
        let engine = &network.hosts[publisher].engines[0];
        assert!(!engine.is_drained() && engine.has_transmit());
        assert_eq!(network.counter(publisher, "inflight") + network.counter(publisher, "waiting"), 40);
        network.run(SECOND);
        let records = records(&network, publisher);
        assert!(
            (3..=5).contains(&records),
            "{records}: of 40 messages of some 90 bytes all but the first in blocks"
        );
        assert_eq!((network.counter(publisher, "inflight"), network.counter(publisher, "waiting")), (40, 0));
        network.read_all(subscriber);
        network.assert_all_published(publisher, 41);
        assert_eq!(network.sequences(subscriber, "a"), (1..=41).collect::<Vec<_>>());
        assert_eq!(network.counter(publisher, "inflight"), 0);
    }
}

#[test]
fn what_is_published_next_never_passes_the_pending_batch() {
    let (mut network, node) = Network::with_node(1, 1);
    let subscriber = network.add_subscriber(node, "#", 2);
    let publisher = network.add_client();
    network.publish(publisher, &message("a", b"first", 1));
    network.run_until_drained();
    // Whatever comes behind messages that are gathered: another QoS, another topic, one that dies, one of several parts.
    for (topic, qos, size, expiry_s) in
        [("a", 0, 1, None), ("a", 2, 1, None), ("b", 0, 1, None), ("a", 1, 1, Some(9)), ("a", 1, 3_000, None)]
    {
        let before = network.hosts[subscriber].read.len();
        network.publish_times(publisher, 5, &message("a", b"x", 1));
        let payload = vec![1; size];
        let published_at_us = network.now;
        let last = PublishOut { expiry_s, published_at_us, ..message(topic, &payload, qos) };
        network.publish(publisher, &last);
        network.run_until_drained();
        let came: Vec<u64> =
            network.hosts[subscriber].read[before..].iter().map(|read| read.sequence).collect();
        assert!(came.len() == 6 && came.is_sorted(), "{topic} {qos} {size}: {came:?}");
    }
}

#[test]
fn credit_divides_the_pending_batch() {
    for (messages, bytes, fit) in [(3, 1 << 20, 3), (100, 200, 2), (100, 1, 1), (7, 300, 4)] {
        let (mut network, node) = Network::with_node(1, 1);
        let subscriber = network.add_subscriber(node, "a", 1);
        let publisher = network.add_client();
        network.publish(publisher, &message("a", b"x", 1));
        network.run_until_drained();
        network.hosts[subscriber].reads = false;
        for _ in 0..10 {
            network.publish(publisher, &message("a", &[1; 50], 1));
        }
        // It is gathered, and then credit says less.
        let link = network.hosts[publisher].links[&network.hosts[publisher].session];
        let now = network.now;
        network.hosts[publisher].engines[0].take_credit(now, link, messages, bytes);
        network.run(SECOND);
        let (inflight, waiting) =
            (network.counter(publisher, "inflight"), network.counter(publisher, "waiting"));
        assert_eq!((inflight, waiting), (fit, 10 - fit), "{messages} messages, {bytes} bytes");
        network.read_all(subscriber);
        network.assert_all_published(publisher, 11);
        assert_eq!(network.sequences(subscriber, "a"), (1..=11).collect::<Vec<_>>());
    }
}

#[test]
fn whatever_happens_on_their_way_they_come_in_order_and_are_told_once() {
    for seed in 0..20 {
        let mut network = Network::new(seed, Faults { loss: 0.05, duplication: 0.05, jitter: 2_000 });
        let (one, other) = (network.add_node("", 1), network.add_node("elsewhere", 1));
        let subscriber = network.add_subscriber_of_both(one, other, "b/#", 2);
        let publisher = network.add_client();
        let mut published = Published::new();
        let mut moved = false;
        for _ in 0..60 {
            burst(&mut network, publisher, &mut published);
            match network.rng.random_range(0..12) {
                0 => grant_credit(&mut network, one, publisher, 5, 2_000),
                1 => grant_credit(&mut network, one, publisher, 4_096, 8 << 20),
                2 => network.grant(one, "", Grant { serving: false, ..GRANT }),
                3 | 4 => network.grant(one, "", GRANT),
                5 => {
                    let (now, session) = (network.now, network.hosts[publisher].session);
                    if let Some(&link) = network.hosts[publisher].links.get(&session) {
                        network.hosts[publisher].engines[0].close(now, link);
                    }
                }
                6 if !moved && seed % 2 == 0 => {
                    moved = true;
                    network.grant(other, "b", Grant { epoch: 2, ..GRANT });
                    network.cut(one, "b", other);
                }
                7 => network.hosts[publisher].engines[0].forget_zones(None),
                _ => {}
            }
            let time = network.rng.random_range(0..4 * MILLISECOND);
            network.run(time);
        }
        network.grant(one, "", GRANT);
        grant_credit(&mut network, one, publisher, 4_096, 8 << 20);
        network.run_until_drained();
        let told = &network.hosts[publisher].published;
        assert_eq!(told.len(), published.values().map(Vec::len).sum::<usize>(), "seed {seed}");
        assert!(told.values().all(|&why| why == reason::SUCCESS), "seed {seed}");
        for (topic, expected) in &published {
            assert!(firsts(&network, subscriber, topic, expected) == *expected, "seed {seed}, {topic}");
        }
        let Side::Client(client) = &network.hosts[publisher].engines[0].side else { panic!("a client") };
        assert_eq!((client.publisher.in_flight(), client.waiting()), (0, 0));
    }
}
