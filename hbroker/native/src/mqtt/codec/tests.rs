//! What is no packet, and with which reason (MQTT 5 §4.13).

use crate::mqtt::codec::frame::{self, kind, split};
use crate::mqtt::codec::packets::Version;
use crate::mqtt::codec::packets::Version::{V5, V31, V311};
use crate::mqtt::codec::publish::Publish;
use crate::mqtt::codec::reason::Reason;
use crate::mqtt::codec::{Checked, acks, connect, control};

/// Reads a packet as a connection would.
fn read(version: Version, bytes: &[u8]) -> Checked<()> {
    let frame = split(bytes, usize::MAX)?.expect("it is whole");
    match frame.kind {
        kind::CONNECT => connect::parse(&frame).map(drop).map_err(|invalid_connect| invalid_connect.reason),
        kind::PUBLISH => Publish::parse(version, &frame).map(drop),
        kind::SUBSCRIBE => control::subscribe(version, &frame).map(drop),
        kind::UNSUBSCRIBE => control::unsubscribe(version, &frame).map(drop),
        kind::DISCONNECT => control::disconnect(version, &frame).map(drop),
        kind::AUTH => control::auth(&frame).map(drop),
        _ => acks::parse(version, &frame).map(drop),
    }
}

fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    [&[first, u8::try_from(body.len()).expect("short")], body].concat()
}

fn connect(version: Version, flags: u8, rest: &[u8]) -> Vec<u8> {
    let name: &[u8] = if version == V31 { b"\0\x06MQIsdp" } else { b"\0\x04MQTT" };
    packet(0x10, &[name, &[version as u8, flags, 0, 60], rest].concat())
}

#[test]
fn sound_packets_are_taken() {
    for (version, bytes) in [
        (V31, connect(V31, 2, b"\0\x01a")),
        (V311, connect(V311, 0x82, b"\0\x01a\0\x01u")),
        // MQTT 5 §3.1.2.9: a password without a user name.
        (V5, connect(V5, 0x42, b"\0\0\x01a\0\x01p")),
        (V5, connect(V5, 2, b"\0\0\0")),
        (V5, connect(V5, 0, b"\0\0\0")),
        (V5, packet(0x30, "\0\x09t/\u{feff}\u{10ffff}\0x".as_bytes())),
        (V31, packet(0x38, b"\0\x01tx")),
        // MQTT 3.1: repetitions of SUBSCRIBE, UNSUBSCRIBE and PUBREL are marked.
        (V31, packet(0x8A, b"\0\x01\0\x01t\x00")),
        (V31, packet(0xAA, b"\0\x01\0\x01t")),
        (V31, packet(0x6A, b"\0\x01")),
        (V5, packet(0x82, b"\0\x01\0\0\x0a$share/g/+\0\0\x03$/+\x2e")),
        // What is no group is answered.
        (V5, packet(0x82, b"\0\x01\0\0\x08$share/t\0\0\x0a$share/+/t\0")),
        (V5, packet(0x82, b"\xff\xff\x02\x0b\x01\0\x02//\x02")),
        (V311, packet(0x82, b"\0\x01\0\x01#\x02")),
        (V5, packet(0xE0, b"\x04")),
        (V5, packet(0xE0, b"")),
        (V5, packet(0xF0, b"\x18\x04\x15\0\x01m")),
        (V5, packet(0x40, b"\0\x01\x10\x06\x1f\0\x03abc")),
        (V5, packet(0x40, b"\0\x01\x00")),
    ] {
        assert_eq!(read(version, &bytes), Ok(()), "{bytes:?}");
    }
}

