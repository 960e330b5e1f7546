//! A worker as other threads see it: its machine behind a lock, its way out, its mailbox, its waker.
//!
//! Datagrams leave under a second lock, which is taken while the first is still held (hand over hand): so they leave in
//! the order in which they were sealed, and the machine is free while the kernel works.
//!
//! A caller's thread that finds the worker asleep sends by itself, which spares the time to wake a thread (on loopback
//! that halves the latency). If it calls again within [`LULL`] it wakes the worker instead: what it queues meanwhile
//! leaves together. A caller that knows that it will call often says so (`gather`): then what follows from its calls
//! happens once for many of them, and at the latest when it is done.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Instant;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::Micros;
use crate::endpoint::egress::Egress;
use crate::endpoint::socket::Socket;
use crate::endpoint::state::EndpointState;
use crate::endpoint::traffic::Counters;
use crate::endpoint::waker::Waker;
use crate::endpoint::worker::{Machine, TurnHook};
use crate::sink::DatagramSink;

/// A caller that sends by itself more often than this leaves it to the worker, which bundles.
const LULL: Micros = 100;
/// Calls that are gathered before what follows from them happens: nothing waits for a long turn's end.
const MOST_GATHERED: u32 = 128;
/// Handoffs that may wait for a worker.
const MAILBOX: usize = 4_096;

/// The side of a worker that other threads see.
pub struct WorkerHandle<M: Machine> {
    pub locked: Mutex<LockedMachine<M>>,
    pub send_side: Mutex<SendSide>,
    pub waker: Waker,
    mailbox: SyncSender<M::Handoff>,
    /// A sender found the mailbox full and wants to be woken when it is not.
    pub starved: AtomicBool,
    /// A turn is over: the machine may have drained.
    pub turned: Condvar,
    /// A caller gathers its calls.
    gathers: AtomicBool,
    pub counters: Counters,
    pub endpoint_state: Arc<EndpointState>,
    turn_hook: Option<Arc<dyn TurnHook>>,
}

/// The machine, and what is kept of it under its lock.
pub struct LockedMachine<M> {
    pub machine: M,
    /// Its output is signalled.
    lit: bool,
    /// When a caller last sent by itself.
    sent_at: Micros,
    /// Calls of which nothing has followed yet.
    gathered: u32,
    /// The worker has ended.
    closed: bool,
}

/// A caller's stay at a machine.
pub struct Guard<'a, M: Machine> {
    pub now: Micros,
    worker_handle: &'a WorkerHandle<M>,
    /// None: it is over.
    locked: Option<MutexGuard<'a, LockedMachine<M>>>,
}

impl<M: Machine> Guard<'_, M> {
    pub fn machine(&mut self) -> &mut M {
        &mut self.locked.as_mut().expect("it is there until it is dropped").machine
    }
}

impl<M: Machine> Drop for Guard<'_, M> {
    fn drop(&mut self) {
        if let Some(locked) = self.locked.take() {
            self.worker_handle.follow_up(locked, self.now);
        }
    }
}

/// What is to leave, and through what.
pub struct SendSide {
    pub egress: Egress,
    /// None once the worker has ended.
    socket: Option<Arc<Socket>>,
}

impl SendSide {
    /// Sends what the socket takes; see [`Egress::flush`].
    pub fn flush(&mut self, counters: &Counters) -> io::Result<bool> {
        match &self.socket {
            Some(socket) => {
                self.egress.flush(counters, |bytes, messages| socket.send(bytes, messages, counters))
            }
            None => Ok(true),
        }
    }
}

impl<M: Machine> WorkerHandle<M> {
    /// The station, and where its worker finds its mail.
    pub fn new(
        machine: M,
        socket: Arc<Socket>,
        endpoint_state: Arc<EndpointState>,
    ) -> io::Result<(Self, Receiver<M::Handoff>)> {
        let (mailbox, inbox) = sync_channel(MAILBOX);
        let turn_hook = machine.turn_hook();
        let worker_handle = Self {
            locked: Mutex::new(LockedMachine { machine, lit: false, sent_at: 0, gathered: 0, closed: false }),
            send_side: Mutex::new(SendSide { egress: Egress::new(socket.segments()), socket: Some(socket) }),
            waker: Waker::new()?,
            mailbox,
            starved: AtomicBool::new(false),
            turned: Condvar::new(),
            gathers: AtomicBool::new(false),
            counters: Counters::default(),
            endpoint_state,
            turn_hook,
        };
        Ok((worker_handle, inbox))
    }

