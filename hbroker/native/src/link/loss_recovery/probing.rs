//! How long to wait for any acknowledgement before a probe asks for one (RFC 9002 §6.2): twice as long each
//! time.

use crate::Micros;

/// The probe timeout of one link.
#[derive(Debug)]
pub struct Probing {
    /// When a datagram or a probe was last sent.
    from: Micros,
    /// Probe timeouts since the last acknowledgement.
    backoff: u32,
    longest: Micros,
}

impl Probing {
    /// `longest` bounds the doubling.
    pub fn new(longest: Micros) -> Self {
        Self { from: 0, backoff: 0, longest }
    }

    /// A datagram was sent.
    pub fn on_sent(&mut self, now: Micros) {
        self.from = now;
    }

    /// The timeout is over without an acknowledgement.
    pub fn on_timeout(&mut self, now: Micros) {
        self.backoff += 1;
        self.from = now;
    }

    /// A datagram was acknowledged, or earlier timeouts do not count any more.
    pub fn reset(&mut self) {
        self.backoff = 0;
    }

    /// Whether it has waited since `from`, and no timeout is over.
    pub fn waits_from(&self, from: Micros) -> bool {
        self.from == from && self.backoff == 0
    }

    /// The number of consecutive timeouts without an acknowledgement.
    pub fn unanswered(&self) -> u32 {
        self.backoff
    }

    /// When the present timeout is over, if the first one is as long as `timeout`.
    pub fn deadline(&self, timeout: Micros) -> Micros {
        self.from + (timeout << self.backoff.min(20)).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_bound_and_begin_anew_when_answered() {
        let mut probing = Probing::new(1_000);
        probing.on_sent(50);
        let mut waits = Vec::new();
        let mut now = 50;
        for _ in 0..40 {
            let deadline = probing.deadline(300);
            waits.push(deadline - now);
            now = deadline;
            probing.on_timeout(now);
        }
        assert_eq!(waits[..3], [300, 600, 1_000]);
        assert!(
            waits[3..].iter().all(|&wait| wait == 1_000),
            "also where doubling would leave the number's range"
        );
        assert_eq!(probing.unanswered(), 40);
        probing.reset();
        assert_eq!((probing.deadline(300) - now, probing.unanswered()), (300, 0));
    }
}
