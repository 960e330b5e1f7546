//! What other threads have for a worker: a queue, and one wake-up for whatever gathers while it sleeps.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use mio::{Poll, Token, Waker};
use parking_lot::Mutex;

/// A worker's queue. Its bound is its senders' affair: they know what may be dropped.
pub struct Mailbox<T> {
    queue: Mutex<Vec<T>>,
    /// The worker sleeps, or is about to: it is to be woken.
    sleeping: AtomicBool,
    waker: Waker,
}

impl<T> Mailbox<T> {
    /// `token`: what the worker's poll sees when it is woken.
    pub fn new(poll: &Poll, token: Token) -> io::Result<Self> {
        let waker = Waker::new(poll.registry(), token)?;
        Ok(Self { queue: Mutex::new(Vec::new()), sleeping: AtomicBool::new(false), waker })
    }

    pub fn post(&self, inbox: T) {
        self.leave(inbox);
        self.wake();
    }

    /// As `post`, but wakes nobody.
    pub fn leave(&self, inbox: T) {
        self.queue.lock().push(inbox);
    }

    pub fn is_sleeping(&self) -> bool {
        self.sleeping.load(Ordering::SeqCst)
    }

    /// Makes the worker look again, at once.
    pub fn wake(&self) {
        if self.sleeping.swap(false, Ordering::SeqCst) {
            // The only error is a counter at its limit, and then the worker is being woken already.
            let _ = self.waker.wake();
        }
    }

    /// The worker announces that it will sleep; false: there is mail, and it must not.
    pub fn begin_sleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        let may = self.queue.lock().is_empty();
        if !may {
            self.end_sleep();
        }
        may
    }

    pub fn end_sleep(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
    }

    /// Takes all mail; `into` is empty before, and its memory is used for what comes next.
    pub fn take(&self, into: &mut Vec<T>) {
        std::mem::swap(&mut *self.queue.lock(), into);
    }
}
