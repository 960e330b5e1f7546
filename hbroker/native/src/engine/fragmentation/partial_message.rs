//! One message of which some fragments have been received (§7.5).
//!
//! Fragments of `QoS` 1 and 2 arrive in order, so each is appended to the previous ones. A fragment that
//! arrives out of order, as at `QoS` 0 it may, is kept aside. Only the received bytes take memory, not the
//! size that a fragment claims.

use std::collections::BTreeMap;

use crate::broken::Defect;

/// The approximate cost of keeping one fragment aside, beyond its bytes.
const ASIDE_OVERHEAD: usize = 64;

#[derive(Debug)]
pub struct PartialMessage {
    count: u32,
    total: u64,
    /// The payloads of the fragments before `next`.
    payload: Vec<u8>,
    next: u32,
    /// Fragments that arrived out of order.
    aside: BTreeMap<u32, Box<[u8]>>,
    aside_bytes: usize,
}

impl PartialMessage {
    /// A message of `count` fragments and `total` bytes, of which nothing has been received.
    pub fn new(count: u32, total: u64) -> Self {
        Self { count, total, payload: Vec::new(), next: 0, aside: BTreeMap::new(), aside_bytes: 0 }
    }

    /// Whether a fragment with these values belongs to this message.
    pub fn agrees(&self, count: u32, total: u64) -> bool {
        (self.count, self.total) == (count, total)
    }

    /// Whether this fragment has been received.
    pub fn has(&self, index: u32) -> bool {
        index < self.next || self.aside.contains_key(&index)
    }

    /// Takes a fragment that has not been received before.
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

    /// The bytes that are kept, with the cost of keeping them.
    pub fn cost(&self) -> usize {
        self.payload.len() + self.aside_bytes
    }

    /// The most that another fragment of this size costs.
    pub fn cost_of(bytes: usize) -> usize {
        bytes + ASIDE_OVERHEAD
    }

    /// Whether more bytes were received than the message should have.
    pub fn is_overfull(&self) -> bool {
        self.payload.len() as u64 > self.total
    }

    /// Whether all fragments have been received.
    pub fn is_whole(&self) -> bool {
        self.next == self.count || (Defect::EndsWithLastPart.is_present() && self.has(self.count - 1))
    }

    /// Whether a fragment is missing before one that was received. If fragments arrive in order, it will
    /// never arrive.
    pub fn has_gap(&self) -> bool {
        !self.aside.is_empty()
    }

    /// The size of the whole message.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The memory that the payload takes.
    #[cfg(test)]
    pub fn capacity(&self) -> usize {
        self.payload.capacity()
    }

    /// The payload, if it has the announced size.
    pub fn into_payload(self) -> Option<Vec<u8>> {
        let has_all = self.payload.len() as u64 == self.total || Defect::EndsWithLastPart.is_present();
        has_all.then_some(self.payload)
    }

    fn append(&mut self, bytes: &[u8]) {
        let needed = self.payload.len() + bytes.len();
        if needed > self.payload.capacity() {
            // Doubles the capacity, but not beyond the end: the announced size is not reserved before it is
            // received.
            let end = usize::try_from(self.total).unwrap_or(usize::MAX);
            let capacity = (2 * self.payload.capacity()).min(end).max(needed);
            self.payload.reserve_exact(capacity - self.payload.len());
        }
        self.payload.extend_from_slice(bytes);
        self.next += 1;
    }
}
