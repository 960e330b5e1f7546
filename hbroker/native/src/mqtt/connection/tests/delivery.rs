//! From the network to a client that is connected.

use super::*;
use crate::engine::sessions::progress;

/// How long a client may leave a message unanswered that others wait for.
const STALL: Micros = 1_500_000;

fn small(settings: SessionSettings, properties: &[u8]) -> Bench {
    Bench::open_with(Version::V5, ListenerSettings::default(), Session::new(settings), properties)
}

#[test]
fn every_qos_runs_to_its_end_and_settles_once() {
    for version in VERSIONS {
        let mut bench = Bench::open(version);
        bench.deliver(Message::plain(1, "t", b"0", 0), 2);
        bench.deliver(Message::plain(2, "t", b"1", 1), 2);
        bench.deliver(Message::plain(3, "t", b"2", 2), 2);
        bench.deliver(Message::plain(4, "t", b"low", 2), 1);
        let expected = [
            publish(version, 0, "t", 0, &[], b"0"),
            publish(version, 2, "t", 1, &[], b"1"),
            publish(version, 4, "t", 2, &[], b"2"),
            publish(version, 2, "t", 3, &[], b"low"),
        ];
        assert_eq!(bench.take(), expected);
        assert_eq!(bench.settled(), 1, "at QoS 0 nobody waits");
        bench.feed(&ack(kind::PUBREC, 2));
        assert_eq!((bench.take(), bench.settled()), (vec![ack(kind::PUBREL, 2)], 0));
        bench.feed(&ack(kind::PUBREC, 2));
        assert_eq!((bench.take(), bench.settled()), (vec![ack(kind::PUBREL, 2)], 0));
        bench.feed(&ack(kind::PUBCOMP, 2));
        bench.feed(&ack(kind::PUBACK, 3));
        bench.feed(&ack(kind::PUBACK, 1));
        assert_eq!((bench.take().len(), bench.settled()), (0, 3));
        assert_eq!(bench.connection.session().unwrap().load(), Default::default());
    }
}

/// Two clients of one kind: one gets messages together, the other one by one, and both the same bytes.
#[test]
fn messages_that_came_together_are_written_as_they_would_be_one_by_one() {
    let payloads: [&[u8]; 4] = [b"first", b"", &[7; 200], b"last"];
    let aliases: &[u8] = &[0x22, 0, 2];
    let small: &[u8] = &[0x27, 0, 0, 0, 100];
    let kinds: [(Version, &[u8], usize); 7] = [
        (Version::V31, &[], 1 << 20),
        (Version::V311, &[], 1 << 20),
        (Version::V5, &[], 1 << 20),
        (Version::V5, aliases, 1 << 20),
        (Version::V5, small, 1 << 20),
        (Version::V311, &[], 250),
        (Version::V5, &[], 1),
    ];
    for (version, properties, output_bytes) in kinds {
        let outcomes = [true, false].map(|together| {
            let settings = ListenerSettings { output_bytes, ..ListenerSettings::default() };
            let session = Session::new(SessionSettings::default());
            let mut bench = Bench::open_with(version, settings, session, properties);
            let mut packets = Vec::new();
            for (topic, retain, identifiers) in [
                ("t/1", false, [0; 0].as_slice()),
                ("t/1", true, &[5]),
                ("topic/2", false, &[5, 300_000]),
                ("t/1", false, &[]),
            ] {
                let delivery_options = DeliveryOptions { qos: 0, retain, identifiers: identifiers.into() };
                if together {
                    bench.deliver_batch(topic, &payloads, &delivery_options);
                } else {
                    for payload in payloads {
                        let message = Arc::new(Message::plain(1, topic, payload, 0));
                        bench.deliver_all(Delivery {
                            message,
                            delivery_options: delivery_options.clone(),
                            ack_guard: None,
                        });
                    }
                }
                packets.extend(bench.take());
            }
            // What found no room follows.
            while bench.connection.session().unwrap().load().queued > 0 {
                bench.turn(|connection, turn, _| connection.flush(turn));
                packets.extend(bench.take());
            }
            let Counters { packets_out, messages_out, payload_out, drops, .. } = bench.counters;
            (packets, (packets_out, messages_out, payload_out, drops))
        });
        assert_eq!(outcomes[0], outcomes[1], "{version:?} {properties:?} {output_bytes}");
        let lost = outcomes[0].1.3.iter().sum::<u64>() as usize;
        assert_eq!((outcomes[0].0.len(), lost), if properties == small { (12, 4) } else { (16, 0) });
    }
}

