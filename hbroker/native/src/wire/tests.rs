//! What the codec promises by itself. That it agrees with protobuf is for
//! tests/native/test_codec_equality.py.

use std::borrow::Cow;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::reader::Reader;
use super::*;

const MESSAGE: PublishOut<'_> = PublishOut {
    topic: "home/kitchen/oven/temperature",
    payload: &[b'x'; 59],
    publisher: 0x0123_4567_89ab_cdef,
    sequence: 70_000,
    qos: 1,
    published_at_us: 1_790_000_000_000_000,
    retain: false,
    ack_queued: false,
    expiry_s: None,
    fragment: None,
    content_type: "",
    payload_format: None,
    response_topic: "",
    correlation_data: &[],
    user_properties: &[],
    origin: 0,
};

#[test]
fn varints_of_every_length_are_read_as_they_were_written() {
    let mut rng = SmallRng::seed_from_u64(1);
    for bits in 0..=64 {
        for _ in 0..50 {
            let value = rng.random::<u64>().checked_shr(64 - bits).unwrap_or(0);
            let mut bytes = Vec::new();
            emit::put_varint(&mut bytes, value);
            assert_eq!(bytes.len(), 1.max(bits_of(value).div_ceil(7)));
            // Alone, and with others behind it that do not belong to it.
            for more in [0, 20] {
                bytes.resize(bytes.len() + more, 0xff);
                assert_eq!(Reader::new(&bytes, 0).varint(), Ok(value), "{bytes:x?}");
            }
        }
    }
    for (bytes, is_valid) in [(&[0x80; 9][..], false), (&[0xff; 20], false), (&[0x80, 0x80, 0], true)] {
        assert_eq!(Reader::new(bytes, 0).varint().is_ok(), is_valid, "{bytes:x?}");
    }
    let long_tag = [0x88, 0x80, 0x80, 0x80, 0x80, 0, 0, 0];
    assert!(Reader::new(&long_tag, 0).tag().is_err(), "a tag takes 5 bytes at most");
}

fn bits_of(value: u64) -> usize {
    (64 - value.leading_zeros()) as usize
}

#[test]
fn a_packet_is_read_as_if_it_stood_alone_whatever_the_one_before_it_was_like() {
    let mut rng = SmallRng::seed_from_u64(2);
    let (mut grouped, mut sequence, mut delivery) = (0, 0, 0);
    for _ in 0..3_000 {
        let mut datagram = Vec::new();
        let is_reliable = u64::from(rng.random_bool(0.6));
        let least = if rng.random_bool(0.3) { 200 } else { 2 };
        for _ in 0..4 {
            sequence += 1 << rng.random_range(0..20);
            delivery += if rng.random_bool(0.8) { 1 } else { rng.random_range(0..400) };
            let message = PublishOut {
                topic: ["a/b", "a/c"][usize::from(rng.random_bool(0.1))],
                payload: &[7; 300][..least + rng.random_range(0..3)],
                sequence: sequence * u64::from(rng.random_bool(0.95)),
                published_at_us: MESSAGE.published_at_us + sequence,
                ..MESSAGE
            };
            let mut field = publish_field(&message);
            if rng.random_bool(0.2) {
                let again = field.clone();
                field.extend_from_slice(&again[..again.len() * usize::from(rng.random_bool(0.5))]);
            }
            put_packet(&mut datagram, is_reliable * delivery, is_reliable * (delivery / 2), None, &field);
        }
        for _ in 0..rng.random_range(0..3) {
            let at = rng.random_range(0..datagram.len());
            datagram[at] = if rng.random_bool(0.5) { rng.random() } else { datagram[at] ^ 1 };
        }
        let Ok(view) = DatagramView::parse(&datagram) else {
            continue;
        };
        for packet in view.packets().iter() {
            let single = PacketView::from_raw(packet.raw).expect("it was valid");
            assert_eq!(format!("{packet:?}"), format!("{single:?}"), "{datagram:x?}");
        }
        assert_eq!(view.packets().iter().count(), view.packets().len());
        grouped += view.packets().sections().map(|section| section.len() - 1).sum::<usize>();
    }
    assert!(grouped > 300, "{grouped} were read by their shape");
}

