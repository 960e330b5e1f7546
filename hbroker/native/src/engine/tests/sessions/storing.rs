//! A node with a store: what was acknowledged for sessions that are offline survives a loss of power.

use std::collections::{BTreeMap, BTreeSet};

use rand::Rng;

use super::{OWN, add_persistent, check, dropped, firsts, go_offline, status, subscribe};
use crate::engine::metrics::counters::Drop;
use crate::engine::sessions::bounds::Bounds;
use crate::engine::tests::handover::copying::stored;
use crate::engine::tests::network::{Faults, MILLISECOND, Network, SECOND, message};
use crate::schema::reason;
use crate::tables::subscriber::{Overflow, Subscriber};
use crate::wire::PublishOut;
use crate::wire::publish_of;

/// Bytes in memory that an offline session may have, and a message more.
const IN_MEMORY: usize = 66_000;

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
    assert_eq!(stored(&network, node), 0, "it is settled");
}

#[test]
fn what_is_acknowledged_once_it_is_queued_waits_for_the_disk_only_if_it_has_to_be_stored() {
    for qos in [1, 2] {
        let (mut network, node) = Network::with_node(2, 1);
        network.add_store(node);
        let publisher = network.add_client();
        let publish = |network: &mut Network| {
            network.publish_times(
                publisher,
                20,
                &PublishOut { ack_queued: true, ..message("a/b", b"x", qos) },
            );
            network.run(100 * MILLISECOND);
            acknowledged(network, publisher).len()
        };
        let subscriber = add_persistent(&mut network, node, "a/#", 1, OWN);
        let disk = network.hosts[node].store.as_ref().unwrap().disk.clone();
        disk.set_space(Some(0));
        assert_eq!(publish(&mut network), 20);
        go_offline(&mut network, node, subscriber);
        assert_eq!(publish(&mut network), 20, "they are not on the disk");
        disk.set_space(None);
        network.run(2 * SECOND);
        assert_eq!(acknowledged(&network, publisher).len(), 40);
    }
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
            // Of the large ones only a few fit what a queue has in memory.
            let (payload, most) = if seed % 2 == 0 { (vec![0; 7], 30) } else { (vec![0; 900], 150) };
            for _ in 0..12 {
                let client = clients[network.rng.random_range(0..3)];
                match network.rng.random_range(0..4) {
                    0 => go_offline(&mut network, node, client),
                    1 => come_back(&mut network, node, client),
                    2 => lose_power(&mut network, node, &clients),
                    _ => {}
                }
                let together = network.rng.random_range(1..8);
                for number in 0..network.rng.random_range(0..most) {
                    network.publish(publisher, &message("a/b", &payload, qos));
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
            assert_eq!(stored(&network, node), 0, "seed {seed}");
        }
    }
}

