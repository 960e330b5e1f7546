//! Receiving: what came, and what is to be acknowledged of it (RFC 9000 §13.2).

pub mod acks;
pub mod delivery;
pub mod pubacks;
pub mod ranges;
pub mod reorder_buffer;