#[test]
fn packets_that_stand_together_are_one_piece() {
    let field = publish_field(&PublishOut { qos: 0, ..MESSAGE });
    let mut datagram = bundle(0);
    let first = datagram.len();
    put_packet(&mut datagram, 0, 0, None, &field);
    put_packet(&mut datagram, 0, 0, None, &field);
    let second = datagram.len();
    put_padding(&mut datagram, 10);
    put_packet(&mut datagram, 0, 0, None, &field);
    put_packet(&mut datagram, 3, 0, None, &field);
    let view = DatagramView::parse(&datagram).unwrap();
    let encoded = |first, count| view.packets().skip(first).take(count).encoded();
    assert_eq!(encoded(0, 2), Some(&datagram[first..second]));
    assert_eq!((encoded(0, 3), encoded(4, 1), encoded(1, 0)), (None, None, None));
    assert!(encoded(2, 2).is_some());
    let bare: Vec<_> = view.packets().sections().map(|section| (section.len(), section.is_bare())).collect();
    assert_eq!(bare, [(2, true), (1, true), (1, false)]);
    assert!(view.packets().iter().all(|packet| publish(&packet).topic == MESSAGE.topic));
}

fn publish_field(message: &PublishOut<'_>) -> Vec<u8> {
    let mut field = Vec::new();
    put_publish_field(&mut field, message);
    field
}

fn bundle(messages: u64) -> Vec<u8> {
    let ranges = [(90, 99), (70, 88), (1, 1)];
    let ack = Some(AckOut { delay_us: 250, ranges: &ranges });
    let mut datagram = Vec::new();
    put_header(
        &mut datagram,
        &HeaderOut { session: 1, incarnation: 2, number: 3, ack, token: b"t", ack_every: 0 },
    );
    for delivery in 1..=messages {
        let field = publish_field(&PublishOut { sequence: 70_000 + delivery, ..MESSAGE });
        put_packet(&mut datagram, delivery, delivery - 1, None, &field);
    }
    datagram
}

fn publish<'a>(packet: &PacketView<'a>) -> PublishView<'a> {
    match packet.body {
        Body::Publish(publish) => publish,
        ref other => panic!("not a PUBLISH: {other:?}"),
    }
}

#[test]
fn a_bundle_is_its_packets_in_order() {
    let datagram = bundle(20);
    let view = DatagramView::parse(&datagram).unwrap();
    assert_eq!((view.header.session, view.header.incarnation, view.header.number), (1, 2, 3));
    assert!(view.has_packets());
    for (packet, delivery) in view.packets().iter().zip(1..) {
        assert_eq!((packet.delivery, packet.after), (delivery, delivery - 1));
        assert_eq!(publish(&packet).sequence, 70_000 + delivery);
        assert_eq!(publish(&packet).topic, MESSAGE.topic);
    }
    assert_eq!(view.packets().len(), 20);
}

#[test]
fn bundles_concatenate() {
    let mut datagram = bundle(3);
    datagram.extend_from_slice(&bundle(2));
    let view = DatagramView::parse(&datagram).unwrap();
    assert_eq!(view.packets().len(), 5);
    // The headers merge: the ranges of the second acknowledgement follow those of the first.
    let ranges: Vec<_> = view.header.ack.unwrap().ranges().collect();
    assert_eq!(ranges[..3], [(90, 99), (70, 88), (1, 1)]);
}

#[test]
fn one_bad_packet_refuses_the_whole_datagram() {
    let mut datagram = bundle(3);
    put_packet(&mut datagram, 4, 0, None, &[0x42, 0x03, 0x0a, 0x01, 0xff]); // A topic that is not UTF-8.
    assert_eq!(DatagramView::parse(&datagram).err(), Some(Malformed));
}

#[test]
fn nothing_is_copied() {
    let datagram = bundle(1);
    let view = DatagramView::parse(&datagram).unwrap();
    let packet = view.packets().iter().next().unwrap();
    let publish = publish(&packet);
    let Cow::Borrowed(field) = publish.field() else { panic!("copied") };
    for fragment in [field, publish.payload, publish.topic.as_bytes()] {
        assert!(datagram.as_ptr_range().contains(&fragment.as_ptr()));
    }
    assert_eq!(field, publish_field(&PublishOut { sequence: 70_001, ..MESSAGE }));
}

#[test]
fn padding_and_a_header_ask_for_no_acknowledgement() {
    let mut datagram = bundle(0);
    put_padding(&mut datagram, 100);
    assert!(!DatagramView::parse(&datagram).unwrap().has_packets());
    assert!(!DatagramView::parse(&[]).unwrap().has_packets());
}

