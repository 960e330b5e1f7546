//! How much of each segment of the log is needed.

use std::collections::BTreeMap;

/// How much of a segment is needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// How many entries of queues its messages had, and how many are not settled. A retained message counts as
    /// one entry until it is not retained any more.
    pub all: u64,
    pub live: u64,
}

/// The segment that has a position. One of its records must have had an entry.
pub fn usage_of(usage: &BTreeMap<u64, Usage>, position: u64) -> u64 {
    usage.range(..=position).next_back().map_or(position, |(base, _)| *base)
}
