//! A node of several workers: publishers and subscribers on different ones.

use crate::engine::tests::network::{Faults, MILLISECOND, Network, message, value};

#[test]
fn messages_cross_between_workers_at_every_qos() {
    for (seed, workers) in [(1, 2), (2, 3), (3, 4)] {
        for qos in 0..=2 {
            let (mut network, node) =
                Network::with_faults(seed, Faults { loss: 0.05, duplication: 0.05, jitter: 1_000 }, workers);
            let subscribers: Vec<usize> = (0..6).map(|_| network.add_subscriber(node, "a/#", 2)).collect();
            let publishers: Vec<usize> = (0..3).map(|_| network.add_client()).collect();
            for _ in 0..40 {
                for &publisher in &publishers {
                    network.publish(publisher, &message("a/b", b"x", qos));
                }
                network.run(MILLISECOND);
            }
            network.run_until_drained();
            for &publisher in publishers.iter().filter(|_| qos > 0) {
                network.assert_all_published(publisher, 40);
                let id = network.hosts[publisher].publisher;
                for &subscriber in &subscribers {
                    let read = network.hosts[subscriber].read.iter().filter(|read| read.publisher == id);
                    let sequences: Vec<u64> = read.map(|read| read.sequence).collect();
                    assert_eq!(sequences, (1..=40).collect::<Vec<_>>(), "{workers} workers, QoS {qos}");
                }
            }
            let busy = network.hosts[node].engines.iter().filter(|engine| value(engine, "links") > 0).count();
            assert_eq!(busy, usize::from(workers));
        }
    }
}

#[test]
fn a_link_that_ends_takes_its_subscriptions_from_every_worker() {
    let (mut network, node) = Network::with_node(4, 3);
    let subscribers: Vec<usize> = (0..6).map(|_| network.add_subscriber(node, "a/#", 1)).collect();
    for &subscriber in &subscribers[..5] {
        network.close(node, subscriber);
    }
    network.run(MILLISECOND);
    for engine in &mut network.hosts[node].engines {
        assert_eq!(engine.subscriptions(), 1);
    }
    let publisher = network.add_client();
    network.publish(publisher, &message("a/b", b"x", 1));
    network.run_until_drained();
    network.assert_all_published(publisher, 1);
    assert_eq!(network.hosts[subscribers[5]].read.len(), 1);
}

#[test]
fn a_session_is_found_whichever_worker_gets_its_datagrams() {
    let (mut network, node) = Network::with_node(5, 3);
    // Links that a node opens, and those that it adopts, live where they were opened, not where the kernel sends their datagrams.
    let other = network.add_node("elsewhere", 3);
    // Any control packet does.
    let leave = [0x9a, 0x01, 0x00].to_vec();
    for child in 0..3 {
        let parent = network.add_node("x", 3);
        let (address, to) = (network.hosts[node].address, network.hosts[parent].address);
        let token = network.hosts[parent].engines[0].token_for(network.now, address);
        let now = network.now;
        let link = network.hosts[node].engines[0].connect(now, to, token).expect("there are few links");
        assert!(network.hosts[node].engines[0].send(link, leave.clone()));
        network.run(50 * MILLISECOND);
        let session = network.hosts[node].session;
        assert!(network.hosts[parent].links.contains_key(&session), "parent {child}");
        assert!(network.hosts[node].engines[0].is_drained());
    }
    let client = network.add_client();
    let (session, address) = (network.hosts[client].session, network.hosts[client].address);
    for owner in [node, other] {
        let now = network.now;
        let link =
            network.hosts[owner].engines[0].adopt(now, session, address, 0).expect("there are few links");
        assert!(network.hosts[owner].engines[0].send(link, leave.clone()));
    }
    network.run_until_drained();
    assert!(
        network.hosts[node].links.contains_key(&session) && network.hosts[other].links.contains_key(&session)
    );
}
