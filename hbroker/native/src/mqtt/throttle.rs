//! Limits how much a client may send, as MQTT 5 §4.9 allows the server: a token bucket. While it is empty the
//! client is not read.

use crate::Micros;

/// A rate, with bursts of one second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Throttle {
    /// Units a second; 0: any number.
    rate: u64,
    /// In millionths of a unit. Below zero: what was taken beyond the burst.
    level: i128,
    filled: Micros,
}

impl Throttle {
    pub fn new(now: Micros, rate: u64) -> Self {
        Self { rate, level: Self::burst(rate), filled: now }
    }

    /// Takes the tokens for units that arrived.
    pub fn take(&mut self, now: Micros, units: u64) {
        if self.rate > 0 {
            self.fill(now);
            self.level -= i128::from(units) * 1_000_000;
        }
    }

    /// When more units may arrive: `now`, or later.
    pub fn free_at(&mut self, now: Micros) -> Micros {
        if self.rate == 0 {
            return now;
        }
        self.fill(now);
        let missing = u64::try_from(-self.level).unwrap_or(0);
        now + missing.div_ceil(self.rate)
    }

    fn fill(&mut self, now: Micros) {
        let gained = i128::from(now.saturating_sub(self.filled)) * i128::from(self.rate);
        self.level = (self.level + gained).min(Self::burst(self.rate));
        self.filled = now;
    }

    fn burst(rate: u64) -> i128 {
        i128::from(rate) * 1_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_any_time_no_more_than_the_rate_and_one_burst() {
        let mut throttle = Throttle::new(0, 100);
        let (mut now, mut taken) = (0, 0);
        while now < 10_000_000 {
            let free = throttle.free_at(now);
            if free > now {
                now = free;
                continue;
            }
            throttle.take(now, 7);
            taken += 7;
        }
        assert!((1_000 + 100..1_000 + 100 + 14).contains(&taken), "{taken}");
        assert_eq!(Throttle::new(5, 0).free_at(9), 9);
    }
}
