//! What strangers and liars send: it is dropped and counted, answered in no more bytes than it has, and costs a bounded amount.

use std::collections::HashMap;
use std::net::SocketAddr;

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::Micros;
use crate::config::Config;
use crate::core::Datagrams;
use crate::engine::sessions::bounds::Bounds;
use crate::engine::tests::network::{Faults, GRANT, Network, SECOND, config, message, value};
use crate::engine::{Engine, Shared};
use crate::schema::reason;
use crate::wire::{self, Body, DatagramView, HeaderOut, PacketView, PublishOut};

fn stranger(random: &mut SmallRng) -> SocketAddr {
    ([192, 0, 2, random.random()], random.random_range(1..u16::MAX)).into()
}

fn dropped(engine: &Engine) -> u64 {
    let mut sum = 0;
    engine.counters(|name, value| sum += if name.starts_with("drop.") { value } else { 0 });
    sum
}

fn sent(engine: &mut Engine, now: u64) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut out = Datagrams::default();
    engine.poll_transmit(now, &mut out);
    out.sent
}

/// A datagram with these packets, as a link would send it.
fn datagram(session: u64, number: u64, token: &[u8], bodies: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    wire::put_header(
        &mut out,
        &HeaderOut { session, incarnation: 5, number, ack: None, token, ack_every: 0 },
    );
    for (delivery, body) in bodies {
        wire::put_packet(&mut out, *delivery, 0, None, body);
    }
    out
}

/// Bodies of all kinds: messages, acknowledgements of everything, control, liars' fragments.
fn bodies(random: &mut SmallRng) -> Vec<Vec<u8>> {
    let topic = *["a", "a/b", "b", "", "#", "a/+"].choose(random).expect("not empty");
    let mut publish = Vec::new();
    let fragment = random.random_bool(0.3).then(|| wire::FragmentView {
        index: random.random_range(0..4),
        count: *[0, 1, 3, u32::MAX].choose(random).expect("not empty"),
        total: random.random(),
    });
    let lie = PublishOut {
        publisher: random.random_range(0..5),
        sequence: random.random(),
        retain: random.random_bool(0.3),
        fragment,
        ..message(topic, &[0; 20], random.random_range(0..4))
    };
    wire::put_publish_field(&mut publish, &lie);
    let (mut puback, mut ping, mut reset, mut challenge) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let first = random.random_range(0..50);
    wire::put_puback_field(&mut puback, [(first, u64::MAX - 1)], random.random_range(0..20), topic, None);
    wire::put_ping_field(&mut ping, random.random());
    wire::put_reset_field(&mut reset, random.random_range(0..4), &[1; 21], random.random_range(0..2));
    wire::put_challenge_field(&mut challenge, &[1; 21], 120);
    // SUBSCRIBE, JOIN and LEAVE without content, and messages that say they are like the one before.
    let control = [
        vec![0x72, 0],
        vec![0x8a, 0x01, 0],
        vec![0x9a, 0x01, 0],
        vec![0x22, 1, 7],
        vec![0x22, 0],
        vec![0x22, 2, 7, 7],
    ];
    [publish, puback, ping, reset, challenge].into_iter().chain(control).collect()
}

fn hostile(random: &mut SmallRng, session: u64, token: &[u8]) -> Vec<u8> {
    let choice = bodies(random);
    let count = random.random_range(0..5);
    let bodies: Vec<(u64, Vec<u8>)> = (0..count)
        .map(|_| {
            let delivery = if random.random_bool(0.5) { 0 } else { random.random_range(0..100) };
            (delivery, choice.choose(random).expect("not empty").clone())
        })
        .collect();
    let number = if random.random_bool(0.2) { 0 } else { random.random_range(0..1 << 40) };
    let mut bytes = datagram(session, number, token, &bodies);
    if random.random_bool(0.3) {
        wire::put_padding(&mut bytes, random.random_range(2..600));
    }
    for _ in 0..random.random_range(0..3) {
        let at = random.random_range(0..bytes.len());
        bytes[at] = random.random();
    }
    if random.random_bool(0.1) {
        bytes.truncate(random.random_range(0..bytes.len()));
    }
    bytes
}

