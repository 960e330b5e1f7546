//! Runs sans-IO machines on threads with UDP sockets: one worker for each machine, all at one address.
//!
//! ```text
//! core, client_pool ──> Endpoint ──> worker_handle   a worker's machine behind a lock; callers enter here
//!                                      ^   waker          wake-ups, the reader's signal
//!                                    worker          a thread's loop: receive, handle, send
//!                                      ├─ sealed       the machine, whose datagrams are opened and sealed
//!                                      ├─ moderation   when it holds off before it listens again
//!                                      ├─ egress       datagrams to send, in batches
//!                                      └─ socket       UDP system calls; the only `unsafe`
//! core ──> store_thread   the thread of a node's store
//! clock (leases end by it), traffic (what a socket sends and counts): used by all
//! ```

pub mod clock;
pub mod egress;
pub mod machine;
pub mod moderation;
pub mod sealed;
pub mod socket;
pub mod store_thread;
pub mod traffic;
pub mod waker;
pub mod worker;
pub mod worker_handle;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::Micros;
use crate::association::packet::AssociationId;
use crate::association::table::Shared;
use crate::endpoint::clock::Clock;
use crate::endpoint::machine::Machine;
use crate::endpoint::sealed::Sealed;
use crate::endpoint::socket::{Options, Socket};
use crate::endpoint::waker::OutputSignal;
use crate::endpoint::worker::Worker;
use crate::endpoint::worker_handle::{Guard, WorkerHandle};
use crate::rights::Rights;

