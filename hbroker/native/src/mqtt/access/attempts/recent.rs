//! A bounded table that forgets its oldest entries.

use std::mem;

use rustc_hash::FxHashMap;

/// Holds at least the last `most` entries that were written and at most twice as many: when the younger of
/// two generations is full, the older is dropped. Keys are hashes that no client can choose.
pub struct Recent<V> {
    most: usize,
    young: FxHashMap<u64, V>,
    old: FxHashMap<u64, V>,
}

impl<V> Recent<V> {
    pub fn new(most: usize) -> Self {
        Self { most, young: FxHashMap::default(), old: FxHashMap::default() }
    }

    pub fn get(&self, key: u64) -> Option<&V> {
        self.young.get(&key).or_else(|| self.old.get(&key))
    }

    pub fn put(&mut self, key: u64, value: V) {
        self.old.remove(&key);
        self.young.insert(key, value);
        if self.young.len() >= self.most {
            self.old = mem::take(&mut self.young);
        }
    }

    pub fn remove(&mut self, key: u64) -> Option<V> {
        self.young.remove(&key).or_else(|| self.old.remove(&key))
    }

    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_entries_are_there_and_twice_as_many_at_most() {
        let mut table = Recent::new(8);
        for key in 0..100 {
            table.put(key, key);
            assert!((key.saturating_sub(7)..=key).all(|last| table.get(last) == Some(&last)));
            assert!(table.len() <= 16);
        }
        (0..50).for_each(|key| [99, 100 + key].into_iter().for_each(|key| table.put(key, 0)));
        assert_eq!([table.remove(99), table.remove(99)], [Some(0), None], "what is written again stays");
    }
}
