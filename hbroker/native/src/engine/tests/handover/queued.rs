//! A subtree moves with what waits in it: nothing is lost, and at QoS 2 nothing comes twice, whoever was offline or slow meanwhile.

use std::collections::BTreeSet;

use super::{export, export_queued, import, leave, subscribe_persistently, unanswered_within};
use crate::engine::handover::held_queues::HeldQueues;
use crate::engine::tests::network::{Faults, GRANT, MILLISECOND, Network, SECOND, message, publish_field};
use crate::schema::reason;
use crate::tables::jurisdiction::Grant;
use crate::topic::Region;
use crate::wire::{PublishOut, QueuedRecord, SeenRecord, Transfers};

/// Publishes, two messages a millisecond.
pub fn publish_for(network: &mut Network, publisher: usize, count: usize, qos: u8) {
    publish_together(network, publisher, count, 1, qos);
}

/// So many at a time.
fn publish_together(network: &mut Network, publisher: usize, count: usize, together: usize, qos: u8) {
    for number in 1..=count {
        network.publish(publisher, &message("b/topic", b"x", qos));
        if number.is_multiple_of(together) {
            network.run(MILLISECOND / 2);
        }
    }
}

fn assert_has_all(network: &Network, subscriber: usize, count: u64, qos: u8, what: &str) {
    let sequences = network.sequences(subscriber, "b/topic");
    assert_eq!(sequences.iter().copied().collect::<BTreeSet<_>>(), (1..=count).collect(), "{what}");
    assert!(qos == 1 || sequences.len() as u64 == count, "{what}: {} at QoS 2", sequences.len());
}

#[test]
fn what_waits_for_sessions_and_what_was_seen_moves() {
    let networks = [(1, 1, 1, 1), (2, 1, 1, 2), (3, 2, 3, 1), (4, 3, 2, 2), (5, 1, 3, 2), (6, 2, 1, 2)];
    for ((seed, from, to, qos), together) in networks.into_iter().flat_map(|one| [(one, 1), (one, 15)]) {
        let mut network = Network::new(seed, Faults { loss: 0.05, duplication: 0.05, jitter: 2_000 });
        let (old, new) = (network.add_node("", from), network.add_node("elsewhere", to));
        let quick = network.add_subscriber(old, "b/#", 2);
        let [offline, slow] = [(); 2].map(|()| {
            let client = network.add_client();
            network.listen(client, 1, "b/#", 2);
            subscribe_persistently(&mut network, client, old, "b/#");
            client
        });
        leave(&mut network, offline, old);
        network.hosts[slow].reads = false;
        let publisher = network.add_client();
        publish_together(&mut network, publisher, 60, together, qos);
        // The slow one counts as offline now: nobody waits for it any more, so its messages are the owner's alone.
        network.run(4 * SECOND);
        assert_eq!(network.hosts[publisher].published.len(), 60, "seed {seed}");
        publish_together(&mut network, publisher, 30, together, qos);

        network.subscribe_anew(quick, new, "b/#", 2);
        for client in [offline, slow] {
            subscribe_persistently(&mut network, client, new, "b/#");
        }
        leave(&mut network, offline, new);
        network.grant(new, "b", Grant { epoch: 2, serving: false, ..GRANT });
        network.cut(old, "b", new);
        publish_together(&mut network, publisher, 30, together, qos);
        let (queued, seen) = export(&mut network, old, "b");
        // For the one that is offline and for the slow one, who has them and did not answer.
        assert_eq!((queued.len(), seen.is_empty()), (180, qos == 1), "seed {seed}");
        assert_eq!(import(&mut network, new, &queued, &seen), 0);
        network.grant(new, "b", Grant { epoch: 2, ..GRANT });
        publish_together(&mut network, publisher, 30, together, qos);
        network.hosts[slow].reads = true;
        network.connect(offline, new);
        network.run_until_drained();

        network.assert_all_published(publisher, 150);
        for (subscriber, who) in [(quick, "quick"), (offline, "offline"), (slow, "slow")] {
            assert_has_all(&network, subscriber, 150, qos, &format!("{who}, seed {seed}"));
        }
        assert_eq!(network.counter(old, "drop.moved"), 180);
        assert_eq!(export(&mut network, old, "b").0.len(), 0, "nothing is left");
    }
}

