//! Retained messages over whole engines (§7.6): the latest, at least once, and never an older one after a newer.

use rand::Rng;

use crate::engine::tests::network::{Faults, MILLISECOND, Network, SECOND, message, request};
use crate::wire::PublishOut;

fn retained<'a>(topic: &'a str, payload: &'a [u8], qos: u8) -> PublishOut<'a> {
    PublishOut { retain: true, ..message(topic, payload, qos) }
}

/// As a node does when it is asked for a subscription: made first, then what is retained is sent.
fn subscribe(network: &mut Network, node: usize, filter: &str, qos: u8) -> usize {
    let subscriber = network.add_subscriber(node, filter, qos);
    send_retained(network, subscriber, node, filter, qos);
    subscriber
}

fn send_retained(network: &mut Network, subscriber: usize, node: usize, filter: &str, qos: u8) {
    send_retained_for(network, subscriber, node, filter, qos, 0);
}

fn send_retained_for(
    network: &mut Network,
    subscriber: usize,
    node: usize,
    filter: &str,
    qos: u8,
    listener: u64,
) {
    let (now, key) = (network.now, network.session(subscriber, node));
    let home = usize::from(key.worker());
    let request = request(filter, qos, listener);
    assert!(network.hosts[node].engines[home].send_retained(now, key, request));
}

/// The numbers that a subscriber read, in order.
fn numbers(network: &Network, subscriber: usize) -> Vec<u32> {
    let number = |payload: &[u8]| payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
    network.hosts[subscriber].read.iter().map(|read| number(&read.payload)).collect()
}

#[test]
fn who_subscribes_gets_the_latest_and_never_an_older_one_after_it() {
    for (seed, qos, size) in [(1, 1, 4), (2, 2, 4), (3, 1, 3_000), (4, 2, 3_000), (5, 1, 4), (6, 2, 3_000)] {
        let (mut network, node) =
            Network::with_faults(seed, Faults { loss: 0.2, duplication: 0.05, jitter: 20_000 }, 1);
        let publishers = [network.add_client(), network.add_client()];
        let mut subscribers = Vec::new();
        for number in 1_u32..=60 {
            // One after the other, so that their order is known; but subscribers lag behind.
            let before = network.counter(node, "messages_in");
            let payload: Vec<u8> = number.to_be_bytes().into_iter().cycle().take(size).collect();
            network.publish(publishers[number as usize % 2], &retained("a/b", &payload, qos));
            while network.counter(node, "messages_in") < before + size.div_ceil(1_100) as u64 {
                network.run(MILLISECOND / 2);
            }
            if network.rng.random_bool(0.2) {
                subscribers.push(subscribe(&mut network, node, "a/+", 2));
            }
        }
        network.run_until_drained();
        assert!(subscribers.len() > 5);
        for subscriber in subscribers {
            let numbers = numbers(&network, subscriber);
            assert!(numbers.is_sorted(), "seed {seed}, QoS {qos}, {size} bytes: {numbers:?}");
            assert_eq!(numbers.last(), Some(&60));
        }
    }
}

#[test]
fn what_is_cleared_stays_so_though_qos_0_comes_late() {
    let mut arrived = 0;
    for seed in 0..50 {
        let (mut network, node) =
            Network::with_faults(seed, Faults { loss: 0.1, duplication: 0.05, jitter: 20_000 }, 1);
        let publisher = network.add_client();
        network.publish(publisher, &retained("a/b", b"x", 0));
        let between = network.rng.random_range(0..5 * MILLISECOND);
        network.run(between);
        network.publish(publisher, &retained("a/b", b"", 1 + (seed % 2) as u8));
        network.run_until_drained();
        arrived += network.counter(node, "messages_in") - 1;
        let subscriber = network.add_subscriber(node, "a/+", 1);
        let before = network.counter(node, "messages_out");
        send_retained(&mut network, subscriber, node, "a/+", 1);
        assert_eq!(network.counter(node, "messages_out"), before, "seed {seed}");
    }
    assert!(arrived > 30, "{arrived} of the earlier ones");
}

#[test]
fn each_listener_gets_what_is_retained_once_however_often_it_is_asked_for() {
    for (seed, qos) in [(7, 1), (8, 2), (9, 2)] {
        let (mut network, node) = Network::with_faults(seed, Faults::HEAVY, 1);
        let publisher = network.add_client();
        let large = vec![7; 5_000];
        network.publish(publisher, &retained("a/small", b"x", 2));
        network.publish(publisher, &retained("a/large", &large, 2));
        network.run_until_drained();
        let subscriber = network.add_subscriber(node, "a/+", qos);
        let mut expected = 0;
        for listener in [1, 2] {
            network.listen(subscriber, listener, "a/+", qos);
            // Twice at once, in nobody's name, and again after all has been read.
            for asker in [listener, listener, 0] {
                send_retained_for(&mut network, subscriber, node, "a/+", qos, asker);
            }
            network.run_until_drained();
            send_retained_for(&mut network, subscriber, node, "a/+", qos, listener);
            network.run_until_drained();
            expected += 2;
            let read = &network.hosts[subscriber].read;
            assert_eq!(read.len(), expected, "seed {seed}, listener {listener}");
            assert!(read.iter().all(|read| read.retained));
            assert_eq!(read.iter().filter(|read| read.payload == large).count(), expected / 2);
        }
    }
}

