//! The links and datagrams of one engine, and its interfaces to Python and to other workers.
//!
//! ```text
//!     datagrams           a datagram in: header -> link -> packets
//!       |-- outside             outside of sessions: requests, answers and CHALLENGE (token_bucket limits them)
//!       |-- sender_rights       what who sent a datagram may do
//!       |-- session_claims      who may go on with a session
//!       |-- links               the links: by session, by address, timers, idle links
//!       |     |-- delivery_records    deliveries that wait for a PUBACK
//!       |     `-- credit              what the peer takes before it acknowledges
//!       |-- publish_batch       plain messages of `QoS` 0 that arrived together
//!       |     `-- copy_batch          those for other workers
//!       `-----> crate::engine::{owner, subscriber, publisher}
//!     outbound            packets out, handoffs to other workers
//!     commands            verbs of Python in; event: events for Python out
//! ```

pub mod commands;
pub mod copy_batch;
pub mod credit;
pub mod datagrams;
pub mod delivery_records;
pub mod event;
pub mod links;
pub mod outbound;
mod outside;
pub mod publish_batch;
mod sender_rights;
pub mod session_claims;
pub mod token_bucket;
