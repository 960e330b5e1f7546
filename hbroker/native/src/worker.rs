//! One thread, one socket, one sans-IO machine.
//!
//! The machine is behind a lock that the worker takes for one batch at a time, so that a caller's thread gets its turn.
//! Datagrams leave under a second lock, which is taken while the first is still held (hand over hand): so they leave in
//! the order in which they were sealed, and the machine is free while the kernel works.
//!
//! A caller's thread that finds the worker asleep sends by itself, which spares the time to wake a thread. If it calls
//! again within [`LULL`] it wakes the worker instead: what it queues meanwhile leaves together.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::Micros;
use crate::egress::Egress;
use crate::sink::DatagramSink;
use crate::socket::{self, Arrivals, Counters, Interest, Socket};
use crate::waker::{OutputSignal, Waker};

/// A caller that sends by itself more often than this leaves it to the worker, which bundles.
const LULL: Micros = 100;
/// Handoffs that may wait for a worker.
const MAILBOX: usize = 4_096;
/// Handoffs that a worker takes in under one hold of the lock.
const HANDOFFS_PER_TURN: usize = 512;

/// What a worker drives: bytes and time come in; datagrams, output and a deadline come out.
pub trait Machine: Send + 'static {
    /// What one worker's machine has for another's.
    type Handoff: Send + 'static;

    fn handle_datagram(&mut self, now: Micros, source: SocketAddr, datagram: &[u8]);
    fn handle_timeout(&mut self, now: Micros);
    fn handle_handoff(&mut self, now: Micros, handoff: Self::Handoff);

    /// Seals what may leave now. Once the sink is full the rest should wait; the call is then repeated.
    fn poll_transmit(&mut self, now: Micros, sink: &mut impl DatagramSink);
    /// The next handoff and the worker it is for.
    fn poll_handoff(&mut self) -> Option<(u8, Self::Handoff)>;
    /// `poll_handoff` has something.
    fn has_handoff(&self) -> bool;
    /// When `handle_timeout` is due.
    fn poll_timeout(&self) -> Option<Micros>;
    /// Events or messages wait for the reader.
    fn has_output(&self) -> bool;
    /// Nothing is queued and nothing unacknowledged.
    fn is_drained(&self) -> bool;
}

/// A monotonic clock, the same for all workers of an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    pub fn start() -> Self {
        Self {
            origin: Instant::now(),
        }
    }

    pub fn now(&self) -> Micros {
        self.origin.elapsed().as_micros() as Micros
    }
}

/// What the workers of an endpoint have in common.
pub struct Fleet {
    pub clock: Clock,
    pub output: OutputSignal,
    pub stop: AtomicBool,
    state: Mutex<FleetState>,
    ended: Condvar,
}

struct FleetState {
    running: usize,
    fault: Option<String>,
}

impl Fleet {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            clock: Clock::start(),
            output: OutputSignal::new()?,
            stop: AtomicBool::new(false),
            state: Mutex::new(FleetState {
                running: 0,
                fault: None,
            }),
            ended: Condvar::new(),
        })
    }

    /// Why a worker ended that should not have. Output is signalled from then on, so that the reader looks.
    pub fn fault(&self) -> Option<String> {
        self.state.lock().fault.clone()
    }

    /// Waits until every worker has ended. False: the deadline came first.
    pub fn wait_ended(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        while state.running > 0 {
            if self.ended.wait_until(&mut state, deadline).timed_out() {
                return state.running == 0;
            }
        }
        true
    }

    fn fail(&self, fault: String) {
        let mut state = self.state.lock();
        if state.fault.is_none() {
            state.fault = Some(fault);
            self.output.light();
        }
    }

    /// One more worker is about to run; it counts itself out.
    pub fn begin_one(&self) {
        self.state.lock().running += 1;
    }

    /// A worker has ended, or could not be started.
    pub fn end_one(&self) {
        self.state.lock().running -= 1;
        self.ended.notify_all();
    }
}

/// The side of a worker that other threads see.
pub struct Station<M: Machine> {
    seat: Mutex<Seat<M>>,
    outlet: Mutex<Outlet>,
    waker: Waker,
    mailbox: SyncSender<M::Handoff>,
    /// A sender found the mailbox full and wants to be woken when it is not.
    starved: AtomicBool,
    /// A turn is over: the machine may have drained.
    turned: Condvar,
    counters: Counters,
    fleet: Arc<Fleet>,
}

