//! Clients whose connections break at any moment, against the promises of each `QoS` (MQTT 5 §4.3): once, or at least once, in order, within the
//! receive maximum, and every claim settled once. Seeded: a failure names its seed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;

const SEEDS: u64 = 300;
const MESSAGES: u64 = 60;

/// A connection to a session, with the client's part of the receive maximum.
fn reconnect(old: Bench, random: &mut SmallRng, version: Version, now: Micros) -> (Bench, u16) {
    let releases = Arc::clone(&old.releases);
    let session = old.part();
    let most = random.random_range(1..6);
    let mut bench = Bench::new(ListenerSettings::default());
    bench.releases = releases;
    bench.now = now;
    bench.feed(&connect(version, 0, &[0x21, 0, most as u8], b"\0\x01c"));
    bench.accept(session);
    (bench, if version == Version::V5 { most } else { u16::MAX })
}

/// A client that gets messages.
#[derive(Default)]
struct Reader {
    /// Payloads, as its application saw them.
    once: Vec<u8>,
    at_least_once: Vec<u8>,
    /// Packet ids of `QoS` 2 between PUBLISH and PUBREL: it remembers them over connections.
    received: BTreeSet<u16>,
    /// Acknowledgements that it has not sent yet.
    acks: VecDeque<Vec<u8>>,
    /// Packet ids that it has not finished with, of this connection.
    open: BTreeSet<u16>,
    most: usize,
}

impl Reader {
    fn take(&mut self, packet: &[u8], seed: u64) {
        let frame = split(packet, usize::MAX).unwrap().unwrap();
        if frame.kind == kind::PUBREL {
            let id = u16::from_be_bytes([frame.body[0], frame.body[1]]);
            self.received.remove(&id);
            return self.acks.push_back(ack(kind::PUBCOMP, id));
        }
        if frame.kind != kind::PUBLISH {
            return;
        }
        let body = frame.body;
        let (id, payload) = (u16::from_be_bytes([body[3], body[4]]), body[body.len() - 1]);
        assert!(id > 0 && self.open.insert(id), "seed {seed}: {id} is in use");
        assert!(self.open.len() <= self.most, "seed {seed}: more than the receive maximum");
        if frame.flags & 6 == 2 {
            self.at_least_once.push(payload);
            self.acks.push_back(ack(kind::PUBACK, id));
        } else {
            if self.received.insert(id) {
                self.once.push(payload);
            }
            self.acks.push_back(ack(kind::PUBREC, id));
        }
    }

    fn next_ack(&mut self) -> Option<Vec<u8>> {
        let ack = self.acks.pop_front()?;
        if matches!(ack[0] >> 4, kind::PUBACK | kind::PUBCOMP) {
            self.open.remove(&u16::from_be_bytes([ack[2], ack[3]]));
        }
        Some(ack)
    }
}

#[test]
fn messages_survive_connections_that_break_anywhere() {
    for seed in 0..SEEDS {
        let mut random = SmallRng::seed_from_u64(seed);
        let version = VERSIONS[random.random_range(0..3)];
        let (mut bench, mut reader) = (Bench::open(version), Reader { most: 65_535, ..Reader::default() });
        let (mut next, mut settled) = (0, 0);
        while next < MESSAGES || bench.connection.session().unwrap().load() != Default::default() {
            match random.random_range(0..10) {
                0..4 if next < MESSAGES => {
                    bench.deliver(Message::plain(next, "t", &[next as u8], 1 + (next % 2) as u8), 2);
                    next += 1;
                }
                4..9 => {
                    for packet in bench.take() {
                        reader.take(&packet, seed);
                    }
                    if let Some(ack) = reader.next_ack() {
                        bench.feed(&ack);
                    }
                }
                _ if random.random_bool(0.3) => {
                    // Some of what is under way still comes, of the rest nothing.
                    let packets = bench.take();
                    let arrived = random.random_range(0..=packets.len());
                    packets[..arrived].iter().for_each(|packet| reader.take(packet, seed));
                    bench.now += SECOND;
                    let now = bench.now;
                    let (new, most) = reconnect(bench, &mut random, version, now);
                    bench = new;
                    reader.acks.clear();
                    reader.open.clear();
                    reader.most = usize::from(most);
                }
                _ => {}
            }
            settled += bench.settled();
        }
        let sent =
            |qos: u64| (0..MESSAGES).filter(|n| 1 + n % 2 == qos).map(|n| n as u8).collect::<Vec<u8>>();
        assert_eq!(reader.once, sent(2), "seed {seed}: once, in order");
        let mut seen = BTreeSet::new();
        let first: Vec<u8> =
            reader.at_least_once.iter().copied().filter(|payload| seen.insert(*payload)).collect();
        assert_eq!(first, sent(1), "seed {seed}: at least once, in order");
        assert_eq!(settled as u64, MESSAGES, "seed {seed}");
    }
}