#[test]
fn an_open_message_is_sent_again_and_taken_for_new() {
    let mut network = Network::new(7, Faults::default());
    let (old, new) = (network.add_node("", 2), network.add_node("elsewhere", 1));
    let subscriber = network.add_idle_subscriber(old, "b/#", 2);
    let publisher = network.add_client();
    publish_for(&mut network, publisher, 5, 2);
    network.run(10 * MILLISECOND);
    assert_eq!(unanswered_within(&mut network, old, "b"), 5);
    network.subscribe_anew(subscriber, new, "b/#", 2);
    network.cut(old, "b", new);
    let (queued, seen) = export(&mut network, old, "b");
    assert!(queued.is_empty() && seen.is_empty(), "its publisher has them all");
    import(&mut network, new, &queued, &seen);
    network.grant(new, "b", Grant { epoch: 2, ..GRANT });
    network.run(SECOND);
    assert_eq!(network.counter(new, "messages_in"), 5, "they came to the new owner");
    network.read_all(subscriber);
    network.assert_all_published(publisher, 5);
    assert_has_all(&network, subscriber, 5, 2, "the subscriber");
}

#[test]
fn what_a_subscriber_is_about_to_answer_is_waited_for() {
    let mut network = Network::new(8, Faults::default());
    let (old, new) = (network.add_node("", 2), network.add_node("elsewhere", 1));
    let subscriber = network.add_client();
    network.listen(subscriber, 1, "b/#", 2);
    for node in [old, new] {
        subscribe_persistently(&mut network, subscriber, node, "b/#");
    }
    leave(&mut network, subscriber, old);
    let publisher = network.add_client();
    publish_for(&mut network, publisher, 5, 1);
    network.run(SECOND);
    network.assert_all_published(publisher, 5);
    assert_eq!(unanswered_within(&mut network, old, "b"), 0, "it is offline, and nobody waits for it");
    network.hosts[subscriber].reads = false;
    network.connect(subscriber, old);
    network.run(10 * MILLISECOND);
    let all_but = Region { subtree: "b", excluded: &["b/topic".to_owned()] };
    assert_eq!(unanswered_within(&mut network, old, all_but), 0);
    assert_eq!(
        unanswered_within(&mut network, old, "b"),
        5,
        "it has them, and the next owner would send them again"
    );
    network.hosts[subscriber].reads = true;
    network.run(10 * MILLISECOND);
    assert_eq!(unanswered_within(&mut network, old, "b"), 0);
    assert!(export(&mut network, old, "b").0.is_empty(), "nothing would come twice");
    network.hosts[subscriber].reads = false;
    publish_for(&mut network, publisher, 5, 1);
    network.run(4 * SECOND);
    assert_eq!(unanswered_within(&mut network, old, "b"), 0, "it does not answer, and nobody waits for it");
    assert_eq!(export(&mut network, old, "b").0.len(), 5);
}

#[test]
fn what_was_acknowledged_comes_before_what_the_new_owner_takes() {
    for qos in [1, 2] {
        let mut network = Network::new(11, Faults::default());
        let (old, new) = (network.add_node("", 1), network.add_node("elsewhere", 1));
        let subscriber = network.add_subscriber(old, "b/#", 2);
        let publisher = network.add_client();
        network.run(10 * MILLISECOND);
        network.parted = Some((old, subscriber));
        publish_for(&mut network, publisher, 20, qos);
        // On their way to a session that counts as offline now: their publisher will not send them again.
        network.run(3 * SECOND);
        network.assert_all_published(publisher, 20);
        network.subscribe_anew(subscriber, new, "b/#", 2);
        network.cut(old, "b", new);
        let (queued, seen) = export(&mut network, old, "b");
        assert_eq!(import(&mut network, new, &queued, &seen), 0);
        network.grant(new, "b", Grant { epoch: 2, ..GRANT });
        publish_for(&mut network, publisher, 20, qos);
        network.run(SECOND);
        network.parted = None;
        network.run_until_drained();

        network.assert_all_published(publisher, 40);
        let firsts: Vec<u64> = network.sequences(subscriber, "b/topic").into_iter().take(40).collect();
        assert_eq!(firsts, (1..=40).collect::<Vec<_>>(), "QoS {qos}");
        assert_has_all(&network, subscriber, 40, qos, "the subscriber");
    }
}

