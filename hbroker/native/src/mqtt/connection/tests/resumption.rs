//! Sessions over several connections, and over several gateways (MQTT 5 §4.4).

use std::collections::{BTreeSet, VecDeque};

use super::*;
use crate::mqtt::distribution::ack_guard::MessageId;
use crate::mqtt::session::{NO_MESSAGE, SentState, SessionState};

fn state(
    sent: Vec<(MessageId, u16)>,
    awaiting_pubcomp: Vec<(MessageId, u16)>,
    received: Vec<u16>,
) -> SessionState {
    SessionState { outgoing: SentState { sent, awaiting_pubcomp, ..SentState::default() }, received }
}

/// The client comes back to its session; what it is sent behind CONNACK.
fn back(version: Version, session: Session, properties: &[u8]) -> (Bench, Vec<Vec<u8>>) {
    let mut bench = Bench::new(ListenerSettings::default());
    bench.accept.session_present = true;
    bench.feed(&connect(version, 0, properties, b"\0\x01c"));
    bench.accept(session);
    let packets = bench.take().split_off(1);
    (bench, packets)
}

#[test]
fn pubrel_and_publish_come_again_first_in_order_and_with_their_ids() {
    for version in VERSIONS {
        let mut bench = Bench::open(version);
        for sequence in 1..7 {
            bench.deliver(Message::plain(sequence, "t", &[sequence as u8], 1 + (sequence % 2) as u8), 2);
        }
        // 1, 3 and 5 are of QoS 2.
        bench.feed(&ack(kind::PUBREC, 5));
        bench.feed(&ack(kind::PUBREC, 1));
        bench.feed(&ack(kind::PUBACK, 4));
        bench.take();
        let mut session = bench.part();
        let waits = Delivery {
            message: Arc::new(Message::plain(7, "t", b"new", 1)),
            delivery_options: DeliveryOptions { qos: 1, ..DeliveryOptions::default() },
            ack_guard: None,
        };
        session.deliver(0, waits, &mut Counters::default());
        let (mut bench, packets) = back(version, session, &[]);
        let expected = [
            ack(kind::PUBREL, 5),
            ack(kind::PUBREL, 1),
            publish(version, 8 | 2, "t", 2, &[], &[2]),
            publish(version, 8 | 4, "t", 3, &[], &[3]),
            publish(version, 8 | 2, "t", 6, &[], &[6]),
            publish(version, 2, "t", 7, &[], b"new"),
        ];
        assert_eq!(packets, expected);
        for bytes in
            [ack(kind::PUBCOMP, 5), ack(kind::PUBCOMP, 1), ack(kind::PUBACK, 2), ack(kind::PUBREC, 3)]
        {
            bench.feed(&bytes);
        }
        assert_eq!(bench.take(), [ack(kind::PUBREL, 3)]);
        assert_eq!(bench.part().export(), state(vec![((7, 6), 6), ((7, 7), 7)], vec![((7, 3), 3)], vec![]));
    }
}

#[test]
fn pubcomp_of_an_earlier_connection_gives_no_quota() {
    for (properties, most) in [(&b""[..], 65_535_u32), (b"\x21\0\x02", 2)] {
        let session = Session::import(
            SessionSettings { inflight: u16::MAX, ..SessionSettings::default() },
            state(vec![], vec![(NO_MESSAGE, 65_535), (NO_MESSAGE, 1)], vec![]),
        );
        let (mut bench, packets) = back(Version::V5, session, properties);
        assert_eq!(packets, [ack(kind::PUBREL, 65_535), ack(kind::PUBREL, 1)]);
        bench.feed(&ack(kind::PUBCOMP, 1));
        bench.feed(&ack(kind::PUBCOMP, 65_535));
        for sequence in 0..5 {
            bench.deliver(Message::plain(sequence, "t", b"", 1), 1);
        }
        assert_eq!(bench.take().len() as u32, most.min(5));
    }
}

#[test]
fn a_smaller_receive_maximum_holds_from_the_first_packet_on() {
    let mut bench = Bench::open(Version::V5);
    for sequence in 1..4 {
        bench.deliver(Message::plain(sequence, "t", &[sequence as u8], 1), 1);
    }
    let (mut bench, packets) = back(Version::V5, bench.part(), b"\x21\0\x01");
    assert_eq!(packets, [publish(Version::V5, 10, "t", 1, &[], &[1])]);
    for id in 1..3_u8 {
        bench.feed(&ack(kind::PUBACK, u16::from(id)));
        assert_eq!(bench.take(), [publish(Version::V5, 10, "t", u16::from(id) + 1, &[], &[id + 1])]);
    }
}

