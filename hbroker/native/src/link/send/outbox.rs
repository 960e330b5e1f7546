//! Packets that wait to be sent for the first time, in the order in which they were queued.
//!
//! Unreliable packets are end to end in one buffer, encoded as they will be sent. So a run of them is put
//! into a datagram with one copy, and queueing one allocates nothing. A delta (§2.4) is expanded to a whole
//! message if a datagram begins with it. Reliable packets are only counted here, in their place in the queue:
//! they are numbered in the order of queueing, and `delivery` keeps their bodies.
//!
//! A peer that keeps no reliable packet blocks those (§3.3). Unreliable packets then pass them; otherwise
//! they would wait for ever.

use std::collections::VecDeque;
use std::ops::Range;

use crate::wire::{self, MeantFor};

/// A first-in first-out queue of packets.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Encoded `packets` fields; those before `head` were sent.
    bytes: Vec<u8>,
    head: usize,
    entries: VecDeque<Entry>,
    /// The number of unreliable packets queued so far, and of those that were sent.
    queued: u64,
    sent: u64,
    /// The numbers of those unreliable packets that are the link's own and no messages, in order. There are few.
    own: VecDeque<u64>,
    /// The bytes of the last whole packet, and of its deltas.
    with_deltas: usize,
    /// The first packet, expanded to a whole message, if it is a delta of a packet that was sent; else empty.
    expanded: Vec<u8>,
    /// Memory for the next expanded packet.
    spare: Vec<u8>,
}

/// Encoded packets that are end to end, and have one length.
#[derive(Debug, Clone, Copy)]
pub struct PacketRun {
    pub length: usize,
    pub count: u32,
    /// Each is a delta of the one before it (§2.4).
    pub is_delta: bool,
}

#[derive(Debug, Clone, Copy)]
enum Entry {
    /// The encoded length of the next packets in `bytes`, and their number.
    Unreliable(u32, u32),
    /// The same for deltas.
    Delta(u32, u32),
    /// A run of reliable packets.
    Reliable(u32),
}

/// The packets at the head of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextPackets {
    /// An unreliable packet of this encoded size.
    Unreliable(usize),
    /// This number of reliable packets that were never sent, the next ones.
    Reliable(u32),
}

impl Outbox {
    /// Queues an unreliable packet.
    pub fn push_unreliable(&mut self, body_field: &[u8], meant_for: Option<MeantFor>) {
        self.reclaim();
        let before = self.bytes.len();
        wire::put_packet(&mut self.bytes, 0, 0, meant_for, body_field);
        self.push_run(PacketRun::one(self.bytes.len() - before));
    }

    /// Queues unreliable packets that are encoded as they will be sent: `packets` fields.
    pub fn push_encoded(&mut self, packets: &[u8], packet_runs: impl Iterator<Item = PacketRun>) {
        self.reclaim();
        self.bytes.extend_from_slice(packets);
        packet_runs.for_each(|packet_run| self.push_run(packet_run));
    }

    /// Queues a delta of an unreliable packet. `before`: the number of unreliable packets that were queued up to
    /// and including that packet. False: that packet is not the last in the queue any more, or the whole packet
    /// and its deltas would exceed `most` bytes.
    pub fn push_delta(&mut self, payload: &[u8], before: u64, most: usize) -> bool {
        let is_unreliable = matches!(self.entries.back(), Some(Entry::Unreliable(..) | Entry::Delta(..)));
        if !is_unreliable || before != self.queued || self.with_deltas + wire::delta_len(payload.len()) > most
        {
            return false;
        }
        self.reclaim();
        let start = self.bytes.len();
        wire::put_delta(&mut self.bytes, payload);
        self.push_run(PacketRun { is_delta: true, ..PacketRun::one(self.bytes.len() - start) });
        true
    }

    /// Queues an unreliable packet that is no message.
    pub fn push_own(&mut self, body_field: &[u8]) {
        self.push_unreliable(body_field, None);
        self.own.push_back(self.queued);
    }

    /// Queues `more` reliable packets: those with the next numbers.
    pub fn push_reliable(&mut self, more: u32) {
        match self.entries.back_mut() {
            Some(Entry::Reliable(count)) => *count += more,
            _ => self.entries.push_back(Entry::Reliable(more)),
        }
    }

    /// The next packets to be sent.
    pub fn front(&self) -> Option<NextPackets> {
        self.entries.front().map(|entry| match *entry {
            Entry::Unreliable(length, _) => NextPackets::Unreliable(length as usize),
            Entry::Delta(..) => NextPackets::Unreliable(self.expanded.len()),
            Entry::Reliable(count) => NextPackets::Reliable(count),
        })
    }

