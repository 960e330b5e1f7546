//! Maps hashes to slots of an arena, by buckets of one CPU cache line each.
//!
//! A look-up among millions of entries waits mainly for memory: here for one line, and then for the slot.
//! (hashbrown's tables read two lines before that.) An entry keeps half of its hash, so that a look-up hardly
//! reads a wrong slot, and growing reads none. If its bucket is full, an entry lies in the next bucket that
//! is not full. If strangers choose the hashed values, the hash must be keyed.

/// Entries of a bucket.
const ROOM: usize = 8;
/// The average number of entries in a bucket at which the index grows.
const FULL: usize = 6;

/// Slots, by the hash of their contents.
#[derive(Default)]
pub struct SlotIndex {
    buckets: Vec<Bucket>,
    len: usize,
}

/// The used entries come first.
#[derive(Clone, Default)]
#[repr(align(64))]
struct Bucket {
    /// The kept half of each entry's hash; 0: no entry.
    fingerprints: [u32; ROOM],
    slots: [u32; ROOM],
}

impl SlotIndex {
    /// The slot with this hash for which `is_it` is true.
    pub fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let fingerprint = fingerprint_of(hash);
        let mut home = self.home(fingerprint);
        loop {
            let bucket = self.buckets.get(home)?;
            let mut candidates = bucket.matches_of(fingerprint);
            while candidates != 0 {
                let slot = bucket.slots[candidates.trailing_zeros() as usize / 8];
                if is_it(slot) {
                    return Some(slot);
                }
                candidates &= candidates - 1;
            }
            if !bucket.is_full() {
                return None;
            }
            home = self.next(home);
        }
    }

    /// Adds a slot that is not in the index.
    pub fn insert(&mut self, hash: u64, slot: u32) {
        if self.len == FULL * self.buckets.len() {
            self.grow();
        }
        self.len += 1;
        self.put(fingerprint_of(hash), slot);
    }

    /// Removes a slot that is in the index with this hash.
    pub fn remove(&mut self, hash: u64, slot: u32) {
        let mut home = self.home(fingerprint_of(hash));
        let mut was_full = loop {
            let bucket = &mut self.buckets[home];
            let was_full = bucket.is_full();
            if bucket.remove(slot) {
                break was_full;
            }
            assert!(was_full, "the removed slot is in the index");
            home = self.next(home);
        };
        self.len -= 1;
        // Entries that had no room in this bucket lie in the following ones.
        while was_full {
            home = self.next(home);
            let moved = std::mem::take(&mut self.buckets[home]);
            was_full = moved.is_full();
            moved.entries().for_each(|(fingerprint, slot)| self.put(fingerprint, slot));
        }
    }

    /// Whether there is no slot.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn put(&mut self, fingerprint: u32, slot: u32) {
        let mut home = self.home(fingerprint);
        while self.buckets[home].is_full() {
            home = self.next(home);
        }
        self.buckets[home].push(fingerprint, slot);
    }

    fn grow(&mut self) {
        let buckets = vec![Bucket::default(); (2 * self.buckets.len()).max(1)];
        for bucket in std::mem::replace(&mut self.buckets, buckets) {
            bucket.entries().for_each(|(fingerprint, slot)| self.put(fingerprint, slot));
        }
    }

    /// The first bucket for a fingerprint. Buckets are in the order of the fingerprints, so growing goes
    /// through memory from one end to the other.
    fn home(&self, fingerprint: u32) -> usize {
        ((u64::from(fingerprint) * self.buckets.len() as u64) >> 32) as usize
    }

    fn next(&self, home: usize) -> usize {
        if home + 1 == self.buckets.len() { 0 } else { home + 1 }
    }
}

impl Bucket {
    /// A byte for each entry: 1 if it has this fingerprint. All are compared at once, without a branch.
    fn matches_of(&self, fingerprint: u32) -> u64 {
        u64::from_le_bytes(self.fingerprints.map(|each| u8::from(each == fingerprint)))
    }

    fn is_full(&self) -> bool {
        self.fingerprints[ROOM - 1] != 0
    }

    fn entries(&self) -> impl Iterator<Item = (u32, u32)> {
        let used = self.fingerprints.iter().take_while(|&&fingerprint| fingerprint != 0);
        used.copied().zip(self.slots)
    }

    fn push(&mut self, fingerprint: u32, slot: u32) {
        let end = self.entries().count();
        (self.fingerprints[end], self.slots[end]) = (fingerprint, slot);
    }

    fn remove(&mut self, slot: u32) -> bool {
        let end = self.entries().count();
        let Some(at) = self.slots[..end].iter().position(|&each| each == slot) else {
            return false;
        };
        self.fingerprints.swap(at, end - 1);
        self.slots.swap(at, end - 1);
        self.fingerprints[end - 1] = 0;
        true
    }
}

/// The upper half of a hash, made non-zero.
fn fingerprint_of(hash: u64) -> u32 {
    (hash >> 32) as u32 | 1
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// Inserts, removes and finds slots whose hashes `draw` makes; the expectation is a map.
    fn agrees_with_a_map(draw: impl Fn(&mut SmallRng) -> u64) {
        let mut random = SmallRng::seed_from_u64(1);
        let (mut index, mut model) = (SlotIndex::default(), BTreeMap::<u32, u64>::new());
        for step in 0..40_000 {
            let (slot, hash) = (random.random_range(0..2_000), draw(&mut random));
            let grows = step % 20_000 < 10_000;
            match model.get(&slot) {
                None if grows => {
                    index.insert(hash, slot);
                    model.insert(slot, hash);
                }
                Some(&hash) if !grows => {
                    index.remove(hash, slot);
                    model.remove(&slot);
                }
                found => {
                    let hash = found.copied().unwrap_or(hash);
                    assert_eq!(index.find(hash, |each| each == slot), found.map(|_| slot));
                }
            }
            assert_eq!(index.len, model.len());
        }
        for (&slot, &hash) in &model {
            assert_eq!(index.find(hash, |each| each == slot), Some(slot));
        }
        assert_eq!(index.buckets.iter().map(|bucket| bucket.entries().count()).sum::<usize>(), model.len());
    }

    #[test]
    fn finds_what_is_there() {
        agrees_with_a_map(|random| random.random());
    }

    #[test]
    fn finds_what_lies_behind_full_buckets() {
        // The last bucket, and those after it, from the first on.
        agrees_with_a_map(|random| u64::MAX << random.random_range(30..45));
    }

    #[test]
    fn is_empty_before_and_after() {
        let mut index = SlotIndex::default();
        assert!(index.is_empty() && index.find(1, |_| true).is_none());
        index.insert(1, 5);
        assert!(!index.is_empty() && index.find(2, |_| true) == Some(5), "one fingerprint for both");
        index.remove(1, 5);
        assert!(index.is_empty() && index.find(1, |_| true).is_none());
    }
}
