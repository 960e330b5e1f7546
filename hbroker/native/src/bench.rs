//! A load: messages from publishers to subscribers over any broker, each checked and timed.
//!
//! What a load is and what came of it knows no socket and no clock: `load` says how many messages a publisher may send now (`pace`)
//! and what each holds (`payload`), and takes what its subscribers receive (`checker`). `mqtt` and `nats` are two clients' languages. `io` drives
//! all connections of a load from one thread: for hbroker's own protocol each is the engine and the socket that users'
//! clients have, only the thread is shared.

mod checker;
pub mod io;
pub mod load;
pub mod mqtt;
pub mod nats;
mod pace;
mod payload;
pub mod protocol;

/// Nanoseconds since the load's threads began.
pub type Nanos = u64;

#[cfg(test)]
mod tests;
