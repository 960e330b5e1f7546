//! Messages of `QoS` 1 and 2 that come many at once go the same way as one by one.

use rand::Rng;

use crate::engine::subscriber::batch::InboxItem;
use crate::engine::tests::network::{Faults, MILLISECOND, Network, SECOND, message};
use crate::engine::tests::sessions::{OWN, add_persistent, go_offline};
use crate::load::topics::Traffic;
use crate::wire::PublishOut;

const LOSSY: Faults = Faults { loss: 0.05, duplication: 0.05, jitter: 1_000 };

#[test]
fn each_copy_arrives_once_in_order_and_is_acknowledged() {
    for seed in 0..16 {
        let mut network = Network::new(seed, if seed % 4 < 2 { Faults::default() } else { LOSSY });
        let node = network.add_node("", 1 + (seed % 3 / 2) as u8);
        let all = network.add_subscriber(node, "t/#", 2);
        let slow = network.add_subscriber_with(node, "t/1", 1, |config| config.receive_messages = 7);
        let members = [(); 2].map(|()| network.add_member(node, "t/2", "group", 2));
        let publisher = network.add_client();
        let mut sent: [Vec<u64>; 4] = Default::default();
        for _ in 0..30 {
            let mut number = network.rng.random_range(0..4);
            let qos = network.rng.random_range(1..=2);
            for _ in 0..network.rng.random_range(1..40) {
                if network.rng.random_bool(0.1) {
                    number = network.rng.random_range(0..4);
                }
                let topic = format!("t/{number}");
                let (retain, ack_queued) = (network.rng.random_bool(0.03), network.rng.random_bool(0.03));
                let out = PublishOut { retain, ack_queued, ..message(&topic, &[7; 50], qos) };
                sent[number].push(network.publish(publisher, &out));
            }
            network.run(20 * MILLISECOND);
        }
        network.run_until_drained();
        network.assert_all_published(publisher, sent.iter().map(Vec::len).sum());
        for (number, sent) in sent.iter().enumerate() {
            let topic = format!("t/{number}");
            assert_eq!(&network.sequences(all, &topic), sent, "seed {seed}, {topic}");
            let mut shared: Vec<u64> =
                members.iter().flat_map(|&member| network.sequences(member, &topic)).collect();
            shared.sort_unstable();
            assert_eq!(&shared, if number == 2 { sent } else { &[][..] }, "seed {seed}");
            let slow = network.sequences(slow, &topic);
            assert_eq!(&slow, if number == 1 { sent } else { &[][..] }, "seed {seed}");
            let (count, copies) = (sent.len() as u64, (sent.len() + shared.len() + slow.len()) as u64);
            let expected = Traffic::of_small(count, 50 * count, copies, 50 * copies);
            assert_eq!(network.counted(node, &topic).0, expected, "seed {seed}, {topic}");
        }
    }
}

#[test]
fn what_comes_together_stays_together_where_its_link_takes_all_of_it() {
    for (credit, records, flying) in [(4_096, 1, 8), (5, 5, 5)] {
        let (mut network, node) = Network::with_node(3, 1);
        network.add_subscriber_with(node, "t", 1, |config| {
            (config.hold, config.receive_messages) = (true, credit);
        });
        let publisher = network.add_client();
        network.publish(publisher, &message("t", b"first", 0));
        network.run(100 * MILLISECOND);
        (0..8).for_each(|_| _ = network.publish(publisher, &message("t", &[7; 50], 1)));
        network.run(100 * MILLISECOND);
        let sessions = &network.hosts[node].engines[0].out.sessions;
        let session = sessions.iter().next().expect("it subscribed");
        assert_eq!((session.records_in_flight(), session.credit_used().0), (records, flying));
        assert_eq!(session.queue.loaded(), 8 - flying as usize);
    }
}

#[test]
fn each_is_acknowledged_for_itself() {
    for qos in 1..=2 {
        let (mut network, node) = Network::with_node(7, 1);
        network.add_subscriber(node, "t", 2);
        let holder = network.add_subscriber_with(node, "t", 2, |config| config.hold = true);
        let publisher = network.add_client();
        let first = network.publish(publisher, &message("t", b"first", 0));
        network.run(100 * MILLISECOND);
        let sent: Vec<u64> =
            (0..8).map(|_| network.publish(publisher, &message("t", &[7; 50], qos))).collect();
        network.run(100 * MILLISECOND);
        assert!(network.hosts[publisher].published.is_empty());
        let id = network.hosts[publisher].engines[0].config.publisher();
        let mut expected = Vec::new();
        for positions in [&[3, 4][..], &[0], &[7, 6], &[1, 2, 5]] {
            let handled: Vec<_> = positions.iter().map(|&position: &usize| (id, sent[position])).collect();
            network.hosts[holder].engines[0].handled(&handled);
            network.run(100 * MILLISECOND);
            expected.extend(positions.iter().map(|&position| sent[position]));
            expected.sort_unstable();
            assert!(network.hosts[publisher].published.keys().eq(&expected), "QoS {qos}");
        }
        assert!(first < sent[0]);
        network.run(SECOND);
        network.run_until_drained();
    }
}

