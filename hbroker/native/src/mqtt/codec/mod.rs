//! Encodes and decodes MQTT packets.
//!
//! ```text
//! connection ──> frame             finds where a packet ends
//!            ──> publish, acks     the packets on the path of a message, without a copy
//!            ──> connect, control  the other packets from a client, and their properties
//!            ──> answers, acks     packets to a client
//! all use reader (data types of MQTT), packets (contents for Python), reason (reason codes)
//! ```
//!
//! Each refusal is the reason code that the specification names, for DISCONNECT or CONNACK.

pub mod acks;
pub mod answers;
pub mod connect;
pub mod control;
pub mod frame;
pub mod packets;
pub mod properties;
pub mod publish;
pub mod reader;
pub mod reason;
#[cfg(test)]
mod tests;

use crate::mqtt::codec::reason::Reason;

/// The result of a check; the error is the reason code to refuse the packet with.
pub type Checked<T> = Result<T, Reason>;
