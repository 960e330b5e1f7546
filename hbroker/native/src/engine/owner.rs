//! The owner's part: it takes a message over, distributes it, and acknowledges it (docs/protocol.md §7).
//!
//! ```text
//!     forward          PUBLISH, PUBACK, CREDIT of a link's peer: may this message be taken over? who gets it?
//!       |-- routes          topic -> subscribers and groups: tables, and a cache of them
//!       |-- shared_groups   the member of a group that gets it, of this worker or another
//!       |-- distribution    copies and tickets until the PUBACK
//!       |     `-----> crate::engine::sessions      the queue of each subscriber
//!       `-- throttle        backpressure: which publishers are held back
//!     subscriptions    verbs of Python: sessions and subscriptions begin and end
//!     home_workers     session -> worker
//! ```

pub mod distribution;
pub mod forward;
pub mod home_workers;
pub mod routes;
pub mod shared_groups;
pub mod subscriptions;
pub mod throttle;