/// How long `shutdown` waits for the workers. No worker blocks for long, so this is for one that hangs.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs machines until it is shut down or dropped.
pub struct Endpoint<M: Machine> {
    address: SocketAddr,
    descriptors: Vec<RawFd>,
    worker_handles: Vec<Arc<WorkerHandle<M>>>,
    endpoint_state: Arc<EndpointState>,
    associations: Option<Arc<Shared>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl<M: Machine> Endpoint<M> {
    /// Binds one socket for each machine (port 0: any free port, the same for all) and starts the threads.
    /// `associations`: of the address; `None`: security is off.
    pub fn new(machines: Vec<M>, listen: SocketAddr, associations: Option<Arc<Shared>>) -> io::Result<Self> {
        Self::with_options(machines, listen, associations, Options::default())
    }

    /// As `new`, with other socket options. (The number of machines decides about `shared`.)
    pub fn with_options(
        machines: Vec<M>,
        listen: SocketAddr,
        associations: Option<Arc<Shared>>,
        options: Options,
    ) -> io::Result<Self> {
        let sockets = bind_all(machines.len(), listen, options)?;
        Self::on_sockets(machines, sockets, associations)
    }

    /// As `new`, with a bound socket for each machine. All have one address.
    pub fn on_sockets(
        machines: Vec<M>,
        sockets: Vec<Socket>,
        associations: Option<Arc<Shared>>,
    ) -> io::Result<Self> {
        if sockets.len() != machines.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let endpoint_state = Arc::new(EndpointState::new()?);
        let descriptors = sockets.iter().map(|socket| socket.as_fd().as_raw_fd()).collect();
        let address = sockets.first().ok_or(io::ErrorKind::InvalidInput)?.address()?;
        let mut workers = Vec::with_capacity(machines.len());
        for (index, (machine, socket)) in machines.into_iter().zip(sockets).enumerate() {
            let sealed = Sealed::new(machine, associations.as_ref(), index);
            workers.push(Worker::new(index, sealed, socket, Arc::clone(&endpoint_state))?);
        }
        let worker_handles: Vec<_> = workers.iter().map(Worker::worker_handle).collect();
        let threads = Mutex::new(Vec::new());
        let endpoint = Self { address, descriptors, worker_handles, endpoint_state, associations, threads };
        for (index, mut worker) in workers.into_iter().enumerate() {
            worker.introduce(&endpoint.worker_handles);
            endpoint.endpoint_state.begin_one();
            let thread = thread::Builder::new().name(format!("hbroker-{index}")).spawn(move || worker.run());
            endpoint.threads.lock().push(thread.inspect_err(|_| endpoint.endpoint_state.end_one())?);
        }
        Ok(endpoint)
    }

    /// As `new`, for one machine whose worker the caller drives in steps. The caller drops the worker before
    /// the endpoint.
    pub fn without_thread(
        machine: M,
        listen: SocketAddr,
        associations: Option<Arc<Shared>>,
    ) -> io::Result<(Self, Worker<M>)> {
        let endpoint_state = Arc::new(EndpointState::new()?);
        let socket = Socket::bind(listen, Options::default())?;
        let address = socket.address()?;
        let descriptors = vec![socket.as_fd().as_raw_fd()];
        let sealed = Sealed::new(machine, associations.as_ref(), 0);
        let mut worker = Worker::new(0, sealed, socket, Arc::clone(&endpoint_state))?;
        let worker_handles = vec![worker.worker_handle()];
        worker.introduce(&worker_handles);
        let threads = Mutex::default();
        Ok((Self { address, descriptors, worker_handles, endpoint_state, associations, threads }, worker))
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The sockets, one of each worker, until the shutdown. Only to duplicate them.
    pub fn descriptors(&self) -> &[RawFd] {
        &self.descriptors
    }

    pub fn workers(&self) -> usize {
        self.worker_handles.len()
    }

    /// Calls with a worker's machine, under its lock, and the time. Afterwards sends what has become due.
    ///
    /// Panics if there is no such worker.
    pub fn with_machine<R>(&self, worker: usize, call: impl FnOnce(&mut M, Micros) -> R) -> R {
        self.worker_handles[worker].enter(call)
    }

    /// Whether the effects of calls to a machine may wait for more calls, so that many calls of one caller
    /// cost few system calls. False: the effects happen now.
    pub fn gather(&self, gathers: bool) {
        self.worker_handles.iter().for_each(|worker_handle| worker_handle.gather(gathers));
    }

    /// What wakes a worker, for another thread.
    ///
    /// Panics if there is no such worker.
    pub fn waker_of(&self, worker: usize) -> impl Fn() + Send + use<M> {
        let worker_handle = Arc::downgrade(&self.worker_handles[worker]);
        move || _ = worker_handle.upgrade().map(|worker_handle| worker_handle.waker.wake())
    }

    /// Access to a worker's machine. It is locked until the guard is dropped.
    ///
    /// Panics if there is no such worker.
    pub fn guard(&self, worker: usize) -> Guard<'_, M> {
        self.worker_handles[worker].guard()
    }

    /// The state that the workers share, also with others that serve the same reader.
    pub fn endpoint_state(&self) -> Arc<EndpointState> {
        Arc::clone(&self.endpoint_state)
    }

    /// As `with_machine`, for reading: wakes no worker.
    pub fn inspect<R>(&self, worker: usize, read: impl FnOnce(&M) -> R) -> R {
        self.worker_handles[worker].inspect(read)
    }

    /// The associations of the address; `None`: security is off.
    pub fn associations(&self) -> Option<&Arc<Shared>> {
        self.associations.as_ref()
    }

    /// As [`Shared::set_rights`].
    pub fn set_rights(&self, association: AssociationId, rights: Arc<Rights>) -> bool {
        let is_known =
            self.associations.as_ref().is_some_and(|shared| shared.set_rights(association, rights));
        if is_known {
            self.worker_handles.iter().for_each(|worker_handle| worker_handle.waker.wake());
        }
        is_known
    }

    /// The counters of all sockets and of all associations, summed, by name.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let of_sockets = self.worker_handles.iter().map(|worker_handle| worker_handle.counters.snapshot());
        let sealed = self.worker_handles.iter().filter_map(|one| one.locked.lock().sealed.counters());
        let mut sums = traffic::sum(of_sockets);
        sums.extend(traffic::sum(sealed.map(|counters| counters.named())));
        sums
    }

    /// Readable exactly as long as a machine has output (or after a fault). Do not read from it or close it.
    pub fn fileno(&self) -> RawFd {
        self.endpoint_state.output.as_fd().as_raw_fd()
    }

    /// Blocks until a machine has output (or after a fault). False: the time is over.
    pub fn wait(&self, timeout: Duration) -> bool {
        self.endpoint_state.output.wait_until(Instant::now() + timeout)
    }

