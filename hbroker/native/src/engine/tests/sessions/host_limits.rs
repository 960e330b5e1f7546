//! How many links and sessions a node takes, in all and of one host, whether their clients are there or offline (§9).

use rand::Rng;

use super::{OWN, check, go_offline, link_to};
use crate::engine::tests::network::{Faults, MILLISECOND, Network, SECOND, message};
use crate::link_id::LinkId;

/// One without content.
const SUBSCRIBE: [u8; 2] = [0x72, 0];
const MOST: usize = 8;
const OF_HOST: usize = 3;

fn add_node(network: &mut Network, workers: u8) -> usize {
    network.add_node_with("", workers, |config| {
        (config.max_links, config.max_links_of_host) = (MOST, OF_HOST);
    })
}

/// A client of a host.
fn add_client(network: &mut Network, host: u8) -> usize {
    let client = network.add_client();
    network.hosts[client].address.set_ip([10, 3, 3, host].into());
    client
}

/// A client opens a link, if the node lets it.
fn try_link(network: &mut Network, client: usize, node: usize) -> Option<LinkId> {
    let (address, to) = (network.hosts[client].address, network.hosts[node].address);
    let token = network.hosts[node].engines[0].token_for(network.now, address);
    let link = network.hosts[client].engines[0].connect(network.now, to, token).expect("it has no other");
    network.hosts[client].engines[0].send(link, SUBSCRIBE.to_vec());
    network.run(50 * MILLISECOND);
    let session = network.hosts[client].session;
    let known = network.hosts[node].engines.iter().find_map(|engine| engine.out.links.by_session(session));
    if known.is_none()
        && let Some(link) = link_to(network, client, node)
    {
        assert!(network.faults.loss > 0.0, "it is told so");
        network.hosts[client].engines[0].close(network.now, link);
    }
    known
}

#[test]
fn a_host_has_so_many_sessions_whether_its_clients_are_there_or_away() {
    for workers in [1, 3] {
        let mut network = Network::new(31, Faults::default());
        let node = add_node(&mut network, workers);
        let clients: Vec<usize> = (0..OF_HOST).map(|_| add_client(&mut network, 1)).collect();
        for &client in &clients {
            assert!(try_link(&mut network, client, node).is_some());
            network.open_bounded(client, node, true, OWN);
            go_offline(&mut network, node, client);
            check(&network, node);
        }
        let another = add_client(&mut network, 1);
        assert!(try_link(&mut network, another, node).is_none(), "those that are offline count");
        assert!(network.counter(node, "drop.too_many_of_host") > 0);
        let elsewhere = add_client(&mut network, 2);
        assert!(try_link(&mut network, elsewhere, node).is_some(), "another host has places of its own");
        assert!(try_link(&mut network, clients[0], node).is_some(), "one that is known comes back");
        check(&network, node);
        // It ends, and makes a place free.
        let (now, key) = (network.now, network.session(clients[0], node));
        for engine in network.hosts[node].engines.iter_mut().filter(|engine| engine.has_session(key)) {
            engine.end_session(now, key, crate::engine::metrics::counters::Drop::SessionEnded);
        }
        go_offline(&mut network, node, clients[0]);
        check(&network, node);
        assert!(try_link(&mut network, another, node).is_some());
        check(&network, node);
    }
}

#[test]
fn who_finds_no_place_is_told_so_and_keeps_what_it_publishes() {
    for workers in [1, 3] {
        let mut network = Network::new(33, Faults::default());
        let node = add_node(&mut network, workers);
        let clients: Vec<usize> = (0..OF_HOST).map(|_| add_client(&mut network, 1)).collect();
        for &client in &clients {
            assert!(try_link(&mut network, client, node).is_some());
        }
        let late = add_client(&mut network, 1);
        assert!(try_link(&mut network, late, node).is_none());
        assert_eq!((network.hosts[late].downs, network.hosts[late].refused), (1, 1));
        assert_eq!(network.counter(node, "drop.too_many_of_host"), 1, "it asks once for each link");
        network.publish(late, &message("a", b"x", 1));
        network.run(100 * MILLISECOND);
        assert!(network.hosts[late].refused > 1);
        assert!(network.hosts[late].published.is_empty());
        go_offline(&mut network, node, clients[0]);
        network.run_until_drained();
        assert_eq!(network.hosts[late].published.len(), 1);
        check(&network, node);
    }
}

