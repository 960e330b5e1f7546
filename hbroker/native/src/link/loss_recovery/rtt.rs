//! The round-trip time of a path, as RFC 9002 §5 estimates it; and how long to wait for any acknowledgement
//! before a probe asks for one (RFC 9002 §6.2), twice as long each time.

use crate::Micros;

/// The round-trip time before the first sample. RFC 9002 §6.2.2 uses 333 ms for want of a better estimate;
/// the first probe is then sent after a second. Here the first probe is sent after 305 ms, about when the
/// control protocol would repeat a request (§9).
const INITIAL_RTT: Micros = 100_000;
/// RFC 9002 §6.1.2, kGranularity.
const GRANULARITY: Micros = 1_000;

/// Smoothed round-trip time, its variation and its minimum.
#[derive(Debug, Clone, Copy)]
pub struct RttEstimator {
    smoothed: Micros,
    variation: Micros,
    least: Micros,
    latest: Option<Micros>,
}

/// An estimator in 16 bytes, while it is not used.
#[derive(Debug, Clone, Copy)]
pub struct PackedRtt([u32; 4]);

impl From<PackedRtt> for RttEstimator {
    fn from(PackedRtt([smoothed, variation, least, latest]): PackedRtt) -> Self {
        Self {
            smoothed: smoothed.into(),
            variation: variation.into(),
            least: if least == u32::MAX { Micros::MAX } else { least.into() },
            latest: Some(latest.into()),
        }
    }
}

impl RttEstimator {
    /// Without a sample.
    pub fn new() -> Self {
        Self { smoothed: INITIAL_RTT, variation: INITIAL_RTT / 2, least: INITIAL_RTT, latest: None }
    }

    /// Takes a sample. The peer reports that it delayed the acknowledgement by `ack_delay`.
    pub fn sample(&mut self, round_trip: Micros, ack_delay: Micros) {
        if self.latest.replace(round_trip).is_none() {
            self.least = round_trip;
            self.smoothed = round_trip;
            self.variation = round_trip / 2;
            return;
        }
        self.least = self.least.min(round_trip);
        let adjusted = if round_trip - self.least >= ack_delay { round_trip - ack_delay } else { round_trip };
        self.variation = (3 * self.variation + self.smoothed.abs_diff(adjusted)) / 4;
        self.smoothed = (7 * self.smoothed + adjusted) / 8;
    }

    /// The packed estimator. `None`: there is no sample, or one of more than an hour.
    pub fn packed(&self) -> Option<PackedRtt> {
        let least = if self.least == Micros::MAX { u32::MAX } else { u32::try_from(self.least).ok()? };
        let pack = |time| u32::try_from(time).ok();
        Some(PackedRtt([pack(self.smoothed)?, pack(self.variation)?, least, pack(self.latest?)?]))
    }

    /// The shortest round trip may have been that of another route: the next sample replaces it (RFC 9002
    /// §5.2).
    pub fn forget_least(&mut self) {
        self.least = Micros::MAX;
    }

    /// The smoothed round-trip time; an initial value before the first sample.
    pub fn smoothed(&self) -> Micros {
        self.smoothed
    }

    /// Whether there was a sample.
    pub fn is_measured(&self) -> bool {
        self.latest.is_some()
    }

    /// How long after it was sent a datagram counts as lost, once a later one is acknowledged (RFC 9002
    /// §6.1.2).
    pub fn loss_delay(&self) -> Micros {
        let round_trip = self.smoothed.max(self.latest.unwrap_or(0));
        (round_trip + round_trip / 8).max(GRANULARITY)
    }

    /// How long to wait for an acknowledgement before probing (RFC 9002 §6.2.1).
    pub fn probe_timeout(&self, max_ack_delay: Micros) -> Micros {
        self.smoothed + (4 * self.variation).max(GRANULARITY) + max_ack_delay
    }
}

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
    fn the_first_sample_replaces_the_guess() {
        let mut rtt = RttEstimator::new();
        assert!(!rtt.is_measured());
        rtt.sample(20_000, 5_000);
        assert_eq!((rtt.smoothed(), rtt.probe_timeout(5_000)), (20_000, 20_000 + 40_000 + 5_000));
    }

    #[test]
    fn ack_delay_is_taken_off_but_never_below_the_minimum() {
        let mut rtt = RttEstimator::new();
        rtt.sample(20_000, 0);
        rtt.sample(24_000, 4_000);
        assert_eq!(rtt.smoothed(), 20_000);
        rtt.sample(21_000, 4_000);
        assert_eq!(rtt.smoothed(), 20_125);
    }

    #[test]
    fn after_persistent_congestion_the_next_round_trip_is_the_least() {
        let mut rtt = RttEstimator::new();
        rtt.sample(10_000, 0);
        rtt.forget_least();
        rtt.sample(50_000, 5_000);
        assert_eq!(rtt.smoothed(), (7 * 10_000 + 50_000) / 8, "nothing is taken off the least");
        rtt.sample(60_000, 5_000);
        assert_eq!(rtt.smoothed(), (7 * 15_000 + 55_000) / 8);
    }

    #[test]
    fn a_steady_path_has_a_tight_probe_timeout() {
        let mut rtt = RttEstimator::new();
        for _ in 0..100 {
            rtt.sample(100, 0);
        }
        assert_eq!((rtt.probe_timeout(0), rtt.loss_delay()), (1_100, GRANULARITY));
    }

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