/// What publishers wait for is older than what was given to the store: they send it to the next run.
#[test]
fn a_session_that_goes_offline_after_the_end_of_a_run_gives_the_store_nothing_more() {
    let (mut network, node) = Network::with_node(3, 1);
    network.add_store(node);
    let subscriber = add_persistent(&mut network, node, "a/#", 1, OWN);
    let publisher = network.add_client();
    network.hosts[subscriber].reads = false;
    for number in 0..10 {
        let ack_queued = number % 2 == 1;
        network.publish(publisher, &PublishOut { ack_queued, ..message("a/b", b"x", 1) });
    }
    network.run(100 * MILLISECOND);
    assert_eq!(acknowledged(&network, publisher), [2, 4, 6, 8, 10]);
    network.hosts[node].engines[0].store_queues();
    network.run(100 * MILLISECOND);
    assert_eq!(stored(&network, node), 5);
    go_offline(&mut network, node, subscriber);
    network.run(100 * MILLISECOND);
    assert_eq!((stored(&network, node), acknowledged(&network, publisher).len()), (5, 5));
    lose_power(&mut network, node, &[subscriber]);
    come_back(&mut network, node, subscriber);
    network.hosts[subscriber].reads = true;
    network.run_until_drained();
    network.run(20 * SECOND);
    let read: BTreeSet<u64> = network.sequences(subscriber, "a/b").into_iter().collect();
    assert!(read.into_iter().eq(1..=10) && acknowledged(&network, publisher).len() == 10);
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

/// A subscriber that is offline, for which messages of 1,000 bytes wait.
fn with_offline_subscriber(
    count: usize,
    bounds: Bounds,
    overflow: Overflow,
) -> (Network, usize, usize, usize) {
    let (mut network, node) = Network::with_node(1, 1);
    network.add_store(node);
    let client = network.add_client();
    network.listen(client, 1, "a/#", 1);
    network.connect(client, node);
    let session = network.open_bounded(client, node, true, bounds);
    subscribe(&mut network, node, "a/#", "", Subscriber { overflow, ..Subscriber::new(session, 1) });
    go_offline(&mut network, node, client);
    let publisher = network.add_client();
    publish(&mut network, publisher, count);
    (network, node, client, publisher)
}

/// One body, and a few bytes for each session, also if messages arrive together. Several workers have a body each.
#[test]
fn a_message_is_stored_once_however_many_sessions_wait_for_it() {
    const SESSIONS: usize = 24;
    const MESSAGES: usize = 600;
    for (seed, workers) in [(1, 1), (2, 1), (3, 3)] {
        let (mut network, node) = Network::with_node(seed, workers);
        network.add_store(node);
        for _ in 0..SESSIONS {
            let client = add_persistent(&mut network, node, "a/#", 2, OWN);
            go_offline(&mut network, node, client);
        }
        let publisher = network.add_client();
        let body = message("a/b", &[0; 200], if seed == 2 { 2 } else { 1 });
        for _ in 0..MESSAGES / 100 {
            (0..100).for_each(|_| _ = network.publish(publisher, &body));
            network.run(10 * MILLISECOND);
        }
        network.run_until_drained();
        assert_eq!(acknowledged(&network, publisher).len(), MESSAGES);
        let bytes = network.hosts[node].store.as_ref().unwrap().store.bytes() as usize;
        let bodies = MESSAGES * usize::from(workers) * 275; // With topic, ids and time.
        assert!(bytes < bodies + 32 * MESSAGES * SESSIONS, "{workers} workers: {bytes} bytes");
        assert!(bytes > MESSAGES * 200, "{bytes}");
    }
}

fn publish(network: &mut Network, publisher: usize, count: usize) {
    for _ in 0..count {
        network.publish(publisher, &message("a/b", &[0; 1_000], 1));
        network.run(MILLISECOND);
    }
    network.run(100 * MILLISECOND);
}

fn in_memory(network: &Network, node: usize) -> usize {
    network.hosts[node].engines.iter().map(|engine| engine.out.sessions.waiting_bytes()).sum()
}

#[test]
fn a_long_queue_is_not_in_memory_and_is_read_in_order_while_more_is_published() {
    for restarts in [false, true] {
        let (mut network, node, client, publisher) = with_offline_subscriber(1_000, OWN, Overflow::default());
        assert_eq!((status(&network, node, client).queued, stored(&network, node)), (1_000, 1_000));
        assert!((1..=IN_MEMORY).contains(&in_memory(&network, node)));
        if restarts {
            lose_power(&mut network, node, &[client]);
            assert_eq!((status(&network, node, client).queued, in_memory(&network, node)), (1_000, 0));
        }
        network.hosts[client].reads = false;
        network.connect(client, node);
        for _ in 0..30 {
            publish(&mut network, publisher, 10);
            network.hosts[client].reads = true;
            network.run(2 * MILLISECOND);
            network.hosts[client].reads = false;
            check(&network, node);
        }
        network.hosts[client].reads = true;
        network.run_until_drained();
        network.run(SECOND);
        check(&network, node);
        assert_eq!(network.sequences(client, "a/b"), (1..=1_300).collect::<Vec<_>>());
        assert_eq!((acknowledged(&network, publisher).len(), stored(&network, node)), (1_300, 0));
        publish(&mut network, publisher, 10);
        let disk = &network.hosts[node].store.as_ref().unwrap().disk;
        let work = disk.work();
        publish(&mut network, publisher, 10);
        let disk = &network.hosts[node].store.as_ref().unwrap().disk;
        assert_eq!(disk.work(), work, "it is connected, and nothing waits: no disk");
    }
}

#[test]
fn a_long_queue_keeps_to_its_bounds_and_its_policy() {
    let bounds = Bounds { messages: 300, bytes: 0 };
    for (overflow, expected) in [(Overflow::DropOldest, 701..=1_000), (Overflow::DropNewest, 1..=300)] {
        let (mut network, node, client, publisher) = with_offline_subscriber(1_000, bounds, overflow);
        let now = status(&network, node, client);
        assert_eq!((now.queued, dropped(&now, "queue_full"), stored(&network, node)), (300, 700, 300));
        assert_eq!(acknowledged(&network, publisher).len(), 1_000);
        check(&network, node);
        network.connect(client, node);
        network.run_until_drained();
        assert_eq!(network.sequences(client, "a/b"), expected.collect::<Vec<_>>(), "{overflow:?}");
        check(&network, node);
    }
    let (network, node, ..) = with_offline_subscriber(301, bounds, Overflow::EndSession);
    assert_eq!((network.hosts[node].engines[0].out.sessions.iter().count(), stored(&network, node)), (0, 0));
}

#[test]
fn a_long_queue_keeps_to_its_bounds_after_a_restart() {
    let bounds = Bounds { messages: 300, bytes: 0 };
    let (mut network, node, client, publisher) = with_offline_subscriber(1_000, bounds, Overflow::DropOldest);
    network.lose_power(node);
    let session = network.open_bounded(client, node, true, bounds);
    subscribe(&mut network, node, "a/#", "", Subscriber::new(session, 1));
    network.restore_queue(node, network.hosts[client].session);
    publish(&mut network, publisher, 100);
    network.run(SECOND);
    assert_eq!((status(&network, node, client).queued, stored(&network, node)), (300, 300));
    come_back(&mut network, node, client);
    network.run_until_drained();
    assert_eq!(network.sequences(client, "a/b"), (801..=1_100).collect::<Vec<_>>());
    check(&network, node);
}

#[test]
fn messages_that_were_given_to_a_link_do_not_expire_in_a_long_queue() {
    let (mut network, node, client, publisher) = with_offline_subscriber(0, OWN, Overflow::default());
    for _ in 0..200 {
        let published_at_us = network.now;
        let expiring = PublishOut { expiry_s: Some(9), published_at_us, ..message("a/b", &[0; 1_000], 1) };
        network.publish(publisher, &expiring);
        network.run(MILLISECOND);
    }
    network.hosts[client].reads = false;
    network.connect(client, node);
    network.run(100 * MILLISECOND);
    let launched = 200 - in_queue(&network, node, client);
    assert!(launched > 100);
    go_offline(&mut network, node, client);
    assert!(in_memory(&network, node) < IN_MEMORY);
    network.run(10 * SECOND);
    network.hosts[client].reads = true;
    come_back(&mut network, node, client);
    network.run_until_drained();
    let counters = status(&network, node, client).session_counters;
    assert_eq!((counters.delivered, counters.expired), (launched as u64, 200 - launched as u64));
}

fn in_queue(network: &Network, node: usize, client: usize) -> usize {
    let key = network.session(client, node);
    let session = network.hosts[node].engines[usize::from(key.worker())].out.sessions.get(key);
    session.expect("it is there").queue.size().messages
}

#[test]
fn the_queue_of_a_member_of_a_group_is_in_memory() {
    let (mut network, node, client, publisher) = with_offline_subscriber(400, OWN, Overflow::default());
    let session = network.session(client, node);
    subscribe(&mut network, node, "g/#", "g", Subscriber::new(session, 1));
    network.run(SECOND);
    publish(&mut network, publisher, 10);
    assert!(in_memory(&network, node) > 410_000);
    network.connect(client, node);
    network.run_until_drained();
    assert_eq!(network.sequences(client, "a/b"), (1..=410).collect::<Vec<_>>());
}

#[test]
fn damage_in_a_long_queue_costs_the_damaged_messages_alone_and_is_counted() {
    let mut all = 0;
    for seed in 0..20 {
        let (mut network, node, client, _) = with_offline_subscriber(400, OWN, Overflow::default());
        network.run(seed * MILLISECOND);
        for _ in 0..3 {
            network.hosts[node].store.as_ref().unwrap().disk.flip(&mut network.rng).unwrap();
        }
        network.connect(client, node);
        network.run_until_drained();
        check(&network, node);
        let read = network.sequences(client, "a/b");
        assert!(read.is_sorted() && firsts(&read) == read);
        let lost = dropped(&status(&network, node, client), "damaged");
        assert_eq!(read.len() as u64 + lost, 400, "seed {seed}");
        let reported: usize = network.hosts[node].store.as_ref().unwrap().mailbox.take_damage().len();
        assert!(reported as u64 >= lost, "seed {seed}: {reported} reported, {lost} lost");
        all += lost;
    }
    assert!(all >= 10, "{all}");
}

#[test]
fn a_long_queue_keeps_its_order_whenever_its_link_ends() {
    for seed in 0..4 {
        let (mut network, node, client, publisher) = with_offline_subscriber(600, OWN, Overflow::default());
        network.run(seed);
        let mut count = 600;
        for _ in 0..60 {
            network.connect(client, node);
            network.hosts[client].reads = network.rng.random_bool(0.5);
            let time = network.rng.random_range(0..5 * MILLISECOND);
            network.run(time);
            go_offline(&mut network, node, client);
            check(&network, node);
            let more = network.rng.random_range(0..100);
            (0..more).for_each(|_| _ = network.publish(publisher, &message("a/b", &[0; 1_000], 1)));
            count += more;
            network.run(10 * MILLISECOND);
        }
        network.hosts[client].reads = true;
        come_back(&mut network, node, client);
        network.run_until_drained();
        network.run(SECOND);
        let read = network.sequences(client, "a/b");
        assert_eq!(firsts(&read), (1..=count).collect::<Vec<_>>(), "seed {seed}");
        check(&network, node);
    }
}

#[test]
fn a_session_that_ends_or_that_nobody_reads_frees_its_long_queue() {
    let (mut network, node, client, publisher) = with_offline_subscriber(400, OWN, Overflow::default());
    network.hosts[client].reads = false;
    network.connect(client, node);
    network.run(SECOND);
    publish(&mut network, publisher, 100);
    assert!(in_memory(&network, node) < 3 * IN_MEMORY, "it reads no more than it can give");
    let (now, key) = (network.now, network.session(client, node));
    network.hosts[node].engines[0].end_session(now, key, Drop::SessionEnded);
    network.run(SECOND);
    assert_eq!((stored(&network, node), in_memory(&network, node)), (0, 0));
    let ended = network.hosts[node].engines[0].balance();
    assert_eq!((ended.0.open(), ended.1), (0, 0));
}

#[test]
fn what_is_published_again_after_a_loss_of_power_is_stored_once_and_reaches_who_lacks_it() {
    for (seed, was_read) in (0..6).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut network = Network::new(seed, Faults::default());
        let node = network.add_node("", 1 + (seed % 2) as u8);
        network.add_store(node);
        let connected = add_persistent(&mut network, node, "a/#", 2, OWN);
        let offline = add_persistent(&mut network, node, "a/#", 2, OWN);
        go_offline(&mut network, node, offline);
        let publisher = network.add_client();
        let live = |network: &Network| -> u64 {
            let store = &network.hosts[node].store.as_ref().unwrap().store;
            store.states().map(|state| state.next - 1).sum()
        };
        for _ in 0..3 {
            network.publish(publisher, &message("a/b", b"x", 2));
        }
        while live(&network) < 3 {
            network.run(20);
        }
        assert_eq!(acknowledged(&network, publisher).len(), 0, "its PUBACKs are still on their way");
        lose_power(&mut network, node, &[connected, offline]);
        if was_read {
            come_back(&mut network, node, offline);
        }
        network.run(20 * SECOND);
        assert_eq!(acknowledged(&network, publisher).len(), 3);
        let state = network.hosts[node].store.as_ref().unwrap().store.state(network.hosts[offline].session);
        let waiting = if was_read { 0 } else { 3 };
        assert_eq!(state.map_or(0, |state| state.live), waiting, "seed {seed}: none was stored twice");
        come_back(&mut network, node, connected);
        if !was_read {
            come_back(&mut network, node, offline);
        }
        network.run_until_drained();
        network.run(SECOND);
        check(&network, node);
        assert_eq!(network.sequences(offline, "a/b"), [1, 2, 3]);
        assert_eq!(network.sequences(connected, "a/b"), [1, 2, 3]);
    }
}

