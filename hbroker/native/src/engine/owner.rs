//! The owner's part: it takes a message over, distributes it, and acknowledges it (docs/protocol.md §7).
//!
//! ```text
//!     node             PUBLISH, PUBACK, CREDIT of a link's peer
//!       |-- forward         may this message be taken over? who gets it?
//!       |     |-- routes          topic -> subscribers and groups: tables, and a cache of them
//!       |     |-- shared_groups   the member of a group that gets it; member_load of other workers
//!       |     `-- distribution    copies and tickets until the PUBACK; worker_copies for other workers
//!       |           `-----> crate::engine::sessions      the queue of each subscriber
//!       `-- holds, throttle, full_sessions               backpressure: which publishers are held back
//!     subscriptions    verbs of Python: sessions and subscriptions begin and end
//!     home_workers     session -> worker
//! ```

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
