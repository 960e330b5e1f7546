//! Subtrees that do not move after all, although copying their messages had begun, or had ended.

use std::collections::BTreeSet;

use rand::Rng;

use super::copying::{Copy, EXPORT, known_at_source, stored, with_offline_session};
use super::{install, leave, subscribe_persistently};
use crate::engine::handover::held_queues::{HeldQueue, HeldQueues};
use crate::engine::tests::network::{MILLISECOND, Network, SECOND, message};
use crate::engine::tests::sessions::status;
use crate::wire::PublishOut;
use crate::wire::publish_of;

#[test]
fn a_move_that_is_given_up_leaves_everything_as_it_was() {
    let (mut network, old, client) = with_offline_session(30, 2);
    let mut copy = Copy::begin(&mut network, old, "b");
    copy.round(&mut network);
    let engine = &mut network.hosts[old].engines[0];
    engine.stop_export(EXPORT);
    assert!(engine.out.exports.is_empty());
    assert!(engine.out.sessions.iter().all(|session| session.exports().next().is_none()));
    network.connect(client, old);
    network.run_until_drained();
    assert_eq!(network.sequences(client, "b/topic"), (1..=30).collect::<Vec<_>>());
}

/// And what moved does not come. However often it begins, while the client comes and goes, and with messages on its link
/// when they come back.
#[test]
fn what_did_not_move_after_all_comes_once_in_order() {
    let (mut on_link, mut moved_count) = (0, 0);
    for seed in 0..60 {
        let (mut network, old) = Network::with_node(seed, 1);
        let new = network.add_node("elsewhere", 1);
        network.add_store(old);
        let client = network.add_client();
        network.listen(client, 1, "#", 2);
        subscribe_persistently(&mut network, client, old, "#");
        network.run(10 * MILLISECOND);
        let publishers = [network.add_client(), network.add_client()];
        let (mut counts, mut is_online) = ([0; 2], false);
        // Those that were on the link when they moved may have come before.
        let (mut moved, mut launched, may_move) = (BTreeSet::new(), BTreeSet::new(), seed % 2 == 0);
        let publish = |network: &mut Network, counts: &mut [u64; 2], most: usize, topics: usize| {
            for _ in 0..network.rng.random_range(0..=most) {
                let at = if topics == 1 { 1 } else { network.rng.random_range(0..2) };
                let lasting = PublishOut {
                    expiry_s: Some(3_600),
                    published_at_us: network.now,
                    ..PublishOut::default()
                };
                let one = message(["b/topic", "c"][at], &[0; 1_000], 2);
                let one = PublishOut { topic: one.topic, payload: one.payload, qos: one.qos, ..lasting };
                network.publish(publishers[at], &one);
                counts[at] += 1;
                network.run(MILLISECOND);
            }
        };
        let live = |network: &mut Network, is_online: &mut bool| {
            match network.rng.random_range(0..4) {
                0 if *is_online => leave(network, client, old),
                0 => network.connect(client, old),
                1 => network.hosts[client].reads = !network.hosts[client].reads,
                _ => {}
            }
            *is_online = status(network, old, client).is_connected;
            network.run(5 * MILLISECOND);
        };
        leave(&mut network, client, old);
        for _ in 0..4 {
            publish(&mut network, &mut counts, 200, 2);
            let mut copy = Copy::begin(&mut network, old, "b");
            for _ in 0..network.rng.random_range(0..20) {
                publish(&mut network, &mut counts, 5, 2);
                live(&mut network, &mut is_online);
                copy.step(&mut network, 0);
            }
            // If it may move, its publishers have all PUBACKs, and send nothing again.
            network.run(if may_move { 4 * SECOND } else { 200 * MILLISECOND });
            network.cut(old, "b", new);
            let gave = copy.finish(&mut network);
            let (known, _) = known_at_source(&mut network, old, &gave);
            assert!(copy.take_known(&mut network).0 == known, "seed {seed}");
            for _ in 0..network.rng.random_range(0..5) {
                publish(&mut network, &mut counts, 20, 1);
                live(&mut network, &mut is_online);
            }
            if may_move && network.rng.random_bool(0.5) {
                for (_, field, is_launched) in &known {
                    let sequence = publish_of(field).expect("a message").sequence;
                    _ = if *is_launched { launched.insert(sequence) } else { moved.insert(sequence) };
                }
                let engine = &mut network.hosts[old].engines[0];
                gave.into_iter()
                    .filter_map(HeldQueue::into_stored)
                    .for_each(|stored| engine.forget_moved(&stored));
            } else {
                let mut held = HeldQueues::default();
                held.add(gave);
                assert_eq!(install(&mut network, old, held), 0);
            }
            network.uncut(old, "b");
            on_link += usize::from(status(&network, old, client).is_connected);
        }
        network.hosts[client].reads = true;
        leave(&mut network, client, old);
        network.connect(client, old);
        network.run_until_drained();
        network.run(SECOND);
        let mut expected = counts.map(|count| (1..=count).collect::<Vec<_>>());
        expected[0].retain(|sequence| !moved.contains(sequence) && !launched.contains(sequence));
        moved_count += moved.len();
        let mut came = ["b/topic", "c"].map(|topic| network.sequences(client, topic));
        came[0].retain(|sequence| !launched.contains(sequence));
        let difference = |one: &[Vec<u64>; 2], other: &[Vec<u64>; 2]| {
            let other: [BTreeSet<u64>; 2] = other.each_ref().map(|all| all.iter().copied().collect());
            [0, 1]
                .map(|at| one[at].iter().copied().filter(|one| !other[at].contains(one)).collect::<Vec<_>>())
        };
        assert!(
            came == expected,
            "seed {seed}: missing {:?}, too many {:?}",
            difference(&expected, &came),
            difference(&came, &expected)
        );
        assert_eq!(stored(&network, old), 0, "seed {seed}");
        let status = status(&network, old, client);
        assert_eq!((status.queued, status.session_counters.open()), (0, 0), "seed {seed}");
    }
    assert!(on_link > 60 && moved_count > 300, "{on_link}, {moved_count}");
}