struct Seat<M> {
    machine: M,
    /// Its output is signalled.
    lit: bool,
    /// When a caller last sent by itself.
    sent_at: Micros,
    /// The worker has ended.
    closed: bool,
}

struct Outlet {
    egress: Egress,
    /// None once the worker has ended.
    socket: Option<Arc<Socket>>,
}

impl Outlet {
    fn flush(&mut self, counters: &Counters) -> io::Result<bool> {
        match &self.socket {
            Some(socket) => self.egress.flush(counters, |bytes, messages| {
                socket.send(bytes, messages, counters)
            }),
            None => Ok(true),
        }
    }
}

impl<M: Machine> Station<M> {
    /// Lets the caller at the machine, then sees to it that what follows from the call happens.
    pub fn enter<R>(&self, call: impl FnOnce(&mut M, Micros) -> R) -> R {
        let mut seat = self.seat.lock();
        let now = self.fleet.clock.now();
        let result = call(&mut seat.machine, now);
        self.follow_up(seat, now);
        result
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
        self.show_output(&mut seat);
        let leave_it_to_worker = seat.machine.has_handoff()
            || !self.waker.is_sleeping()
            || now < seat.sent_at.saturating_add(LULL);
        let outlet = if leave_it_to_worker {
            None
        } else {
            self.outlet.try_lock()
        };
        let Some(mut outlet) = outlet.filter(|o| o.egress.is_empty() && o.socket.is_some()) else {
            drop(seat);
            return self.waker.wake();
        };
        seat.machine.poll_transmit(now, &mut outlet.egress);
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
    }

    fn show_output(&self, seat: &mut Seat<M>) {
        let lit = seat.machine.has_output();
        if lit != seat.lit {
            seat.lit = lit;
            if lit {
                self.fleet.output.light()
            } else {
                self.fleet.output.extinguish()
            }
        }
    }
}

/// The thread's side of a worker.
pub struct Worker<M: Machine> {
    index: usize,
    station: Arc<Station<M>>,
    peers: Vec<Arc<Station<M>>>,
    socket: Arc<Socket>,
    arrivals: Arrivals,
    mail: Receiver<M::Handoff>,
    /// A handoff whose mailbox is full. Until it is delivered the worker takes in no more datagrams.
    stalled: Option<(u8, M::Handoff)>,
    blocked: bool,
}

/// How a turn ended.
struct Turn {
    /// There is more to do at once.
    again: bool,
}

impl<M: Machine> Worker<M> {
    /// `index`: its number among its peers, which are told by [`Worker::introduce`].
    pub fn new(index: usize, machine: M, socket: Socket, fleet: Arc<Fleet>) -> io::Result<Self> {
        let (mailbox, mail) = sync_channel(MAILBOX);
        let socket = Arc::new(socket);
        let station = Arc::new(Station {
            seat: Mutex::new(Seat {
                machine,
                lit: false,
                sent_at: 0,
                closed: false,
            }),
            outlet: Mutex::new(Outlet {
                egress: Egress::new(socket.segments()),
                socket: Some(Arc::clone(&socket)),
            }),
            waker: Waker::new()?,
            mailbox,
            starved: AtomicBool::new(false),
            turned: Condvar::new(),
            counters: Counters::default(),
            fleet,
        });
        Ok(Self {
            index,
            station,
            peers: Vec::new(),
            socket,
            arrivals: Arrivals::new(),
            mail,
            stalled: None,
            blocked: false,
        })
    }

    pub fn station(&self) -> Arc<Station<M>> {
        Arc::clone(&self.station)
    }

    /// All workers of the endpoint, itself included, by number.
    pub fn introduce(&mut self, peers: &[Arc<Station<M>>]) {
        self.peers = peers.to_vec();
    }

    /// Works until it is told to stop, or the socket dies.
    pub fn run(mut self) {
        let farewell = Farewell {
            index: self.index,
            station: self.station(),
            clean: false,
        };
        let ended = self.work();
        farewell.say(ended);
    }

    fn work(&mut self) -> io::Result<()> {
        let mut due = true;
        while !self.station.fleet.stop.load(Ordering::Acquire) {
            let received = self.receive()?;
            if received > 0 || due {
                due = self.turn()?.again;
            } else {
                self.sleep()?;
                due = true;
            }
        }
        self.turn().map(drop)
    }

    fn receive(&mut self) -> io::Result<usize> {
        if self.stalled.is_some() {
            return Ok(0);
        }
        self.socket
            .receive(&mut self.arrivals, &self.station.counters)
    }

