//! Shared groups over whole engines: each message goes to one member, whichever worker takes it over.

use std::collections::HashMap;

use bytes::Bytes;
use rand::Rng;

use crate::engine::Engine;
use crate::engine::handover::held_queues::HeldQueues;
use crate::engine::metrics::counters::Drop;
use crate::engine::owner::shared_groups::SharedGroups;
use crate::engine::tests::handover::export_queued;
use crate::engine::tests::network::{Faults, MILLISECOND, Network, SECOND, message};
use crate::keyed_hash::KeyedHash;
use crate::tables::groups::shared_id;
use crate::wire::{PublishOut, Transfers};

const FAULTS: Faults = Faults { loss: 0.05, duplication: 0.05, jitter: 1_000 };

/// How many messages each of these read, and all sequence numbers that they read, in order.
fn read_by(network: &Network, members: &[usize]) -> (Vec<usize>, Vec<u64>) {
    let read = |&member: &usize| network.hosts[member].read.iter().map(|read| read.sequence);
    let mut sequences: Vec<u64> = members.iter().flat_map(read).collect();
    sequences.sort_unstable();
    (members.iter().map(|member| network.hosts[*member].read.len()).collect(), sequences)
}

#[test]
fn each_message_goes_to_one_member_of_each_group() {
    for (seed, workers, qos) in [(1, 1, 1), (2, 3, 1), (3, 3, 2), (4, 2, 2)] {
        let (mut network, node) = Network::with_faults(seed, FAULTS, workers);
        let group: Vec<usize> = (0..3).map(|_| network.add_member(node, "a/#", "g", qos)).collect();
        let other: Vec<usize> = (0..2).map(|_| network.add_member(node, "a/+", "h", qos)).collect();
        let alone = network.add_subscriber(node, "a/b", qos);
        let publisher = network.add_client();
        for _ in 0..300 {
            network.publish(publisher, &message("a/b", b"x", qos));
            network.run(MILLISECOND);
        }
        network.run_until_drained();
        network.assert_all_published(publisher, 300);
        for members in [&group[..], &other, &[alone]] {
            let (shares, sequences) = read_by(&network, members);
            assert_eq!(sequences, (1..=300).collect::<Vec<_>>(), "{workers} workers, QoS {qos}");
            assert!(shares.iter().all(|share| *share > 60), "{shares:?}");
        }
    }
}

/// Members come while the fragments of a message arrive, and each time `then` is done to the node.
fn send_in_fragments_to_more_and_more(then: impl Fn(&mut Network, usize)) -> Vec<u8> {
    let (mut network, node) = Network::with_faults(5, Faults { jitter: 5_000, ..Faults::default() }, 2);
    let members: Vec<usize> = (0..12)
        .map(|_| {
            let client = network.add_client();
            network.listen_in(client, 1, ("g", "a"), 1);
            network.connect(client, node);
            client
        })
        .collect();
    let publisher = network.add_client();
    network.subscribe_in(members[0], node, "a", "g", 1, false);
    network.publish(publisher, &message("a", b"first", 1));
    network.run_until_drained();
    for (round, &member) in (1..).zip(&members[1..]) {
        let before = network.counter(node, "messages_in");
        network.publish(publisher, &message("a", &vec![round; 100_000], 1));
        while network.counter(node, "messages_in") < before + 20 {
            network.run(MILLISECOND);
        }
        assert!(network.counter(node, "messages_in") < before + 80, "parts are still to come");
        network.subscribe_in(member, node, "a", "g", 1, false);
        then(&mut network, node);
        network.run_until_drained();
    }
    network.assert_all_published(publisher, 12);
    let read = members.iter().flat_map(|&member| &network.hosts[member].read);
    let mut rounds: Vec<u8> =
        read.filter(|read| read.payload.len() == 100_000).map(|read| read.payload[0]).collect();
    rounds.sort_unstable();
    let (shares, _) = read_by(&network, &members);
    assert!(shares.iter().filter(|share| **share > 0).count() > 3, "{shares:?}");
    rounds
}

#[test]
fn a_message_in_fragments_goes_to_one_member_though_others_come() {
    let all: Vec<u8> = (1..=11).collect();
    assert_eq!(send_in_fragments_to_more_and_more(|_, _| {}), all);
}

/// What the next owner of a subtree knows: nothing, or the choices of the last owner.
fn forget_choices(network: &mut Network, node: usize, keeps: bool) {
    let engines = &mut network.hosts[node].engines;
    let choices: Vec<_> = engines.iter_mut().flat_map(Engine::export_choices).collect();
    let mut out = Transfers::default();
    choices.into_iter().for_each(|choice| out.add_choice(choice));
    let mut held = HeldQueues::default();
    out.into_all().iter().for_each(|transfer| assert_eq!(held.take(transfer, usize::MAX), (0, 0)));
    for engine in engines {
        engine.node(|node| node.shared_groups = SharedGroups::new(KeyedHash::new(1)));
        if keeps {
            engine.import_choices(&held.choices);
        }
    }
}

