//! What a worker counts.

/// Why a message did not go to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Drop {
    /// The session's queue was full.
    QueueFull,
    /// `QoS` 0, and the client was away.
    Away,
    /// It outlived its expiry before it was sent.
    Expired,
    /// Larger than the packets that the client takes (MQTT 5 §3.1.2.11.4).
    TooLarge,
    /// The client may not read its topic.
    Denied,
    /// The session ended with it.
    SessionEnded,
}

impl Drop {
    pub const ALL: [Self; 6] =
        [Self::QueueFull, Self::Away, Self::Expired, Self::TooLarge, Self::Denied, Self::SessionEnded];

    pub fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::Away => "away",
            Self::Expired => "expired",
            Self::TooLarge => "too_large",
            Self::Denied => "denied",
            Self::SessionEnded => "session_ended",
        }
    }
}

/// They only rise.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    pub packets_in: u64,
    pub packets_out: u64,
    /// PUBLISH of clients, and their payloads' bytes.
    pub messages_in: u64,
    pub payload_in: u64,
    /// PUBLISH to clients, and their payloads' bytes.
    pub messages_out: u64,
    pub payload_out: u64,
    /// Messages of clients that were refused.
    pub refused: u64,
    /// Sessions that stalled: their claims were released.
    pub stalled: u64,
    /// Connections that broke the protocol.
    pub errors: u64,
    /// Connections that ended because there was no room for a packet that was not whole.
    pub unfinished_full: u64,
    pub drops: [u64; Drop::ALL.len()],
}

impl Counters {
    pub fn drop(&mut self, why: Drop) {
        self.drops[why as usize] += 1;
    }

    /// Every counter by name.
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
