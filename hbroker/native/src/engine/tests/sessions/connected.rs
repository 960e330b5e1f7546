//! The memory for what waits for connected sessions, or is in flight to them, is shared by hosts, too: those of one host hold nobody up who publishes to
//! another's (§7.7, §7.8).

use super::{OWN, check, dropped, go_offline, grant, link_to, status, subscribe};
use crate::engine::metrics::counters::Drop;
use crate::engine::sessions::session::Session;
use crate::engine::tests::flow::{Flood, assert_let_go, ignore_credit, read, read_ids};
use crate::engine::tests::handover::{export, import};
use crate::engine::tests::network::{Faults, GRANT, MILLISECOND, Network, SECOND, message, request};
use crate::schema::reason;
use crate::tables::jurisdiction::Grant;
use crate::tables::subscriber::Subscriber;
use crate::wire::{self, PublishOut};

/// What each worker has for connected sessions.
const EACH: usize = 1 << 20;
const HOST: [u8; 4] = [10, 7, 7, 7];
const OTHER: [u8; 4] = [10, 1, 1, 1];

fn add_node(network: &mut Network, subtree: &'static str, workers: u8) -> usize {
    network.add_node_with(subtree, workers, |config| config.queue_memory = 2 * EACH * usize::from(workers))
}

/// A connected client of this host that takes so many messages at once, and reads when it is told to.
fn add_slow(network: &mut Network, node: usize, topic: &str, host: [u8; 4], messages: u32) -> usize {
    let client = network.hosts.len();
    network.add_client();
    network.hosts[client].address = (host, 1_000 + client as u16).into();
    network.hosts[client].reads = false;
    network.listen(client, 1, topic, 1);
    subscribe_slow(network, client, node, topic, messages);
    client
}

fn subscribe_slow(network: &mut Network, client: usize, node: usize, topic: &str, messages: u32) {
    network.connect(client, node);
    let session = network.open_bounded(client, node, true, OWN);
    subscribe(network, node, topic, "", Subscriber::new(session, 1));
    grant(network, client, node, messages, 64 << 20);
}

/// What is held for the connected sessions of a host at the node's workers.
fn held_of(network: &Network, node: usize, host: [u8; 4]) -> Vec<usize> {
    let is_of_it = |session: &&Session| {
        session.is_ready() && session.host() == Some(std::net::IpAddr::from(host).into())
    };
    let held = network.hosts[node]
        .engines
        .iter()
        .map(|engine| engine.out.sessions.iter().filter(is_of_it).map(Session::queued_bytes).sum());
    held.collect()
}

/// What counts for connected sessions at a node.
fn counted(network: &Network, node: usize) -> usize {
    network.hosts[node].engines.iter().map(|engine| engine.out.sessions.connected().used()).sum()
}

fn is_full_everywhere(network: &Network, node: usize, client: usize) -> bool {
    let key = network.session(client, node);
    network.hosts[node].engines.iter().all(|engine| engine.out.full_sessions.has(key))
}

/// Has a node publish a message itself, as it does with wills: the reason why not.
fn publish_will(network: &mut Network, node: usize, sequence: u64, topic: &str) -> i32 {
    let mut field = Vec::new();
    let will = PublishOut { publisher: 9, sequence, ..message(topic, b"will", 1) };
    wire::put_publish_field(&mut field, &will);
    let now = network.now;
    network.hosts[node].engines[0].publish_raw(now, &wire::message_of(&field))
}

