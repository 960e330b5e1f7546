//! UDP, many datagrams in each system call. The only file with `unsafe`.
//!
//! On Linux: `recvmmsg` with UDP_GRO (the kernel hands a run of equal datagrams over as one message and tells their size),
//! `sendmmsg` with UDP_SEGMENT (the reverse). Elsewhere, and where the kernel has neither: one datagram at a time.
//! Nothing is ever fragmented by IP: a datagram that is too large for the path is refused or lost (RFC 8899 §3).

#![allow(unsafe_code)]

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
#[cfg(target_os = "linux")]
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use libc::c_int;
use socket2::{Domain, Protocol, Socket as Builder, Type};

#[cfg(target_os = "linux")]
use linux::{receive, send};
#[cfg(not(target_os = "linux"))]
use portable::{receive, send};

/// Messages in one system call, at most.
const WIDTH: usize = 32;
/// No UDP message is longer, even one that GRO put together.
const SLOT_BYTES: usize = 65_536;
/// Slots are not a power of two apart, or they would compete for the same lines of the cache.
const SLOT_STRIDE: usize = SLOT_BYTES + 33 * 64;
/// What one receive may bring in, so that it stays in the cache until it is worked through.
const BATCH_BYTES: usize = 256 * 1024;
const MIN_WIDTH: usize = 4;

/// How a socket is set up.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Several sockets share one address; the kernel spreads the peers over them.
    pub shared: bool,
    /// Use UDP_GRO and UDP_SEGMENT where the kernel has them.
    pub segmentation: bool,
    /// What the kernel should buffer in each direction; less where the system's limit is lower.
    pub buffer_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            shared: false,
            segmentation: true,
            buffer_bytes: 8 * 1024 * 1024,
        }
    }
}

/// What a worker's socket did, since it was made.
#[derive(Debug, Default)]
pub struct Counters {
    pub datagrams_in: AtomicU64,
    pub bytes_in: AtomicU64,
    pub receive_calls: AtomicU64,
    /// Errors on receiving that concern some earlier datagram to somebody else (RFC 1122 §4.1.3.3).
    pub receive_errors: AtomicU64,
    /// What the kernel threw away because the receive buffer was full.
    pub receive_overflow: AtomicU64,
    pub datagrams_out: AtomicU64,
    pub bytes_out: AtomicU64,
    pub send_calls: AtomicU64,
    /// The send buffer was full; nothing is lost by that.
    pub send_blocked: AtomicU64,
    pub send_too_large: AtomicU64,
    pub send_refused: AtomicU64,
    pub send_unreachable: AtomicU64,
}

impl Counters {
    /// The values by name.
    pub fn snapshot(&self) -> [(&'static str, u64); 12] {
        [
            ("socket.datagrams_in", &self.datagrams_in),
            ("socket.bytes_in", &self.bytes_in),
            ("socket.receive_calls", &self.receive_calls),
            ("socket.receive_errors", &self.receive_errors),
            ("drop.receive_overflow", &self.receive_overflow),
            ("socket.datagrams_out", &self.datagrams_out),
            ("socket.bytes_out", &self.bytes_out),
            ("socket.send_calls", &self.send_calls),
            ("socket.send_blocked", &self.send_blocked),
            ("drop.send_too_large", &self.send_too_large),
            ("drop.send_refused", &self.send_refused),
            ("drop.send_unreachable", &self.send_unreachable),
        ]
        .map(|(name, value)| (name, value.load(Ordering::Relaxed)))
    }

    /// Counts datagrams that could not leave.
    pub fn count_dropped(&self, error: &SendError, datagrams: usize) {
        add(
            match error {
                SendError::TooLarge => &self.send_too_large,
                SendError::Unreachable => &self.send_unreachable,
                SendError::Blocked | SendError::Refused | SendError::Dead(_) => &self.send_refused,
            },
            datagrams,
        );
    }
}

fn add(counter: &AtomicU64, amount: usize) {
    counter.fetch_add(amount as u64, Ordering::Relaxed);
}

/// One message to send: `range` of some buffer, cut into datagrams of `segment` bytes (the last may be shorter).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    pub destination: SocketAddr,
    pub range: Range<usize>,
    pub segment: usize,
}

impl Outgoing {
    /// More than one datagram.
    pub fn is_segmented(&self) -> bool {
        self.range.len() > self.segment
    }

    pub fn datagrams(&self) -> usize {
        self.range.len().div_ceil(self.segment)
    }
}

/// Why a message did not leave.
#[derive(Debug)]
pub enum SendError {
    /// The send buffer is full: try again when the socket is writable.
    Blocked,
    /// A datagram of this size cannot leave here unfragmented.
    TooLarge,
    /// There is no way to the destination, or an earlier datagram was refused there.
    Unreachable,
    /// The kernel does not take this message: an odd destination, or segmentation that the device cannot do.
    Refused,
    /// The socket is no more.
    Dead(io::Error),
}