#[test]
fn an_ack_guard_is_shared_by_all_who_get_the_message() {
    let releases = Arc::default();
    let message = Arc::new(Message::plain(1, "t", b"x", 1));
    let ack_guard = AckGuard::new(Ticket { pool_client: 0, message: message.id }, &releases);
    let mut clients: Vec<Bench> = (0..5).map(|_| Bench::open(Version::V311)).collect();
    for bench in &mut clients {
        let delivery_options = DeliveryOptions { qos: 1, ..DeliveryOptions::default() };
        bench.deliver_all(Delivery {
            message: Arc::clone(&message),
            delivery_options,
            ack_guard: Some(ack_guard.clone()),
        });
    }
    drop(ack_guard);
    let last = clients.pop().unwrap();
    for mut bench in clients {
        bench.feed(&ack(kind::PUBACK, 1));
        assert!(releases.is_empty());
    }
    last.part().end(&mut Counters::default());
    assert_eq!(releases.take().len(), 1, "also by one whose session ends");
}

#[test]
fn terms_say_how_a_message_comes() {
    let mut bench = Bench::open(Version::V5);
    let delivery_options =
        DeliveryOptions { qos: 2, retain: true, identifiers: [7, 200].into_iter().collect() };
    let mut message = Message::plain(1, "t", b"x", 1);
    message.expires = 90 * SECOND + 1;
    bench.now = 30 * SECOND;
    bench.deliver_all(Delivery {
        message: Arc::new(message),
        delivery_options: delivery_options.clone(),
        ack_guard: None,
    });
    let properties = b"\x02\0\0\0\x3d\x0b\x07\x0b\xc8\x01";
    assert_eq!(bench.take(), [publish(Version::V5, 3, "t", 1, properties, b"x")]);
    let mut bench = Bench::open(Version::V311);
    bench.deliver_all(Delivery {
        message: Arc::new(Message::plain(1, "t", b"x", 1)),
        delivery_options,
        ack_guard: None,
    });
    assert_eq!(bench.take(), [publish(Version::V311, 3, "t", 1, &[], b"x")], "before MQTT 5 no properties");
}

#[test]
fn the_clients_receive_maximum_of_one_holds() {
    let mut bench = small(SessionSettings::default(), b"\x21\0\x01");
    for sequence in 1..4 {
        bench.deliver(Message::plain(sequence, "t", &[sequence as u8], 2), 2);
    }
    bench.deliver(Message::plain(9, "t", b"free", 0), 0);
    let free = publish(Version::V5, 0, "t", 0, &[], b"free");
    assert_eq!(bench.take(), [publish(Version::V5, 4, "t", 1, &[], &[1]), free], "QoS 0 has no quota");
    bench.feed(&[0xC0, 0]);
    assert_eq!(bench.take(), [[0xD0, 0]], "other packets are not held back");
    bench.feed(&ack(kind::PUBREC, 1));
    assert_eq!(bench.take(), [ack(kind::PUBREL, 1)]);
    bench.feed(&ack(kind::PUBCOMP, 1));
    assert_eq!(bench.take(), [publish(Version::V5, 4, "t", 2, &[], &[2])]);
    // A refusal of the client ends the message, and gives the quota back (MQTT 5 §4.9).
    bench.feed(&ack_with(kind::PUBREC, 2, Reason::NOT_AUTHORIZED));
    assert_eq!(bench.take(), [publish(Version::V5, 4, "t", 3, &[], &[3])]);
    assert_eq!(bench.settled(), 2);
}

#[test]
fn acknowledgements_of_nothing_change_nothing() {
    let mut bench = small(SessionSettings::default(), b"\x21\0\x01");
    bench.deliver(Message::plain(1, "t", b"1", 1), 1);
    bench.deliver(Message::plain(2, "t", b"2", 1), 1);
    bench.take();
    for wrong in [ack(kind::PUBACK, 2), ack(kind::PUBCOMP, 3), ack(kind::PUBREC, 4)] {
        bench.feed(&wrong);
    }
    assert_eq!(bench.take(), [ack_with(kind::PUBREL, 4, Reason::PACKET_ID_NOT_FOUND)]);
    bench.feed(&ack(kind::PUBACK, 1));
    assert_eq!((bench.take().len(), bench.settled()), (1, 1));
}

