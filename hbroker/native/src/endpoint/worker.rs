//! One thread, one socket, one sans-IO machine.
//!
//! The worker takes the machine's lock for one batch at a time, so that a caller's thread gets its turn. After one of many
//! datagrams it does not sleep before it has asked the socket once more; after few, which takes no time in which many could come, it
//! lets the sleep itself ask. While it works, everything due to a peer gathers and leaves together. Under load
//! it holds off before it listens again, so that it is not woken for every datagram ([`Moderation`]).

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use crate::Micros;
use crate::endpoint::moderation::Moderation;
use crate::endpoint::socket::{self, Arrivals, Intake, Interest, Sleeper, Socket};
use crate::endpoint::state::EndpointState;
use crate::endpoint::traffic;
use crate::endpoint::worker_handle::WorkerHandle;
use crate::sink::DatagramSink;

/// Handoffs that a worker takes in under one hold of the lock.
const HANDOFFS_PER_TURN: usize = 512;

/// Datagrams that are worked through before others are likely to have come.
const FEW: usize = 2;

/// What a worker drives: bytes and time come in; datagrams, output and a deadline come out.
pub trait Machine: Send + 'static {
    /// What one worker's machine has for another's.
    type Handoff: Send + 'static;

    fn handle_datagram(&mut self, now: Micros, source: SocketAddr, datagram: &[u8]);
    fn handle_timeout(&mut self, now: Micros);
    fn handle_handoff(&mut self, now: Micros, handoff: Self::Handoff);
    /// All that came in together has been handled, or a caller has acted.
    fn end_turn(&mut self, _now: Micros) {}

    /// Seals what may leave now. Once the sink is full the rest should wait; the call is then repeated.
    fn poll_transmit(&mut self, now: Micros, sink: &mut impl DatagramSink);
    /// What was sealed is on its way out. The time is asked for where it matters.
    fn note_departure(&mut self, _now: impl FnOnce() -> Micros) {}
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
    /// What is to be done after each turn, once the machine is free again. It is asked for once.
    fn turn_hook(&self) -> Option<Arc<dyn TurnHook>> {
        None
    }
}

/// What follows from a machine's turns elsewhere.
pub trait TurnHook: Send + Sync {
    /// Called without a lock. `is_worker`: by the worker's own thread, which has time for it; a caller's has not.
    fn run(&self, is_worker: bool);
}

/// The thread's side of a worker.
pub struct Worker<M: Machine> {
    index: usize,
    worker_handle: Arc<WorkerHandle<M>>,
    peers: Vec<Arc<WorkerHandle<M>>>,
    socket: Arc<Socket>,
    inbox: Receiver<M::Handoff>,
    /// A handoff whose mailbox is full. Until it is delivered the worker takes in no more datagrams.
    stalled: Option<(u8, M::Handoff)>,
    blocked: bool,
    moderation: Moderation,
}

/// What a worker's thread drives next.
struct Turn {
    /// There is more to do at once.
    has_more: bool,
}

/// How a step of a worker ended that has no thread of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// There is, or may be, more to do at once.
    pub has_more: bool,
    /// When the next step is due, from now on, whatever comes in.
    pub due: Option<Duration>,
}

impl<M: Machine> Worker<M> {
    /// `index`: its number among its peers, which are told by [`Worker::introduce`].
    pub fn new(
        index: usize,
        machine: M,
        socket: Socket,
        endpoint_state: Arc<EndpointState>,
    ) -> io::Result<Self> {
        let socket = Arc::new(socket);
        let (worker_handle, inbox) = WorkerHandle::new(machine, Arc::clone(&socket), endpoint_state)?;
        let worker_handle = Arc::new(worker_handle);
        let moderation = Moderation::default();
        Ok(Self {
            index,
            worker_handle,
            peers: Vec::new(),
            socket,
            inbox,
            stalled: None,
            blocked: false,
            moderation,
        })
    }

    pub fn worker_handle(&self) -> Arc<WorkerHandle<M>> {
        Arc::clone(&self.worker_handle)
    }

    /// All workers of the endpoint, itself included, by number.
    pub fn introduce(&mut self, peers: &[Arc<WorkerHandle<M>>]) {
        self.peers = peers.to_vec();
    }

    /// Works until it is told to stop, or the socket dies.
    pub fn run(self) {
        let mut exit = WorkerExit {
            index: self.index,
            worker_handle: self.worker_handle(),
            fault: Some("panicked".to_owned()),
        };
        // Dropped before the farewell, also by a panic: who hears of a fault finds the socket closed, and its peers with the others.
        let mut worker = self;
        exit.fault = worker.work().err().map(|error| error.to_string());
    }

    /// One batch and what follows from it, for a caller who drives many workers. It sleeps when no step leaves more to do, and
    /// comes back when the socket or the bell is readable, or a step is due. `arrivals`: what its workers share.
    pub fn step(&mut self, arrivals: &mut Arrivals) -> io::Result<Step> {
        let waker = &self.worker_handle.waker;
        waker.end_sleep(!waker.is_sleeping());
        let Intake { may_wait, .. } = self.socket.receive(arrivals, &self.worker_handle.counters)?;
        let Turn { has_more } = self.turn(arrivals)?;
        // To others it sleeps between steps: who has work for it rings.
        let notified = !self.worker_handle.waker.begin_sleep();
        let deadline = self.worker_handle.waker.deadline();
        let due = (deadline != Micros::MAX).then(|| {
            Duration::from_micros(deadline.saturating_sub(self.worker_handle.endpoint_state.clock.now()))
        });
        Ok(Step { has_more: may_wait || has_more || notified || self.blocked, due })
    }

