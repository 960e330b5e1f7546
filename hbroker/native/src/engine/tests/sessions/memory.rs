//! The memory for what waits for sessions that are offline is shared: none takes what others have, or are to have (§7.8).

use rand::Rng;

use super::{OWN, add_persistent, check, dropped, go_offline, link_to, status, subscribe};
use crate::engine::tests::network::{Faults, MILLISECOND, Network, SECOND, message};
use crate::tables::subscriber::Subscriber;

/// Half of it is for those that are offline.
const MEMORY: usize = 4 << 20;
const HOST: [u8; 4] = [10, 7, 7, 7];

/// A client that is offline, of this host, and for which all of `filter` waits.
fn add_offline(network: &mut Network, node: usize, filter: &str, host: [u8; 4]) -> usize {
    let next = network.hosts.len();
    let client = network.add_client();
    network.hosts[client].address = (host, 1_000 + next as u16).into();
    network.listen(client, 1, filter, 1);
    network.connect(client, node);
    let session = network.open_bounded(client, node, true, OWN);
    subscribe(network, node, filter, "", Subscriber::new(session, 1));
    go_offline(network, node, client);
    client
}

fn connect_again(network: &mut Network, node: usize, client: usize) {
    if link_to(network, client, node).is_none() {
        network.connect(client, node);
    }
}

fn publish(network: &mut Network, publisher: usize, topic: &str, count: usize, size: usize) {
    let payload = vec![7; size];
    let before = network.hosts[publisher].published.len();
    for number in 1..=count {
        network.publish(publisher, &message(topic, &payload, 1));
        if number % 50 == 0 {
            network.run(5 * MILLISECOND);
        }
    }
    network.run(100 * MILLISECOND);
    network.assert_all_published(publisher, before + count);
}

#[test]
fn sessions_that_are_away_take_nothing_from_one_that_has_less() {
    let mut network = Network::new(21, Faults::default());
    let node = network.add_node_with("", 1, |config| config.queue_memory = MEMORY);
    // One has another host, the other shares that of those who fill the memory.
    let few: Vec<usize> =
        [HOST, [10, 1, 1, 1]].map(|host| add_offline(&mut network, node, "few", host)).into();
    let many: Vec<usize> = (0..30).map(|_| add_offline(&mut network, node, "many", HOST)).collect();
    let publisher = network.add_client();
    publish(&mut network, publisher, "few", 20, 100);
    publish(&mut network, publisher, "many", 2_000, 1_000);
    check(&network, node);
    assert!(
        network.counter(node, "offline_bytes") as usize <= MEMORY / 4 + 20_000,
        "one host has half at most"
    );
    publish(&mut network, publisher, "few", 20, 100);
    for &client in &few {
        let status = status(&network, node, client);
        assert_eq!((status.queued, dropped(&status, "queue_full")), (40, 0));
    }
    let equal = MEMORY / 2 / 61;
    for &client in &many {
        let status = status(&network, node, client);
        assert!(status.queued_bytes.abs_diff(equal) < 3_000, "{} bytes, not {equal}", status.queued_bytes);
        assert_eq!(status.queued + dropped(&status, "queue_full"), 2_000, "its account says what is gone");
    }
    for &client in &few {
        network.connect(client, node);
    }
    network.run(SECOND);
    for client in few {
        assert_eq!(network.hosts[client].read.len(), 40, "all that was acknowledged");
    }
    check(&network, node);
}

#[test]
fn who_comes_later_still_gets_something_of_other_hosts_memory() {
    let mut network = Network::new(22, Faults::default());
    let node = network.add_node_with("", 1, |config| config.queue_memory = MEMORY);
    let publisher = network.add_client();
    let mut had = 0;
    for (host, topic) in (0..).zip(["a", "b", "c", "d"]) {
        for _ in 0..8 {
            add_offline(&mut network, node, topic, [10, 2, 2, host]);
        }
        publish(&mut network, publisher, topic, 1_000, 1_000);
        check(&network, node);
        let has = network.counter(node, "offline_bytes") as usize;
        let (free, got) = (MEMORY / 2 - had, has - had);
        assert!(got <= free / 2 && got > free / 3, "{topic}: {got} bytes of {free}");
        had = has;
    }
}

#[test]
fn what_went_away_with_its_client_counts_until_that_is_back_or_ends() {
    let mut network = Network::new(23, Faults { loss: 0.02, duplication: 0.02, jitter: 500 });
    for workers in [1, 2] {
        let node = network.add_node_with("", workers, |config| config.queue_memory = MEMORY);
        let clients: Vec<usize> =
            (0..10).map(|_| add_persistent(&mut network, node, "a/#", 1, OWN)).collect();
        let publisher = network.add_client();
        for round in 0..60_u32 {
            let client = clients[network.rng.random_range(0..clients.len())];
            match network.rng.random_range(0..4) {
                0 => go_offline(&mut network, node, client),
                1 => network.hosts[client].reads ^= true,
                _ => connect_again(&mut network, node, client),
            }
            for _ in 0..20 {
                network.publish(publisher, &message("a/b", &[round as u8; 2_000], 1));
            }
            network.run(300 * MILLISECOND);
            check(&network, node);
        }
        for &client in &clients {
            network.hosts[client].reads = true;
            connect_again(&mut network, node, client);
        }
        network.run_until_drained();
        check(&network, node);
        assert_eq!(network.counter(node, "offline_bytes"), 0);
        network.owners.clear();
    }
}
