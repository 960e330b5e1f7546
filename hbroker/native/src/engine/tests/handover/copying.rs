//! A subtree's messages are copied while it is served: what the next owner has in the end is what the old one had,
//! and only the difference travels after it stopped.

use rand::Rng;

use super::{has_passed, install, leave, raise_barrier, subscribe_persistently};
use crate::engine::handover::held_queues::{HeldQueue, HeldQueues, add_queued};
use crate::engine::handover::session_export::CopyStep;
use crate::engine::sessions::bounds::Bounds;
use crate::engine::sessions::storing;
use crate::engine::tests::network::{Faults, GRANT, MILLISECOND, Network, SECOND, message};
use crate::engine::tests::sessions::{firsts, status};
use crate::tables::jurisdiction::Grant;
use crate::topic::Region;
use crate::wire::{PublishOut, Transfers};

pub const EXPORT: u64 = 7;
/// Messages of each of two publishers for a connected session at the new owner: together more than are in flight
/// to it.
const OTHERS: u64 = 2_500;
/// If there are more bytes, they go to the store of the new owner.
const SPOOL_BYTES: usize = 1_000;

/// What one session's messages are known by: session, field, whether it was given to the link.
pub type Known = (u64, Vec<u8>, bool);

/// Both ends of a handover, as `Core` has them.
pub struct Copy {
    old: usize,
    region: &'static str,
    held: HeldQueues,
    /// A node whose store gets all that can be there.
    target: Option<usize>,
    names: u64,
    /// Messages that were copied, and those of the difference.
    copied: usize,
    difference: usize,
}

impl Copy {
    pub fn begin(network: &mut Network, old: usize, region: &'static str) -> Self {
        network.hosts[old].engines.iter_mut().for_each(|engine| engine.begin_export(EXPORT));
        Self { old, region, held: HeldQueues::default(), target: None, names: 0, copied: 0, difference: 0 }
    }

    fn spooling(self, target: usize) -> Self {
        Self { target: Some(target), ..self }
    }

    fn take(&mut self, network: &mut Network, transfers: Transfers) {
        for transfer in transfers.into_all() {
            assert_eq!(self.held.take(&transfer, usize::MAX), (0, 0));
        }
        if let Some(target) = self.target {
            let store = network.hosts[target].store.as_ref().unwrap();
            self.held.spool(SPOOL_BYTES, || {
                self.names += 1;
                1 << 60 | self.names
            });
            self.held.submit(&store.mailbox);
        }
    }

    /// What the target has. What was in its store is not there for it any more.
    pub fn take_known(&mut self, network: &mut Network) -> (Vec<Known>, usize) {
        let Some(target) = self.target else {
            return (known(&self.held.queues), 0);
        };
        network.run(2 * MILLISECOND);
        let (mut all, mut spooled_count) = (Vec::new(), 0);
        for held_queue in &mut self.held.queues {
            let spooled = held_queue.take_spooled();
            let store = &mut network.hosts[target].store.as_mut().unwrap().store;
            if let Some(spooled) = spooled {
                let read = store.read(spooled.queue, 0, usize::MAX).unwrap();
                assert_eq!((read.messages.len() as u64, read.is_all), (spooled.live(), true));
                spooled_count += read.messages.len();
                all.extend(read.messages.into_iter().map(|stored| {
                    let is_launched = stored.expires == u64::MAX || stored.number <= spooled.launched();
                    (held_queue.session, stored.field, is_launched)
                }));
            }
            all.extend(known([&*held_queue]));
        }
        all.sort_by_key(|(session, ..)| *session);
        (all, spooled_count)
    }

    /// One step of one worker. True: its sessions have all been looked at.
    pub fn step(&mut self, network: &mut Network, worker: usize) -> bool {
        let region = Region::from(self.region);
        let (step, is_over) = network.hosts[self.old].engines[worker].copy_export(EXPORT, region);
        let CopyStep { gone, copies, .. } = step;
        let mut out = Transfers::default();
        gone.iter().for_each(|gone| out.add_gone(gone));
        copies.iter().for_each(|(queue, session, queued_message)| {
            add_queued(&mut out, (*queue, *session), queued_message);
        });
        self.copied += copies.len();
        self.take(network, out);
        is_over
    }

