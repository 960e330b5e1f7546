//! Retained messages come a part at a time, however many there are, and between other messages (§7.6).

use std::collections::BTreeMap;

use crate::core::Datagrams;
use crate::engine::metrics::counters::Drop;
use crate::engine::tests::handover::leave;
use crate::engine::tests::network::{Faults, MILLISECOND, Network, SECOND, message, publish_field, request};
use crate::link_id::SessionKey;
use crate::tables::retained::{Offer, RetainedFragment};
use crate::wire::PublishOut;

/// Steps of a replay look at no more than this.
const MOST_WORK: usize = 1_000;
/// And send no more than so many messages.
const MOST_SENT: u64 = 128;

/// A node that has room for many retained messages.
fn with_node(seed: u64, faults: Faults, workers: u8) -> (Network, usize) {
    let mut network = Network::new(seed, faults);
    let node = network.add_node_with("", workers, |config| {
        config.retained_bytes = 1 << 28;
        config.link_queue_bytes = 1 << 17;
        config.telemetry = false;
    });
    (network, node)
}

/// Has a node keep `count` messages on `a/<number>`, each in so many bytes.
fn keep(network: &mut Network, node: usize, count: u64, bytes: usize, qos: u8) {
    let mut store = network.hosts[node].engines[0].shared.retained.lock();
    let payload = vec![1; bytes];
    for sequence in 1..=count {
        let topic = format!("a/{sequence}");
        let out = PublishOut { publisher: 77, sequence, retain: true, ..message(&topic, &payload, qos) };
        let field = publish_field(&out);
        let part = RetainedFragment {
            is_journaled: true,
            topic: &topic,
            field: &field,
            payload_is_empty: false,
            publisher: 77,
            sequence,
            expires: u64::MAX,
            fragment: None,
        };
        assert_eq!(store.offer(part), Offer::Kept);
    }
}

fn ask(network: &mut Network, node: usize, key: SessionKey, filter: &str, qos: u8) -> bool {
    let (now, home) = (network.now, usize::from(key.worker()));
    network.hosts[node].engines[home].send_retained(now, key, request(filter, qos, 1))
}

/// How often a subscriber read each topic.
fn counts(network: &Network, subscriber: usize) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for read in &network.hosts[subscriber].read {
        *counts.entry(&*read.topic).or_default() += 1;
    }
    counts
}

#[test]
fn a_subscriber_gets_all_that_is_kept_once_at_any_qos() {
    for (qos, workers) in [(0, 1), (1, 1), (2, 2)] {
        let (mut network, node) = with_node(1, Faults::default(), workers);
        keep(&mut network, node, 20_000, 30, 2);
        let subscriber = network.add_subscriber(node, "#", qos);
        let key = network.session(subscriber, node);
        assert!(ask(&mut network, node, key, "#", qos));
        assert_eq!(network.counter(node, "replays"), 1, "the first step is not all");
        network.run_until_drained();
        network.run(20 * SECOND); // Until all that came is read.
        let counts = counts(&network, subscriber);
        assert_eq!((counts.len(), counts.values().max()), (20_000, Some(&1)), "QoS {qos}");
        let sent = network.counter(node, "messages_out");
        assert_eq!((sent, network.counter(node, "replays")), (20_000, 0));
        assert!(network.hosts[subscriber].read.iter().all(|read| read.retained));
    }
}

#[test]
fn who_does_not_answer_gets_no_more_than_its_credit_and_a_part_of_its_queue() {
    let (mut network, node) = with_node(2, Faults::default(), 1);
    keep(&mut network, node, 20_000, 30, 1);
    let subscriber = network.add_subscriber_with(node, "#", 1, |config| config.receive_messages = 100);
    network.hosts[subscriber].reads = false;
    network.run(100 * MILLISECOND);
    let key = network.session(subscriber, node);
    assert!(ask(&mut network, node, key, "#", 1));
    network.run(SECOND);
    let queued = network.counter(node, "queued_messages");
    assert!((100..=100 + 10_000 / 16 + 1).contains(&queued), "{queued}");
    // It is stalled for a while, and nothing more is queued, nor dropped.
    network.run(5 * SECOND);
    assert_eq!(
        (network.counter(node, "queued_messages"), network.counter(node, "drop.queue_full")),
        (queued, 0)
    );
    network.read_all(subscriber);
    assert_eq!(counts(&network, subscriber).len(), 20_000);
    assert_eq!(network.counter(node, "messages_out"), 20_000);
}

