//! The memory for what waits for connected sessions, or is in flight to them, is shared by hosts, too: those of one host hold nobody up who publishes to
//! another's (§7.7, §7.8).

use super::super::flow::ignore_credit;
use super::super::network::{Faults, MILLISECOND, Network, SECOND, message};
use super::{check, dropped, link_to, status};
use crate::engine::session::Session;
use crate::schema::reason;
use crate::wire::{self, PublishOut};

const HOST: [u8; 4] = [10, 7, 7, 7];
const OTHER: [u8; 4] = [10, 1, 1, 1];

/// A connected client of this host that takes so many messages at once, and reads when it is told to.
fn add_slow(network: &mut Network, node: usize, topic: &str, host: [u8; 4], messages: u32) -> usize {
    let client = network.hosts.len();
    network.add_client();
    network.hosts[client].address = (host, 1_000 + client as u16).into();
    network.hosts[client].engines[0].listen(network.now, 1, topic, 1, false);
    network.connect(client, node);
    network.subscribe(client, node, topic, 1, false);
    let mut field = Vec::new();
    wire::put_credit_field(&mut field, messages, 64 << 20, false);
    let link = link_to(network, client, node).expect("it is connected");
    assert!(network.hosts[client].engines[0].out.queue_control(link, field.into()));
    network.hosts[client].reads = false;
    client
}

fn read_some(network: &mut Network, client: usize, count: usize) -> usize {
    let now = network.now;
    network.hosts[client].engines[0].take_messages(now, count).len()
}

/// What is held for the connected sessions of a host at the node's workers.
fn held_of(network: &Network, node: usize, host: [u8; 4]) -> Vec<usize> {
    let is_of_it = |session: &&Session| {
        session.is_ready() && session.host() == Some(std::net::IpAddr::from(host).into())
    };
    let held = network.hosts[node]
        .engines
        .iter()
        .map(|engine| engine.out.sessions.iter().filter(is_of_it).map(Session::held_bytes).sum());
    held.collect()
}

/// Eight sessions of one host for each worker go on answering, ten messages a second each, and are published to without a bound. What becomes of one of another
/// host, that answers a hundred a second, and of who publishes to it?
fn flood_one_host(workers: u8, taken_at_once: u32, keeps_to_its_credit: bool) {
    const EACH: usize = 1 << 20;
    let mut network = Network::new(31, Faults::default());
    let node =
        network.add_node_with("", workers, |config| config.queue_memory = 2 * EACH * usize::from(workers));
    let slow: Vec<(usize, String)> = (0..8 * usize::from(workers))
        .map(|number| {
            let topic = format!("slow/{number}");
            (add_slow(&mut network, node, &topic, HOST, taken_at_once), topic)
        })
        .collect();
    let ordinary: Vec<usize> = (0..3).map(|_| add_slow(&mut network, node, "ordinary", OTHER, 16)).collect();
    let publishers: Vec<usize> = slow.iter().map(|_| network.add_client()).collect();
    let other = network.add_client();
    let payload = [7; 1_000];
    // Whoever does not keep to it sends again and again what is refused.
    let open_at_once = if keeps_to_its_credit { 1_000 } else { 50 };
    let mut sent = vec![0; publishers.len()];
    let (mut open, mut longest, mut got, mut most) = (Vec::new(), 0, vec![0; ordinary.len()], 0);
    for round in 0..200 {
        for ((&publisher, sent), (_, topic)) in publishers.iter().zip(&mut sent).zip(&slow) {
            if !keeps_to_its_credit {
                ignore_credit(&mut network, publisher);
            }
            let answered = network.hosts[publisher].published.len();
            while *sent < answered + open_at_once && *sent < 20 * (round + 1) {
                network.publish(publisher, &PublishOut { ack_queued: true, ..message(topic, &payload, 1) });
                *sent += 1;
            }
        }
        open.push((network.publish(other, &message("ordinary", b"x", 1)), network.now));
        network.run(10 * MILLISECOND);
        for (client, got) in ordinary.iter().zip(&mut got) {
            *got += read_some(&mut network, *client, 1);
        }
        if round % 10 == 0 {
            slow.iter().for_each(|&(client, _)| _ = read_some(&mut network, client, 1));
        }
        open.retain(|(sent, since)| {
            longest = longest.max(network.now - since);
            !network.hosts[other].published.contains_key(sent)
        });
        most = most.max(held_of(&network, node, HOST).into_iter().max().unwrap_or(0));
        check(&network, node);
    }
    let case = format!("{workers} workers, {taken_at_once} at once, {keeps_to_its_credit}");
    assert!(longest <= 300 * MILLISECOND, "{case}: it waited for {} ms", longest / MILLISECOND);
    assert!(got.iter().all(|&got| got >= 190), "{case}: {got:?} of 200 came");
    assert!(
        most > EACH / 4 && most <= EACH / 2 + 200_000,
        "{case}: one host has half at most, and had {most}"
    );
    assert_eq!(network.counter(node, "drop.queue_full"), 0, "{case}");
    for &(client, _) in &slow {
        let told = status(&network, node, client);
        assert!(!told.is_stalled && dropped(&told, "queue_full") == 0, "{case}: {told:?}");
    }
    slow.iter()
        .map(|&(client, _)| client)
        .chain(ordinary)
        .for_each(|client| network.hosts[client].reads = true);
    network.run_until_drained();
    for (&publisher, sent) in publishers.iter().zip(sent) {
        network.assert_all_published(publisher, sent);
    }
    assert!(network.hosts[other].published.values().all(|&why| why == reason::SUCCESS));
    network.run(SECOND);
    assert!(held_of(&network, node, HOST).into_iter().all(|held| held == 0));
    check(&network, node);
}

#[test]
fn connected_sessions_of_one_host_hold_nobody_up_who_publishes_to_another() {
    for (workers, taken_at_once, keeps_to_its_credit) in [
        (1, 16, true),
        (1, 16, false),
        (1, 65_536, true),
        (1, 65_536, false),
        (3, 16, true),
        (3, 65_536, false),
    ] {
        flood_one_host(workers, taken_at_once, keeps_to_its_credit);
    }
}
