//! Values that cross between Python and Rust. They do not know each other.
//!
//! ```text
//! Rust ──> events, messages, sessions, load, spans   classes for Python
//! Python ──> config, credentials, publishing         what a caller sets, and what it publishes
//! ```

pub mod config;
pub mod credentials;
pub mod events;
pub mod load;
pub mod messages;
pub mod publishing;
pub mod sessions;
pub mod spans;
