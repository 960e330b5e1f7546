//! A token bucket.

use crate::Micros;

/// A token, as `level` counts it.
const TOKEN: i64 = 1_000_000;

/// Allows `rate` events a second on average, and `burst` at once.
#[derive(Clone, Copy, Debug)]
pub struct RateLimit {
    rate: i64,
    /// In millionths of a token. Below zero: what was charged beyond the burst.
    level: i64,
    most: i64,
    at: Micros,
}

impl RateLimit {
    pub fn new(rate: u32, burst: u32) -> Self {
        let most = i64::from(burst) * TOKEN;
        Self { rate: rate.into(), level: most, most, at: 0 }
    }

    /// Takes one token. False: none is left.
    pub fn take(&mut self, now: Micros) -> bool {
        self.take_many(now, 1)
    }

    /// Takes this many tokens. False: there are fewer, and none is taken.
    pub fn take_many(&mut self, now: Micros, events: u32) -> bool {
        self.fill(now);
        let wanted = i64::from(events) * TOKEN;
        let allowed = self.level >= wanted;
        if allowed {
            self.level -= wanted;
        }
        allowed
    }

    /// Takes the tokens of events that have happened already.
    pub fn charge(&mut self, now: Micros, events: u32) {
        self.fill(now);
        self.level = self.level.saturating_sub(i64::from(events) * TOKEN);
    }

    /// When no token is owed: `now`, or later.
    pub fn free_at(&mut self, now: Micros) -> Micros {
        self.fill(now);
        now + u64::try_from(-self.level).unwrap_or(0).div_ceil(self.rate.unsigned_abs())
    }

    fn fill(&mut self, now: Micros) {
        let elapsed = i64::try_from(now.saturating_sub(self.at)).unwrap_or(i64::MAX);
        self.at = self.at.max(now);
        self.level = self.level.saturating_add(elapsed.saturating_mul(self.rate)).min(self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refills_at_its_rate_up_to_its_burst() {
        let mut limit = RateLimit::new(10, 3);
        let taken = |limit: &mut RateLimit, now| (0..100).filter(|_| limit.take(now)).count();
        assert_eq!(taken(&mut limit, 0), 3);
        assert_eq!(taken(&mut limit, 99_999), 0);
        assert_eq!(taken(&mut limit, 100_000), 1);
        assert_eq!(taken(&mut limit, 10_000_000), 3);
        assert_eq!(taken(&mut limit, 5_000_000), 0, "time that goes back adds nothing");
        assert!(!limit.take_many(10_200_000, 3) && limit.take_many(10_200_000, 2), "all of them, or none");
        assert!(!limit.take(10_200_000));
    }

    #[test]
    fn over_any_time_no_more_is_charged_than_the_rate_and_one_burst() {
        let mut limit = RateLimit::new(100, 100);
        let (mut now, mut taken) = (0, 0);
        while now < 10_000_000 {
            let free = limit.free_at(now);
            if free > now {
                now = free;
                continue;
            }
            limit.charge(now, 7);
            taken += 7;
        }
        assert!((1_000 + 100..1_000 + 100 + 14).contains(&taken), "{taken}");
    }
}
