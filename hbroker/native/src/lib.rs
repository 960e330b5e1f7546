//! The native core of hbroker: every message. (Every decision is Python's, in `hbroker.protocol`.)
//!
//! From the border inwards: `python` (alone in naming pyo3) wraps `core`, whose verbs act on one `engine` for each
//! worker. An engine is sans-IO: datagrams and time come in; datagrams, events and a deadline come out. It forwards
//! messages (`forward`), publishes (`publisher`), and holds one `link` for each peer. `endpoint` and `worker` give engines threads, and `socket`
//! (alone in unsafe) gives them UDP.

mod acks;
mod arrivals;
mod congestion;
mod delivery;
mod engine;
mod forward;
mod fragment;
mod jurisdiction;
mod link;
mod outbox;
mod ranges;
mod recovery;
mod retained;
mod rtt;
mod schema;
mod sink;
mod socket;
mod token;
mod topic;
mod trie;
mod window;
mod wire;
mod worker;
mod core;
mod counters;
mod endpoint;
mod event;
mod pubacks;
mod publisher;
#[cfg(feature = "python")]
mod python;

/// Microseconds on a monotonic clock.
pub type Micros = u64;
