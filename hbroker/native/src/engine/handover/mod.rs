//! What moves with a subtree, at its source and at its target (§5.4).
//!
//! ```text
//!     transfer         verbs at both: copy, refuse open messages, finish; install, import
//!       |-- moves            all exports and imports of a node, each under a number (NodeExport)
//!       |-- worker_export    at the source: the part of an export in one worker (WorkerExport)
//!       |     |-- session_export   the part in one session: what was copied, which copies are void (SessionExport)
//!       |     `-- stored_copies    copying of messages that only the store has
//!       |-- barrier          at the source: are messages still on their way between workers?
//!       `-- held_queues      messages outside of any queue; at the target all of a subtree, until it serves
//!             `-- spooled        the beginning of a large queue, at the target: it is in the store
//! ```

pub mod barrier;
pub mod held_queues;
pub mod moves;
pub mod session_export;
pub mod spooled;
pub mod stored_copies;
pub mod transfer;
pub mod worker_export;
