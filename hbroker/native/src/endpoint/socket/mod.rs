//! UDP, with many datagrams in each system call. This is the only module with `unsafe`.
//!
//! ```text
//! worker ──> Socket (this file)   bind or inherit, receive, send
//!              └─ arrivals    received datagrams, and which are handled next ──> flows (fair queueing)
//! worker ──> sleeper           sleeps until the socket is ready, the worker is woken, or a time has come
//! ```
//!
//! `recvmmsg` and `sendmmsg` receive and send many messages in each call, with many datagrams in each message:
//! with UDP_GRO the kernel delivers a run of equal datagrams as one message and reports their size; UDP_SEGMENT
//! is the reverse. If the kernel has neither, each message is one datagram. IP never fragments a datagram: one
//! that is too large for the path is refused or lost (RFC 8899 §3).

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::Ordering;

use libc::c_int;
use smallvec::SmallVec;
use socket2::{Domain, Protocol, SockAddr, Socket as Builder, Type};

use crate::endpoint::traffic::{Counters, Outgoing, SendError, add, is_elsewhere};

mod arrivals;
mod flows;
mod sleeper;

pub use arrivals::{Arrivals, Intake};
use arrivals::{SLOT_BYTES, WIDTH};
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
        let segments = prepare(&socket, listen, options)?;
        socket.bind(&listen.into())?;
        Ok(Self { inner: socket.into(), segments })
    }

    /// Takes over a bound UDP socket of an earlier process, with the datagrams that wait in it. Whether it is
    /// shared does not change. The descriptor is duplicated, and stays the caller's.
    pub fn inherit(descriptor: RawFd, options: Options) -> io::Result<Self> {
        let socket = Builder::from(duplicate(descriptor)?);
        let bound = socket.local_addr()?.as_socket();
        let listen = bound.filter(|listen| listen.port() != 0).ok_or(io::ErrorKind::InvalidInput)?;
        if socket.r#type()? != Type::DGRAM {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let segments = prepare(&socket, listen, options)?;
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

fn duplicate(descriptor: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers, and fails for what is no descriptor; the new descriptor is nobody else's.
    unsafe { Ok(OwnedFd::from_raw_fd(check(libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 3))?)) }
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
            ptr::from_ref(&value).cast(),
            size_of::<c_int>() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// Sets the options that do not depend on when the socket is bound. True: UDP_SEGMENT can be sent.
fn prepare(socket: &Builder, listen: SocketAddr, options: Options) -> io::Result<bool> {
    socket.set_nonblocking(true)?;
    forbid_fragmentation(socket, listen)?;
    enlarge_buffers(socket, options.buffer_bytes);
    let segments = options.segmentation && enable_segmentation(socket);
    // The kernel reports how many datagrams it dropped. If it cannot, the counter stays 0.
    let _ = set_option(socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1);
    Ok(segments)
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

/// The ancillary data of one message, aligned for `cmsghdr`, with room for a segment size and a drop count.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; 64]);

impl Control {
    const EMPTY: Self = Self([0; 64]);
}

fn no_name() -> libc::sockaddr_storage {
    // SAFETY: plain data, for which all zeroes are a value (the family AF_UNSPEC).
    unsafe { std::mem::zeroed() }
}

/// Receives into at most `width` of the free slots. Returns how many were filled.
fn receive(
    socket: &UdpSocket,
    arrivals: &mut Arrivals,
    width: usize,
    counters: &Counters,
) -> io::Result<usize> {
    let mut vectors = [const { MaybeUninit::<libc::iovec>::uninit() }; WIDTH];
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; WIDTH];
    let width = width.min(arrivals.free.len());
    for (i, slot) in arrivals.free.iter_mut().rev().take(width).enumerate() {
        let vector =
            vectors[i].write(libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: SLOT_BYTES });
        let header = headers[i].write(message(vector, &mut arrivals.controls[i]));
        header.msg_hdr.msg_name = ptr::from_mut(&mut arrivals.names[i]).cast();
        header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    }
    // SAFETY: the first `width` headers are initialised above; each points to a slot, a name and a control buffer of
    // the lengths given, exclusively borrowed from `arrivals` for longer than the call.
    let received = check(unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr().cast(),
            width as libc::c_uint,
            libc::MSG_DONTWAIT as _,
            ptr::null_mut(),
        )
    })?;
    let received = received as usize;
    for (i, header) in headers.iter().enumerate().take(received) {
        // SAFETY: one of the first `width`.
        let header = unsafe { header.assume_init_ref() };
        let ancillary = ancillary(&header.msg_hdr);
        if let Some(dropped) = ancillary.dropped {
            counters.receive_overflow.store(dropped.into(), Ordering::Relaxed);
        }
        let length = header.msg_len as usize;
        arrivals.push(socket_address(&arrivals.names[i]), length, ancillary.segment.unwrap_or(length));
    }
    Ok(received)
}

