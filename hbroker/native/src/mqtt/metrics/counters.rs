//! The counters of a worker.

/// Why a message was not sent to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Drop {
    /// The session's queue was full.
    QueueFull,
    /// `QoS` 0, and the client was offline.
    Offline,
    /// Its expiry interval ended before it was sent.
    Expired,
    /// Larger than the client's maximum packet size (MQTT 5 §3.1.2.11.4).
    TooLarge,
    /// The client may not read its topic.
    Denied,
    /// The session ended while the message was queued or in flight.
    SessionEnded,
}

impl Drop {
    pub const ALL: [Self; 6] =
        [Self::QueueFull, Self::Offline, Self::Expired, Self::TooLarge, Self::Denied, Self::SessionEnded];

    pub fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::Offline => "offline",
            Self::Expired => "expired",
            Self::TooLarge => "too_large",
            Self::Denied => "denied",
            Self::SessionEnded => "session_ended",
        }
    }
}

/// Counters only rise.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    pub packets_in: u64,
    pub packets_out: u64,
    /// PUBLISH packets from clients, and the bytes of their payloads.
    pub messages_in: u64,
    pub payload_in: u64,
    /// PUBLISH packets to clients, and the bytes of their payloads.
    pub messages_out: u64,
    pub payload_out: u64,
    /// Messages from clients that were refused.
    pub refused: u64,
    /// Sessions that stalled: their ack guards were dropped.
    pub stalled: u64,
    /// Connections that broke the protocol.
    pub errors: u64,
    /// Connections that were closed because there was no memory for an incomplete packet.
    pub unfinished_full: u64,
    pub drops: [u64; Drop::ALL.len()],
}

impl Counters {
    pub fn drop(&mut self, why: Drop) {
        self.drops[why as usize] += 1;
    }

    /// Calls `with` for every counter, with its name.
    pub fn each(&self, mut with: impl FnMut(&str, u64)) {
        with("mqtt.packets_in", self.packets_in);
        with("mqtt.packets_out", self.packets_out);
        with("mqtt.messages_in", self.messages_in);
        with("mqtt.payload_in", self.payload_in);
        with("mqtt.messages_out", self.messages_out);
        with("mqtt.payload_out", self.payload_out);
        with("mqtt.refused", self.refused);
        with("mqtt.stalled", self.stalled);
        with("mqtt.errors", self.errors);
        with("mqtt.unfinished_full", self.unfinished_full);
        for why in Drop::ALL {
            with(&format!("mqtt.drop.{}", why.name()), self.drops[why as usize]);
        }
    }
}
