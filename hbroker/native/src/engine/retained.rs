//! Retained messages on their way to new subscriptions (§7.6).

pub mod delivered;
pub mod replay;