#[test]
fn the_acknowledgement_of_another_qos_ends_it() {
    for version in VERSIONS {
        for (qos, wrong) in [(1, kind::PUBREC), (1, kind::PUBCOMP), (2, kind::PUBACK), (2, kind::PUBCOMP)] {
            let mut bench = Bench::open(version);
            bench.deliver(Message::plain(1, "t", b"1", 2), qos);
            bench.take();
            bench.feed(&ack(wrong, 1));
            // MQTT 3.1 clients repeat theirs: one may come late.
            let end = (version > Version::V31).then_some((Cause::Error, Reason::PROTOCOL_ERROR));
            assert_eq!(bench.closed(), end, "{version:?}, {qos}, {wrong}");
        }
    }
}

#[test]
fn what_is_too_large_for_the_client_is_dropped_alone() {
    let mut bench = small(SessionSettings::default(), b"\x27\0\0\0\x14");
    let lengths = [1, 100, 2, 300, 3];
    for (sequence, length) in (1..).zip(lengths) {
        bench.deliver(Message::plain(sequence, "t", &vec![b'x'; length], 1), 1);
    }
    let sizes: Vec<usize> = bench.take().iter().map(|packet| packet.len() - 8).collect();
    assert_eq!(sizes, [1, 2, 3]);
    assert_eq!(bench.settled(), 2, "they count as sent");
    assert_eq!(bench.counters.drops[crate::mqtt::metrics::counters::Drop::TooLarge as usize], 2);
    // An alias is not announced where that makes the packet too large.
    let mut bench = small(SessionSettings::default(), b"\x27\0\0\0\x14\x22\0\x09");
    bench.deliver(Message::plain(1, "long/topic", b"12345", 0), 0);
    assert_eq!(bench.take(), [publish(Version::V5, 0, "long/topic", 0, &[], b"12345")]);
    bench.deliver(Message::plain(2, "long/topic", b"1", 0), 0);
    assert_eq!(
        bench.take(),
        [publish(Version::V5, 0, "long/topic", 0, b"\x23\0\x01", b"1")],
        "it is the first"
    );
}

#[test]
fn aliases_are_announced_once_and_never_beyond_the_clients_maximum() {
    let mut bench = small(SessionSettings::default(), b"\x22\0\x01");
    for (sequence, topic) in (1..).zip(["first/topic", "first/topic", "other/topic", "first/topic"]) {
        bench.deliver(Message::plain(sequence, topic, b"", 0), 0);
    }
    let expected = [
        publish(Version::V5, 0, "first/topic", 0, b"\x23\0\x01", b""),
        publish(Version::V5, 0, "", 0, b"\x23\0\x01", b""),
        publish(Version::V5, 0, "other/topic", 0, b"", b""),
        publish(Version::V5, 0, "", 0, b"\x23\0\x01", b""),
    ];
    assert_eq!(bench.take(), expected);
}

/// Holds MQTT-3.3.2-5.
#[test]
fn what_dies_while_it_waits_is_never_sent() {
    let mut bench = small(SessionSettings::default(), b"\x21\0\x01");
    let mortal = |sequence, seconds: u64| {
        let mut message = Message::plain(sequence, "t", &[sequence as u8], 1);
        message.expires = seconds * SECOND;
        message
    };
    bench.deliver(Message::plain(1, "t", b"1", 1), 1);
    bench.deliver(mortal(2, 5), 1);
    bench.deliver(mortal(3, 50), 1);
    bench.deliver(mortal(4, 0), 0);
    bench.take();
    bench.now = 5 * SECOND;
    bench.feed(&ack(kind::PUBACK, 1));
    assert_eq!(bench.take(), [publish(Version::V5, 2, "t", 3, b"\x02\0\0\0\x2d", &[3])]);
    assert_eq!(bench.settled(), 2);
    assert_eq!(bench.counters.drops[crate::mqtt::metrics::counters::Drop::Expired as usize], 2);
}

