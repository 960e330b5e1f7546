//! One thread that drives all connections of a load, with batches in every system call.

mod crew;
mod member;
mod port;
mod tcp;

pub use crew::Generator;
pub use member::{LoadEndpoint, Seat};
pub use port::Part;
pub use tcp::Connection;
