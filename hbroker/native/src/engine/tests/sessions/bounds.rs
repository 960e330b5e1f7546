//! What waits for a session, and what is on its way to it, is bounded (§6.4, §7.8).

use rand::Rng;

use super::{check, dropped, go_offline, grant, publish_many, status, subscribe};
use crate::engine::sessions::bounds::Bounds;
use crate::engine::tests::network::{Faults, MILLISECOND, Network, SECOND, message};
use crate::schema::reason;
use crate::tables::subscriber::{Overflow, Subscriber};

#[test]
fn who_acknowledges_datagrams_and_never_a_message_costs_what_its_bounds_say() {
    let (mut network, node) = Network::with_node(2, 1);
    let bounds = Bounds { messages: 100, bytes: 1 << 20 };
    let liar = network.add_client();
    network.connect(liar, node);
    let session = network.open_bounded(liar, node, false, bounds);
    subscribe(&mut network, node, "a/#", "", Subscriber::new(session, 1));
    network.listen(liar, 1, "a/#", 1);
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
        let (mut network, node) = Network::with_node(3, 2);
        let client = network.add_client();
        network.listen(client, 1, "a/#", 1);
        network.connect(client, node);
        let bounds = Bounds { messages: 10, bytes: 0 };
        let session = network.open_bounded(client, node, true, bounds);
        subscribe(&mut network, node, "a/#", "", Subscriber { overflow, ..Subscriber::new(session, 1) });
        go_offline(&mut network, node, client);
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
fn no_more_is_given_to_a_link_than_its_peer_grants() {
    let (mut network, node) =
        Network::with_faults(5, Faults { loss: 0.05, duplication: 0.0, jitter: 1_000 }, 1);
    let subscriber = network.add_subscriber(node, "a/#", 1);
    let publisher = network.add_client();
    let mut granted = 4_096;
    for round in 0..60 {
        if round % 6 == 0 {
            granted = network.rng.random_range(0..20);
            grant(&mut network, subscriber, node, granted, 1 << 20);
            network.hosts[subscriber].reads = true;
            network.run(200 * MILLISECOND);
        }
        network.hosts[subscriber].reads = round % 6 > 3;
        network.publish_times(publisher, 5, &message("a/b", b"x", 1));
        network.run(50 * MILLISECOND);
        let session = network.session(subscriber, node);
        let session = network.hosts[node].engines[0].out.sessions.get(session).expect("it is there");
        assert!(session.credit_used().0 <= granted, "{} of {granted}", session.credit_used().0);
        check(&network, node);
    }
    grant(&mut network, subscriber, node, 10, 1 << 20);
    network.read_all(subscriber);
    network.assert_all_published(publisher, 300);
    assert_eq!(network.sequences(subscriber, "a/b"), (1..=300).collect::<Vec<_>>());
}

#[test]
fn publishers_are_held_back_while_too_much_waits_and_let_go_then() {
    let (mut network, node) = Network::with_node(7, 2);
    for engine in &mut network.hosts[node].engines {
        engine.config.queue_memory = 400_000;
    }
    let slow = network.add_idle_subscriber(node, "a/#", 1);
    let publishers: Vec<usize> = (0..4).map(|_| network.add_client()).collect();
    let held = |network: &Network| -> Vec<bool> {
        network.hosts[node].engines.iter().map(|engine| engine.throttles_all()).collect()
    };
    for &publisher in &publishers {
        (0..60).for_each(|_| _ = network.publish(publisher, &message("a/b", &[0; 1_000], 1)));
    }
    network.run(SECOND);
    assert_eq!(held(&network), [true, true], "both workers hold their publishers back");
    network.run(2 * SECOND);
    assert_eq!(held(&network), [false, false], "who is stalled holds nobody back");
    network.read_all(slow);
    for &publisher in &publishers {
        network.assert_all_published(publisher, 60);
    }
}

#[test]
fn what_a_peer_grants_before_its_session_is_made_holds_for_it() {
    let (mut network, node) = Network::with_node(9, 1);
    let subscriber = network.add_client_with(|config| config.receive_messages = 3);
    network.connect(subscriber, node);
    network.run(100 * MILLISECOND);
    for _ in 0..2 {
        network.open_session(subscriber, node, true);
        let session = network.session(subscriber, node);
        subscribe(&mut network, node, "a/#", "", Subscriber::new(session, 1));
        let publisher = network.add_client();
        network.hosts[subscriber].reads = false;
        network.listen(subscriber, 1, "a/#", 1);
        publish_many(&mut network, publisher, 10, 1);
        let session = network.session(subscriber, node);
        let session = network.hosts[node].engines[0].out.sessions.get(session).expect("it is there");
        assert_eq!(session.credit_used().0, 3);
        network.read_all(subscriber);
        go_offline(&mut network, node, subscriber);
        network.connect(subscriber, node);
        network.run(100 * MILLISECOND);
    }
}
