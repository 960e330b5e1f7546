//! The listening sockets of one worker.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use mio::net::{TcpListener, TcpStream};
use slab::Slab;

use super::admission::ConnectionPermit;
use super::counters::{Counters, add};
use super::listener::Listener;
use crate::Micros;

/// How many connections one iteration accepts on each socket, at most.
const ACCEPTS: usize = 256;
/// If the kernel cannot create a connection (descriptors, memory), the worker tries again after this time.
const RETRY: Micros = 100_000;
/// If the protocol takes no connections at present, the worker tries again after this time.
const HOLD: Micros = 1_000;
/// See the module.
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