#[test]
fn connect_is_held_to_its_rules() {
    for (version, flags, rest, reason) in [
        (V5, 3, &b"\0\0\x01a"[..], Reason::MALFORMED),
        (V311, 3, b"\0\x01a", Reason::MALFORMED),
        (V5, 0b0001_1110, b"\0\0\x01a\0\0\x01t\0\x01p", Reason::MALFORMED),
        (V5, 0b0000_1010, b"\0\0\x01a", Reason::MALFORMED),
        (V311, 0b0010_0010, b"\0\x01a", Reason::MALFORMED),
        (V311, 0x42, b"\0\x01a\0\x01p", Reason::MALFORMED),
        (V5, 2, b"\0\0\x01azz", Reason::MALFORMED),
        (V31, 2, b"\0\x01azz", Reason::MALFORMED),
        (V5, 2, b"\0\0\x01\0", Reason::MALFORMED),
        (V5, 2, b"\0\0\x03\xed\xa0\x80", Reason::MALFORMED),
        (V5, 0x82, b"\0\0\x01a\0\x01\xff", Reason::MALFORMED),
        (V5, 0xC2, b"\0\0\x01a\0\x01u", Reason::MALFORMED),
        (V5, 6, b"\0\0\x01a\0\0\x01#\0\x01p", Reason::TOPIC_NAME_INVALID),
        (V5, 6, b"\0\0\x01a\x04\x08\0\x01+\0\x01t\0\x01p", Reason::TOPIC_NAME_INVALID),
        (V5, 2, b"\x0a\x11\0\0\0\x01\x11\0\0\0\x01\0\x01a", Reason::PROTOCOL_ERROR),
        (V5, 2, b"\x03\x21\0\0\0\x01a", Reason::PROTOCOL_ERROR),
        (V5, 2, b"\x05\x27\0\0\0\0\0\x01a", Reason::PROTOCOL_ERROR),
        (V5, 2, b"\x02\x17\x02\0\x01a", Reason::PROTOCOL_ERROR),
        (V5, 2, b"\x04\x16\0\x01x\0\x01a", Reason::PROTOCOL_ERROR),
        (V5, 2, b"\x03\x23\0\x01\0\x01a", Reason::MALFORMED),
        (V5, 2, b"\x02\x7f\0\0\x01a", Reason::MALFORMED),
        (V5, 2, b"\x80\x00\0\x01a", Reason::MALFORMED),
        (V5, 2, b"\x80\x80\x80\x80\x00\0\x01a", Reason::MALFORMED),
        (V5, 2, b"\x07\x26\0\x01\0\0\x01a\0\x01a", Reason::MALFORMED),
        (V31, 2, b"\0\0", Reason::CLIENT_ID_INVALID),
        (V311, 0, b"\0\0", Reason::CLIENT_ID_INVALID),
    ] {
        assert_eq!(read(version, &connect(version, flags, rest)), Err(reason), "{version:?} {rest:?}");
    }
}

#[test]
fn publish_is_held_to_its_rules() {
    for (version, first, body, reason) in [
        (V5, 0x36, &b"\0\x01t\0\x01\0x"[..], Reason::MALFORMED),
        (V5, 0x32, b"\0\x01t\0\0\0x", Reason::MALFORMED),
        (V311, 0x32, b"\0\x01t\0\0x", Reason::MALFORMED),
        (V5, 0x38, b"\0\x01t\0x", Reason::MALFORMED),
        (V5, 0x30, b"\0\x01#\0x", Reason::TOPIC_NAME_INVALID),
        (V311, 0x30, b"\0\x03a/+x", Reason::TOPIC_NAME_INVALID),
        (V311, 0x30, b"\0\0x", Reason::TOPIC_NAME_INVALID),
        (V5, 0x30, b"\0\0\0x", Reason::PROTOCOL_ERROR),
        (V5, 0x30, b"\0\x01\0\0x", Reason::MALFORMED),
        (V5, 0x30, b"\0\x01\xff\0x", Reason::MALFORMED),
        (V5, 0x30, b"\0\x03\xed\xa0\x80\0x", Reason::MALFORMED),
        (V5, 0x30, b"\0\x01t\x03\x23\0\0x", Reason::TOPIC_ALIAS_INVALID),
        (V5, 0x30, b"\0\x01t\x02\x0b\x01x", Reason::PROTOCOL_ERROR),
        (V5, 0x30, b"\0\x01t\x02\x01\x02x", Reason::PROTOCOL_ERROR),
        (V5, 0x30, b"\0\x01t\x04\x01\x01\x01\x01x", Reason::PROTOCOL_ERROR),
        (V5, 0x30, b"\0\x01t\x04\x08\0\x01#x", Reason::PROTOCOL_ERROR),
        (V5, 0x30, b"\0\x01t\x05\x11\0\0\0\x01x", Reason::MALFORMED),
        (V5, 0x30, b"\0\x01t\x09\x01\x01", Reason::MALFORMED),
        (V5, 0x30, b"\0\x09t", Reason::MALFORMED),
        (V5, 0x30, b"\0\x01t\x07\x26\0\x01\xff\0\x01ax", Reason::MALFORMED),
        (V5, 0x30, b"\0\x01t\x07\x26\0\x01\0\0\x01ax", Reason::MALFORMED),
        (V5, 0x30, b"\0\x01t\x80\0x", Reason::MALFORMED),
    ] {
        assert_eq!(read(version, &packet(first, body)), Err(reason), "{version:?} {body:?}");
    }
}

