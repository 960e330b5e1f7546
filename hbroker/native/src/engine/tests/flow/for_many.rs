//! One client publishes for many: none of them is held up by what another publishes to somebody slow (§7.7).

use super::{Flood, assert_let_go, flood_one, ignore_credit, read, read_ids, with_node};
use crate::engine::tests::network::{Faults, MILLISECOND, Network, SECOND, credit_field, message};
use crate::engine::tests::sessions::{grant, link_to, status};
use crate::engine::transport::links::Entry;
use crate::wire::PublishOut;

/// A client that publishes for many.
fn add_many(network: &mut Network) -> usize {
    network.add_client_with(|config| config.for_many = true)
}

/// One that is subscribed to a topic, takes 16 messages at once, and reads when it is told to.
fn add_slow(network: &mut Network, node: usize, topic: &str) -> usize {
    let slow = network.add_idle_subscriber(node, topic, 2);
    grant(network, slow, node, 16, 1 << 20);
    slow
}

/// Has a host read so many messages: their sequence numbers.
fn read_numbers(network: &mut Network, host: usize, count: usize) -> Vec<u64> {
    read_ids(network, host, count).into_iter().map(|(_, sequence)| sequence).collect()
}

/// Has a host read quickly, at last, until it has got so many messages in all.
fn read_rest(network: &mut Network, host: usize, got: &mut Vec<u64>, total: usize) {
    let start = network.now;
    while got.len() < total {
        got.extend(read_numbers(network, host, 100));
        network.run(10 * MILLISECOND);
        assert!(network.now < start + 30 * SECOND, "{} of {total} came", got.len());
    }
    network.run_until_drained();
}

/// The node's end of a client's link.
fn entry(network: &mut Network, node: usize, client: usize) -> &mut Entry {
    let session = network.hosts[client].session;
    let engines = network.hosts[node].engines.iter_mut();
    let found = engines.filter_map(|engine| {
        let link = engine.out.links.by_session(session)?;
        engine.out.links.get_mut(link)
    });
    found.last().expect("it is connected")
}

/// The longest that a message to somebody quick waits for its answer, in milliseconds, while 6,000 go over the same link to one who answers ten a second.
fn longest_wait_beside_a_flood(workers: u8, has_short_queues: bool, qos: u8, ack_queued: bool) -> u64 {
    let make = if has_short_queues { with_node } else { Network::with_faults };
    let (mut network, node) = make(1, Faults::default(), workers);
    let slow = add_slow(&mut network, node, "slow");
    let quick = network.add_subscriber(node, "quick", 2);
    let gateway = add_many(&mut network);
    let flood: Vec<u64> = (0..6_000)
        .map(|_| {
            network.publish(gateway, &PublishOut { origin: 7, ack_queued, ..message("slow", b"x", qos) })
        })
        .collect();
    let (mut open, mut longest, mut got) = (Vec::new(), 0, Vec::new());
    for _ in 0..100 {
        for _ in 0..10 {
            let sent = network.publish(gateway, &PublishOut { origin: 8, ..message("quick", b"x", qos) });
            open.push((sent, network.now));
        }
        network.run(100 * MILLISECOND);
        got.extend(read_numbers(&mut network, slow, 1));
        assert!(!status(&network, node, slow).is_stalled, "it answers");
        open.retain(|(sent, since)| {
            longest = longest.max(network.now - since);
            !network.hosts[gateway].published.contains_key(sent)
        });
    }
    let answered = network.hosts[gateway].published.len();
    assert!(answered < 5_000 || ack_queued, "the flood itself is held back: {answered}");
    read_rest(&mut network, slow, &mut got, 6_000);
    network.assert_all_published(gateway, 7_000);
    assert_eq!(got, flood, "each once, in order");
    assert_eq!(network.hosts[quick].read.len(), 1_000);
    assert_let_go(&network, node);
    longest / MILLISECOND
}

#[test]
fn who_shares_a_link_with_one_that_is_held_back_is_not_held_for_minutes() {
    for (workers, has_short_queues) in [(1, true), (3, true), (1, false)] {
        for (qos, ack_queued) in [(1, false), (2, false), (1, true)] {
            let longest = longest_wait_beside_a_flood(workers, has_short_queues, qos, ack_queued);
            assert!(longest <= 3_000, "{longest} ms: {workers}, {has_short_queues}, QoS {qos}, {ack_queued}");
        }
    }
}