impl From<io::Error> for SendError {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EAGAIN) => Self::Blocked,
            Some(libc::EMSGSIZE) => Self::TooLarge,
            Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT) => Self::Dead(error),
            _ if is_elsewhere(&error) => Self::Unreachable,
            _ => Self::Refused,
        }
    }
}

/// The error is about a destination or a lack for the moment, not about the socket.
fn is_elsewhere(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNREFUSED
                | libc::ECONNRESET
                | libc::EHOSTUNREACH
                | libc::EHOSTDOWN
                | libc::ENETUNREACH
                | libc::ENETDOWN
                | libc::EADDRNOTAVAIL
                | libc::EPERM
                | libc::EACCES
                | libc::ENOBUFS
                | libc::ENOMEM
        )
    )
}

/// What one receive brought in. Made once, used again and again.
pub struct Arrivals {
    slots: Box<[u8]>,
    messages: Vec<Arrived>,
    /// How many messages the next receive may take, so that `BATCH_BYTES` are not exceeded by much.
    width: usize,
    #[cfg(target_os = "linux")]
    names: Box<[libc::sockaddr_storage]>,
    #[cfg(target_os = "linux")]
    controls: Box<[linux::Control]>,
}

struct Arrived {
    source: SocketAddr,
    length: usize,
    segment: usize,
}

impl Arrivals {
    pub fn new() -> Self {
        Self {
            slots: vec![0; WIDTH * SLOT_STRIDE].into_boxed_slice(),
            messages: Vec::with_capacity(WIDTH),
            width: WIDTH,
            #[cfg(target_os = "linux")]
            names: vec![linux::no_name(); WIDTH].into_boxed_slice(),
            #[cfg(target_os = "linux")]
            controls: vec![linux::Control::EMPTY; WIDTH].into_boxed_slice(),
        }
    }

    /// The datagrams, in order of arrival, each with its source.
    pub fn datagrams(&self) -> impl Iterator<Item = (SocketAddr, &[u8])> {
        self.messages
            .iter()
            .zip(self.slots.chunks(SLOT_STRIDE))
            .flat_map(|(message, slot)| {
                slot[..message.length]
                    .chunks(message.segment)
                    .map(|datagram| (message.source, datagram))
            })
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        self.messages.clear();
    }

    fn settle(&mut self, counters: &Counters) -> usize {
        let bytes: usize = self.messages.iter().map(|m| m.length).sum();
        let datagrams = self
            .messages
            .iter()
            .map(|m| m.length.div_ceil(m.segment))
            .sum();
        add(&counters.datagrams_in, datagrams);
        add(&counters.bytes_in, bytes);
        if let Some(mean) = bytes.checked_div(self.messages.len()) {
            self.width = (BATCH_BYTES / mean.max(1)).clamp(MIN_WIDTH, WIDTH);
        }
        datagrams
    }
}

/// A bound, non-blocking UDP socket.
pub struct Socket {
    inner: UdpSocket,
    segments: bool,
}

impl Socket {
    /// Binds. Fails as `bind` does; lesser wishes (large buffers, segmentation) are dropped where they cannot be had.
    ///
    /// A socket bound to an IPv6 address takes IPv6 alone.
    pub fn bind(listen: SocketAddr, options: Options) -> io::Result<Self> {
        let socket = Builder::new(
            Domain::for_address(listen),
            Type::DGRAM,
            Some(Protocol::UDP),
        )?;
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
        Ok(Self {
            inner: socket.into(),
            segments,
        })
    }

