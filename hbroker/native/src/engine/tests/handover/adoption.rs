//! A node's next run opens the links of the sessions that it was handed (§5.4), while their clients still speak to the run before.

use crate::link_id::LinkId;

use crate::engine::tests::network::{Faults, MILLISECOND, Network, message};

/// A subscriber of a node that begins anew, was handed the subscriber's session, and opens a link for it.
fn adopted(seed: u64, faults: Faults) -> (Network, usize, usize) {
    let (mut network, node) = Network::with_faults(seed, faults, 1);
    let subscriber = network.add_subscriber(node, "a", 1);
    network.run_until_drained();
    network.restart(node);
    network.open_session(subscriber, node, true);
    network.subscribe(subscriber, node, "a", 1, false);
    (network, node, subscriber)
}

fn adopt(network: &mut Network, node: usize, client: usize) -> LinkId {
    let (now, session, address) = (network.now, network.hosts[client].session, network.hosts[client].address);
    network.hosts[node].engines[0].adopt(now, session, address, 0).expect("there are few links")
}

#[test]
fn what_a_client_says_to_the_run_before_begins_no_link_of_the_next() {
    for seed in 1..30 {
        let faults = Faults { loss: 0.3, jitter: 5 * MILLISECOND, ..Faults::default() };
        let (mut network, node, subscriber) = adopted(seed, faults);
        let publisher = network.add_client();
        // The two pass each other.
        network.publish(subscriber, &message("b", b"x", 1));
        adopt(&mut network, node, subscriber);
        for _ in 0..20 {
            network.publish(publisher, &message("a", b"x", 1));
            network.run(MILLISECOND);
        }
        network.run_until_drained();
        network.assert_all_published(publisher, 20);
        let mut read = network.sequences(subscriber, "a");
        read.sort_unstable();
        read.dedup();
        assert_eq!(read, (1..=20).collect::<Vec<_>>(), "seed {seed}");
        let downs = network.hosts[subscriber].downs;
        assert!(downs <= 3, "seed {seed}: {downs} links ended");
    }
}

#[test]
fn a_client_answers_the_next_run_at_its_first_datagram() {
    let (mut network, node, subscriber) = adopted(1, Faults::default());
    let publisher = network.add_client();
    let link = adopt(&mut network, node, subscriber);
    assert!(network.hosts[node].engines[0].is_half_open(link));
    network.publish(publisher, &message("a", b"x", 1));
    network.run(100 * MILLISECOND);
    assert!(!network.hosts[node].engines[0].is_half_open(link));
    network.assert_all_published(publisher, 1);
    assert_eq!(network.sequences(subscriber, "a"), [1]);
}
