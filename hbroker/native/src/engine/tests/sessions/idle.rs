//! Idle links and sessions take little memory, and are there when they are needed.

use crate::engine::sessions::session::Session;
use crate::engine::tests::network::{MILLISECOND, Network, SECOND, message};
use crate::engine::transport::event::{Event, Flow};
use crate::engine::transport::links::LinkSlot;

fn awake(network: &Network, node: usize) -> usize {
    network.hosts[node]
        .engines
        .iter()
        .flat_map(|engine| engine.out.links.iter())
        .filter_map(LinkSlot::link)
        .count()
}

#[test]
fn what_an_idle_session_takes() {
    let sizes = (size_of::<LinkSlot>(), size_of::<Session>());
    assert!(sizes.0 <= 296 && sizes.1 <= 248, "{sizes:?}");
}

#[test]
fn links_become_idle_while_the_answer_to_a_ping_is_on_its_way() {
    let (mut network, node) = Network::with_node(10, 1);
    (0..50).for_each(|index| _ = network.add_subscriber(node, &format!("t/{index}"), 1));
    // Whatever comes does so in whole quarters of a millisecond, and is answered at once.
    network.run(SECOND + 1);
    let mut most = 0;
    for _ in 0..20_000 {
        network.run(MILLISECOND / 4);
        most = most.max(awake(&network, node));
    }
    assert_eq!(most, 0, "all say at once that they are there");
}

#[test]
fn idle_links_answer_all_the_same() {
    for workers in [1, 3] {
        let (mut network, node) = Network::with_node(7, workers);
        let clients: Vec<usize> =
            (0..20).map(|index| network.add_subscriber(node, &format!("t/{index}"), 1)).collect();
        network.run(SECOND);
        assert_eq!(awake(&network, node), 0, "they are subscribed");
        let mut ever_awake = 0;
        for _ in 0..10_000 {
            network.run(MILLISECOND / 2);
            ever_awake += awake(&network, node);
        }
        assert!(ever_awake < 20 * 10_000 / 50, "{ever_awake}: they are only kept alive");
        let publisher = network.add_client();
        for index in 0..20 {
            network.publish(publisher, &message(&format!("t/{index}"), b"x", 1));
        }
        network.run(SECOND);
        assert!(clients.iter().all(|&client| network.hosts[client].read.len() == 1));
        network.run(20 * SECOND);
        assert_eq!(network.counter(node, "retransmits"), 0);
        assert!(clients.iter().all(|&client| network.hosts[client].downs == 0));
    }
}

#[test]
fn an_idle_one_that_falls_silent_ends() {
    let (mut network, node) = Network::with_node(8, 1);
    let client = network.add_subscriber(node, "t", 1);
    network.run(5 * SECOND);
    assert_eq!(awake(&network, node), 0);
    network.parted = Some((client, node));
    network.run(14 * SECOND);
    let links = |network: &Network| network.hosts[node].engines[0].out.links.len();
    assert_eq!(links(&network), 1);
    network.run(4 * SECOND);
    assert_eq!(links(&network), 0, "§3.5");
}

#[test]
fn one_that_is_used_again_and_again_becomes_idle_twice_a_second() {
    let (mut network, node) = Network::with_node(9, 1);
    network.add_subscriber(node, "t", 1);
    let publisher = network.add_client();
    network.publish(publisher, &message("t", b"first", 1));
    network.run(10 * SECOND);
    let (mut rests, mut was_awake) = (0_usize, 0_usize);
    for turn in 0..500 {
        if turn % 4 == 0 {
            network.publish(publisher, &message("t", b"x", 1));
        }
        network.run(5 * MILLISECOND);
        let is_awake = awake(&network, node);
        rests += was_awake.saturating_sub(is_awake);
        was_awake = is_awake;
    }
    assert!((2..=2 * (8 + 6)).contains(&rests), "{rests} times in 2.5 s, for two links");
}

/// A link is at rest most of the time, and so it is likely to be when the node says that its session is a child's.
#[test]
fn a_child_whose_link_is_idle_is_preferred_too() {
    let (mut network, node) = Network::with_node(5, 1);
    let child = network.add_client();
    network.connect(child, node);
    network.run(900 * MILLISECOND);
    let (session, now) = (network.hosts[child].session, network.now);
    let link = network.hosts[node].links[&session];
    let engine = &mut network.hosts[node].engines[0];
    assert!(engine.out.links.awake(link).is_none(), "it is at rest");
    engine.prioritise(link);
    // A flood of a hundred clients, and a renewal behind it.
    let event = |session: u64| Event::Control {
        link: Some(link),
        source: ([10, 0, 0, 1], 1).into(),
        packet: session.to_be_bytes().to_vec(),
        inbound: true,
        rights: 0,
    };
    for client in (1_000..1_100).chain([session]) {
        engine.events.push(Flow::Session(client), event(client));
    }
    let is_its =
        |taken: &Event| matches!(taken, Event::Control { packet, .. } if *packet == session.to_be_bytes());
    let position = engine.take_events(now, 1_000).iter().position(is_its);
    assert!(position.is_some_and(|position| position <= 3), "{position:?}");
}
