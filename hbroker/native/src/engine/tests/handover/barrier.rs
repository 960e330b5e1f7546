//! What is on its way between the workers of an old owner when a subtree moves is in the account of what moves.

use super::{export, export_queued, has_passed, leave, raise_barrier, subscribe_persistently};
use crate::engine::tests::network::{Faults, GRANT, MILLISECOND, Network, SECOND, message};
use crate::tables::jurisdiction::Cut;
use crate::topic::Region;
use crate::wire::PublishOut;

/// A client whose datagrams come to one of a node's workers.
fn add_client_at(network: &mut Network, workers: u8, worker: u8) -> usize {
    loop {
        let client = network.add_client();
        if network.hosts[client].address.port() % u16::from(workers) == u16::from(worker) {
            return client;
        }
    }
}

/// What is acknowledged as queued may be on its way to another worker: the account is taken when it is there (§5.4).
#[test]
fn what_is_on_its_way_to_another_worker_moves() {
    for (seed, workers) in [(6, 1), (7, 2), (8, 3)] {
        let mut network = Network::new(seed, Faults::default());
        let (old, new) = (network.add_node("", workers), network.add_node("elsewhere", 1));
        let subscriber = add_client_at(&mut network, workers, workers - 1);
        network.listen(subscriber, 1, "b/#", 2);
        subscribe_persistently(&mut network, subscriber, old, "b/#");
        network.run(10 * MILLISECOND);
        leave(&mut network, subscriber, old);
        let publisher = add_client_at(&mut network, workers, 0);
        let queued = PublishOut { ack_queued: true, ..message("b/topic", b"x", 1) };
        network.publish(publisher, &queued);
        network.run(50 * MILLISECOND);
        network.holds_handoffs = true;
        network.publish_times(publisher, 10, &queued);
        network.run(50 * MILLISECOND);
        network.assert_all_published(publisher, 11);

        network.cut(old, "b", new);
        raise_barrier(&mut network, old, 1, "b");
        network.run(50 * MILLISECOND);
        assert_eq!(has_passed(&network, old, 1), workers == 1, "{workers} workers");
        network.holds_handoffs = false;
        assert_eq!(export(&mut network, old, "b").0.len(), 11, "{workers} workers");
        let left: u64 = network.hosts[old].engines.iter().map(|engine| engine.balance().1).sum();
        assert_eq!(left, 0, "{workers} workers: nothing stays behind");
    }
}

/// A member leaves its group while the barrier is on its way: what comes for it is another worker's next, and in the account all the same.
fn leaves_behind_the_barrier(meanwhile: impl FnOnce(&mut Network, usize)) {
    let workers = 3;
    let mut network = Network::new(12, Faults::default());
    let (old, new) = (network.add_node("", workers), network.add_node("elsewhere", 1));
    let members = [1, 2].map(|worker| add_client_at(&mut network, workers, worker));
    for member in members {
        network.listen_in(member, 1, ("g", "b/#"), 2);
        network.hosts[member].reads = false;
        network.connect(member, old);
        network.open_session(member, old, true);
        network.subscribe_in(member, old, "b/#", "g", 2, false);
    }
    let publisher = add_client_at(&mut network, workers, 0);
    let queued = PublishOut { ack_queued: true, ..message("b/topic", b"x", 1) };
    network.publish(publisher, &queued);
    network.run(50 * MILLISECOND);
    network.holds_handoffs = true;
    network.publish_times(publisher, 40, &queued);
    network.run(50 * MILLISECOND);
    network.assert_all_published(publisher, 41);

    network.cut(old, "b", new);
    raise_barrier(&mut network, old, 1, "b");
    meanwhile(&mut network, old);
    let (now, leaver) = (network.now, network.session(members[0], old));
    let engines = &mut network.hosts[old].engines;
    for worker in [0, 2, 1] {
        assert!(engines[worker].unsubscribe(now, "b/#", "g", leaver));
    }
    // What was on its way comes, and what sets out then does not yet.
    let on_its_way: Vec<_> =
        engines.iter_mut().flat_map(|engine| std::iter::from_fn(|| engine.poll_handoff())).collect();
    for (worker, handoff) in on_its_way {
        engines[usize::from(worker)].handle_handoff(now, handoff);
    }
    assert!(has_passed(&network, old, 1));
    let engines = &mut network.hosts[old].engines;
    engines.iter_mut().for_each(|engine| engine.refuse_open(now, Region::from("b")));
    let moved = engines.iter_mut().map(|engine| export_queued(engine, now, "b").len());
    assert_eq!(moved.sum::<usize>(), 41);
    network.holds_handoffs = false;
    network.run(SECOND);
    let left: u64 = network.hosts[old].engines.iter().map(|engine| engine.balance().1).sum();
    assert_eq!(left, 0, "nothing stays behind");
}

#[test]
fn what_goes_to_another_member_behind_the_barrier_moves() {
    leaves_behind_the_barrier(|_, _| {});
}

/// The node's own lease is renewed all the time.
#[test]
fn what_goes_to_another_member_behind_the_barrier_moves_though_a_lease_is_renewed() {
    leaves_behind_the_barrier(|network, old| {
        let engines = &mut network.hosts[old].engines;
        engines.iter_mut().for_each(|engine| engine.grant("", GRANT));
        // A part that gathers its subscribers is told anew, too.
        engines.iter_mut().for_each(|engine| engine.revoke("b"));
    });
}

/// Its account is taken, or it does not move after all.
#[test]
fn what_goes_to_another_member_behind_the_barrier_moves_though_another_subtree_does() {
    leaves_behind_the_barrier(|network, old| {
        let (now, engines) = (network.now, &mut network.hosts[old].engines);
        for engine in engines {
            for other in ["c", "b/c"] {
                engine.raise_barrier(1, other);
                assert!(export_queued(engine, now, other).is_empty());
            }
            engine.uncut("d");
        }
    });
}

/// The same, and the subtree does not move after all.
#[test]
fn what_was_left_for_a_move_that_fails_goes_on() {
    let mut network = Network::new(13, Faults::default());
    let old = network.add_node("", 2);
    let members = [network.add_member(old, "b/#", "g", 2), network.add_member(old, "b/#", "g", 2)];
    let others = network.hosts[members[0]].address.port() % 2 != network.hosts[members[1]].address.port() % 2;
    assert!(others, "they are at different workers");
    network.hosts[members[0]].reads = false;
    let publisher = network.add_client();
    let queued = PublishOut { ack_queued: true, ..message("b/topic", b"x", 1) };
    network.publish_times(publisher, 40, &queued);
    network.run(SECOND);
    let address = network.hosts[old].address;
    let cut = Cut { subtree: "b".into(), node: "to".into(), address, epoch: 2 };
    network.hosts[old].engines.iter_mut().for_each(|engine| engine.cut(cut.clone()));
    raise_barrier(&mut network, old, 1, "b");
    network.close(old, members[0]);
    network.run(MILLISECOND);
    assert!(network.sequences(members[1], "b/topic").len() < 40);
    network.hosts[old].engines.iter_mut().for_each(|engine| engine.uncut("b"));
    network.run(20 * SECOND);
    assert_eq!(network.sequences(members[1], "b/topic").len(), 40);
}