    /// A whole round.
    pub fn round(&mut self, network: &mut Network) {
        for worker in 0..network.hosts[self.old].engines.len() {
            while !self.step(network, worker) {}
        }
    }

    /// After the cut. What the old owner gave away.
    pub fn finish(&mut self, network: &mut Network) -> Vec<HeldQueue> {
        raise_barrier(network, self.old, 1, self.region);
        while !has_passed(network, self.old, 1) {
            network.run(MILLISECOND);
        }
        let old = self.old;
        let uncopied = |network: &mut Network| {
            network.hosts[old].engines.iter_mut().position(|engine| engine.has_uncopied(EXPORT))
        };
        while let Some(worker) = uncopied(network) {
            self.step(network, worker);
            network.run(MILLISECOND);
        }
        let (now, region) = (network.now, Region::from(self.region));
        let engines = &mut network.hosts[self.old].engines;
        engines.iter_mut().for_each(|engine| engine.refuse_open(now, region));
        let (mut out, mut all) = (Transfers::default(), Vec::new());
        for engine in engines.iter_mut() {
            let (held_queues, gone) = engine.finish_export(now, EXPORT, region);
            gone.iter().for_each(|gone| out.add_gone(gone));
            all.extend(held_queues);
        }
        for held_queue in &all {
            self.difference += held_queue.uncopied().count();
            held_queue.send(held_queue.uncopied(), &mut out);
        }
        self.held.seen = engines.iter_mut().flat_map(|engine| engine.export_seen(now)).collect();
        self.take(network, out);
        all
    }
}

/// A network, a node, and a client whose session is offline, for which so many messages wait there.
pub fn with_offline_session(messages: usize, qos: u8) -> (Network, usize, usize) {
    let (mut network, node) = Network::with_node(6, 1);
    let client = network.add_client();
    network.listen(client, 1, "b/#", 2);
    subscribe_persistently(&mut network, client, node, "b/#");
    network.run(10 * MILLISECOND);
    leave(&mut network, client, node);
    let publisher = network.add_client();
    network.publish_times(publisher, messages, &message("b/topic", b"x", qos));
    network.run(SECOND);
    (network, node, client)
}

fn known<'a>(all: impl IntoIterator<Item = &'a HeldQueue>) -> Vec<Known> {
    let each = |held_queue: &'a HeldQueue| {
        let queued_messages = held_queue.left_from(0);
        queued_messages.map(|queued_message| {
            (held_queue.session, queued_message.field.to_vec(), queued_message.expires == u64::MAX)
        })
    };
    let mut known: Vec<Known> = all.into_iter().flat_map(each).collect();
    known.sort_by_key(|(session, ..)| *session); // Stable: within a session they keep their order.
    known
}

