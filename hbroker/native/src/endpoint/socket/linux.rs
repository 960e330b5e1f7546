//! Receives and sends many messages in each system call, with many datagrams in each message.

use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::atomic::Ordering;

use libc::c_int;
use smallvec::SmallVec;
use socket2::SockAddr;

use super::arrivals::{Arrivals, SLOT_BYTES, WIDTH};
use super::check;
use crate::endpoint::traffic::{Counters, Outgoing};

/// The ancillary data of one message, aligned for `cmsghdr`, with room for a segment size and a drop count.
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

/// Receives into at most `width` of the free slots. Returns how many were filled.
pub fn receive(
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

pub fn send(socket: &UdpSocket, bytes: &[u8], messages: &[Outgoing]) -> io::Result<usize> {
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
