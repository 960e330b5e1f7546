//! Messages of `QoS` 0 that come many at once go the same way as one by one.

use rand::Rng;

use crate::engine::subscriber::batch::InboxItem;
use crate::engine::tests::network::{MILLISECOND, Network, SECOND, message, publish_field};
use crate::engine::transport::event::Message;
use crate::engine::transport::publish_batch::PublishBatch;
use crate::load::topics::Traffic;
use crate::wire::{self, DatagramView, PublishOut};

/// Of so many messages not all find room while a link is cut.
const TOO_MANY: u64 = 60_000;

#[test]
fn each_copy_arrives_once_in_order_and_is_counted() {
    for seed in 0..20 {
        let (mut network, node) = Network::with_node(seed, 1 + (seed % 2) as u8);
        let all = network.add_subscriber(node, "t/#", 0);
        let one = network.add_subscriber(node, "t/1", 2);
        let members = [(); 2].map(|()| network.add_member(node, "t/2", "group", 1));
        let publisher = network.add_client();
        network.listen(publisher, 1, "t/#", 0);
        network.connect(publisher, node);
        network.open_session(publisher, node, false);
        network.subscribe(publisher, node, "t/#", 0, true);
        let mut sent: [Vec<u64>; 4] = Default::default();
        for _ in 0..100 {
            let mut number = network.rng.random_range(0..4);
            for _ in 0..network.rng.random_range(1..40) {
                if network.rng.random_bool(0.2) {
                    number = network.rng.random_range(0..4);
                }
                let topic = format!("t/{number}");
                let (retain, expires) = (network.rng.random_bool(0.05), network.rng.random_bool(0.05));
                let expiry_s = expires.then_some(3_600);
                let out = PublishOut { retain, expiry_s, ..message(&topic, &[7; 50], 0) };
                sent[number].push(network.publish(publisher, &out));
            }
            network.run(20 * MILLISECOND);
        }
        network.run(SECOND);
        for (number, sent) in sent.iter().enumerate() {
            let topic = format!("t/{number}");
            assert_eq!(&network.sequences(all, &topic), sent, "seed {seed}, {topic}");
            let extra: Vec<u64> = match number {
                1 => network.sequences(one, &topic),
                2 => {
                    let mut shared: Vec<u64> =
                        members.iter().flat_map(|&member| network.sequences(member, &topic)).collect();
                    shared.sort_unstable();
                    shared
                }
                _ => Vec::new(),
            };
            assert_eq!(extra, if number == 1 || number == 2 { sent.clone() } else { Vec::new() });
            let (count, copies) = (sent.len() as u64, (sent.len() + extra.len()) as u64);
            let expected = Traffic::of_small(count, 50 * count, copies, 50 * copies);
            assert_eq!(network.counted(node, &topic).0, expected, "seed {seed}, {topic}");
            assert_eq!(network.sequences(publisher, &topic), [0; 0], "its own are not for it");
        }
    }
}

#[test]
fn messages_with_something_between_them_are_no_batch_and_are_looked_at_once() {
    let mut datagram = Vec::new();
    for sequence in 0..100 {
        let field = publish_field(&PublishOut { sequence, ..message("t", b"1", 0) });
        wire::put_packet(&mut datagram, 0, 0, None, &field);
        wire::put_padding(&mut datagram, 2);
    }
    let view = DatagramView::parse(&datagram).unwrap();
    assert_eq!(PublishBatch::at(view.packets()).err(), Some(100));
    assert_eq!(PublishBatch::at(view.packets().skip(99)).err(), Some(1));
    assert_eq!(PublishBatch::at(view.packets().skip(100)).err(), Some(1));
}