/// With sessions that come and go, slow ones, members that leave their group, and messages that expire, while it is
/// copied.
#[test]
fn the_next_owner_has_what_the_old_one_had_whatever_happened_meanwhile() {
    let (mut all, mut left_in_store) = ((0, 0, 0, 0), 0);
    for seed in 0..24 {
        let workers = 1 + (seed % 3) as u8;
        let faults = Faults { loss: 0.02, duplication: 0.02, jitter: 1_000 };
        let mut network = Network::new(seed, faults);
        let (old, new) = (network.add_node("", workers), network.add_node("elsewhere", 2));
        network.add_store(new);
        let is_stored = seed % 2 == 1;
        if is_stored {
            network.add_store(old);
        }
        let payload = vec![b'x'; if is_stored { 1_500 } else { 1 }];
        let clients: Vec<usize> = (0..6).map(|_| network.add_client()).collect();
        for (position, &client) in clients.iter().enumerate() {
            let group = if position < 3 { "g" } else { "" };
            network.listen_in(client, 1, (group, "b/#"), 2);
            network.listen(client, 2, "c/#", 2);
            network.connect(client, old);
            network.open_session(client, old, true);
            network.subscribe_in(client, old, "b/#", group, 2, false);
            network.subscribe(client, old, "c/#", 2, false);
        }
        network.run(10 * MILLISECOND);
        let publishers = [network.add_client(), network.add_client()];
        let (mut offline, mut copy, mut sent) = ([false; 6], None, 0);
        for turn in 0..300 {
            if turn == 60 {
                let new_copy = Copy::begin(&mut network, old, "b");
                copy = Some(if seed < 12 { new_copy } else { new_copy.spooling(new) });
            }
            for _ in 0..network.rng.random_range(0..8) {
                let topic = ["b/1", "b/2", "c/1"][network.rng.random_range(0..3)];
                let (qos, ack_queued) = (network.rng.random_range(1..=2), network.rng.random_bool(0.5));
                let published_at_us = network.now;
                let expiry_s = network.rng.random_bool(0.3).then(|| network.rng.random_range(1..3));
                let one =
                    PublishOut { ack_queued, expiry_s, published_at_us, ..message(topic, &payload, qos) };
                let publisher = publishers[network.rng.random_range(0..2)];
                network.publish(publisher, &one);
                sent += 1;
            }
            let position = network.rng.random_range(0..clients.len());
            let client = clients[position];
            match network.rng.random_range(0..8) {
                0 if offline[position] => {
                    network.connect(client, old);
                    network.run(10 * MILLISECOND);
                    offline[position] = false;
                }
                0 | 1 if !offline[position] => {
                    leave(&mut network, client, old);
                    offline[position] = true;
                }
                2 => network.hosts[client].reads = network.rng.random_bool(0.5),
                3 if position == 5 && !offline[position] => {
                    let (now, key) = (network.now, network.session(client, old));
                    let engines = &mut network.hosts[old].engines;
                    engines[usize::from(key.worker())].end_session(
                        now,
                        key,
                        crate::engine::metrics::counters::Drop::SessionEnded,
                    );
                    engines.iter_mut().for_each(|engine| engine.forget_subscriptions(key));
                    network.open_session(client, old, true);
                    network.subscribe(client, old, "b/#", 2, false);
                    network.subscribe(client, old, "c/#", 2, false);
                }
                4 if position < 3 => {
                    let (now, key) = (network.now, network.session(client, old));
                    for engine in &mut network.hosts[old].engines {
                        engine.unsubscribe(now, "b/#", "g", key);
                    }
                    network.subscribe_in(client, old, "b/#", "g", 2, false);
                }
                _ => {}
            }
            if let Some(copy) = &mut copy {
                let worker = network.rng.random_range(0..usize::from(workers));
                copy.step(&mut network, worker);
            }
            network.run(20 * MILLISECOND);
        }
        let mut copy = copy.expect("it was begun");
        network.cut(old, "b", new);
        let gave = copy.finish(&mut network);
        let (has, spooled) = copy.take_known(&mut network);
        let count = gave.iter().map(HeldQueue::len).sum::<usize>();
        let (gave, stored) = known_at_source(&mut network, old, &gave);
        assert!(has == gave, "seed {seed}: {} and {}", has.len(), gave.len());
        all = (all.0 + count, all.1 + copy.difference, all.2 + sent, all.3 + spooled);
        left_in_store += stored;
        assert_eq!(
            network.hosts[old].engines.iter().map(|engine| engine.out.exports.len()).sum::<usize>(),
            0
        );
    }
    assert!(all.0 > 400 && all.1 < all.0 / 2, "{all:?}: much moves, and most was copied before");
    assert!(all.3 > 50, "{all:?}: some of it was in the store");
    assert!(left_in_store > 200, "{left_in_store}: and some in that of the source");
}