#[test]
fn packet_len_is_exact() {
    for body in [0, 1, 100, 125, 126, 127, 128, 16_380, 16_384, 60_000] {
        let retained = |listener| Some(MeantFor::Listener(listener));
        let shared = |id| Some(MeantFor::Shared(id));
        for (delivery, after, meant_for) in [
            (0, 0, None),
            (1, 0, retained(0)),
            (300, 299, retained(u64::MAX)),
            (u64::MAX, 1, None),
            (0, 0, shared(1)),
            (300, 299, shared(u64::MAX)),
        ] {
            let mut out = Vec::new();
            put_packet(&mut out, delivery, after, meant_for, &vec![0; body]);
            assert_eq!(out.len(), packet_len(delivery, after, meant_for, body));
        }
    }
}

#[test]
fn a_packets_numbers_are_read_as_they_were_written() {
    let ends = (0..64).flat_map(|bits| [1 << bits, (1 << bits) - 1]).chain([u64::MAX]);
    for number in ends.skip(2) {
        let body = field_of(b"");
        let mut out = Vec::new();
        put_packet(&mut out, number, number - 1, Some(MeantFor::Listener(number)), &body);
        let view = DatagramView::parse(&out).unwrap();
        let packet = &view.packets().iter().next().unwrap();
        assert_eq!((packet.delivery, packet.after, packet.retained_for), (number, number - 1, Some(number)));
        assert_eq!(
            (out.len(), packet.raw.len()),
            (packet_len(number, number - 1, Some(MeantFor::Listener(number)), 2), out.len() - 2)
        );
    }
}

#[test]
fn fields_that_lie_end_to_end_are_told_apart_whatever_their_lengths() {
    let long = [&[0x42, 0xff, 0x80, 0x80, 0x00][..], &[1; 127]].concat();
    let longer = [&[0x42, 0xff, 0x80, 0x80, 0x01][..], &vec![1; 127 + (1 << 21)]].concat();
    let sizes = [0, 1, 1, 2, 3, 126, 127, 128, 128, 129, 255, 16_383, 16_384, 16_385, 16_385, 1];
    let mut fields: Vec<Vec<u8>> = sizes.iter().map(|&size| field_of(&vec![7; size])).collect();
    fields.extend([long.clone(), longer, long]);
    let (all, mut end) = (fields.concat(), 0);
    let mut like: &[u8] = &[];
    for field in &fields {
        assert_eq!(first_field(&all[end..], &[]), field);
        like = first_field(&all[end..], like);
        assert_eq!(like, field);
        end += field.len();
    }
    assert_eq!(first_field(&[0x42, 5, 1], &[]), [0x42, 5, 1], "what is cut off is taken as it is");
}

#[test]
fn ranges_that_lie_end_early() {
    let ack = |largest, ranges: &[u8]| {
        let mut content = vec![0x08, largest, 0x1a, ranges.len() as u8];
        content.extend_from_slice(ranges);
        let mut datagram = vec![0x0a, content.len() as u8 + 2, 0x22, content.len() as u8];
        datagram.extend_from_slice(&content);
        DatagramView::parse(&datagram).unwrap().header.ack.unwrap().ranges().collect::<Vec<_>>()
    };
    assert_eq!(ack(10, &[]), [(10, 10)]);
    assert_eq!(ack(10, &[11]), []);
    assert_eq!(ack(10, &[2, 0, 1]), [(8, 10), (5, 6)]);
    assert_eq!(ack(10, &[2, 0]), [(8, 10)]);
    assert_eq!(ack(10, &[2, 7, 0]), [(8, 10)]);
    assert_eq!(ack(10, &[2, 0, 7]), [(8, 10)]);

    let puback = |ranges: &[u8]| {
        let mut packet = vec![0x4a, ranges.len() as u8 + 2, 0x0a, ranges.len() as u8];
        packet.extend_from_slice(ranges);
        let mut datagram = vec![0x12, packet.len() as u8];
        datagram.extend_from_slice(&packet);
        match DatagramView::parse(&datagram).unwrap().packets().iter().next().unwrap().body {
            Body::PubAck(puback) => puback.ranges().collect::<Vec<_>>(),
            ref other => panic!("not a PUBACK: {other:?}"),
        }
    };
    assert_eq!(puback(&[3, 2, 1, 1]), [(3, 4), (5, 5)]);
    assert_eq!(puback(&[3, 2, 0, 1]), [(3, 4)]);
    assert_eq!(puback(&[3, 0, 1, 1]), []);
    assert_eq!(puback(&[3]), []);
}