#[test]
fn a_message_in_fragments_goes_to_one_member_though_its_subtree_moves() {
    let all: Vec<u8> = (1..=11).collect();
    assert_eq!(send_in_fragments_to_more_and_more(|network, node| forget_choices(network, node, true)), all);
    let read = send_in_fragments_to_more_and_more(|network, node| forget_choices(network, node, false));
    assert!(read.len() < 11, "without the choices the rest goes to another member");
}

#[test]
fn a_member_that_is_gone_gets_nothing_and_nobody_waits_for_it() {
    let (mut network, node) = Network::with_node(6, 3);
    let members: Vec<usize> = (0..3).map(|_| network.add_member(node, "a", "g", 1)).collect();
    let publisher = network.add_client();
    for (round, &gone) in members.iter().enumerate() {
        network.close(node, gone);
        network.run(10 * MILLISECOND);
        let before = network.hosts[gone].read.len();
        network.publish_times(publisher, 50, &message("a", b"x", 1));
        network.run(SECOND);
        assert_eq!(network.hosts[gone].read.len(), before);
        assert_eq!(network.hosts[publisher].published.len(), 50 * (round + 1));
    }
    let (_, sequences) = read_by(&network, &members);
    assert_eq!(sequences, (1..=100).collect::<Vec<_>>(), "the last 50 had nobody");
}

/// A client ends its subscription as a member, before any owner knows.
fn begin_to_leave(network: &mut Network, member: usize) {
    let now = network.now;
    let engine = &mut network.hosts[member].engines[0];
    engine.set_leaving(true);
    engine.unlisten(now, 1, true);
}

/// The node hears that a member leaves, its home last (`Core::unsubscribe`).
fn take_out(network: &mut Network, node: usize, member: usize) {
    let session = network.session(member, node);
    let now = network.now;
    let engines = &mut network.hosts[node].engines;
    let home = usize::from(session.worker());
    for worker in (0..engines.len()).filter(|&worker| worker != home).chain([home]) {
        assert!(engines[worker].unsubscribe(now, "a/#", "g", session));
    }
}

#[test]
fn what_a_member_that_leaves_had_not_taken_over_goes_to_another() {
    for (seed, workers) in (1..10).zip([1, 2, 3].into_iter().cycle()) {
        let (mut network, node) =
            Network::with_faults(seed, Faults { loss: 0.1, duplication: 0.05, jitter: 1_000 }, workers);
        let members: Vec<usize> = (0..6).map(|_| network.add_member(node, "a/#", "g", 1)).collect();
        let publisher = network.add_client();
        for &member in &members[1..] {
            network.publish_times(publisher, 40, &message("a/b", b"x", 1));
            let leaves_in = network.rng.random_range(0..6_000);
            network.run(leaves_in);
            begin_to_leave(&mut network, member);
            network.run(3 * MILLISECOND);
            take_out(&mut network, node, member);
            network.run(3 * MILLISECOND);
            network.hosts[member].engines[0].set_leaving(false);
        }
        network.run_until_drained();
        network.assert_all_published(publisher, 200);
        let (_, mut sequences) = read_by(&network, &members);
        sequences.dedup();
        assert_eq!(sequences, (1..=200).collect::<Vec<_>>(), "{workers} workers, seed {seed}");
    }
}

#[test]
fn the_last_member_that_leaves_answers_for_what_it_was_sent() {
    let (mut network, node) = Network::with_faults(7, FAULTS, 2);
    let member = network.add_member(node, "a/#", "g", 1);
    let publisher = network.add_client();
    begin_to_leave(&mut network, member);
    network.publish(publisher, &message("a/b", b"x", 1));
    network.run(100 * MILLISECOND);
    assert!(network.hosts[publisher].published.is_empty(), "nobody answers yet");
    take_out(&mut network, node, member);
    network.hosts[member].engines[0].set_leaving(false);
    network.run(100 * MILLISECOND);
    network.assert_all_published(publisher, 1);
    assert_eq!(network.counter(member, "drop.unclaimed"), 0);
}