/// What the source gave away, and how much of it was in its store.
pub fn known_at_source(network: &mut Network, old: usize, gave: &[HeldQueue]) -> (Vec<Known>, usize) {
    network.run(2 * MILLISECOND);
    let (mut all, mut count) = (Vec::new(), 0);
    for held_queue in gave {
        if let Some(stored) = held_queue.stored() {
            let host = &mut network.hosts[old];
            let sessions = &host.engines[usize::from(stored.key.worker())].out.sessions;
            let session = sessions.get(stored.key).expect("it has not ended");
            let read = host.store.as_mut().unwrap().store.read(held_queue.session, 0, usize::MAX).unwrap();
            let its = read.messages.into_iter().filter(|one| stored.numbers.contains(one.number));
            let before = all.len();
            all.extend(its.map(|one| {
                let (session_id, field) = (held_queue.session, one.field.clone());
                let one = session.as_its(storing::restored(one).expect("it is valid"));
                (session_id, field, one.expires == u64::MAX)
            }));
            assert_eq!((all.len() - before) as u64, stored.numbers.count());
            count += all.len() - before;
        }
        all.extend(known([held_queue]));
    }
    all.sort_by_key(|(session, ..)| *session);
    (all, count)
}

/// Two offline sessions, one of which has messages of another subtree among its own.
#[test]
fn only_the_difference_travels_after_the_stop_and_all_comes_once_in_order() {
    for qos in 1..=2 {
        let mut network = Network::new(4, Faults::default());
        let (old, new) = (network.add_node("", 2), network.add_node("elsewhere", 2));
        let clients = ["b/#", "#"].map(|filter| {
            let client = network.add_client();
            network.listen(client, 1, filter, 2);
            for node in [new, old] {
                subscribe_persistently(&mut network, client, node, filter);
                network.run(MILLISECOND);
                leave(&mut network, client, node);
            }
            client
        });
        let publisher = network.add_client();
        let publish = |network: &mut Network, count: u64| {
            for _ in 0..count {
                network.publish(publisher, &message("b/topic", b"x", qos));
                network.publish(publisher, &message("c", b"x", qos));
            }
            network.run(20 * MILLISECOND);
        };
        publish(&mut network, 500);
        let mut copy = Copy::begin(&mut network, old, "b");
        copy.round(&mut network);
        assert_eq!(copy.copied, 1_000);
        publish(&mut network, 100);
        copy.round(&mut network);
        assert_eq!(copy.copied, 1_200);
        publish(&mut network, 10);
        network.cut(old, "b", new);
        assert_eq!(copy.finish(&mut network).iter().map(HeldQueue::len).sum::<usize>(), 1_220);
        assert_eq!(copy.difference, 20);
        network.grant(new, "b", Grant { epoch: 2, serving: false, ..GRANT });
        assert_eq!(install(&mut network, new, copy.held), 0);
        network.grant(new, "b", Grant { epoch: 2, ..GRANT });
        publish(&mut network, 10);
        network.run(SECOND);
        for client in clients {
            network.connect(client, new);
            network.run_until_drained();
            network.connect(client, old);
            network.run_until_drained();
            let sequences = network.sequences(client, "b/topic");
            assert!(sequences.is_sorted(), "QoS {qos}");
            assert_eq!(sequences.len(), 620);
        }
        assert_eq!(network.sequences(clients[1], "c").len(), 620, "what does not move is where it was");
        assert_eq!(network.counter(old, "drop.moved"), 1_220);
    }
}

