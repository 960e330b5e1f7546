//! Messages in fragments (§7.5).
//!
//! ```text
//!     fragments          at the sender: Splitter gives a message its sequence numbers, and splits it
//!       |  (PUBLISH packets)
//!     reassembly         at the subscriber: Reassembler keeps incomplete messages within bounds
//!       `-- partial_message     one incomplete message
//! ```

pub mod fragments;
pub mod partial_message;
pub mod reassembly;
