//! Whatever comes in, nothing panics, memory stays bounded, what goes out is sound, and the connection ends at most once.

use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};

use super::*;

const RUNS: u64 = 3_000;

#[test]
fn no_bytes_break_a_connection() {
    let corpora = VERSIONS.map(corpus);
    for seed in 0..RUNS {
        let mut random = SmallRng::seed_from_u64(seed);
        let corpus = &corpora[random.random_range(0..3)];
        let mut bench = Bench::new(settings());
        for _ in 0..random.random_range(1..60) {
            let sound = &corpus[random.random_range(0..corpus.len())];
            let bytes = mutated(&mut random, sound);
            // In pieces, as a stream brings it.
            let cut = random.random_range(0..=bytes.len());
            for piece in [&bytes[..cut], &bytes[cut..]] {
                if bench.connection.wants_bytes() {
                    bench.feed(piece);
                }
            }
            disturb(&mut random, &mut bench);
            check(&mut bench, seed);
        }
        bench.connection.handle_end(&mut bench.upper);
        assert!(bench.closed().is_some());
        drop(bench.turn(|connection, turn, _| connection.take_session(turn)));
        // What the encoder has in hand holds no claim.
        let delivered = bench.counters.messages_out;
        assert!(bench.settled() as u64 <= delivered + bench.counters.drops.iter().sum::<u64>() + 60);
    }
}

fn settings() -> ListenerSettings {
    ListenerSettings {
        handshake_bytes: 2_000,
        maximum_packet: 10_000,
        receive_maximum: 8,
        topic_alias_maximum: 4,
        output_bytes: 4_000,
        ..ListenerSettings::default()
    }
}

/// Sound packets of a client, one after the other.
fn corpus(version: Version) -> Vec<Vec<u8>> {
    let v5 = |properties: &'static [u8]| if version == Version::V5 { properties } else { &[] };
    let id = |body: &[u8]| [&[0, 7][..], if version == Version::V5 { &[0] } else { &[] }, body].concat();
    vec![
        connect(version, 0xC2, v5(b"\x21\0\x03\x22\0\x02"), b"\0\x01c\0\x01u\0\x01p"),
        connect(version, 2, v5(b"\x15\0\x01m"), b"\0\x01c"),
        publish(version, 0, "a/b", 0, v5(b"\x23\0\x01\x01\x01\x26\0\x01k\0\x01v"), b"payload"),
        publish(version, 2, "a", 3, v5(b"\x08\0\x01r\x09\0\x02xy\x02\0\0\0\x05"), &[0; 300]),
        publish(version, 4, "", 4, v5(b"\x23\0\x01"), b""),
        packet(0x82, &id(b"\0\x03a/#\x01\0\x0a$share/g/t\x02")),
        packet(0xA2, &id(b"\0\x03a/#")),
        ack(kind::PUBACK, 1),
        ack(kind::PUBREC, 2),
        ack(kind::PUBREL, 4),
        ack(kind::PUBCOMP, 2),
        ack_with(kind::PUBREC, 1, Reason::UNSPECIFIED),
        vec![0xC0, 0],
        packet(0xF0, b"\x18\x04\x15\0\x01m"),
        vec![0xE0, 0],
    ]
}

fn mutated(random: &mut SmallRng, packet: &[u8]) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    for _ in 0..random.random_range(0..3) {
        let at = random.random_range(0..bytes.len().max(1));
        match random.random_range(0..5) {
            0 if at < bytes.len() => bytes[at] = random.next_u32() as u8,
            1 if at < bytes.len() => bytes[at] ^= 1 << random.random_range(0..8),
            2 => bytes.insert(at.min(bytes.len()), random.next_u32() as u8),
            3 => bytes.truncate(at.max(1)),
            _ => {}
        }
        // Often with a length that fits, so that what is inside is looked at.
        if random.random_bool(0.7) && bytes.len() > 2 && bytes.len() < 130 {
            bytes[1] = (bytes.len() - 2) as u8;
        }
    }
    bytes
}

/// What else happens to a connection.
fn disturb(random: &mut SmallRng, bench: &mut Bench) {
    bench.now += random.random_range(0..SECOND);
    bench.upper.outcome = [
        PublishOutcome::Accepted,
        PublishOutcome::Accepted,
        PublishOutcome::Later,
        PublishOutcome::Refused(Reason::NOT_AUTHORIZED),
    ][random.random_range(0..4)];
    let key = random.random_range(1..20);
    let reason = if random.random_bool(0.8) { Reason::SUCCESS } else { Reason::QUOTA_EXCEEDED };
    match random.random_range(0..8) {
        0 | 1 => bench.accept(Session::default()),
        2 => bench.answer(key, reason),
        3 => bench.turn(Connection::resume),
        4 => bench.turn(|connection, turn, upper| connection.handle_timeout(turn, upper)),
        5 => bench.turn(|connection, turn, upper| {
            connection.acknowledge(turn, kind::SUBACK, 7, &[reason], "", upper);
        }),
        6 => bench.turn(|connection, turn, _| connection.flush(turn)),
        _ => bench.deliver(Message::plain(key, "some/topic", &[0; 100], (key % 3) as u8), 2),
    }
}

fn check(bench: &mut Bench, seed: u64) {
    assert!(bench.connection.rest.capacity() <= 32_000, "seed {seed}: {}", bench.connection.rest.capacity());
    assert!(bench.out.len() <= 20_000, "seed {seed}: {}", bench.out.len());
    bench.take();
    bench.closed();
}
