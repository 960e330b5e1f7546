//! Who is offline, or answers nothing, holds nobody up, and gets what came meanwhile (§7.3, §7.7).

use super::{
    OWN, add_persistent, check, firsts, go_offline, link_to, publish_many, publish_together, status,
};
use crate::engine::sessions::session::Status;
use crate::engine::tests::network::{Faults, MILLISECOND, Network, SECOND, message};
use crate::schema::reason;
use crate::wire::PublishOut;

#[test]
fn what_came_while_a_session_was_away_comes_when_it_is_back_in_order() {
    for seed in 0..6 {
        for qos in [1, 2] {
            let mut network = Network::new(seed, Faults { loss: 0.1, duplication: 0.05, jitter: 2_000 });
            let node = network.add_node("", 1 + (seed % 3) as u8);
            let subscriber = add_persistent(&mut network, node, "a/#", 2, OWN);
            let publisher = network.add_client();
            // Together they lie in one record, until their session is offline.
            let together = if seed % 2 == 0 { 1 } else { 10 };
            publish_together(&mut network, publisher, 30, together, qos);
            for _ in 0..3 {
                go_offline(&mut network, node, subscriber);
                publish_together(&mut network, publisher, 20, together, qos);
                network.run(SECOND);
                assert!(!status(&network, node, subscriber).is_connected);
                let told = network.hosts[publisher].published.len() as u64;
                assert!(told > 20, "a session that is offline holds nobody up: {told}");
                network.connect(subscriber, node);
                publish_together(&mut network, publisher, 10, together, qos);
                check(&network, node);
            }
            network.run_until_drained();
            network.assert_all_published(publisher, 120);
            let sequences = network.sequences(subscriber, "a/b");
            assert_eq!(firsts(&sequences), (1..=120).collect::<Vec<_>>(), "seed {seed}, QoS {qos}");
            assert!(qos == 1 || sequences.len() == 120, "seed {seed}: QoS 2 came twice");
            let Status { session_counters, queued, .. } = status(&network, node, subscriber);
            assert_eq!((session_counters.accepted, session_counters.delivered, queued), (120, 120, 0));
        }
    }
}

#[test]
fn a_client_that_begins_another_link_gets_what_it_had_not_answered() {
    for workers in [1, 2] {
        let (mut network, node) = Network::with_node(1, workers);
        let subscriber = network.add_subscriber(node, "a/#", 1);
        let publisher = network.add_client();
        let (now, link) = (network.now, link_to(&network, subscriber, node).expect("it is connected"));
        network.hosts[subscriber].engines[0].close(now, link);
        publish_many(&mut network, publisher, 5, 1);
        network.connect(subscriber, node);
        network.run_until_drained();
        network.assert_all_published(publisher, 5);
        assert_eq!(firsts(&network.sequences(subscriber, "a/b")), [1, 2, 3, 4, 5]);
        check(&network, node);
    }
}

#[test]
fn a_session_that_answers_nothing_counts_as_away_after_two_seconds() {
    let (mut network, node) = Network::with_node(1, 1);
    let slow = network.add_idle_subscriber(node, "a/#", 1);
    let publisher = network.add_client();
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
fn a_message_that_outlived_its_expiry_is_not_sent_on() {
    let (mut network, node) = Network::with_node(4, 1);
    let subscriber = add_persistent(&mut network, node, "a/#", 1, OWN);
    go_offline(&mut network, node, subscriber);
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
    let Status { session_counters, .. } = status(&network, node, subscriber);
    assert_eq!((session_counters.accepted, session_counters.delivered, session_counters.expired), (5, 3, 2));
}
