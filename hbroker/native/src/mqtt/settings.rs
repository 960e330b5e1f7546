//! The limits of a listener's connections, and of the sessions behind it.

use crate::Micros;
use crate::tables::match_set::Overflow;

/// What every connection of a listener is held to, and told in CONNACK.
#[derive(Clone, Debug)]
pub struct ListenerSettings {
    /// Bytes that a client may send before it is accepted, CONNECT included.
    pub handshake_bytes: usize,
    /// How long it may take until CONNECT is whole.
    pub handshake_time: Micros,
    /// The largest packet taken, in bytes, once it is accepted.
    pub maximum_packet: usize,
    /// Messages of `QoS` 1 and 2 taken from a client without having been answered.
    pub receive_maximum: u16,
    /// Topic aliases taken from a client; 0: none.
    pub topic_alias_maximum: u16,
    /// Topic aliases used towards a client that takes some.
    pub topic_aliases: u16,
    pub maximum_qos: u8,
    pub retain_available: bool,
    /// Messages taken from a client in a second; 0: any number.
    pub rate: u32,
    /// Bytes taken from a client in a second; 0: any number.
    pub rate_bytes: u64,
    /// Output that may wait for the socket before messages wait in the session.
    pub output_bytes: usize,
}

impl Default for ListenerSettings {
    fn default() -> Self {
        Self {
            handshake_bytes: 1 << 16,
            handshake_time: 10_000_000,
            maximum_packet: 268_435_460,
            receive_maximum: 1_000,
            topic_alias_maximum: 64,
            topic_aliases: 64,
            maximum_qos: 2,
            retain_available: true,
            rate: 0,
            rate_bytes: 0,
            output_bytes: 1 << 20,
        }
    }
}

/// The bounds of a session.
#[derive(Clone, Copy, Debug)]
pub struct SessionSettings {
    /// Messages of `QoS` 1 and 2 sent without an acknowledgement, whatever the client's receive maximum.
    pub inflight: u16,
    pub queue_messages: usize,
    pub queue_bytes: usize,
    pub overflow: Overflow,
    /// A client that answered nothing for so long no longer holds the network's acknowledgements; `Micros::MAX`: it always does.
    /// Shorter than an owner waits for a session (§7.3), which may look at any moment: else it gives up the member that all clients share.
    pub stall: Micros,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            inflight: 1_000,
            queue_messages: 10_000,
            queue_bytes: 16 << 20,
            overflow: Overflow::DropOldest,
            stall: 1_500_000,
        }
    }
}
