//! Who publishes more than a subscriber takes: it is held back, and nothing is lost (§7.3, §7.7, §7.8).

use super::{BOUNDS, Flood, assert_let_go, flood_one, ignore_credit, read, with_node};
use crate::engine::sessions::bounds::Bounds;
use crate::engine::tests::network::{Faults, MILLISECOND, Network, SECOND, message};
use crate::engine::tests::sessions::{add_persistent, check, dropped, go_offline, grant, status, subscribe};
use crate::schema::reason;
use crate::tables::subscriber::{Overflow, Subscriber};
use crate::wire::{self, PublishOut};

#[test]
fn a_subscriber_that_is_slower_than_all_its_publishers_loses_nothing() {
    for (seed, workers) in [(1, 1), (2, 3)] {
        for (qos, ack_queued) in [(1, false), (2, false), (1, true), (2, true)] {
            let (mut network, node) =
                with_node(seed, Faults { loss: 0.02, duplication: 0.02, jitter: 500 }, workers);
            let subscriber = network.add_idle_subscriber(node, "a/#", 2);
            let mut flood = Flood::new(&mut network, 8, 1_000, 200);
            let out = PublishOut { ack_queued, ..message("a/b", b"x", qos) };
            let (_, most) = flood_one(&mut network, node, subscriber, &mut flood, &out);
            let session_counters = status(&network, node, subscriber).session_counters;
            assert_eq!((session_counters.accepted, session_counters.delivered), (8_000, 8_000));
            let allowed = 8 * 200 + 64;
            assert!(
                most < if ack_queued { 2 * allowed } else { allowed },
                "publishers were held back: {most}"
            );
        }
    }
}

#[test]
fn a_publisher_that_sends_nothing_to_the_congested_session_is_not_throttled() {
    let (mut network, node) = with_node(3, Faults::default(), 2);
    let slow = network.add_idle_subscriber(node, "slow", 1);
    let quick = network.add_subscriber(node, "quick", 1);
    grant(&mut network, slow, node, 16, 1 << 20);
    let mut flood = Flood::new(&mut network, 4, 2_000, 100);
    let other = network.add_client();
    for _ in 0..400 {
        flood.send(&mut network, &message("slow", b"x", 1));
        network.publish(other, &message("quick", b"x", 1));
        // At QoS 0 nobody is held back.
        network.publish(flood.publishers[0], &message("quick", b"x", 0));
        network.run(5 * MILLISECOND);
        read(&mut network, slow, 1);
    }
    let held =
        network.hosts[node].engines.iter().map(|engine| engine.out.throttled_links.len()).sum::<usize>();
    assert_eq!(held, 4, "those who publish to the slow one");
    assert_eq!(network.hosts[other].published.len(), 400);
    assert_eq!(network.hosts[quick].read.len(), 800);
}

#[test]
fn two_that_flood_each_other_do_not_block_one_another() {
    for workers in [1, 2] {
        let (mut network, node) = with_node(8, Faults::default(), workers);
        let pair: Vec<usize> =
            ["to/one", "to/other"].map(|topic| network.add_subscriber(node, topic, 1)).into();
        let mut sent = [0_usize; 2];
        for _ in 0..3_000 {
            for (at, topic) in ["to/other", "to/one"].into_iter().enumerate() {
                let host = pair[at];
                let open = sent[at] - network.hosts[host].published.len();
                // Each answers what it has read only while its own messages get through.
                network.hosts[host].reads = open < 400;
                if open < 450 && sent[at] < 4_000 {
                    network.publish_times(host, 50, &message(topic, b"x", 1));
                    sent[at] += 50;
                }
            }
            network.run(5 * MILLISECOND);
            check(&network, node);
        }
        assert_eq!(sent, [4_000; 2], "they got on");
        pair.iter().for_each(|&host| network.hosts[host].reads = true);
        network.run_until_drained();
        for &host in &pair {
            network.assert_all_published(host, 4_000);
            assert_eq!(network.hosts[host].read.len(), 4_000);
        }
        assert_let_go(&network, node);
    }
}

