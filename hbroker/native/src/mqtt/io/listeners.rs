//! The listening sockets of one worker.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use mio::net::{TcpListener, TcpStream};
use slab::Slab;
use socket2::SockRef;

use super::admission::ConnectionPermit;
use super::counters::{Counters, add};
use super::listener::{INHERITS, Listener, prepare};
use crate::Micros;

/// Connections that one turn takes in at each door.
const ACCEPTS: usize = 256;
/// Where the kernel has none to give (descriptors, memory) it is asked again after this.
const RETRY: Micros = 100_000;
/// Where nobody can be let in for the moment it is looked again after this.
const HOLD: Micros = 1_000;
/// See the module.
pub struct Listeners {
    listeners: Slab<ListenSocket>,
}

struct ListenSocket {
    listener: Arc<Listener>,
    socket: TcpListener,
    /// From when on somebody may wait there; `Micros::MAX`: until it is rung.
    ready_at: Micros,
}

impl Listeners {
    pub fn new() -> Self {
        Self { listeners: Slab::new() }
    }

    /// Adds one; `register` gets the number under which it is rung.
    pub fn open(
        &mut self,
        listener: Arc<Listener>,
        socket: TcpListener,
        register: impl FnOnce(&mut TcpListener, usize) -> io::Result<()>,
    ) -> io::Result<()> {
        let index = self.listeners.insert(ListenSocket { listener, socket, ready_at: 0 });
        register(&mut self.listeners[index].socket, index)
    }

    /// Closes a listener's, or all.
    pub fn close(&mut self, number: Option<u32>) {
        self.listeners
            .retain(|_, listen_socket| number.is_some_and(|number| number != listen_socket.listener.number));
    }

    /// Somebody waits.
    pub fn ring(&mut self, index: usize) {
        if let Some(listen_socket) = self.listeners.get_mut(index) {
            listen_socket.ready_at = 0;
        }
    }

    /// Somebody may wait now.
    pub fn is_open(&self, now: Micros) -> bool {
        self.listeners.iter().any(|(_, listen_socket)| listen_socket.ready_at <= now)
    }

    /// When to ask again.
    pub fn next_deadline(&self) -> Option<Micros> {
        self.listeners
            .iter()
            .map(|(_, listen_socket)| listen_socket.ready_at)
            .filter(|at| *at < Micros::MAX)
            .min()
    }

    /// Leaves those who wait in the kernel for a moment.
    pub fn hold(&mut self, now: Micros) {
        for (_, listen_socket) in &mut self.listeners {
            if listen_socket.ready_at <= now {
                listen_socket.ready_at = now + HOLD;
            }
        }
    }

    /// Takes in who waits. `take`: false where it cannot; then the connection is closed.
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
                            if !INHERITS {
                                prepare(&SockRef::from(&socket));
                            }
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

/// When to ask again after an error.
fn after(error: &io::Error, now: Micros, counters: &Counters) -> Micros {
    match error.kind() {
        io::ErrorKind::WouldBlock => Micros::MAX,
        // The client has gone again; the next may be waiting.
        io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => now,
        _ => {
            add(&counters.accept_errors, 1);
            now + RETRY
        }
    }
}

/// An IPv4 client of a socket for both families is an IPv4 client.
fn canonical(source: SocketAddr) -> SocketAddr {
    SocketAddr::new(source.ip().to_canonical(), source.port())
}
