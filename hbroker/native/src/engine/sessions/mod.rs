//! Sessions at an owner: what is queued for each subscriber, and what its link carries (§6.4, §7.8).
//!
//! ```text
//!     send            a message for a session: onto its link, or into its queue; PUBACK; backpressure
//!       |-- delivery_batches    the same for messages of `QoS` 1 and 2 that arrived together
//!       |-- table               Sessions: all sessions of a worker, and the memory for their queues
//!       |     `-- session             one session: queue, messages in flight, credit, tickets
//!       |           |-- queue               the bounded queue; bounds: its size, or the most that it may have
//!       |           |-- backlog             the part of the queue that only the store has
//!       |           |-- progress            is the session stalled?
//!       |           `-- counters            what became of its messages
//!       |-- settlement          what is left to do afterwards: tickets, messages that the store need not keep
//!       |-- stored_before       what an earlier run has stored, and may be published again
//!       |-- storing             messages on their way to the store, and from there
//!       |-- message             QueuedMessage, QueuedBatch: what a session gets
//!       |-- target              the sessions that get it
//!       `-- copy_blocks         memory for short messages
//! ```

pub mod backlog;
pub mod bounds;
pub mod copy_blocks;
pub mod counters;
pub mod delivery_batches;
pub mod message;
pub mod progress;
pub mod queue;
pub mod send;
pub mod session;
pub mod settlement;
pub mod stored_before;
pub mod storing;
pub mod table;
pub mod target;