/// Both nodes have stores, and only these have most of the messages.
#[test]
fn a_queue_that_is_not_in_memory_moves_whole_or_stays_as_it_was() {
    for (moves, spools) in [(true, false), (true, true), (false, true)] {
        let mut network = Network::new(4, Faults::default());
        let (old, new) = (network.add_node("", 2), network.add_node("elsewhere", 2));
        let client = network.add_client();
        network.listen(client, 1, "#", 2);
        for node in [new, old] {
            network.add_store(node);
            subscribe_persistently(&mut network, client, node, "#");
            network.run(MILLISECOND);
            leave(&mut network, client, node);
        }
        let publishers = [network.add_client(), network.add_client()];
        let publish = |network: &mut Network, count: u64| {
            for _ in 0..count {
                network.publish(publishers[0], &message("b/topic", &[0; 1_000], 1));
                network.publish(publishers[1], &message("c", &[0; 1_000], 1));
                network.run(MILLISECOND);
            }
        };
        let has_backlog = |network: &Network, node: usize| {
            network.hosts[node].engines.iter().any(|engine| engine.has_backlog())
        };
        publish(&mut network, 200);
        assert!(has_backlog(&network, old));
        let mut copy = Copy::begin(&mut network, old, "b");
        copy.target = spools.then_some(new);
        for _ in 0..2 {
            publish(&mut network, 5);
            for worker in 0..2 {
                while !copy.step(&mut network, worker) {
                    network.run(MILLISECOND);
                }
            }
        }
        assert!(copy.copied >= 205 && has_backlog(&network, old), "it is not read into memory");
        publish(&mut network, 5);
        if !moves {
            network.hosts[old].engines.iter_mut().for_each(|engine| engine.stop_export(EXPORT));
            assert!(stored(&network, new) >= 200, "most of it is in the store");
            copy.held.drop_spooled();
            copy.held.submit(&network.hosts[new].store.as_ref().unwrap().mailbox);
            publish(&mut network, 5);
            assert!(has_backlog(&network, old), "it need not be in memory any more");
            network.connect(client, old);
            network.run_until_drained();
            assert_eq!(network.sequences(client, "b/topic"), (1..=220).collect::<Vec<_>>());
            assert_eq!(stored(&network, new), 0, "nothing is left of the move");
            continue;
        }
        network.cut(old, "b", new);
        network.run(100 * MILLISECOND); // The store has all of it.
        let gave = copy.finish(&mut network);
        // At the new owner the session is connected, and has messages that are not stored.
        let others = [network.add_client(), network.add_client()];
        network.hosts[client].reads = false;
        network.connect(client, new);
        network.run(10 * MILLISECOND);
        for (other, topic) in others.into_iter().zip(["elsewhere/x", "elsewhere/y"]) {
            network.publish_times(other, OTHERS as usize, &message(topic, &[0; 1_000], 1));
        }
        network.run(SECOND);
        let acknowledged = |network: &Network| others.map(|other| network.hosts[other].published.len());
        assert_eq!(acknowledged(&network), [0, 0], "the session holds their PUBACKs back");
        network.grant(new, "b", Grant { epoch: 2, serving: false, ..GRANT });
        assert_eq!(install(&mut network, new, copy.held), 0);
        network.grant(new, "b", Grant { epoch: 2, ..GRANT });
        for held_queue in gave {
            let worker = network.session(client, old).worker();
            let stored = held_queue.into_stored().expect("all of it is stored");
            network.hosts[old].engines[usize::from(worker)].forget_moved(&stored);
        }
        leave(&mut network, client, new);
        publish(&mut network, 10);
        network.run(SECOND);
        assert!(has_backlog(&network, new));
        network.hosts[client].reads = true;
        for node in [new, old] {
            network.connect(client, node);
            network.run_until_drained();
            network.run(SECOND);
            assert_eq!(stored(&network, node), 0);
        }
        assert_eq!(network.sequences(client, "b/topic"), (1..=225).collect::<Vec<_>>());
        for topic in ["elsewhere/x", "elsewhere/y"] {
            assert_eq!(firsts(&network.sequences(client, topic)), (1..=OTHERS).collect::<Vec<_>>());
        }
        assert_eq!(acknowledged(&network), [OTHERS as usize; 2]);
        let counters = status(&network, new, client).session_counters;
        let all = 215 + 10 + 2 * OTHERS;
        assert_eq!((counters.accepted, counters.delivered), (all, all));
        assert_eq!(network.sequences(client, "c"), (1..=225).collect::<Vec<_>>());
    }
}

pub fn stored(network: &Network, node: usize) -> u64 {
    network.hosts[node].store.as_ref().unwrap().store.states().map(|state| state.live).sum()
}