#[test]
fn what_waits_for_all_is_bounded_and_nothing_that_was_acknowledged_is_lost() {
    const MEMORY: usize = 150_000;
    for (workers, size, qos) in [(1, 1_000, 1), (1, 3_000, 2), (3, 1_000, 2)] {
        let mut network = Network::new(9, Faults { loss: 0.02, duplication: 0.02, jitter: 500 });
        let node = network.add_node_with("", workers, |config| config.queue_memory = MEMORY);
        let subscriber = network.add_idle_subscriber(node, "a/#", 2);
        grant(&mut network, subscriber, node, 16, 1 << 20);
        let payload = vec![7; size];
        let mut flood = Flood::new(&mut network, 15, 20, 20);
        let total = 15 * 20;
        let (mut got, mut most, start) = (0, 0, network.now);
        while got < total {
            flood.send(&mut network, &message("a/b", &payload, qos));
            network.run(5 * MILLISECOND);
            got += read(&mut network, subscriber, 4);
            check(&network, node);
            let engines = network.hosts[node].engines.iter();
            most = most.max(engines.map(|engine| engine.out.sessions.waiting_bytes()).sum::<usize>());
            assert!(network.now < start + 120 * SECOND, "{got} of {total} came");
        }
        network.run_until_drained();
        flood.assert_all_answered(&network);
        assert_eq!(got, total);
        assert!(network.counter(node, "drop.queues_full") > 0, "there was no room for all");
        assert!(most <= MEMORY, "{most} bytes waited");
        assert_let_go(&network, node);
    }
}

#[test]
fn what_waits_beyond_the_bounds_of_a_session_stays_when_it_goes_away() {
    let (mut network, node) = with_node(10, Faults::default(), 1);
    let subscriber = add_persistent(&mut network, node, "a/#", 1, Bounds { messages: 0, bytes: 0 });
    grant(&mut network, subscriber, node, 64, 1 << 20);
    network.hosts[subscriber].reads = false;
    let mut flood = Flood::new(&mut network, 4, 200, 200);
    flood.window = 1;
    flood.send(&mut network, &message("a/b", b"x", 1));
    network.run(100 * MILLISECOND);
    flood.window = 200;
    flood.send(&mut network, &message("a/b", b"x", 1));
    network.run(100 * MILLISECOND);
    let queued = status(&network, node, subscriber).queued;
    assert_eq!(queued, 800);
    go_offline(&mut network, node, subscriber);
    network.run(SECOND);
    flood.assert_all_answered(&network);
    let told = status(&network, node, subscriber);
    assert_eq!((told.queued, dropped(&told, "queue_full")), (queued, 0), "all that was acknowledged waits");
    network.publish(flood.publishers[0], &message("a/b", b"x", 1));
    network.run(SECOND);
    let told = status(&network, node, subscriber);
    assert_eq!((told.queued, dropped(&told, "queue_full")), (queued, 1), "but it grows no more");
    assert_let_go(&network, node);
}

#[test]
fn who_chose_to_lose_loses_and_holds_nobody_back() {
    let bounds = Bounds { messages: 50, bytes: 0 };
    let own = Bounds { messages: 0, bytes: 0 };
    for (overflow, bounds) in
        [(Overflow::DropOldest, bounds), (Overflow::DropNewest, bounds), (Overflow::DropNewest, own)]
    {
        let (mut network, node) = with_node(11, Faults::default(), 1);
        let subscriber = network.add_client();
        network.listen(subscriber, 1, "a/#", 1);
        network.connect(subscriber, node);
        let session = network.open_bounded(subscriber, node, false, bounds);
        subscribe(&mut network, node, "a/#", "", Subscriber { overflow, ..Subscriber::new(session, 1) });
        grant(&mut network, subscriber, node, 16, 1 << 20);
        network.hosts[subscriber].reads = false;
        let mut flood = Flood::new(&mut network, 4, 1_000, 200);
        for _ in 0..200 {
            flood.send(&mut network, &message("a/b", b"x", 1));
            network.run(5 * MILLISECOND);
            read(&mut network, subscriber, 1);
            let engine = &network.hosts[node].engines[0];
            assert!(engine.out.throttled_links.is_empty());
            let most = if bounds == own { BOUNDS.messages } else { bounds.messages };
            assert!(status(&network, node, subscriber).queued <= 16 + most as u64);
        }
        network.run(3 * SECOND);
        let told = status(&network, node, subscriber);
        assert!(flood.answered(&network) > 2_000, "{overflow:?}: {}", flood.answered(&network));
        assert!(dropped(&told, "queue_full") > 1_000, "{overflow:?}: and the account says so");
        let reasons =
            flood.publishers.iter().flat_map(|&publisher| network.hosts[publisher].published.values());
        assert!(reasons.clone().all(|&why| why == reason::SUCCESS));
    }
}

