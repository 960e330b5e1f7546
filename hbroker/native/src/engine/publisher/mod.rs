//! A publisher: from `publish` to the owner's PUBACK (§5.3, §7).
//!
//! ```text
//!     sending        the verbs and events: publish, PUBACK, CREDIT, a new zone, the end of a link; the fast path
//!       |-- outgoing       Publisher: which message waits, which is in flight, what is to be done next
//!       |     `-- send_queue     the messages of one topic, in order
//!       |-- pauses         topics that wait before they are sent again
//!       `-----> crate::engine::fragmentation, crate::link
//!     refusals       at the owner: the chains that a refusal broke
//! ```

pub mod outgoing;
pub mod pauses;
pub mod refusals;
pub mod send_queue;
pub mod sending;
