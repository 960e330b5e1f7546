//! What was received, and what has to be acknowledged (RFC 9000 §13.2); reliable packets in both directions.
//!
//! ```text
//!     acks              when to acknowledge received datagrams
//!       `-- ranges            sets of numbers
//!     reorder_buffer    received reliable packets, until their predecessors are delivered
//!     delivery          sent reliable packets, until they are acknowledged
//!     pubacks           PUBACKs that are due, until they are acknowledged
//!       `-- ranges
//! ```

pub mod acks;
pub mod delivery;
pub mod pubacks;
pub mod ranges;
pub mod reorder_buffer;
