//! When the next datagram may be sent, so that a window is spread over its round trip (RFC 9002 §7.7).
//!
//! The rate is 1.25 windows for each round trip: a little more than is acknowledged, so that the window, not
//! the pacer, is the limit in the long run. The pacer is a generic cell rate algorithm. Every datagram
//! advances a theoretical time by what it takes at that rate, and may be sent while that time is at most a
//! burst ahead. After a pause a burst may be sent at once, so a sender that sends less than the window never
//! waits. A burst is ten datagrams, or as many as the rate allows in one millisecond if that is more: timers
//! are no finer, and a path so short has its round trip within one.

use crate::Micros;

/// RFC 9002 §7.7: N, as a fraction.
const RATE: (u64, u64) = (5, 4);
/// Datagrams that may be sent at once.
const BURST: u64 = 10;
const NANOS: u64 = 1_000;
/// RFC 9002 §6.1.2, kGranularity, in nanoseconds: what is sent within it counts as one burst.
const GRANULARITY: u64 = 1_000 * NANOS;
/// The shortest time that a timer is set for. Half of what may be sent at once collects meanwhile.
const LEAST_WAIT: Micros = 500;

/// The assumed speed of a path.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    /// Bytes in flight.
    pub window: usize,
    /// The smoothed round-trip time.
    pub round_trip: Micros,
}

impl Rate {
    /// The nanoseconds that this number of bytes takes.
    fn time_of(self, bytes: usize) -> u64 {
        let (numerator, denominator) = RATE;
        let window = self.window.max(1) as u64;
        let spread = self.round_trip.saturating_mul(NANOS * denominator);
        (bytes as u64).saturating_mul(spread) / (window * numerator)
    }
}

/// The pacer of one path.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pacer {
    /// When everything that was sent would have been sent at the rate, in nanoseconds.
    through_at: u64,
}

impl Pacer {
    /// When a datagram may be sent; `None`: now.
    pub fn next_departure(&self, now: Micros, rate: Rate, max_datagram: usize) -> Option<Micros> {
        let ahead = self.through_at.saturating_sub(now * NANOS);
        if ahead <= GRANULARITY {
            return None;
        }
        let burst = ((BURST - 1) * rate.time_of(max_datagram)).max(GRANULARITY);
        (ahead > burst).then(|| now + (ahead - burst).div_ceil(NANOS).max(LEAST_WAIT))
    }

    /// A datagram was sent.
    pub fn on_sent(&mut self, now: Micros, rate: Rate, size: usize) {
        self.through_at = self.through_at.max(now * NANOS).saturating_add(rate.time_of(size));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 1_200;

    /// Sends whenever allowed; returns the times at which datagrams were sent.
    fn departures(rate: Rate, count: usize) -> Vec<Micros> {
        let (mut pacer, mut now, mut times) = (Pacer::default(), 1_000_000, Vec::new());
        while times.len() < count {
            match pacer.next_departure(now, rate, SIZE) {
                Some(later) => now = later,
                None => {
                    pacer.on_sent(now, rate, SIZE);
                    times.push(now);
                }
            }
        }
        times
    }

    #[test]
    fn ten_leave_at_once_and_the_others_in_even_intervals() {
        let times = departures(Rate { window: 100 * SIZE, round_trip: 100_000 }, 200);
        assert!(times[..10].iter().all(|&at| at == times[0]));
        assert!(
            times[9..].windows(2).all(|pair| pair[1] - pair[0] == 800),
            "1 ms for a datagram, less a fifth"
        );
    }

    #[test]
    fn a_window_takes_four_fifths_of_a_round_trip() {
        for (datagrams, round_trip) in [(50, 40_000), (500, 40_000), (5_000, 20_000), (20, 300_000)] {
            let times = departures(Rate { window: datagrams * SIZE, round_trip }, 5 * datagrams);
            let took = (times.last().unwrap() - times[0]) as f64;
            let at_rate = (5.0 - 10.0 / datagrams as f64) * 0.8 * round_trip as f64;
            assert!((took / at_rate - 1.0).abs() < 0.05, "{datagrams}: {took} for {at_rate}");
        }
    }

    #[test]
    fn a_path_within_the_granularity_is_never_held_up() {
        let rate = Rate { window: 1_000 * SIZE, round_trip: 1_000 };
        assert!(departures(rate, 1_000).iter().all(|&at| at == 1_000_000));
    }

    #[test]
    fn a_pause_brings_back_one_burst_and_no_more() {
        let rate = Rate { window: 100 * SIZE, round_trip: 100_000 };
        let mut pacer = Pacer::default();
        (0..10).for_each(|_| pacer.on_sent(0, rate, SIZE));
        for now in [10_000_000, 20_000_000] {
            for _ in 0..10 {
                assert_eq!(pacer.next_departure(now, rate, SIZE), None);
                pacer.on_sent(now, rate, SIZE);
            }
            assert_eq!(pacer.next_departure(now, rate, SIZE), Some(now + 800));
        }
    }
}
