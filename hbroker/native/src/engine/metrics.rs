//! What an engine counts.

pub mod counters;
pub mod load;
