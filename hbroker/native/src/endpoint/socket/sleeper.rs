//! Sleeps until a socket is ready, a wake-up descriptor is readable, or a time has come.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use libc::c_int;

use super::timer::Timer;
use super::{Socket, check};
use crate::Micros;

/// What to wait for on the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    pub readable: bool,
    pub writable: bool,
}

/// Blocks until the socket is ready for `interest`, `bell` is readable, or the time is over (None: no limit).
/// Returns whether `bell` is readable.
pub fn wait(
    socket: &Socket,
    interest: Interest,
    bell: BorrowedFd<'_>,
    timeout: Option<Duration>,
) -> io::Result<bool> {
    let mut polled = [interest.in_socket(socket), readable(bell)];
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
    timer: Timer,
}

impl Sleeper {
    pub fn new() -> io::Result<Self> {
        Ok(Self { timer: Timer::new()? })
    }

    /// Blocks as [`wait`] does, until `due` (`Micros::MAX`: for ever) on a clock that shows `now`. It may
    /// return before, or a little later.
    pub fn sleep(
        &mut self,
        socket: &Socket,
        interest: Interest,
        bell: BorrowedFd<'_>,
        now: Micros,
        due: Micros,
    ) -> io::Result<bool> {
        if due <= now {
            return Ok(false);
        }
        self.timer.keep(now, due)?;
        let mut polled = [interest.in_socket(socket), readable(bell), readable(self.timer.as_fd())];
        poll(&mut polled, None)?;
        Ok(polled[1].revents & libc::POLLIN != 0)
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
    match check(poll_call(polled, timeout)) {
        Ok(_) if polled.iter().any(|p| p.revents & libc::POLLNVAL != 0) => {
            Err(io::Error::from_raw_os_error(libc::EBADF))
        }
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

fn poll_call(polled: &mut [libc::pollfd], timeout: Option<Duration>) -> c_int {
    let timeout = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: t.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the pointer and the count are those of one slice; `timeout` is null or points to a value that outlives the
    // call.
    unsafe { libc::ppoll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout, std::ptr::null()) }
}