#[test]
fn what_a_member_leaves_while_its_subtree_is_handed_over_moves_with_another() {
    let mut network = Network::new(8, Faults::default());
    let node = network.add_node("a", 1);
    let members: Vec<usize> = (0..2).map(|_| network.add_member(node, "a/#", "g", 1)).collect();
    for &member in &members {
        network.hosts[member].reads = false;
    }
    let publisher = network.add_client();
    network.publish_times(publisher, 20, &message("a/b", b"x", 1));
    // Both are stalled, so no publisher sends these again.
    network.run(3 * SECOND);
    network.assert_all_published(publisher, 20);
    network.hosts[node].engines[0].revoke("a");
    take_out(&mut network, node, members[0]);
    let now = network.now;
    assert_eq!(export_queued(&mut network.hosts[node].engines[0], now, "a").len(), 20);
}

#[test]
fn what_a_member_that_leaves_has_not_handled_goes_to_another() {
    // It lies in the client's core; the application has read it; it has handled it.
    for (reads, handles) in [(false, false), (true, false), (true, true)] {
        let (mut network, node) = Network::with_faults(9, FAULTS, 2);
        let member = network.add_client_with(|config| config.hold = true);
        network.listen_in(member, 1, ("g", "a/#"), 2);
        network.connect(member, node);
        network.subscribe_in(member, node, "a/#", "g", 2, false);
        network.hosts[member].reads = reads;
        let publisher = network.add_client();
        network.publish_times(publisher, 20, &message("a/b", b"x", 2));
        network.run(SECOND);
        let read: Vec<_> = network.hosts[member].read.iter().map(|read| read.copy).collect();
        assert_eq!(read.len(), if reads { 20 } else { 0 });
        let other = network.add_member(node, "a/#", "g", 2);
        begin_to_leave(&mut network, member);
        let now = network.now;
        let engine = &mut network.hosts[member].engines[0];
        if handles {
            engine.handled(&read);
        } else {
            engine.give_back(now, &read);
        }
        network.run(100 * MILLISECOND);
        take_out(&mut network, node, member);
        network.run(100 * MILLISECOND);
        network.hosts[member].engines[0].set_leaving(false);
        network.run_until_drained();
        network.assert_all_published(publisher, 20);
        assert_eq!(network.hosts[other].read.len(), if handles { 0 } else { 20 });
    }
}

#[test]
fn what_a_member_gave_back_is_new_to_it_when_it_is_a_member_again() {
    let (mut network, node) = Network::with_faults(10, FAULTS, 1);
    let member = network.add_client_with(|config| config.hold = true);
    let publisher = network.add_client();
    network.listen_in(member, 1, ("g", "a/#"), 2);
    network.connect(member, node);
    network.subscribe_in(member, node, "a/#", "g", 2, false);
    network.publish(publisher, &message("a/b", b"x", 2));
    network.run(SECOND);
    let sequences = network.sequences(member, "a/b");
    // Another takes it, and is gone before it has read it.
    let other = network.add_member(node, "a/#", "g", 2);
    network.hosts[other].reads = false;
    begin_to_leave(&mut network, member);
    let (now, id) = (network.now, network.hosts[member].read[0].copy);
    network.hosts[member].engines[0].give_back(now, &[id]);
    take_out(&mut network, node, member);
    network.hosts[member].engines[0].set_leaving(false);
    network.run(100 * MILLISECOND);
    network.listen_in(member, 2, ("g", "a/#"), 2);
    network.subscribe_in(member, node, "a/#", "g", 2, false);
    let (now, gone) = (network.now, network.session(other, node));
    network.hosts[node].engines[0].end_session(now, gone, Drop::SessionEnded);
    network.run(SECOND);
    assert_eq!(network.sequences(member, "a/b"), [sequences[0]; 2]);
}

#[test]
fn what_another_worker_chose_a_member_for_that_has_left_meanwhile_goes_to_another() {
    let (mut network, node) = Network::with_node(11, 2);
    let members: Vec<usize> = (0..2).map(|_| network.add_member(node, "a/#", "g", 1)).collect();
    let (leaver, stayer) = (members[0], members[1]);
    let home = usize::from(network.session(leaver, node).worker());
    let (now, elsewhere) = (network.now, 1 - home);
    let engines = &mut network.hosts[node].engines;
    for _ in 0..20 {
        engines[elsewhere].publish(now, &message("a/b", b"x", 1), Bytes::new).expect("it is this node's");
    }
    let handed: Vec<_> = std::iter::from_fn(|| engines[elsewhere].poll_handoff()).collect();
    assert!(!handed.is_empty(), "some are the leaver's");
    begin_to_leave(&mut network, leaver);
    take_out(&mut network, node, leaver);
    for (worker, handoff) in handed {
        network.hosts[node].engines[usize::from(worker)].handle_handoff(now, handoff);
    }
    network.run(100 * MILLISECOND);
    assert_eq!((network.hosts[leaver].read.len(), network.hosts[stayer].read.len()), (0, 20));
}

