//! One owner, and clients of it (§7.3 to §7.6).

use crate::engine::tests::network::{Faults, GRANT, MILLISECOND, Network, SECOND, message, request};
use crate::schema::reason;
use crate::tables::jurisdiction::Grant;

/// Publishes 100 messages on each of two topics, at this QoS, to three subscribers at QoS 2.
fn played(seed: u64, qos: u8, faults: Faults) -> (Network, usize, Vec<usize>) {
    let (mut network, node) = Network::with_faults(seed, faults, 1);
    let subscribers = (0..3).map(|_| network.add_subscriber(node, "a/#", 2)).collect();
    let publisher = network.add_client();
    for index in 0..100_u32 {
        for topic in ["a/one", "a/two"] {
            network.publish(publisher, &message(topic, &index.to_be_bytes(), qos));
        }
        network.run(MILLISECOND);
    }
    network.run_until_drained();
    (network, publisher, subscribers)
}

#[test]
fn qos_0_arrives_at_most_once() {
    for seed in 0..10 {
        let (network, _, subscribers) = played(seed, 0, Faults::HEAVY);
        for subscriber in subscribers {
            let mut sequences = network.sequences(subscriber, "a/one");
            let count = sequences.len();
            sequences.sort_unstable();
            sequences.dedup();
            assert_eq!(sequences.len(), count, "seed {seed}: one came twice");
            assert!((30..=99).contains(&count), "seed {seed}: {count} came over a path that loses a fifth");
        }
    }
}

#[test]
fn qos_1_and_2_arrive_once_over_one_link_and_in_order() {
    for seed in 0..10 {
        for qos in [1, 2] {
            let (network, publisher, subscribers) = played(seed, qos, Faults::HEAVY);
            network.assert_all_published(publisher, 200);
            for subscriber in subscribers {
                let expected: Vec<u64> = (0..100).map(|index| 2 * index + 1).collect();
                assert_eq!(network.sequences(subscriber, "a/one"), expected, "seed {seed}, QoS {qos}");
                assert_eq!(network.sequences(subscriber, "a/two").len(), 100);
            }
        }
    }
}

#[test]
fn nothing_is_lost_or_repeated_where_the_network_does_neither() {
    let (network, publisher, subscribers) = played(1, 0, Faults::default());
    assert!(subscribers.iter().all(|&subscriber| network.hosts[subscriber].read.len() == 200));
    assert_eq!((network.counter(0, "datagrams_lost"), network.counter(publisher, "retransmits")), (0, 0));
}

#[test]
fn a_puback_means_that_every_subscriber_took_the_message_over() {
    let (mut network, node) = Network::with_faults(3, Faults::HEAVY, 1);
    let ready = network.add_subscriber(node, "a", 1);
    let slow = network.add_idle_subscriber(node, "a", 1);
    let publisher = network.add_client();
    let sequence = network.publish(publisher, &message("a", b"x", 1));
    let queued =
        network.publish(publisher, &crate::wire::PublishOut { ack_queued: true, ..message("a", b"y", 1) });
    network.run(SECOND);
    assert_eq!(network.sequences(ready, "a"), [sequence, queued]);
    let published: Vec<u64> = network.hosts[publisher].published.keys().copied().collect();
    assert_eq!(published, [queued], "one did not read it, and only the other publisher asked for less");
    network.hosts[slow].reads = true;
    network.run(5 * SECOND);
    network.assert_all_published(publisher, 2);
    network.hosts[slow].reads = false;
    let sequence = network.publish(publisher, &message("a", b"z", 1));
    network.run(SECOND);
    assert!(!network.hosts[publisher].published.contains_key(&sequence));
    network.parted = Some((node, slow));
    network.run(20 * SECOND);
    assert!(network.hosts[publisher].published.contains_key(&sequence), "its session has ended");
}

#[test]
fn large_messages_come_whole() {
    for seed in 0..4 {
        let (mut network, node) = Network::with_faults(seed, Faults::HEAVY, 1);
        let subscriber = network.add_subscriber(node, "#", 2);
        let publisher = network.add_client();
        let payloads: Vec<Vec<u8>> = [1_100, 5_000, 300_000]
            .iter()
            .map(|&size| (0..size).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect())
            .collect();
        for (qos, payload) in [1, 2, 2].into_iter().zip(&payloads) {
            network.publish(publisher, &message("camera", payload, qos));
        }
        network.run_until_drained();
        let read: Vec<&[u8]> = network.hosts[subscriber].read.iter().map(|read| &*read.payload).collect();
        assert!(read == payloads, "seed {seed}");
        network.assert_all_published(publisher, 3);
    }
}

#[test]
fn retained_messages_are_sent_when_they_are_asked_for_and_cleared_by_an_empty_one() {
    let (mut network, node) = Network::with_faults(5, Faults::HEAVY, 1);
    let publisher = network.add_client();
    let large = vec![3; 4_000];
    for (topic, payload) in [("a/one", &b"1"[..]), ("a/two", &large), ("a/three", b"3"), ("a/three", b"")] {
        network.publish(publisher, &crate::wire::PublishOut { retain: true, ..message(topic, payload, 1) });
    }
    network.run_until_drained();
    let subscriber = network.add_subscriber(node, "a/+", 1);
    let session = network.session(subscriber, node);
    let now = network.now;
    assert!(network.hosts[node].engines[0].send_retained(now, session, request("a/+", 1, 0)));
    network.run_until_drained();
    let mut read = network.hosts[subscriber].read.clone();
    read.sort_by(|one, other| one.topic.cmp(&other.topic));
    assert!(read.iter().all(|read| read.retained));
    assert_eq!(read.iter().map(|read| &*read.payload).collect::<Vec<_>>(), [b"1", &large[..]]);
}

