//! The clock of an endpoint. Leases end by it (§5.6).

use std::time::SystemTime;

use rustix::time::{ClockId, clock_gettime};

use crate::Micros;

/// A clock that goes on while the machine is suspended. With a clock that stands still, a node that wakes up
/// would serve subtrees that its parent has taken back meanwhile.
const CLOCK: ClockId = ClockId::Boottime;

/// A monotonic clock, the same for all workers of an endpoint. It counts microseconds since the Unix epoch,
/// as of the system's clock at the start, so that nodes agree on the age of address tokens (§4.2) and epochs
/// rise across restarts (§5.1).
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    unix_offset: Micros,
}

impl Clock {
    pub fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let unix = Micros::try_from(since_epoch.as_micros()).unwrap_or(Micros::MAX);
        Self { unix_offset: unix.saturating_sub(since_boot()) }
    }

    pub fn now(&self) -> Micros {
        self.unix_offset + since_boot()
    }

    /// How much `now` is ahead of the machine's own clock. Python uses that clock, so both agree on the end
    /// of a lease.
    pub fn unix_offset(&self) -> Micros {
        self.unix_offset
    }
}

fn since_boot() -> Micros {
    let time = clock_gettime(CLOCK);
    time.tv_sec as Micros * 1_000_000 + time.tv_nsec as Micros / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_time_is_the_machines_and_an_offset() {
        let clock = Clock::start();
        let (before, now, after) = (since_boot(), clock.now(), since_boot());
        assert!((before..=after).contains(&(now - clock.unix_offset())));
    }
}
