//! Sessions at an owner: what waits for each subscriber, and what its link carries (§6.4, §7.8).

pub mod accounts;
pub mod copy_blocks;
pub mod delivery_runs;
pub mod message;
pub mod progress;
pub mod queue;
pub mod send;
pub mod session;
pub mod table;