#[test]
fn what_is_sent_again_comes_before_what_was_acknowledged_later() {
    let mut network = Network::new(13, Faults::default());
    let (old, new) = (network.add_node("", 1), network.add_node("elsewhere", 1));
    let subscriber = network.add_subscriber_of_both(old, new, "b/#", 2);
    let publisher = network.add_client();
    network.parted = Some((old, subscriber));
    publish_for(&mut network, publisher, 1, 1);
    network.publish(publisher, &PublishOut { ack_queued: true, ..message("b/topic", b"x", 1) });
    publish_for(&mut network, publisher, 1, 1);
    network.run(10 * MILLISECOND);
    assert_eq!(network.hosts[publisher].published.keys().collect::<Vec<_>>(), [&2]);
    network.cut(old, "b", new);
    let (queued, seen) = export(&mut network, old, "b");
    assert_eq!(queued.len(), 2, "the second, and the first, which is to come before it");
    import(&mut network, new, &queued, &seen);
    network.grant(new, "b", Grant { epoch: 2, ..GRANT });
    network.run(SECOND);
    network.parted = None;
    network.run_until_drained();
    network.assert_all_published(publisher, 3);
    assert_eq!(network.sequences(subscriber, "b/topic")[..4], [1, 2, 1, 3]);
}

#[test]
fn what_comes_again_before_it_is_read_is_acknowledged_when_it_is() {
    for bytes in [1, 10_000] {
        let mut network = Network::new(12, Faults::default());
        let (old, new) = (network.add_node("", 1), network.add_node("elsewhere", 1));
        let subscriber = network.add_idle_subscriber(old, "b/#", 2);
        network.subscribe_anew(subscriber, new, "b/#", 2);
        let publisher = network.add_client();
        network.publish(publisher, &message("b/topic", &vec![7; bytes], 2));
        network.run(SECOND / 2);
        network.cut(old, "b", new);
        export(&mut network, old, "b");
        network.grant(new, "b", Grant { epoch: 2, ..GRANT });
        network.run(SECOND);
        assert_eq!(network.counter(subscriber, "drop.duplicate_message"), 1, "{bytes} bytes");
        assert!(network.hosts[publisher].published.is_empty(), "{bytes} bytes: nobody has read it");
        network.read_all(subscriber);
        network.assert_all_published(publisher, 1);
        assert_eq!(network.sequences(subscriber, "b/topic").len(), 1, "{bytes} bytes");
    }
}

#[test]
fn what_is_open_is_told_with_no_subtree_neither_before_its_own_moves_nor_after() {
    for order in [["a", "b"], ["b", "a"]] {
        let mut network = Network::new(10, Faults::default());
        let (old, new) = (network.add_node("", 2), network.add_node("elsewhere", 2));
        let subscriber = network.add_idle_subscriber(old, "b/#", 2);
        let publisher = network.add_client();
        publish_for(&mut network, publisher, 70, 2);
        network.run(10 * MILLISECOND);
        network.subscribe_anew(subscriber, new, "b/#", 2);
        for subtree in order {
            network.cut(old, subtree, new);
            let (queued, seen) = export(&mut network, old, subtree);
            assert!(queued.is_empty(), "{order:?}: its publisher has them all");
            import(&mut network, new, &queued, &seen);
        }
        network.grant(new, "b", Grant { epoch: 2, ..GRANT });
        network.run(SECOND);
        assert_eq!(network.counter(new, "messages_in"), 70, "{order:?}: they are new to the new owner");
        network.read_all(subscriber);
        network.assert_all_published(publisher, 70);
        assert_has_all(&network, subscriber, 70, 2, &format!("the subscriber, {order:?}"));
    }
}

