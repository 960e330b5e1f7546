//! A subscriber: from a delivery to the application (§7).
//!
//! ```text
//!     client            verbs: listen, take_messages, handled; PUBLISH from an owner
//!       `-- inbox             received messages until the application reads them; PUBACKs that are due
//!             |-- listeners         which listeners get a message
//!             |-- unclaimed         messages that no listener wants yet
//!             |-- unacknowledged    messages that the application has not handled yet
//!             |-- batch             messages that arrived together, and stay together
//!             `-----> crate::engine::fragmentation, crate::engine::retained
//! ```

pub mod batch;
pub mod client;
pub mod inbox;
pub mod listeners;
pub mod unacknowledged;
pub mod unclaimed;
