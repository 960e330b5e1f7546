//! The connections of a load, and the one thread that drives them, with batches in each system call.
//!
//! ```text
//! driver ──> port (trait `Port`) <── client   hbroker's own protocol
//!                                <── pool     clients of a client pool
//!                                <── tcp ──> tls, crate::bench::protocol   MQTT and NATS
//! ```

pub mod client;
pub mod driver;
pub mod pool;
pub mod port;
pub mod tcp;
pub mod tls;
