//! Clients of a pool and a node, in virtual time: each gets what is its own.

mod stage;

use crate::client_pool::tests::stage::{NODE, Stage, leave_of, pub_accept};
use crate::client_pool::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::link_id::LinkId;
use crate::wire::{self, HeaderOut, PublishOut};

const SECOND: Micros = 1_000_000;

/// Every member's own topic.
fn topic(number: usize) -> String {
    format!("own/{number}")
}

fn message(topic: &str, qos: u8) -> PublishOut<'_> {
    PublishOut { topic, payload: b"x", qos, ..PublishOut::default() }
}

#[test]
fn each_pool_client_gets_its_own_datagrams() {
    let mut stage = Stage::new();
    let pool_clients: Vec<_> =
        (0..50).map(|number| stage.subscriber(number + 1, &topic(number as usize), 2)).collect();
    assert_eq!(stage.client_pool.pool_clients.len(), 51, "and the first");
    for (number, _) in pool_clients.iter().enumerate() {
        for qos in 0..3 {
            stage.publish(&message(&topic(number), qos));
        }
    }
    stage.run(SECOND);
    let mut read = stage.read();
    read.sort_unstable();
    let mut expected: Vec<_> =
        pool_clients.iter().enumerate().flat_map(|(number, id)| vec![(*id, topic(number)); 3]).collect();
    expected.sort_unstable();
    assert_eq!(read, expected);
    assert_eq!(stage.node_gauge("inflight"), 100, "they are taken, and not handled");
    stage.handle_all();
    stage.run(SECOND);
    assert_eq!(stage.node_gauge("inflight"), 0);
}

#[test]
fn an_answer_is_for_the_pool_client_that_asked() {
    let mut stage = Stage::new();
    let pool_clients: Vec<_> = (1..5).map(|session| stage.open(session)).collect();
    for (request, id) in (100..).zip(&pool_clients[..3]) {
        stage.client_pool.requests.note(stage.now, request, *id, NODE.into());
    }
    stage.node_sends(&pub_accept(101));
    stage.node_sends(&pub_accept(103));
    assert_eq!(stage.notified(), [pool_clients[1]]);
    // CHALLENGE is for all that wrote there, once.
    stage.ask_unproven();
    let challenged: BTreeSet<_> = stage.notified().into_iter().collect();
    assert_eq!(challenged, pool_clients[..3].iter().copied().collect());
    stage.ask_unproven();
    assert_eq!(stage.notified(), []);
    stage.node_sends(&leave_of(4));
    assert_eq!(stage.notified(), [pool_clients[3]]);
    assert_eq!(stage.counter("drop.unexpected_packet"), 2);
}

#[test]
fn a_datagram_for_no_pool_client_is_dropped_and_counted() {
    let mut stage = Stage::new();
    let id = stage.subscriber(1, "a", 1);
    stage.client_pool.remove(id.slot());
    stage.publish(&message("a", 1));
    stage.run(SECOND);
    assert!(stage.counter("drop.unknown_session") > 0);
    stage.client_pool.handle_datagram(stage.now, NODE.into(), b"\xff\xff");
    assert_eq!(stage.counter("drop.malformed"), 1);
}

#[test]
fn who_sends_much_holds_up_nobody() {
    let mut stage = Stage::new();
    let (eager, modest) = (stage.open(1), stage.open(2));
    let elsewhere = (([192, 0, 2, 9], 9).into(), 0);
    let client_pool = &mut stage.client_pool;
    let engine = client_pool.engine(eager).expect("it is open");
    (0..1_000).for_each(|_| engine.send_to(elsewhere, b"", b"", 100));
    client_pool.engine(modest).expect("it is open").send_to((NODE.into(), 0), b"", b"", 100);
    client_pool.end_turn(stage.now);
    let sent = stage.transmit_at_most(2 * DATAGRAMS_PER_TURN);
    assert_eq!(sent.len(), 2 * DATAGRAMS_PER_TURN);
    assert_eq!(sent.iter().filter(|destination| **destination == NODE.into()).count(), 1);
    let rest: usize = (0..100).map(|_| stage.transmit_at_most(20).len()).sum();
    assert_eq!(rest + sent.len(), 1_001, "and nothing is left");
    assert!(stage.client_pool.with_datagrams.is_empty());
}

#[test]
fn what_finds_no_room_stays_with_its_owner_and_comes_later() {
    let mut stage = Stage::new();
    let pool_clients = [stage.subscriber(1, "a", 1), stage.subscriber(2, "a", 1)];
    stage.mailboxes.store(0);
    for _ in 0..6_000 {
        stage.publish(&message("a", 1));
        stage.step();
    }
    stage.run(SECOND);
    assert_eq!(stage.read(), []);
    assert!(stage.node_gauge("queued_messages") > 6_000, "beyond their credit it waits at the owner");
    stage.mailboxes.store(usize::MAX);
    for _ in 0..20 {
        stage.run(SECOND / 2);
        stage.handle_all();
    }
    let read = stage.read();
    for pool_client in pool_clients {
        assert_eq!(read.iter().filter(|(id, _)| *id == pool_client).count(), 6_000);
    }
}

