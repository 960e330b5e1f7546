//! The owner's part: a message is taken over, distributed, and acknowledged (docs/protocol.md §7).

pub mod distribution;
pub mod forward;
pub mod full_sessions;
pub mod holds;
pub mod home_workers;
pub mod member_load;
pub mod node;
pub mod routes;
pub mod shared_groups;
pub mod subscriptions;
pub mod throttle;
pub mod worker_copies;
