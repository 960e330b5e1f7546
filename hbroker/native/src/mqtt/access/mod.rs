//! Access control: which clients may connect (`attempts`), read and write.
//!
//! - `attempts`: the limits on password guesses. Python and
//!   [`Dispatcher`](crate::mqtt::gateway::dispatcher::Dispatcher) call it before a password is checked.
//! - `rules`: access lists. A [`Session`](crate::mqtt::session::Session) asks its list for each topic.

pub mod attempts;
pub mod rules;