#[test]
fn no_local_spares_the_publisher_its_own() {
    let (mut network, node) = Network::with_node(6, 1);
    let (one, other) = (network.add_client(), network.add_client());
    for client in [one, other] {
        network.listen(client, 1, "a", 1);
        network.connect(client, node);
        network.subscribe(client, node, "a", 1, true);
    }
    network.publish(one, &message("a", b"x", 1));
    network.run_until_drained();
    assert_eq!((network.hosts[one].read.len(), network.hosts[other].read.len()), (0, 1));
    network.assert_all_published(one, 1);
}

#[test]
fn a_puback_says_that_nobody_was_subscribed() {
    for seed in 0..10 {
        let (mut network, node) = Network::with_faults(seed, Faults::HEAVY, 1);
        network.add_subscriber(node, "a", 0);
        let publisher = network.add_client();
        network.listen(publisher, 1, "own", 1);
        network.connect(publisher, node);
        network.subscribe(publisher, node, "own", 1, true);
        let mut expected = Vec::new();
        for round in 0..100 {
            for topic in ["a", "b", "own"] {
                let (qos, ack_queued) = (1 + round % 2, round % 3 == 0);
                let sent = crate::wire::PublishOut { ack_queued, ..message(topic, b"x", qos) };
                network.publish(publisher, &sent);
                let is_wanted = topic == "a";
                expected.push(if is_wanted { reason::SUCCESS } else { reason::NO_MATCHING_SUBSCRIBERS });
            }
            network.run(MILLISECOND);
        }
        network.run_until_drained();
        let told: Vec<i32> = network.hosts[publisher].published.values().copied().collect();
        assert_eq!(told, expected, "seed {seed}");
    }
}

#[test]
fn nobody_but_the_node_itself_publishes_to_what_is_reserved_for_it() {
    let (mut network, node) = Network::with_node(8, 1);
    let reserved = Grant { reserved: true, ..GRANT };
    network.grant(node, "$SYS/nodes/n", reserved);
    let subscriber = network.add_subscriber(node, "$SYS/nodes/#", 2);
    let publisher = network.add_client();
    for topic in ["$SYS/nodes/n", "$SYS/nodes/n/status", "$SYS/nodes/other"] {
        for qos in 0..=2 {
            network
                .publish(publisher, &crate::wire::PublishOut { retain: true, ..message(topic, b"x", qos) });
        }
    }
    network.run_until_drained();
    let told: Vec<i32> = network.hosts[publisher].published.values().copied().collect();
    let (refused, taken) = (reason::NOT_AUTHORIZED, reason::SUCCESS);
    assert_eq!(told, [refused, refused, refused, refused, taken, taken]);
    assert_eq!(network.counter(node, "drop.not_authorized"), 6);
    assert_eq!(network.hosts[subscriber].read.len(), 3);
    network.publish(node, &message("$SYS/nodes/n/status", b"own", 0));
    network.run_until_drained();
    assert_eq!(network.hosts[subscriber].read.last().map(|read| &*read.payload), Some(&b"own"[..]));
}

#[test]
fn a_subscriber_that_does_not_read_holds_its_own_messages_only() {
    let (mut network, node) = Network::with_node(7, 1);
    let (ready, slow) = (network.add_subscriber(node, "a", 1), network.add_subscriber(node, "a", 0));
    let publisher = network.add_client();
    network.hosts[slow].reads = false;
    let payload = vec![0; 1_000];
    for _ in 0..400 {
        network.publish_times(publisher, 50, &message("a", &payload, 0));
        network.run(5 * MILLISECOND);
    }
    network.run(SECOND);
    assert!(network.hosts[ready].read.len() > 15_000, "{}", network.hosts[ready].read.len());
    assert!(network.counter(slow, "drop.inbox_full") > 1_000);
}

#[test]
fn a_message_is_for_those_who_listen_when_it_comes() {
    let (mut network, node) = Network::with_node(12, 1);
    let publisher = network.add_client();
    let subscriber = network.add_idle_subscriber(node, "a/#", 0);
    let mut heard = |change: &dyn Fn(&mut crate::engine::Engine)| {
        change(&mut network.hosts[subscriber].engines[0]);
        // One topic throughout: who listens to it was found for the message before.
        network.publish(publisher, &message("a/b", b"x", 0));
        network.run(SECOND);
        let read = network.take_messages(subscriber, 10);
        read.into_iter().map(|message| message.subscriptions.len()).collect::<Vec<_>>()
    };
    let before = heard(&|_| ());
    assert_eq!(before.len(), 1);
    assert_eq!(heard(&|engine| engine.listen(0, 90, ("", "a/b"), 0, false)), [before[0] + 1]);
    assert_eq!(heard(&|engine| engine.listen(0, 91, ("", "+/b"), 0, false)), [before[0] + 2]);
    assert_eq!(heard(&|engine| engine.unlisten(0, 90, false)), [before[0] + 1]);
    assert_eq!(heard(&|engine| engine.unlisten(0, 91, false)), before);
}
