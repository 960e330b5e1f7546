//! What moves with a subtree, at both of its owners (§5.4).

pub mod barrier;
pub mod copied;
pub mod held_queues;
pub mod moving;
pub mod transfer;