    /// Removes `built` reliable packets from the head of the queue.
    pub fn pop_reliable(&mut self, built: u32) {
        match self.entries.front_mut() {
            Some(Entry::Reliable(count)) if *count > built => *count -= built,
            Some(Entry::Reliable(count)) if *count == built => _ = self.entries.pop_front(),
            _ => debug_assert!(false, "fewer reliable packets are at the head"),
        }
    }

    /// Moves the unreliable packets up to the next reliable one before the reliable packets at the head of the
    /// queue. False: there are none.
    pub fn pass_reliable(&mut self) -> bool {
        let Some(&Entry::Reliable(blocked)) = self.entries.front() else {
            return false;
        };
        let unreliable = |entry: &Entry| !matches!(entry, Entry::Reliable(_));
        let passing = self.entries.iter().skip(1).take_while(|entry| unreliable(entry)).count();
        if passing == 0 {
            return false;
        }
        self.entries.pop_front();
        match self.entries.get_mut(passing) {
            Some(Entry::Reliable(count)) => *count += blocked,
            _ => self.entries.insert(passing, Entry::Reliable(blocked)),
        }
        true
    }

    /// Moves the first unreliable packets that fit `room` bytes to `out`.
    pub fn build_unreliable(&mut self, out: &mut Vec<u8>, room: usize) {
        let mut left = room;
        if let Some(Entry::Delta(length, count)) = self.entries.front_mut() {
            if self.expanded.len() > room {
                return;
            }
            out.extend_from_slice(&self.expanded);
            left -= self.expanded.len();
            self.head += *length as usize;
            self.sent += 1;
            *count -= 1;
            if *count == 0 {
                self.entries.pop_front();
            }
        }
        let mut end = self.head;
        // The last whole packet, and the number of its deltas.
        let (mut whole, mut like) = (None, 0);
        while let Some(entry) = self.entries.front_mut() {
            let (length, count, is_delta) = match entry {
                Entry::Unreliable(length, count) => (*length as usize, count, false),
                Entry::Delta(length, count) => (*length as usize, count, true),
                Entry::Reliable(_) => break,
            };
            let taken = (*count).min(u32::try_from(left / length).unwrap_or(u32::MAX));
            if taken == 0 {
                break;
            }
            left -= taken as usize * length;
            end += taken as usize * length;
            self.sent += u64::from(taken);
            if is_delta {
                like += u64::from(taken);
            } else {
                (whole, like) = (Some(end - length..end), 0);
            }
            *count -= taken;
            if *count > 0 {
                break;
            }
            self.entries.pop_front();
        }
        out.extend_from_slice(&self.bytes[self.head..end]);
        self.head = end;
        self.expand_first(whole, like);
        while self.own.front().is_some_and(|&own| own <= self.sent) {
            self.own.pop_front();
        }
    }

    /// Expands the first packet, if it is a delta of one that was sent. `whole`: where the last whole packet
    /// is, if it is not `expanded`; `like`: how many of its deltas were sent.
    fn expand_first(&mut self, whole: Option<Range<usize>>, like: u64) {
        self.spare.clear();
        if let Some(&Entry::Delta(length, _)) = self.entries.front() {
            let model = whole.map_or(&self.expanded[..], |place| &self.bytes[place]);
            let again = &self.bytes[self.head..self.head + length as usize];
            let is_said = wire::put_whole(&mut self.spare, model, like + 1, again);
            debug_assert!(is_said, "what is queued is like the packet before it");
        }
        std::mem::swap(&mut self.expanded, &mut self.spare);
    }

    /// The encoded bytes of the unreliable packets that wait.
    pub fn unreliable_bytes(&self) -> usize {
        self.bytes.len() - self.head
    }

    /// How many messages wait among the unreliable packets.
    pub fn messages(&self) -> usize {
        (self.queued - self.sent) as usize - self.own.len()
    }

    /// The number of unreliable packets queued so far, and of those that were sent.
    pub fn passed(&self) -> (u64, u64) {
        (self.queued, self.sent)
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Consecutive packets of one length are noted together: those of a batch nearly always have one.
    fn push_run(&mut self, PacketRun { length, count: more, is_delta }: PacketRun) {
        self.with_deltas = if is_delta { self.with_deltas } else { 0 } + length * more as usize;
        let length = u32::try_from(length).expect("a packet is shorter than a datagram");
        match self.entries.back_mut() {
            Some(Entry::Unreliable(last, count)) if *last == length && !is_delta => *count += more,
            Some(Entry::Delta(last, count)) if *last == length && is_delta => *count += more,
            _ if is_delta => self.entries.push_back(Entry::Delta(length, more)),
            _ => self.entries.push_back(Entry::Unreliable(length, more)),
        }
        self.queued += u64::from(more);
    }

    /// Drops the sent part of the buffer once it is the larger one: each byte moves at most once on average.
    fn reclaim(&mut self) {
        if self.head > 0 && self.head >= self.unreliable_bytes() {
            self.bytes.drain(..self.head);
            self.head = 0;
        }
    }
}

impl PacketRun {
    /// One whole packet.
    pub fn one(length: usize) -> Self {
        Self { length, count: 1, is_delta: false }
    }
}

#[cfg(test)]
mod tests {
    use std::iter::once;

    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::wire::{Body, DatagramView, PublishOut};

