//! One connection as the thread drives it.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use parking_lot::Mutex;

use crate::bench::Nanos;
use crate::bench::load::Load;
use crate::endpoint::socket::Arrivals;
use crate::endpoint::worker::{Machine, Worker};

/// Messages that one publisher sends before the next has its turn.
pub const BURST: u64 = 256;
/// What one turn reads from a connection.
pub const READ_BYTES: usize = 256 * 1024;

/// What a connection has to do with the load.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadRole {
    /// The number of the publisher that it is.
    pub publishes: Option<usize>,
    /// The number of the subscriber that it is.
    pub subscribes: Option<usize>,
}

/// A load that the thread runs and others look at.
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

/// What the connections of one thread have in common.
pub struct Bench {
    pub shared: Shared,
    pub arrivals: Arrivals,
    pub bytes: Vec<u8>,
    /// What was sealed in those.
    pub plain: Vec<u8>,
}

impl Bench {
    /// When something is due that is so far ahead.
    pub fn due_in(&self, ahead: Option<Duration>) -> Option<Nanos> {
        let ahead = u64::try_from(ahead?.as_nanos()).unwrap_or(u64::MAX);
        Some(self.shared.now().saturating_add(ahead))
    }
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turn {
    /// There may be more to do at once.
    pub has_more: bool,
    /// The load allows more messages than the transport takes now.
    pub is_blocked: bool,
    /// The next turn is due then, whatever comes in.
    pub due: Option<Nanos>,
}

/// One connection.
pub trait Port: Send {
    /// Has the thread woken when there is something for it.
    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()>;
    /// Takes in what came, sends what may be sent.
    ///
    /// # Errors
    /// The connection is over.
    fn turn(&mut self, bench: &mut Bench) -> io::Result<Turn>;
    /// What it is to the load.
    fn role(&self) -> LoadRole;
}

/// Has the thread woken for what comes to this worker, or is asked of it.
pub fn register_worker<M: Machine>(worker: &Worker<M>, registry: &Registry, token: Token) -> io::Result<()> {
    let (socket, bell) = worker.descriptors();
    registry.register(&mut SourceFd(&socket.as_raw_fd()), token, Interest::READABLE)?;
    registry.register(&mut SourceFd(&bell.as_raw_fd()), token, Interest::READABLE)
}