#[test]
fn what_is_kept_meanwhile_comes_once_and_never_before_what_it_replaced() {
    for (seed, qos) in [(3, 1), (4, 2), (5, 1), (6, 2)] {
        let (mut network, node) = with_node(seed, Faults { jitter: 3_000, ..Faults::default() }, 1);
        keep(&mut network, node, 3_000, 30, 2);
        let publisher = network.add_client();
        let subscriber = network.add_subscriber_with(node, "#", qos, |config| config.receive_messages = 200);
        network.run(50 * MILLISECOND);
        let key = network.session(subscriber, node);
        assert!(ask(&mut network, node, key, "#", qos));
        let mut newest = BTreeMap::new();
        for round in 0..200_u64 {
            let topic = format!("a/{}", 1 + round * 977 % 3_000);
            let payload = if round % 5 == 4 { Vec::new() } else { round.to_be_bytes().to_vec() };
            let sent = PublishOut { retain: true, ..message(&topic, &payload, 1) };
            network.publish(publisher, &sent);
            newest.insert(topic, payload);
            network.run(2 * MILLISECOND);
        }
        network.run_until_drained();
        let mut read: BTreeMap<&str, Vec<&[u8]>> = BTreeMap::new();
        for one in &network.hosts[subscriber].read {
            read.entry(&one.topic).or_default().push(&one.payload);
        }
        assert_eq!(read.len(), 3_000);
        for (topic, payload) in &newest {
            let payloads = &read[&**topic];
            assert_eq!(payloads.last(), Some(&&**payload), "seed {seed}: {topic}");
            assert_eq!(payloads.iter().filter(|known| ***known == **payload).count(), 1);
            assert!(payloads.len() <= 2);
        }
        // Nothing went twice: not even what the client would have dropped.
        let expected: usize = read.values().map(Vec::len).sum();
        assert_eq!(network.counter(node, "messages_out"), expected as u64);
        assert!(expected < 3_200, "some replaced what had not been sent yet: {expected}");
    }
}

#[test]
fn it_goes_on_when_the_session_has_a_link_again() {
    let (mut network, node) = with_node(7, Faults::default(), 1);
    keep(&mut network, node, 20_000, 30, 1);
    let subscriber = network.add_client_with(|config| config.receive_messages = 100);
    network.listen(subscriber, 1, "#", 1);
    network.connect(subscriber, node);
    let key = network.open_session(subscriber, node, true);
    network.subscribe(subscriber, node, "#", 1, false);
    network.run(100 * MILLISECOND);
    assert!(ask(&mut network, node, key, "#", 1));
    network.run(20 * MILLISECOND);
    let read = network.hosts[subscriber].read.len();
    assert!((1..19_000).contains(&read), "{read}");
    leave(&mut network, subscriber, node);
    network.run(SECOND);
    assert_eq!(network.counter(node, "replays"), 1);
    network.connect(subscriber, node);
    network.run_until_drained();
    let counts = counts(&network, subscriber);
    assert_eq!((counts.len(), network.counter(node, "replays")), (20_000, 0));
}

#[test]
fn it_ends_with_its_subscription_and_with_its_session() {
    for ends_session in [false, true] {
        let (mut network, node) = with_node(8, Faults::default(), 1);
        keep(&mut network, node, 20_000, 30, 1);
        let subscriber = network.add_subscriber(node, "#", 1);
        let key = network.session(subscriber, node);
        assert!(ask(&mut network, node, key, "#", 1) && ask(&mut network, node, key, "a/+", 1));
        // Asked for again it begins anew, and is not there twice.
        assert!(ask(&mut network, node, key, "#", 1));
        assert_eq!(network.counter(node, "replays"), 2);
        let now = network.now;
        if ends_session {
            network.hosts[node].engines[0].end_session(now, key, Drop::SessionEnded);
            assert_eq!(network.counter(node, "replays"), 0);
        } else {
            network.hosts[node].engines[0].unsubscribe(now, "#", "", key);
            assert_eq!(network.counter(node, "replays"), 1);
            network.hosts[node].engines[0].unsubscribe(now, "a/+", "", key);
            assert_eq!(network.counter(node, "replays"), 0);
        }
        network.run_until_drained();
        assert!(network.hosts[subscriber].read.len() < 1_000);
    }
}