    /// Works through what came in, under the lock, and sends what follows from it, mostly without.
    fn turn(&mut self) -> io::Result<Turn> {
        let station = Arc::clone(&self.station);
        let now = station.fleet.clock.now();
        let mut seat = station.seat.lock();
        for (source, datagram) in self.arrivals.datagrams() {
            seat.machine.handle_datagram(now, source, datagram);
        }
        self.arrivals.clear();
        let more_mail = self.take_mail(&mut seat.machine, now);
        if seat.machine.poll_timeout().is_some_and(|due| due <= now) {
            seat.machine.handle_timeout(now);
        }
        let wake = self.post_handoffs(&mut seat.machine);
        station.show_output(&mut seat);
        let mut outlet = station.outlet.lock();
        if outlet.flush(&station.counters)? {
            seat.machine.poll_transmit(now, &mut outlet.egress);
        }
        let more_datagrams = outlet.egress.is_full();
        station.waker.set_deadline(seat.machine.poll_timeout());
        station.turned.notify_all();
        drop(seat);
        self.blocked = !outlet.flush(&station.counters)?;
        drop(outlet);
        for worker in wake {
            self.peers[usize::from(worker)].wake();
        }
        Ok(Turn {
            again: more_mail || (more_datagrams && !self.blocked),
        })
    }

    /// Takes in handoffs from other workers; true: there may be more.
    fn take_mail(&mut self, machine: &mut M, now: Micros) -> bool {
        let mut taken = 0;
        for handoff in self.mail.try_iter().take(HANDOFFS_PER_TURN) {
            machine.handle_handoff(now, handoff);
            taken += 1;
        }
        if taken > 0 && self.station.starved.swap(false, Ordering::SeqCst) {
            self.peers.iter().for_each(|peer| peer.wake());
        }
        taken == HANDOFFS_PER_TURN
    }

    /// Delivers handoffs to other workers' mailboxes; returns whom to wake.
    fn post_handoffs(&mut self, machine: &mut M) -> Vec<u8> {
        let mut wake = Vec::new();
        while let Some((to, handoff)) = self.stalled.take().or_else(|| machine.poll_handoff()) {
            // A machine that names a worker that does not exist loses the handoff, as with one that has ended.
            let Some(peer) = self.peers.get(usize::from(to)) else {
                continue;
            };
            match peer.post(handoff) {
                Ok(()) if wake.contains(&to) => {}
                Ok(()) => wake.push(to),
                Err(handoff) => {
                    self.stalled = Some((to, handoff));
                    break;
                }
            }
        }
        wake
    }

    fn sleep(&mut self) -> io::Result<()> {
        let waker = &self.station.waker;
        if !waker.begin_sleep() {
            return Ok(());
        }
        let timeout = match waker.deadline() {
            Micros::MAX => None,
            deadline => Some(Duration::from_micros(
                deadline.saturating_sub(self.station.fleet.clock.now()),
            )),
        };
        let interest = Interest {
            readable: self.stalled.is_none(),
            writable: self.blocked,
        };
        let rung = socket::wait(&self.socket, interest, waker.as_fd(), timeout);
        waker.end_sleep(*rung.as_ref().unwrap_or(&false));
        rung.map(drop)
    }
}

impl<M: Machine> Station<M> {
    /// Puts a handoff into the mailbox; gives it back where that is full, and wakes everyone when it no longer is.
    fn post(&self, handoff: M::Handoff) -> Result<(), M::Handoff> {
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

    fn close(&self) {
        let mut seat = self.seat.lock();
        seat.closed = true;
        let mut outlet = self.outlet.lock();
        outlet.socket = None;
        self.turned.notify_all();
    }
}

/// Sees to it that a worker's end is known, also where it ends by a panic.
struct Farewell<M: Machine> {
    index: usize,
    station: Arc<Station<M>>,
    clean: bool,
}

impl<M: Machine> Farewell<M> {
    fn say(mut self, ended: io::Result<()>) {
        self.clean = true;
        if let Err(error) = ended {
            self.station
                .fleet
                .fail(format!("worker {}: {error}", self.index));
        }
    }
}

impl<M: Machine> Drop for Farewell<M> {
    fn drop(&mut self) {
        if !self.clean {
            self.station
                .fleet
                .fail(format!("worker {} panicked", self.index));
        }
        self.station.close();
        self.station.fleet.end_one();
    }
}