#[test]
fn all_hosts_together_have_so_many_and_a_client_moves_only_where_there_is_a_place() {
    let mut network = Network::new(32, Faults::default());
    let node = add_node(&mut network, 2);
    let mut inside = Vec::new();
    for host in [1, 1, 1, 2, 2, 3, 3, 4] {
        let client = add_client(&mut network, host);
        assert!(try_link(&mut network, client, node).is_some());
        inside.push(client);
    }
    check(&network, node);
    let late = add_client(&mut network, 5);
    assert!(try_link(&mut network, late, node).is_none());
    assert!(network.counter(node, "drop.too_many_links") > 0);
    // A session that a handover brings, and that is offline, needs a place, too.
    let now = network.now;
    let opened = network.hosts[node].engines[0].open_session(now, 77, true, OWN, 0);
    assert_eq!(opened, crate::engine::owner::subscriptions::Opened::Refused);
    for (client, to, moves) in [(3, 1, false), (4, 3, true), (5, 3, true), (7, 3, false)] {
        let client = inside[client];
        let before = network.counter(node, "drop.too_many_of_host");
        network.hosts[client].address.set_ip([10, 3, 3, to].into());
        let link = link_to(&network, client, node).expect("it is open");
        network.hosts[client].engines[0].send(link, SUBSCRIBE.to_vec());
        network.run(SECOND);
        let known = network.hosts[node].engines.iter().find_map(|engine| {
            let link = engine.out.links.by_session(network.hosts[client].session)?;
            engine.peer_of(link)
        });
        let has_moved = known.map(|known| known.ip()) == Some([10, 3, 3, to].into());
        assert_eq!(has_moved, moves, "{client} to {to}");
        assert_eq!(network.counter(node, "drop.too_many_of_host") > before, !moves);
        assert_eq!(network.hosts[client].refused, usize::from(!moves), "it is told so");
        assert!(known.is_some(), "it has its place still");
        check(&network, node);
    }
    network.hosts[inside[3]].address.set_ip([10, 3, 3, 2].into());
    assert!(try_link(&mut network, inside[3], node).is_some(), "it goes on where it was before");
    check(&network, node);
}

#[test]
fn places_are_given_back_whatever_becomes_of_links_and_sessions() {
    for seed in 0..6 {
        let mut network = Network::new(seed, Faults { loss: 0.05, duplication: 0.05, jitter: 1_000 });
        let node = add_node(&mut network, 1 + (seed % 3) as u8);
        let clients: Vec<usize> = (0..12).map(|index| add_client(&mut network, index % 4)).collect();
        for _ in 0..100 {
            let client = clients[network.rng.random_range(0..clients.len())];
            let is_linked = link_to(&network, client, node).is_some();
            match network.rng.random_range(0..6) {
                0 => go_offline(&mut network, node, client),
                1 | 2 if !is_linked => _ = try_link(&mut network, client, node),
                3 if is_linked => {
                    let persistent = network.rng.random_bool(0.6);
                    let (now, session) = (network.now, network.hosts[client].session);
                    for engine in &mut network.hosts[node].engines {
                        if engine.out.links.by_session(session).is_some() {
                            engine.open_session(now, session, persistent, OWN, 0);
                        }
                    }
                }
                4 => {
                    let (now, session) = (network.now, network.hosts[client].session);
                    for engine in &mut network.hosts[node].engines {
                        if let Some(key) = engine.session_key(session) {
                            engine.end_session(
                                now,
                                key,
                                crate::engine::metrics::counters::Drop::SessionEnded,
                            );
                        }
                    }
                }
                _ => network.run(100 * MILLISECOND),
            }
            check(&network, node);
        }
    }
}