/// What a node retains: for each topic the sequence number of its message.
fn retained(network: &Network, node: usize) -> BTreeMap<String, u64> {
    let store = network.hosts[node].engines[0].shared.retained.lock();
    let found = store.found("#").into_iter();
    found.map(|(topic, field)| (topic, publish_of(&field).map_or(0, |publish| publish.sequence))).collect()
}

#[test]
fn what_is_retained_is_acknowledged_once_it_is_stored() {
    let (mut network, node) = Network::with_node(1, 1);
    network.add_store(node);
    let publisher = network.add_client();
    let disk = network.hosts[node].store.as_ref().unwrap().disk.clone();
    let keep = |qos, ack_queued| PublishOut { retain: true, ack_queued, ..message("a/b", b"x", qos) };
    for (acknowledged_before, qos, ack_queued) in [(0, 1, false), (1, 2, false), (2, 1, true)] {
        disk.set_space(Some(0));
        network.publish(publisher, &keep(qos, ack_queued));
        network.run(SECOND);
        assert_eq!(acknowledged(&network, publisher).len(), acknowledged_before);
        disk.set_space(None);
        network.run(2 * SECOND);
        assert_eq!(acknowledged(&network, publisher).len(), acknowledged_before + 1);
    }
    check(&network, node);
    lose_power(&mut network, node, &[]);
    assert_eq!(retained(&network, node), [("a/b".to_owned(), 3)].into());
}