#[test]
fn a_stranger_leaves_no_trace_and_gets_no_more_than_it_sent() {
    let mut random = SmallRng::seed_from_u64(1);
    for node in [true, false] {
        let config = config(node, 1);
        let mut engine = Engine::new(config.clone(), 0, 1, Shared::new(&config, 1));
        let mut now = 1_000 * SECOND;
        for _ in 0..100_000 {
            now += random.random_range(0..200);
            let source = stranger(&mut random);
            let session = if random.random_bool(0.5) { 0 } else { random.random_range(2..1_000) };
            let bytes = hostile(&mut random, session, &[9; 21]);
            engine.handle_datagram(now, source, &bytes);
            for (destination, answer) in sent(&mut engine, now) {
                assert_eq!(destination, source);
                assert!(answer.len() <= bytes.len(), "{} bytes for {}", answer.len(), bytes.len());
            }
            assert_eq!(value(&engine, "links"), 0);
        }
        assert!(dropped(&engine) > 50_000);
        assert!(engine.poll_timeout().is_none() && engine.pending.is_empty());
        // Answers to requests go up to Python, within the limit; a node's, that nobody may prove, at a limited rate.
        assert!(engine.take_events(now, usize::MAX).len() <= config.event_queue);
    }
}

#[test]
fn what_a_stranger_sends_to_a_session_is_counted_each_time() {
    let config = config(true, 1);
    let mut engine = Engine::new(config.clone(), 0, 1, Shared::new(&config, 1));
    let mut random = SmallRng::seed_from_u64(2);
    for count in 1..=20_000 {
        let session = random.random_range(2..u64::MAX);
        let mut bytes = hostile(&mut random, session, &[]);
        if DatagramView::parse(&bytes).is_ok_and(|view| view.header.session == 0) {
            bytes = vec![0xff];
        }
        engine.handle_datagram(1_000 * SECOND, stranger(&mut random), &bytes);
        let unknown_or_malformed = dropped(&engine) - value(&engine, "drop.rate_limited");
        assert_eq!(unknown_or_malformed, count);
    }
}

#[test]
fn nothing_grows_without_bound_whatever_peers_with_sessions_send() {
    let mut random = SmallRng::seed_from_u64(3);
    for node in [true, false] {
        let config = Config {
            max_links: 20,
            event_queue: 50,
            link_queue_bytes: 100_000,
            message_queue_bytes: 50_000,
            retained_bytes: 50_000,
            ..config(node, 1)
        };
        let mut engine = Engine::new(config.clone(), 0, 1, Shared::new(&config, 1));
        engine.grant("a", GRANT);
        engine.listen(0, 1, ("", "#"), 2, false);
        let mut now = 1_000 * SECOND;
        let rounds = if cfg!(debug_assertions) { 300_000 } else { 1_000_000 };
        for _ in 0..rounds {
            now += random.random_range(0..300);
            let source: SocketAddr = ([192, 0, 2, random.random_range(0..30)], 7).into();
            let token = engine.token_for(now, source);
            let session = if node { random.random_range(0..30) } else { config.session };
            let bytes = hostile(&mut random, session, &token);
            engine.handle_datagram(now, source, &bytes);
            engine.handle_timeout(now);
            if random.random_bool(0.01) {
                sent(&mut engine, now);
                engine.take_messages(now, random.random_range(0..10));
                for event in engine.take_events(now, random.random_range(0..10)) {
                    subscribe_whoever_is_up(&mut engine, now, &event);
                }
            }
            assert!(value(&engine, "links") <= 20);
            assert!(engine.events.len() <= 50 + 2 * 20, "{} events", engine.events.len());
            assert!(engine.stalled.len() <= 20);
        }
        // Both queues of each link, and the reserve for control packets.
        assert!(value(&engine, "queued_bytes") <= 20 * (2 * 100_000 + (1 << 20)));
        assert!(value(&engine, "inflight") < 20 * 100_000 / 32);
        assert!(engine.shared.retained.lock().bytes() <= 50_000);
    }
}

fn subscribe_whoever_is_up(engine: &mut Engine, now: Micros, event: &crate::engine::transport::event::Event) {
    if let crate::engine::transport::event::Event::LinkUp(peer) = event {
        engine.open_session(
            now,
            peer.session,
            peer.session % 3 == 0,
            Bounds { messages: 100, bytes: 50_000 },
            0,
        );
        let Some(session) = engine.session_key(peer.session) else {
            return;
        };
        let subscriber = crate::tables::subscriber::Subscriber::new(session, 2);
        engine.subscribe("a/#", "", subscriber);
    }
}

#[test]
fn a_session_that_finds_no_place_is_refused_in_no_more_bytes_and_no_more_often_than_strangers_are_answered() {
    let config = Config { max_links_of_host: 0, stranger_rate: 5, ..config(true, 1) };
    let mut engine = Engine::new(config.clone(), 0, 1, Shared::new(&config, 1));
    let (now, source) = (SECOND, stranger(&mut SmallRng::seed_from_u64(3)));
    let token = engine.token_for(now, source);
    for session in 1..=100 {
        // Of the smallest that begins a session.
        let first = datagram(session, 1, &token, &[(0, vec![0x72, 0])]);
        engine.handle_datagram(now, source, &first);
        for (to, answer) in sent(&mut engine, now) {
            assert_eq!(to, source);
            assert!(answer.len() <= first.len());
            let view = DatagramView::parse(&answer).expect("a node's own");
            assert_eq!((view.header.session, view.header.number), (session, 0));
            let is_refusal = |packet: &PacketView<'_>| matches!(packet.body, Body::Reset { session: named, token: [], reason: reason::QUOTA_EXCEEDED } if named == session);
            assert!(view.packets().iter().all(|packet| is_refusal(&packet)));
        }
    }
    let mut counters = HashMap::new();
    engine.counters(|name, value| _ = counters.insert(name.to_owned(), value));
    assert_eq!((counters["drop.too_many_of_host"], counters["drop.rate_limited"]), (100, 95));
}

