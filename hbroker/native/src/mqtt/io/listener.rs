//! A listener: one address, with a socket for each worker. The kernel spreads the clients over the sockets. Each
//! worker accepts at its sockets of all listeners.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use parking_lot::RwLock;
use slab::Slab;
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use super::admission::{ConnectionLimiter, ConnectionPermit, Limits};
use super::counters::{Counters, add};
use super::transport::Layers;
use crate::Micros;

/// How many connections the kernel may queue for one worker until it accepts them.
const BACKLOG: i32 = 4_096;
/// After this time without traffic the kernel probes a peer (TCP keep-alive), however long the MQTT keep
/// alive is.
const PROBE_AFTER: Duration = Duration::from_secs(120);
const PROBE_EVERY: Duration = Duration::from_secs(30);
/// How long sent bytes may stay unacknowledged.
const UNANSWERED: Duration = Duration::from_secs(120);

/// How many connections one iteration accepts on each socket, at most.
const ACCEPTS: usize = 256;
/// If the kernel cannot create a connection (descriptors, memory), the worker tries again after this time.
const RETRY: Micros = 100_000;
/// If the protocol takes no connections at present, the worker tries again after this time.
const HOLD: Micros = 1_000;

/// The settings of a listener. They may change while it is open. An open connection keeps the settings of its
/// accept.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub layers: Layers,
    pub limits: Limits,
}

/// A listener, as the workers know it.
#[derive(Debug)]
pub struct Listener {
    pub number: u32,
    pub address: SocketAddr,
    pub limiter: Arc<ConnectionLimiter>,
    settings: RwLock<Arc<Settings>>,
}

impl Listener {
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read())
    }

    /// Sets the settings of future connections: certificates, limits.
    pub fn set(&self, settings: Settings) {
        self.limiter.set_limits(settings.limits);
        *self.settings.write() = Arc::new(settings);
    }
}

/// Opens a listener. Returns the listener, and the socket of each worker.
///
/// # Errors
/// As `bind` and `listen`: the address is in use, or not of this machine.
pub fn open(
    number: u32,
    address: SocketAddr,
    settings: Settings,
    workers: usize,
) -> io::Result<(Listener, Vec<TcpListener>)> {
    let first = bind(address, false)?;
    let bound = first.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
    // The first socket is bound without `SO_REUSEPORT`, so that binding fails if another process has the
    // address, even with that option.
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
    let limiter = Arc::new(ConnectionLimiter::new(settings.limits));
    Ok((Listener { number, address: bound, limiter, settings: RwLock::new(Arc::new(settings)) }, listeners))
}

fn bind(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    if shared {
        socket.set_reuse_port(true)?;
    }
    if address.is_ipv6() {
        // "::" accepts both families, whatever the system's default is.
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    prepare(&socket);
    Ok(socket)
}

/// Sets the options that the sockets of its connections inherit. The system may refuse some of them.
fn prepare(socket: &Socket) {
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_EVERY));
    let _ = socket.set_tcp_user_timeout(Some(UNANSWERED));
}

/// The listening sockets of one worker.
pub struct Listeners {
    listeners: Slab<ListenSocket>,
}

struct ListenSocket {
    listener: Arc<Listener>,
    socket: TcpListener,
    /// From when on connections may be waiting; `Micros::MAX`: not before the next event of the poll.
    ready_at: Micros,
}

impl Listeners {
    pub fn new() -> Self {
        Self { listeners: Slab::new() }
    }

    /// Adds a socket. `register` gets the index that `ring` expects.
    pub fn open(
        &mut self,
        listener: Arc<Listener>,
        socket: TcpListener,
        register: impl FnOnce(&mut TcpListener, usize) -> io::Result<()>,
    ) -> io::Result<()> {
        let index = self.listeners.insert(ListenSocket { listener, socket, ready_at: 0 });
        register(&mut self.listeners[index].socket, index)
    }

    /// Closes all sockets.
    pub fn close(&mut self) {
        self.listeners.clear();
    }

    /// The poll reports that connections are waiting.
    pub fn ring(&mut self, index: usize) {
        if let Some(listen_socket) = self.listeners.get_mut(index) {
            listen_socket.ready_at = 0;
        }
    }

    /// Whether connections may be waiting now.
    pub fn is_open(&self, now: Micros) -> bool {
        self.listeners.iter().any(|(_, listen_socket)| listen_socket.ready_at <= now)
    }

    /// When a socket must be tried again.
    pub fn next_deadline(&self) -> Option<Micros> {
        self.listeners
            .iter()
            .map(|(_, listen_socket)| listen_socket.ready_at)
            .filter(|at| *at < Micros::MAX)
            .min()
    }

    /// Leaves the waiting connections in the kernel for `HOLD`.
    pub fn hold(&mut self, now: Micros) {
        for (_, listen_socket) in &mut self.listeners {
            if listen_socket.ready_at <= now {
                listen_socket.ready_at = now + HOLD;
            }
        }
    }

    /// Accepts the waiting connections. `take` returns false if it cannot keep one; then that connection is
    /// closed.
    pub fn accept(
        &mut self,
        now: Micros,
        counters: &Counters,
        mut take: impl FnMut(&Listener, TcpStream, SocketAddr, ConnectionPermit) -> bool,
    ) {
        for (_, listen_socket) in &mut self.listeners {
            if listen_socket.ready_at > now {
                continue;
            }
            for _ in 0..ACCEPTS {
                match listen_socket.socket.accept() {
                    Ok((socket, source)) => {
                        let source = canonical(source);
                        let permit = listen_socket.listener.limiter.admit(now, source.ip());
                        let is_welcome = permit.as_ref().is_some_and(ConnectionPermit::is_welcome);
                        if let Some(permit) = permit {
                            let is_in = take(&listen_socket.listener, socket, source, permit);
                            add(if is_in { &counters.accepted } else { &counters.accept_errors }, 1);
                        }
                        add(&counters.turned_away, usize::from(!is_welcome));
                    }
                    Err(error) => {
                        listen_socket.ready_at = after(&error, now, counters);
                        break;
                    }
                }
            }
        }
    }
}

/// When to accept again after an error.
fn after(error: &io::Error, now: Micros, counters: &Counters) -> Micros {
    match error.kind() {
        io::ErrorKind::WouldBlock => Micros::MAX,
        // The client has closed the connection already. Another may be waiting.
        io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => now,
        _ => {
            add(&counters.accept_errors, 1);
            now + RETRY
        }
    }
}

/// Converts the IPv4-mapped address of an IPv4 client at a socket for both families to IPv4.
fn canonical(source: SocketAddr) -> SocketAddr {
    SocketAddr::new(source.ip().to_canonical(), source.port())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use socket2::SockRef;

    use super::*;

    #[test]
    fn the_socket_of_a_connection_has_the_options_of_its_listeners() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (listener, sockets) = open(0, any, Settings::default(), 2).unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut is_seen = [false; 2];
        while is_seen != [true; 2] {
            assert!(Instant::now() < deadline);
            let _client = std::net::TcpStream::connect(listener.address).unwrap();
            for (socket, is_seen) in sockets.iter().zip(&mut is_seen) {
                while let Ok((connection, _)) = socket.accept() {
                    let socket = SockRef::from(&connection);
                    assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
                    assert_eq!(socket.tcp_keepalive_time().unwrap(), PROBE_AFTER);
                    *is_seen = true;
                }
            }
        }
    }
}
