//! When slow start ends: HyStart++ (RFC 9406).
//!
//! A queue that builds up at the bottleneck lengthens the round trip before the queue overflows. If the
//! shortest round trip of one round is clearly longer than that of the round before, the window grows only a
//! quarter as fast, and after five such rounds slow start ends. If the round trip becomes shorter again, slow
//! start continues.

use crate::Micros;

/// RFC 9406 §4.3, MIN_RTT_THRESH and MAX_RTT_THRESH.
const LEAST_DELAY: Micros = 4_000;
const MOST_DELAY: Micros = 16_000;
/// RFC 9406 §4.3, MIN_RTT_DIVISOR.
const DELAY_DIVISOR: Micros = 8;
/// RFC 9406 §4.3, N_RTT_SAMPLE.
const ENOUGH_SAMPLES: u32 = 8;
/// RFC 9406 §4.3, CSS_GROWTH_DIVISOR.
const GROWTH_DIVISOR: usize = 4;
/// RFC 9406 §4.3, CSS_ROUNDS.
const CONSERVATIVE_ROUNDS: u32 = 5;

/// The phase of slow start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The window grows by the acknowledged bytes.
    Fast,
    /// It grows by a quarter of them: a queue may be building up.
    Conservative,
    /// The window is large enough.
    Over,
}

/// The rounds of one slow start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HyStart {
    phase: Phase,
    /// A round ends when a datagram sent since then is acknowledged.
    round_start: Micros,
    /// The shortest round trip of this round and of the one before; `Micros::MAX`: none yet.
    shortest: Micros,
    previous: Micros,
    samples: u32,
    /// The shortest round trip when the growth was slowed down.
    baseline: Micros,
    conservative_rounds: u32,
}

impl HyStart {
    /// At the beginning of slow start.
    pub fn new() -> Self {
        Self {
            phase: Phase::Fast,
            round_start: 0,
            shortest: Micros::MAX,
            previous: Micros::MAX,
            samples: 0,
            baseline: 0,
            conservative_rounds: 0,
        }
    }

    /// Takes the round trip of a datagram sent at `sent_at`.
    pub fn on_round_trip(&mut self, now: Micros, sent_at: Micros, round_trip: Micros) -> Phase {
        if sent_at >= self.round_start {
            self.begin_round(now);
        }
        self.shortest = self.shortest.min(round_trip);
        self.samples += 1;
        if self.samples < ENOUGH_SAMPLES {
            return self.phase;
        }
        match self.phase {
            Phase::Fast if self.is_delayed() => {
                self.phase = Phase::Conservative;
                self.baseline = self.shortest;
                self.conservative_rounds = 0;
            }
            Phase::Conservative if self.shortest < self.baseline => self.phase = Phase::Fast,
            _ => {}
        }
        self.phase
    }

    /// The window grows by the acknowledged bytes, divided by this.
    pub fn divisor(&self) -> usize {
        if self.phase == Phase::Fast { 1 } else { GROWTH_DIVISOR }
    }

    fn begin_round(&mut self, now: Micros) {
        self.round_start = now;
        self.previous = std::mem::replace(&mut self.shortest, Micros::MAX);
        self.samples = 0;
        if self.phase == Phase::Conservative {
            self.conservative_rounds += 1;
            if self.conservative_rounds >= CONSERVATIVE_ROUNDS {
                self.phase = Phase::Over;
            }
        }
    }

    fn is_delayed(&self) -> bool {
        let threshold = (self.previous / DELAY_DIVISOR).clamp(LEAST_DELAY, MOST_DELAY);
        self.shortest >= self.previous.saturating_add(threshold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One round of ten samples; returns the phase at its end.
    fn round(slow_start: &mut HyStart, number: u64, round_trip: Micros) -> Phase {
        let start = number * 1_000_000;
        (0..10)
            .map(|sample| slow_start.on_round_trip(start + sample, start - (sample != 0) as u64, round_trip))
            .last()
            .unwrap()
    }

    #[test]
    fn a_longer_round_trip_slows_it_down_and_five_rounds_end_it() {
        let mut slow_start = HyStart::new();
        assert_eq!(round(&mut slow_start, 1, 40_000), Phase::Fast);
        assert_eq!(round(&mut slow_start, 2, 44_999), Phase::Fast, "an eighth of 40 ms is allowed");
        assert_eq!(round(&mut slow_start, 3, 44_999 + 44_999 / 8), Phase::Conservative);
        assert_eq!(slow_start.divisor(), 4);
        for number in 4..8 {
            assert_eq!(round(&mut slow_start, number, 60_000), Phase::Conservative);
        }
        assert_eq!(round(&mut slow_start, 8, 60_000), Phase::Over);
    }

    #[test]
    fn it_goes_on_where_the_delay_was_a_passing_one() {
        let mut slow_start = HyStart::new();
        round(&mut slow_start, 1, 40_000);
        assert_eq!(round(&mut slow_start, 2, 60_000), Phase::Conservative);
        assert_eq!(round(&mut slow_start, 3, 50_000), Phase::Fast);
        assert_eq!(slow_start.divisor(), 1);
    }

    #[test]
    fn a_short_path_may_vary_by_milliseconds() {
        let mut slow_start = HyStart::new();
        for number in 1..20 {
            assert_eq!(round(&mut slow_start, number, if number % 2 == 0 { 50 } else { 4_000 }), Phase::Fast);
        }
    }
}
