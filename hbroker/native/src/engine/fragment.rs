//! Puts messages together that came in parts (§7.5).
//!
//! Nothing that a part *says* of its message reserves memory: `count` and `total` are checked only against
//! what has come. Each part is charged its bytes and what keeping it costs; beyond its share a publisher
//! loses its own oldest message, and beyond the whole the oldest goes, whoever's it is.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use crate::Micros;
use crate::keyed::Keyed;

/// What keeping one part costs beyond its bytes, about.
const PART_OVERHEAD: usize = 64;

/// Limits of a reassembler.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes held for one publisher.
    pub publisher_bytes: usize,
    /// Bytes held in all.
    pub total_bytes: usize,
    /// Messages begun and not yet whole.
    pub messages: usize,
    /// A message with no new part for this long is given up.
    pub patience: Micros,
}

/// One part of a message, as it came. Each part has its own sequence number, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The publisher's id.
    pub publisher: u64,
    /// The sequence number of this part.
    pub sequence: u64,
    /// Which part, from 0.
    pub index: u32,
    /// How many parts the message has.
    pub count: u32,
    /// Bytes of the whole payload.
    pub total: u64,
    /// This part's bytes.
    pub bytes: &'a [u8],
}

/// Messages of which some parts have come.
pub struct Reassembler {
    limits: Limits,
    partials: HashMap<MessageId, Partial, Keyed>,
    publisher_bytes: HashMap<u64, usize, Keyed>,
    bytes: usize,
    abandoned: u64,
}

/// (publisher, the sequence number of part 0).
type MessageId = (u64, u64);

struct Partial {
    count: u32,
    total: u64,
    parts: BTreeMap<u32, Box<[u8]>>,
    payload_bytes: u64,
    touched: Micros,
}

impl Partial {
    fn wants(&self, part: &Part<'_>) -> bool {
        (self.count, self.total) == (part.count, part.total)
            && !self.parts.contains_key(&part.index)
    }

    fn cost(&self) -> usize {
        // Exact: the payload is in memory, so its size fits.
        self.payload_bytes as usize + self.parts.len() * PART_OVERHEAD
    }
}

impl Reassembler {
    /// Holds nothing. `seed`: random and secret.
    pub fn new(limits: Limits, seed: u64) -> Self {
        let keyed = Keyed::new(seed);
        Self {
            limits,
            partials: HashMap::with_hasher(keyed),
            publisher_bytes: HashMap::with_hasher(keyed),
            bytes: 0,
            abandoned: 0,
        }
    }

    /// Takes a part. Returns the whole payload with the last of its parts, whatever their order.
    pub fn add(&mut self, now: Micros, part: Part<'_>) -> Option<Vec<u8>> {
        let id = (
            part.publisher,
            part.sequence.wrapping_sub(u64::from(part.index)),
        );
        let is_wanted = part.index < part.count
            && self
                .partials
                .get(&id)
                .is_none_or(|partial| partial.wants(&part));
        if !is_wanted || !self.make_room(id, &part, now) {
            return None;
        }
        let (count, total) = (part.count, part.total);
        let new = || Partial {
            count,
            total,
            parts: BTreeMap::new(),
            payload_bytes: 0,
            touched: now,
        };
        let partial = self.partials.entry(id).or_insert_with(new);
        partial.parts.insert(part.index, part.bytes.into());
        partial.payload_bytes += part.bytes.len() as u64;
        partial.touched = now;
        let (parts, payload_bytes) = (partial.parts.len(), partial.payload_bytes);
        self.bytes += part.bytes.len() + PART_OVERHEAD;
        *self.publisher_bytes.entry(id.0).or_default() += part.bytes.len() + PART_OVERHEAD;
        if payload_bytes > total {
            self.abandon(id);
            return None;
        }
        (parts == count as usize).then(|| self.finish(id))?
    }

    /// Gives up the messages of which no part has come for too long.
    pub fn expire(&mut self, now: Micros) {
        let limit = now.saturating_sub(self.limits.patience);
        let stale: Vec<MessageId> = self
            .partials
            .iter()
            .filter(|(_, partial)| partial.touched < limit)
            .map(|(id, _)| *id)
            .collect();
        for id in stale {
            self.abandon(id);
        }
    }

    /// How many messages were given up so far: for want of parts or of room, or because their parts
    /// disagreed.
    pub fn abandoned(&self) -> u64 {
        self.abandoned
    }

    /// Bytes held, with the cost of keeping them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Messages begun and not yet whole.
    pub fn len(&self) -> usize {
        self.partials.len()
    }

    fn finish(&mut self, id: MessageId) -> Option<Vec<u8>> {
        let partial = self.take(id)?;
        if partial.payload_bytes != partial.total {
            self.abandoned += 1;
            return None;
        }
        let mut payload = Vec::with_capacity(partial.payload_bytes as usize);
        for part in partial.parts.values() {
            payload.extend_from_slice(part);
        }
        Some(payload)
    }

    /// Makes room for a part, at the cost of older messages. False: the message can never fit.
    fn make_room(&mut self, id: MessageId, part: &Part<'_>, now: Micros) -> bool {
        let need = part.bytes.len() + PART_OVERHEAD;
        let held = self.partials.get(&id).map_or(0, Partial::cost);
        let most = self.limits.publisher_bytes.min(self.limits.total_bytes);
        if held + need > most || part.total > most as u64 || self.limits.messages == 0 {
            self.abandon(id);
            return false;
        }
        while self
            .publisher_bytes
            .get(&id.0)
            .is_some_and(|bytes| bytes + need > self.limits.publisher_bytes)
        {
            self.abandon_oldest(|other| other.0 == id.0 && *other != id);
        }
        if self.partials.len() >= self.limits.messages && !self.partials.contains_key(&id) {
            self.expire(now);
        }
        while self.bytes + need > self.limits.total_bytes
            || self.partials.len() >= self.limits.messages && !self.partials.contains_key(&id)
        {
            self.abandon_oldest(|other| *other != id);
        }
        true
    }

