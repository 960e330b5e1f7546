//! Messages that are only said to be like the one before them (§2.4) are the messages that they would be said whole.

use rand::Rng;

use crate::Micros;
use crate::engine::subscriber::batch::InboxItem;
use crate::engine::tests::network::{MILLISECOND, Network, SECOND, message};
use crate::engine::tests::workers::Apart;
use crate::engine::transport::copy_batch::MOST_BYTES;
use crate::engine::transport::event::Message;
use crate::wire::{self, HeaderOut, PublishOut};

/// What a subscriber knows of a message.
type Known = (String, Vec<u8>, (u64, u64), Micros, u64);

fn known(message: &Message) -> Known {
    let publish = message.view();
    let id = message.id(&publish);
    (
        publish.topic.to_owned(),
        message.payload(&publish).to_vec(),
        id,
        publish.published_at_us,
        publish.origin,
    )
}

/// Publishes many at once, and says what each subscriber is to know of them.
fn burst(network: &mut Network, publisher: usize, count: usize, topics: &[&str], size: usize) -> Vec<Known> {
    let id = network.hosts[publisher].engines[0].config.publisher();
    let published_at_us = network.now;
    let origin = network.rng.random_range(0..2) * 7;
    let mut topic = topics[0];
    let mut sent = Vec::new();
    for _ in 0..count {
        if network.rng.random_bool(0.05) {
            topic = topics[network.rng.random_range(0..topics.len())];
        }
        let size = if network.rng.random_bool(0.9) { size } else { network.rng.random_range(1..2 * size) };
        let payload = vec![network.rng.random(); size];
        let rarely = network.rng.random_bool(0.02);
        let out = PublishOut {
            published_at_us,
            origin,
            expiry_s: rarely.then_some(3_600),
            ..message(topic, &payload, 0)
        };
        let sequence = network.publish(publisher, &out);
        sent.push((topic.to_owned(), payload.clone(), (id, sequence), published_at_us, origin));
    }
    sent
}

#[test]
fn every_subscriber_gets_what_was_published_whatever_its_path_carries() {
    for seed in 0..30 {
        let (mut network, node) = Network::with_node(seed, 1 + (seed % 2) as u8);
        let all = network.add_subscriber(node, "t/#", 0);
        let one = network.add_subscriber(node, "t/1", 1);
        let members = [(); 2].map(|()| network.add_member(node, "t/2", "group", 0));
        let narrow = network.add_subscriber_with(node, "t/#", 0, |config| config.max_datagram = 1_232);
        let readers = [all, one, narrow, members[0], members[1]];
        readers.iter().for_each(|&reader| network.hosts[reader].reads = false);
        let publisher =
            network.add_client_with(|config| config.max_datagram = [1_232, 8_952][seed as usize / 2 % 2]);
        let mut sent = Vec::new();
        for _ in 0..20 {
            let count = network.rng.random_range(1..120);
            sent.extend(burst(&mut network, publisher, count, &["t/0", "t/1", "t/2"], 60));
            network.run(50 * MILLISECOND);
        }
        network.run(SECOND);
        let came: Vec<Vec<Known>> = readers
            .iter()
            .map(|&reader| {
                let (engine, now) = (&mut network.hosts[reader].engines[0], network.now);
                // By letters, or one by one.
                let messages: Vec<Message> = if seed % 3 == 0 {
                    engine
                        .take_inbox_items(now, usize::MAX)
                        .into_iter()
                        .flat_map(InboxItem::into_messages)
                        .collect()
                } else {
                    std::iter::from_fn(|| engine.take_messages(now, 3).into())
                        .take_while(|some: &Vec<_>| !some.is_empty())
                        .flatten()
                        .collect()
                };
                messages.iter().map(known).collect()
            })
            .collect();
        let of = |topic: &str| sent.iter().filter(|known| known.0 == topic).cloned().collect::<Vec<_>>();
        let in_order = |mut some: Vec<Known>, publishers_order: bool| {
            if !publishers_order {
                some.sort_by_key(|known| known.2);
            }
            some
        };
        // Messages that expire go by themselves, so topics may pass each other there.
        for topic in ["t/0", "t/1", "t/2"] {
            for reader in [0, 2] {
                let got: Vec<_> = came[reader].iter().filter(|known| known.0 == topic).cloned().collect();
                assert_eq!(got, of(topic), "seed {seed}, {topic}");
            }
        }
        assert_eq!(came[1], of("t/1"), "seed {seed}");
        assert_eq!(in_order([&came[3][..], &came[4][..]].concat(), false), of("t/2"), "seed {seed}");
        let (bytes, count) = (network.counter(node, "bytes_in"), sent.len() as u64);
        assert!(bytes < 88 * count, "seed {seed}: {} bytes for each message", bytes / count);
    }
}

/// Whoever sends them larger than this implementation does: such a run goes to another worker one by one.
#[test]
fn a_batch_of_more_bytes_than_go_to_another_worker_together_is_sent_whole() {
    for size in [20, 300] {
        let mut apart = Apart::new(0, 4_096);
        let count = 3 * MOST_BYTES / size / 2;
        let mut datagram = Vec::new();
        let config = &apart.network.hosts[apart.publisher].engines[0].config;
        let (session, incarnation, publisher) = (config.session, config.incarnation, config.publisher());
        wire::put_header(
            &mut datagram,
            &HeaderOut { session, incarnation, number: 5_000, ..HeaderOut::default() },
        );
        let mut field = Vec::new();
        let first = PublishOut { publisher, sequence: 100, ..message("t", b"first", 0) };
        wire::put_publish_field(&mut field, &first);
        wire::put_packet(&mut datagram, 0, 0, None, &field);
        (0..count).for_each(|_| wire::put_delta(&mut datagram, &vec![7; size]));
        apart.receive(&datagram);
        apart.network.run(SECOND);
        let expected: Vec<u64> = (100..=100 + count as u64).collect();
        assert_eq!(apart.network.sequences(apart.subscriber, "t"), expected, "{size}");
    }
}

#[test]
fn what_is_like_nothing_is_dropped_and_counted() {
    let mut apart = Apart::new(0, 4_096);
    let config = &apart.network.hosts[apart.publisher].engines[0].config;
    let (session, incarnation) = (config.session, config.incarnation);
    let mut datagram = Vec::new();
    wire::put_header(
        &mut datagram,
        &HeaderOut { session, incarnation, number: 5_000, ..HeaderOut::default() },
    );
    (0..9).for_each(|_| wire::put_delta(&mut datagram, b"1"));
    let before = apart.network.counter(apart.node, "drop.unexpected_packet");
    apart.receive(&datagram);
    assert_eq!(apart.network.counter(apart.node, "drop.unexpected_packet") - before, 9);
    assert_eq!(apart.handed().len(), 0);
}
