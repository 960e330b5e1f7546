//! Until a client is accepted, and how it ends.

use super::*;
use crate::mqtt::codec::packets::{Auth, CloseReason};

fn connected(bench: &Bench) -> &crate::mqtt::codec::packets::Connect {
    match bench.upper.events.first() {
        Some(Event::Connect(connect)) => connect,
        other => panic!("{other:?}"),
    }
}

#[test]
fn connect_is_taken_byte_by_byte_in_every_version() {
    for version in VERSIONS {
        let mut bench = Bench::new(ListenerSettings::default());
        for byte in connect(version, 0xC2, &[], b"\0\x02me\0\0\0\x01p") {
            assert!(bench.upper.events.is_empty() && bench.connection.wants_bytes());
            bench.feed(&[byte]);
        }
        let connect = connected(&bench);
        assert_eq!((connect.version, connect.client_id.as_str(), connect.keep_alive), (version, "me", 60));
        assert_eq!((connect.user.as_deref(), connect.password.as_deref()), (Some(""), Some(b"p".as_slice())));
        assert!(bench.out.is_empty(), "nothing goes out before the decision");
        bench.accept.session_present = true;
        bench.accept(Session::default());
        let expected: &[u8] = match version {
            // MQTT 3.1 has no such flag.
            Version::V31 => &[0x20, 2, 0, 0],
            Version::V311 => &[0x20, 2, 1, 0],
            Version::V5 => &[0x20, 9, 1, 0, 6, 0x21, 0x03, 0xE8, 0x22, 0, 64],
        };
        assert_eq!(bench.take(), [expected]);
    }
}

#[test]
fn what_comes_behind_connect_waits_for_the_decision() {
    for version in VERSIONS {
        let mut bench = Bench::new(ListenerSettings::default());
        let mut bytes = connect(version, 2, &[], b"\0\x01c");
        bytes.extend(publish(version, 2, "t", 9, &[], b"early"));
        bytes.extend([0xC0, 0]);
        bench.feed(&bytes);
        assert!(bench.upper.published.is_empty() && !bench.connection.wants_bytes());
        bench.feed(&[0xC0, 0]);
        bench.accept(Session::default());
        assert_eq!(bench.upper.published[0].1, b"early");
        let kinds: Vec<u8> = bench.take().iter().map(|packet| packet[0] >> 4).collect();
        assert_eq!(kinds, [kind::CONNACK, kind::PINGRESP, kind::PINGRESP]);
        assert!(bench.connection.wants_bytes());
    }
}

#[test]
fn memory_before_the_decision_is_bounded() {
    let settings = ListenerSettings { handshake_bytes: 100, ..ListenerSettings::default() };
    // A CONNECT that claims to be large is refused at its header.
    let mut bench = Bench::new(settings.clone());
    bench.feed(&[0x10, 0xFF, 0xFF, 0xFF, 0x7F]);
    assert_eq!(bench.closed(), Some((Cause::Error, Reason::PACKET_TOO_LARGE)));
    // So is too much behind it.
    let mut bench = Bench::new(settings);
    bench.feed(&connect(Version::V5, 2, &[], b"\0\x01c"));
    bench.feed(&[0; 60]);
    assert_eq!(bench.closed(), None);
    bench.feed(&[0; 60]);
    assert_eq!(bench.closed(), Some((Cause::Error, Reason::PACKET_TOO_LARGE)));
    assert_eq!(bench.take()[0][3], Reason::PACKET_TOO_LARGE.0);
}

#[test]
fn much_behind_connect_waits_with_the_client() {
    let settings = ListenerSettings { handshake_bytes: 100, ..ListenerSettings::default() };
    let mut bench = Bench::new(settings);
    let mut bytes = connect(Version::V5, 2, &[], b"\0\x01c");
    bytes.extend(publish(Version::V5, 0, "t", 0, &[], &[7; 5_000]));
    let mut rest = bytes.as_slice();
    while bench.connection.read_limit() > 0 {
        let (now, later) = rest.split_at(bench.connection.read_limit().min(rest.len()));
        bench.feed(now);
        rest = later;
    }
    assert_eq!((bench.closed(), bytes.len() - rest.len()), (None, 100));
    bench.accept(Session::default());
    assert_eq!(bench.connection.read_limit(), usize::MAX);
    bench.feed(rest);
    assert_eq!(bench.upper.published[0].1, [7; 5_000]);
}

#[test]
fn a_stream_that_does_not_begin_with_connect_gets_no_answer() {
    for bytes in [&[0xC0, 0][..], b"GET / HTTP/1.1\r\n\r\n", &[0x10, 7, 0, 4, b'H', b'T', b'T', b'P', 4]] {
        let mut bench = Bench::new(ListenerSettings::default());
        bench.feed(bytes);
        assert!(bench.closed().is_some_and(|(cause, _)| cause == Cause::Error));
        assert!(bench.out.is_empty());
    }
}

