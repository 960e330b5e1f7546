//! A worker as other threads see it: its machine behind a lock, its output, its mailbox, its waker.
//!
//! A second lock guards the output. It is taken while the first is still held (hand over hand). So datagrams
//! leave in the order in which they were built, and the machine is free while the kernel sends.
//!
//! If a caller's thread finds the worker asleep, it sends itself, which saves a wake-up (on loopback that
//! halves the latency). If it calls again within [`LULL`], it wakes the worker instead, and what it queues
//! meanwhile leaves together. A caller that will call often announces it (`gather`). Then the effects of its
//! calls happen once for many of them, at the latest when it ends the announcement.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Instant;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::Micros;
use crate::endpoint::EndpointState;
use crate::endpoint::egress::Egress;
use crate::endpoint::machine::{Machine, TurnHook};
use crate::endpoint::sealed::Sealed;
use crate::endpoint::socket::Socket;
use crate::endpoint::traffic::Counters;
use crate::endpoint::waker::Waker;
use crate::sink::DatagramSink;

/// If a caller sends more often than this, it leaves sending to the worker, which puts several packets into a
/// datagram.
const LULL: Micros = 100;
/// How many gathered calls may be without effect, so that nothing waits until the end of a long series.
const MOST_GATHERED: u32 = 128;
/// How many handoffs may wait for a worker.
const MAILBOX: usize = 4_096;

/// The side of a worker that other threads see.
pub struct WorkerHandle<M: Machine> {
    pub locked: Mutex<LockedMachine<M>>,
    pub send_side: Mutex<SendSide>,
    pub waker: Waker,
    mailbox: SyncSender<M::Handoff>,
    /// A sender found the mailbox full, and must be woken when it no longer is.
    pub starved: AtomicBool,
    /// Notified after each iteration: the machine may have drained.
    pub turned: Condvar,
    /// A caller gathers its calls.
    gathers: AtomicBool,
    pub counters: Counters,
    pub endpoint_state: Arc<EndpointState>,
    turn_hook: Option<Arc<dyn TurnHook>>,
}

/// The machine, and the state that its lock guards.
pub struct LockedMachine<M> {
    pub sealed: Sealed<M>,
    /// Whether its output is signalled.
    is_signalled: bool,
    /// When a caller last sent itself.
    sent_at: Micros,
    /// How many calls have had no effect yet.
    gathered: u32,
    /// The worker has ended.
    closed: bool,
}

/// A caller's access to a machine.
pub struct Guard<'a, M: Machine> {
    pub now: Micros,
    worker_handle: &'a WorkerHandle<M>,
    /// None after it is dropped.
    locked: Option<MutexGuard<'a, LockedMachine<M>>>,
}

impl<M: Machine> Guard<'_, M> {
    pub fn machine(&mut self) -> &mut M {
        &mut self.locked.as_mut().expect("it is there until it is dropped").sealed.machine
    }
}

impl<M: Machine> Drop for Guard<'_, M> {
    fn drop(&mut self) {
        if let Some(locked) = self.locked.take() {
            self.worker_handle.follow_up(locked, self.now);
        }
    }
}

/// The output of a worker: the collected datagrams, and the socket.
pub struct SendSide {
    pub egress: Egress,
    /// None once the worker has ended.
    socket: Option<Arc<Socket>>,
}