/// And what comes meanwhile for another subtree, and is stored behind it, holds nothing up.
#[test]
fn what_was_not_read_from_the_store_when_the_subtree_stopped_moves_too() {
    let (mut network, old) = Network::with_node(4, 1);
    let new = network.add_node("elsewhere", 1);
    network.add_store(old);
    let client = network.add_client();
    subscribe_persistently(&mut network, client, old, "#");
    network.run(10 * MILLISECOND);
    leave(&mut network, client, old);
    let publishers = [network.add_client(), network.add_client()];
    for _ in 0..200 {
        network.publish(publishers[0], &message("b/topic", &[0; 1_000], 1));
        network.run(MILLISECOND);
    }
    let has_backlog = |network: &Network| network.hosts[old].engines[0].has_backlog();
    assert!(has_backlog(&network));
    let mut copy = Copy::begin(&mut network, old, "b");
    network.cut(old, "b", new);
    network.publish_times(publishers[1], 300, &message("c", &[0; 1_000], 1));
    let gave = copy.finish(&mut network);
    let all: usize = gave.iter().map(HeldQueue::len).sum();
    assert_eq!((all, copy.copied, copy.difference), (200, 200, 0));
    network.run(SECOND);
    assert_eq!(status(&network, old, client).queued, 300);
}

/// The new owner loses power, before and after it took over.
#[test]
fn what_the_store_got_while_a_queue_came_belongs_to_its_session_from_the_takeover_on() {
    for (seed, takes_over) in (0..20).zip([true, false].into_iter().cycle()) {
        let (mut network, old, client) = with_offline_session(300, 2);
        let new = network.add_node("elsewhere", 2);
        network.add_store(new);
        subscribe_persistently(&mut network, client, new, "b/#");
        network.run(10 * MILLISECOND);
        leave(&mut network, client, new);
        let mut copy = Copy::begin(&mut network, old, "b").spooling(new);
        copy.round(&mut network);
        network.cut(old, "b", new);
        let gave = copy.finish(&mut network);
        if takes_over {
            network.grant(new, "b", Grant { epoch: 2, ..GRANT });
            assert_eq!(install(&mut network, new, copy.held), 0);
        }
        network.run(SECOND);
        assert_eq!(stored(&network, new), 300, "seed {seed}");
        network.lose_power(new);
        network.open_session(client, new, true);
        let session = network.hosts[client].session;
        network.restore_queue(new, session);
        network.grant(new, "b", Grant { epoch: 3, ..GRANT });
        network.listen(client, 1, "b/#", 2);
        network.close(client, client);
        network.connect(client, new);
        network.run(SECOND);
        let expected: Vec<u64> = if takes_over { (1..=300).collect() } else { Vec::new() };
        assert_eq!(network.sequences(client, "b/topic"), expected, "seed {seed}");
        assert_eq!(stored(&network, new), if takes_over { 0 } else { 300 });
        assert_eq!(gave.iter().map(HeldQueue::len).sum::<usize>(), 300);
    }
}

/// As if they were offered one by one.
#[test]
fn what_comes_for_a_session_that_is_connected_is_given_to_its_link_before_its_queue_is_cut_to_its_bounds() {
    let (mut network, old, client) = with_offline_session(5, 1);
    let new = network.add_node("elsewhere", 1);
    network.connect(client, new);
    network.open_bounded(client, new, true, Bounds { messages: 1, bytes: 0 });
    let mut copy = Copy::begin(&mut network, old, "b");
    copy.round(&mut network);
    network.cut(old, "b", new);
    copy.finish(&mut network);
    assert_eq!(install(&mut network, new, copy.held), 0);
    network.run_until_drained();
    assert_eq!(network.sequences(client, "b/topic"), [1, 2, 3, 4, 5]);
}

/// Moves the queue of a client to a node with a store, to which the client is connected. It does not read, and a publisher
/// of another subtree waits for it. Returns that node and that publisher.
fn move_to_connected(network: &mut Network, old: usize, client: usize) -> (usize, usize) {
    let new = network.add_node("elsewhere", 1);
    network.add_store(new);
    subscribe_persistently(network, client, new, "elsewhere/#");
    network.listen(client, 2, "elsewhere/#", 2);
    network.hosts[client].reads = false;
    let publisher = network.add_client();
    network.publish(publisher, &message("elsewhere/lamp", b"x", 1));
    network.run(100 * MILLISECOND);
    let mut copy = Copy::begin(network, old, "b");
    copy.round(network);
    network.cut(old, "b", new);
    copy.finish(network);
    assert_eq!(install(network, new, copy.held), 0);
    (new, publisher)
}