#[test]
fn a_client_that_does_not_answer_holds_up_nobody_after_the_stall() {
    let settings = SessionSettings { queue_messages: 4, ..SessionSettings::default() };
    let mut bench = small(settings, b"\x21\0\x01");
    bench.now = SECOND;
    for sequence in 1..4 {
        bench.deliver(Message::plain(sequence, "t", &[sequence as u8], 1), 1);
    }
    assert_eq!(bench.take().len(), 1);
    bench.wait_until(SECOND + STALL);
    assert_eq!((bench.settled(), bench.counters.stalled), (3, 1));
    bench.deliver(Message::plain(4, "t", &[4], 1), 1);
    assert_eq!(bench.settled(), 1, "what comes while it is stalled counts at once");
    // Nothing is lost by that, and once it has answered it counts again.
    for id in 1..5 {
        bench.feed(&ack(kind::PUBACK, id));
    }
    assert_eq!(bench.take().iter().map(|packet| packet[8]).collect::<Vec<_>>(), [2, 3, 4]);
    bench.deliver(Message::plain(5, "t", &[5], 1), 1);
    assert_eq!(bench.settled(), 0);
    bench.feed(&ack(kind::PUBACK, 5));
    assert_eq!(bench.settled(), 1);
    let settings = SessionSettings { stall: Micros::MAX, ..settings };
    let mut bench = small(settings, &[]);
    bench.deliver(Message::plain(1, "t", b"", 1), 1);
    assert_eq!(bench.connection.poll_timeout(), 90 * SECOND, "a session that must not stall");
}

#[test]
fn a_full_queue_drops_its_oldest() {
    let settings = SessionSettings { queue_messages: 2, ..SessionSettings::default() };
    let mut bench = small(settings, b"\x21\0\x01");
    bench.deliver(Message::plain(1, "t", &[1], 1), 1);
    bench.wait_until(STALL);
    assert_eq!(bench.settled(), 1, "it is stalled: nobody waits for what comes now");
    for sequence in 2..5 {
        bench.deliver(Message::plain(sequence, "t", &[sequence as u8], 1), 1);
    }
    assert_eq!(bench.counters.drops[crate::mqtt::metrics::counters::Drop::QueueFull as usize], 1);
    assert_eq!(bench.settled(), 3);
    (1..4).for_each(|id| bench.feed(&ack(kind::PUBACK, id)));
    let sent: Vec<u8> = bench.take().iter().skip(1).map(|packet| packet[8]).collect();
    assert_eq!(sent, [3, 4]);
}

/// What an owner waits for is bounded by the credit that it has; here there is no room for it to be dropped (R7).
#[test]
fn what_its_owner_waits_for_is_never_dropped() {
    for pool_client in [SHARED_POOL_CLIENT, 7] {
        let settings = SessionSettings { queue_messages: 2, queue_bytes: 50, ..SessionSettings::default() };
        let mut bench = small(settings, b"\x21\0\x01");
        for sequence in 1..=100 {
            bench.deliver_from(pool_client, Message::plain(sequence, "t", &[sequence as u8], 1), 1);
        }
        assert_eq!((bench.settled(), bench.closed()), (0, None));
        let mut sent = Vec::new();
        for id in 1..=100 {
            sent.extend(bench.take().iter().map(|packet| packet[8]));
            bench.feed(&ack(kind::PUBACK, id));
        }
        assert_eq!(sent, (1..=100).collect::<Vec<u8>>());
        assert_eq!(bench.settled(), 100);
        assert_eq!(bench.counters.drops, [0; crate::mqtt::metrics::counters::Drop::ALL.len()]);
    }
}

/// The owner has a session for this client alone, and decides by itself what it may miss.
#[test]
fn what_came_through_a_pool_client_of_its_own_is_not_answered_in_the_clients_stead() {
    let mut bench = small(SessionSettings::default(), &[]);
    bench.deliver_from(7, Message::plain(1, "t", b"", 1), 1);
    bench.deliver_from(7, Message::plain(2, "t", b"", 2), 2);
    assert_eq!(bench.connection.poll_timeout(), 90 * SECOND);
    bench.now = 60 * SECOND;
    bench.turn(|connection, turn, upper| connection.handle_timeout(turn, upper));
    assert_eq!((bench.settled(), bench.counters.stalled), (0, 0));
    bench.feed(&ack(kind::PUBACK, 1));
    assert_eq!(bench.settled(), 1);
}