    /// From now on others may bind to the same address, if they ask for it ([`Options::shared`]).
    pub fn share(&self) -> io::Result<()> {
        socket2::SockRef::from(&self.inner).set_reuse_port(true)
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    /// Messages of many segments can be sent.
    pub fn segments(&self) -> bool {
        self.segments
    }

    /// Takes in what waits, up to a batch; returns how many datagrams that was (0: nothing waits).
    pub fn receive(&self, arrivals: &mut Arrivals, counters: &Counters) -> io::Result<usize> {
        arrivals.messages.clear();
        add(&counters.receive_calls, 1);
        match receive(&self.inner, arrivals, counters) {
            Ok(()) => Ok(arrivals.settle(counters)),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => Ok(0),
            Err(error) if is_elsewhere(&error) => {
                add(&counters.receive_errors, 1);
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }

    /// Sends the messages in order, up to a batch; returns how many left. An error is about the first.
    pub fn send(
        &self,
        bytes: &[u8],
        messages: &[Outgoing],
        counters: &Counters,
    ) -> Result<usize, SendError> {
        let batch = &messages[..messages.len().min(WIDTH)];
        let sent = loop {
            add(&counters.send_calls, 1);
            match send(&self.inner, bytes, batch) {
                Ok(sent) => break sent,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let error = SendError::from(error);
                    add(
                        &counters.send_blocked,
                        usize::from(matches!(error, SendError::Blocked)),
                    );
                    return Err(error);
                }
            }
        };
        add(
            &counters.datagrams_out,
            batch[..sent].iter().map(Outgoing::datagrams).sum(),
        );
        add(
            &counters.bytes_out,
            batch[..sent].iter().map(|m| m.range.len()).sum(),
        );
        Ok(sent)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

/// What to wait for on the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    pub readable: bool,
    pub writable: bool,
}

/// Blocks until the socket is ready as wished, or the bell is readable, or the time is over (None: never).
/// Returns whether the bell is readable.
pub fn wait(
    socket: &Socket,
    interest: Interest,
    bell: BorrowedFd<'_>,
    timeout: Option<Duration>,
) -> io::Result<bool> {
    let readable = if interest.readable { libc::POLLIN } else { 0 };
    let writable = if interest.writable { libc::POLLOUT } else { 0 };
    let mut polled = [
        libc::pollfd {
            fd: socket.as_fd().as_raw_fd(),
            events: readable | writable,
            revents: 0,
        },
        libc::pollfd {
            fd: bell.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        },
    ];
    poll(&mut polled, timeout)?;
    Ok(polled[1].revents & libc::POLLIN != 0)
}

/// Blocks as `ppoll` does; a signal ends it early.
fn poll(polled: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<()> {
    match check(poll_call(polled, timeout)) {
        Ok(_) if polled.iter().any(|p| p.revents & libc::POLLNVAL != 0) => {
            Err(io::Error::from_raw_os_error(libc::EBADF))
        }
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

#[cfg(target_os = "linux")]
fn poll_call(polled: &mut [libc::pollfd], timeout: Option<Duration>) -> c_int {
    let timeout = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: t.subsec_nanos().into(),
    });
    let timeout = timeout
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the pointer and the count are those of one slice; `timeout` is null or points to a value that outlives the
    // call.
    unsafe {
        libc::ppoll(
            polled.as_mut_ptr(),
            polled.len() as libc::nfds_t,
            timeout,
            std::ptr::null(),
        )
    }
}

#[cfg(not(target_os = "linux"))]
fn poll_call(polled: &mut [libc::pollfd], timeout: Option<Duration>) -> c_int {
    // Rounded up: waking before the time would only mean to wait again.
    let millis = timeout.map_or(-1, |t| {
        t.as_micros()
            .div_ceil(1000)
            .try_into()
            .unwrap_or(c_int::MAX)
    });
    // SAFETY: the pointer and the count are those of one slice.
    unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, millis) }
}

/// A descriptor that is readable while its counter is above zero.
#[cfg(target_os = "linux")]
pub fn event_fd() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers; the descriptor is new and nobody else's.
    unsafe {
        Ok(OwnedFd::from_raw_fd(check(libc::eventfd(
            0,
            libc::EFD_CLOEXEC | libc::EFD_NONBLOCK,
        ))?))
    }
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
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

#[cfg(target_os = "linux")]
fn forbid_fragmentation(socket: &Builder, listen: SocketAddr) -> io::Result<()> {
    // PROBE rather than DO: the path MTU is found by our own probes, ICMP (which anyone can forge) has no say in it.
    if listen.is_ipv4() {
        set_option(
            socket,
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_PROBE,
        )
    } else {
        set_option(
            socket,
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_PROBE,
        )
    }
}

#[cfg(target_vendor = "apple")]
fn forbid_fragmentation(socket: &Builder, listen: SocketAddr) -> io::Result<()> {
    if listen.is_ipv4() {
        set_option(socket, libc::IPPROTO_IP, libc::IP_DONTFRAG, 1)
    } else {
        set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 1)
    }
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
fn forbid_fragmentation(_: &Builder, _: SocketAddr) -> io::Result<()> {
    Ok(())
}

/// As large as asked for with privilege, else as the system allows.
fn enlarge_buffers(socket: &Builder, bytes: usize) {
    #[cfg(target_os = "linux")]
    {
        let wish = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        if set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, wish).is_ok()
            && set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, wish).is_ok()
        {
            return;
        }
    }
    let _ = socket.set_recv_buffer_size(bytes);
    let _ = socket.set_send_buffer_size(bytes);
}

