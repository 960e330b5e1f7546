//! Messages in fragments (§7.5).
//!
//! ```text
//!     fragments          at the sender: Splitter gives a message its sequence numbers, and splits it
//!       |  (PUBLISH packets)
//!     reassembly         at the subscriber: Reassembler keeps incomplete messages within bounds
//! ```

pub mod fragments;
pub mod reassembly;
