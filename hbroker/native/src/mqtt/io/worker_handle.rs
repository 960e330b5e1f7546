//! A worker as other threads see it: where its mail is left, and where it is found while its thread sleeps.
//!
//! Whoever leaves mail and has time may *stand in*: where the thread sleeps, its work is done by the one who is awake, which spares
//! the time to wake another. So a worker is behind a lock, which is its thread's whenever that is up. Nobody waits for it but that thread: who finds it
//! taken wakes the thread instead. It is the first lock of those that are taken together; who stands in holds none.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use mio::{Events, Poll, Token};
use parking_lot::Mutex;

use super::counters::Counters;
use super::mailbox::Mailbox;
use super::protocol::Protocol;
use super::worker::{Worker, WorkerCommand};
use crate::endpoint::clock::Clock;

pub const WAKER: Token = Token(usize::MAX);
/// Events that one poll tells of.
const EVENTS: usize = 1_024;

/// See the module.
pub struct WorkerHandle<P: Protocol> {
    mailbox: Mailbox<WorkerCommand<P::Command>>,
    pub counters: Arc<Counters>,
    clock: Clock,
    /// None: it has ended.
    worker: Mutex<Option<Worker<P>>>,
}

/// A worker as those see it who have commands for it.
pub trait CommandSender<M>: Send + Sync {
    /// Has a command obeyed soon.
    fn post(&self, command: M);
    /// Leaves a command, which is obeyed once the worker is up; `run_pending` sees to that.
    fn leave(&self, command: M);
    /// Has what was left obeyed soon: here and now, if the caller `may_run_here` and the worker's thread sleeps. Then the caller must hold no lock.
    fn run_pending(&self, may_run_here: bool);
}

impl<P: Protocol> WorkerHandle<P> {
    /// Number `index` among its server's, and what `run` needs.
    pub fn new(index: u8, protocol: P, clock: Clock) -> io::Result<(Self, Poll)> {
        let poll = Poll::new()?;
        let mailbox = Mailbox::new(&poll, WAKER)?;
        let counters = Arc::default();
        let registry = poll.registry().try_clone()?;
        let worker = Worker::new(index, protocol, registry, clock, Arc::clone(&counters));
        Ok((Self { mailbox, counters, clock, worker: Mutex::new(Some(worker)) }, poll))
    }

    /// Has an order carried out soon.
    pub fn order(&self, order: WorkerCommand<P::Command>) {
        self.mailbox.post(order);
    }

    /// The worker's thread: works until it is told to stop.
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

    /// Does the work of the thread, which sleeps. False: it is needed itself.
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

impl<P: Protocol> CommandSender<P::Command> for WorkerHandle<P> {
    fn post(&self, command: P::Command) {
        self.mailbox.post(WorkerCommand::Command(command));
    }

    fn leave(&self, command: P::Command) {
        self.mailbox.leave(WorkerCommand::Command(command));
    }

    fn run_pending(&self, may_run_here: bool) {
        if !(may_run_here && self.mailbox.is_sleeping() && self.run_here()) {
            self.mailbox.wake();
        }
    }
}

/// However the thread ends, the worker ends with it, and its connections.
struct End<'a, P: Protocol>(&'a WorkerHandle<P>);

impl<P: Protocol> Drop for End<'_, P> {
    fn drop(&mut self) {
        let worker = self.0.worker.lock().take();
        drop(worker);
    }
}
