//! The filters without wildcards. Each matches one topic, and is found by its whole text, whatever its depth.
//!
//! A filter takes one CPU cache line, with its text and its subscription, unless the text is long or there
//! are several subscriptions.

use std::ops::{Index, IndexMut};

use smallvec::SmallVec;

use super::Subscription;
use crate::keyed_hash::KeyedHash;
use crate::tables::arena::{Arena, SmallList};
use crate::tables::slot_index::SlotIndex;

/// Filters, by text and by number.
pub struct PlainFilters {
    hasher: KeyedHash,
    index: SlotIndex,
    filters: Arena<PlainFilter>,
}

/// A filter and its subscriptions.
#[derive(Default)]
#[repr(align(64))]
pub struct PlainFilter {
    text: SmallVec<[u8; 32]>,
    pub subscriptions: SmallList<Subscription>,
}

impl PlainFilters {
    /// No filters. `seed`: random and secret.
    pub fn new(seed: u64) -> Self {
        Self { hasher: KeyedHash::new(seed), index: SlotIndex::default(), filters: Arena::default() }
    }

    /// The number of the filter that matches a topic.
    pub fn find(&self, topic: &str) -> Option<u32> {
        // Without filters the topic need not be hashed.
        if self.index.is_empty() { None } else { self.find_hashed(self.hash(topic.as_bytes()), topic) }
    }

    /// The number of a filter, which is added if it is new.
    pub fn make(&mut self, text: &str) -> u32 {
        let hash = self.hash(text.as_bytes());
        if let Some(filter) = self.find_hashed(hash, text) {
            return filter;
        }
        let text = SmallVec::from_slice(text.as_bytes());
        let filter = self.filters.insert(PlainFilter { text, subscriptions: SmallList::None });
        self.index.insert(hash, filter);
        filter
    }

    /// Removes a filter.
    pub fn remove(&mut self, filter: u32) {
        let text = self.filters.take(filter).text;
        self.index.remove(self.hash(&text), filter);
    }

    /// A filter's text.
    pub fn text(&self, filter: u32) -> &str {
        str::from_utf8(&self[filter].text).expect("it was a string when it came")
    }

    /// One more than the highest number that was assigned.
    pub fn end(&self) -> usize {
        self.filters.end()
    }

    /// How many filters there are.
    pub fn len(&self) -> usize {
        self.filters.len()
    }

    fn find_hashed(&self, hash: u64, text: &str) -> Option<u32> {
        self.index.find(hash, |filter| self[filter].text[..] == *text.as_bytes())
    }

    fn hash(&self, text: &[u8]) -> u64 {
        self.hasher.hash_bytes(text)
    }
}

impl Index<u32> for PlainFilters {
    type Output = PlainFilter;

    fn index(&self, filter: u32) -> &PlainFilter {
        &self.filters[filter]
    }
}

impl IndexMut<u32> for PlainFilters {
    fn index_mut(&mut self, filter: u32) -> &mut PlainFilter {
        &mut self.filters[filter]
    }
}
