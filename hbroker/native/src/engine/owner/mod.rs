//! The owner's part: it takes a message over, distributes it, and acknowledges it (docs/protocol.md §7).
//!
//! ```text
//!     forward          PUBLISH, PUBACK, CREDIT of a link's peer: may this message be taken over? who gets it?
//!       |-- routes          topic -> subscribers and groups: tables, and a cache of them
//!       |-- shared_groups   the member of a group that gets it, of this worker or another
//!       |     `-- member_fitness  the fitness of the members of other workers
//!       |-- distribution    copies and tickets until the PUBACK
//!       |     `-----> crate::engine::sessions      the queue of each subscriber
//!       |-- workspace_rates  how many messages of a workspace in a second
//!       `-- throttle        backpressure: which publishers are throttled
//!             `-- throttled_links by which sessions; which sessions are full
//!     forward_batch    the same for plain messages of `QoS` 0 that arrived together; copies from other workers
//!     subscriptions    verbs of Python: sessions and subscriptions begin and end
//!     home_workers     session -> worker
//! ```

pub mod distribution;
pub mod forward;
pub mod forward_batch;
pub mod home_workers;
pub mod member_fitness;
pub mod routes;
pub mod shared_groups;
pub mod subscriptions;
pub mod throttle;
pub mod throttled_links;
pub mod workspace_rates;
