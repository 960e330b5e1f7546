//! What moves with a subtree, at its source and at its target (§5.4).
//!
//! ```text
//!     transfer         verbs at both: copy, refuse open messages, finish; install, import
//!       |-- exporting        at the source: a subtree that is being copied
//!       |     |-- copied           which messages of a session were copied, and which copies are void
//!       |     `-- stored_copies    those that only the store has
//!       |-- barrier          at the source: are messages still on their way between workers?
//!       |-- moves            all exports and imports of a node, each under a number
//!       `-- held_queues      messages outside of any queue; at the target all of a subtree, until it serves
//!             `-- spooled        the beginning of a large queue, at the target: it is in the store
//! ```

pub mod barrier;
pub mod copied;
pub mod exporting;
pub mod held_queues;
pub mod moves;
pub mod spooled;
pub mod stored_copies;
pub mod transfer;
