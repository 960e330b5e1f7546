//! Messages between MQTT clients and the network.

pub mod batch;
pub mod bridge;
pub mod encoder;
pub mod fanout;
pub mod message;
pub mod network;
