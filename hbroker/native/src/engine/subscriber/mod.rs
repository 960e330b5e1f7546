//! A subscriber: from a delivery to the application (§7).
//!
//! ```text
//!     client            verbs: listen, take_messages, handled; PUBLISH from an owner
//!       `-- inbox             received messages, and who listens for them; PUBACKs that are due
//!             |-- unclaimed         messages that no listener wants yet
//!             |-- batch             messages that arrived together, and stay together
//!             `-----> crate::engine::fragmentation, crate::engine::retained
//! ```

pub mod batch;
pub mod client;
pub mod inbox;
pub mod unclaimed;
