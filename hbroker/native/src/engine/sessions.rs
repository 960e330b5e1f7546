//! Sessions at an owner: what waits for each subscriber, and what its link carries (§6.4, §7.8).

pub mod copy_blocks;
pub mod counters;
pub mod delivery_batches;
pub mod message;
pub mod progress;
pub mod queue;
pub mod send;
pub mod session;
pub mod table;