/// Holds MQTT-4.3.3-7.
#[test]
fn what_was_sent_comes_again_although_its_expiry_is_over_and_not_where_it_is_too_large() {
    let mut bench = Bench::open(Version::V5);
    let mut message = Message::plain(1, "t", b"old", 2);
    message.expires = SECOND;
    bench.deliver(message, 2);
    bench.deliver(Message::plain(2, "t", &[0; 50], 2), 2);
    bench.deliver(Message::plain(3, "t", b"3", 2), 2);
    let mut bench_now = Bench::new(ListenerSettings::default());
    bench_now.now = 9 * SECOND;
    bench_now.feed(&connect(Version::V5, 0, b"\x27\0\0\0\x20", b"\0\x01c"));
    let releases = Arc::clone(&bench.releases);
    bench_now.accept(bench.part());
    let expected = [
        publish(Version::V5, 12, "t", 1, b"\x02\0\0\0\0", b"old"),
        publish(Version::V5, 12, "t", 3, &[], b"3"),
    ];
    assert_eq!(bench_now.take().split_off(1), expected);
    assert_eq!(releases.take().len(), 1);
}

#[test]
fn a_message_of_qos_2_that_comes_again_is_delivered_once() {
    for version in VERSIONS {
        // The network answers before, while, or after the client is offline.
        for answered in 0..3 {
            let mut bench = Bench::open(version);
            bench.feed(&publish(version, 4, "t", 7, &[], b"x"));
            let key = bench.upper.published[0].2.unwrap();
            if answered == 0 {
                bench.answer(key.0, Reason::SUCCESS);
            }
            let mut session = bench.part();
            assert_eq!(session.incoming.is_settled(), answered == 0);
            if answered == 1 {
                session.incoming.answer(key, Reason::SUCCESS);
            }
            let (mut bench, packets) = back(version, session, &[]);
            assert!(packets.is_empty(), "PUBREC answers PUBLISH alone");
            bench.feed(&publish(version, 12, "t", 7, &[], b"x"));
            if answered == 2 {
                assert!(bench.take().is_empty());
                bench.answer(key.0, Reason::SUCCESS);
            }
            assert_eq!(bench.take(), [ack(kind::PUBREC, 7)], "{version:?} {answered}");
            bench.feed(&ack(kind::PUBREL, 7));
            assert_eq!(bench.take(), [ack(kind::PUBCOMP, 7)]);
            assert!(bench.upper.published.is_empty());
            assert!(bench.part().incoming.is_settled());
        }
    }
}

#[test]
fn a_message_that_failed_while_the_client_was_away_is_taken_again() {
    let mut bench = Bench::open(Version::V5);
    bench.feed(&publish(Version::V5, 4, "t", 7, &[], b"x"));
    let mut session = bench.part();
    session.incoming.answer(Key(1), Reason::UNSPECIFIED);
    let (mut bench, _) = back(Version::V5, session, &[]);
    bench.feed(&publish(Version::V5, 12, "t", 7, &[], b"x"));
    assert_eq!(bench.upper.published.len(), 1);
    assert_ne!(bench.upper.published[0].2, Some(Key(1)), "a key is not used twice");
}

#[test]
fn a_message_of_qos_1_without_its_answer_is_new_on_the_next_connection() {
    let mut bench = Bench::open(Version::V311);
    bench.feed(&publish(Version::V311, 2, "t", 7, &[], b"x"));
    let (mut bench, _) = back(Version::V311, bench.part(), &[]);
    bench.feed(&publish(Version::V311, 10, "t", 7, &[], b"x"));
    assert_eq!(bench.upper.published.len(), 1);
    bench.answer(1, Reason::SUCCESS);
    assert!(bench.take().is_empty(), "the answer to the first does not count for the second");
    bench.answer(2, Reason::SUCCESS);
    assert_eq!(bench.take(), [ack(kind::PUBACK, 7)]);
}

