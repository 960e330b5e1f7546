//! A node with a store: what was acknowledged for sessions that are offline survives a loss of power.

use std::collections::BTreeSet;

use rand::Rng;

use super::network::{Faults, MILLISECOND, Network, SECOND, message};
use super::sessions::{OWN, add_persistent, check, firsts, go_offline, status, subscribe};
use crate::engine::metrics::counters::Drop;
use crate::schema::reason;
use crate::tables::match_set::Subscriber;

/// The messages of a topic that their publisher has a PUBACK for.
fn acknowledged(network: &Network, publisher: usize) -> Vec<u64> {
    let published = network.hosts[publisher].published.iter();
    published.filter(|(_, why)| **why == reason::SUCCESS).map(|(sequence, _)| *sequence).collect()
}

/// The node's host loses power. Its next run has these sessions, offline, with what was stored for them.
fn lose_power(network: &mut Network, node: usize, sessions: &[usize]) {
    network.lose_power(node);
    for &client in sessions {
        let session = network.open_bounded(client, node, true, OWN);
        subscribe(network, node, "a/#", "", Subscriber::new(session, 2));
        let id = network.hosts[client].session;
        network.restore_queue(node, id);
    }
}

/// A client begins a new link. One that it had with an earlier run of the node may end it, so it may have to
/// begin again.
fn come_back(network: &mut Network, node: usize, client: usize) {
    for _ in 0..5 {
        go_offline(network, node, client);
        network.connect(client, node);
        network.run(100 * MILLISECOND);
        if status(network, node, client).is_connected {
            return;
        }
    }
    panic!("client {client} does not come back");
}

#[test]
fn a_publisher_has_its_puback_once_the_message_is_stored() {
    let (mut network, node) = Network::with_node(1, 1);
    network.add_store(node);
    let subscriber = add_persistent(&mut network, node, "a/#", 1, OWN);
    let publisher = network.add_client();
    network.publish(publisher, &message("a/b", b"x", 1));
    network.run(SECOND);
    let disk = network.hosts[node].store.as_ref().unwrap().disk.clone();
    assert_eq!((acknowledged(&network, publisher).len(), disk.work().0), (1, 1), "connected: no disk");
    go_offline(&mut network, node, subscriber);
    disk.set_space(Some(0));
    network.publish(publisher, &message("a/b", b"x", 1));
    network.run(SECOND);
    assert_eq!(acknowledged(&network, publisher).len(), 1, "it is not stored");
    disk.set_space(None);
    network.run(SECOND);
    assert_eq!(acknowledged(&network, publisher).len(), 2);
    check(&network, node);
    network.connect(subscriber, node);
    network.run_until_drained();
    network.run(SECOND);
    assert_eq!(network.sequences(subscriber, "a/b"), [1, 2]);
    let store = network.hosts[node].store.as_ref().unwrap();
    assert_eq!(store.store.states().map(|state| state.live).sum::<u64>(), 0, "it is settled");
}

#[test]
fn what_was_acknowledged_survives_a_loss_of_power() {
    for seed in 0..12 {
        for qos in [1, 2] {
            let faults = Faults { loss: 0.05, duplication: 0.05, jitter: 2_000 };
            let mut network = Network::new(seed, faults);
            let node = network.add_node("", 1 + (seed % 3) as u8);
            network.add_store(node);
            let clients: Vec<usize> =
                (0..3).map(|_| add_persistent(&mut network, node, "a/#", 2, OWN)).collect();
            let publisher = network.add_client();
            for _ in 0..12 {
                let client = clients[network.rng.random_range(0..3)];
                match network.rng.random_range(0..4) {
                    0 => go_offline(&mut network, node, client),
                    1 => come_back(&mut network, node, client),
                    2 => lose_power(&mut network, node, &clients),
                    _ => {}
                }
                let together = network.rng.random_range(1..8);
                for number in 0..network.rng.random_range(0..30) {
                    network.publish(publisher, &message("a/b", b"payload", qos));
                    if number % together == 0 {
                        let time = network.rng.random_range(0..3 * MILLISECOND);
                        network.run(time);
                    }
                }
                check(&network, node);
            }
            network.run(20 * SECOND);
            lose_power(&mut network, node, &clients);
            for &client in &clients {
                come_back(&mut network, node, client);
            }
            network.run_until_drained();
            network.run(SECOND);
            check(&network, node);
            let acknowledged = acknowledged(&network, publisher);
            for &client in &clients {
                let read = network.sequences(client, "a/b");
                let known: BTreeSet<u64> = read.iter().copied().collect();
                let lost: Vec<&u64> =
                    acknowledged.iter().filter(|sequence| !known.contains(sequence)).collect();
                assert!(lost.is_empty(), "seed {seed}, QoS {qos}, client {client}: {lost:?} of {read:?}");
                assert!(qos == 1 || firsts(&read) == read, "seed {seed}: QoS 2 came twice: {read:?}");
                assert_eq!(status(&network, node, client).queued, 0);
            }
            let store = network.hosts[node].store.as_ref().unwrap();
            assert_eq!(store.store.states().map(|state| state.live).sum::<u64>(), 0, "seed {seed}");
        }
    }
}

#[test]
fn a_stored_message_of_a_group_is_stored_for_the_member_that_gets_it_next() {
    let (mut network, node) = Network::with_node(1, 1);
    network.add_store(node);
    let members: Vec<usize> = (0..2).map(|_| network.add_member(node, "a/#", "g", 1)).collect();
    let publisher = network.add_client();
    let [offline, next] = [members[0], members[1]];
    for member in [offline, next] {
        network.open_session(member, node, true);
    }
    go_offline(&mut network, node, next);
    go_offline(&mut network, node, offline);
    (0..20).for_each(|_| _ = network.publish(publisher, &message("a/b", b"x", 1)));
    network.run(SECOND);
    assert_eq!(acknowledged(&network, publisher).len(), 20);
    network.hosts[next].reads = false;
    network.connect(next, node);
    let (now, key) = (network.now, network.session(offline, node));
    network.hosts[node].engines[0].end_session(now, key, Drop::SessionEnded);
    network.run(SECOND);
    network.lose_power(node);
    network.open_session(next, node, true);
    network.restore_queue(node, network.hosts[next].session);
    assert_eq!(status(&network, node, next).queued, 20);
}

#[test]
fn a_restart_keeps_what_is_stored_beyond_the_bounds_of_a_queue() {
    let (mut network, node) = Network::with_node(1, 1);
    network.add_store(node);
    let subscriber = add_persistent(&mut network, node, "a/#", 1, OWN);
    network.hosts[subscriber].reads = false;
    let publisher = network.add_client();
    for _ in 0..30 {
        (0..400).for_each(|_| _ = network.publish(publisher, &message("a/b", b"x", 1)));
        network.run(SECOND / 4);
    }
    go_offline(&mut network, node, subscriber);
    network.run(SECOND);
    let before = status(&network, node, subscriber).queued;
    assert!(before > 10_000, "{before} are more than a queue may have");
    lose_power(&mut network, node, &[subscriber]);
    assert_eq!(status(&network, node, subscriber).queued, before);
}