#[test]
fn who_has_too_many_is_told_and_the_refusal_counted() {
    let (mut network, node) = with_node(9, Faults::default(), 1);
    keep(&mut network, node, 2_000, 30, 1);
    let subscriber = network.add_client_with(|config| config.receive_messages = 1);
    network.listen(subscriber, 1, "#", 1);
    network.connect(subscriber, node);
    let key = network.open_session(subscriber, node, false);
    network.hosts[subscriber].reads = false;
    network.run(100 * MILLISECOND);
    let filter = |number| format!("a/{}/{number}/#", "x".repeat(1_000)).replace("/#", "");
    assert!(ask(&mut network, node, key, "#", 1));
    network.run(200 * MILLISECOND);
    let taken = (0..10_000).take_while(|&number| ask(&mut network, node, key, &filter(number), 1)).count();
    assert!((300..2_000).contains(&taken), "{taken}");
    assert_eq!(network.counter(node, "drop.replays_full"), 1);
    // It has what it had, and another session has room.
    assert_eq!(network.counter(node, "replays"), taken as u64 + 1);
    let other = network.add_subscriber(node, "#", 1);
    let key = network.session(other, node);
    assert!(ask(&mut network, node, key, "#", 1));
    network.run_until_drained();
    assert_eq!(counts(&network, other).len(), 2_000);
}

#[test]
fn many_who_subscribe_to_everything_take_small_turns_between_messages() {
    let (mut network, node) = with_node(10, Faults::default(), 1);
    keep(&mut network, node, 100_000, 10, 1);
    let subscribers: Vec<usize> = (0..64)
        .map(|_| network.add_subscriber_with(node, "#", 1, |config| config.receive_messages = 300))
        .collect();
    network.run(100 * MILLISECOND);
    let now = network.now;
    let keys: Vec<SessionKey> = subscribers.iter().map(|&client| network.session(client, node)).collect();
    let work = |network: &Network| network.hosts[node].engines[0].shared.retained.lock().work();
    let sent = |network: &Network| network.counter(node, "messages_out");
    for &key in &keys {
        let before = (work(&network), sent(&network));
        assert!(ask(&mut network, node, key, "#", 1));
        assert!(work(&network) - before.0 <= MOST_WORK && sent(&network) - before.1 <= MOST_SENT);
    }
    // Between two turns a publisher's message passes.
    let accepted = |network: &Network, key| network.hosts[node].engines[0].accepted(key);
    let mut turns = 0;
    while network.hosts[node].engines[0].poll_timeout().is_some_and(|due| due <= now) && turns < 300 {
        let before = (work(&network), sent(&network));
        network.hosts[node].engines[0].handle_timeout(now);
        assert!(work(&network) - before.0 <= MOST_WORK && sent(&network) - before.1 <= MOST_SENT);
        turns += 1;
        if turns % 64 == 0 {
            let had: Vec<u64> = keys.iter().map(|&key| accepted(&network, key)).collect();
            let spread = had.iter().max().expect("64") - had.iter().min().expect("64");
            assert!(spread <= MOST_SENT, "each has its turn: {had:?}");
            let message = PublishOut { retain: true, ..message("a/1", b"x", 0) };
            let engine = &mut network.hosts[node].engines[0];
            assert!(engine.publish(now, &message, bytes::Bytes::new).is_ok());
            assert!(keys.iter().zip(had).all(|(&key, had)| accepted(&network, key) == had + 1));
        }
    }
    assert!(turns > 128, "{turns}");
    network.hosts[node].engines[0].poll_transmit(now, &mut Datagrams::default());
}

#[test]
fn what_is_dropped_is_freed_in_turns_of_its_own() {
    let (mut network, node) = with_node(11, Faults::default(), 1);
    keep(&mut network, node, 5_000, 10, 1);
    let now = network.now;
    let engine = &mut network.hosts[node].engines[0];
    assert!(engine.poll_timeout().is_none_or(|due| due > now));
    let mut retained = engine.shared.retained.lock();
    let run = retained.detach("a", Some("b"));
    retained.discard(run);
    drop(retained);
    engine.tidy_retained(now);
    let mut turns = 0;
    while engine.poll_timeout().is_some_and(|due| due <= now) {
        let before = engine.shared.retained.lock().work();
        engine.handle_timeout(now);
        assert!(engine.shared.retained.lock().work() - before <= MOST_WORK);
        turns += 1;
    }
    assert!(turns > 10 && engine.shared.retained.lock().bytes() == 0, "{turns}");
}
