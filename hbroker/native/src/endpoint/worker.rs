//! A worker: one thread, one socket, one sans-IO machine.
//!
//! The worker takes the machine's lock for one batch at a time, so that callers' threads get the lock in
//! between. After a batch of many datagrams it polls the socket once more before it sleeps. After a batch of
//! few, which takes so little time that hardly any can have arrived, the sleep itself polls. While the worker
//! handles a batch, everything that is due to a peer is collected, and leaves together. Under load the worker
//! holds off before it listens again, so that not every datagram wakes it ([`Moderation`]).

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use crate::Micros;
use crate::endpoint::EndpointState;
use crate::endpoint::machine::Machine;
use crate::endpoint::moderation::Moderation;
use crate::endpoint::sealed::Sealed;
use crate::endpoint::socket::{self, Arrivals, Intake, Interest, Sleeper, Socket};
use crate::endpoint::traffic;
use crate::endpoint::worker_handle::WorkerHandle;
use crate::sink::DatagramSink;

/// The most handoffs that a worker handles in one iteration.
const HANDOFFS_PER_TURN: usize = 512;

/// After at most this many datagrams, others are not likely to have arrived.
const FEW: usize = 2;

/// The side of a worker that its thread uses.
pub struct Worker<M: Machine> {
    index: usize,
    worker_handle: Arc<WorkerHandle<M>>,
    peers: Vec<Arc<WorkerHandle<M>>>,
    socket: Arc<Socket>,
    inbox: Receiver<M::Handoff>,
    /// A handoff to a worker whose mailbox is full. Until it is delivered this worker receives no more
    /// datagrams.
    stalled: Option<(u8, M::Handoff)>,
    blocked: bool,
    moderation: Moderation,
}

/// The result of a step of a worker without a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// There is, or may be, more to do at once.
    pub has_more: bool,
    /// The time until the next step is due, even if nothing is received.
    pub due: Option<Duration>,
}

impl<M: Machine> Worker<M> {
    /// `index`: its number in the endpoint. [`Worker::introduce`] sets its peers.
    pub fn new(
        index: usize,
        sealed: Sealed<M>,
        socket: Socket,
        endpoint_state: Arc<EndpointState>,
    ) -> io::Result<Self> {
        let socket = Arc::new(socket);
        let (worker_handle, inbox) = WorkerHandle::new(sealed, Arc::clone(&socket), endpoint_state)?;
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

    /// Sets all workers of the endpoint, itself included, by number.
    pub fn introduce(&mut self, peers: &[Arc<WorkerHandle<M>>]) {
        self.peers = peers.to_vec();
    }

    /// Works until it must stop, or the socket fails.
    pub fn run(self) {
        let mut exit = WorkerExit {
            index: self.index,
            worker_handle: self.worker_handle(),
            fault: Some("panicked".to_owned()),
        };
        // Dropped before `exit`, also after a panic: when the fault is reported, the socket is closed and the
        // worker holds no handle of its peers.
        let mut worker = self;
        exit.fault = worker.work().err().map(|error| error.to_string());
    }

    /// Handles one batch and its effects, for a caller that drives many workers. The caller sleeps when no
    /// step leaves more to do, and calls again when the socket or the wake-up descriptor is readable, or a
    /// step is due. `arrivals`: shared by the caller's workers.
    pub fn step(&mut self, arrivals: &mut Arrivals) -> io::Result<Step> {
        let waker = &self.worker_handle.waker;
        waker.end_sleep(!waker.is_sleeping());
        let Intake { may_wait, .. } = self.socket.receive(arrivals, &self.worker_handle.counters)?;
        let has_more = self.turn(arrivals)?;
        // For other threads the worker sleeps between steps, so a thread with work for it wakes it.
        let notified = !self.worker_handle.waker.begin_sleep();
        let deadline = self.worker_handle.waker.deadline();
        let due = (deadline != Micros::MAX).then(|| {
            Duration::from_micros(deadline.saturating_sub(self.worker_handle.endpoint_state.clock.now()))
        });
        Ok(Step { has_more: may_wait || has_more || notified || self.blocked, due })
    }

    /// The descriptors that are readable when a step is due: those of the socket and of the waker.
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
                due = self.turn(&mut arrivals)?;
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
        if self.stalled.is_some() || self.is_deaf() {
            return Ok(Intake::default());
        }
        self.socket.receive_fairly(arrivals, &self.worker_handle.counters)
    }

