//! Messages in parts (§7.5).

pub mod fragments;
pub mod partial;
pub mod reassembly;