/// The session that had it in flight may get it. For another session it has expired (§7.8).
#[test]
fn what_expired_in_flight_to_a_member_goes_to_no_other() {
    for (wait, read) in [(0, 1), (10 * SECOND, 0)] {
        let (mut network, node) = Network::with_node(12, 1);
        let member = network.add_member(node, "a/#", "g", 1);
        network.hosts[member].reads = false;
        let publisher = network.add_client();
        network.run(MILLISECOND);
        let published_at_us = network.now;
        let mortal = PublishOut { published_at_us, expiry_s: Some(10), ..message("a/b", b"x", 1) };
        network.publish(publisher, &mortal);
        network.run(SECOND);
        let other = network.add_member(node, "a/#", "g", 1);
        network.run(wait);
        let (now, gone) = (network.now, network.session(member, node));
        network.hosts[node].engines[0].end_session(now, gone, Drop::SessionEnded);
        network.run_until_drained();
        network.assert_all_published(publisher, 1);
        assert_eq!(network.hosts[other].read.len(), read);
    }
}

/// A member at `QoS` 0 holds no ticket of a message, so none comes back for it when it has left before the message came to its worker.
#[test]
fn a_member_at_qos_0_that_has_left_gives_no_ticket_back() {
    for (qos, stays) in [(1, false), (1, true), (2, false), (2, true)] {
        let (mut network, node) = Network::with_node(4, 2);
        let member = network.add_member(node, "a/#", "g", 0);
        let home = network.session(member, node).worker();
        let is_elsewhere = |network: &mut Network| {
            let client = network.add_client();
            network.publish(client, &message("warm", b"x", 1));
            network.run(SECOND);
            let link = network.hosts[node].links[&network.hosts[client].session];
            (link.worker() != home).then_some(client)
        };
        let publisher = (0..100).find_map(|_| is_elsewhere(&mut network)).expect("there are two workers");
        network.holds_handoffs = true;
        network.publish(publisher, &message("a/b", b"x", qos));
        network.run(100 * MILLISECOND);
        let other = stays.then(|| network.add_member(node, "a/#", "g", 1));
        take_out(&mut network, node, member);
        network.holds_handoffs = false;
        network.run_until_drained();
        assert_eq!(network.hosts[publisher].published.len(), 2);
        let read = other.map(|other| network.hosts[other].read.len());
        assert!(read.is_none_or(|read| read == 1) && network.hosts[member].read.is_empty());
    }
}

/// Two groups whose shared subscriptions to one filter would have one id of 32 bits, which some ten thousand names are enough for.
fn alike(filter: &str) -> (String, String) {
    let mut known = HashMap::new();
    let pair = (0_u64..).find_map(|number| {
        let name = format!("g{number}");
        let other = known.insert(shared_id(&name, filter) as u32, name.clone());
        other.map(|other| (other, name))
    });
    pair.expect("there are such")
}

/// What a member had not answered when it left goes to another member of its group, and not to a group that somebody named to have the same id.
#[test]
fn a_group_is_not_taken_for_another_with_the_same_id() {
    let (first, second) = alike("a/#");
    for (theirs, other) in [(&first, &second), (&second, &first)] {
        let (mut network, node) = Network::with_node(3, 1);
        let thief = network.add_member(node, "a/#", other, 1);
        let leaver = network.add_member(node, "a/#", theirs, 1);
        network.hosts[leaver].reads = false;
        let publisher = network.add_client();
        network.publish_times(publisher, 20, &message("a/b", b"x", 1));
        network.run(100 * MILLISECOND);
        let stays = network.add_member(node, "a/#", theirs, 1);
        assert_eq!(network.hosts[thief].read.len(), 20, "its own");
        let (now, key) = (network.now, network.session(leaver, node));
        assert!(network.hosts[node].engines[0].unsubscribe(now, "a/#", theirs, key));
        network.run(SECOND);
        let got = [thief, stays].map(|host| network.hosts[host].read.len());
        assert_eq!(got, [20, 20], "{theirs} {other}");
    }
}

/// A client of two groups, as a gateway is for its clients, hands each copy to the group that it came for, and both on.
#[test]
fn copies_for_two_groups_of_one_client_are_not_taken_for_one() {
    let (first, second) = alike("a/#");
    let (mut network, node) = Network::with_node(4, 1);
    let client = network.add_member(node, "a/#", &first, 2);
    network.listen_in(client, 2, (&second, "a/#"), 2);
    network.subscribe_in(client, node, "a/#", &second, 2, false);
    let publisher = network.add_client();
    network.publish_times(publisher, 20, &message("a/b", b"x", 2));
    network.run_until_drained();
    network.assert_all_published(publisher, 20);
    assert_eq!(network.hosts[client].read.len(), 40, "one for each group");
    assert_eq!(network.counter(client, "drop.duplicate_message"), 0);
}