    fn is_deaf(&self) -> bool {
        self.worker_handle.endpoint_state.deaf.load(Ordering::Acquire)
    }

    /// Handles received datagrams under the lock, and sends the results, mostly without the lock. True: there is
    /// more to do at once.
    fn turn(&mut self, arrivals: &mut Arrivals) -> io::Result<bool> {
        let worker_handle = Arc::clone(&self.worker_handle);
        let now = worker_handle.endpoint_state.clock.now();
        let mut locked = worker_handle.locked.lock();
        for (source, datagram) in arrivals.datagrams() {
            locked.sealed.handle_datagram(now, source, datagram);
        }
        arrivals.clear();
        let more_handoffs = self.take_handoffs(&mut locked.sealed.machine, now);
        locked.sealed.handle_timeout(now);
        locked.sealed.machine.end_turn(now);
        let wake = self.post_handoffs(&mut locked.sealed.machine);
        worker_handle.show_output(&mut locked);
        let mut send_side = worker_handle.send_side.lock();
        if send_side.flush(&worker_handle.counters)? {
            locked.sealed.poll_transmit(now, &mut send_side.egress);
            locked.sealed.machine.note_departure(|| worker_handle.endpoint_state.clock.now());
            worker_handle.show_output(&mut locked); // Messages that could not be sent are reported.
        }
        let more_datagrams = send_side.egress.is_full();
        worker_handle.waker.set_deadline(locked.sealed.poll_timeout());
        worker_handle.turned.notify_all();
        drop(locked);
        self.blocked = !send_side.flush(&worker_handle.counters)?;
        drop(send_side);
        for worker in wake {
            self.peers[usize::from(worker)].waker.wake();
        }
        worker_handle.run_turn_hook(true);
        Ok(more_handoffs || (more_datagrams && !self.blocked))
    }

    /// Handles handoffs from other workers; true: there may be more.
    fn take_handoffs(&mut self, machine: &mut M, now: Micros) -> bool {
        let mut taken = 0;
        for handoff in self.inbox.try_iter().take(HANDOFFS_PER_TURN) {
            machine.handle_handoff(now, handoff);
            taken += 1;
        }
        if taken > 0 && self.worker_handle.starved.swap(false, Ordering::SeqCst) {
            self.peers.iter().for_each(|peer| peer.waker.wake());
        }
        taken == HANDOFFS_PER_TURN
    }

    /// Delivers handoffs to other workers' mailboxes. Returns which workers to wake.
    fn post_handoffs(&mut self, machine: &mut M) -> Vec<u8> {
        let mut wake = Vec::new();
        while let Some((to, handoff)) = self.stalled.take().or_else(|| machine.poll_handoff()) {
            // A handoff to a worker that does not exist is lost, as is one to a worker that has ended.
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
        let listens = self.stalled.is_none() && !self.is_deaf() && hold_off.is_none();
        let interest = Interest { readable: listens, writable: self.blocked };
        let was_set = match hold_off {
            Some(longest) => {
                let left = Duration::from_micros(due.saturating_sub(now));
                socket::wait(&self.socket, interest, waker.as_fd(), Some(longest.min(left)))
            }
            None => sleeper.sleep(&self.socket, interest, waker.as_fd(), now, due),
        };
        waker.end_sleep(*was_set.as_ref().unwrap_or(&false));
        was_set.map(drop)
    }
}

/// Reports the end of a worker, also by a panic.
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