    /// What is readable when a step is due: the socket, and the bell.
    pub fn descriptors(&self) -> (BorrowedFd<'_>, BorrowedFd<'_>) {
        (self.socket.as_fd(), self.worker_handle.waker.as_fd())
    }

    fn work(&mut self) -> io::Result<()> {
        let (mut arrivals, mut sleeper) = (Arrivals::new(), Sleeper::new()?);
        let mut due = true;
        while !self.worker_handle.endpoint_state.stop.load(Ordering::Acquire) {
            let Intake { datagrams, may_wait } = self.receive(&mut arrivals)?;
            self.moderation.took(arrivals.bytes());
            if datagrams > 0 || may_wait || due {
                due = self.turn(&mut arrivals)?.has_more;
                if due || may_wait || datagrams > FEW || self.moderation.is_much() {
                    continue;
                }
            }
            self.sleep(&mut sleeper)?;
            due = true;
        }
        self.turn(&mut arrivals).map(drop)
    }

    fn receive(&mut self, arrivals: &mut Arrivals) -> io::Result<Intake> {
        if self.stalled.is_some() {
            return Ok(Intake::default());
        }
        self.socket.receive_fairly(arrivals, &self.worker_handle.counters)
    }

    /// Works through what came in, under the lock, and sends what follows from it, mostly without.
    fn turn(&mut self, arrivals: &mut Arrivals) -> io::Result<Turn> {
        let worker_handle = Arc::clone(&self.worker_handle);
        let now = worker_handle.endpoint_state.clock.now();
        let mut locked = worker_handle.locked.lock();
        for (source, datagram) in arrivals.datagrams() {
            locked.machine.handle_datagram(now, source, datagram);
        }
        arrivals.clear();
        let more_handoffs = self.take_handoffs(&mut locked.machine, now);
        if locked.machine.poll_timeout().is_some_and(|due| due <= now) {
            locked.machine.handle_timeout(now);
        }
        locked.machine.end_turn(now);
        let wake = self.post_handoffs(&mut locked.machine);
        worker_handle.show_output(&mut locked);
        let mut send_side = worker_handle.send_side.lock();
        if send_side.flush(&worker_handle.counters)? {
            locked.machine.poll_transmit(now, &mut send_side.egress);
            locked.machine.note_departure(|| worker_handle.endpoint_state.clock.now());
            worker_handle.show_output(&mut locked); // What could not be sent is told.
        }
        let more_datagrams = send_side.egress.is_full();
        worker_handle.waker.set_deadline(locked.machine.poll_timeout());
        worker_handle.turned.notify_all();
        drop(locked);
        self.blocked = !send_side.flush(&worker_handle.counters)?;
        drop(send_side);
        for worker in wake {
            self.peers[usize::from(worker)].wake();
        }
        worker_handle.run_turn_hook(true);
        Ok(Turn { has_more: more_handoffs || (more_datagrams && !self.blocked) })
    }

    /// Takes in handoffs from other workers; true: there may be more.
    fn take_handoffs(&mut self, machine: &mut M, now: Micros) -> bool {
        let mut taken = 0;
        for handoff in self.inbox.try_iter().take(HANDOFFS_PER_TURN) {
            machine.handle_handoff(now, handoff);
            taken += 1;
        }
        if taken > 0 && self.worker_handle.starved.swap(false, Ordering::SeqCst) {
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

    fn sleep(&mut self, sleeper: &mut Sleeper) -> io::Result<()> {
        let waker = &self.worker_handle.waker;
        if !waker.begin_sleep() {
            return Ok(());
        }
        let (now, due) = (self.worker_handle.endpoint_state.clock.now(), waker.deadline());
        let hold_off = self.moderation.hold_off();
        traffic::add(&self.worker_handle.counters.hold_offs, usize::from(hold_off.is_some()));
        let listens = self.stalled.is_none() && hold_off.is_none();
        let interest = Interest { readable: listens, writable: self.blocked };
        let rung = match hold_off {
            Some(longest) => {
                let left = Duration::from_micros(due.saturating_sub(now));
                socket::wait(&self.socket, interest, waker.as_fd(), Some(longest.min(left)))
            }
            None => sleeper.sleep(&self.socket, interest, waker.as_fd(), now, due),
        };
        waker.end_sleep(*rung.as_ref().unwrap_or(&false));
        rung.map(drop)
    }
}

/// Sees to it that a worker's end is known, also where it ends by a panic.
struct WorkerExit<M: Machine> {
    index: usize,
    worker_handle: Arc<WorkerHandle<M>>,
    fault: Option<String>,
}

impl<M: Machine> Drop for WorkerExit<M> {
    fn drop(&mut self) {
        self.worker_handle.close();
        if let Some(fault) = self.fault.take() {
            self.worker_handle.endpoint_state.fail(format!("worker {}: {fault}", self.index));
        }
        self.worker_handle.endpoint_state.end_one();
    }
}
