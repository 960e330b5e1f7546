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
    event_fd: EventFd,
}

impl Waker {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            state: AtomicU8::new(AWAKE),
            deadline: AtomicU64::new(Micros::MAX),
            event_fd: EventFd::new()?,
        })
    }

    /// Makes the worker look at its machine again: at once if it sleeps, else before it next sleeps.
    pub fn wake(&self) {
        if self.state.swap(NOTIFIED, Ordering::AcqRel) == SLEEPING {
            self.event_fd.set();
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

    /// The worker is awake again; `was_set`: its descriptor was readable.
    pub fn end_sleep(&self, was_set: bool) {
        self.state.swap(AWAKE, Ordering::AcqRel);
        if was_set {
            self.event_fd.clear();
        }
    }

    /// The descriptor that the worker polls while it sleeps.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.event_fd.as_fd()
    }
}

/// Signals to a reader that at least one of several workers has output for it.
pub struct OutputSignal {
    state: Mutex<SignalState>,
    changed: Condvar,
    event_fd: EventFd,
}

struct SignalState {
    /// How many workers have output.
    raised: usize,
    /// The descriptor is in use, so its state must be kept up to date.
    watched: bool,
}

impl OutputSignal {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            state: Mutex::new(SignalState { raised: 0, watched: false }),
            changed: Condvar::new(),
            event_fd: EventFd::new()?,
        })
    }

    /// One more worker has output.
    pub fn raise(&self) {
        let mut state = self.state.lock();
        state.raised += 1;
        if state.raised == 1 {
            if state.watched {
                self.event_fd.set();
            }
            self.changed.notify_all();
        }
    }

    /// One worker less has output.
    pub fn lower(&self) {
        let mut state = self.state.lock();
        state.raised -= 1;
        if state.raised == 0 && state.watched {
            self.event_fd.clear();
        }
    }

    /// Blocks until a worker has output. False: the deadline has passed.
    pub fn wait_until(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        while state.raised == 0 {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return state.raised > 0;
            }
        }
        true
    }

    /// A descriptor that is readable exactly as long as a worker has output. Do not read from it.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        let mut state = self.state.lock();
        if !state.watched {
            state.watched = true;
            if state.raised > 0 {
                self.event_fd.set();
            }
        }
        self.event_fd.as_fd()
    }
}

/// An eventfd: one side makes it readable, the other side unreadable.
struct EventFd {
    file: File,
}

impl EventFd {
    fn new() -> io::Result<Self> {
        Ok(Self { file: File::from(crate::endpoint::socket::event_fd()?) })
    }

    fn set(&self) {
        // The only error is a counter at its limit, and then the descriptor is readable already.
        let _ = (&self.file).write(&1u64.to_ne_bytes());
    }

    fn clear(&self) {
        // The only error is a counter of zero: then it is not readable already.
        let _ = (&self.file).read(&mut [0; 8]);
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
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
    fn a_notification_in_sleep_sets_the_descriptor_once_and_is_consumed() {
        let waker = Waker::new().unwrap();
        assert!(waker.begin_sleep());
        waker.wake();
        waker.wake();
        assert!(waker.event_fd.is_set());
        waker.end_sleep(true);
        assert!(!waker.event_fd.is_set());
        assert!(waker.begin_sleep(), "what was notified in sleep is worked through after it");
    }

    #[test]
    fn a_signal_that_nobody_watches_costs_no_system_call_until_it_is_watched() {
        let signal = OutputSignal::new().unwrap();
        signal.raise();
        assert!(!signal.event_fd.is_set());
        signal.as_fd();
        assert!(signal.event_fd.is_set());
        signal.raise();
        signal.lower();
        assert!(signal.event_fd.is_set());
        signal.lower();
        assert!(!signal.event_fd.is_set());
    }

    impl EventFd {
        fn is_set(&self) -> bool {
            crate::endpoint::socket::wait_readable(self.as_fd().as_raw_fd(), Duration::ZERO).unwrap()
        }
    }
}
