//! How seldom a worker is woken under load, as network cards moderate their interrupts.
//!
//! To wake for every datagram that comes costs more than to handle it, and what leaves after each wake-up leaves in small bundles. So a
//! worker that has emptied its socket, and had much from it since it last slept, holds off a moment before it listens again: then what came
//! in meanwhile is handled together. Who sends little at a time is never kept waiting; whoever has work for the worker rings its bell.

use std::time::Duration;

/// More than this since the last sleep is much: no single frame of an Ethernet holds it.
const MUCH_BYTES: usize = 2_048;
/// How long it holds off. (The kernel's timers are as late again.)
const HOLD_OFF: Duration = Duration::from_micros(50);

/// What came in since a worker last slept.
#[derive(Debug, Default)]
pub struct Moderation {
    bytes: usize,
}

impl Moderation {
    /// So many bytes have come in.
    pub fn took(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Much has come in: the worker is not to hold off before it has asked the socket once more.
    pub fn is_much(&self) -> bool {
        // Elsewhere a sleep lasts for whole milliseconds.
        self.bytes > MUCH_BYTES && cfg!(target_os = "linux")
    }

    /// The worker is about to sleep: how long it is to hold off before it listens again, if it is.
    pub fn hold_off(&mut self) -> Option<Duration> {
        let is_much = self.is_much();
        self.bytes = 0;
        is_much.then_some(HOLD_OFF)
    }
}

#[cfg(all(test, target_os = "linux"))]
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
