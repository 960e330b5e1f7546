//! One message of which some parts have come (§7.5).
//!
//! Parts of QoS 1 and 2 come in order, so each is appended to those before it. What comes ahead of its turn, as parts of QoS 0
//! may, is kept aside until then. Nothing that a part *says* of its message takes memory, only what has come.

use std::collections::BTreeMap;

use crate::broken::Defect;

/// What keeping one part aside costs beyond its bytes, about.
const ASIDE_OVERHEAD: usize = 64;

#[derive(Debug)]
pub struct PartialMessage {
    count: u32,
    total: u64,
    /// The parts before `next`.
    payload: Vec<u8>,
    next: u32,
    /// Parts that came ahead of their turn.
    aside: BTreeMap<u32, Box<[u8]>>,
    aside_bytes: usize,
}

impl PartialMessage {
    /// Nothing yet of a message of so many parts and bytes.
    pub fn new(count: u32, total: u64) -> Self {
        Self { count, total, payload: Vec::new(), next: 0, aside: BTreeMap::new(), aside_bytes: 0 }
    }

    /// Whether a part that says so belongs to this message.
    pub fn agrees(&self, count: u32, total: u64) -> bool {
        (self.count, self.total) == (count, total)
    }

    /// Whether this part has come.
    pub fn has(&self, index: u32) -> bool {
        index < self.next || self.aside.contains_key(&index)
    }

    /// Takes a part that has not come before.
    pub fn add(&mut self, index: u32, bytes: &[u8]) {
        if index != self.next {
            self.aside_bytes += bytes.len() + ASIDE_OVERHEAD;
            self.aside.insert(index, bytes.into());
            return;
        }
        self.append(bytes);
        while let Some(bytes) = self.aside.remove(&self.next) {
            self.aside_bytes -= bytes.len() + ASIDE_OVERHEAD;
            self.append(&bytes);
        }
    }

    /// Bytes held, with the cost of keeping them.
    pub fn cost(&self) -> usize {
        self.payload.len() + self.aside_bytes
    }

    /// What another part of so many bytes costs at most.
    pub fn cost_of(bytes: usize) -> usize {
        bytes + ASIDE_OVERHEAD
    }

    /// Whether more came than the message was to have.
    pub fn is_overfull(&self) -> bool {
        self.payload.len() as u64 > self.total
    }

    /// Whether all parts have come.
    pub fn is_whole(&self) -> bool {
        self.next == self.count || (Defect::EndsWithLastPart.is_present() && self.has(self.count - 1))
    }

    /// Whether a part is missing before one that came. Of parts that come in order it will never come.
    pub fn has_gap(&self) -> bool {
        !self.aside.is_empty()
    }

    /// Bytes that the whole message is to have.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// What the payload has taken of memory.
    #[cfg(test)]
    pub fn capacity(&self) -> usize {
        self.payload.capacity()
    }

    /// The payload, if it has the size that was said.
    pub fn into_payload(self) -> Option<Vec<u8>> {
        let has_all = self.payload.len() as u64 == self.total || Defect::EndsWithLastPart.is_present();
        has_all.then_some(self.payload)
    }

    fn append(&mut self, bytes: &[u8]) {
        let needed = self.payload.len() + bytes.len();
        if needed > self.payload.capacity() {
            // Twice what there is, and not beyond the end: what was claimed and has not come is not reserved.
            let end = usize::try_from(self.total).unwrap_or(usize::MAX);
            let capacity = (2 * self.payload.capacity()).min(end).max(needed);
            self.payload.reserve_exact(capacity - self.payload.len());
        }
        self.payload.extend_from_slice(bytes);
        self.next += 1;
    }
}
