//! The native core of hbroker. It handles every message; Python makes every decision, in `hbroker.protocol`.
//!
//! ```text
//! python        the native API for Python; only this module names pyo3
//!   core        every method of the native API, once
//!     endpoint  threads and sockets            client_pool  many clients' engines behind one socket
//!       association  seals and opens every datagram (unless security is off)
//!       engine  one sans-IO engine for each worker: datagrams and time in; datagrams, events, a deadline out
//!         link    the conversation with one peer       tables  what is looked up for a message
//!           wire  datagrams as bytes (schema: generated tags)
//!   mqtt        a gateway's connections and sessions (over client_pool)
//!   bench       a load generator (over endpoint, client_pool)
//!   store       the messages that wait for sessions, on disk (engine gives them to it)
//!   load        metrics by topic, of engine and mqtt
//! ```

#![cfg_attr(not(feature = "python"), allow(dead_code, reason = "only the Python API calls it"))]

#[cfg(not(target_os = "linux"))]
compile_error!("hbroker runs on Linux only");

mod association;
mod bench;
mod broken;
mod client_pool;
mod config;
mod core;
mod endpoint;
mod engine;
mod host_counts;
mod keyed_hash;
mod link;
mod link_id;
mod load;
mod mqtt;
mod prefix;
mod publisher_id;
#[cfg(feature = "python")]
mod python;
mod rights;
mod schema;
mod shares;
mod shrink;
mod sink;
mod store;
mod tables;
mod token;
mod topic;
mod wire;
mod workspace;

/// Microseconds on a monotonic clock.
type Micros = u64;
