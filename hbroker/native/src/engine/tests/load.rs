//! What a node says of its topics is what passed, and how long that took.

use rand::Rng;

use crate::engine::tests::network::{Faults, MILLISECOND, Network, SECOND, message};
use crate::load::topics::Traffic;

#[test]
fn every_message_and_every_copy_is_counted_under_its_topic() {
    for seed in 0..6 {
        for workers in [1, 3] {
            let (mut network, node) =
                Network::with_faults(seed, Faults { loss: 0.05, duplication: 0.05, jitter: 1_000 }, workers);
            let subscribers: Vec<usize> = (0..3).map(|_| network.add_subscriber(node, "t/#", 2)).collect();
            let publisher = network.add_client();
            let mut sent = [0u64; 5];
            for _ in 0..200 {
                let number = network.rng.random_range(0..5);
                let qos = network.rng.random_range(1..=2);
                sent[number] += 1;
                network.publish(publisher, &message(&format!("t/{number}"), &vec![7; 10 * number], qos));
                network.run(MILLISECOND);
            }
            network.run_until_drained();
            for (number, sent) in sent.into_iter().enumerate() {
                let topic = format!("t/{number}");
                let arrived: usize =
                    subscribers.iter().map(|&subscriber| network.sequences(subscriber, &topic).len()).sum();
                let bytes = 10 * number as u64;
                let expected = Traffic::of_small(sent, bytes * sent, 3 * sent, bytes * 3 * sent);
                let (counted, _) = network.counted(node, &topic);
                assert_eq!((counted, arrived as u64), (expected, 3 * sent), "seed {seed}, {workers} workers");
            }
            let (_, timed) = network.counted(node, "t/0");
            assert_eq!(timed, 200, "each of them, once");
        }
    }
}

#[test]
fn a_large_message_is_counted_once_beside_its_fragments() {
    for seed in 0..4 {
        for workers in [1, 3] {
            let (mut network, node) =
                Network::with_faults(seed, Faults { loss: 0.03, duplication: 0.03, jitter: 1_000 }, workers);
            let subscribers: Vec<usize> = (0..3).map(|_| network.add_subscriber(node, "t/#", 2)).collect();
            let publisher = network.add_client();
            let (mut sent, mut bytes) = (0u64, 0u64);
            for number in 0..40 {
                let length = if number % 4 == 0 { network.rng.random_range(5_000..40_000) } else { 30 };
                let qos = network.rng.random_range(1..=2);
                (sent, bytes) = (sent + 1, bytes + length as u64);
                network.publish(publisher, &message("t/camera", &vec![7; length], qos));
                network.run(20 * MILLISECOND);
            }
            network.run_until_drained();
            let (counted, _) = network.counted(node, "t/camera");
            assert!(counted.messages_in > 2 * sent, "{counted:?}");
            assert_eq!((counted.whole_in, counted.bytes_in), (sent, bytes), "seed {seed}, {workers} workers");
            let copies = subscribers.len() as u64;
            assert_eq!(counted.messages_out, copies * counted.messages_in);
            assert_eq!((counted.whole_out, counted.bytes_out), (copies * sent, copies * bytes));
        }
    }
}

#[test]
fn a_copy_that_waited_is_counted_when_it_leaves() {
    let (mut network, node) = Network::with_node(1, 1);
    let reader = network.add_client();
    network.listen(reader, 1, "t", 1);
    network.connect(reader, node);
    network.open_session(reader, node, true);
    network.subscribe(reader, node, "t", 1, false);
    network.parted = Some((reader, node));
    network.run(40 * SECOND);
    let publisher = network.add_client();
    network.publish_times(publisher, 5, &message("t", b"four", 1));
    network.run(SECOND);
    let taken = Traffic::of_small(5, 20, 0, 0);
    assert_eq!(network.counted(node, "t"), (taken, 0));
    network.parted = None;
    network.connect(reader, node);
    network.run_until_drained();
    let (counted, timed) = network.counted(node, "t");
    assert_eq!(network.sequences(reader, "t").len(), 5);
    assert_eq!((counted, timed), (Traffic::of_small(5, 20, 5, 20), 5));
}

#[test]
fn what_is_refused_did_not_come_in() {
    let mut network = Network::new(2, Faults::default());
    let old = network.add_node("", 1);
    let publisher = network.add_client();
    network.publish(publisher, &message("moved/a", b"1", 1));
    network.run_until_drained();
    let new = network.add_node("moved", 1);
    network.cut(old, "moved", new);
    network.publish(publisher, &message("moved/a", b"22", 1));
    network.run_until_drained();
    let of = |messages_in, bytes_in| Traffic::of_small(messages_in, bytes_in, 0, 0);
    assert_eq!(network.counted(old, "moved/a").0, of(1, 1));
    assert_eq!(network.counted(new, "moved/a").0, of(1, 2));
}

#[test]
fn without_telemetry_nothing_is_kept() {
    let (mut network, node) = Network::with_node(3, 1);
    network.hosts[node].engines[0].out.load = None;
    let subscriber = network.add_subscriber(node, "t", 1);
    let publisher = network.add_client();
    network.publish(publisher, &message("t", b"x", 1));
    network.run_until_drained();
    assert_eq!(network.sequences(subscriber, "t").len(), 1);
    assert_eq!(network.counted(node, "t"), (Traffic::default(), 0));
}
