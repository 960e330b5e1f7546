//! Sleeps until a socket is ready, a wake-up descriptor is readable, or a time has come.
//!
//! A system call that sleeps for a limited time sets a timer of the kernel, and cancels it when something
//! else wakes the caller. If no other timer of that CPU is due before, both operations program the clock,
//! which makes a virtual machine exit: some six microseconds, twice. But datagrams wake a worker far more
//! often than deadlines do, and most deadlines move later before they come. So the timer of a [`Sleeper`] stays set unless
//! the next deadline is sooner. If it fires before the deadline, it is set again.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, RawFd};
use std::ptr;
use std::time::Duration;

use super::{Socket, check};
use crate::Micros;

/// The most that it fires late. It is late so that something else mostly wakes its owner first.
const MOST_LATE: Micros = 1_000;

/// What to wait for on the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    pub readable: bool,
    pub writable: bool,
}

/// Blocks until the socket is ready for `interest`, `event_fd` is readable, or the time is over (`None`: no
/// limit). Returns whether `event_fd` is readable.
pub fn wait(
    socket: &Socket,
    interest: Interest,
    event_fd: BorrowedFd<'_>,
    timeout: Option<Duration>,
) -> io::Result<bool> {
    let mut polled = [interest.in_socket(socket), readable(event_fd)];
    poll(&mut polled, timeout)?;
    Ok(polled[1].revents & libc::POLLIN != 0)
}

/// Blocks until the descriptor is readable or the time is over. Returns whether it is readable. (The time has
/// the resolution of a nanosecond, unlike that of epoll.)
pub fn wait_readable(fd: RawFd, timeout: Duration) -> io::Result<bool> {
    let mut polled = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }];
    poll(&mut polled, Some(timeout))?;
    Ok(polled[0].revents & libc::POLLIN != 0)
}

/// How a worker sleeps: as [`wait`], with a timer that it keeps between sleeps.
pub struct Sleeper {
    /// A descriptor that becomes readable at a set time.
    timer: File,
    /// The deadline for which it is set; `Micros::MAX`: none.
    set_for: Micros,
}

impl Sleeper {
    pub fn new() -> io::Result<Self> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // The clock of `endpoint::clock`: a deadline that comes while the machine is suspended is over when it wakes.
        // SAFETY: takes no pointers; the descriptor is new and nobody else's.
        let timer = unsafe { File::from_raw_fd(check(libc::timerfd_create(libc::CLOCK_BOOTTIME, flags))?) };
        Ok(Self { timer, set_for: Micros::MAX })
    }

    /// Blocks as [`wait`] does, until `due` (`Micros::MAX`: for ever) on a clock that shows `now`. It may
    /// return before, or a little later.
    pub fn sleep(
        &mut self,
        socket: &Socket,
        interest: Interest,
        event_fd: BorrowedFd<'_>,
        now: Micros,
        due: Micros,
    ) -> io::Result<bool> {
        if due <= now {
            return Ok(false);
        }
        self.keep(now, due)?;
        let mut polled = [interest.in_socket(socket), readable(event_fd), readable(self.timer.as_fd())];
        poll(&mut polled, None)?;
        Ok(polled[1].revents & libc::POLLIN != 0)
    }

    /// Makes the timer fire at `due`, or up to a quarter of the remaining time later, or also before, which
    /// costs a wake-up. `due` must be after `now`; `Micros::MAX`: never.
    fn keep(&mut self, now: Micros, due: Micros) -> io::Result<()> {
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

impl Interest {
    fn in_socket(self, socket: &Socket) -> libc::pollfd {
        let readable = if self.readable { libc::POLLIN } else { 0 };
        let writable = if self.writable { libc::POLLOUT } else { 0 };
        libc::pollfd { fd: socket.as_fd().as_raw_fd(), events: readable | writable, revents: 0 }
    }
}

fn readable(descriptor: BorrowedFd<'_>) -> libc::pollfd {
    libc::pollfd { fd: descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 }
}

/// Blocks as `ppoll` does; a signal ends it before its time.
fn poll(polled: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<()> {
    let timeout = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: t.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    let count = polled.len() as libc::nfds_t;
    // SAFETY: the pointer and the count are those of one slice; `timeout` is null or points to a value that outlives the
    // call.
    let result = unsafe { libc::ppoll(polled.as_mut_ptr(), count, timeout, ptr::null()) };
    match check(result) {
        Ok(_) if polled.iter().any(|p| p.revents & libc::POLLNVAL != 0) => {
            Err(io::Error::from_raw_os_error(libc::EBADF))
        }
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const NEVER: Micros = Micros::MAX;

    impl Sleeper {
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
        let mut timer = Sleeper::new().unwrap();
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
        let mut timer = Sleeper::new().unwrap();
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
        let (mut timer, mut now) = (Sleeper::new().unwrap(), 0);
        for wait in [20_000, 1, 30_000] {
            let start = Instant::now();
            timer.keep(now, now + wait).unwrap();
            assert!(wait_readable(timer.timer.as_raw_fd(), Duration::from_secs(20)).unwrap());
            assert!(start.elapsed() >= Duration::from_micros(wait));
            now += wait + MOST_LATE;
        }
        timer.keep(now, NEVER).unwrap();
        assert!(!wait_readable(timer.timer.as_raw_fd(), Duration::ZERO).unwrap());
    }
}