#[test]
fn other_versions_are_told_so_in_the_nearest_words() {
    let (mqtt, before) = (&b"\0\x04MQTT"[..], &b"\0\x06MQIsdp"[..]);
    let (of_3, of_5) = (&[0x20, 2, 0, 1][..], &[0x20, 3, 0, 0x84, 0][..]);
    for (name, level, expected) in [
        (mqtt, 3_u8, of_3),
        (mqtt, 0, of_3),
        (mqtt, 0x83, of_3),
        (before, 4, of_3),
        (before, 6, of_3),
        (before, 0x84, of_3),
        (mqtt, 6, of_5),
        (mqtt, 0x85, of_5),
        (mqtt, 0xFF, of_5),
    ] {
        let mut bench = Bench::new(ListenerSettings::default());
        bench.feed(&packet(0x10, &[name, &[level, 2, 0, 60, 0, 1, b'c']].concat()));
        assert_eq!(bench.closed(), Some((Cause::Error, Reason::UNSUPPORTED_VERSION)), "{level}");
        assert_eq!(bench.take(), [expected], "{level}");
    }
}

#[test]
fn a_bridge_says_so_with_a_bit_of_the_level() {
    for (name, level, version) in
        [(&b"\0\x04MQTT"[..], 4_u8, Version::V311), (b"\0\x06MQIsdp", 3, Version::V31)]
    {
        for is_bridge in [false, true] {
            let mut bench = Bench::new(ListenerSettings::default());
            let level = level | if is_bridge { 0x80 } else { 0 };
            bench.feed(&packet(0x10, &[name, &[level, 2, 0, 60, 0, 1, b'c']].concat()));
            let connect = connected(&bench);
            assert_eq!((connect.version, connect.is_bridge), (version, is_bridge));
        }
    }
}

#[test]
fn a_refusal_has_the_code_of_the_version() {
    for (reason, code) in [
        (Reason::BAD_CREDENTIALS, 4),
        (Reason::NOT_AUTHORIZED, 5),
        (Reason::BANNED, 5),
        (Reason::CLIENT_ID_INVALID, 2),
        (Reason::SERVER_BUSY, 3),
        (Reason::USE_ANOTHER_SERVER, 3),
    ] {
        for version in VERSIONS {
            let mut bench = Bench::new(ListenerSettings::default());
            bench.feed(&connect(version, 2, &[], b"\0\x01c"));
            let close_reason = CloseReason { reason, text: String::new(), server_reference: "b".to_owned() };
            bench.turn(|connection, turn, upper| connection.refuse(turn, &close_reason, upper));
            assert_eq!(bench.closed(), Some((Cause::Server, reason)));
            let expected = if version == Version::V5 {
                vec![0x20, 7, 0, reason.0, 4, 0x1C, 0, 1, b'b']
            } else {
                vec![0x20, 2, 0, code]
            };
            assert_eq!(bench.take(), [expected]);
            bench.feed(&publish(version, 0, "t", 0, &[], b"late"));
            assert!(bench.upper.published.is_empty());
        }
    }
}

#[test]
fn an_empty_client_id_needs_a_clean_session_before_mqtt_5() {
    for (version, flags, is_taken) in [
        (Version::V31, 2, false),
        (Version::V311, 2, true),
        (Version::V311, 0, false),
        (Version::V5, 0, true),
        (Version::V5, 2, true),
    ] {
        let mut bench = Bench::new(ListenerSettings::default());
        bench.feed(&connect(version, flags, &[], b"\0\0"));
        assert_eq!(bench.closed().is_none(), is_taken, "{version:?} {flags}");
        if !is_taken {
            assert_eq!(bench.take(), [[0x20, 2, 0, 2]]);
        }
    }
}

#[test]
fn a_will_and_its_properties_come_up_whole() {
    let mut bench = Bench::new(ListenerSettings::default());
    let will = b"\0\x01c\x13\x18\0\0\0\x05\x01\x01\x02\0\0\0\x09\x26\0\x01k\0\x01v\0\x03w/t\0\x02hi";
    bench.feed(&connect(Version::V5, 0b0010_1110, b"\x11\0\0\0\x1E", will));
    let connect = connected(&bench);
    let will = connect.will.as_ref().expect("it has one");
    assert_eq!(connect.session_expiry, 30);
    assert_eq!(
        (will.topic.as_str(), will.payload.as_ref(), will.qos, will.retain),
        ("w/t", b"hi".as_slice(), 1, true)
    );
    assert_eq!((will.delay_s, will.expiry_s, will.is_text), (5, Some(9), Some(true)));
    assert_eq!(will.user_properties, [("k".to_owned(), "v".to_owned())]);
}

