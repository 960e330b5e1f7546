//! A token bucket.

use crate::Micros;

/// Allows `rate` events a second on average, and `burst` at once.
#[derive(Debug)]
pub struct RateLimit {
    rate: u64,
    /// In millionths of an event.
    level: u64,
    most: u64,
    at: Micros,
}

impl RateLimit {
    pub fn new(rate: u32, burst: u32) -> Self {
        let most = u64::from(burst) * 1_000_000;
        Self { rate: rate.into(), level: most, most, at: 0 }
    }

    /// Takes one event. False: none is left.
    pub fn take(&mut self, now: Micros) -> bool {
        let elapsed = now.saturating_sub(self.at);
        self.at = self.at.max(now);
        self.level = self.level.saturating_add(elapsed.saturating_mul(self.rate)).min(self.most);
        let allowed = self.level >= 1_000_000;
        if allowed {
            self.level -= 1_000_000;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::RateLimit;

    #[test]
    fn refills_at_its_rate_up_to_its_burst() {
        let mut limit = RateLimit::new(10, 3);
        let taken = |limit: &mut RateLimit, now| (0..100).filter(|_| limit.take(now)).count();
        assert_eq!(taken(&mut limit, 0), 3);
        assert_eq!(taken(&mut limit, 99_999), 0);
        assert_eq!(taken(&mut limit, 100_000), 1);
        assert_eq!(taken(&mut limit, 10_000_000), 3);
        assert_eq!(taken(&mut limit, 5_000_000), 0, "time that goes back adds nothing");
    }
}
