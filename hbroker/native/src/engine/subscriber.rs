//! A subscriber: from a delivery to the application (§7).

pub mod batch;
pub mod client;
pub mod inbox;
pub mod listeners;
pub mod unacknowledged;
pub mod unclaimed;
