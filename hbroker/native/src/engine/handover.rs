//! What moves with a subtree, at its source and at its target (§5.4).
//!
//! ```text
//!     transfer         verbs at both: copy, refuse open messages, finish; install, import
//!       |-- copied           at the source: which messages of a session were copied, and which copies are void
//!       |-- barrier          at the source: are messages still on their way between workers?
//!       |-- moving           messages of one session, outside of any queue
//!       `-- held_queues      at the target: all messages of a subtree, until the target serves
//! ```

pub mod barrier;
pub mod copied;
pub mod held_queues;
pub mod moving;
pub mod transfer;
