//! Packets that come before their turn: all links together hold so much of them, and one host cannot use that up (§3.3).

use std::net::SocketAddr;

use crate::engine::tests::network::{Faults, GRANT, Network, SECOND, config, message, value};
use crate::engine::{Engine, Shared};
use crate::wire::{self, HeaderOut, PublishOut};

const MEMORY: usize = 8 << 20;
const PAYLOAD: usize = 60_000;

fn node() -> Engine {
    let config = crate::config::Config { out_of_order_bytes: MEMORY, ..config(true, 1) };
    let mut engine = Engine::new(config.clone(), 0, 1, Shared::new(&config, 1));
    engine.grant("a", GRANT);
    engine
}

/// A session sends one message, as its delivery `delivery` behind the one before, in a datagram of that number.
fn send(engine: &mut Engine, source: SocketAddr, session: u64, delivery: u64, number: u64) {
    let now = 1_000 * SECOND;
    let token = engine.token_for(now, source);
    let publisher = crate::publisher_id::publisher_id(session, 5);
    let mut field = Vec::new();
    let payload = vec![delivery as u8; PAYLOAD];
    let message = PublishOut { publisher, sequence: delivery, ..message("a", &payload, 1) };
    wire::put_publish_field(&mut field, &message);
    let mut bytes = Vec::new();
    let header = HeaderOut { session, incarnation: 5, number, ack: None, token: &token, ack_every: 0 };
    wire::put_header(&mut bytes, &header);
    wire::put_packet(&mut bytes, delivery, delivery - 1, None, &field);
    engine.handle_datagram(now, source, &bytes);
}

#[test]
fn one_host_has_no_more_of_it_than_it_leaves_free() {
    let mut engine = node();
    for session in 1_000..1_064 {
        // Delivery 1 never comes.
        (1..=69).for_each(|number| send(&mut engine, ([10, 9, 9, 9], 9).into(), session, number + 1, number));
    }
    let held = value(&engine, "out_of_order_bytes") as usize;
    assert!(held <= MEMORY / 2, "one host holds {held} bytes");
    assert!(held > MEMORY / 2 - PAYLOAD, "it may hold half: {held} bytes");
    assert_eq!(value(&engine, "messages_in"), 0);
    assert!(value(&engine, "drop.out_of_order_full") > 64 * 67, "each that is refused is counted");

    let other: SocketAddr = ([10, 1, 1, 1], 9).into();
    let refused = value(&engine, "drop.out_of_order_full");
    (1..=20).for_each(|number| send(&mut engine, other, 7, number + 1, number));
    assert_eq!(value(&engine, "drop.out_of_order_full"), refused, "another host finds room");
    send(&mut engine, other, 7, 1, 21);
    assert_eq!(value(&engine, "messages_in"), 21);
    assert_eq!(value(&engine, "out_of_order_bytes") as usize, held, "it holds nothing any more");
}

#[test]
fn what_others_wait_for_is_never_refused_and_what_was_refused_comes_again() {
    let mut engine = node();
    let source: SocketAddr = ([10, 9, 9, 9], 9).into();
    (1..=69).for_each(|number| send(&mut engine, source, 1_000, number + 1, number));
    (1..=69).for_each(|number| send(&mut engine, source, 1_001, number + 1, number));
    assert!(value(&engine, "drop.out_of_order_full") > 0);
    send(&mut engine, source, 1_001, 1, 100);
    let first = value(&engine, "messages_in");
    assert!((1..70).contains(&first), "{first} messages");
    (1..=69).for_each(|number| send(&mut engine, source, 1_001, number + 1, 100 + number));
    assert_eq!(value(&engine, "messages_in"), 70, "all of this session, in turn");
    let held = value(&engine, "out_of_order_bytes");
    assert!(held > 60 * PAYLOAD as u64, "the other session holds what it did: {held}");
    let ids: Vec<_> = engine.out.links.iter().map(crate::engine::transport::links::LinkSlot::id).collect();
    for id in ids {
        engine.close(1_000 * SECOND, id);
    }
    assert_eq!(value(&engine, "out_of_order_bytes"), 0);
}

#[test]
fn a_lossy_link_gets_on_however_little_room_there_is() {
    for out_of_order_bytes in [0, 2_000, 20_000] {
        let mut network = Network::new(7, Faults::HEAVY);
        let node = network.add_node_with("", 1, |config| config.out_of_order_bytes = out_of_order_bytes);
        let subscriber = network.add_subscriber(node, "a/#", 1);
        let publisher = network.add_client();
        for index in 0..300_u32 {
            network.publish(publisher, &message(["a/b", "a/c"][index as usize % 2], &[7; 300], 1));
        }
        network.run_until_drained();
        network.assert_all_published(publisher, 300);
        assert_eq!(network.hosts[subscriber].read.len(), 300);
        assert!(network.counter(node, "drop.out_of_order_full") > 0, "{out_of_order_bytes}");
        assert_eq!(network.counter(node, "out_of_order_bytes"), 0);
    }
}
