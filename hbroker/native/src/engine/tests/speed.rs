//! The owner's path, measured: from a datagram in to the datagrams out. And the publisher's: from `publish` to the PUBACK.
//!
//! `cargo test --release -p hbroker-native path_time -- --ignored --nocapture`

use std::time::{Duration, Instant};

use crate::engine::tests::network::{MILLISECOND, Network, SECOND, message};
use crate::load::Load;

const CLIENTS: usize = 8;
/// One message of so many is timed.
const TIMED_OF: u32 = 256;
const ROUNDS: usize = 2_000;
/// Messages published at once by each: they leave in full bundles.
const BATCH: usize = 20;

/// Nanoseconds for each message delivered, at a node with as many publishers as subscribers.
fn owner_path(qos: u8) -> f64 {
    let (mut network, node) = Network::with_node(1, 1);
    let subscribers: Vec<usize> =
        (0..CLIENTS).map(|index| network.add_subscriber(node, TOPICS[index], qos)).collect();
    let publishers: Vec<usize> = (0..CLIENTS).map(|_| network.add_client()).collect();
    for (&publisher, topic) in publishers.iter().zip(TOPICS) {
        network.publish(publisher, &message(topic, b"first", qos));
    }
    network.run(SECOND);
    // As a node does under load.
    network.hosts[node].engines[0].exchange_load(&mut Load::new(), TIMED_OF);
    network.timed = Some(node);
    let before = network.counter(node, "messages_out");
    for _ in 0..ROUNDS {
        for (&publisher, topic) in publishers.iter().zip(TOPICS) {
            (0..BATCH).for_each(|_| _ = network.publish(publisher, &message(topic, &[5; 100], qos)));
        }
        network.run(10 * MILLISECOND);
    }
    let delivered = network.counter(node, "messages_out") - before;
    assert!(delivered as usize >= CLIENTS * ROUNDS * BATCH * 9 / 10, "{delivered}");
    assert!(subscribers.iter().all(|&subscriber| network.hosts[subscriber].read.len() > ROUNDS * BATCH / 2));
    network.spent.as_nanos() as f64 / delivered as f64
}

const TOPICS: [&str; CLIENTS] = [
    "home/a/temperature",
    "home/b/temperature",
    "home/c/temperature",
    "home/d/temperature",
    "home/e/temperature",
    "home/f/temperature",
    "home/g/temperature",
    "home/h/temperature",
];

/// Nanoseconds for each message published, at a client with messages on all topics.
fn publisher_path(qos: u8) -> f64 {
    let (mut network, node) = Network::with_node(1, 1);
    network.add_subscriber(node, "home/#", qos);
    let publisher = network.add_client();
    network.publish(publisher, &message(TOPICS[0], b"first", qos));
    network.run(SECOND);
    network.timed = Some(publisher);
    let mut publishing = Duration::ZERO;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for topic in TOPICS {
            (0..BATCH).for_each(|_| _ = network.publish(publisher, &message(topic, &[5; 100], qos)));
        }
        publishing += start.elapsed();
        network.run(10 * MILLISECOND);
    }
    network.run(SECOND);
    let published = network.hosts[publisher].published.len();
    assert!(qos == 0 || published == CLIENTS * ROUNDS * BATCH + 1, "{published}");
    (publishing + network.spent).as_nanos() as f64 / (CLIENTS * ROUNDS * BATCH) as f64
}

#[test]
#[ignore = "a measurement"]
fn path_time() {
    for (name, path) in [("owner", owner_path as fn(u8) -> f64), ("publisher", publisher_path)] {
        for qos in 0..=2 {
            let nanoseconds = path(qos);
            // One message took this long in and out together; the measurement fails only if it is absurd.
            assert!(nanoseconds < 100_000.0, "{name}, QoS {qos}: {nanoseconds:.0} ns for each message");
            std::io::Write::write_fmt(
                &mut std::io::stdout(),
                format_args!("{name}, QoS {qos}: {nanoseconds:.0} ns for each message\n"),
            )
            .expect("stdout takes it");
        }
    }
}
