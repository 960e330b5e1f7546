//! A worker as other threads see it: the mailbox for its commands, and the lock of the worker itself.
//!
//! A thread that has left commands may *stand in* for the worker's thread: while that thread sleeps, the
//! other runs the worker's iteration, which saves a wake-up. So a lock guards the worker. Only the worker's
//! own thread waits for this lock; another thread that finds it locked wakes the worker's thread instead. Of
//! all locks that are taken together this one is taken first, so a thread that stands in holds no other lock.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use mio::{Events, Poll};
use parking_lot::Mutex;

use super::counters::Counters;
use super::mailbox::{Mailbox, WAKER};
use super::protocol::Protocol;
use super::worker::{Worker, WorkerCommand};
use crate::endpoint::clock::Clock;

/// The most events of one poll.
const EVENTS: usize = 1_024;

/// See the module.
pub struct WorkerHandle<P: Protocol> {
    mailbox: Mailbox<WorkerCommand<P::Command>>,
    pub counters: Arc<Counters>,
    clock: Clock,
    /// None: the worker has ended.
    worker: Mutex<Option<Worker<P>>>,
}

/// Takes the commands for a worker's protocol.
pub trait CommandSink<C>: Send + Sync {
    /// Queues a command, and wakes the worker.
    fn post(&self, command: C);

    /// Queues a command without waking the worker. The caller calls `run_pending` later.
    fn post_without_wake(&self, command: C);

    /// Has the queued commands handled soon: by the calling thread, if it `may_run_here` and the worker's
    /// thread sleeps, else by that thread. A caller that `may_run_here` must hold no lock.
    fn run_pending(&self, may_run_here: bool);
}

impl<P: Protocol> CommandSink<P::Command> for WorkerHandle<P> {
    fn post(&self, command: P::Command) {
        self.order(WorkerCommand::Command(command));
    }

    fn post_without_wake(&self, command: P::Command) {
        self.mailbox.post_without_wake(WorkerCommand::Command(command));
    }

    fn run_pending(&self, may_run_here: bool) {
        if !(may_run_here && self.mailbox.is_sleeping() && self.run_here()) {
            self.mailbox.wake();
        }
    }
}

impl<P: Protocol> WorkerHandle<P> {
    /// Number `index` in its server. Returns the poll for `run`.
    pub fn new(index: u8, protocol: P, clock: Clock) -> io::Result<(Self, Poll)> {
        let poll = Poll::new()?;
        let mailbox = Mailbox::new(&poll, WAKER)?;
        let counters = Arc::default();
        let registry = poll.registry().try_clone()?;
        let worker = Worker::new(index, protocol, registry, clock, Arc::clone(&counters));
        Ok((Self { mailbox, counters, clock, worker: Mutex::new(Some(worker)) }, poll))
    }

    /// Queues a command for the worker itself, and wakes it.
    pub fn order(&self, order: WorkerCommand<P::Command>) {
        self.mailbox.post(order);
    }

    /// The main function of the worker's thread. It returns when the worker is over.
    pub fn run(&self, mut poll: Poll) -> io::Result<()> {
        let _end = End(self);
        let mut events = Events::with_capacity(EVENTS);
        let mut wait = Duration::ZERO;
        loop {
            let polled = poll.poll(&mut events, Some(wait));
            self.mailbox.end_sleep();
            match polled {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            let mut worker = self.worker.lock();
            let Some(worker) = &mut *worker else {
                return Ok(());
            };
            worker.hear(&events);
            let now = self.clock.now();
            worker.work(now, &self.mailbox)?;
            if worker.is_over(now) {
                return Ok(());
            }
            wait = worker.rest(&self.mailbox);
        }
    }

    /// Runs an iteration in place of the sleeping thread. False: the caller must wake the thread.
    fn run_here(&self) -> bool {
        let Some(mut worker) = self.worker.try_lock() else {
            return false;
        };
        let Some(worker) = &mut *worker else {
            return true;
        };
        worker.run_here(self.clock.now(), &self.mailbox)
    }
}

/// Drops the worker and its connections when the thread ends, in whatever way.
struct End<'a, P: Protocol>(&'a WorkerHandle<P>);

impl<P: Protocol> Drop for End<'_, P> {
    fn drop(&mut self) {
        let worker = self.0.worker.lock().take();
        drop(worker);
    }
}
