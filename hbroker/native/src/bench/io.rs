//! One thread that drives all connections of a load, with batches in every system call.

pub mod client;
pub mod driver;
pub mod pool;
pub mod port;
pub mod tcp;
pub mod tls;
