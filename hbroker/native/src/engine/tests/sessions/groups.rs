//! A group's members that stall, go away or end: what was theirs goes to another (§6.5).

use super::{check, go_offline, publish_many, status, subscribe};
use crate::engine::tests::network::{Faults, MILLISECOND, Network, SECOND};
use crate::tables::subscriber::Subscriber;

#[test]
fn each_message_for_a_group_goes_to_one_member_and_to_another_when_that_one_ends() {
    for (seed, workers) in [(1, 1), (2, 3), (3, 2)] {
        let (mut network, node) =
            Network::with_faults(seed, Faults { loss: 0.05, duplication: 0.05, jitter: 1_000 }, workers);
        let members: Vec<usize> = (0..4).map(|_| network.add_member(node, "a/#", "g", 1)).collect();
        let publisher = network.add_client();
        publish_many(&mut network, publisher, 100, 1);
        network.run_until_drained();
        let read: usize = members.iter().map(|&member| network.hosts[member].read.len()).sum();
        assert_eq!(read, 100, "one copy each");
        assert!(members.iter().all(|&member| network.hosts[member].read.len() > 5), "everyone gets some");
        for &member in &members[..2] {
            network.hosts[member].reads = false;
        }
        publish_many(&mut network, publisher, 100, 1);
        network.run(100 * MILLISECOND);
        for &member in &members[..2] {
            network.close(node, member);
        }
        network.run_until_drained();
        network.assert_all_published(publisher, 200);
        let mut had: Vec<u64> = members[2..]
            .iter()
            .flat_map(|&member| network.sequences(member, "a/b"))
            .filter(|&s| s > 100)
            .collect();
        had.sort_unstable();
        assert_eq!(had, (101..=200).collect::<Vec<_>>(), "those who are left had all of it, once");
        assert!(network.counter(node, "drop.regrouped") > 10);
        check(&network, node);
    }
}

#[test]
fn a_member_that_is_away_or_stalled_gets_nothing_while_others_are_there() {
    let (mut network, node) = Network::with_node(6, 2);
    let offline = network.add_client();
    let stalled = network.add_client();
    let ready = network.add_client();
    for (client, persistent) in [(offline, true), (stalled, false), (ready, true)] {
        network.listen_in(client, 1, ("g", "a/#"), 1);
        network.connect(client, node);
        let session = network.open_session(client, node, persistent);
        subscribe(&mut network, node, "a/#", "g", Subscriber::new(session, 1));
    }
    go_offline(&mut network, node, offline);
    network.hosts[stalled].reads = false;
    let publisher = network.add_client();
    publish_many(&mut network, publisher, 20, 1);
    network.run(3 * SECOND);
    let before = network.hosts[ready].read.len();
    publish_many(&mut network, publisher, 50, 1);
    network.run(SECOND);
    assert_eq!(network.hosts[ready].read.len() - before, 50);
    assert_eq!(status(&network, node, offline).session_counters.accepted, 0);
    go_offline(&mut network, node, ready);
    network.close(node, stalled);
    network.run(SECOND);
    publish_many(&mut network, publisher, 50, 1);
    network.run(SECOND);
    network.assert_all_published(publisher, 120);
    let waiting = [offline, ready].map(|client| status(&network, node, client).queued);
    assert!(waiting.iter().all(|&count| count > 10), "those who are offline share what comes: {waiting:?}");
    check(&network, node);
}
