//! What a message of the load holds: when it was due, its publisher's number and its own, then a pattern.

use crate::bench::Nanos;

/// The least that a payload has.
pub const HEADER: usize = 16;
/// Numbers of messages have so many bits; the publisher's number has the rest.
const NUMBER_BITS: u32 = 40;

/// A message's name and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub due: Nanos,
    pub stream: usize,
    pub number: u64,
}

/// The payload of one size, to be stamped.
pub struct Template(Vec<u8>);

impl Template {
    /// Payloads have `bytes`, or as many as a stamp has.
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

    /// The stamp of a payload that came; `None`: it is not one of these.
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