    fn abandon_oldest(&mut self, may_go: impl Fn(&MessageId) -> bool) {
        let candidates = self.partials.iter().filter(|(id, _)| may_go(id));
        if let Some(id) = candidates
            .min_by_key(|(_, partial)| partial.touched)
            .map(|(id, _)| *id)
        {
            self.abandon(id);
        }
    }

    fn abandon(&mut self, id: MessageId) {
        self.abandoned += u64::from(self.take(id).is_some());
    }

    fn take(&mut self, id: MessageId) -> Option<Partial> {
        let partial = self.partials.remove(&id)?;
        self.bytes -= partial.cost();
        if let Some(bytes) = self.publisher_bytes.get_mut(&id.0) {
            *bytes -= partial.cost();
            if *bytes == 0 {
                self.publisher_bytes.remove(&id.0);
            }
        }
        Some(partial)
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::seq::SliceRandom;
    use rand::{Rng, SeedableRng};

    use super::*;

    const LIMITS: Limits = Limits {
        publisher_bytes: 20_000,
        total_bytes: 50_000,
        messages: 20,
        patience: 1_000,
    };

    fn part(
        publisher: u64,
        first: u64,
        index: u32,
        count: u32,
        total: usize,
        bytes: &[u8],
    ) -> Part<'_> {
        let sequence = first.wrapping_add(u64::from(index));
        Part {
            publisher,
            sequence,
            index,
            count,
            total: total as u64,
            bytes,
        }
    }

    #[test]
    fn puts_together_what_comes_in_any_order_and_twice() {
        let mut random = SmallRng::seed_from_u64(5);
        let mut reassembler = Reassembler::new(LIMITS, 1);
        for round in 0..500 {
            let payload: Vec<u8> = (0..random.random_range(1..5_000))
                .map(|_| random.random())
                .collect();
            let chunks: Vec<&[u8]> = payload
                .chunks(random.random_range(1..2_000).max(payload.len() / 50))
                .collect();
            let mut order: Vec<usize> = (0..chunks.len()).collect();
            order.shuffle(&mut random);
            let (last, others) = order.split_last().expect("there is a part");
            let send = |reassembler: &mut Reassembler, index: usize| {
                let first = (u64::MAX - 10).wrapping_add(round * 1_000);
                reassembler.add(
                    round,
                    part(
                        7,
                        first,
                        index as u32,
                        chunks.len() as u32,
                        payload.len(),
                        chunks[index],
                    ),
                )
            };
            for index in others.iter().chain(others) {
                assert_eq!(send(&mut reassembler, *index), None);
            }
            assert_eq!(send(&mut reassembler, *last).as_ref(), Some(&payload));
            assert_eq!(
                (
                    reassembler.len(),
                    reassembler.bytes(),
                    reassembler.publisher_bytes.len()
                ),
                (0, 0, 0)
            );
        }
    }

    #[test]
    fn stays_within_its_limits_whatever_a_liar_sends() {
        let mut random = SmallRng::seed_from_u64(6);
        let mut reassembler = Reassembler::new(LIMITS, 1);
        let bytes = [0; 30_000];
        let mut whole = 0;
        for now in 0..50_000 {
            let lie = Part {
                publisher: random.random_range(0..5),
                sequence: random.random_range(0..60),
                index: random.random_range(0..4),
                count: *[0, 1, 2, 3, u32::MAX]
                    .get(random.random_range(0..5))
                    .expect("in range"),
                total: *[0, 10, 20, u64::MAX]
                    .get(random.random_range(0..4))
                    .expect("in range"),
                bytes: &bytes[..*[0, 10, 10, 3_000, 30_000]
                    .get(random.random_range(0..5))
                    .expect("in range")],
            };
            whole += usize::from(reassembler.add(now, lie).is_some());
            assert!(
                reassembler.bytes() <= LIMITS.total_bytes && reassembler.len() <= LIMITS.messages
            );
            assert!(
                reassembler
                    .publisher_bytes
                    .values()
                    .all(|bytes| *bytes <= LIMITS.publisher_bytes)
            );
            assert_eq!(
                reassembler.bytes(),
                reassembler.publisher_bytes.values().sum::<usize>()
            );
            assert_eq!(
                reassembler.bytes(),
                reassembler
                    .partials
                    .values()
                    .map(Partial::cost)
                    .sum::<usize>()
            );
        }
        assert!(whole > 100 && reassembler.abandoned() > 100);
        reassembler.expire(1_000_000);
        assert_eq!((reassembler.len(), reassembler.bytes()), (0, 0));
    }

    #[test]
    fn gives_up_in_order_of_age() {
        let mut reassembler = Reassembler::new(
            Limits {
                messages: 2,
                ..LIMITS
            },
            1,
        );
        for (now, first) in [(0, 100), (1, 200), (2, 300)] {
            assert_eq!(reassembler.add(now, part(1, first, 0, 2, 2, b"a")), None);
        }
        assert_eq!(reassembler.abandoned(), 1);
        assert_eq!(
            reassembler.add(3, part(1, 200, 1, 2, 2, b"b")),
            Some(b"ab".to_vec())
        );
        assert_eq!(
            reassembler.add(3, part(1, 300, 1, 2, 2, b"b")),
            Some(b"ab".to_vec())
        );
        assert_eq!(reassembler.add(3, part(1, 100, 1, 2, 2, b"b")), None);
    }
}
