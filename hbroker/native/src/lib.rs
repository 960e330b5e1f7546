//! The native core of hbroker: every message. (Every decision is Python's, in `hbroker.protocol`.)
//!
//! From the border inwards: `python` (alone in naming pyo3) wraps `core`, whose verbs act on one `engine` for each
//! worker. An engine is sans-IO: datagrams and time come in; datagrams, events and a deadline come out. It forwards
//! messages (`forward`), publishes (`publisher`), and holds one `link` for each peer. `endpoint` and `worker` give engines threads, and `socket`
//! (alone in unsafe) gives them UDP.

mod acks;
mod arena;
mod arrivals;
mod config;
mod congestion;
mod core;
mod counters;
mod delivery;
mod directory;
mod distribution;
mod egress;
mod endpoint;
mod engine;
mod event;
mod few;
mod fleet;
mod forward;
mod fragment;
mod inbox;
mod jurisdiction;
mod keyed;
mod ledger;
mod level_names;
mod link;
mod link_id;
mod links;
mod match_set;
mod outbox;
mod outlet;
mod parts;
mod pubacks;
mod publisher;
mod ranges;
mod rate;
mod reason;
mod recovery;
mod retained;
mod rtt;
mod schema;
mod sink;
mod socket;
mod station;
mod token;
mod topic;
mod traffic;
mod trie;
mod waker;
mod window;
mod wire;
mod worker;
mod zones;
#[cfg(feature = "python")]
mod python;

/// Microseconds on a monotonic clock.
pub type Micros = u64;
