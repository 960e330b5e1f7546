//! From a client to the network.

use super::*;
use crate::mqtt::access::rules::{AccessList, Rule};

#[test]
fn acknowledgements_come_in_the_order_of_the_messages() {
    for version in VERSIONS {
        let mut bench = Bench::open(version);
        for (flags, id) in [(2, 500), (4, 7), (2, 1), (4, 65_535)] {
            bench.feed(&publish(version, flags, "t", id, &[], b"x"));
        }
        assert_eq!(bench.upper.published.len(), 4);
        bench.answer(3, Reason::SUCCESS);
        bench.answer(4, Reason::SUCCESS);
        assert!(bench.take().is_empty(), "those before them are not answered");
        bench.answer(2, Reason::SUCCESS);
        assert_eq!(bench.take(), [ack(kind::PUBREC, 7), ack(kind::PUBREC, 65_535)]);
        bench.answer(1, Reason::SUCCESS);
        assert_eq!(bench.take(), [ack(kind::PUBACK, 500), ack(kind::PUBACK, 1)]);
        bench.answer(1, Reason::SUCCESS);
        assert!(bench.take().is_empty(), "an answer counts once");
        bench.feed(&ack(kind::PUBREL, 7));
        assert_eq!(bench.take(), [ack(kind::PUBCOMP, 7)]);
    }
}

#[test]
fn a_repeated_message_of_qos_2_is_delivered_once_until_pubrel() {
    for version in VERSIONS {
        let mut bench = Bench::open(version);
        let message = publish(version, 4, "t", 7, &[], b"x");
        let again = publish(version, 12, "t", 7, &[], b"x");
        bench.feed(&message);
        bench.feed(&again);
        assert!(bench.take().is_empty(), "PUBREC only when the network has it");
        bench.answer(1, Reason::SUCCESS);
        assert_eq!(bench.take(), [ack(kind::PUBREC, 7)]);
        bench.feed(&again);
        assert_eq!(bench.take(), [ack(kind::PUBREC, 7)]);
        assert_eq!(bench.upper.published.len(), 1);
        bench.feed(&ack(kind::PUBREL, 7));
        assert_eq!(bench.take(), [ack(kind::PUBCOMP, 7)]);
        bench.feed(&message);
        assert_eq!(bench.upper.published.len(), 2, "after PUBCOMP it is a new message");
    }
}

#[test]
fn pubrel_for_nothing_gets_pubcomp_all_the_same() {
    for version in VERSIONS {
        let mut bench = Bench::open(version);
        bench.feed(&ack(kind::PUBREL, 9));
        let expected = match version {
            Version::V5 => ack_with(kind::PUBCOMP, 9, Reason::PACKET_ID_NOT_FOUND),
            _ => ack(kind::PUBCOMP, 9),
        };
        assert_eq!(bench.take(), [expected]);
    }
}

/// Holds MQTT-3.4.2-1, MQTT-3.5.2-1, MQTT-4.3.3-9.
#[test]
fn a_refusal_is_told_where_it_can_be() {
    // MQTT 5: the reason, and the packet id is free again.
    let mut bench = Bench::open(Version::V5);
    bench.feed(&publish(Version::V5, 2, "t", 1, &[], b""));
    bench.feed(&publish(Version::V5, 4, "t", 2, &[], b""));
    bench.answer(1, Reason::QUOTA_EXCEEDED);
    bench.answer(2, Reason::USE_ANOTHER_SERVER);
    let expected =
        [ack_with(kind::PUBACK, 1, Reason::QUOTA_EXCEEDED), ack_with(kind::PUBREC, 2, Reason::UNSPECIFIED)];
    assert_eq!(bench.take(), expected, "only a reason that the packet may have");
    bench.feed(&publish(Version::V5, 4, "t", 2, &[], b""));
    assert_eq!(bench.upper.published.len(), 3);
    // Before: what would be refused again is acknowledged, and for the rest the client comes back.
    for version in [Version::V31, Version::V311] {
        let mut bench = Bench::open(version);
        bench.feed(&publish(version, 2, "t", 1, &[], b""));
        bench.answer(1, Reason::NOT_AUTHORIZED);
        assert_eq!(bench.take(), [ack(kind::PUBACK, 1)]);
        bench.feed(&publish(version, 4, "t", 2, &[], b""));
        bench.answer(2, Reason::QUOTA_EXCEEDED);
        assert!(bench.take().is_empty());
        assert_eq!(bench.closed(), Some((Cause::Server, Reason::QUOTA_EXCEEDED)));
        assert!(bench.part().export().received.is_empty(), "its repetition is taken");
    }
}

#[test]
fn topics_that_it_may_not_write_never_reach_the_network() {
    let rule = |allow, filter: &str| Rule { allow, read: true, write: true, filter: filter.to_owned() };
    let list = AccessList::new(vec![rule(true, "mine/c/#")], 1);
    let mut session = Session::default();
    session.access = list.access();
    let mut bench = Bench::open_with(Version::V5, ListenerSettings::default(), session, &[]);
    for (topic, is_taken) in
        [("mine/c/x", true), ("mine/d/x", false), ("$SYS/x", false), ("$share/g/t", false)]
    {
        bench.feed(&publish(Version::V5, 0, topic, 0, &[], b""));
        bench.feed(&publish(Version::V5, 4, topic, 5, &[], b""));
        if is_taken {
            bench.answer(1, Reason::SUCCESS);
            bench.feed(&ack(kind::PUBREL, 5));
            assert_eq!(std::mem::take(&mut bench.upper.published).len(), 2);
            bench.take();
        } else {
            assert_eq!(bench.take(), [ack_with(kind::PUBREC, 5, Reason::NOT_AUTHORIZED)]);
        }
    }
    assert!(bench.upper.published.is_empty());
    assert_eq!(bench.counters.refused, 6);
    let mut bench = Bench::open(Version::V311);
    bench.feed(&publish(Version::V311, 2, "$SYS/x", 5, &[], b""));
    assert_eq!(bench.take(), [ack(kind::PUBACK, 5)], "before MQTT 5 it is taken, and dropped");
    assert!(bench.upper.published.is_empty());
}

