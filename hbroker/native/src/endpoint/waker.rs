//! Wake-ups that are never lost, and that cost nothing if nobody sleeps.
//!
//! [`Waker`] wakes a worker from `poll`. Its state is one of awake, sleeping, and notified, as in a thread
//! parker. A thread that has work for the worker notifies it, which costs a system call only if the worker
//! has announced that it sleeps. A worker that is about to sleep finds a notification that arrived meanwhile,
//! and stays awake.
//!
//! [`OutputSignal`] signals to the reader (Python) that events or messages are waiting: by a descriptor that
//! is readable exactly as long as they wait, for a selector, and by a condition variable, for a thread that
//! blocks.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::Micros;

const AWAKE: u8 = 0;
const SLEEPING: u8 = 1;
const NOTIFIED: u8 = 2;

/// Wakes one worker from `poll`.
pub struct Waker {
    state: AtomicU8,
    deadline: AtomicU64,
    bell: Doorbell,
}

impl Waker {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            state: AtomicU8::new(AWAKE),
            deadline: AtomicU64::new(Micros::MAX),
            bell: Doorbell::new()?,
        })
    }

    /// Makes the worker look at its machine again: at once if it sleeps, else before it next sleeps.
    pub fn wake(&self) {
        if self.state.swap(NOTIFIED, Ordering::AcqRel) == SLEEPING {
            self.bell.ring();
        }
    }

    pub fn is_sleeping(&self) -> bool {
        self.state.load(Ordering::Acquire) == SLEEPING
    }

    /// The worker announces when it will wake by itself. Called under the machine's lock, as is `deadline`.
    pub fn set_deadline(&self, deadline: Option<Micros>) {
        self.deadline.store(deadline.unwrap_or(Micros::MAX), Ordering::Relaxed);
    }

    /// When the worker will wake by itself.
    pub fn deadline(&self) -> Micros {
        self.deadline.load(Ordering::Relaxed)
    }

    /// The worker announces that it will sleep. False: it was notified since it last woke, and must not
    /// sleep.
    pub fn begin_sleep(&self) -> bool {
        let slept = self.state.compare_exchange(AWAKE, SLEEPING, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if !slept {
            self.state.store(AWAKE, Ordering::Release);
        }
        slept
    }

    /// The worker is awake again; `rung`: its descriptor was readable.
    pub fn end_sleep(&self, rung: bool) {
        self.state.swap(AWAKE, Ordering::AcqRel);
        if rung {
            self.bell.silence();
        }
    }

    /// The descriptor that the worker polls while it sleeps.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// Signals to a reader that at least one of several workers has output for it.
pub struct OutputSignal {
    state: Mutex<Signalled>,
    changed: Condvar,
    bell: Doorbell,
}

struct Signalled {
    /// How many workers have output.
    lit: usize,
    /// The descriptor is in use, so its state must be kept up to date.
    watched: bool,
}

impl OutputSignal {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            state: Mutex::new(Signalled { lit: 0, watched: false }),
            changed: Condvar::new(),
            bell: Doorbell::new()?,
        })
    }

    /// One more worker has output.
    pub fn light(&self) {
        let mut state = self.state.lock();
        state.lit += 1;
        if state.lit == 1 {
            if state.watched {
                self.bell.ring();
            }
            self.changed.notify_all();
        }
    }

    /// One worker less has output.
    pub fn extinguish(&self) {
        let mut state = self.state.lock();
        state.lit -= 1;
        if state.lit == 0 && state.watched {
            self.bell.silence();
        }
    }

    /// Blocks until a worker has output. False: the deadline has passed.
    pub fn wait_until(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        while state.lit == 0 {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return state.lit > 0;
            }
        }
        true
    }

    /// A descriptor that is readable exactly as long as a worker has output. Do not read from it.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        let mut state = self.state.lock();
        if !state.watched {
            state.watched = true;
            if state.lit > 0 {
                self.bell.ring();
            }
        }
        self.bell.as_fd()
    }
}

/// A descriptor that one side makes readable and the other side unreadable.
struct Doorbell {
    event: File,
}

impl Doorbell {
    fn new() -> io::Result<Self> {
        Ok(Self { event: File::from(crate::endpoint::socket::event_fd()?) })
    }

    fn ring(&self) {
        // The only error is a counter at its limit, and then the descriptor is readable already.
        let _ = (&self.event).write(&1u64.to_ne_bytes());
    }

    fn silence(&self) {
        // The only error is a counter of zero: then it is not readable already.
        let _ = (&self.event).read(&mut [0; 8]);
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_notification_before_sleep_prevents_it_once() {
        let waker = Waker::new().unwrap();
        waker.wake();
        waker.wake();
        assert!(!waker.begin_sleep());
        assert!(waker.begin_sleep());
        assert!(waker.is_sleeping());
        waker.end_sleep(false);
        assert!(!waker.is_sleeping());
    }

    #[test]
    fn a_notification_in_sleep_rings_once_and_is_consumed() {
        let waker = Waker::new().unwrap();
        assert!(waker.begin_sleep());
        waker.wake();
        waker.wake();
        assert!(waker.bell.is_ringing());
        waker.end_sleep(true);
        assert!(!waker.bell.is_ringing());
        assert!(waker.begin_sleep(), "what was notified in sleep is worked through after it");
    }

    #[test]
    fn a_signal_that_nobody_watches_costs_no_ring_until_it_is_watched() {
        let signal = OutputSignal::new().unwrap();
        signal.light();
        assert!(!signal.bell.is_ringing());
        signal.as_fd();
        assert!(signal.bell.is_ringing());
        signal.light();
        signal.extinguish();
        assert!(signal.bell.is_ringing());
        signal.extinguish();
        assert!(!signal.bell.is_ringing());
    }

    impl Doorbell {
        fn is_ringing(&self) -> bool {
            crate::endpoint::socket::wait_readable(self.as_fd().as_raw_fd(), Duration::ZERO).unwrap()
        }
    }
}