#[test]
fn another_gateway_goes_on_with_the_same_packet_ids() {
    let mut bench = Bench::open(Version::V5);
    for sequence in 1..4 {
        bench.deliver(Message::plain(sequence, "t", &[sequence as u8], 2), 2);
    }
    bench.feed(&ack(kind::PUBREC, 2));
    bench.feed(&publish(Version::V5, 4, "t", 9, &[], b"x"));
    bench.answer(1, Reason::SUCCESS);
    let kept = bench.part().export();
    assert_eq!(kept, state(vec![((7, 1), 1), ((7, 3), 3)], vec![((7, 2), 2)], vec![9]));
    let session = Session::import(SessionSettings::default(), kept.clone());
    assert_eq!(session.export(), kept, "nothing is lost on the way");
    let (mut bench, packets) = back(Version::V5, session, &[]);
    assert_eq!(packets, [ack(kind::PUBREL, 2)]);
    // The network brings again what was not acknowledged, then what is new.
    for sequence in [1, 2, 3, 4] {
        bench.deliver(Message::plain(sequence, "t", &[sequence as u8], 2), 2);
    }
    let expected = [
        publish(Version::V5, 12, "t", 1, &[], &[1]),
        publish(Version::V5, 12, "t", 3, &[], &[3]),
        publish(Version::V5, 4, "t", 4, &[], &[4]),
    ];
    assert_eq!(bench.take(), expected);
    bench.feed(&publish(Version::V5, 12, "t", 9, &[], b"x"));
    assert_eq!(bench.take(), [ack(kind::PUBREC, 9)]);
    assert!(bench.upper.published.is_empty());
    (1..5).for_each(|id| bench.feed(&ack(kind::PUBREC, id)));
    assert_eq!(bench.settled(), 0, "nothing is released");
    (1..5).for_each(|id| bench.feed(&ack(kind::PUBCOMP, id)));
    assert_eq!(bench.settled(), 4);
}

/// The copy that the network brings again may come before or after PUBCOMP, and to a third gateway.
#[test]
fn what_the_client_has_is_not_sent_again_and_is_answered_once_it_is_released() {
    let mut bench = Bench::open(Version::V5);
    bench.deliver(Message::plain(1, "t", b"x", 2), 2);
    bench.feed(&ack(kind::PUBREC, 1));
    let kept = bench.part().export();
    for gateways in 0..3 {
        let mut kept = kept.clone();
        for _ in 0..gateways {
            let session = Session::import(SessionSettings::default(), kept);
            let (mut bench, packets) = back(Version::V5, session, &[]);
            assert!(packets.is_empty() || packets == [ack(kind::PUBREL, 1)]);
            bench.feed(&ack(kind::PUBCOMP, 1));
            kept = bench.part().export();
            let completed = SentState { completed: vec![(7, 1)], ..SentState::default() };
            assert_eq!(kept.outgoing, completed);
        }
        let session = Session::import(SessionSettings::default(), kept);
        let (mut bench, _) = back(Version::V5, session, &[]);
        bench.deliver(Message::plain(1, "t", b"x", 2), 2);
        assert!(bench.take().is_empty());
        assert_eq!(bench.settled(), usize::from(gateways > 0));
        bench.feed(&ack(kind::PUBCOMP, 1));
        assert_eq!(bench.settled(), usize::from(gateways == 0));
        bench.deliver(Message::plain(1, "t", b"x", 2), 2);
        assert_eq!(bench.take().len(), 1, "it is known once");
    }
}

#[test]
fn a_client_that_releases_nothing_holds_up_nobody_for_long() {
    let mut bench = Bench::open(Version::V5);
    bench.deliver(Message::plain(1, "t", b"x", 2), 2);
    bench.feed(&ack(kind::PUBREC, 1));
    assert_eq!(bench.settled(), 0);
    bench.now = bench.connection.poll_timeout();
    assert_eq!(bench.now, SessionSettings::default().stall);
    bench.turn(|connection, turn, upper| connection.handle_timeout(turn, upper));
    assert_eq!(bench.settled(), 1);
    let awaiting_pubcomp = vec![(NO_MESSAGE, 1)];
    assert_eq!(
        bench.part().export(),
        state(vec![], awaiting_pubcomp, vec![]),
        "its owner does not bring it again"
    );
}

#[test]
fn new_messages_get_ids_that_no_gateway_before_had_in_flight() {
    let outgoing = SentState { block: 3, ..SentState::default() };
    let session = Session::import(SessionSettings::default(), SessionState { outgoing, received: vec![] });
    let (mut bench, _) = back(Version::V5, session, &[]);
    bench.deliver(Message::plain(1, "t", b"x", 2), 2);
    assert_eq!(bench.take(), [publish(Version::V5, 4, "t", 3 * 8_191 + 1, &[], b"x")]);
    assert_eq!(bench.part().export().outgoing.block, 3);
}