/// They get their PUBACKs from the subscriber, although the store gets all that it has.
#[test]
fn what_comes_with_a_subtree_answers_no_publisher_whose_subscriber_is_connected() {
    let (mut network, old, client) = with_offline_session(5, 1);
    let (new, publisher) = move_to_connected(&mut network, old, client);
    network.run(100 * MILLISECOND);
    assert_eq!((stored(&network, new), network.hosts[publisher].published.len()), (6, 0));
    network.hosts[client].reads = true;
    network.run(SECOND);
    assert_eq!((stored(&network, new), network.hosts[publisher].published.len()), (0, 1));
}

/// It gives its tickets to the store, so that they hold no other move up.
#[test]
fn a_connected_session_that_gets_a_long_queue_with_a_subtree_can_move_at_once() {
    let (mut network, old, client) = with_offline_session(0, 1);
    let publisher = network.add_client();
    for _ in 0..60 {
        network.publish_times(publisher, 100, &message("b/topic", &[0; 1_000], 1));
        network.run(20 * MILLISECOND);
    }
    let (new, publisher) = move_to_connected(&mut network, old, client);
    network.run(10 * MILLISECOND);
    assert!(network.hosts[new].engines[0].has_backlog());
    assert_eq!(network.hosts[publisher].published.len(), 1, "its message is on disk");
    let (mut copy, began) = (Copy::begin(&mut network, new, "elsewhere"), network.now);
    network.cut(new, "elsewhere", old);
    let gave = copy.finish(&mut network);
    assert_eq!(gave.iter().map(HeldQueue::len).sum::<usize>(), 1);
    assert!(network.now - began < 200 * MILLISECOND, "nothing waits for the subscriber");
}

#[test]
fn copies_of_another_region_are_void() {
    let (mut network, old, _) = with_offline_session(30, 1);
    let mut copy = Copy::begin(&mut network, old, "b");
    copy.round(&mut network);
    assert_eq!(copy.held.queues[0].len(), 30);
    network.hosts[old].engines[0].restart_copy(EXPORT);
    copy.region = "c";
    copy.round(&mut network);
    assert_eq!(copy.held.queues[0].len(), 0);
    network.hosts[old].engines[0].restart_copy(EXPORT);
    copy.region = "b";
    let gave = copy.finish(&mut network);
    assert_eq!((known(&copy.held.queues), copy.difference), (known(&gave), 30));
}

#[test]
fn what_publishers_wait_for_is_not_copied() {
    let mut network = Network::new(7, Faults::default());
    let old = network.add_node("", 1);
    network.add_idle_subscriber(old, "b/#", 2);
    let publisher = network.add_client();
    network.publish_times(publisher, 30, &message("b/topic", b"x", 2));
    network.run(SECOND / 2);
    let mut copy = Copy::begin(&mut network, old, "b");
    copy.round(&mut network);
    assert_eq!(copy.copied, 0);
    network.run(3 * SECOND);
    network.assert_all_published(publisher, 30);
    copy.round(&mut network);
    assert_eq!(copy.copied, 30, "it is stalled, and they are the owner's alone");
}

#[test]
fn to_be_copied_does_not_set_the_clock_of_a_slow_session_back() {
    let (mut network, node) = Network::with_node(8, 1);
    network.add_idle_subscriber(node, "a/#", 1);
    let publisher = network.add_client();
    network.publish(publisher, &message("a/b", b"x", 1));
    for _ in 0..26 {
        network.run(100 * MILLISECOND);
        for region in ["a", "c"] {
            let mut copy = Copy::begin(&mut network, node, region);
            copy.round(&mut network);
            network.hosts[node].engines[0].stop_export(EXPORT);
        }
    }
    network.assert_all_published(publisher, 1);
}
