//! Messages larger than a datagram, on their way through whatever happens (§7.5).

use crate::engine::fragmentation::fragments::{Fragment, Split, Splitter};
use crate::engine::tests::network::{Faults, GRANT, MILLISECOND, Network, SECOND, message};
use crate::wire::{Body, PacketView};

/// Bytes in which a part that is missing, twice there or out of place shows.
fn payload(bytes: usize, seed: u32) -> Vec<u8> {
    (0..bytes as u32).map(|at| (at.wrapping_add(seed).wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn read(network: &Network, subscriber: usize, topic: &str) -> Vec<Vec<u8>> {
    let read = network.hosts[subscriber].read.iter().filter(|read| read.topic == topic);
    read.map(|read| read.payload.clone()).collect()
}

#[test]
fn it_survives_owners_that_change_and_links_that_end_half_way() {
    for seed in 0..6 {
        for qos in [1, 2] {
            let mut network = Network::new(seed, Faults { loss: 0.03, duplication: 0.02, jitter: 1_000 });
            let (old, new) = (network.add_node("", 1), network.add_node("elsewhere", 1));
            let subscriber = network.add_subscriber_of_both(old, new, "b/#", 2);
            let publisher = network.add_client();
            let sent: Vec<Vec<u8>> = [10, 400_000, 20, 300_000].map(|bytes| payload(bytes, 1)).to_vec();
            sent.iter().for_each(|payload| _ = network.publish(publisher, &message("b/c", payload, qos)));
            network.run(10 * MILLISECOND);
            network.close(publisher, publisher);
            network.run(10 * MILLISECOND);
            assert!(network.hosts[publisher].published.len() < 4, "not all is through yet");
            network.grant(new, "b", GRANT);
            network.cut(old, "b", new);
            network.run_until_drained();
            network.assert_all_published(publisher, 4);
            let came = read(&network, subscriber, "b/c");
            assert!(came.iter().map(Vec::len).eq(sent.iter().map(Vec::len)) || qos == 1, "seed {seed}");
            assert!(came.iter().filter(|payload| payload.len() > 20).eq(sent.iter().skip(1).step_by(2)));
            assert!(network.counter(new, "messages_in") > 100, "the new owner had the most of it");
        }
    }
}

#[test]
fn its_publisher_makes_no_more_fragments_than_are_under_way() {
    let (mut network, node) = Network::with_node(1, 1);
    let subscriber = network.add_subscriber(node, "#", 1);
    let publisher = network.add_client();
    let large = payload(30 << 20, 2);
    let sequence = network.publish(publisher, &message("camera", &large, 1));
    let (mut most_queued, mut most_in_flight) = (0, 0);
    while !network.hosts[publisher].published.contains_key(&sequence) {
        network.run(10 * MILLISECOND);
        most_queued = most_queued.max(network.counter(publisher, "queued_bytes"));
        most_in_flight = most_in_flight.max(network.counter(publisher, "inflight"));
    }
    assert!(most_queued < 6 << 20 && most_in_flight <= 4_096, "{most_queued} bytes, {most_in_flight} parts");
    assert!(read(&network, subscriber, "camera") == [large]);
}

#[test]
fn it_leaves_room_for_what_is_published_meanwhile() {
    let (mut network, node) = Network::with_node(2, 1);
    let subscriber = network.add_subscriber(node, "#", 1);
    let publisher = network.add_client();
    let large = payload(7 << 20, 3);
    let first = network.publish(publisher, &message("camera/1", &large, 1));
    let second = network.publish(publisher, &message("camera/2", &large[1..], 1));
    let mut alarms = Vec::new();
    while !network.hosts[publisher].published.contains_key(&first) {
        alarms.push(network.publish(publisher, &message("alarm", b"!", 1)));
        network.run(2 * MILLISECOND);
    }
    let told = &network.hosts[publisher].published;
    let early = alarms.iter().filter(|&alarm| told.contains_key(alarm)).count();
    assert!(alarms.len() >= 5 && 2 * early > alarms.len(), "{early} of {}", alarms.len());
    network.run(10 * MILLISECOND);
    assert!(network.hosts[publisher].published.contains_key(&second), "the two large ones take turns");
    network.run_until_drained();
    network.assert_all_published(publisher, 2 + alarms.len());
    assert_eq!(network.counter(subscriber, "messages_in"), 2 + alarms.len() as u64);
}

#[test]
fn at_qos_0_it_is_paced_by_its_link_and_comes_whole_where_nothing_is_lost() {
    let (mut network, node) = Network::with_node(3, 1);
    let subscriber = network.add_subscriber(node, "#", 0);
    let publisher = network.add_client();
    let large = payload(8 << 20, 4);
    network.publish(publisher, &message("camera", &large, 0));
    network.publish(publisher, &message("camera", b"next", 0));
    network.run(100 * MILLISECOND);
    assert!(network.counter(publisher, "queued_bytes") <= (1 << 20) + 2_000);
    network.run_until_drained();
    assert!(read(&network, subscriber, "camera") == [large, b"next".to_vec()]);
}

#[test]
fn those_that_have_no_room_beside_each_other_come_one_after_the_other() {
    for seed in 0..4 {
        let (mut network, node) =
            Network::with_faults(seed, Faults { loss: 0.01, duplication: 0.01, jitter: 500 }, 1);
        let subscriber = network.add_client_with(|config| {
            config.max_message_bytes = 300_000;
            config.reassembly_bytes = 600_000;
        });
        network.listen(subscriber, 1, "#", 2);
        network.subscribe_anew(subscriber, node, "#", 2);
        // Each has one large message under way at a time, and together they are more than there is room for.
        let publishers =
            [0; 3].map(|_| network.add_client_with(|config| config.link_queue_bytes = 300_000 / 8));
        let large = payload(280_000, 6);
        for _ in 0..2 {
            for publisher in publishers {
                network.publish(publisher, &message("a", &large, 2));
            }
            network.run_until_drained();
        }
        let read = &network.hosts[subscriber].read;
        assert_eq!(read.len(), 6, "seed {seed}");
        assert!(read.iter().all(|read| read.payload == large));
        publishers.iter().for_each(|&publisher| network.assert_all_published(publisher, 2));
        assert_eq!(network.counter(subscriber, "drop.incomplete"), 0);
    }
}

/// The parts of a message of QoS 2, as an owner passes them on.
fn parts_of(payload: &[u8]) -> Vec<Fragment> {
    let sent = message("camera", payload, 2);
    match Splitter::new(77, 1_200).split("camera".into(), &sent) {
        Ok(Split::LargeMessage(mut fragments)) => std::iter::from_fn(|| fragments.next(payload)).collect(),
        other => panic!("not large: {other:?}"),
    }
}

/// The client takes these parts, each under a delivery number of its own.
fn take(network: &mut Network, client: usize, fragments: &[Fragment]) -> Vec<Vec<u8>> {
    let host = &mut network.hosts[client];
    let (engine, link) = (&mut host.engines[0], host.links[&host.session]);
    for (fragment, delivery) in fragments.iter().zip(1_000..) {
        let mut packet = PacketView::from_raw(&fragment.field).expect("we made it");
        packet.delivery = delivery;
        let Body::Publish(publish) = packet.body else { panic!("we made it") };
        engine.read(network.now, link, &packet, &publish);
    }
    engine
        .take_messages(network.now, 10)
        .into_iter()
        .filter_map(|message| message.whole.map(Vec::from))
        .collect()
}

#[test]
fn one_whose_fragments_stop_coming_is_given_up_and_comes_whole_when_it_comes_again() {
    let (mut network, node) = Network::with_node(4, 1);
    let subscriber = network.add_subscriber(node, "#", 2);
    network.run(SECOND);
    let large = payload(3_000, 5);
    let fragments = parts_of(&large);
    assert!(take(&mut network, subscriber, &fragments[..2]).is_empty());
    network.run(40 * SECOND);
    assert_eq!(network.counter(subscriber, "drop.incomplete"), 1);
    assert_eq!(take(&mut network, subscriber, &fragments), [large]);
    assert!(take(&mut network, subscriber, &fragments).is_empty(), "it was here");
    assert_eq!(network.counter(subscriber, "drop.duplicate_message"), fragments.len() as u64);
}