/// A node goes on with its other subtrees while one of them moves: what is taken over there meanwhile is open, and so nobody is told of it.
#[test]
fn what_is_taken_over_while_another_subtree_moves_is_new_to_the_next_owner() {
    for workers in 1..=2 {
        let mut network = Network::new(11, Faults::default());
        let (old, new) = (network.add_node("", workers), network.add_node("elsewhere", 2));
        let subscriber = network.add_idle_subscriber(old, "b/#", 2);
        let publisher = network.add_client();
        network.cut(old, "a", new);
        let (now, region) = (network.now, Region::from("a"));
        for engine in &mut network.hosts[old].engines {
            engine.refuse_open(now, region);
            assert!(export_queued(engine, now, region).is_empty());
        }
        publish_for(&mut network, publisher, 70, 2);
        network.run(10 * MILLISECOND);
        assert_eq!(network.counter(old, "messages_in"), 70);
        let engines = &mut network.hosts[old].engines;
        let seen = engines.iter_mut().flat_map(|engine| engine.export_seen(now)).collect();
        import(&mut network, new, &Vec::new(), &seen);
        network.subscribe_anew(subscriber, new, "b/#", 2);
        network.cut(old, "b", new);
        let (queued, seen) = export(&mut network, old, "b");
        import(&mut network, new, &queued, &seen);
        network.grant(new, "b", Grant { epoch: 2, ..GRANT });
        network.read_all(subscriber);
        network.assert_all_published(publisher, 70);
        assert_has_all(&network, subscriber, 70, 2, &format!("the subscriber, {workers} workers"));
    }
}

/// The old owner has it from another, whose own subtree lies between.
#[test]
fn what_lies_in_a_smaller_subtree_that_stays_is_left_as_it_is() {
    for workers in [1, 3] {
        let mut network = Network::new(14, Faults::default());
        let (old, new) = (network.add_node("", workers), network.add_node("elsewhere", 1));
        let reader = network.add_idle_subscriber(old, "b/mine/read", 2);
        let offline = network.add_client();
        network.listen(offline, 1, "b/#", 2);
        subscribe_persistently(&mut network, offline, old, "b/#");
        network.run(10 * MILLISECOND);
        leave(&mut network, offline, old);
        let publisher = network.add_client();
        for topic in ["b/topic", "b/mine/read", "b/mine"].into_iter().flat_map(|topic| [topic; 5]) {
            network.publish(publisher, &message(topic, b"x", 2));
        }
        network.run(10 * MILLISECOND);
        assert_eq!(network.hosts[publisher].published.len(), 10, "the reader has answered nothing");

        network.grant(old, "b/mine", GRANT);
        network.cut(old, "b", new);
        let excluded = ["b/mine".to_owned()];
        let (queued, _) = export(&mut network, old, Region { subtree: "b", excluded: &excluded });
        assert_eq!(queued.len(), 5);
        assert_eq!(unanswered_within(&mut network, old, "b"), 5, "none is refused");
        network.connect(offline, old);
        network.run(10 * MILLISECOND);
        assert_eq!(network.hosts[offline].read.len(), 10);
        network.read_all(reader);
        network.assert_all_published(publisher, 15);
        assert_eq!((network.counter(old, "drop.handover"), network.counter(old, "drop.moved")), (0, 5));
    }
}

#[test]
fn what_was_answered_is_not_taken_twice_by_the_new_owner() {
    let mut network = Network::new(8, Faults::default());
    let (old, new) = (network.add_node("", 1), network.add_node("elsewhere", 3));
    let publisher = network.add_client();
    network.add_subscriber(old, "b/#", 2);
    publish_for(&mut network, publisher, 70, 2);
    network.run_until_drained();
    let (_, seen) = export(&mut network, old, "b");
    import(&mut network, new, &Vec::new(), &seen);
    let id = network.hosts[publisher].publisher;
    let records: Vec<_> = seen.iter().map(|record| SeenRecord::parse(record).expect("well made")).collect();
    assert!(records.iter().all(|record| record.publisher == id && record.floor == 1));
    let now = network.now;
    network.grant(new, "b", Grant { epoch: 2, ..GRANT });
    let resend = |network: &mut Network, sequence: u64| {
        let message = PublishOut { publisher: id, sequence, ..message("b/topic", b"x", 2) };
        let field = publish_field(&message);
        network.hosts[new].engines[0].publish_raw(now, &crate::wire::message_of(&field))
    };
    for sequence in 60..80 {
        assert_eq!(resend(&mut network, sequence), reason::SUCCESS);
    }
    assert_eq!(network.counter(new, "messages_in"), 9, "71 to 79");
    assert_eq!(network.counter(new, "drop.duplicate_message"), 11);
}