#[test]
fn other_packets_are_held_to_their_rules() {
    for (version, first, body, reason) in [
        (V5, 0x80, &b"\0\x01\0\0\x01t\0"[..], Reason::MALFORMED),
        (V5, 0x8A, b"\0\x01\0\0\x01t\0", Reason::MALFORMED),
        (V5, 0x82, b"\0\0\0\0\x01t\0", Reason::MALFORMED),
        (V5, 0x82, b"\0\x01\0", Reason::PROTOCOL_ERROR),
        (V311, 0x82, b"\0\x01", Reason::PROTOCOL_ERROR),
        (V5, 0x82, b"\0\x01\0\0\x01t\x03", Reason::PROTOCOL_ERROR),
        (V311, 0x82, b"\0\x01\0\x01t\x03", Reason::MALFORMED),
        (V5, 0x82, b"\0\x01\0\0\x01t\x40", Reason::MALFORMED),
        (V311, 0x82, b"\0\x01\0\x01t\x04", Reason::MALFORMED),
        (V5, 0x82, b"\0\x01\0\0\x01t\x30", Reason::PROTOCOL_ERROR),
        (V5, 0x82, b"\0\x01\0\0\x03t#x\0", Reason::TOPIC_FILTER_INVALID),
        (V5, 0x82, b"\0\x01\0\0\0\0", Reason::TOPIC_FILTER_INVALID),
        (V5, 0x82, b"\0\x01\x02\x0b\0\0\x01t\0", Reason::PROTOCOL_ERROR),
        (V5, 0x82, b"\0\x01\x04\x0b\x01\x0b\x02\0\x01t\0", Reason::PROTOCOL_ERROR),
        (V5, 0x82, b"\0\x01\0\0\x0a$share/g/t\x04", Reason::PROTOCOL_ERROR),
        (V5, 0x82, b"\0\x01\0\0\x01t", Reason::MALFORMED),
        (V5, 0xA2, b"\0\x01\0", Reason::PROTOCOL_ERROR),
        (V5, 0xA2, b"\0\0\0\0\x01t", Reason::MALFORMED),
        (V5, 0xA0, b"\0\x01\0\0\x01t", Reason::MALFORMED),
        (V5, 0xA2, b"\0\x01\0\0\x02t#", Reason::TOPIC_FILTER_INVALID),
        (V5, 0x40, b"\0\0", Reason::MALFORMED),
        (V5, 0x40, b"\0\x01\x01", Reason::MALFORMED),
        (V5, 0x42, b"\0\x01", Reason::MALFORMED),
        (V5, 0x40, b"\0\x01\0\0z", Reason::MALFORMED),
        (V311, 0x40, b"\0\x01\0", Reason::MALFORMED),
        (V5, 0x50, b"\0\x01\0\x08\x1f\0\x01a\x1f\0\x01a", Reason::PROTOCOL_ERROR),
        (V5, 0x60, b"\0\x01", Reason::MALFORMED),
        (V5, 0x62, b"\0\x01\x87", Reason::MALFORMED),
        (V5, 0xE1, b"", Reason::MALFORMED),
        (V5, 0xE0, b"\x01", Reason::MALFORMED),
        (V5, 0xE0, b"\x8e", Reason::PROTOCOL_ERROR),
        (V5, 0xE0, b"\x04\0z", Reason::MALFORMED),
        (V5, 0xE0, b"\x04\x04\x1c\0\x01a", Reason::PROTOCOL_ERROR),
        (V311, 0xE0, b"\x04", Reason::MALFORMED),
        (V5, 0xF1, b"", Reason::MALFORMED),
        (V5, 0xF0, b"", Reason::PROTOCOL_ERROR),
        (V5, 0xF0, b"\x18\0", Reason::PROTOCOL_ERROR),
        (V5, 0xF0, b"\x01\x04\x15\0\x01a", Reason::MALFORMED),
    ] {
        assert_eq!(read(version, &packet(first, body)), Err(reason), "{version:?} {first:x} {body:?}");
    }
}

#[test]
fn lengths_are_read_as_the_specification_writes_them() {
    for (value, bytes) in [
        (0, &[0x00][..]),
        (127, &[0x7F]),
        (128, &[0x80, 0x01]),
        (16_383, &[0xFF, 0x7F]),
        (16_384, &[0x80, 0x80, 0x01]),
        (2_097_151, &[0xFF, 0xFF, 0x7F]),
        (2_097_152, &[0x80, 0x80, 0x80, 0x01]),
        (frame::MAX_REMAINING, &[0xFF, 0xFF, 0xFF, 0x7F]),
    ] {
        let mut out = Vec::new();
        frame::put_varint(&mut out, value);
        assert_eq!((out.as_slice(), frame::varint_len(value)), (bytes, bytes.len()));
        let header = [&[0x30], bytes].concat();
        let whole = 1 + bytes.len() + value;
        assert_eq!(frame::length(&header, usize::MAX), Ok(Some(whole)));
        assert_eq!(frame::length(&header, whole), Ok(Some(whole)));
        assert_eq!(frame::length(&header, whole - 1), Err(Reason::PACKET_TOO_LARGE));
        for short in 0..header.len() {
            assert_eq!(frame::length(&header[..short], usize::MAX), Ok(None));
        }
    }
    for overlong in [&[0x30, 0x80, 0x00][..], &[0x30, 0xFF, 0x80, 0x00], &[0x30, 0xFF, 0xFF, 0xFF, 0xFF]] {
        assert_eq!(frame::length(overlong, usize::MAX), Err(Reason::MALFORMED));
    }
}
