//! A listener: one address, with a socket for each worker. The kernel spreads the clients over the sockets.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mio::net::TcpListener;
use parking_lot::RwLock;
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use super::admission::{ConnectionLimiter, Limits};
use super::transport::Layers;

/// How many connections the kernel may queue for one worker until it accepts them.
const BACKLOG: i32 = 4_096;
/// After this time without traffic the kernel probes a peer (TCP keep-alive), however long the MQTT keep
/// alive is.
const PROBE_AFTER: Duration = Duration::from_secs(120);
const PROBE_EVERY: Duration = Duration::from_secs(30);
/// How long sent bytes may stay unacknowledged.
const UNANSWERED: Duration = Duration::from_secs(120);

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