/// UDP_GRO for receiving; true where UDP_SEGMENT can be sent.
#[cfg(target_os = "linux")]
fn enable_segmentation(socket: &Builder) -> bool {
    let _ = set_option(socket, libc::SOL_UDP, libc::UDP_GRO, 1);
    // 0 as the size for all messages means none, so this only asks whether the kernel knows the option.
    set_option(socket, libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn enable_segmentation(_: &Builder) -> bool {
    false
}

/// Asks the kernel to tell what it dropped. Where it cannot, the counter stays 0.
fn report_overflow(socket: &Builder) {
    #[cfg(target_os = "linux")]
    let _ = set_option(socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1);
    #[cfg(not(target_os = "linux"))]
    let _ = socket;
}

#[cfg(target_os = "linux")]
mod linux {
    use std::mem::MaybeUninit;
    use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
    use std::ptr;

    use smallvec::SmallVec;
    use socket2::SockAddr;

    use super::*;

    /// Ancillary data of one message, aligned as `cmsghdr` wants it: room for a segment size and a count of drops.
    #[derive(Clone, Copy)]
    #[repr(C, align(8))]
    pub struct Control([u8; 64]);

    impl Control {
        pub const EMPTY: Self = Self([0; 64]);
    }

    pub fn no_name() -> libc::sockaddr_storage {
        // SAFETY: plain data, for which all zeroes are a value (the family AF_UNSPEC).
        unsafe { std::mem::zeroed() }
    }

    pub fn receive(
        socket: &UdpSocket,
        arrivals: &mut Arrivals,
        counters: &Counters,
    ) -> io::Result<()> {
        let width = arrivals.width;
        let mut vectors = [const { MaybeUninit::<libc::iovec>::uninit() }; WIDTH];
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; WIDTH];
        for (i, slot) in arrivals
            .slots
            .chunks_mut(SLOT_STRIDE)
            .take(width)
            .enumerate()
        {
            let vector = vectors[i].write(libc::iovec {
                iov_base: slot.as_mut_ptr().cast(),
                iov_len: SLOT_BYTES,
            });
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
        for (header, name) in headers.iter().zip(&arrivals.names).take(received as usize) {
            // SAFETY: one of the first `width`.
            let header = unsafe { header.assume_init_ref() };
            let ancillary = ancillary(&header.msg_hdr);
            if let Some(dropped) = ancillary.dropped {
                counters
                    .receive_overflow
                    .store(dropped.into(), Ordering::Relaxed);
            }
            let length = header.msg_len as usize;
            arrivals.messages.push(Arrived {
                source: socket_address(name),
                length,
                segment: ancillary.segment.unwrap_or(length).max(1),
            });
        }
        Ok(())
    }

    pub fn send(socket: &UdpSocket, bytes: &[u8], messages: &[Outgoing]) -> io::Result<usize> {
        let names: SmallVec<[SockAddr; WIDTH]> =
            messages.iter().map(|m| m.destination.into()).collect();
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

    /// Writes the segment size into the control buffer of the header, or does away with the buffer.
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
            libc::CMSG_DATA(control)
                .cast::<u16>()
                .write_unaligned(segment);
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
                    (libc::SOL_UDP, libc::UDP_GRO) => {
                        found.segment = Some(value.read_unaligned() as usize)
                    }
                    (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                        found.dropped = Some(value.read_unaligned())
                    }
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
            // The flow label may vary from datagram to datagram; it is no part of who the peer is.
            SocketAddrV6::new(ip, u16::from_be(name.sin6_port), 0, name.sin6_scope_id).into()
        } else {
            // SAFETY: a UDP socket has peers of these two families only.
            let name = unsafe { &*ptr::from_ref(name).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr));
            SocketAddrV4::new(ip, u16::from_be(name.sin_port)).into()
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod portable {
    use super::*;

    pub fn receive(socket: &UdpSocket, arrivals: &mut Arrivals, _: &Counters) -> io::Result<()> {
        for slot in arrivals.slots.chunks_mut(SLOT_STRIDE).take(arrivals.width) {
            match socket.recv_from(&mut slot[..SLOT_BYTES]) {
                Ok((length, source)) => {
                    arrivals.messages.push(Arrived {
                        source,
                        length,
                        segment: length.max(1),
                    });
                }
                Err(_) if !arrivals.messages.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub fn send(socket: &UdpSocket, bytes: &[u8], messages: &[Outgoing]) -> io::Result<usize> {
        for (sent, message) in messages.iter().enumerate() {
            match socket.send_to(&bytes[message.range.clone()], message.destination) {
                Ok(_) => {}
                Err(error) if sent == 0 => return Err(error),
                Err(_) => return Ok(sent),
            }
        }
        Ok(messages.len())
    }
}

/// Whether the descriptor is readable now.
#[cfg(test)]
pub fn is_readable(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let mut polled = [libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    }];
    poll(&mut polled, Some(Duration::ZERO))?;
    Ok(polled[0].revents & libc::POLLIN != 0)
}