#[test]
fn a_dead_message_is_not_sent() {
    let (mut network, node) = Network::with_node(8, 1);
    let publisher = network.add_client();
    let published_at_us = network.now;
    for (topic, expiry_s) in [("a/dies", Some(10)), ("a/stays", Some(100)), ("a/ever", None)] {
        let message = PublishOut { published_at_us, expiry_s, ..retained(topic, b"x", 1) };
        network.publish(publisher, &message);
    }
    network.run(SECOND);
    for (wait, expected) in [(0, 3), (10, 2), (100, 1)] {
        network.run(wait * SECOND);
        let subscriber = subscribe(&mut network, node, "a/+", 1);
        network.run(SECOND);
        assert_eq!(network.hosts[subscriber].read.len(), expected);
    }
}

#[test]
fn the_flag_that_an_application_sees_is_that_of_mqtt() {
    // What a listener asked for, and the flag of a message with `retain`, of one without, and of one that was retained.
    for (retain_as_published, expected) in [(false, [false, false, true]), (true, [true, false, true])] {
        let (mut network, node) = Network::with_node(9, 1);
        let subscriber = network.add_client();
        network.hosts[subscriber].engines[0].listen(0, 1, ("", "#"), 1, retain_as_published);
        network.subscribe_anew(subscriber, node, "#", 1);
        network.hosts[subscriber].reads = false;
        let publisher = network.add_client();
        network.publish(publisher, &retained("a", b"x", 1));
        network.publish(publisher, &message("b", b"x", 1));
        network.run(SECOND);
        send_retained(&mut network, subscriber, node, "a", 1);
        network.run(SECOND);
        let mut read = network.take_messages(subscriber, 10);
        // Messages on two topics come in either order; what was published last was retained first.
        read.sort_by_key(|message| {
            (message.is_retained(), message.publish.windows(3).any(|text| text == b"\x0a\x01b"))
        });
        assert_eq!(read.iter().map(|message| message.retain).collect::<Vec<_>>(), expected);
    }
}

/// Which listeners a subscriber read each message for, in order.
fn listeners(network: &mut Network, subscriber: usize) -> Vec<(bool, Vec<u64>)> {
    let read = network.take_messages(subscriber, 100);
    let sorted = |mut listeners: Vec<u64>| {
        listeners.sort_unstable();
        listeners
    };
    read.into_iter()
        .map(|message| (message.is_retained(), sorted(message.subscriptions.into_vec())))
        .collect()
}

/// A node, a publisher, and a subscriber to `#` with listeners 11 on `a/+` and 12 on `#`, which reads when it is asked to.
fn with_two_listeners(seed: u64) -> (Network, usize, usize, usize) {
    let (mut network, node) = Network::with_node(seed, 1);
    let (publisher, subscriber) = (network.add_client(), network.add_client());
    for (listener, filter) in [(11, "a/+"), (12, "#")] {
        network.listen(subscriber, listener, filter, 1);
    }
    network.subscribe_anew(subscriber, node, "#", 1);
    network.hosts[subscriber].reads = false;
    (network, node, publisher, subscriber)
}

#[test]
fn what_is_retained_is_for_the_listener_that_asked_alone() {
    let (mut network, node, publisher, subscriber) = with_two_listeners(10);
    for (topic, payload) in [("a/b", vec![1; 3]), ("a/large", vec![2; 5_000])] {
        network.publish(publisher, &retained(topic, &payload, 1));
    }
    network.run(SECOND);
    let all = [11, 12].to_vec();
    assert_eq!(listeners(&mut network, subscriber), [(false, all.clone()), (false, all.clone())]);
    // The two large ones are on their way at once, part by part.
    for (listener, filter) in [(11, "a/+"), (12, "#")] {
        send_retained_for(&mut network, subscriber, node, filter, 1, listener);
    }
    network.run(SECOND);
    let mut read = listeners(&mut network, subscriber);
    read.sort();
    assert_eq!(read, [(true, vec![11]), (true, vec![11]), (true, vec![12]), (true, vec![12])]);
    // Asked for in nobody's name it is for whoever has not had it.
    network.listen(subscriber, 13, "+/b", 1);
    network.publish(publisher, &retained("a/c", b"x", 1));
    network.run(SECOND);
    assert_eq!(listeners(&mut network, subscriber), [(false, all.clone())]);
    send_retained_for(&mut network, subscriber, node, "#", 1, 0);
    network.run(SECOND);
    let mut read = listeners(&mut network, subscriber);
    read.sort();
    assert_eq!(read, [(true, all), (true, vec![13])]);
}

#[test]
fn what_was_retained_for_a_listener_that_left_is_for_nobody() {
    let (mut network, node, publisher, subscriber) = with_two_listeners(11);
    network.publish(publisher, &retained("a/b", b"x", 1));
    network.run(SECOND);
    assert_eq!(listeners(&mut network, subscriber).len(), 1);
    let now = network.now;
    network.hosts[subscriber].engines[0].unlisten(now, 11, false);
    send_retained_for(&mut network, subscriber, node, "a/+", 1, 11);
    network.run_until_drained();
    assert_eq!(listeners(&mut network, subscriber), []);
    // An earlier run had listener 3: whoever listens now gets what was on its way to it.
    send_retained_for(&mut network, subscriber, node, "a/+", 1, 3);
    network.run(SECOND);
    assert_eq!(listeners(&mut network, subscriber), [(true, vec![12])]);
}
