//! Retained messages for new subscriptions (§7.6).
//!
//! ```text
//!     crate::tables::retained     RetainedStore: the retained messages of a node
//!       |     |
//!       |   journal    gives its changes to the store of the node (`crate::store`)
//!       |
//!     replay       at the owner: what new subscriptions still get; replay::steps reads the table step by step, and
//!       |          queues for the session
//!       |  (PUBLISH, over the network)
//!     delivered    at the client: which retained messages a listener has had lately
//! ```

pub mod delivered;
pub mod journal;
pub mod replay;
