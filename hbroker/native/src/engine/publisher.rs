//! A publisher: from `publish` to the owner's PUBACK (§5.3, §7).

pub mod fast_path;
pub mod outgoing;
pub mod pauses;
pub mod refusals;
pub mod send_queue;
pub mod sending;