#[test]
fn all_that_gateways_publish_to_one_who_is_slower_comes_once_and_in_order() {
    for (seed, workers) in [(1, 1), (2, 3)] {
        for (qos, ack_queued) in [(1, false), (2, false), (1, true), (2, true)] {
            let (mut network, node) =
                with_node(seed, Faults { loss: 0.02, duplication: 0.02, jitter: 500 }, workers);
            let slow = network.add_idle_subscriber(node, "a/#", 2);
            // Two gateways, and two who publish for themselves.
            let publishers = (0..4).map(|position| match position % 2 {
                0 => add_many(&mut network),
                _ => network.add_client(),
            });
            let mut flood = Flood::of(publishers.collect(), 2_000, 2_000);
            let out = PublishOut { ack_queued, ..message("a/b", b"x", qos) };
            let (got, _) = flood_one(&mut network, node, slow, &mut flood, &out);
            for &publisher in &flood.publishers {
                let id = network.hosts[publisher].publisher;
                let of_it: Vec<u64> =
                    got.iter().filter(|(other, _)| *other == id).map(|(_, sequence)| *sequence).collect();
                assert_eq!(of_it.len(), 2_000);
                assert!(of_it.is_sorted(), "in order");
            }
        }
    }
}

#[test]
fn who_publishes_for_itself_and_a_gateway_both_get_on_with_one_who_is_slow() {
    let (mut network, node) = with_node(3, Faults::default(), 1);
    let slow = add_slow(&mut network, node, "a/#");
    let pair = [add_many(&mut network), network.add_client()];
    let mut flood = Flood::of(pair.into(), usize::MAX, 400);
    let mut answered = [0; 2];
    for round in 0..4_000 {
        flood.send(&mut network, &message("a/b", b"x", 1));
        network.run(5 * MILLISECOND);
        read(&mut network, slow, 2);
        if round % 1_000 == 999 {
            for (&publisher, before) in pair.iter().zip(&mut answered) {
                let now = network.hosts[publisher].published.len();
                assert!(now > *before, "one got nowhere for five seconds");
                *before = now;
            }
        }
    }
}

#[test]
fn what_one_who_does_not_keep_to_it_sends_to_one_who_is_slow_is_refused() {
    let (mut network, node) = with_node(4, Faults::default(), 1);
    let slow = add_slow(&mut network, node, "a/#");
    let gateways = [add_many(&mut network), add_many(&mut network)];
    for round in 0..400 {
        for (position, &gateway) in gateways.iter().enumerate() {
            ignore_credit(&mut network, gateway);
            for number in 0..50 {
                let topic = format!("a/{position}/{round}/{number}");
                network.publish(gateway, &PublishOut { ack_queued: true, ..message(&topic, b"x", 1) });
            }
        }
        network.run(5 * MILLISECOND);
        read(&mut network, slow, 1);
        let queued = status(&network, node, slow).queued;
        assert!(queued <= 100 + 16 + 2 * 1_024 + 64, "{queued} wait");
    }
    assert!(network.counter(node, "drop.queues_full") > 10_000);
    assert!(network.hosts[node].engines[0].out.links.len() == 3, "all are there");
}

#[test]
fn one_that_says_late_that_it_publishes_for_many_is_let_go() {
    let (mut network, node) = with_node(5, Faults::default(), 1);
    let slow = add_slow(&mut network, node, "slow");
    network.add_subscriber(node, "quick", 1);
    let client = network.add_client();
    network.publish_times(client, 300, &message("slow", b"x", 1));
    network.run(SECOND);
    assert!(entry(&mut network, node, client).is_throttled);
    let credit = credit_field(4_096, 8 << 20, true);
    let link = link_to(&network, client, node).expect("it is connected");
    assert!(network.hosts[client].engines[0].send(link, credit));
    network.run(SECOND);
    let held = entry(&mut network, node, client);
    assert!(!held.is_throttled && held.allowance.is_none() && held.throttled_by.len() == 1);
    let sent = network.publish(client, &message("quick", b"x", 1));
    network.run(SECOND);
    assert!(network.hosts[client].published.contains_key(&sent));
    network.read_all(slow);
    assert_let_go(&network, node);
}

