//! A connection of a load, as the thread drives it.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use parking_lot::Mutex;

use crate::bench::Nanos;
use crate::bench::load::Load;
use crate::endpoint::machine::Machine;
use crate::endpoint::socket::Arrivals;
use crate::endpoint::worker::Worker;

/// How many messages a publisher sends before the next connection is driven.
pub const BURST: u64 = 256;
/// How many bytes are read from a connection at once.
pub const READ_BYTES: usize = 256 * 1024;

/// The part of a connection in the load.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadRole {
    /// The number of its publisher, if it publishes.
    pub publishes: Option<usize>,
    /// The number of its subscriber, if it subscribes.
    pub subscribes: Option<usize>,
}

/// A load that the thread runs and other threads read.
#[derive(Clone)]
pub struct Shared {
    pub load: Arc<Mutex<Load>>,
    origin: Instant,
}

impl Shared {
    pub fn new(load: Load) -> Self {
        Self { load: Arc::new(Mutex::new(load)), origin: Instant::now() }
    }

    pub fn now(&self) -> Nanos {
        Nanos::try_from(self.origin.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
    }
}

/// What the connections of one thread share.
pub struct Bench {
    pub shared: Shared,
    pub arrivals: Arrivals,
    pub bytes: Vec<u8>,
    /// The bytes of these after decryption.
    pub plain: Vec<u8>,
}

impl Bench {
    /// The time that is `ahead` from now.
    pub fn due_in(&self, ahead: Option<Duration>) -> Option<Nanos> {
        let ahead = u64::try_from(ahead?.as_nanos()).unwrap_or(u64::MAX);
        Some(self.shared.now().saturating_add(ahead))
    }
}

/// The result of driving a connection once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turn {
    /// There may be more to do at once.
    pub has_more: bool,
    /// The load allows more messages than the transport takes now.
    pub is_blocked: bool,
    /// When to drive it next, even if nothing is received.
    pub due: Option<Nanos>,
}

/// One connection.
pub trait Port: Send {
    /// Registers the connection with the thread's poll.
    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()>;
    /// Receives what has arrived, and sends what may be sent.
    ///
    /// # Errors
    /// The connection has ended.
    fn turn(&mut self, bench: &mut Bench) -> io::Result<Turn>;
    /// Its part in the load.
    fn role(&self) -> LoadRole;
}

/// Registers the socket of a worker and its wake-up descriptor.
pub fn register_worker<M: Machine>(worker: &Worker<M>, registry: &Registry, token: Token) -> io::Result<()> {
    let (socket, event_fd) = worker.descriptors();
    registry.register(&mut SourceFd(&socket.as_raw_fd()), token, Interest::READABLE)?;
    registry.register(&mut SourceFd(&event_fd.as_raw_fd()), token, Interest::READABLE)
}
