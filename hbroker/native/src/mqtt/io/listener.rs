//! Where clients come in: one address, a socket of its own for each worker, between which the kernel spreads the clients.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use mio::net::TcpListener;
use parking_lot::RwLock;
use socket2::{Domain, Protocol, Socket, Type};

use super::admission::{Gate, Limits};
use super::transport::Layers;

/// Clients that the kernel may hold for one worker until it accepts them.
const BACKLOG: i32 = 4_096;

/// What is set for a listener, and may be set anew while it is open. What is there already keeps what it came in by.
#[derive(Clone, Debug)]
pub struct Settings {
    pub layers: Layers,
    pub limits: Limits,
    /// What may wait for a client that does not read, before it stops getting more.
    pub write_buffer: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { layers: Layers::default(), limits: Limits::default(), write_buffer: 1 << 20 }
    }
}

/// What the workers know of a listener.
#[derive(Debug)]
pub struct Listener {
    pub number: u32,
    pub address: SocketAddr,
    pub gate: Arc<Gate>,
    settings: RwLock<Arc<Settings>>,
}

impl Listener {
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read())
    }

    /// For connections from now on: certificates, limits.
    pub fn set(&self, settings: Settings) {
        self.gate.set_limits(settings.limits);
        *self.settings.write() = Arc::new(settings);
    }
}

/// Opens a listener: what is known of it, and the socket of each worker.
///
/// # Errors
/// As of `bind` and `listen`: the address is taken, or not here.
pub fn open(
    number: u32,
    address: SocketAddr,
    settings: Settings,
    workers: usize,
) -> io::Result<(Listener, Vec<TcpListener>)> {
    let first = bind(address, false)?;
    let bound = first.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
    // The first is bound alone, so that an address that somebody else has is refused even where they would share it.
    if workers > 1 {
        first.set_reuse_port(true)?;
    }
    let mut sockets = vec![first];
    for _ in 1..workers {
        sockets.push(bind(bound, true)?);
    }
    let listeners = sockets.into_iter().map(|socket| {
        socket.listen(BACKLOG)?;
        Ok(TcpListener::from_std(socket.into()))
    });
    let listeners = listeners.collect::<io::Result<Vec<_>>>()?;
    let gate = Arc::new(Gate::new(settings.limits));
    Ok((Listener { number, address: bound, gate, settings: RwLock::new(Arc::new(settings)) }, listeners))
}

fn bind(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    if shared {
        socket.set_reuse_port(true)?;
    }
    if address.is_ipv6() {
        // "::" is both families, whatever the system's setting.
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}
