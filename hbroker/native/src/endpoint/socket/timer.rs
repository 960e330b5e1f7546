//! A timer that outlasts the sleeps it ends.
//!
//! A call that sleeps for a limited time sets a timer of the kernel's each time, and takes it back when something else wakes it. Where no
//! other timer of that CPU is due before, each of the two programs the clock, for which a virtual machine is left: some six microseconds,
//! twice. A worker is woken by far more datagrams than deadlines, though, and most deadlines are put off before they come. So this one
//! stays as it is set unless the next deadline is sooner; where it rings too early it is set anew.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};
use std::ptr;

use super::check;
use crate::Micros;

/// It is this late at most, so that what wakes its owner anyway mostly comes before.
const MOST_LATE: Micros = 1_000;
/// Where it would ring within this for nothing, it is set anew at once.
const SOON: Micros = 1_000;

/// A descriptor that is readable once a time has come.
pub struct Timer {
    timer: File,
    /// The deadline it was set for; `Micros::MAX`: none.
    set_for: Micros,
    /// When it rings.
    rings_at: Micros,
    /// It has rung, and does until it is set anew.
    rings: bool,
}

impl Timer {
    pub fn new() -> io::Result<Self> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: takes no pointers; the descriptor is new and nobody else's.
        let timer = unsafe { File::from_raw_fd(check(libc::timerfd_create(libc::CLOCK_MONOTONIC, flags))?) };
        Ok(Self { timer, set_for: Micros::MAX, rings_at: Micros::MAX, rings: false })
    }

    /// Rings at `due`, or a little later, or sooner for nothing. `due` is after `now`; `Micros::MAX`: never.
    pub fn keep(&mut self, now: Micros, due: Micros) -> io::Result<()> {
        let rings_for_nothing = self.rings_at < due && self.rings_at < now + SOON;
        if due < self.set_for || rings_for_nothing || self.rings {
            self.set(now, due)?;
        }
        Ok(())
    }

    fn set(&mut self, now: Micros, due: Micros) -> io::Result<()> {
        let rings_at = due.saturating_add(((due - now) / 4).min(MOST_LATE));
        // All zeroes: never.
        let left = if due == Micros::MAX { 0 } else { rings_at - now };
        let after = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: libc::timespec {
                tv_sec: libc::time_t::try_from(left / 1_000_000).unwrap_or(libc::time_t::MAX),
                tv_nsec: (left % 1_000_000) as libc::c_long * 1_000,
            },
        };
        // SAFETY: `after` outlives the call, and what was set before is not asked for.
        check(unsafe {
            libc::timerfd_settime(self.timer.as_raw_fd(), 0, &raw const after, ptr::null_mut())
        })?;
        self.set_for = due;
        self.rings_at = rings_at;
        self.rings = false;
        Ok(())
    }

    /// What the descriptor was found to be: readable, or not.
    pub fn heard(&mut self, rings: bool) {
        self.rings = rings;
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::wait_readable;
    use super::*;

    #[test]
    fn a_deadline_that_is_put_off_leaves_it_as_it_is() {
        let mut timer = Timer::new().unwrap();
        timer.keep(1_000, 6_000).unwrap();
        assert_eq!(timer.rings_at, 7_000);
        for now in (1_500..5_500).step_by(500) {
            timer.keep(now, now + 5_000).unwrap();
            assert_eq!(timer.rings_at, 7_000);
        }
    }

    #[test]
    fn a_sooner_deadline_sets_it_anew() {
        let mut timer = Timer::new().unwrap();
        timer.keep(1_000, 6_000).unwrap();
        timer.keep(1_000, 5_999).unwrap();
        assert_eq!(timer.rings_at, 6_999);
        timer.keep(5_950, 5_999).unwrap();
        assert_eq!(timer.rings_at, 6_999, "how late it may be does not shrink with what is left");
        timer.keep(5_950, 5_998).unwrap();
        assert_eq!(timer.rings_at, 6_010);
    }

    #[test]
    fn it_does_not_ring_for_nothing_while_its_owner_is_awake_to_set_it() {
        let mut timer = Timer::new().unwrap();
        timer.keep(1_000, 6_000).unwrap();
        timer.keep(6_500, 9_000).unwrap();
        assert_eq!(timer.rings_at, 9_625);
        timer.keep(9_000, Micros::MAX).unwrap();
        assert!(!wait_readable(timer.as_fd().as_raw_fd(), Duration::from_millis(3)).unwrap());
    }

    #[test]
    fn it_rings_on_time_until_it_is_set_anew() {
        let mut timer = Timer::new().unwrap();
        for (due, at_least) in [(20_000, 20), (u64::MAX, 0), (30_000, 30), (1, 0)] {
            let start = Instant::now();
            timer.keep(0, due).unwrap();
            let patience = if due == u64::MAX { Duration::ZERO } else { Duration::from_secs(20) };
            let rings = wait_readable(timer.as_fd().as_raw_fd(), patience).unwrap();
            timer.heard(rings);
            assert_eq!(rings, due != u64::MAX);
            assert!(start.elapsed() >= Duration::from_millis(at_least));
        }
    }
}