#[test]
fn what_is_retained_survives_a_loss_of_power() {
    for seed in 0..12 {
        let faults = Faults { loss: 0.05, duplication: 0.05, jitter: 2_000 };
        let mut network = Network::new(seed, faults);
        let node = network.add_node("", 1 + (seed % 3) as u8);
        network.add_store(node);
        let publisher = network.add_client();
        // For each topic what was published: the sequence number, and whether it clears the topic.
        let mut published: BTreeMap<String, Vec<(u64, bool)>> = BTreeMap::new();
        let mut sequence = 0;
        for _ in 0..10 {
            if network.rng.random_bool(0.4) {
                lose_power(&mut network, node, &[]);
            }
            for _ in 0..network.rng.random_range(0..60) {
                let topic = format!("a/{}", network.rng.random_range(0..8));
                let clears = network.rng.random_bool(0.3);
                let payload = vec![7; if clears { 0 } else { network.rng.random_range(1..400) }];
                let qos = network.rng.random_range(1..3);
                network.publish(publisher, &PublishOut { retain: true, ..message(&topic, &payload, qos) });
                sequence += 1;
                published.entry(topic).or_default().push((sequence, clears));
                let time = network.rng.random_range(0..2 * MILLISECOND);
                network.run(time);
            }
            check(&network, node);
        }
        let until = network.rng.random_range(0..SECOND);
        network.run(until);
        lose_power(&mut network, node, &[]);
        let found = retained(&network, node);
        let acknowledged: BTreeSet<u64> = acknowledged(&network, publisher).into_iter().collect();
        for (topic, all) in &published {
            let last = all.iter().rposition(|(sequence, _)| acknowledged.contains(sequence)).unwrap_or(0);
            let possible: Vec<Option<u64>> = all[last..]
                .iter()
                .map(|(sequence, clears)| (!clears).then_some(*sequence))
                .chain((!acknowledged.contains(&all[last].0)).then_some(None))
                .collect();
            let found = found.get(topic).copied();
            assert!(possible.contains(&found), "seed {seed}, {topic}: {found:?}, not one of {possible:?}");
        }
        assert!(acknowledged.len() > 50);
        network.run(20 * SECOND);
        let newest = published.iter().filter_map(|(topic, all)| {
            let (sequence, clears) = all.last()?;
            (!clears).then(|| (topic.clone(), *sequence))
        });
        let newest: BTreeMap<String, u64> = newest.collect();
        assert_eq!(retained(&network, node), newest);
        lose_power(&mut network, node, &[]);
        assert_eq!(retained(&network, node), newest, "seed {seed}");
    }
}
