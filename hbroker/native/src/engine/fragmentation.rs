//! Messages in parts (§7.5).

pub mod fragments;
pub mod partial_message;
pub mod reassembly;
