//! Who may connect, read and write.

pub mod attempts;
pub mod rules;
