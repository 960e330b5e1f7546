//! Messages whose owner changes, or whose link ends, on their way (§5.4, §7.4).

use crate::engine::tests::handover::queued::publish_for;
use crate::engine::tests::network::{Faults, GRANT, MILLISECOND, Network, SECOND, message};
use crate::engine::tests::sessions::firsts;
use crate::schema::reason;
use crate::tables::jurisdiction::Grant;

#[test]
fn a_handover_under_traffic_loses_nothing_and_keeps_the_order() {
    for seed in 0..12 {
        for qos in [1, 2] {
            let mut network = Network::new(seed, Faults { loss: 0.05, duplication: 0.05, jitter: 2_000 });
            let (old, new) = (network.add_node("", 1), network.add_node("elsewhere", 1));
            let subscriber = network.add_subscriber_of_both(old, new, "b/#", 2);
            let publisher = network.add_client();
            publish_for(&mut network, publisher, 60, qos);
            network.grant(new, "b", Grant { epoch: 2, serving: false, ..GRANT });
            network.cut(old, "b", new);
            publish_for(&mut network, publisher, 60, qos);
            network.run(70 * MILLISECOND);
            assert!(network.counter(new, "drop.handover") > 0, "the new owner did not serve yet");
            network.grant(new, "b", Grant { epoch: 2, ..GRANT });
            publish_for(&mut network, publisher, 60, qos);
            network.run_until_drained();
            network.assert_all_published(publisher, 180);
            let sequences = network.sequences(subscriber, "b/topic");
            let expected: Vec<u64> = (1..=180).collect();
            assert_eq!(firsts(&sequences), expected, "seed {seed}, QoS {qos}");
            assert!(qos == 1 || sequences.len() == 180, "seed {seed}: QoS 2 came twice");
            assert!(
                network.counter(old, "drop.not_responsible") > 0 && network.counter(new, "messages_in") > 50
            );
        }
    }
}

#[test]
fn messages_of_qos_0_leave_the_way_that_they_took_as_soon_as_another_is_known() {
    let mut network = Network::new(1, Faults::default());
    let (old, new) = (network.add_node("", 1), network.add_node("elsewhere", 1));
    let subscriber = network.add_subscriber_of_both(old, new, "b/#", 0);
    let publisher = network.add_client();
    publish_for(&mut network, publisher, 10, 0);
    network.run(SECOND);
    let before = network.counter(new, "messages_in");
    network.grant(new, "b", Grant { epoch: 2, ..GRANT });
    network.cut(old, "b", new);
    publish_for(&mut network, publisher, 1, 0);
    network.run(SECOND);
    publish_for(&mut network, publisher, 10, 0);
    network.run(SECOND);
    assert_eq!(network.counter(new, "messages_in") - before, 10, "all but the one that was refused");
    let expected: Vec<u64> = (1..=10).chain(12..=21).collect();
    assert_eq!(network.sequences(subscriber, "b/topic"), expected);
}

#[test]
fn a_publisher_tries_each_message_once_in_the_time_that_it_waits_for_a_handover() {
    let (mut network, node) = Network::with_faults(1, Faults { loss: 0.0, duplication: 0.0, jitter: 0 }, 1);
    network.add_subscriber(node, "b/#", 2);
    let publisher = network.add_client();
    publish_for(&mut network, publisher, 1, 1);
    network.run_until_drained();
    network.grant(node, "", Grant { serving: false, ..GRANT });
    publish_for(&mut network, publisher, 20, 1);
    network.run(SECOND);
    let tries = network.counter(node, "drop.handover");
    assert!((20 * 50..=20 * 101).contains(&tries), "{tries}");
    network.grant(node, "", GRANT);
    network.run_until_drained();
    network.assert_all_published(publisher, 21);
}

#[test]
fn an_owner_that_refuses_and_is_the_owner_again_takes_nothing_out_of_its_turn() {
    for seed in 0..12 {
        for qos in [1, 2] {
            let (mut network, node) =
                Network::with_faults(seed, Faults { loss: 0.1, duplication: 0.05, jitter: 5_000 }, 1);
            let subscriber = network.add_subscriber(node, "b/#", 2);
            let publisher = network.add_client();
            publish_for(&mut network, publisher, 20, qos);
            for _ in 0..5 {
                network.grant(node, "", Grant { serving: false, ..GRANT });
                publish_for(&mut network, publisher, 10, qos);
                network.grant(node, "", GRANT);
                publish_for(&mut network, publisher, 10, qos);
            }
            network.run_until_drained();
            network.assert_all_published(publisher, 120);
            assert!(network.counter(node, "drop.handover") > 0);
            let sequences = network.sequences(subscriber, "b/topic");
            assert_eq!(firsts(&sequences), (1..=120).collect::<Vec<_>>(), "seed {seed}, QoS {qos}");
        }
    }
}

#[test]
fn what_must_reach_its_subscribers_waits_until_they_are_back() {
    for seed in 0..12 {
        let (mut network, node) =
            Network::with_faults(seed, Faults { loss: 0.1, duplication: 0.05, jitter: 2_000 }, 1);
        let publisher = network.add_client();
        network.grant(node, "b", Grant { recovering: true, ..GRANT });
        (0..=2).for_each(|qos| publish_for(&mut network, publisher, 5, qos));
        network.run(100 * MILLISECOND);
        let published = &network.hosts[publisher].published;
        assert!(published.is_empty(), "seed {seed}: acknowledged to nobody's good: {published:?}");
        assert!(network.counter(node, "messages_in") > 0, "what nobody waits for goes on");
        let subscriber = network.add_subscriber(node, "b/#", 2);
        network.grant(node, "b", GRANT);
        network.run_until_drained();
        network.assert_all_published(publisher, 10);
        let expected: Vec<u64> = (6..=15).collect();
        assert_eq!(firsts(&network.sequences(subscriber, "b/topic")), expected, "seed {seed}");
    }
}

#[test]
fn a_link_that_ends_gives_its_messages_to_the_next_in_order() {
    for seed in 0..12 {
        for qos in [1, 2] {
            let (mut network, node) =
                Network::with_faults(seed, Faults { loss: 0.1, duplication: 0.05, jitter: 2_000 }, 1);
            let subscriber = network.add_subscriber(node, "b/#", 2);
            let publisher = network.add_client();
            for _ in 0..4 {
                publish_for(&mut network, publisher, 20, qos);
                network.close(publisher, publisher);
            }
            publish_for(&mut network, publisher, 20, qos);
            network.run_until_drained();
            network.assert_all_published(publisher, 100);
            let sequences = network.sequences(subscriber, "b/topic");
            assert_eq!(firsts(&sequences), (1..=100).collect::<Vec<_>>(), "seed {seed}, QoS {qos}");
            assert!(qos == 1 || sequences.len() == 100, "seed {seed}: QoS 2 came twice");
        }
    }
}

#[test]
fn a_node_that_is_silent_too_long_is_left_and_found_again() {
    let (mut network, node) = Network::with_node(9, 1);
    let publisher = network.add_client();
    network.publish(publisher, &message("b", b"x", 1));
    network.run(SECOND);
    network.parted = Some((node, publisher));
    network.publish(publisher, &message("b", b"y", 1));
    network.run(40 * SECOND);
    assert!(network.hosts[publisher].downs >= 1 && network.hosts[node].downs == 1);
    assert_eq!(network.hosts[publisher].published.len(), 1);
    network.parted = None;
    network.run_until_drained();
    let published: Vec<i32> = network.hosts[publisher].published.values().copied().collect();
    assert_eq!(published, [reason::NO_MATCHING_SUBSCRIBERS; 2]);
}
