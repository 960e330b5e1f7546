//! Messages between MQTT clients and the network.
//!
//! ```text
//! client ──> bridge ──> the client pool's engine
//! the client pool's engine ──> bridge ──> dispatcher ──> fanout ──> SessionItem ──> worker ──> session
//! message, batch   one message, or several of `QoS` 0, shared by all recipients
//! encoder          encodes each packet once for all recipients that take it in the same format
//! ack_guard        when a message is acknowledged to its owner
//! ```

pub mod ack_guard;
pub mod batch;
pub mod bridge;
pub mod encoder;
pub mod fanout;
pub mod message;
