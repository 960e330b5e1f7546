//! What an engine counts.
//!
//! ```text
//!     counters         what passed, and what was dropped and why
//!     message_metrics  what is counted of a message, by topic, for telemetry; timed messages
//!     load             what telemetry takes out
//! ```

pub mod counters;
pub mod load;
pub mod message_metrics;