fn send(socket: &UdpSocket, bytes: &[u8], messages: &[Outgoing]) -> io::Result<usize> {
    let names: SmallVec<[SockAddr; WIDTH]> = messages.iter().map(|m| m.destination.into()).collect();
    let mut vectors: SmallVec<[libc::iovec; WIDTH]> = messages
        .iter()
        .map(|m| libc::iovec {
            iov_base: bytes[m.range.clone()].as_ptr().cast_mut().cast(),
            iov_len: m.range.len(),
        })
        .collect();
    let mut controls = [const { MaybeUninit::<Control>::uninit() }; WIDTH];
    let mut headers: SmallVec<[libc::mmsghdr; WIDTH]> = SmallVec::new();
    for (i, outgoing) in messages.iter().enumerate() {
        let mut header = message(&mut vectors[i], controls[i].write(Control::EMPTY));
        header.msg_hdr.msg_name = names[i].as_ptr().cast_mut().cast();
        header.msg_hdr.msg_namelen = names[i].len();
        set_segment(&mut header.msg_hdr, outgoing);
        headers.push(header);
    }
    // SAFETY: every header points to a name, a part of `bytes` and a control buffer that outlive the call, with their
    // lengths; sending writes to none of them.
    let sent = check(unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            headers.len() as libc::c_uint,
            libc::MSG_DONTWAIT as _,
        )
    })?;
    Ok(sent as usize)
}

fn message(vector: &mut libc::iovec, control: &mut Control) -> libc::mmsghdr {
    // SAFETY: plain data, for which all zeroes (null pointers, no lengths) are a value. Some systems have padding
    // fields in it, so it cannot be written as a literal.
    let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
    header.msg_hdr.msg_iov = vector;
    header.msg_hdr.msg_iovlen = 1;
    header.msg_hdr.msg_control = ptr::from_mut(control).cast();
    header.msg_hdr.msg_controllen = size_of::<Control>() as _;
    header
}

/// Writes the segment size into the control buffer of the header. If the message has one datagram, removes
/// the buffer.
fn set_segment(header: &mut libc::msghdr, outgoing: &Outgoing) {
    if !outgoing.is_segmented() {
        header.msg_controllen = 0;
        return;
    }
    let segment = outgoing.segment as u16;
    // SAFETY: the header has a control buffer of 64 bytes, aligned for cmsghdr; CMSG_SPACE(2) is 24 at most.
    unsafe {
        header.msg_controllen = libc::CMSG_SPACE(size_of::<u16>() as _) as _;
        let control = libc::CMSG_FIRSTHDR(header);
        (*control).cmsg_level = libc::SOL_UDP;
        (*control).cmsg_type = libc::UDP_SEGMENT;
        (*control).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as _) as _;
        libc::CMSG_DATA(control).cast::<u16>().write_unaligned(segment);
    }
}

#[derive(Default)]
struct Ancillary {
    segment: Option<usize>,
    dropped: Option<u32>,
}

fn ancillary(header: &libc::msghdr) -> Ancillary {
    let mut found = Ancillary::default();
    // SAFETY: the kernel has filled the control buffer and its length; the macros stay within these. Both values are
    // 32 bits wide where their type says so.
    unsafe {
        let mut control = libc::CMSG_FIRSTHDR(header);
        while let Some(head) = control.as_ref() {
            let value = libc::CMSG_DATA(control).cast::<u32>();
            match (head.cmsg_level, head.cmsg_type) {
                (libc::SOL_UDP, libc::UDP_GRO) => found.segment = Some(value.read_unaligned() as usize),
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => found.dropped = Some(value.read_unaligned()),
                _ => {}
            }
            control = libc::CMSG_NXTHDR(header, control);
        }
    }
    found
}

fn socket_address(name: &libc::sockaddr_storage) -> SocketAddr {
    if c_int::from(name.ss_family) == libc::AF_INET6 {
        // SAFETY: the family says that the storage, large and aligned enough for any address, holds this one.
        let name = unsafe { &*ptr::from_ref(name).cast::<libc::sockaddr_in6>() };
        let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
        // The flow label may vary from datagram to datagram, and does not identify the peer.
        SocketAddrV6::new(ip, u16::from_be(name.sin6_port), 0, name.sin6_scope_id).into()
    } else {
        // SAFETY: a UDP socket has peers of these two families only.
        let name = unsafe { &*ptr::from_ref(name).cast::<libc::sockaddr_in>() };
        let ip = Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr));
        SocketAddrV4::new(ip, u16::from_be(name.sin_port)).into()
    }
}