#[test]
fn an_idle_link_is_still_of_one_who_publishes_for_many() {
    let (mut network, node) = Network::with_node(6, 1);
    network.add_subscriber(node, "a", 1);
    let gateway = add_many(&mut network);
    network.publish(gateway, &message("a", b"x", 1));
    network.run_until_drained();
    network.run(5 * SECOND + 1);
    let session = network.hosts[gateway].session;
    let links = &network.hosts[node].engines[0].out.links;
    let link = links.by_session(session).expect("it is connected");
    assert!(links.awake(link).is_none(), "it rests");
    assert!(entry(&mut network, node, gateway).for_many);
}

#[test]
fn what_is_for_a_slow_group_waits_and_nothing_else_does() {
    let (mut network, node) = with_node(7, Faults::default(), 1);
    let members = [(); 2].map(|()| network.add_member(node, "slow", "g", 1));
    for member in members {
        grant(&mut network, member, node, 16, 1 << 20);
        network.hosts[member].reads = false;
    }
    network.add_subscriber(node, "quick", 1);
    let gateway = add_many(&mut network);
    network.publish_times(gateway, 2_000, &PublishOut { ack_queued: true, ..message("slow", b"x", 1) });
    for _ in 0..100 {
        let sent = network.publish(gateway, &message("quick", b"x", 1));
        network.run(100 * MILLISECOND);
        assert!(network.hosts[gateway].published.contains_key(&sent));
        let told = members.map(|member| {
            read(&mut network, member, 1);
            status(&network, node, member)
        });
        assert!(told.iter().all(|told| !told.is_stalled && told.queued <= 100 + 16 + 1_024 + 64), "{told:?}");
    }
    for member in members {
        network.hosts[member].reads = true;
    }
    network.run_until_drained();
    network.assert_all_published(gateway, 2_100);
}

/// An owner remembers 16,384 words of a publisher's numbers. What waits must not be forgotten meanwhile: it would count as seen.
#[test]
fn what_waits_at_the_highest_qos_is_new_to_its_owner_however_many_others_went_before_it() {
    let (mut network, node) = with_node(8, Faults::default(), 1);
    let slow = add_slow(&mut network, node, "slow");
    let quick = network.add_subscriber(node, "quick/#", 2);
    let gateway = add_many(&mut network);
    network.publish_times(gateway, 1_500, &PublishOut { ack_queued: true, ..message("slow", b"x", 2) });
    network.run(SECOND);
    let (mut got, mut answered_meanwhile) = (Vec::new(), 0);
    for round in 0..1_000 {
        for number in 0..20 {
            network.hosts[gateway].engines[0].splitter.skip(64);
            network.publish(gateway, &message(&format!("quick/{number}"), b"x", 2));
        }
        network.run(10 * MILLISECOND);
        if round % 5 == 0 {
            got.extend(read_numbers(&mut network, slow, 1));
        }
        answered_meanwhile = network.hosts[quick].read.len();
    }
    assert!(answered_meanwhile >= 8_000, "they went on as far as they may: {answered_meanwhile}");
    read_rest(&mut network, slow, &mut got, 1_500);
    network.assert_all_published(gateway, 21_500);
    assert_eq!((got.len(), network.hosts[quick].read.len()), (1_500, 20_000));
}

#[test]
fn what_waits_for_its_share_of_a_window_goes_in_runs() {
    let (mut network, node) = Network::with_node(5, 1);
    let subscriber = network.add_idle_subscriber(node, "a", 1);
    let gateway = add_many(&mut network);
    network.publish_times(gateway, 3_000, &message("a", b"x", 1));
    network.run(SECOND);
    assert!(network.counter(gateway, "waiting") > 500, "half of a window is open");
    network.hosts[subscriber].reads = true;
    let (mut got, start) = (Vec::new(), network.now);
    while network.counter(gateway, "waiting") > 0 {
        got.extend(read_numbers(&mut network, subscriber, 1));
        network.run(MILLISECOND);
        assert!(network.now < start + SECOND, "it goes as soon as the others were read");
    }
    let links = &network.hosts[gateway].engines[0].out.links;
    let owner = links.iter().find_map(|position| links.awake(position.id())).expect("it is busy");
    let (open, parts) = (owner.delivery_records.len(), owner.delivery_records.iter().count());
    assert!(open > 500 && 8 * parts < open, "{open} messages are open, in {parts} parts");
    network.run_until_drained();
    network.assert_all_published(gateway, 3_000);
    got.extend(network.hosts[subscriber].read.iter().map(|read| read.sequence));
    assert_eq!(got.len(), 3_000);
    assert!(got.is_sorted(), "in order");
}
