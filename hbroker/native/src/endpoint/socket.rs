//! UDP, with many datagrams in each system call. This is the only module with `unsafe`.
//!
//! ```text
//! worker ──> Socket (this file)   bind, receive, send
//!              ├─ linux       recvmmsg with UDP_GRO, sendmmsg with UDP_SEGMENT
//!              └─ arrivals    received datagrams, and which are handled next ──> flows (fair queueing)
//! worker ──> sleeper ──> timer   sleeps until the socket is ready, the worker is woken, or a time has come
//! ```
//!
//! With UDP_GRO the kernel delivers a run of equal datagrams as one message and reports their size;
//! UDP_SEGMENT is the reverse. If the kernel has neither, each message is one datagram. IP never fragments a
//! datagram: one that is too large for the path is refused or lost (RFC 8899 §3).

#![allow(unsafe_code)]

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::c_int;
use socket2::{Domain, Protocol, Socket as Builder, Type};

use crate::endpoint::traffic::{Counters, Outgoing, SendError, add, is_elsewhere};

mod arrivals;
mod flows;
mod linux;
mod sleeper;
mod timer;

use arrivals::WIDTH;
pub use arrivals::{Arrivals, Intake};
use linux::{receive, send};
pub use sleeper::{Interest, Sleeper, wait, wait_readable};

/// The most system calls in which a socket is emptied before the datagrams are handled.
const MOST_CALLS: usize = 8;

/// The options of a socket.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Several sockets share one address, and the kernel spreads the peers over them.
    pub shared: bool,
    /// Use UDP_GRO and UDP_SEGMENT if the kernel has them.
    pub segmentation: bool,
    /// The size of the kernel's buffer in each direction; a lower limit of the system applies.
    pub buffer_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { shared: false, segmentation: true, buffer_bytes: 8 * 1024 * 1024 }
    }
}

/// A bound, non-blocking UDP socket.
pub struct Socket {
    inner: UdpSocket,
    segments: bool,
}

impl Socket {
    /// Binds. Fails as `bind` does. Large buffers and segmentation are optional: if the system refuses them,
    /// it binds without.
    ///
    /// A socket that is bound to an IPv6 address accepts IPv6 only.
    pub fn bind(listen: SocketAddr, options: Options) -> io::Result<Self> {
        let socket = Builder::new(Domain::for_address(listen), Type::DGRAM, Some(Protocol::UDP))?;
        if listen.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.set_reuse_port(options.shared)?;
        socket.set_nonblocking(true)?;
        forbid_fragmentation(&socket, listen)?;
        enlarge_buffers(&socket, options.buffer_bytes);
        let segments = options.segmentation && enable_segmentation(&socket);
        report_overflow(&socket);
        socket.bind(&listen.into())?;
        Ok(Self { inner: socket.into(), segments })
    }

    /// From now on other sockets may bind to the same address, with [`Options::shared`].
    pub fn share(&self) -> io::Result<()> {
        socket2::SockRef::from(&self.inner).set_reuse_port(true)
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    /// Whether messages of several segments can be sent.
    pub fn segments(&self) -> bool {
        self.segments
    }

    /// Receives what one system call returns. All of it is to be handled now.
    pub fn receive(&self, arrivals: &mut Arrivals, counters: &Counters) -> io::Result<Intake> {
        arrivals.clear();
        let may_wait = self.call(arrivals, counters)?;
        Ok(Intake { datagrams: arrivals.take_fresh(), may_wait })
    }

    /// Receives what is waiting. If that is much, empties the socket and lets the sources take turns. The
    /// `arrivals` must belong to this socket alone.
    pub fn receive_fairly(&self, arrivals: &mut Arrivals, counters: &Counters) -> io::Result<Intake> {
        arrivals.clear();
        let mut may_wait = true;
        for _ in 0..MOST_CALLS {
            may_wait = self.call(arrivals, counters)?;
            if !may_wait && arrivals.are_soon_done() {
                return Ok(Intake { datagrams: arrivals.take_fresh(), may_wait });
            }
            add(&counters.receive_shed, arrivals.queue_fresh());
            if !may_wait {
                break;
            }
        }
        let turn = arrivals.take_turn();
        Ok(Intake { may_wait: may_wait || turn.may_wait, ..turn })
    }

    /// Makes one system call. Returns whether more may be waiting.
    fn call(&self, arrivals: &mut Arrivals, counters: &Counters) -> io::Result<bool> {
        let width = arrivals.prepare();
        add(&counters.receive_calls, 1);
        match receive(&self.inner, arrivals, width, counters) {
            Ok(taken) => {
                let (datagrams, bytes) = arrivals.adapt();
                add(&counters.datagrams_in, datagrams);
                add(&counters.bytes_in, bytes);
                Ok(taken == width)
            }
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Ok(false),
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => Ok(true),
            Err(error) if is_elsewhere(&error) => {
                add(&counters.receive_errors, 1);
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// Sends the messages in order, up to a batch. Returns how many were sent. An error concerns the first.
    pub fn send(&self, bytes: &[u8], messages: &[Outgoing], counters: &Counters) -> Result<usize, SendError> {
        let batch = &messages[..messages.len().min(WIDTH)];
        let sent = loop {
            add(&counters.send_calls, 1);
            match send(&self.inner, bytes, batch) {
                Ok(sent) => break sent,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let error = SendError::from(error);
                    add(&counters.send_blocked, usize::from(matches!(error, SendError::Blocked)));
                    return Err(error);
                }
            }
        };
        add(&counters.datagrams_out, batch[..sent].iter().map(Outgoing::datagrams).sum());
        add(&counters.bytes_out, batch[..sent].iter().map(|m| m.range.len()).sum());
        Ok(sent)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

/// A descriptor that is readable while its counter is above zero.
pub fn event_fd() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers; the descriptor is new and nobody else's.
    unsafe { Ok(OwnedFd::from_raw_fd(check(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?)) }
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn set_option(socket: &Builder, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: the pointer is to a c_int, whose size is given, that outlives the call.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(&value).cast(),
            size_of::<c_int>() as libc::socklen_t,
        )
    })
    .map(drop)
}

fn forbid_fragmentation(socket: &Builder, listen: SocketAddr) -> io::Result<()> {
    // PROBE rather than DO: our own probes find the path MTU. ICMP, which anyone can forge, does not affect
    // it.
    if listen.is_ipv4() {
        set_option(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)
    } else {
        set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)
    }
}

/// With the privilege, as large as requested; without, as large as the system allows.
fn enlarge_buffers(socket: &Builder, bytes: usize) {
    let requested = c_int::try_from(bytes).unwrap_or(c_int::MAX);
    if set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, requested).is_err()
        || set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, requested).is_err()
    {
        let _ = socket.set_recv_buffer_size(bytes);
        let _ = socket.set_send_buffer_size(bytes);
    }
}

/// Enables UDP_GRO for receiving. True: UDP_SEGMENT can be sent.
fn enable_segmentation(socket: &Builder) -> bool {
    let _ = set_option(socket, libc::SOL_UDP, libc::UDP_GRO, 1);
    // A size of 0 means no segmentation, so this call only tells whether the kernel knows the option.
    set_option(socket, libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok()
}

/// Has the kernel report how many datagrams it dropped. If it cannot, the counter stays 0.
fn report_overflow(socket: &Builder) {
    let _ = set_option(socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1);
}
