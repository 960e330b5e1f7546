//! The limits of a listener's connections, and of the sessions behind it.

use crate::Micros;

/// The limits of every connection of a listener. CONNACK contains those that the protocol has a property for.
#[derive(Clone, Debug)]
pub struct ListenerSettings {
    /// How many bytes a client may send before it is accepted, CONNECT included.
    pub handshake_bytes: usize,
    /// How long it may take until CONNECT is complete.
    pub handshake_time: Micros,
    /// The largest packet that a client may send once it is accepted, in bytes.
    pub maximum_packet: usize,
    /// How many messages of `QoS` 1 and 2 a client may have unanswered.
    pub receive_maximum: u16,
    /// How many topic aliases a client may assign; 0: none.
    pub topic_alias_maximum: u16,
    /// Messages that a client may send in a second; 0: any number.
    pub rate: u32,
    /// How many bytes may wait for the socket before messages are queued in the session.
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
            rate: 0,
            output_bytes: 1 << 20,
        }
    }
}

/// The limits of a session.
#[derive(Clone, Copy, Debug)]
pub struct SessionSettings {
    /// How many messages of `QoS` 1 and 2 may be in flight, whatever the client's receive maximum.
    pub inflight: u16,
    pub queue_messages: usize,
    pub queue_bytes: usize,
    /// After this time without an acknowledgement a client no longer holds back the network's
    /// acknowledgements; `Micros::MAX`: it always does. It must be shorter than the time that an owner waits
    /// for a session (§7.3), which may check at any moment. Otherwise the owner takes the pool client that
    /// all sessions share for stalled.
    pub stall: Micros,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self { inflight: 1_000, queue_messages: 10_000, queue_bytes: 16 << 20, stall: 1_500_000 }
    }
}
