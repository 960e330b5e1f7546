//! A timer that stays set across several sleeps.
//!
//! A system call that sleeps for a limited time sets a timer of the kernel, and cancels it when something
//! else wakes the caller. If no other timer of that CPU is due before, both operations program the clock,
//! which makes a virtual machine exit: some six microseconds, twice. But datagrams wake a worker far more
//! often than deadlines do, and most deadlines move later before they come. So this timer stays set unless
//! the next deadline is sooner. If it fires before the deadline, it is set again.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};
use std::ptr;

use super::check;
use crate::Micros;

/// The most that it fires late. It is late so that something else mostly wakes its owner first.
const MOST_LATE: Micros = 1_000;

/// A descriptor that becomes readable at a set time.
pub struct Timer {
    timer: File,
    /// The deadline for which it is set; `Micros::MAX`: none.
    set_for: Micros,
}

impl Timer {
    pub fn new() -> io::Result<Self> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // The clock of `endpoint::clock`: a deadline that comes while the machine is suspended is over when it wakes.
        // SAFETY: takes no pointers; the descriptor is new and nobody else's.
        let timer = unsafe { File::from_raw_fd(check(libc::timerfd_create(libc::CLOCK_BOOTTIME, flags))?) };
        Ok(Self { timer, set_for: Micros::MAX })
    }

    /// Makes the timer fire at `due`, or up to a quarter of the remaining time later, or also before, which
    /// costs a wake-up. `due` must be after `now`; `Micros::MAX`: never.
    pub fn keep(&mut self, now: Micros, due: Micros) -> io::Result<()> {
        // If the deadline it is set for has passed, the timer has fired or will fire in vain.
        if due < self.set_for || self.set_for <= now {
            self.set(now, due)?;
            self.set_for = due;
        }
        Ok(())
    }

    fn set(&self, now: Micros, due: Micros) -> io::Result<()> {
        let left = due - now;
        // All zeroes disarm the timer.
        let after = if due == Micros::MAX { 0 } else { left + (left / 4).min(MOST_LATE) };
        let time = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: libc::timespec {
                tv_sec: libc::time_t::try_from(after / 1_000_000).unwrap_or(libc::time_t::MAX),
                tv_nsec: (after % 1_000_000) as libc::c_long * 1_000,
            },
        };
        // SAFETY: `time` outlives the call, and what was set before is not asked for.
        check(unsafe { libc::timerfd_settime(self.timer.as_raw_fd(), 0, &raw const time, ptr::null_mut()) })
            .map(drop)
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

    const NEVER: Micros = Micros::MAX;

    impl Timer {
        /// Microseconds until it rings; none: it does not.
        fn left(&self) -> Option<Micros> {
            // SAFETY: plain data, for which all zeroes are a value; it outlives the call that fills it.
            let time = unsafe {
                let mut time: libc::itimerspec = std::mem::zeroed();
                check(libc::timerfd_gettime(self.timer.as_raw_fd(), &raw mut time)).unwrap();
                time.it_value
            };
            let left = Duration::new(time.tv_sec as u64, time.tv_nsec as u32);
            (!left.is_zero()).then_some(left.as_micros() as Micros)
        }
    }

    #[test]
    fn a_deadline_that_is_put_off_leaves_it_as_it_is() {
        const DAY: Micros = 86_400_000_000;
        let mut timer = Timer::new().unwrap();
        timer.keep(0, DAY).unwrap();
        for due in [DAY, 2 * DAY, NEVER] {
            timer.keep(DAY - 1, due).unwrap();
            assert_eq!(
                (timer.set_for, timer.left().is_some_and(|left| left <= DAY + MOST_LATE)),
                (DAY, true)
            );
        }
    }

    #[test]
    fn a_sooner_one_sets_it_anew_and_one_that_is_over_does() {
        const HOUR: Micros = 3_600_000_000;
        let mut timer = Timer::new().unwrap();
        timer.keep(0, 9 * HOUR).unwrap();
        timer.keep(HOUR, 3 * HOUR).unwrap();
        assert!(timer.left().is_some_and(|left| (HOUR..=2 * HOUR + MOST_LATE).contains(&left)));
        timer.keep(3 * HOUR, 8 * HOUR).unwrap();
        assert!(timer.left().is_some_and(|left| (4 * HOUR..=5 * HOUR + MOST_LATE).contains(&left)));
        timer.keep(8 * HOUR, NEVER).unwrap();
        assert_eq!(timer.left(), None);
        timer.keep(8 * HOUR, 9 * HOUR).unwrap();
        assert!(timer.left().is_some());
    }

    #[test]
    fn it_rings_when_it_is_time_until_it_is_set_anew() {
        let (mut timer, mut now) = (Timer::new().unwrap(), 0);
        for wait in [20_000, 1, 30_000] {
            let start = Instant::now();
            timer.keep(now, now + wait).unwrap();
            assert!(wait_readable(timer.as_fd().as_raw_fd(), Duration::from_secs(20)).unwrap());
            assert!(start.elapsed() >= Duration::from_micros(wait));
            now += wait + MOST_LATE;
        }
        timer.keep(now, NEVER).unwrap();
        assert!(!wait_readable(timer.as_fd().as_raw_fd(), Duration::ZERO).unwrap());
    }
}
