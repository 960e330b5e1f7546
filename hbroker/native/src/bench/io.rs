//! One thread that drives all connections of a load, with batches in every system call.

pub mod crew;
pub mod crowd;
pub mod member;
pub mod port;
pub mod tcp;
pub mod tls;