/// Whoever takes them together gets the very messages that others get one by one, and knows which say nothing but their payloads.
#[test]
fn what_came_together_is_taken_together_or_one_by_one() {
    let (mut network, node) = Network::with_node(1, 1);
    let readers = [(); 2].map(|()| network.add_subscriber(node, "t/#", 0));
    readers.iter().for_each(|&reader| network.hosts[reader].reads = false);
    let publisher = network.add_client();
    for round in 0..60 {
        for number in 0..network.rng.random_range(1..12_u8) {
            let topic = if network.rng.random_bool(0.1) { "t/rare" } else { "t/often" };
            let payload = vec![number; network.rng.random_range(0..60)];
            // In every third round some say more, in every fifth somebody else says something.
            let content_type = if round % 3 == 0 && number % 4 == 3 { "text" } else { "" };
            let origin = u64::from(round % 5 == 0 && number % 2 == 1);
            network.publish(publisher, &PublishOut { content_type, origin, ..message(topic, &payload, 0) });
        }
        network.run(20 * MILLISECOND);
    }
    network.run(SECOND);
    let now = network.now;
    let mut singly = Vec::new();
    while network.hosts[readers[0]].engines[0].has_messages() {
        let taken = network.take_messages(readers[0], 7);
        assert!(!taken.is_empty() && taken.len() <= 7);
        singly.extend(taken);
    }
    let (mut together, mut bare) = (Vec::new(), [0; 2]);
    while network.hosts[readers[1]].engines[0].has_messages() {
        for item in network.hosts[readers[1]].engines[0].take_inbox_items(now, 7) {
            let (count, bytes) = (item.len(), item.bytes());
            let received_batch = if let InboxItem::ReceivedBatch(received_batch) = &item {
                Some(received_batch.clone())
            } else {
                None
            };
            let messages: Vec<_> = item.into_messages().collect();
            assert_eq!(
                (messages.len(), messages.iter().map(|message| message.bytes()).sum()),
                (count, bytes)
            );
            if let Some(received_batch) = received_batch {
                assert!(messages.iter().all(|message| message.view().topic == received_batch.topic()));
                let payloads: Vec<_> = messages.iter().map(|message| message.view().payload).collect();
                assert_eq!(received_batch.payloads().collect::<Vec<_>>(), payloads);
                let origins: Vec<_> = messages.iter().map(|message| message.view().origin).collect();
                let says_more = messages.iter().any(|message| message.view().has_properties);
                let is_bare = !says_more && origins.iter().all(|origin| *origin == origins[0]);
                assert_eq!(received_batch.origin, is_bare.then_some(origins[0]));
                bare[usize::from(is_bare)] += 1;
            }
            together.extend(messages);
        }
    }
    assert!(bare.iter().all(|count| *count > 5), "{bare:?}");
    let bytes = |messages: &[Message]| messages.iter().map(|one| one.publish.clone()).collect::<Vec<_>>();
    assert_eq!(bytes(&singly), bytes(&together));
}

#[test]
fn what_an_application_does_not_read_is_counted_once_its_inbox_is_full() {
    let (mut network, node) = Network::with_node(1, 1);
    let reader = network.add_subscriber_with(node, "t", 0, |config| config.message_queue_bytes = 10_000);
    network.hosts[reader].reads = false;
    let publisher = network.add_client();
    let sent: Vec<u64> = (0..200)
        .map(|number| {
            network.run(if number % 20 == 0 { SECOND } else { 0 });
            network.publish(publisher, &message("t", &[7; 100], 0))
        })
        .collect();
    network.run(SECOND);
    let (taken, full) = (network.counter(reader, "messages_in"), network.counter(reader, "drop.inbox_full"));
    assert!(full > 0 && taken + full == 200, "{taken} were taken, {full} found no room");
    network.hosts[reader].reads = true;
    network.run(SECOND);
    assert_eq!(network.sequences(reader, "t"), sent[..taken as usize]);
}

#[test]
fn what_finds_no_room_or_nobody_is_counted() {
    let (mut network, node) = Network::with_node(1, 1);
    let reader = network.add_subscriber(node, "t", 0);
    let publisher = network.add_client();
    network.publish(publisher, &message("t", b"first", 0));
    network.run(SECOND);
    network.parted = Some((reader, node));
    for _ in 0..TOO_MANY / 60 {
        (0..60).for_each(|_| _ = network.publish(publisher, &message("t", &[7; 300], 0)));
        network.run(MILLISECOND);
    }
    let full = network.counter(node, "drop.queue_full");
    let offline = network.counter(node, "drop.offline");
    let (taken, out) = (network.counter(node, "messages_in"), network.counter(node, "messages_out"));
    assert!(full > 0 && taken > TOO_MANY / 2, "{full} found no room, of {taken}");
    assert_eq!(out + full + offline, taken, "each is counted once");
    let (counted, _) = network.counted(node, "t");
    assert_eq!((counted.messages_in, counted.messages_out), (taken, out));
}