/// Reads all that can be read of a view. (In a debug build arithmetic that overflows panics, too.)
fn exhaust(view: &DatagramView<'_>) -> usize {
    let acked = view.header.ack.map_or(0, |ack| ack.ranges().count());
    let read = |packet: &PacketView<'_>| match packet.body {
        Body::Publish(publish) => {
            let properties = publish.properties();
            publish.field().len() + publish.user_properties().count() + properties.content_type.len()
        }
        Body::PubAck(puback) => puback.ranges().count() + usize::from(puback.referral().is_some()),
        _ => packet.raw.len(),
    };
    acked + view.packets().iter().map(|packet| read(&packet)).sum::<usize>()
}

#[test]
fn parse_never_panics() {
    let mut rng = SmallRng::seed_from_u64(7);
    let (mut taken, mut read) = (0, 0);
    for _ in 0..100_000 {
        let mut datagram = bundle(rng.random_range(0..3));
        for _ in 0..rng.random_range(0..4) {
            let at = rng.random_range(0..datagram.len());
            match rng.random_range(0..4) {
                0 => datagram[at] ^= 1 << rng.random_range(0..8),
                1 => datagram[at] = rng.random(),
                2 => datagram.insert(at, rng.random()),
                _ => datagram.truncate(at + 1),
            }
        }
        if let Ok(view) = DatagramView::parse(&datagram) {
            taken += 1;
            read += exhaust(&view);
        }
    }
    assert!((10_000..90_000).contains(&taken));
    assert!(read > 0);
}

/// A message of `QoS` 0 that others can be like.
const MODEL: PublishOut<'_> =
    PublishOut { topic: "home/kitchen/oven", payload: b"215", sequence: 126, qos: 0, origin: 9, ..MESSAGE };

#[test]
fn delta_messages_are_what_they_would_be_as_whole_ones() {
    let payloads: Vec<Vec<u8>> = [3_usize, 3, 3, 200, 0, 0, 70].iter().map(|&size| vec![5; size]).collect();
    let (mut short, mut whole) = (Vec::new(), Vec::new());
    for second in [0, 1] {
        let model = PublishOut { published_at_us: MODEL.published_at_us + second, ..MODEL };
        put_packet(&mut short, 0, 0, None, &publish_field(&model));
        put_packet(&mut whole, 0, 0, None, &publish_field(&model));
        for (sequence, payload) in (127..).zip(&payloads) {
            let before = short.len();
            put_delta(&mut short, payload);
            assert_eq!(short.len() - before, delta_len(payload.len()));
            put_packet(&mut whole, 0, 0, None, &publish_field(&PublishOut { payload, sequence, ..model }));
        }
    }
    let (short, whole) = (DatagramView::parse(&short).unwrap(), DatagramView::parse(&whole).unwrap());
    assert_eq!((short.packets().len(), whole.packets().len()), (16, 16));
    let told = |packet: PacketView<'_>| {
        assert!(packet.is_bare());
        let publish = publish(&packet);
        (publish.field().into_owned(), publish.payload.to_vec(), publish.sequence, publish.is_plain())
    };
    for (short, whole) in short.packets().iter().zip(whole.packets().iter()) {
        assert_eq!(told(short), told(whole));
    }
    let lengths: Vec<_> =
        short.packets().sections().map(|section| (section.len(), section.is_delta())).collect();
    let once = [(1, false), (3, true), (1, true), (2, true), (1, true)];
    assert_eq!(lengths, [once, once].concat());
    assert!(short.packets().encoded().is_some());
}

