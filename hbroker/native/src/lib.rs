//! The native core of hbroker: every message. (Every decision is Python's, in `hbroker.protocol`.)
//!
//! From the border inwards: `python` (alone in naming pyo3) wraps `core`, whose verbs act on one `engine` for each worker. An
//! engine is sans-IO: datagrams and time come in; datagrams, events and a deadline come out. It reads and writes
//! datagrams (`wire`), has one `link` for each peer, and looks topics up in `tables`. `endpoint` gives engines threads and sockets.
//! A `hive` is many clients' engines behind one socket.

#[cfg_attr(not(feature = "python"), allow(dead_code, reason = "the border is the only caller of its verbs"))]
mod bench;
mod broken;
pub mod client_pool;
mod config;
pub mod core;
mod endpoint;
mod engine;
mod host_counts;
mod keyed_hash;
mod link;
mod link_id;
mod load;
#[cfg_attr(not(feature = "python"), allow(dead_code, reason = "the border is the only caller of its verbs"))]
mod mqtt;
mod prefix;
mod publisher_id;
#[cfg(feature = "python")]
mod python;
mod schema;
mod shares;
mod shrink;
mod sink;
mod tables;
mod token;
pub mod topic;
mod wire;

/// Microseconds on a monotonic clock.
pub type Micros = u64;
