//! The queue of commands to a worker.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use mio::{Poll, Token, Waker};
use parking_lot::Mutex;

/// The token of the event that wakes a worker.
pub const WAKER: Token = Token(usize::MAX);

/// The queue of commands to a worker, with one wake-up for all commands that gather while the worker sleeps. Its
/// senders bound it, because they know which messages they may drop.
pub struct Mailbox<T> {
    queue: Mutex<Vec<T>>,
    /// The worker sleeps or is about to, so a sender must wake it.
    sleeping: AtomicBool,
    waker: Waker,
}

impl<T> Mailbox<T> {
    /// `token`: the token of the wake-up event in the worker's poll.
    pub fn new(poll: &Poll, token: Token) -> io::Result<Self> {
        let waker = Waker::new(poll.registry(), token)?;
        Ok(Self { queue: Mutex::new(Vec::new()), sleeping: AtomicBool::new(false), waker })
    }

    pub fn post(&self, command: T) {
        self.post_without_wake(command);
        self.wake();
    }

    /// As `post`, without waking the worker.
    pub fn post_without_wake(&self, command: T) {
        self.queue.lock().push(command);
    }

    pub fn is_sleeping(&self) -> bool {
        self.sleeping.load(Ordering::SeqCst)
    }

    /// Wakes the worker if it sleeps.
    pub fn wake(&self) {
        if self.sleeping.swap(false, Ordering::SeqCst) {
            // The only error is a counter at its limit, and then a wake-up is pending already.
            let _ = self.waker.wake();
        }
    }

    /// The worker announces that it will sleep; false: the queue is not empty, and it must not sleep.
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

    /// Takes all commands. `into` must be empty; its memory becomes that of the queue.
    pub fn take(&self, into: &mut Vec<T>) {
        std::mem::swap(&mut *self.queue.lock(), into);
    }
}