impl SendSide {
    /// Sends until the socket takes no more; see [`Egress::flush`].
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
    /// The handle of a worker, and the receiving side of its mailbox.
    pub fn new(
        sealed: Sealed<M>,
        socket: Arc<Socket>,
        endpoint_state: Arc<EndpointState>,
    ) -> io::Result<(Self, Receiver<M::Handoff>)> {
        let (mailbox, inbox) = sync_channel(MAILBOX);
        let turn_hook = sealed.machine.turn_hook();
        let worker_handle = Self {
            locked: Mutex::new(LockedMachine {
                sealed,
                is_signalled: false,
                sent_at: 0,
                gathered: 0,
                closed: false,
            }),
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

    /// Calls the machine, then sends what has become due.
    pub fn enter<R>(&self, call: impl FnOnce(&mut M, Micros) -> R) -> R {
        let mut locked = self.locked.lock();
        let now = self.endpoint_state.clock.now();
        let result = call(&mut locked.sealed.machine, now);
        if self.gathers.load(Ordering::Relaxed) && locked.gathered < MOST_GATHERED {
            locked.gathered += 1;
        } else {
            self.follow_up(locked, now);
        }
        result
    }

    /// Calls the machine or its associations, and sends what they have, as far as the socket takes it.
    pub fn send_off(&self, call: impl FnOnce(&mut Sealed<M>, Micros)) {
        let mut locked = self.locked.lock();
        let now = self.endpoint_state.clock.now();
        call(&mut locked.sealed, now);
        let mut send_side = self.send_side.lock();
        loop {
            locked.sealed.poll_transmit(now, &mut send_side.egress);
            let has_more = send_side.egress.is_full();
            // The worker will meet an error again, and handles it.
            if !send_side.flush(&self.counters).unwrap_or(false) || !has_more {
                return;
            }
        }
    }

    /// Whether the effects of calls may wait for more calls. False: they happen now.
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

    /// Access to the machine until the guard is dropped; then what has become due is sent.
    pub fn guard(&self) -> Guard<'_, M> {
        let locked = self.locked.lock();
        Guard { now: self.endpoint_state.clock.now(), worker_handle: self, locked: Some(locked) }
    }

    /// Calls the machine for reading.
    pub fn inspect<R>(&self, read: impl FnOnce(&M) -> R) -> R {
        read(&self.locked.lock().sealed.machine)
    }

    /// Waits until the machine is drained and all of it is sent. False: the deadline has passed, or the
    /// worker has ended.
    pub fn drain(&self, deadline: Instant) -> bool {
        let mut locked = self.locked.lock();
        loop {
            // No thread holds the second lock while it waits for the first.
            if locked.sealed.is_drained() && self.send_side.lock().egress.is_empty() {
                return true;
            }
            if locked.closed || self.turned.wait_until(&mut locked, deadline).timed_out() {
                return false;
            }
        }
    }

    fn follow_up(&self, mut locked: MutexGuard<'_, LockedMachine<M>>, now: Micros) {
        locked.gathered = 0;
        locked.sealed.machine.end_turn(now);
        self.show_output(&mut locked);
        let leave_it_to_worker = locked.sealed.machine.has_handoff()
            || !self.waker.is_sleeping()
            || now < locked.sent_at.saturating_add(LULL);
        let send_side = if leave_it_to_worker { None } else { self.send_side.try_lock() };
        let Some(mut send_side) = send_side.filter(|o| o.egress.is_empty() && o.socket.is_some()) else {
            drop(locked);
            self.waker.wake();
            return self.run_turn_hook(false);
        };
        locked.sealed.poll_transmit(now, &mut send_side.egress);
        locked.sealed.machine.note_departure(|| self.endpoint_state.clock.now());
        self.show_output(&mut locked); // Messages that could not be sent are reported.
        if !send_side.egress.is_empty() {
            locked.sent_at = now;
        }
        let more = send_side.egress.is_full();
        let sooner = locked.sealed.poll_timeout().unwrap_or(Micros::MAX) < self.waker.deadline();
        self.turned.notify_all();
        drop(locked);
        // The worker will meet an error again, and handles it.
        let all_sent = send_side.flush(&self.counters).unwrap_or(false);
        drop(send_side);
        if more || sooner || !all_sent {
            self.waker.wake();
        }
        self.run_turn_hook(false);
    }

    /// Runs the hook after an iteration.
    pub fn run_turn_hook(&self, is_worker: bool) {
        if let Some(turn_hook) = &self.turn_hook {
            turn_hook.run(is_worker);
        }
    }

    /// Signals to the reader whether the machine has output.
    pub fn show_output(&self, locked: &mut LockedMachine<M>) {
        let is_signalled = locked.sealed.machine.has_output();
        if is_signalled != locked.is_signalled {
            locked.is_signalled = is_signalled;
            if is_signalled { self.endpoint_state.output.raise() } else { self.endpoint_state.output.lower() }
        }
    }

    /// Puts a handoff into the mailbox. If that is full, returns the handoff; the sender will be woken when
    /// it is not.
    pub fn post(&self, handoff: M::Handoff) -> Result<(), M::Handoff> {
        let Err(TrySendError::Full(handoff)) = self.mailbox.try_send(handoff) else {
            return Ok(());
        };
        self.starved.store(true, Ordering::SeqCst);
        // Once more, because the worker may have emptied the mailbox before it could see the flag.
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