    /// Lets the caller at the machine, then sees to it that what follows from the call happens.
    pub fn enter<R>(&self, call: impl FnOnce(&mut M, Micros) -> R) -> R {
        let mut locked = self.locked.lock();
        let now = self.endpoint_state.clock.now();
        let result = call(&mut locked.machine, now);
        if self.gathers.load(Ordering::Relaxed) && locked.gathered < MOST_GATHERED {
            locked.gathered += 1;
        } else {
            self.follow_up(locked, now);
        }
        result
    }

    /// Whether what follows from calls may wait for more of them. False: it happens now.
    pub fn gather(&self, gathers: bool) {
        self.gathers.store(gathers, Ordering::Relaxed);
        if gathers {
            return;
        }
        let locked = self.locked.lock();
        if locked.gathered > 0 {
            self.follow_up(locked, self.endpoint_state.clock.now());
        }
    }

    /// Lets the caller at the machine for as long as it stays; what follows happens when it leaves.
    pub fn guard(&self) -> Guard<'_, M> {
        let locked = self.locked.lock();
        Guard { now: self.endpoint_state.clock.now(), worker_handle: self, locked: Some(locked) }
    }

    /// Lets the caller read.
    pub fn inspect<R>(&self, read: impl FnOnce(&M) -> R) -> R {
        read(&self.locked.lock().machine)
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    pub fn wake(&self) {
        self.waker.wake();
    }

    /// Waits until the machine is drained and all of it is sent. False: the deadline, or the worker's end, came first.
    pub fn drain(&self, deadline: Instant) -> bool {
        let mut locked = self.locked.lock();
        loop {
            // The second lock is never held by one who waits for the first.
            if locked.machine.is_drained() && self.send_side.lock().egress.is_empty() {
                return true;
            }
            if locked.closed || self.turned.wait_until(&mut locked, deadline).timed_out() {
                return false;
            }
        }
    }

    fn follow_up(&self, mut locked: MutexGuard<'_, LockedMachine<M>>, now: Micros) {
        locked.gathered = 0;
        locked.machine.end_turn(now);
        self.show_output(&mut locked);
        let leave_it_to_worker = locked.machine.has_handoff()
            || !self.waker.is_sleeping()
            || now < locked.sent_at.saturating_add(LULL);
        let send_side = if leave_it_to_worker { None } else { self.send_side.try_lock() };
        let Some(mut send_side) = send_side.filter(|o| o.egress.is_empty() && o.socket.is_some()) else {
            drop(locked);
            self.waker.wake();
            return self.run_turn_hook(false);
        };
        locked.machine.poll_transmit(now, &mut send_side.egress);
        locked.machine.note_departure(|| self.endpoint_state.clock.now());
        self.show_output(&mut locked); // What could not be sent is told.
        if !send_side.egress.is_empty() {
            locked.sent_at = now;
        }
        let more = send_side.egress.is_full();
        let sooner = locked.machine.poll_timeout().unwrap_or(Micros::MAX) < self.waker.deadline();
        self.turned.notify_all();
        drop(locked);
        // An error is left to the worker, which will meet it again.
        let all_sent = send_side.flush(&self.counters).unwrap_or(false);
        drop(send_side);
        if more || sooner || !all_sent {
            self.waker.wake();
        }
        self.run_turn_hook(false);
    }

    /// Sees to what follows elsewhere from a turn that is over.
    pub fn run_turn_hook(&self, is_worker: bool) {
        if let Some(turn_hook) = &self.turn_hook {
            turn_hook.run(is_worker);
        }
    }

    /// Signals to the reader that the machine has output, or has none any more.
    pub fn show_output(&self, locked: &mut LockedMachine<M>) {
        let lit = locked.machine.has_output();
        if lit != locked.lit {
            locked.lit = lit;
            if lit { self.endpoint_state.output.light() } else { self.endpoint_state.output.extinguish() }
        }
    }

    /// Puts a handoff into the mailbox; gives it back where that is full, and wakes everyone when it no longer is.
    pub fn post(&self, handoff: M::Handoff) -> Result<(), M::Handoff> {
        let Err(TrySendError::Full(handoff)) = self.mailbox.try_send(handoff) else {
            return Ok(());
        };
        self.starved.store(true, Ordering::SeqCst);
        // Again, because it may have been emptied before the flag was seen.
        match self.mailbox.try_send(handoff) {
            Err(TrySendError::Full(handoff)) => Err(handoff),
            Ok(()) | Err(TrySendError::Disconnected(_)) => Ok(()),
        }
    }

    /// The worker has ended: nothing is sent any more.
    pub fn close(&self) {
        let mut locked = self.locked.lock();
        locked.closed = true;
        let mut send_side = self.send_side.lock();
        send_side.socket = None;
        self.turned.notify_all();
    }
}
