//! The payload of a load's message: when it was due, the numbers of publisher and message, then a pattern.

use crate::bench::Nanos;

/// The size of the smallest payload.
pub const HEADER: usize = 16;
/// The bits of the message number; the publisher's number has the rest.
const NUMBER_BITS: u32 = 40;

/// The identity of a message, and when it was due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub due: Nanos,
    pub stream: usize,
    pub number: u64,
}

/// A payload of the load's size, to be stamped.
pub struct Template(Vec<u8>);

impl Template {
    /// Payloads have `bytes` bytes, and at least those of a stamp.
    pub fn new(bytes: usize) -> Self {
        let pattern = (0..bytes.max(HEADER)).map(|position| (position % 251) as u8);
        Self(pattern.collect())
    }

    pub fn stamped(&mut self, stamp: Stamp) -> &[u8] {
        let name = (stamp.stream as u64) << NUMBER_BITS | stamp.number;
        self.0[..8].copy_from_slice(&stamp.due.to_le_bytes());
        self.0[8..HEADER].copy_from_slice(&name.to_le_bytes());
        &self.0
    }

    /// The stamp of a received payload; `None`: it is not of this load, or was altered.
    pub fn read(&self, payload: &[u8]) -> Option<Stamp> {
        let (due, rest) = payload.split_first_chunk()?;
        let (name, pattern) = rest.split_first_chunk()?;
        if pattern != &self.0[HEADER..] {
            return None;
        }
        let name = u64::from_le_bytes(*name);
        Some(Stamp {
            due: Nanos::from_le_bytes(*due),
            stream: (name >> NUMBER_BITS) as usize,
            number: name & ((1 << NUMBER_BITS) - 1),
        })
    }
}