    #[test]
    fn keeps_the_order_and_builds_of_whole_packets_only() {
        let mut outbox = Outbox::default();
        outbox.push_unreliable(b"\x7a\x00", None);
        outbox.push_unreliable(b"\x7a\x02\x08\x01", None);
        outbox.push_reliable(1);
        outbox.push_own(b"\x7a\x00");
        assert_eq!(outbox.messages(), 2);
        let Some(NextPackets::Unreliable(first)) = outbox.front() else {
            panic!("an unreliable packet is first")
        };
        let mut out = Vec::new();
        outbox.build_unreliable(&mut out, first + 1);
        assert_eq!(out.len(), first, "the second does not fit");
        outbox.build_unreliable(&mut out, 1_000);
        assert_eq!(outbox.front(), Some(NextPackets::Reliable(1)), "not past the reliable packet's turn");
        assert_eq!((outbox.messages(), outbox.own.len()), (0, 1), "what is left is no message");
        outbox.pop_reliable(1);
        outbox.build_unreliable(&mut out, 1_000);
        assert!(outbox.is_empty() && outbox.unreliable_bytes() == 0 && outbox.own.is_empty());
        let mut expected = Vec::new();
        wire::put_packet(&mut expected, 0, 0, None, b"\x7a\x00");
        wire::put_packet(&mut expected, 0, 0, None, b"\x7a\x02\x08\x01");
        wire::put_packet(&mut expected, 0, 0, None, b"\x7a\x00");
        assert_eq!(out, expected);
    }

    #[test]
    fn unreliable_packets_pass_reliable_ones_that_are_blocked() {
        let mut outbox = Outbox::default();
        let mut expected = Vec::new();
        for id in 0..6u8 {
            outbox.push_reliable(1);
            let field = [0x7a, 2, 8, id];
            (0..id % 3).for_each(|_| outbox.push_unreliable(&field, None));
            (0..id % 3).for_each(|_| wire::put_packet(&mut expected, 0, 0, None, &field));
        }
        let mut out = Vec::new();
        while outbox.pass_reliable() {
            outbox.build_unreliable(&mut out, 1_000);
        }
        assert_eq!((out, outbox.messages()), (expected, 0));
        for left in (1..=6).rev() {
            assert_eq!(outbox.front(), Some(NextPackets::Reliable(left)));
            outbox.pop_reliable(1);
        }
        assert!(outbox.is_empty());
    }

    #[test]
    fn encoded_packets_leave_as_many_as_fit_whatever_their_lengths() {
        let (mut outbox, mut encoded, mut lengths) = (Outbox::default(), Vec::new(), Vec::new());
        for size in [3_u8, 3, 3, 9, 9, 3, 40, 40, 40, 40] {
            let before = encoded.len();
            wire::put_packet(&mut encoded, 0, 0, None, &vec![size; usize::from(size)]);
            lengths.push(encoded.len() - before);
        }
        outbox.push_encoded(&encoded, lengths.iter().map(|&length| PacketRun::one(length)));
        let (mut out, mut left) = (Vec::new(), VecDeque::from(lengths));
        for room in [5, 6, 20, 1, 21, 90, 1_000] {
            let mut end = out.len();
            let limit = end + room;
            while left.front().is_some_and(|next| end + next <= limit) {
                end += left.pop_front().unwrap_or(0);
            }
            outbox.build_unreliable(&mut out, room);
            assert_eq!((out.len(), outbox.messages()), (end, left.len()), "{room} bytes of room");
        }
        assert_eq!((out, outbox.is_empty()), (encoded, true));
    }

    /// A publisher's messages on one topic, queued one by one, or in batches as they were received.
    struct Source {
        topic: &'static str,
        sequence: u64,
        /// The argument `before` of `push_delta`.
        queued: u64,
    }

    impl Source {
        fn whole(&mut self, payload: &[u8]) -> Vec<u8> {
            self.sequence += 1;
            let (topic, sequence) = (self.topic, self.sequence);
            let message =
                PublishOut { topic, payload, sequence, published_at_us: 1, ..PublishOut::default() };
            let (mut field, mut packet) = (Vec::new(), Vec::new());
            wire::put_publish_field(&mut field, &message);
            wire::put_packet(&mut packet, 0, 0, None, &field);
            packet
        }

