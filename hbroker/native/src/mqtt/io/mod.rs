//! TCP connections: sockets, threads and layers. Nothing here knows MQTT.
//!
//! ```text
//! Server (this file)   starts N workers; opens listeners
//!   worker_handle            a worker as other threads see it: its queue, its lock, its wake-up
//!     worker                 one thread's loop: read, protocol, write
//!       listener, admission              listening sockets, and how many connections they admit
//!       connections, connection, timers  the open connections and their deadlines
//!         transport ──> proxy, tls, websocket   the layers between socket and protocol, sans-IO
//!         output, arrivals                      bytes to send, bytes that were read
//!       protocol (trait) <── crate::mqtt::gateway::clients
//! ```
//!
//! A [`Server`] has N [`worker`]s. Each is a thread with its own poll and its own socket for each
//! [`listener`] (`SO_REUSEPORT`), so a connection belongs to one worker from accept to close. While its
//! thread is awake, only that thread runs a worker. While the thread sleeps, another thread may run the
//! worker through its [`worker_handle`].
//!
//! A [`protocol`] runs on the connections. Between the socket and the protocol lies a [`transport`]: any
//! stack of PROXY header, TLS and WebSocket, or none.
//!
//! An idle connection costs its entry and no buffer: each worker reads through one buffer, and an empty
//! [`output`] holds no memory. A client that does not read its messages stalls only itself: when its output
//! is full its connection is not read either, and the protocol is called when there is room again.

pub mod admission;
mod arrivals;
pub mod connection;
pub mod connections;
pub mod counters;
pub mod listener;
mod mailbox;
pub mod output;
pub mod protocol;
mod timers;
pub mod transport;
pub mod worker;
pub mod worker_handle;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;

use crate::Micros;
use crate::endpoint::clock::Clock;
use crate::endpoint::traffic;
use crate::mqtt::io::listener::{Listener, Settings};
use crate::mqtt::io::protocol::Protocol;
use crate::mqtt::io::worker::WorkerCommand;
use crate::mqtt::io::worker_handle::WorkerHandle;

/// More processors than any machine has, and the most that a connection's id has bits for.
pub const MOST_WORKERS: usize = 128;

/// Threads that run a protocol on connections, until the server is shut down or dropped.
pub struct Server<P: Protocol> {
    clock: Clock,
    worker_handles: Vec<Arc<WorkerHandle<P>>>,
    listeners: Mutex<Vec<Arc<Listener>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    fault: Arc<Mutex<Option<String>>>,
}

impl<P: Protocol> Server<P> {
    /// Starts one thread for each worker. `make` gets the worker's number and makes its protocol.
    ///
    /// # Errors
    /// The system cannot create a poll or a thread.
    pub fn start(workers: usize, clock: Clock, mut make: impl FnMut(u8) -> P) -> io::Result<Self> {
        let fault = Arc::new(Mutex::new(None));
        let (mut worker_handles, mut threads) = (Vec::new(), Vec::new());
        for index in 0..workers.clamp(1, MOST_WORKERS) {
            let number = u8::try_from(index).unwrap_or(u8::MAX);
            let (worker_handle, poll) = WorkerHandle::new(number, make(number), clock)?;
            let worker_handle = Arc::new(worker_handle);
            worker_handles.push(Arc::clone(&worker_handle));
            let exit = WorkerExit { worker: number, fault: Arc::clone(&fault), clean: false };
            let run = move || exit.say(worker_handle.run(poll));
            threads.push(thread::Builder::new().name(format!("hbroker-mqtt-{index}")).spawn(run)?);
        }
        Ok(Self { clock, worker_handles, listeners: Mutex::default(), threads: Mutex::new(threads), fault })
    }

    pub fn workers(&self) -> usize {
        self.worker_handles.len()
    }

    /// The workers, by number.
    pub fn worker_handles(&self) -> &[Arc<WorkerHandle<P>>] {
        &self.worker_handles
    }

    /// Opens a listener at an address (port 0: any free port). `number`: identifies the listener.
    ///
    /// # Errors
    /// As `bind` and `listen`: the address is in use, or not of this machine. Also if the number is in use.
    pub fn listen(&self, number: u32, address: SocketAddr, settings: Settings) -> io::Result<Arc<Listener>> {
        let mut listeners = self.listeners.lock();
        if listeners.iter().any(|listener| listener.number == number) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let (listener, sockets) = listener::open(number, address, settings, self.workers())?;
        let listener = Arc::new(listener);
        listeners.push(Arc::clone(&listener));
        for (worker_handle, socket) in self.worker_handles.iter().zip(sockets) {
            worker_handle.order(WorkerCommand::OpenListener(Arc::clone(&listener), socket));
        }
        Ok(listener)
    }

    /// Changes the settings of a listener for new connections. Clients that its TLS does not admit any more
    /// are disconnected. False: there is no listener with this number.
    pub fn set_listener(&self, number: u32, settings: Settings) -> bool {
        let known = self.listeners.lock().iter().find(|listener| listener.number == number).cloned();
        let Some(listener) = known else {
            return false;
        };
        listener.set(settings);
        for worker_handle in &self.worker_handles {
            worker_handle.order(WorkerCommand::ReviewClients(Arc::clone(&listener)));
        }
        true
    }

    /// The counters of all workers, summed, by name.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        traffic::sum(self.worker_handles.iter().map(|worker_handle| worker_handle.counters.snapshot()))
    }

    /// Why a worker ended by itself, if one has.
    pub fn fault(&self) -> Option<String> {
        self.fault.lock().clone()
    }

    /// Stops accepting, lets the connections that are closing send their last bytes for `grace`, and ends the
    /// threads. Idempotent.
    pub fn shutdown(&self, grace: Duration) {
        let grace = Micros::try_from(grace.as_micros()).unwrap_or(Micros::MAX);
        let at = self.clock.now().saturating_add(grace);
        for worker_handle in &self.worker_handles {
            worker_handle.order(WorkerCommand::Stop(at));
        }
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // A panic has been reported as a fault.
            let _ = thread.join();
        }
    }
}

impl<P: Protocol> Drop for Server<P> {
    fn drop(&mut self) {
        self.shutdown(Duration::ZERO);
    }
}

/// Reports the end of a worker, also by a panic.
struct WorkerExit {
    worker: u8,
    fault: Arc<Mutex<Option<String>>>,
    clean: bool,
}

impl WorkerExit {
    fn say(mut self, ended: io::Result<()>) {
        self.clean = true;
        if let Err(error) = ended {
            self.report(&error.to_string());
        }
    }

    fn report(&self, why: &str) {
        self.fault.lock().get_or_insert_with(|| format!("MQTT worker {} ended: {why}", self.worker));
    }
}

impl Drop for WorkerExit {
    fn drop(&mut self) {
        if !self.clean {
            self.report("a panic");
        }
    }
}

#[cfg(test)]
mod tests;