#[test]
fn aliases_stand_for_topics_of_this_connection() {
    let alias = |number: u8| [0x23, 0, number];
    let mut bench = Bench::open(Version::V5);
    for (topic, number) in [("a/b", 1), ("", 1), ("c", 1), ("", 1), ("d", 64)] {
        bench.feed(&publish(Version::V5, 0, topic, 0, &alias(number), b""));
    }
    let topics: Vec<&str> = bench.upper.published.iter().map(|(topic, ..)| topic.as_str()).collect();
    assert_eq!(topics, ["a/b", "a/b", "c", "c", "d"]);
    for (topic, number, reason) in [
        ("a", 0, Reason::TOPIC_ALIAS_INVALID),
        ("a", 65, Reason::TOPIC_ALIAS_INVALID),
        ("", 2, Reason::PROTOCOL_ERROR),
    ] {
        let mut bench = Bench::open(Version::V5);
        bench.feed(&publish(Version::V5, 0, topic, 0, &alias(number), b""));
        assert_eq!(bench.closed(), Some((Cause::Error, reason)));
        assert_eq!(bench.take(), [[0xE0, 2, reason.0, 0]]);
    }
    let mut bench = Bench::open(Version::V5);
    bench.feed(&publish(Version::V5, 0, "", 0, &[], b""));
    assert_eq!(bench.closed(), Some((Cause::Error, Reason::PROTOCOL_ERROR)), "no topic at all");
}

#[test]
fn the_receive_maximum_holds() {
    let settings = ListenerSettings { receive_maximum: 2, ..ListenerSettings::default() };
    let mut bench = Bench::open_with(Version::V5, settings.clone(), Session::default(), &[]);
    bench.feed(&publish(Version::V5, 2, "t", 1, &[], b""));
    bench.feed(&publish(Version::V5, 4, "t", 2, &[], b""));
    bench.answer(1, Reason::SUCCESS);
    bench.answer(2, Reason::SUCCESS);
    bench.feed(&publish(Version::V5, 2, "t", 3, &[], b""));
    assert_eq!(bench.closed(), None);
    // PUBREC does not give back what PUBCOMP does (MQTT 5 §4.9).
    bench.feed(&publish(Version::V5, 2, "t", 4, &[], b""));
    assert_eq!(bench.closed(), Some((Cause::Error, Reason::RECEIVE_MAXIMUM_EXCEEDED)));

    // Before MQTT 5 the client is not read, and nothing that it sent is lost.
    let mut bench = Bench::open_with(Version::V311, settings, Session::default(), &[]);
    let many: Vec<u8> = (1..6).flat_map(|id| publish(Version::V311, 2, "t", id, &[], b"")).collect();
    bench.feed(&many);
    assert_eq!((bench.upper.published.len(), bench.connection.wants_bytes()), (2, false));
    for key in 1..6 {
        bench.answer(key, Reason::SUCCESS);
    }
    assert_eq!(bench.upper.published.len(), 5);
    assert_eq!(bench.take().len(), 5);
    assert!(bench.connection.wants_bytes());
}

#[test]
fn while_the_network_has_no_room_nothing_is_read_and_nothing_is_lost() {
    for version in VERSIONS {
        let mut bench = Bench::open(version);
        bench.upper.outcome = PublishOutcome::Later;
        let first = publish(version, 4, "t", 1, &[], b"1");
        bench.feed(&[first, publish(version, 0, "t", 0, &[], b"2"), vec![0xC0]].concat());
        bench.feed(&[0]);
        assert!(!bench.connection.wants_bytes() && bench.take().is_empty());
        assert_eq!(bench.connection.poll_timeout(), Micros::MAX, "its silence is not its fault");
        bench.now = 1_000 * SECOND;
        bench.turn(Connection::resume);
        assert!(!bench.connection.wants_bytes(), "still none");
        bench.upper.outcome = PublishOutcome::Accepted;
        bench.turn(Connection::resume);
        let payloads: Vec<&[u8]> =
            bench.upper.published.iter().map(|(_, payload, _)| payload.as_slice()).collect();
        assert_eq!(payloads, [b"1", b"2"]);
        assert_eq!(bench.take(), [[0xD0, 0]]);
        assert!(bench.connection.wants_bytes());
        assert_eq!(bench.connection.poll_timeout(), 1_090 * SECOND);
    }
}

#[test]
fn properties_are_seen_as_the_client_sent_them() {
    let properties =
        b"\x26\0\x01b\0\x012\x01\x01\x08\0\x03r/t\x09\0\x02\xff\0\x02\0\0\0\0\x03\0\x01c\x26\0\x01a\0\x011";
    let bytes = publish(Version::V5, 1, "t", 0, properties, b"p");
    let frame = split(&bytes, usize::MAX).unwrap().unwrap();
    let publish = Publish::parse(Version::V5, &frame).unwrap();
    assert_eq!((publish.response_topic, publish.correlation_data), ("r/t", b"\xff\0".as_slice()));
    assert_eq!((publish.content_type, publish.is_text, publish.expiry_s), ("c", Some(true), Some(0)));
    assert!(publish.retain);
    assert_eq!(publish.user_properties().collect::<Vec<_>>(), [("b", "2"), ("a", "1")]);
}