/// A reader that does not read by itself has these messages, which came together; a publisher of so many.
fn unread(count: u8) -> (Network, usize, usize, usize) {
    let (mut network, node) = Network::with_node(1, 1);
    let reader = add_persistent(&mut network, node, "t", 1, OWN);
    network.hosts[reader].reads = false;
    let publisher = network.add_client();
    // The first one opens the link.
    for number in 0..count {
        network.publish(publisher, &message("t", &[number], 1));
        network.run(if number == 0 { SECOND } else { 0 });
    }
    network.run(SECOND);
    (network, node, reader, publisher)
}

#[test]
fn of_messages_that_came_together_those_that_were_read_are_acknowledged() {
    let (mut network, _, reader, publisher) = unread(30);
    assert!(network.hosts[publisher].published.is_empty());
    let mut payloads = Vec::new();
    for limit in [5, 1, 2] {
        for message in network.take_messages(reader, limit) {
            assert_eq!(
                (message.qos, message.is_retained(), &message.subscriptions[..]),
                (1, false, &[1][..])
            );
            payloads.extend_from_slice(message.view().payload);
        }
        network.run(100 * MILLISECOND);
        assert_eq!(network.hosts[publisher].published.len(), payloads.len());
    }
    let now = network.now;
    let items = network.hosts[reader].engines[0].take_inbox_items(now, 1);
    assert!(
        matches!(&items[..], [InboxItem::ReceivedBatch(received_batch)] if received_batch.len() == 22),
        "the rest is together"
    );
    items.iter().for_each(|item| item.tell_payloads(|payload| payloads.extend_from_slice(payload)));
    network.run(SECOND);
    assert_eq!(payloads, (0..30).collect::<Vec<u8>>());
    network.assert_all_published(publisher, 30);
    assert!(!network.hosts[reader].engines[0].has_messages());
}

#[test]
fn what_came_over_a_link_that_is_gone_is_acknowledged_over_no_other() {
    let (mut network, node, reader, _) = unread(30);
    let take = |network: &mut Network, limit| {
        let read = network.take_messages(reader, limit).len();
        network.run(SECOND);
        read
    };
    let reconnect = |network: &mut Network| {
        go_offline(network, node, reader);
        network.connect(reader, node);
        network.run(SECOND);
    };
    assert_eq!(take(&mut network, 10), 10);
    reconnect(&mut network);
    assert_eq!(take(&mut network, 20), 20);
    reconnect(&mut network);
    assert_eq!(take(&mut network, 100), 40, "their owner cannot know that those 20 were read");
    reconnect(&mut network);
    assert_eq!(take(&mut network, 100), 0, "what came over the link that there is was acknowledged");
}

#[test]
fn what_came_together_to_a_member_that_leaves_goes_to_another() {
    let (mut network, node) = Network::with_node(5, 1);
    let members = [(); 2].map(|()| network.add_member(node, "a", "g", 1));
    members.iter().for_each(|&member| network.hosts[member].reads = false);
    let publisher = network.add_client();
    let mut sent: Vec<u64> = (0..60).map(|_| network.publish(publisher, &message("a", b"x", 1))).collect();
    network.run(SECOND);
    let now = network.now;
    let read = network.take_messages(members[0], 3);
    let read: Vec<u64> = read.iter().map(|message| message.view().sequence).collect();
    let session = network.session(members[0], node);
    let leaver = &mut network.hosts[members[0]].engines[0];
    leaver.set_leaving(true);
    leaver.unlisten(now, 1, true);
    assert!(!leaver.has_messages(), "what it had not read is not for it any more");
    network.run(SECOND);
    assert_eq!(network.hosts[publisher].published.len(), read.len());
    let now = network.now;
    assert!(network.hosts[node].engines[0].unsubscribe(now, "a", "g", session));
    network.run(SECOND);
    network.hosts[members[0]].engines[0].set_leaving(false);
    network.hosts[members[1]].reads = true;
    network.run_until_drained();
    network.assert_all_published(publisher, 60);
    sent.retain(|sequence| !read.contains(sequence));
    let mut others = network.sequences(members[1], "a");
    others.sort_unstable();
    assert_eq!((read.len(), others), (3, sent));
}