#[test]
fn a_pool_client_that_is_closed_sends_what_is_left_and_is_gone() {
    let mut stage = Stage::new();
    let id = stage.subscriber(7, "a", 1);
    let link = stage.node_link(7).expect("it is connected");
    stage.notified();
    stage.with(id, |engine| {
        let up = LinkId::new(0, 1, 0);
        assert!(engine.send(up, leave_of(0)));
    });
    stage.publish(&message("a", 1));
    let now = stage.now;
    stage.client_pool.close_pool_client(now, id);
    stage.step();
    assert_eq!(stage.node_packets(), 2, "LEAVE has come");
    stage.node.close(stage.now, link);
    stage.run(2 * LINGER);
    assert_eq!((stage.notified(), stage.read()), (vec![], vec![]), "nothing is told of it");
    assert!(stage.client_pool.by_session.len() == 1 && stage.client_pool.pool_clients.len() == 1);
    assert!(stage.client_pool.engine(id).is_none());
    assert!(stage.client_pool.timers.len() <= 1 && stage.client_pool.dirty.is_empty());
}

#[test]
fn a_session_has_one_pool_client_and_one_that_was_closed_gives_way() {
    let mut stage = Stage::new();
    let first = stage.subscriber(7, "a", 1);
    assert_eq!(stage.try_open(7), None);
    let now = stage.now;
    stage.client_pool.close_pool_client(now, first);
    let second = stage.try_open(7).expect("it gave way");
    assert_ne!(first, second);
    stage.with(second, |engine| engine.listen(now, 1, ("", "a"), 1, false));
    stage.connect(second);
    stage.subscribe(7, "a", 1);
    stage.publish(&message("a", 1));
    stage.run(SECOND);
    assert_eq!(stage.read(), [(second, "a".to_owned())]);
}

#[test]
fn members_that_come_and_go_leave_nothing_behind() {
    let mut stage = Stage::new();
    for round in 0..20 {
        let pool_clients: Vec<_> = (0..20).map(|n| stage.subscriber(100 * round + n + 1, "a", 1)).collect();
        stage.publish(&message("a", 1));
        stage.run(SECOND / 10);
        stage.handle_all();
        for id in pool_clients {
            let now = stage.now;
            stage.client_pool.close_pool_client(now, id);
        }
        stage.run(2 * LINGER);
    }
    let client_pool = &stage.client_pool;
    assert!(client_pool.pool_clients.len() == 1 && client_pool.by_session.len() == 1);
    let waiting = client_pool.with_datagrams.len()
        + client_pool.with_events.len()
        + client_pool.with_messages.len()
        + client_pool.dirty.len();
    assert!(waiting <= 1 && client_pool.timers.len() <= 1, "{waiting}");
    assert_eq!(stage.counter("members"), 1);
    assert!(stage.counter("messages_in") == 400, "what they counted stays counted");
}

#[test]
fn whatever_comes_in_nobody_else_is_disturbed() {
    let mut stage = Stage::new();
    let mut rng = SmallRng::seed_from_u64(5);
    let pool_clients: Vec<_> = (1..4).map(|session| stage.subscriber(session, "a", 1)).collect();
    for round in 0..20_000 {
        let mut datagram = Vec::new();
        let session = rng.random_range(0..6);
        wire::put_header(
            &mut datagram,
            &HeaderOut { session, number: rng.random_range(0..4), ..HeaderOut::default() },
        );
        let body = [
            pub_accept(rng.random_range(0..200)),
            leave_of(rng.random_range(0..6)),
            b"\xa2\x01\x00".to_vec(),
        ];
        wire::put_packet(&mut datagram, rng.random_range(0..3), 0, None, &body[rng.random_range(0..3)]);
        for _ in 0..rng.random_range(0..3) {
            let at = rng.random_range(0..datagram.len());
            datagram[at] = rng.random();
        }
        let source = ([192, 0, 2, rng.random_range(1..4)], 7_000).into();
        stage.client_pool.handle_datagram(stage.now, source, &datagram);
        if round % 100 == 0 {
            stage.step();
        }
    }
    stage.read();
    stage.notified();
    let fresh = stage.subscriber(9, "b", 1);
    stage.publish(&message("b", 1));
    stage.run(SECOND);
    assert_eq!(stage.read(), [(fresh, "b".to_owned())]);
    assert_eq!(stage.client_pool.pool_clients.len(), pool_clients.len() + 2);
}
