//! What has happened to the associations of an address.

/// What one worker has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Handshakes that made keys.
    pub handshakes: u64,
    /// Handshakes that failed, or took too long.
    pub handshakes_failed: u64,
    /// First datagrams that were dropped because too many handshakes were under way.
    pub handshakes_refused: u64,
    /// Datagrams that were opened before.
    pub replayed: u64,
    /// Datagrams that were not sealed with the association's keys, or are no datagram of an association.
    pub forged: u64,
    /// Sealed datagrams of no known association.
    pub unknown: u64,
    /// Datagrams for which there was no room while they waited for keys.
    pub not_held: u64,
    /// Associations that ended by a reset.
    pub reset: u64,
}

impl Counters {
    /// The values by name.
    pub fn named(&self) -> [(&'static str, u64); 8] {
        [
            ("association.handshakes", self.handshakes),
            ("association.resets", self.reset),
            ("drop.handshake_failed", self.handshakes_failed),
            ("drop.handshake_refused", self.handshakes_refused),
            ("drop.seal_replayed", self.replayed),
            ("drop.seal_forged", self.forged),
            ("drop.association_unknown", self.unknown),
            ("drop.not_held", self.not_held),
        ]
    }
}