#[test]
fn records_that_make_no_sense_are_dropped_and_counted() {
    let (mut network, node) = Network::with_node(9, 1);
    let subscriber = network.add_subscriber(node, "b/#", 2);
    let session = network.hosts[subscriber].session;
    let publish = |topic: &str, qos| {
        let mut field = Vec::new();
        let message = PublishOut { publisher: 9, sequence: 1, ..message(topic, b"x", qos) };
        crate::wire::put_publish_field(&mut field, &message);
        crate::wire::message_of(&field)
    };
    let (good, wild, qos_0, qos_9) =
        (publish("b/topic", 1), publish("b/#", 1), publish("b/topic", 0), publish("b/topic", 9));
    let record = |session, publish, qos| QueuedRecord { session, publish, qos, ..QueuedRecord::default() };
    let bad = [
        record(session, &wild, 1),
        record(session, &qos_0, 1),
        record(session, &qos_9, 1),
        record(session, &[], 1),
        record(session, b"\xff\xff\xff", 1),
        record(session, &good, 0),
    ];
    let mut held = HeldQueues::default();
    for record in &bad {
        let mut out = Transfers::default();
        out.add_queued(record);
        assert_eq!(held.take(&out.into_all()[0], usize::MAX), (0, 1), "{record:?}");
    }
    let mut out = Transfers::default();
    out.add_queued(&record(session ^ 1, &good, 1));
    out.add_queued(&record(session, &good, 200));
    assert_eq!(held.take(&out.into_all()[0], usize::MAX), (0, 0));
    let now = network.now;
    let engine = &mut network.hosts[node].engines[0];
    assert_eq!(engine.install(now, held.queues), 0);
    engine.import_seen(now, &[vec![0xff], vec![0x1a, 1, 5], vec![0x1a, 4, 1, 1, 0, 1], vec![0x1a, 2, 1, 0]]);
    assert_eq!(network.counter(node, "drop.invalid_record"), 1 + 4);
    network.run_until_drained();
    assert_eq!(network.hosts[subscriber].read.len(), 1);
    for (message, why) in [(b"\xff".as_slice(), reason::PROTOCOL_ERROR), (&wild, reason::TOPIC_NAME_INVALID)]
    {
        assert_eq!(network.hosts[node].engines[0].publish_raw(network.now, message), why);
    }
}

/// A subscriber may have what was in flight to it: that keeps its place at the new owner. What only waited dies (§7.8).
#[test]
fn what_was_in_flight_moves_whatever_its_expiry() {
    let mut network = Network::new(8, Faults::default());
    let (old, new) = (network.add_node("", 1), network.add_node("elsewhere", 1));
    let client = network.add_client();
    network.listen(client, 1, "b/#", 2);
    network.hosts[client].reads = false;
    subscribe_persistently(&mut network, client, old, "b/#");
    let publisher = network.add_client();
    let mortal =
        PublishOut { published_at_us: network.now, expiry_s: Some(5), ..message("b/topic", b"x", 1) };
    network.publish(publisher, &mortal);
    network.run(SECOND);
    leave(&mut network, client, old);
    network.publish(publisher, &mortal);
    network.run(SECOND);
    subscribe_persistently(&mut network, client, new, "b/#");
    leave(&mut network, client, new);
    network.run(10 * SECOND);
    let (queued, seen) = export(&mut network, old, "b");
    assert_eq!((queued.len(), import(&mut network, new, &queued, &seen)), (2, 0));
    network.hosts[client].reads = true;
    network.connect(client, new);
    network.run_until_drained();
    let (session_counters, queued) = network.hosts[new].engines[0].balance();
    assert_eq!((session_counters.accepted, session_counters.expired, queued), (2, 1, 0));
}
