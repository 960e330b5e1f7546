//! What an engine counts.
//!
//! ```text
//!     counters     what passed, and what was dropped and why
//!     load         what passed, by topic, for telemetry; timed messages
//! ```

pub mod counters;
pub mod load;