        fn publish(&mut self, outbox: &mut Outbox, payload: &[u8], most: usize) {
            if outbox.push_delta(payload, self.queued, most) {
                self.sequence += 1;
            } else {
                let packet = self.whole(payload);
                outbox.push_encoded(&packet, once(PacketRun::one(packet.len())));
            }
            self.queued = outbox.passed().0;
        }

        fn forward(&mut self, outbox: &mut Outbox, payloads: &[Vec<u8>]) {
            let Some((first, others)) = payloads.split_first() else {
                return;
            };
            let mut packets = self.whole(first);
            let mut packet_runs = vec![PacketRun::one(packets.len())];
            for payload in others {
                let before = packets.len();
                wire::put_delta(&mut packets, payload);
                packet_runs.push(PacketRun { is_delta: true, ..PacketRun::one(packets.len() - before) });
                self.sequence += 1;
            }
            outbox.push_encoded(&packets, packet_runs.into_iter());
        }
    }

    #[test]
    fn whatever_leaves_when_each_datagram_says_all_that_its_messages_are() {
        let mut shorter = 0;
        for seed in 0..300 {
            let mut random = SmallRng::seed_from_u64(seed);
            let mut outbox = Outbox::default();
            let mut sources =
                ["a", "home/kitchen/oven"].map(|topic| Source { topic, sequence: 100, queued: 0 });
            let (mut expected, mut came, mut bytes) = (Vec::new(), Vec::new(), 0);
            for _ in 0..200 {
                let source = &mut sources[usize::from(random.random_bool(0.1))];
                let payloads: Vec<Vec<u8>> = (0..random.random_range(1..12))
                    .map(|_| {
                        vec![
                            random.random();
                            if random.random_bool(0.8) { 20 } else { random.random_range(0..90) }
                        ]
                    })
                    .collect();
                let first = source.sequence + 1;
                match random.random_range(0..3) {
                    0 => source.forward(&mut outbox, &payloads),
                    1 => payloads.iter().for_each(|payload| source.publish(&mut outbox, payload, 300)),
                    _ => payloads.iter().for_each(|payload| source.publish(&mut outbox, payload, usize::MAX)),
                }
                let numbered = (first..).zip(payloads);
                expected.extend(numbered.map(|(number, payload)| (source.topic.to_owned(), number, payload)));
                match random.random_range(0..8) {
                    0 => outbox.push_own(b"\x7a\x00"),
                    1 => outbox.push_reliable(1),
                    _ => {}
                }
                while random.random_bool(0.6) {
                    let room = random.random_range(0..400);
                    match outbox.front() {
                        None => break,
                        Some(NextPackets::Reliable(count)) => {
                            if !outbox.pass_reliable() {
                                outbox.pop_reliable(count);
                            }
                        }
                        Some(NextPackets::Unreliable(size)) => {
                            let mut datagram = Vec::new();
                            outbox.build_unreliable(&mut datagram, room.max(size));
                            assert!(!datagram.is_empty() && datagram.len() <= room.max(size), "seed {seed}");
                            bytes += datagram.len();
                            came.extend(messages(&datagram));
                        }
                    }
                }
            }
            while let Some(next) = outbox.front() {
                let mut datagram = Vec::new();
                match next {
                    NextPackets::Reliable(count) => outbox.pop_reliable(count),
                    NextPackets::Unreliable(size) => outbox.build_unreliable(&mut datagram, size),
                }
                came.extend(messages(&datagram));
            }
            assert_eq!(came, expected, "seed {seed}");
            assert_eq!((outbox.messages(), outbox.unreliable_bytes()), (0, 0));
            assert!(outbox.expanded.is_empty());
            shorter += usize::from(bytes < 45 * expected.len());
        }
        assert!(shorter > 200, "{shorter}");
    }

    fn messages(datagram: &[u8]) -> Vec<(String, u64, Vec<u8>)> {
        let view = DatagramView::parse(datagram).expect("it is a datagram");
        let packets = view.packets().iter();
        packets
            .filter_map(|packet| match packet.body {
                Body::Publish(publish) => {
                    Some((publish.topic.to_owned(), publish.sequence, publish.payload.to_vec()))
                }
                Body::Delta(_) => panic!("like nothing before it"),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn its_buffer_stays_in_proportion_to_what_waits() {
        let mut outbox = Outbox::default();
        for _ in 0..10 {
            outbox.push_unreliable(&[0; 100], None);
        }
        for _ in 0..10_000 {
            outbox.push_unreliable(&[0; 100], None);
            outbox.build_unreliable(&mut Vec::new(), 110);
        }
        assert!(outbox.bytes.len() <= 3 * outbox.unreliable_bytes(), "{}", outbox.bytes.len());
    }
}
