//! A publisher keeps to its owners' credit, and gives up what it could not send in time (§7.7, §7.2).

use crate::engine::tests::network::{Faults, MILLISECOND, Network, SECOND, credit_field, message};
use crate::engine::transport::credit::Credit;
use crate::schema::reason;
use crate::wire::PublishOut;

/// A node, a subscriber to everything, and a publisher that is connected.
fn connected(seed: u64, faults: Faults) -> (Network, [usize; 3]) {
    let (mut network, node) = Network::with_faults(seed, faults, 1);
    let subscriber = network.add_subscriber(node, "#", 2);
    let publisher = network.add_client();
    network.publish(publisher, &message("first", b"x", 1));
    network.run_until_drained();
    (network, [node, subscriber, publisher])
}

/// A client that has this much credit from a node.
fn grant(network: &mut Network, node: usize, client: usize, messages: u32, bytes: u64) {
    let link = network.hosts[node].links[&network.hosts[client].session];
    let credit = credit_field(messages, bytes, false);
    assert!(network.hosts[node].engines[0].send(link, credit));
    network.run(SECOND);
}

#[test]
fn nothing_is_sent_without_credit_and_no_more_than_it_allows() {
    for seed in 0..6 {
        let faults = Faults { loss: 0.1, duplication: 0.1, jitter: 2_000 };
        let (mut network, [node, subscriber, publisher]) = connected(seed, faults);
        grant(&mut network, node, publisher, 0, 0);
        let large = vec![1; 20_000];
        for (topic, payload) in [("a", &b"x"[..]), ("a", &large), ("b", b"y"), ("a", b"z")] {
            network.publish(publisher, &message(topic, payload, 2));
        }
        network.run(3 * SECOND);
        assert_eq!(network.hosts[subscriber].read.len(), 1, "only what came before");
        assert_eq!(network.counter(publisher, "inflight"), 0);
        let link = network.hosts[node].links[&network.hosts[publisher].session];
        let credit = credit_field(5, 3_000, false);
        network.hosts[node].engines[0].send(link, credit);
        let mut most = 0;
        while network.counter(publisher, "waiting") > 0 {
            network.run(MILLISECOND);
            most = most.max(network.counter(publisher, "inflight"));
        }
        assert!((2..=4).contains(&most), "{most}: two parts of some 1,100 bytes, and two small messages");
        network.run_until_drained();
        network.assert_all_published(publisher, 5);
        let read: Vec<usize> = network.hosts[subscriber].read[1..]
            .iter()
            .filter(|read| read.topic == "a")
            .map(|read| read.payload.len())
            .collect();
        assert_eq!(read, [1, 20_000, 1], "seed {seed}");
    }
}

#[test]
fn credit_ends_by_number_too() {
    let (mut network, [node, subscriber, publisher]) = connected(1, Faults::default());
    grant(&mut network, node, publisher, 3, 1 << 20);
    network.hosts[subscriber].reads = false;
    network.publish_times(publisher, 10, &message("a", b"x", 1));
    network.run(SECOND);
    assert_eq!((network.counter(publisher, "inflight"), network.counter(publisher, "waiting")), (3, 7));
    network.read_all(subscriber);
    network.assert_all_published(publisher, 11);
}

#[test]
fn a_publisher_that_may_keep_no_more_is_told_to_try_again() {
    let (mut network, [node, _, publisher]) = connected(1, Faults::default());
    grant(&mut network, node, publisher, 0, 0);
    let payload = vec![0; 1 << 20];
    let now = network.now;
    let mut queued = 0;
    let publish = |network: &mut Network, payload: &[u8]| {
        let engine = &mut network.hosts[publisher].engines[0];
        let sent = engine.publish(now, &message("a", payload, 1), || payload.to_vec().into());
        sent.expect("a valid message").is_some()
    };
    while publish(&mut network, &payload) {
        queued += 1;
        assert!(queued <= 16, "more than 16 MiB wait");
    }
    assert_eq!(queued, 15, "with their topics 16 are too much");
    assert!(publish(&mut network, &vec![0; 17 << 20]), "a larger one waits beside them");
    assert!(!publish(&mut network, &vec![0; 17 << 20]), "but not two");
    grant(&mut network, node, publisher, 4_096, 8 << 20);
    network.run_until_drained();
    network.assert_all_published(publisher, 17);
}

#[test]
fn what_waits_too_long_expires_and_what_is_in_flight_does_not() {
    let (mut network, [node, subscriber, publisher]) = connected(2, Faults::default());
    let published_at_us = network.now;
    let mortal = |qos| PublishOut { published_at_us, expiry_s: Some(2), ..message("a", b"x", qos) };
    network.hosts[subscriber].reads = false;
    let in_flight = network.publish(publisher, &mortal(1));
    network.run(MILLISECOND);
    grant(&mut network, node, publisher, 0, 0);
    let waits = network.publish(publisher, &mortal(2));
    network.publish(publisher, &mortal(0));
    let lasting = network.publish(publisher, &message("a", b"y", 1));
    network.run(10 * SECOND);
    let told = &network.hosts[publisher].published;
    assert_eq!(told.get(&waits), Some(&reason::MESSAGE_EXPIRED));
    assert!(!told.contains_key(&lasting));
    assert_eq!(
        told.get(&in_flight),
        Some(&reason::SUCCESS),
        "its subscriber counts as offline, and it waits there"
    );
    assert_eq!(network.counter(publisher, "drop.expired"), 1, "the one of QoS 0");
    network.hosts[subscriber].reads = true;
    grant(&mut network, node, publisher, 10, 10_000);
    network.run_until_drained();
    assert_eq!(network.sequences(subscriber, "a"), [in_flight, lasting]);
}

#[test]
fn a_client_says_on_each_new_link_how_much_it_takes() {
    let (mut network, node) = Network::with_faults(3, Faults::HEAVY, 1);
    let client = network.add_client_with(|config| config.receive_messages = 7);
    let mut expected = Credit::default();
    expected.grant(7, 8 << 20);
    for _ in 0..2 {
        network.connect(client, node);
        network.run(SECOND);
        let link = network.hosts[node].links[&network.hosts[client].session];
        let engine = &mut network.hosts[node].engines[0];
        assert_eq!(engine.out.links.get_mut(link).expect("it is open").credit, expected);
        network.close(client, client);
        network.run(20 * SECOND);
    }
}
