//! What was received, and what has to be acknowledged (RFC 9000 §13.2).
//!
//! ```text
//!     acks              when to acknowledge received datagrams
//!       `-- ranges            sets of numbers
//!     reorder_buffer    received reliable packets, until their predecessors are delivered
//!     pubacks           PUBACKs that are due, until they are acknowledged
//!       `-- ranges
//! ```

pub mod acks;
pub mod pubacks;
pub mod ranges;
pub mod reorder_buffer;