#[test]
fn a_publisher_that_is_held_back_may_leave_and_come_back() {
    for workers in [1, 3] {
        let (mut network, node) = with_node(12, Faults::default(), workers);
        let subscriber = network.add_idle_subscriber(node, "a/#", 1);
        grant(&mut network, subscriber, node, 16, 1 << 20);
        let mut flood = Flood::new(&mut network, 4, 600, 200);
        let mut got = 0;
        for round in 0..400 {
            flood.send(&mut network, &message("a/b", b"x", 2));
            network.run(5 * MILLISECOND);
            got += read(&mut network, subscriber, 8);
            if round % 50 == 20 {
                go_offline(&mut network, node, flood.publishers[round / 50 % 4]);
            }
            let held: usize =
                network.hosts[node].engines.iter().map(|engine| engine.out.throttled_links.len()).sum();
            assert!(held <= 8, "links that are gone are held by nobody: {held}");
        }
        network.read_all(subscriber);
        flood.assert_all_answered(&network);
        assert_eq!(got + network.hosts[subscriber].read.len(), 2_400);
        assert_let_go(&network, node);
    }
}

/// The longest that a publisher waits for an answer whose subscriber is quick, while another sends to one that answers nine a second.
fn longest_wait_beside_a_flood(keeps_to_its_credit: bool) -> u64 {
    let mut network = Network::new(2, Faults::default());
    let node = network.add_node_with("", 1, |config| {
        config.queue_memory = 40_000_000;
        config.queue_messages = 100;
    });
    let slow = network.add_idle_subscriber(node, "x", 1);
    network.add_subscriber(node, "quick", 1);
    grant(&mut network, slow, node, 16, 1 << 20);
    let (flooder, other) = (network.add_client(), network.add_client());
    let payload = [7; 1_000];
    network.publish(other, &message("quick", b"x", 1));
    let (mut sent, mut longest, mut since, mut answered) = (0, 0, network.now, 0);
    // More than half of the memory, where they all got there.
    let most = if keeps_to_its_credit { 3_000 } else { 20_000 };
    for round in 0..1_000 {
        if !keeps_to_its_credit {
            ignore_credit(&mut network, flooder);
        }
        while sent < 40 * round && sent < network.hosts[flooder].published.len() + most {
            network.publish(flooder, &message("x", &payload, 1));
            sent += 1;
        }
        network.run(10 * MILLISECOND);
        if round % 11 == 0 {
            network.take_messages(slow, 1);
        }
        assert!(!status(&network, node, slow).is_stalled);
        if network.hosts[other].published.len() > answered {
            answered = network.hosts[other].published.len();
            since = network.now;
            network.publish(other, &message("quick", b"x", 1));
        }
        longest = longest.max(network.now - since);
    }
    assert!(sent >= most);
    assert_eq!(network.counter(node, "drop.queues_full") > 0, !keeps_to_its_credit);
    longest / MILLISECOND
}

#[test]
fn a_flood_to_a_slow_subscriber_holds_nobody_else_back_whether_it_keeps_to_its_credit_or_not() {
    assert!(longest_wait_beside_a_flood(true) <= 500);
    assert!(longest_wait_beside_a_flood(false) <= 500);
}

/// As it does with wills: there is no publisher that could be held back.
#[test]
fn what_a_node_publishes_itself_is_bounded_too() {
    const MEMORY: usize = 200_000;
    let mut network = Network::new(7, Faults::default());
    let node = network.add_node_with("", 1, |config| {
        config.queue_memory = MEMORY;
        config.queue_messages = 50;
    });
    let subscriber = network.add_idle_subscriber(node, "a/#", 1);
    grant(&mut network, subscriber, node, 16, 1 << 20);
    let mut refused = 0;
    for sequence in 1..=2_000 {
        let mut field = Vec::new();
        let will = PublishOut { publisher: 9, sequence, ..message("a/b", &[7; 1_000], 1) };
        wire::put_publish_field(&mut field, &will);
        let now = network.now;
        let taken = network.hosts[node].engines[0].publish_raw(now, &wire::message_of(&field));
        refused += usize::from(taken == reason::QUOTA_EXCEEDED);
        network.run(MILLISECOND / 2);
    }
    assert!(status(&network, node, subscriber).queued > 20 && refused > 1_000, "{refused}");
    assert!(network.hosts[node].engines[0].out.sessions.waiting_bytes() <= MEMORY / 4 + 2_000);
}