/// An answer now and then is not enough (C2): what counts is how long the oldest message has been here.
#[test]
fn who_answers_one_message_now_and_then_holds_up_nobody_for_longer() {
    let settings = SessionSettings { inflight: 1, ..SessionSettings::default() };
    let mut bench = small(settings, &[]);
    for sequence in 1..=9 {
        bench.deliver(Message::plain(sequence, "t", b"", 1), 1);
    }
    bench.now = 1_400_000;
    bench.feed(&ack(kind::PUBACK, 1));
    assert_eq!(bench.settled(), 1);
    bench.wait_until(STALL);
    assert_eq!((bench.settled(), bench.counters.stalled), (8, 1));
    // Until it has caught up nobody waits for it again.
    for id in 2..=8 {
        bench.now += 1_400_000;
        bench.feed(&ack(kind::PUBACK, id));
        bench.deliver(Message::plain(8 + u64::from(id), "t", b"", 1), 1);
        assert_eq!(bench.settled(), 1);
    }
    (9..=16).for_each(|id| bench.feed(&ack(kind::PUBACK, id)));
    bench.deliver(Message::plain(17, "t", b"", 1), 1);
    assert_eq!(bench.settled(), 0);
}

#[test]
fn what_the_socket_does_not_take_waits_in_the_session() {
    let settings = ListenerSettings { output_bytes: 50, ..ListenerSettings::default() };
    let session = Session::new(SessionSettings { queue_messages: 3, ..SessionSettings::default() });
    let mut bench = Bench::open_with(Version::V5, settings, session, &[]);
    for sequence in 1..8 {
        bench.deliver(Message::plain(sequence, "t", &[sequence as u8; 40], 0), 0);
    }
    assert!(bench.out.len() < 50 + 50, "one packet more than the bound");
    assert_eq!(bench.connection.session().unwrap().load().queued, 3);
    bench.deliver(Message::plain(8, "t", &[8; 40], 1), 1);
    let mut sent = Vec::new();
    while !bench.out.is_empty() {
        sent.extend(bench.take().iter().map(|packet| packet[packet.len() - 1]));
        bench.turn(|connection, turn, _| connection.flush(turn));
    }
    assert_eq!(sent, [1, 2, 6, 7, 8], "the oldest of QoS 0 gave way");
}

#[test]
fn topics_that_it_may_not_read_are_dropped() {
    let rule = crate::mqtt::access::rules::Rule {
        allow: true,
        read: true,
        write: false,
        filter: "open/#".to_owned(),
    };
    let mut session = Session::default();
    session.access = crate::mqtt::access::rules::AccessList::new(vec![rule], 3).access();
    let mut bench = Bench::open_with(Version::V311, ListenerSettings::default(), session, &[]);
    bench.deliver(Message::plain(1, "open/x", b"", 1), 1);
    bench.deliver(Message::plain(2, "shut/x", b"", 1), 1);
    assert_eq!((bench.take().len(), bench.settled()), (1, 1));
    bench.feed(&publish(Version::V311, 0, "open/x", 0, &[], b""));
    assert!(bench.upper.published.is_empty());
}

/// What is owed lies in the order of PUBREC: the oldest may be anywhere in it.
#[test]
fn who_receives_the_newest_first_holds_up_nobody_for_longer() {
    let mut bench = small(SessionSettings::default(), &[]);
    bench.deliver(Message::plain(1, "t", b"", 2), 2);
    bench.now = 1_400_000;
    bench.deliver(Message::plain(2, "t", b"", 2), 2);
    bench.feed(&ack(kind::PUBREC, 2));
    bench.feed(&ack(kind::PUBREC, 1));
    bench.wait_until(STALL);
    assert_eq!(bench.counters.stalled, 1, "the first is without an answer for so long");
}

/// An owner that looks at the member that all clients share gives it up only after its own time: by then the gateway has answered for the
/// client that is too slow, and the answer has come.
#[test]
fn a_gateway_gives_a_client_up_well_before_its_owner_gives_the_gateway_up() {
    let before = progress::STALL.checked_sub(SessionSettings::default().stall);
    assert!(before >= Some(400_000), "{before:?}");
}
