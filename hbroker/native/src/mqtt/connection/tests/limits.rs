//! Time, rates, sizes, and what the client wants to be spared.

use super::*;
use crate::mqtt::codec::answers::{ResponseOptions, put_disconnect, put_refusal};
use crate::mqtt::codec::packets::CloseReason;

#[test]
fn the_keep_alive_is_one_and_a_half_times_what_was_agreed() {
    for version in VERSIONS {
        for (agreed, expected) in [(None, 90), (Some(10), 15)] {
            let mut bench = Bench::new(ListenerSettings::default());
            bench.accept.keep_alive = agreed;
            bench.feed(&connect(version, 2, &[], b"\0\x01c"));
            bench.accept(Session::default());
            bench.take();
            bench.now = 7 * SECOND;
            bench.feed(&[0xC0]);
            bench.now = 8 * SECOND;
            bench.feed(&[0]);
            assert_eq!(bench.take(), [[0xD0, 0]]);
            let deadline = (8 + expected) * SECOND;
            bench.now = deadline - 1;
            bench.turn(|connection, turn, upper| connection.handle_timeout(turn, upper));
            assert_eq!(bench.closed(), None);
            bench.wait_until(deadline);
            assert_eq!(bench.closed(), Some((Cause::Silent, Reason::KEEP_ALIVE_TIMEOUT)));
            let told: &[&[u8]] = if version == Version::V5 { &[&[0xE0, 2, 0x8D, 0]] } else { &[] };
            assert_eq!(bench.take(), told);
        }
    }
    // One second means one and a half, and none at all means for ever.
    for (keep_alive, deadline) in [(1, 1_500_000), (0, Micros::MAX)] {
        let mut bench = Bench::new(ListenerSettings::default());
        bench.feed(&packet(0x10, &[0, 4, b'M', b'Q', b'T', b'T', 4, 2, 0, keep_alive, 0, 1, b'c']));
        bench.accept(Session::default());
        assert_eq!(bench.connection.poll_timeout(), deadline);
    }
}

#[test]
fn a_large_packet_on_its_way_is_a_sign_of_life_and_a_trickle_is_not() {
    let mut bench = Bench::open(Version::V311);
    let large = publish(Version::V311, 0, "t", 0, &[], &[7; 100_000]);
    for chunk in large.chunks(2_000) {
        assert!(bench.connection.poll_timeout() > bench.now, "it goes on coming");
        bench.feed(chunk);
        bench.now += 80 * SECOND;
    }
    assert_eq!(bench.upper.published[0].1.len(), 100_000);
    let mut bench = Bench::open(Version::V311);
    for byte in &large[..10] {
        bench.now += 10 * SECOND;
        bench.feed(&[*byte]);
    }
    assert_eq!(bench.connection.poll_timeout(), 90 * SECOND);
}

#[test]
fn connect_has_its_time() {
    let mut bench = Bench::new(ListenerSettings::default());
    bench.feed(&[0x10]);
    bench.wait_until(10 * SECOND);
    assert_eq!(bench.closed(), Some((Cause::Silent, Reason::KEEP_ALIVE_TIMEOUT)));
    assert!(bench.out.is_empty());
    // The decision is not the client's to hurry.
    let mut bench = Bench::new(ListenerSettings::default());
    bench.feed(&connect(Version::V5, 2, &[], b"\0\x01c"));
    assert_eq!(bench.connection.poll_timeout(), Micros::MAX);
}

#[test]
fn a_client_that_sends_too_fast_is_read_more_slowly_and_loses_nothing() {
    let settings = ListenerSettings { rate: 10, ..ListenerSettings::default() };
    let mut bench = Bench::open_with(Version::V311, settings, Session::default(), &[]);
    let many: Vec<u8> = (0..40).flat_map(|n| publish(Version::V311, 0, "t", 0, &[], &[n])).collect();
    bench.feed(&many);
    assert_eq!(bench.upper.published.len(), 11, "a burst of a second");
    while bench.upper.published.len() < 40 {
        assert!(!bench.connection.wants_bytes());
        bench.wait_until(bench.connection.poll_timeout());
        let allowed = 11 + (bench.now / 100_000) as usize;
        assert!(bench.upper.published.len() <= allowed, "{} at {}", bench.upper.published.len(), bench.now);
    }
    assert!(bench.now >= 2_800_000, "{}", bench.now);
    let sent: Vec<u8> = bench.upper.published.iter().map(|(_, payload, _)| payload[0]).collect();
    assert_eq!(sent, (0..40).collect::<Vec<u8>>());
}

