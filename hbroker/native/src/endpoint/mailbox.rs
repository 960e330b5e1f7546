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
use crate::endpoint::sockets::Fleet;
use crate::endpoint::traffic::Counters;
use crate::endpoint::waker::Waker;
use crate::endpoint::worker::{Errand, Machine};
use crate::sink::DatagramSink;

/// A caller that sends by itself more often than this leaves it to the worker, which bundles.
const LULL: Micros = 100;
/// Calls that are gathered before what follows from them happens: nothing waits for a long turn's end.
const MOST_GATHERED: u32 = 128;
/// Handoffs that may wait for a worker.
const MAILBOX: usize = 4_096;

/// The side of a worker that other threads see.
pub struct Station<M: Machine> {
    pub seat: Mutex<Seat<M>>,
    pub outlet: Mutex<Outlet>,
    pub waker: Waker,
    mailbox: SyncSender<M::Handoff>,
    /// A sender found the mailbox full and wants to be woken when it is not.
    pub starved: AtomicBool,
    /// A turn is over: the machine may have drained.
    pub turned: Condvar,
    /// A caller gathers its calls.
    gathers: AtomicBool,
    pub counters: Counters,
    pub fleet: Arc<Fleet>,
    errand: Option<Arc<dyn Errand>>,
}

/// The machine, and what is kept of it under its lock.
pub struct Seat<M> {
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
pub struct Visit<'a, M: Machine> {
    pub now: Micros,
    station: &'a Station<M>,
    /// None: it is over.
    seat: Option<MutexGuard<'a, Seat<M>>>,
}

impl<M: Machine> Visit<'_, M> {
    pub fn machine(&mut self) -> &mut M {
        &mut self.seat.as_mut().expect("it is there until it is dropped").machine
    }
}

impl<M: Machine> Drop for Visit<'_, M> {
    fn drop(&mut self) {
        if let Some(seat) = self.seat.take() {
            self.station.follow_up(seat, self.now);
        }
    }
}

/// What is to leave, and through what.
pub struct Outlet {
    pub egress: Egress,
    /// None once the worker has ended.
    socket: Option<Arc<Socket>>,
}

impl Outlet {
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

impl<M: Machine> Station<M> {
    /// The station, and where its worker finds its mail.
    pub fn new(
        machine: M,
        socket: Arc<Socket>,
        fleet: Arc<Fleet>,
    ) -> io::Result<(Self, Receiver<M::Handoff>)> {
        let (mailbox, mail) = sync_channel(MAILBOX);
        let errand = machine.errand();
        let station = Self {
            seat: Mutex::new(Seat { machine, lit: false, sent_at: 0, gathered: 0, closed: false }),
            outlet: Mutex::new(Outlet { egress: Egress::new(socket.segments()), socket: Some(socket) }),
            waker: Waker::new()?,
            mailbox,
            starved: AtomicBool::new(false),
            turned: Condvar::new(),
            gathers: AtomicBool::new(false),
            counters: Counters::default(),
            fleet,
            errand,
        };
        Ok((station, mail))
    }

    /// Lets the caller at the machine, then sees to it that what follows from the call happens.
    pub fn enter<R>(&self, call: impl FnOnce(&mut M, Micros) -> R) -> R {
        let mut seat = self.seat.lock();
        let now = self.fleet.clock.now();
        let result = call(&mut seat.machine, now);
        if self.gathers.load(Ordering::Relaxed) && seat.gathered < MOST_GATHERED {
            seat.gathered += 1;
        } else {
            self.follow_up(seat, now);
        }
        result
    }

    /// Whether what follows from calls may wait for more of them. False: it happens now.
    pub fn gather(&self, gathers: bool) {
        self.gathers.store(gathers, Ordering::Relaxed);
        if gathers {
            return;
        }
        let seat = self.seat.lock();
        if seat.gathered > 0 {
            self.follow_up(seat, self.fleet.clock.now());
        }
    }

    /// Lets the caller at the machine for as long as it stays; what follows happens when it leaves.
    pub fn visit(&self) -> Visit<'_, M> {
        let seat = self.seat.lock();
        Visit { now: self.fleet.clock.now(), station: self, seat: Some(seat) }
    }

    /// Lets the caller read.
    pub fn inspect<R>(&self, read: impl FnOnce(&M) -> R) -> R {
        read(&self.seat.lock().machine)
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    pub fn wake(&self) {
        self.waker.wake();
    }

    /// Waits until the machine is drained and all of it is sent. False: the deadline, or the worker's end, came first.
    pub fn drain(&self, deadline: Instant) -> bool {
        let mut seat = self.seat.lock();
        loop {
            // The second lock is never held by one who waits for the first.
            if seat.machine.is_drained() && self.outlet.lock().egress.is_empty() {
                return true;
            }
            if seat.closed || self.turned.wait_until(&mut seat, deadline).timed_out() {
                return false;
            }
        }
    }

    fn follow_up(&self, mut seat: MutexGuard<'_, Seat<M>>, now: Micros) {
        seat.gathered = 0;
        seat.machine.end_turn(now);
        self.show_output(&mut seat);
        let leave_it_to_worker = seat.machine.has_handoff()
            || !self.waker.is_sleeping()
            || now < seat.sent_at.saturating_add(LULL);
        let outlet = if leave_it_to_worker { None } else { self.outlet.try_lock() };
        let Some(mut outlet) = outlet.filter(|o| o.egress.is_empty() && o.socket.is_some()) else {
            drop(seat);
            self.waker.wake();
            return self.run_errand(false);
        };
        seat.machine.poll_transmit(now, &mut outlet.egress);
        seat.machine.note_departure(|| self.fleet.clock.now());
        self.show_output(&mut seat); // What could not be sent is told.
        if !outlet.egress.is_empty() {
            seat.sent_at = now;
        }
        let more = outlet.egress.is_full();
        let sooner = seat.machine.poll_timeout().unwrap_or(Micros::MAX) < self.waker.deadline();
        self.turned.notify_all();
        drop(seat);
        // An error is left to the worker, which will meet it again.
        let all_sent = outlet.flush(&self.counters).unwrap_or(false);
        drop(outlet);
        if more || sooner || !all_sent {
            self.waker.wake();
        }
        self.run_errand(false);
    }

    /// Sees to what follows elsewhere from a turn that is over.
    pub fn run_errand(&self, is_worker: bool) {
        if let Some(errand) = &self.errand {
            errand.run(is_worker);
        }
    }

    /// Signals to the reader that the machine has output, or has none any more.
    pub fn show_output(&self, seat: &mut Seat<M>) {
        let lit = seat.machine.has_output();
        if lit != seat.lit {
            seat.lit = lit;
            if lit { self.fleet.output.light() } else { self.fleet.output.extinguish() }
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
        let mut seat = self.seat.lock();
        seat.closed = true;
        let mut outlet = self.outlet.lock();
        outlet.socket = None;
        self.turned.notify_all();
    }
}