#[test]
fn what_is_like_no_message_is_none() {
    let kinds = |first: &[u8], between: &[u8], again: (u64, u64, Option<MeantFor>, &[u8])| {
        let mut datagram = first.to_vec();
        datagram.extend_from_slice(between);
        let (delivery, after, meant_for, body) = again;
        put_packet(&mut datagram, delivery, after, meant_for, body);
        put_delta(&mut datagram, b"1");
        let view = DatagramView::parse(&datagram).unwrap();
        let kind = |packet: PacketView<'_>| match packet.body {
            Body::Publish(publish) if publish.is_delta() => 'm',
            Body::Publish(_) => 'p',
            Body::Delta(_) => 'a',
            _ => '-',
        };
        view.packets().iter().map(kind).collect::<String>()
    };
    let packet = |message: &PublishOut<'_>, delivery: u64, meant_for: Option<MeantFor>| {
        let mut packet = Vec::new();
        put_packet(&mut packet, delivery, 0, meant_for, &publish_field(message));
        packet
    };
    let model = packet(&MODEL, 0, None);
    let again: &[u8] = b"\x22\x01x";
    let alone = (0, 0, None, again);
    assert_eq!(kinds(&model, b"", alone), "pmm");
    assert_eq!(kinds(&model, b"\x1a\x01\x00", alone), "pmm", "padding is no packet");
    assert_eq!(kinds(b"", b"", alone), "aa");
    // Before it comes something else, or a message of which more is to be known.
    assert_eq!(kinds(&model, b"\x12\x00", alone), "p-aa");
    assert_eq!(kinds(&packet(&MODEL, 5, None), b"", alone), "paa");
    assert_eq!(kinds(&packet(&MODEL, 0, Some(MeantFor::Listener(0))), b"", alone), "paa");
    assert_eq!(kinds(&packet(&MODEL, 0, Some(MeantFor::Shared(7))), b"", alone), "paa");
    for other in [
        PublishOut { qos: 1, ..MODEL },
        PublishOut { retain: true, ..MODEL },
        PublishOut { expiry_s: Some(60), ..MODEL },
        PublishOut { ack_queued: true, ..MODEL },
        PublishOut { content_type: "text", ..MODEL },
        PublishOut { fragment: Some(FragmentView { index: 0, count: 2, total: 9 }), ..MODEL },
    ] {
        assert_eq!(kinds(&packet(&other, 0, None), b"", alone), "paa", "{other:?}");
    }
    // It says much: beside its payload 38 bytes, and the topic.
    for (length, expected) in [(256 - 38, "pmm"), (256 - 37, "paa")] {
        let topic = "t".repeat(length);
        let long = PublishOut { topic: &topic, ..MODEL };
        assert_eq!(publish_field(&long).len() - MODEL.payload.len(), length + 38);
        assert_eq!(kinds(&packet(&long, 0, None), b"", alone), expected);
    }
    let mut torn = publish_field(&MODEL);
    torn.extend_from_slice(&publish_field(&MODEL));
    let mut datagram = Vec::new();
    put_packet(&mut datagram, 0, 0, None, &torn);
    assert_eq!(kinds(&datagram, b"", alone), "paa");
    // It says more than its payload, or says that in another way. What follows it is like nothing, either.
    for other in [(5, 0, None, again), (0, 5, None, again), (0, 0, Some(MeantFor::Listener(0)), again)] {
        assert_eq!(kinds(&model, b"", other), "paa");
    }
    assert_eq!(kinds(&model, b"", (0, 0, None, b"\x22\x00\x22\x01x")), "paa", "twice");
    assert_eq!(kinds(&model, b"", (0, 0, None, b"\x22\x81\x00x")), "paa", "a length of two bytes");
    assert_eq!(kinds(&model, b"", (0, 0, None, b"\x22\x01x\x42\x00")), "ppa", "a PUBLISH after all, torn");
}

#[test]
fn a_number_that_has_no_next_one_does_no_harm() {
    let mut datagram = Vec::new();
    put_packet(&mut datagram, 0, 0, None, &publish_field(&PublishOut { sequence: u64::MAX, ..MODEL }));
    (0..3).for_each(|_| put_delta(&mut datagram, b"x"));
    let view = DatagramView::parse(&datagram).unwrap();
    let sequences: Vec<_> = view.packets().iter().map(|packet| publish(&packet).sequence).collect();
    assert_eq!(sequences, [u64::MAX, 0, 1, 2]);
}

#[test]
fn the_id_of_a_message_is_that_of_its_view() {
    let fragment = FragmentView { index: 3, ..FragmentView::default() };
    for fragment in [None, Some(fragment)] {
        let message = PublishOut {
            topic: "a/b",
            payload: b"x",
            publisher: 7,
            sequence: 1 << 40,
            qos: 2,
            published_at_us: 1_700_000_000_000_000,
            expiry_s: Some(3),
            fragment,
            content_type: "text/plain",
            ..PublishOut::default()
        };
        let mut field = Vec::new();
        put_publish_field(&mut field, &message);
        let Body::Publish(view) = PacketView::from_raw(&field).unwrap().body else { panic!("a message") };
        let expected = PublishId {
            publisher: view.publisher,
            sequence: view.sequence,
            published_at_us: view.published_at_us,
            fragment: view.fragment.map(|fragment| fragment.index),
        };
        assert_eq!(PublishId::of(&field), Ok(expected));
        for end in 1..field.len() {
            let is_valid = PacketView::from_raw(&field[..end]).is_ok();
            assert_eq!(PublishId::of(&field[..end]).is_ok(), is_valid, "{end}");
        }
    }
}