/// They know the session and have proved an address that is full. The answer goes to that address alone, and the session stays with its client.
#[test]
fn who_claims_that_a_client_moved_to_a_full_address_ends_nothing() {
    let mut network = Network::new(4, Faults::default());
    let node = network.add_node_with("", 1, |config| config.max_links_of_host = 1);
    let client = network.add_subscriber(node, "a", 1);
    let other = network.add_client();
    network.hosts[other].address.set_ip([10, 9, 9, 9].into());
    network.connect(other, node);
    let (now, session) = (network.now, network.hosts[client].session);
    let liar = SocketAddr::new([10, 9, 9, 9].into(), 99);
    let incarnation = network.hosts[client].engines[0].config.incarnation;
    let engine = &mut network.hosts[node].engines[0];
    let (token, mut answers) = (engine.token_for(now, liar), 0);
    for number in 0..1_000 {
        let mut claim = Vec::new();
        let number = 1_000 + number;
        let header = HeaderOut { session, incarnation, number, ack: None, token: &token, ack_every: 0 };
        wire::put_header(&mut claim, &header);
        engine.handle_datagram(now, liar, &claim);
        for (to, answer) in sent(engine, now) {
            let view = DatagramView::parse(&answer).expect("a node's own");
            let is_reset = |packet: &PacketView<'_>| {
                matches!(packet.body, Body::Reset { token: [], reason: reason::QUOTA_EXCEEDED, .. })
            };
            if view.packets().iter().any(|packet| is_reset(&packet)) {
                assert_eq!(to, liar);
                assert!(answer.len() <= claim.len());
                answers += 1;
            }
        }
    }
    assert_eq!(answers, 1, "not oftener than a CHALLENGE");
    let publisher = network.add_client();
    network.hosts[publisher].address.set_ip([10, 9, 9, 8].into());
    network.publish(publisher, &message("a", b"x", 1));
    network.run_until_drained();
    assert_eq!((network.hosts[client].downs, network.hosts[client].read.len()), (0, 1));
}

#[test]
fn only_one_who_knows_the_session_can_end_a_link() {
    let (mut network, node) = Network::with_node(4, 1);
    let client = network.add_subscriber(node, "a", 1);
    let (node_address, session) = (network.hosts[node].address, network.hosts[client].session);
    let now = network.now;
    let mut random = SmallRng::seed_from_u64(5);
    for _ in 0..20_000 {
        let guess = random.random_range(1..1 << 33);
        if guess == session {
            continue;
        }
        let mut reset = Vec::new();
        wire::put_reset_field(&mut reset, guess, &[1; 21], random.random_range(0..2));
        let forged = datagram(guess, 0, &[], &[(0, reset)]);
        network.hosts[client].engines[0].handle_datagram(now, node_address, &forged);
    }
    assert_eq!(network.hosts[client].downs, 0);
    assert_eq!(network.counter(client, "links"), 1);
    let publisher = network.add_client();
    network.publish(publisher, &message("a", b"x", 1));
    network.run_until_drained();
    assert_eq!(network.hosts[client].read.len(), 1);
}

#[test]
fn two_nodes_never_answer_each_other_for_ever() {
    let make = |seed| {
        let config = config(true, seed);
        Engine::new(config.clone(), 0, 1, Shared::new(&config, 1))
    };
    let mut nodes = [make(1), make(2)];
    let addresses: [SocketAddr; 2] = [([10, 0, 0, 1], 1).into(), ([10, 0, 0, 2], 1).into()];
    let mut padded = datagram(99, 1, &[], &[]);
    wire::put_padding(&mut padded, 500);
    let mut on_its_way = vec![(0, padded)];
    for _ in 0..5 {
        let (to, bytes) = on_its_way.pop().unwrap_or_default();
        nodes[to].handle_datagram(SECOND, addresses[1 - to], &bytes);
        on_its_way.extend(sent(&mut nodes[to], SECOND).into_iter().map(|(_, bytes)| (1 - to, bytes)));
        if on_its_way.is_empty() {
            return;
        }
    }
    panic!("they still talk");
}
