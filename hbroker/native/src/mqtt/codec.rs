//! Packets and bytes.
//!
//! What is on the path of messages (framing, PUBLISH, the four acknowledgements) is read and written here, without a copy. The other
//! packets go through a crate, `rmqtt-codec`, which is lax about some rules; what it lets through is refused in `control` and `connect`
//! before or after it (`docs/adr/0016` has the list). Every refusal is the reason that the specification names, for DISCONNECT or
//! CONNACK.

pub mod acks;
pub mod answers;
pub mod connect;
pub mod control;
pub mod frame;
pub mod packets;
pub mod publish;
pub mod reader;
pub mod reason;
#[cfg(test)]
mod tests;

use crate::mqtt::codec::reason::Reason;

/// What is wrong with a packet.
pub type Checked<T> = Result<T, Reason>;