#[test]
fn a_second_connect_is_a_protocol_error() {
    for version in VERSIONS {
        let mut bench = Bench::open(version);
        bench.feed(&connect(version, 2, &[], b"\0\x01c"));
        assert_eq!(bench.closed(), Some((Cause::Error, Reason::PROTOCOL_ERROR)));
        let expected: &[&[u8]] = if version == Version::V5 { &[&[0xE0, 2, 0x82, 0]] } else { &[] };
        assert_eq!(bench.take(), expected);
    }
}

#[test]
fn authentication_goes_to_and_fro_before_the_decision() {
    let method = b"\x15\0\x01m";
    let auth = |reason: u8, method: &[u8]| packet(0xF0, &[&[reason, method.len() as u8], method].concat());
    let mut bench = Bench::new(ListenerSettings::default());
    bench.feed(&connect(Version::V5, 2, method, b"\0\x01c"));
    bench.now = 9 * SECOND;
    let challenge =
        Auth { reason: Reason::CONTINUE_AUTHENTICATION, method: "m".to_owned(), data: Some(b"?"[..].into()) };
    assert!(bench.turn(|connection, turn, _| connection.challenge(turn, &challenge)));
    assert_eq!(bench.take(), [[0xF0, 10, 0x18, 8, 0x15, 0, 1, b'm', 0x16, 0, 1, b'?']]);
    bench.feed(&auth(0x18, method));
    assert!(matches!(&bench.upper.events[1], Event::Auth(auth) if auth.method == "m"));
    assert_eq!(bench.connection.poll_timeout(), 19 * SECOND, "it has its time again");
    // Another packet may not come before CONNACK (MQTT 5 §3.1.2.11.9).
    bench.feed(&[0xC0, 0]);
    assert_eq!(bench.closed(), Some((Cause::Error, Reason::PROTOCOL_ERROR)));

    let open = || Bench::open_with(Version::V5, ListenerSettings::default(), Session::default(), method);
    let mut bench = open();
    bench.feed(&auth(0x19, method));
    assert!(matches!(bench.upper.events[..], [Event::Auth(_)]));
    for wrong in [auth(0x19, b"\x15\0\x01n"), auth(0x19, b""), auth(0x00, method)] {
        let mut bench = open();
        bench.feed(&wrong);
        assert_eq!(bench.closed(), Some((Cause::Error, Reason::PROTOCOL_ERROR)));
    }
    let mut bench = Bench::open(Version::V5);
    bench.feed(&auth(0x19, method));
    assert_eq!(bench.closed(), Some((Cause::Error, Reason::PROTOCOL_ERROR)), "it began without one");
}

#[test]
fn disconnect_tells_what_becomes_of_will_and_session() {
    let last = |bench: &Bench| match bench.upper.events.last() {
        Some(Event::Closed(closed)) => closed.clone(),
        other => panic!("{other:?}"),
    };
    for version in VERSIONS {
        let mut bench = Bench::open(version);
        bench.feed(&[0xE0, 0, 0xC0, 0]);
        let expected = Closed { cause: Cause::Client, reason: Reason::SUCCESS, session_expiry: None };
        assert_eq!(last(&bench), expected);
        assert!(bench.take().is_empty(), "nothing is answered after it");
    }
    let lasting =
        || Bench::open_with(Version::V5, ListenerSettings::default(), Session::default(), b"\x11\0\0\0\x05");
    let mut bench = lasting();
    bench.feed(&[0xE0, 1, 0x04]);
    assert_eq!(last(&bench).reason, Reason::DISCONNECT_WITH_WILL);
    for expiry in [0, 7] {
        let mut bench = lasting();
        bench.feed(&[0xE0, 7, 0x00, 5, 0x11, 0, 0, 0, expiry]);
        assert_eq!(last(&bench).session_expiry, Some(u32::from(expiry)));
    }
    // MQTT 5 §3.14.2.2.2: zero stays zero.
    let mut bench = Bench::open(Version::V5);
    bench.feed(&[0xE0, 7, 0x00, 5, 0x11, 0, 0, 0, 7]);
    assert_eq!(bench.closed(), Some((Cause::Error, Reason::PROTOCOL_ERROR)));
    assert_eq!(bench.take(), [[0xE0, 2, 0x82, 0]]);
}

/// MQTT 3.1.1 §3.1.4.
#[test]
fn before_mqtt_5_what_is_malformed_gets_no_connack() {
    for version in VERSIONS {
        let mut bench = Bench::new(ListenerSettings::default());
        bench.feed(&connect(version, 3, &[], b"\0\x01c"));
        assert_eq!(bench.closed(), Some((Cause::Error, Reason::MALFORMED)));
        let told = if version == Version::V5 { 1 } else { 0 };
        assert_eq!(bench.take().len(), told, "{version:?}");
    }
}
