//! A load generator: messages from publishers to subscribers over any broker, each checked and timed.
//!
//! ```text
//! python/bench.rs ──> io/driver   one thread that drives all connections of a load (`Port`s)
//!                       ├─ io/client   hbroker's own protocol: the engine and socket of any client
//!                       ├─ io/pool     subscribers as clients of one client pool
//!                       └─ io/tcp, io/tls ──> mqtt, nats   other protocols (trait in `protocol`)
//! every port ──> load ──> pace      how many messages a publisher may send now
//!                     ──> payload   what a message contains
//!                     ──> checker   what each subscriber received
//! ```
//!
//! Everything but `io` is sans-IO: it knows no socket and no clock.

mod checker;
pub mod io;
pub mod load;
pub mod mqtt;
pub mod nats;
pub mod pace;
mod payload;
pub mod protocol;

/// Nanoseconds since the load's threads began.
pub type Nanos = u64;

#[cfg(test)]
mod tests;