/// A client that remembers an id of `QoS` 2 takes any message with it for a retransmission, until PUBREL.
#[test]
fn ids_that_a_client_may_remember_are_released_before_they_are_used_again() {
    const FIRST: u16 = 2 * 8_191 + 1;
    let outgoing = SentState { block: 8 + 2, ..SentState::default() };
    let session = Session::import(SessionSettings::default(), SessionState { outgoing, received: vec![] });
    let (mut bench, _) = back(Version::V5, session, &[]);
    bench.deliver(Message::plain(1, "t", b"one", 1), 2);
    assert_eq!(bench.take(), [publish(Version::V5, 2, "t", FIRST, &[], b"one")], "QoS 1 is not concerned");
    for sequence in 2..100 {
        bench.deliver(Message::plain(sequence, "t", &[sequence as u8], 2), 2);
    }
    let released: Vec<_> = (FIRST + 1..FIRST + 65).map(|id| ack(kind::PUBREL, id)).collect();
    assert_eq!(bench.take(), released, "but that in flight");
    bench.feed(&ack(kind::PUBCOMP, FIRST + 2));
    assert_eq!(bench.take(), Vec::<Vec<u8>>::new(), "the one before is not known");
    bench.feed(&ack(kind::PUBCOMP, FIRST + 1));
    let (next, two) = (publish(Version::V5, 4, "t", FIRST + 1, &[], &[2]), bench.take());
    assert_eq!(two[0], next);

    // A new connection repeats what was not answered, and the rest follows, each id once.
    let session = bench.part();
    let (mut bench, packets) = back(Version::V5, session, &[]);
    let again = packets.iter().filter(|packet| packet[0] >> 4 == kind::PUBREL).count();
    assert!(again >= 62, "{again}");
    let mut seen = BTreeSet::new();
    let mut waiting = VecDeque::from(packets);
    while let Some(packet) = waiting.pop_front() {
        let id = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
        match packet[0] >> 4 {
            kind::PUBREL => bench.feed(&ack(kind::PUBCOMP, id(2))),
            _ if packet[0] & 6 == 2 => bench.feed(&ack(kind::PUBACK, id(5))),
            _ => {
                seen.insert(*packet.last().unwrap());
                bench.feed(&ack(kind::PUBREC, id(5)));
            }
        }
        waiting.extend(bench.take());
    }
    assert_eq!(seen, (2..100).collect());
    assert_eq!(bench.part().export().outgoing, SentState { block: 10, ..SentState::default() });
}

#[test]
fn a_client_that_is_away_is_kept_what_is_of_qos_1_and_2() {
    let mut bench = Bench::open_with(
        Version::V311,
        ListenerSettings { output_bytes: 1, ..ListenerSettings::default() },
        Session::default(),
        &[],
    );
    bench.out.push(0);
    bench.deliver(Message::plain(1, "t", b"waits for the socket", 0), 0);
    bench.out.clear();
    let releases = Arc::clone(&bench.releases);
    let mut session = bench.part();
    let mut counters = Counters::default();
    for (sequence, qos) in (2..).zip([0, 1, 2]) {
        let message = Arc::new(Message::plain(sequence, "t", &[sequence as u8], qos));
        let ack_guard = Some(AckGuard::new(Ticket { pool_client: 0, message: message.id }, &releases));
        let delivery_options = DeliveryOptions { qos: 2, ..DeliveryOptions::default() };
        session.deliver(0, Delivery { message, delivery_options, ack_guard }, &mut counters);
    }
    assert_eq!(counters.drops[crate::mqtt::metrics::counters::Drop::Offline as usize], 1);
    assert_eq!((session.load().queued, releases.take().len()), (2, 1));
    session.handle_timeout(session.poll_timeout(), &mut counters);
    assert_eq!(releases.take().len(), 2, "offline is stalled, too, unless its settings say otherwise");
    let (_, packets) = back(Version::V311, session, &[]);
    let expected =
        [publish(Version::V311, 2, "t", 1, &[], &[3]), publish(Version::V311, 4, "t", 2, &[], &[4])];
    assert_eq!(packets, expected);
}

/// Holds MQTT-4.8.2-5.
#[test]
fn what_began_at_qos_2_goes_to_nobody_else_when_its_session_is_over() {
    let settings = SessionSettings { inflight: 3, ..SessionSettings::default() };
    let mut bench = Bench::open_with(Version::V5, ListenerSettings::default(), Session::new(settings), &[]);
    for (sequence, qos) in (1..).zip([2, 2, 1, 2]) {
        bench.deliver(Message::plain(sequence, "t", b"x", qos), 2);
    }
    bench.feed(&ack(kind::PUBREC, 1));
    let session = bench.part();
    let ids = |is_over| -> Vec<u64> {
        session.ack_guards(is_over).map(|ack_guard| ack_guard.ticket().message.1).collect()
    };
    assert_eq!(ids(false), [2, 3, 1, 4]);
    assert_eq!(ids(true), [3, 4], "the fourth was not sent");
}