/// Six sessions of one host for each worker go on answering, twelve messages a second each, and are published to without a bound. What becomes of one of another
/// host, that answers 25 a second, and of who publishes to it?
fn flood_one_host(workers: u8, taken_at_once: u32, keeps_to_its_credit: bool) {
    const ROUNDS: usize = 80; // Longer than one that answers too little goes on as connected.
    let mut network = Network::new(31, Faults::default());
    let node = add_node(&mut network, "", workers);
    let slow: Vec<(usize, String)> = (0..6 * usize::from(workers))
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
    let open_at_once = if keeps_to_its_credit { 1_000 } else { 15 };
    let mut sent = vec![0; publishers.len()];
    let (mut open, mut longest, mut got, mut most) = (Vec::new(), 0, vec![0; ordinary.len()], 0);
    for round in 0..ROUNDS {
        for ((&publisher, sent), (_, topic)) in publishers.iter().zip(&mut sent).zip(&slow) {
            if !keeps_to_its_credit {
                ignore_credit(&mut network, publisher);
            }
            let answered = network.hosts[publisher].published.len();
            while *sent < answered + open_at_once && *sent < 6 * (round + 1) {
                network.publish(publisher, &PublishOut { ack_queued: true, ..message(topic, &payload, 1) });
                *sent += 1;
            }
        }
        open.push((network.publish(other, &message("ordinary", b"x", 1)), network.now));
        network.run(40 * MILLISECOND);
        for (client, got) in ordinary.iter().zip(&mut got) {
            *got += read(&mut network, *client, 1);
        }
        if round % 2 == 0 {
            slow.iter().for_each(|&(client, _)| _ = read(&mut network, client, 1));
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
    assert!(got.iter().all(|&got| got >= ROUNDS - 3), "{case}: {got:?} of {ROUNDS} came");
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
    assert_eq!(counted(&network, node), 0);
    assert_let_go(&network, node);
    check(&network, node);
}

#[test]
fn connected_sessions_of_one_host_hold_nobody_up_who_publishes_to_another() {
    for (workers, taken_at_once, keeps_to_its_credit) in
        [(1, 16, true), (1, 65_536, false), (2, 16, false), (2, 65_536, true)]
    {
        flood_one_host(workers, taken_at_once, keeps_to_its_credit);
    }
}

#[test]
fn before_all_workers_know_that_a_session_is_full_only_a_little_comes_and_nothing_of_it_is_lost() {
    const WINDOW: usize = 20;
    let mut network = Network::new(32, Faults::default());
    let node = add_node(&mut network, "", 3);
    let slow = add_slow(&mut network, node, "slow", HOST, 16);
    let publishers: Vec<usize> = (0..6).map(|_| network.add_client()).collect();
    let mut flood = Flood::of(publishers.clone(), 300, WINDOW);
    // Its own worker takes a message over when it is on its way to the session.
    let out = PublishOut { ack_queued: true, ..message("slow", &[7; 1_000], 1) };
    let (mut most, mut was_full, mut got) = (0, false, Vec::new());
    for round in 0..80 {
        network.holds_handoffs = round % 4 != 0;
        flood.send(&mut network, &out);
        network.run(10 * MILLISECOND);
        check(&network, node);
        most = most.max(held_of(&network, node, HOST).into_iter().sum());
        was_full |= is_full_everywhere(&network, node, slow);
        got.extend(read_ids(&mut network, slow, 1));
    }
    let meanwhile = 4 * WINDOW * publishers.len() * 1_300;
    assert!(was_full && most > EACH / 3 && most <= EACH / 3 + (16 << 10) + meanwhile, "{most}");
    network.holds_handoffs = false;
    while got.len() < 300 * publishers.len() {
        flood.send(&mut network, &out);
        network.run(10 * MILLISECOND);
        got.extend(read_ids(&mut network, slow, 100));
        assert!(network.now < 1_100 * SECOND, "{} came", got.len());
    }
    network.run_until_drained();
    flood.assert_all_answered(&network);
    for publisher in publishers {
        let id = network.hosts[publisher].publisher;
        let its = got.iter().filter(|(publisher, _)| *publisher == id).map(|(_, sequence)| *sequence);
        assert_eq!(its.collect::<Vec<_>>(), (1..=300).collect::<Vec<_>>());
    }
    network.run(SECOND);
    assert_eq!((counted(&network, node), network.counter(node, "drop.queue_full")), (0, 0));
    assert_let_go(&network, node);
}

/// What becomes of a session that is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Drains,
    Stalls,
    GoesAway,
    BeginsAnotherLink,
    ComesFromElsewhere,
    Ends,
    Moves,
}

/// Publishes to a session until it is full, and then this becomes of it.
fn fill_until(fate: Fate, workers: u8, taken_at_once: u32) {
    let case = format!("{fate:?}, {workers} workers, {taken_at_once} at once");
    let mut network = Network::new(33, Faults::default());
    let node = add_node(&mut network, "", workers);
    let new = add_node(&mut network, "elsewhere", workers);
    let slow = add_slow(&mut network, node, "slow", HOST, taken_at_once);
    let publishers: Vec<usize> = (0..4).map(|_| network.add_client()).collect();
    let out = message("slow", &[7; 1_000], 1);
    let mut sent = 0;
    let mut publish = |network: &mut Network| {
        sent += 10;
        for &publisher in &publishers {
            network.publish_times(publisher, 10, &out);
        }
        sent
    };
    while !is_full_everywhere(&network, node, slow) {
        // Those who keep to it are held back where it has half of its share.
        publishers.iter().for_each(|&publisher| ignore_credit(&mut network, publisher));
        assert!(publish(&mut network) < 300, "{case}: it is not full");
        network.run(10 * MILLISECOND);
        check(&network, node);
    }
    let count = publish(&mut network);
    let late = network.add_client();
    network.publish(late, &out);
    let answered = |network: &Network| -> usize {
        publishers.iter().map(|&publisher| network.hosts[publisher].published.len()).sum()
    };
    network.run(50 * MILLISECOND);
    assert!(network.counter(node, "drop.queues_full") > 0 && answered(&network) == 0, "{case}");
    let links = network.hosts[node].engines.iter().flat_map(|engine| engine.out.links.iter());
    let published = links.filter(|position| position.published()).map(|position| position.id());
    let held: Vec<_> = published
        .filter_map(|link| network.hosts[node].engines[usize::from(link.worker())].out.links.awake(link))
        .collect();
    assert!(held.len() == 5 && held.iter().all(|entry| entry.is_throttled), "{case}");
    assert_eq!(publish_will(&mut network, node, 1, "slow"), reason::QUOTA_EXCEEDED, "{case}");
    let (now, key) = (network.now, network.session(slow, node));
    match fate {
        Fate::Drains => network.hosts[slow].reads = true,
        Fate::Stalls => {
            network.run(4 * SECOND);
            assert!(status(&network, node, slow).is_stalled, "{case}");
            let flying = network.hosts[node].engines[usize::from(key.worker())].out.sessions.get(key);
            let (_, flying) = flying.expect("it is there").credit_used();
            assert!(flying > 0 && counted(&network, node) == flying, "{case}: in flight still counts");
        }
        Fate::GoesAway => go_offline(&mut network, node, slow),
        Fate::BeginsAnotherLink | Fate::ComesFromElsewhere => {
            let link = link_to(&network, slow, node).expect("it is connected");
            network.hosts[slow].engines[0].close(now, link);
            if fate == Fate::ComesFromElsewhere {
                network.hosts[slow].address.set_ip(OTHER.into());
            }
            network.connect(slow, node);
            network.hosts[slow].reads = true;
        }
        Fate::Ends => {
            let home = &mut network.hosts[node].engines[usize::from(key.worker())];
            home.end_session(now, key, Drop::SessionEnded);
        }
        Fate::Moves => {
            subscribe_slow(&mut network, slow, new, "slow", taken_at_once);
            network.cut(node, "slow", new);
            let (queued, seen) = export(&mut network, node, "slow");
            assert_eq!(import(&mut network, new, &queued, &seen), 0);
            network.grant(new, "slow", Grant { epoch: 2, ..GRANT });
            network.hosts[slow].reads = true;
        }
    }
    let until = network.now + 20 * SECOND;
    while answered(&network) < 4 * count {
        network.run(10 * MILLISECOND);
        [node, new].iter().for_each(|&node| check(&network, node));
        assert!(network.now < until, "{case}: its publishers do not go on");
    }
    if fate != Fate::Ends {
        network.run(2 * SECOND);
        network.assert_all_published(late, 1);
        publishers.iter().for_each(|&publisher| network.assert_all_published(publisher, count));
    }
    if matches!(fate, Fate::Stalls | Fate::GoesAway) {
        go_offline(&mut network, node, slow);
        assert_eq!(counted(&network, node), 0, "{case}: nothing is in flight");
        network.connect(slow, node);
        network.hosts[slow].reads = true;
    }
    network.run_until_drained();
    network.run(SECOND);
    for node in [node, new] {
        check(&network, node);
        assert_let_go(&network, node);
        assert_eq!(counted(&network, node), 0, "{case}");
        assert!(
            network.hosts[node].engines.iter().all(|engine| engine.out.full_sessions.is_empty()),
            "{case}"
        );
    }
    if matches!(fate, Fate::Drains | Fate::BeginsAnotherLink | Fate::ComesFromElsewhere | Fate::Moves) {
        let mut read: Vec<_> =
            network.hosts[slow].read.iter().map(|read| (read.publisher, read.sequence)).collect();
        read.sort_unstable();
        read.dedup();
        assert_eq!(read.len(), 4 * count + 1, "{case}: nothing is lost");
    }
    if fate == Fate::Drains {
        assert_eq!(publish_will(&mut network, node, 2, "slow"), reason::SUCCESS);
    }
}

#[test]
fn whatever_becomes_of_a_session_that_is_full_its_publishers_go_on_and_nothing_of_it_is_left_counted() {
    use Fate::{BeginsAnotherLink, ComesFromElsewhere, Drains, Ends, GoesAway, Moves, Stalls};
    for fate in [Drains, Stalls, GoesAway, BeginsAnotherLink, ComesFromElsewhere, Ends, Moves] {
        for (workers, taken_at_once) in [(1, 16), (3, 65_536)] {
            fill_until(fate, workers, taken_at_once);
        }
    }
}

#[test]
fn retained_messages_for_a_session_that_is_full_come_when_it_has_read() {
    let mut network = Network::new(34, Faults::default());
    let node = add_node(&mut network, "", 2);
    let publisher = network.add_client();
    for number in 0..20 {
        let topic = format!("kept/{number}");
        network.publish(publisher, &PublishOut { retain: true, ..message(&topic, &[7; 1_000], 1) });
    }
    network.run_until_drained();
    let slow = add_slow(&mut network, node, "#", HOST, 16);
    let mut flood = Flood::of(vec![network.add_client()], 400, 400);
    let out = PublishOut { ack_queued: true, ..message("slow", &[7; 1_000], 1) };
    flood.send(&mut network, &out);
    network.run(100 * MILLISECOND);
    assert!(is_full_everywhere(&network, node, slow));
    let (now, key) = (network.now, network.session(slow, node));
    let home = &mut network.hosts[node].engines[usize::from(key.worker())];
    assert!(home.send_retained(now, key, request("kept/#", 1, 1)));
    let before = status(&network, node, slow).queued;
    network.run(SECOND);
    assert_eq!(status(&network, node, slow).queued, before, "it has no room for them");
    network.read_all(slow);
    network.run(SECOND);
    flood.assert_all_answered(&network);
    let read = &network.hosts[slow].read;
    assert_eq!(read.iter().filter(|read| read.retained).count(), 20);
    assert_eq!((read.len(), network.counter(node, "drop.queue_full")), (420, 0));
    assert_eq!(counted(&network, node), 0);
}