#[test]
fn a_packet_over_the_maximum_is_refused_at_its_header() {
    let settings = ListenerSettings { maximum_packet: 100, ..ListenerSettings::default() };
    let mut bench = Bench::open_with(Version::V5, settings.clone(), Session::default(), &[]);
    bench.feed(&publish(Version::V5, 0, "t", 0, &[], &[0; 94]));
    assert_eq!(bench.upper.published.len(), 1);
    bench.feed(&[0x30, 99]);
    assert_eq!(bench.closed(), Some((Cause::Error, Reason::PACKET_TOO_LARGE)));
    assert_eq!(bench.take(), [[0xE0, 2, 0x95, 0]]);
    // What is no PUBLISH has a bound of its own.
    let mut bench = Bench::open(Version::V5);
    bench.feed(&[0x82, 0x80, 0x80, 0x40]);
    assert_eq!(bench.closed(), Some((Cause::Error, Reason::PACKET_TOO_LARGE)));
}

/// Holds MQTT-3.2.2-19, MQTT-3.14.2-3.
#[test]
fn what_is_said_to_people_gives_way_to_the_largest_packet() {
    let close_reason = CloseReason {
        reason: Reason::SERVER_BUSY,
        text: "hello".to_owned(),
        server_reference: String::new(),
    };
    let written = |maximum_packet| {
        let response_options = ResponseOptions { version: Version::V5, maximum_packet, wants_text: true };
        let mut packets = [const { Vec::new() }; 2];
        put_refusal(&mut packets[0], response_options, &close_reason);
        put_disconnect(&mut packets[1], response_options, &close_reason);
        packets.map(|packet| packet.len())
    };
    let bare = [5, 4];
    let whole = bare.map(|bare| bare + 8);
    assert_eq!(written(1_000), whole);
    for (at, length) in whole.into_iter().enumerate() {
        assert_eq!(written(length)[at], length);
        assert_eq!([written(length - 1)[at], written(bare[at])[at]], [bare[at]; 2]);
    }
}

/// Holds MQTT-3.1.2-29, MQTT-3.9.2-1, MQTT-3.11.2-1.
#[test]
fn reason_strings_are_spared_where_the_client_asks_or_has_no_room() {
    let suback = |properties: &[u8]| {
        let mut bench =
            Bench::open_with(Version::V5, ListenerSettings::default(), Session::default(), properties);
        let reasons = [Reason::SUCCESS, Reason::NOT_AUTHORIZED];
        bench.turn(|connection, turn, upper| {
            connection.acknowledge(turn, kind::SUBACK, 5, &reasons, "no", upper);
        });
        bench
    };
    assert_eq!(suback(b"").take(), [[0x90, 10, 0, 5, 5, 0x1F, 0, 2, b'n', b'o', 0, 0x87]]);
    assert_eq!(suback(b"\x17\0").take(), [[0x90, 5, 0, 5, 0, 0, 0x87]]);
    assert_eq!(suback(b"\x27\0\0\0\x0B").take(), [[0x90, 5, 0, 5, 0, 0, 0x87]]);
    let mut bench = suback(b"\x27\0\0\0\x0B");
    bench.take();
    bench.turn(|connection, turn, upper| {
        connection.acknowledge(turn, kind::UNSUBACK, 5, &[Reason::SUCCESS], "text", upper);
    });
    assert_eq!(bench.take(), [[0xB0, 4, 0, 5, 0, 0]]);
    bench.turn(|connection, turn, upper| {
        connection.acknowledge(turn, kind::UNSUBACK, 6, &[Reason::SUCCESS; 7], "", upper);
    });
    assert_eq!(bench.closed(), Some((Cause::Error, Reason::PACKET_TOO_LARGE)), "it cannot be told at all");
    // DISCONNECT has its reason string in any case (MQTT 5 §3.1.2.11.7).
    let mut bench = Bench::open_with(Version::V5, ListenerSettings::default(), Session::default(), b"\x17\0");
    let close_reason =
        CloseReason { reason: Reason::SHUTTING_DOWN, text: "x".to_owned(), server_reference: "h".to_owned() };
    bench.turn(|connection, turn, upper| connection.disconnect(turn, &close_reason, upper));
    assert_eq!(bench.take(), [[0xE0, 10, 0x8B, 8, 0x1C, 0, 1, b'h', 0x1F, 0, 1, b'x']]);
}

