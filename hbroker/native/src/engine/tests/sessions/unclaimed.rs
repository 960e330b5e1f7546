//! What comes in a persistent session before its application asks for it (§6.4).

use super::go_offline;
use crate::engine::tests::network::{Faults, Network, SECOND, message};
use crate::tables::subscriber::Subscriber;

/// A client that is subscribed at a node, with nobody listening yet.
fn subscribed(seed: u64, persistent: bool) -> (Network, usize, usize) {
    let (mut network, node) =
        Network::with_faults(seed, Faults { loss: 0.1, duplication: 0.1, jitter: 2_000 }, 1);
    let client = network.add_client_with(|config| {
        config.persistent = persistent;
        config.receive_bytes = 20_000;
    });
    network.subscribe_anew(client, node, "#", 2);
    let publisher = network.add_client();
    (network, client, publisher)
}

#[test]
fn it_waits_unacknowledged_for_a_listener_in_order() {
    for seed in 0..10 {
        let (mut network, client, publisher) = subscribed(seed, true);
        let large = vec![7; 5_000];
        for (topic, payload) in [("a", &b"1"[..]), ("b", b"2"), ("a", &large), ("a", b"3")] {
            network.publish(publisher, &message(topic, payload, 2));
        }
        network.run(SECOND);
        assert!(network.hosts[publisher].published.is_empty() && network.hosts[client].read.is_empty());
        network.listen(client, 1, "a", 2);
        network.run(SECOND);
        let lengths: Vec<usize> = network.hosts[client].read.iter().map(|read| read.payload.len()).collect();
        assert_eq!(lengths, [1, 5_000, 1], "seed {seed}");
        assert_eq!(network.hosts[publisher].published.len(), 3, "the other topic waits on");
        network.listen(client, 2, "#", 2);
        network.run_until_drained();
        assert_eq!(network.sequences(client, "b").len(), 1);
        network.assert_all_published(publisher, 4);
        assert_eq!(network.counter(client, "drop.unclaimed"), 0);
    }
}

#[test]
fn it_is_given_up_after_a_while_or_where_there_is_too_much_of_it() {
    let (mut network, client, publisher) = subscribed(1, true);
    network.run(SECOND);
    // An owner that does not keep to its credit.
    let (now, session) = (network.now, network.session(client, 0));
    network.hosts[0].engines[0].out.grant(now, session, 4_096, 8 << 20);
    let payload = vec![0; 1_000];
    network.publish_times(publisher, 30, &message("a", &payload, 1));
    network.run(SECOND);
    let too_much = network.counter(client, "drop.unclaimed");
    assert!((10..=12).contains(&too_much), "{too_much} of 30 were more than 20,000 bytes");
    assert_eq!(network.hosts[publisher].published.len() as u64, too_much);
    network.run(40 * SECOND);
    network.assert_all_published(publisher, 30);
    assert_eq!(network.counter(client, "drop.unclaimed"), 30);
    network.listen(client, 1, "#", 2);
    network.run(SECOND);
    assert!(network.hosts[client].read.is_empty());
}

#[test]
fn in_other_sessions_and_at_qos_0_nothing_waits() {
    for (persistent, qos) in [(false, 1), (true, 0)] {
        let (mut network, client, publisher) = subscribed(2, persistent);
        network.publish(publisher, &message("a", b"x", qos));
        network.run_until_drained();
        network.listen(client, 1, "#", 2);
        network.run(SECOND);
        assert!(network.hosts[client].read.is_empty());
        assert_eq!(network.counter(client, "drop.unclaimed"), 0);
    }
}

/// A client that takes one message without an answer, in a session that is kept, subscribed at a node with nobody listening.
fn subscribed_with_credit_for_one() -> (Network, usize, usize, usize) {
    let (mut network, node) = Network::with_node(3, 1);
    let client = network.add_client_with(|config| {
        config.persistent = true;
        config.receive_messages = 1;
    });
    network.connect(client, node);
    let session = network.open_session(client, node, true);
    network.hosts[node].engines[0].subscribe("#", "", Subscriber::new(session, 2)).expect("there is room");
    let publisher = network.add_client();
    (network, node, client, publisher)
}

#[test]
fn a_queue_that_nobody_wants_holds_up_the_rest_of_its_session_once() {
    let (mut network, _, client, publisher) = subscribed_with_credit_for_one();
    network.listen(client, 1, "b", 2);
    for topic in ["a", "a", "a", "b", "a", "b"] {
        network.publish(publisher, &message(topic, b"x", 2));
    }
    network.run(29 * SECOND);
    assert!(network.hosts[client].read.is_empty(), "a listener for the first may yet come");
    network.run(7 * SECOND);
    assert_eq!(network.sequences(client, "b"), [4, 6]);
    assert_eq!(network.counter(client, "drop.unclaimed"), 4);
    // What comes after that has no patience either.
    network.publish(publisher, &message("a", b"x", 2));
    network.publish(publisher, &message("b", b"x", 2));
    network.run(SECOND);
    assert_eq!(network.sequences(client, "b"), [4, 6, 8]);
    network.run_until_drained();
}

#[test]
fn over_another_link_it_waits_again() {
    let (mut network, node, client, publisher) = subscribed_with_credit_for_one();
    network.publish(publisher, &message("a", b"x", 1));
    network.run(36 * SECOND);
    assert_eq!(network.counter(client, "drop.unclaimed"), 1);
    go_offline(&mut network, node, client);
    network.publish(publisher, &message("a", b"y", 1));
    network.connect(client, node);
    network.run(20 * SECOND);
    network.listen(client, 1, "a", 1);
    network.run_until_drained();
    assert_eq!(network.sequences(client, "a"), [2]);
}

#[test]
fn when_a_listener_has_left_it_waits_for_another_again() {
    let (mut network, _, client, publisher) = subscribed_with_credit_for_one();
    network.listen(client, 1, "b", 1);
    network.publish(publisher, &message("a", b"x", 1));
    network.run(36 * SECOND);
    assert_eq!(network.counter(client, "drop.unclaimed"), 1);
    let now = network.now;
    network.hosts[client].engines[0].unlisten(now, 1, false);
    network.publish(publisher, &message("b", b"y", 1));
    network.publish(publisher, &message("b", b"z", 1));
    network.run(20 * SECOND);
    network.listen(client, 2, "b", 1);
    network.run_until_drained();
    assert_eq!(network.sequences(client, "b"), [2, 3]);
}

#[test]
fn what_may_be_another_members_waits_however_long_its_link_has_waited() {
    let (mut network, _, client, publisher) = subscribed_with_credit_for_one();
    network.publish(publisher, &message("a", b"x", 1));
    network.run(36 * SECOND);
    assert_eq!(network.counter(client, "drop.unclaimed"), 1);
    network.hosts[client].engines[0].set_leaving(true);
    network.publish(publisher, &message("a", b"y", 1));
    network.run(20 * SECOND);
    assert_eq!(network.counter(client, "drop.unclaimed"), 1, "it is not acknowledged yet");
    network.hosts[client].engines[0].set_leaving(false);
    network.run(16 * SECOND);
    network.publish(publisher, &message("a", b"z", 1));
    network.run(SECOND);
    assert_eq!(network.counter(client, "drop.unclaimed"), 3);
}