/// A client that publishes: packet id, and whether PUBREC came.
#[derive(Default)]
struct Writer {
    open: BTreeMap<u16, (u8, bool)>,
    order: Vec<u16>,
    done: Vec<u8>,
}

impl Writer {
    fn take(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        let id = packet.get(2..4).map(|id| u16::from_be_bytes([id[0], id[1]]))?;
        match packet[0] >> 4 {
            kind::PUBREC => {
                self.open.get_mut(&id)?.1 = true;
                Some(ack(kind::PUBREL, id))
            }
            kind::PUBCOMP => {
                self.order.retain(|open| *open != id);
                self.done.push(self.open.remove(&id)?.0);
                None
            }
            _ => None,
        }
    }

    /// What it sends on a new connection (MQTT 5 §4.4).
    fn again(&self, version: Version) -> Vec<u8> {
        let open = self.order.iter().filter_map(|id| self.open.get(id).map(|it| (*id, *it)));
        open.flat_map(|(id, (payload, is_released))| match is_released {
            true => ack(kind::PUBREL, id),
            false => publish(version, 12, "t", id, &[], &[payload]),
        })
        .collect()
    }
}

#[test]
fn what_a_client_publishes_at_qos_2_reaches_the_network_once() {
    for seed in 0..SEEDS {
        let mut random = SmallRng::seed_from_u64(seed);
        let version = VERSIONS[random.random_range(0..3)];
        let (mut bench, mut writer) = (Bench::open(version), Writer::default());
        let (mut next, mut unanswered, mut reached) = (0, Vec::new(), Vec::new());
        while writer.done.len() < MESSAGES as usize {
            for (_, payload, key) in std::mem::take(&mut bench.upper.published) {
                reached.push(payload[0]);
                unanswered.push(key.unwrap());
            }
            match random.random_range(0..10) {
                0..3 if next < MESSAGES && writer.open.len() < 9 => {
                    // Ids begin anywhere, and are used again.
                    let id = (1..)
                        .map(|n| 65_535 - (n * 7 + seed as u16) % 40)
                        .find(|id| !writer.open.contains_key(id));
                    let id = id.unwrap();
                    writer.open.insert(id, (next as u8, false));
                    writer.order.push(id);
                    bench.feed(&publish(version, 4, "t", id, &[], &[next as u8]));
                    next += 1;
                }
                3..6 if !unanswered.is_empty() => {
                    let key = unanswered.swap_remove(random.random_range(0..unanswered.len()));
                    bench.answer(key.0, Reason::SUCCESS);
                }
                6..9 => {
                    let answers: Vec<Vec<u8>> =
                        bench.take().iter().filter_map(|packet| writer.take(packet)).collect();
                    bench.feed(&answers.concat());
                }
                9 if random.random_bool(0.3) => {
                    let (new, _) = reconnect(bench, &mut random, version, 0);
                    bench = new;
                    bench.feed(&writer.again(version));
                }
                _ => {}
            }
        }
        reached.sort_unstable();
        assert_eq!(reached, (0..MESSAGES as u8).collect::<Vec<u8>>(), "seed {seed}");
        assert!(bench.part().incoming.is_settled(), "seed {seed}");
    }
}