/// Holds MQTT-3.1.2-29, MQTT-3.4.2-2, MQTT-3.5.2-2, MQTT-3.6.2-2, MQTT-3.7.2-2.
#[test]
fn an_acknowledgement_says_why_where_the_client_wants_to_hear_it_and_has_room() {
    let not_found = Reason::PACKET_ID_NOT_FOUND;
    for (sent, kind, reason) in [
        (publish(Version::V5, 2, "$t", 5, &[], b""), kind::PUBACK, Reason::NOT_AUTHORIZED),
        (publish(Version::V5, 4, "$t", 5, &[], b""), kind::PUBREC, Reason::NOT_AUTHORIZED),
        (ack(kind::PUBREC, 5), kind::PUBREL, not_found),
        (ack(kind::PUBREL, 5), kind::PUBCOMP, not_found),
    ] {
        let answer = |properties: &[u8]| {
            let mut bench =
                Bench::open_with(Version::V5, ListenerSettings::default(), Session::default(), properties);
            bench.feed(&sent);
            bench.take()
        };
        let told = ack_with(kind, 5, reason);
        let spared = vec![told[0], 3, 0, 5, reason.0];
        let room = |bytes: usize| [b"\x27\0\0\0".as_slice(), &[bytes as u8]].concat();
        assert!(told.len() > spared.len());
        assert_eq!(answer(&room(told.len())), [told.as_slice()]);
        assert_eq!(answer(&room(told.len() - 1)), [spared.as_slice()]);
        assert_eq!(answer(b"\x17\0"), [spared.as_slice()]);
    }
}

#[test]
fn subscriptions_come_up_with_all_their_options() {
    let mut bench = Bench::open(Version::V5);
    bench.feed(&packet(0x82, b"\0\x09\x03\x0b\x80\x01\0\x03a/#\x2e\0\x0a$share/g/t\x01"));
    let Some(Event::Subscribe(subscribe)) = bench.upper.events.pop() else {
        panic!("nothing came up");
    };
    assert_eq!((subscribe.packet_id, subscribe.identifier), (9, 128));
    let [first, second] = &subscribe.filters[..] else { panic!("{subscribe:?}") };
    assert_eq!((first.filter.as_str(), first.qos, first.retain_handling), ("a/#", 2, 2));
    assert!(first.no_local && first.retain_as_published);
    assert_eq!((second.filter.as_str(), second.qos, second.no_local), ("$share/g/t", 1, false));
    bench.feed(&packet(0xA2, b"\0\x0a\0\0\x03a/#\0\x01b"));
    let Some(Event::Unsubscribe(unsubscribe)) = bench.upper.events.pop() else {
        panic!("nothing came up");
    };
    assert_eq!(
        (unsubscribe.packet_id, &unsubscribe.filters[..]),
        (10, &["a/#".to_owned(), "b".to_owned()][..])
    );
}

#[test]
fn answers_before_mqtt_5_have_its_words() {
    for version in [Version::V31, Version::V311] {
        let mut bench = Bench::open(version);
        let reasons = [Reason(2), Reason::NOT_AUTHORIZED, Reason::SUCCESS];
        bench.turn(|connection, turn, upper| {
            connection.acknowledge(turn, kind::SUBACK, 5, &reasons, "no", upper);
        });
        bench.turn(|connection, turn, upper| {
            connection.acknowledge(turn, kind::UNSUBACK, 6, &reasons, "no", upper);
        });
        bench.turn(|connection, turn, upper| {
            connection.disconnect(turn, &Reason::TAKEN_OVER.into(), upper);
        });
        assert_eq!(bench.take(), [vec![0x90, 5, 0, 5, 2, 0x80, 0], vec![0xB0, 2, 0, 6]]);
        assert_eq!(bench.closed(), Some((Cause::Server, Reason::TAKEN_OVER)));
    }
}

/// An idle connection has no more than its own fields: no buffer stays with it.
#[test]
fn an_idle_connection_keeps_no_buffers() {
    let mut bench = Bench::open(Version::V5);
    bench.feed(&publish(Version::V5, 0, "t", 0, &[], &[0; 50_000])[..40_000]);
    assert!(bench.connection.rest.capacity() >= 40_000);
    bench.feed(&publish(Version::V5, 0, "t", 0, &[], &[0; 50_000])[40_000..]);
    assert_eq!(bench.connection.rest.capacity(), 0);
    let bytes = size_of::<Connection>() + size_of::<Session>();
    assert!(bytes < 1_024, "{bytes}");
}
