//! Moderates how often a worker wakes up under load, as network cards moderate their interrupts.
//!
//! A wake-up for every datagram costs more than handling it, and the datagrams that leave after each wake-up
//! contain few packets. So if a worker has emptied its socket and received much since it last slept, it holds
//! off for a moment before it listens again. Then it handles everything that arrived meanwhile together. A
//! peer that sends little at a time never waits for this, and a thread that has work for the worker wakes it.

use std::time::Duration;

/// More bytes than this since the last sleep are much: no single Ethernet frame contains them.
const MUCH_BYTES: usize = 2_048;
/// How long the worker holds off. (The kernel's timers add about as much again.)
const HOLD_OFF: Duration = Duration::from_micros(50);

/// Counts the bytes that arrived since the worker last slept.
#[derive(Debug, Default)]
pub struct Moderation {
    bytes: usize,
}

impl Moderation {
    /// Counts received bytes.
    pub fn took(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Whether much has arrived. Then the worker polls the socket once more before it sleeps.
    pub fn is_much(&self) -> bool {
        self.bytes > MUCH_BYTES
    }

    /// Called when the worker is about to sleep. Returns how long it holds off before it listens again, if it
    /// does.
    pub fn hold_off(&mut self) -> Option<Duration> {
        let is_much = self.is_much();
        self.bytes = 0;
        is_much.then_some(HOLD_OFF)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_off_after_much_since_the_last_sleep_and_once() {
        let mut moderation = Moderation::default();
        assert_eq!(moderation.hold_off(), None);
        moderation.took(1_472);
        assert_eq!(moderation.hold_off(), None);
        moderation.took(1_472);
        assert_eq!(moderation.hold_off(), None, "each of these found the worker asleep");
        moderation.took(1_472);
        moderation.took(1_472);
        assert_eq!(moderation.hold_off(), Some(HOLD_OFF));
        assert_eq!(moderation.hold_off(), None);
    }
}