    /// Why a worker ended by itself, if one has: its socket failed. The others continue.
    pub fn fault(&self) -> Option<String> {
        self.endpoint_state.fault()
    }

    /// Blocks until every machine is drained and all is sent. False: the time is over, or a worker has ended.
    pub fn drain(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        self.worker_handles.iter().all(|worker_handle| worker_handle.drain(deadline))
    }

    /// Takes no more datagrams, and tells all peers that opened links that these are gone, and their keys
    /// (§3.6). They begin anew at once, and what they send waits in the sockets for the next process.
    pub fn reset_peers(&self) {
        self.endpoint_state.deaf.store(true, Ordering::Release);
        self.worker_handles.iter().for_each(|worker_handle| worker_handle.waker.wake());
        for worker_handle in &self.worker_handles {
            worker_handle.send_off(|sealed, now| sealed.machine.reset_peers(now));
        }
        // Only then, because the resets of links are sealed.
        if let Some(first) = self.worker_handles.first() {
            first.send_off(|sealed, _| sealed.reset_associations());
        }
    }

    /// Stops the threads and closes the sockets. Datagrams that can leave at once still do. Idempotent.
    pub fn shutdown(&self) {
        self.endpoint_state.stop.store(true, Ordering::Release);
        self.worker_handles.iter().for_each(|worker_handle| worker_handle.waker.wake());
        let threads = std::mem::take(&mut *self.threads.lock());
        if self.endpoint_state.wait_ended(Instant::now() + PATIENCE) {
            for thread in threads {
                // A panic has been reported as a fault.
                let _ = thread.join();
            }
        }
    }
}

impl<M: Machine> Drop for Endpoint<M> {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// Binds a socket for each worker. The first is bound without `SO_REUSEPORT`, so that binding fails if
/// another process has the address, even with that option. Then the address is opened to the others.
fn bind_all(count: usize, listen: SocketAddr, options: Options) -> io::Result<Vec<Socket>> {
    let mut sockets = Vec::with_capacity(count);
    for _ in 0..count {
        let socket = match sockets.first() {
            None => {
                let first = Socket::bind(listen, Options { shared: false, ..options })?;
                if count > 1 {
                    first.share()?;
                }
                first
            }
            Some(first) => Socket::bind(Socket::address(first)?, Options { shared: true, ..options })?,
        };
        sockets.push(socket);
    }
    Ok(sockets)
}

/// The state that the workers of an endpoint share.
pub struct EndpointState {
    pub clock: Clock,
    pub output: OutputSignal,
    /// The workers must end.
    pub stop: AtomicBool,
    /// The workers take no more datagrams: what comes is for the next process.
    pub deaf: AtomicBool,
    state: Mutex<RunState>,
    ended: Condvar,
}

struct RunState {
    running: usize,
    fault: Option<String>,
}

impl EndpointState {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            clock: Clock::start(),
            output: OutputSignal::new()?,
            stop: AtomicBool::new(false),
            deaf: AtomicBool::new(false),
            state: Mutex::new(RunState { running: 0, fault: None }),
            ended: Condvar::new(),
        })
    }

    /// Why a worker ended unexpectedly. From then on output is signalled, so that the reader looks.
    pub fn fault(&self) -> Option<String> {
        self.state.lock().fault.clone()
    }

    /// Waits until every worker has ended. False: the deadline has passed.
    pub fn wait_ended(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        while state.running > 0 {
            if self.ended.wait_until(&mut state, deadline).timed_out() {
                return state.running == 0;
            }
        }
        true
    }

    /// Reports why a worker ended. Only the first report is kept.
    pub fn fail(&self, fault: String) {
        let mut state = self.state.lock();
        if state.fault.is_none() {
            state.fault = Some(fault);
            self.output.raise();
        }
    }

    /// Counts a worker that is about to run.
    pub fn begin_one(&self) {
        self.state.lock().running += 1;
    }

    /// A worker has ended, or could not be started.
    pub fn end_one(&self) {
        self.state.lock().running -= 1;
        self.ended.notify_all();
    }
}

#[cfg(test)]
mod tests;
