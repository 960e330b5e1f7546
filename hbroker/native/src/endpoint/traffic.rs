//! Messages to send, the errors of sending them, and the counters of a socket.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of a worker's socket since it was created.
#[derive(Debug, Default)]
pub struct Counters {
    pub datagrams_in: AtomicU64,
    pub bytes_in: AtomicU64,
    pub receive_calls: AtomicU64,
    /// How often the worker held off before it listened again (`moderation`).
    pub hold_offs: AtomicU64,
    /// Receive errors that concern an earlier datagram to another destination (RFC 1122 §4.1.3.3).
    pub receive_errors: AtomicU64,
    /// Datagrams that the kernel dropped because the receive buffer was full.
    pub receive_overflow: AtomicU64,
    /// Datagrams that the worker dropped, from the sources with most waiting.
    pub receive_shed: AtomicU64,
    pub datagrams_out: AtomicU64,
    pub bytes_out: AtomicU64,
    pub send_calls: AtomicU64,
    /// The send buffer was full. Nothing is lost by that.
    pub send_blocked: AtomicU64,
    pub send_too_large: AtomicU64,
    pub send_refused: AtomicU64,
    pub send_unreachable: AtomicU64,
}

impl Counters {
    /// The values by name.
    pub fn snapshot(&self) -> [(&'static str, u64); 14] {
        [
            ("socket.datagrams_in", &self.datagrams_in),
            ("socket.bytes_in", &self.bytes_in),
            ("socket.receive_calls", &self.receive_calls),
            ("socket.hold_offs", &self.hold_offs),
            ("socket.receive_errors", &self.receive_errors),
            ("drop.receive_overflow", &self.receive_overflow),
            ("drop.receive_shed", &self.receive_shed),
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

    /// Counts datagrams that could not be sent.
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

/// The counters of several workers, summed by name.
pub fn sum<const N: usize>(
    snapshots: impl Iterator<Item = [(&'static str, u64); N]>,
) -> Vec<(&'static str, u64)> {
    let sums = snapshots.reduce(|mut sums, values| {
        sums.iter_mut().zip(values).for_each(|((_, sum), (_, value))| *sum += value);
        sums
    });
    sums.into_iter().flatten().collect()
}

/// Adds to a counter that is read for display only.
pub fn add(counter: &AtomicU64, amount: usize) {
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
    /// Whether it is more than one datagram.
    pub fn is_segmented(&self) -> bool {
        self.range.len() > self.segment
    }

    pub fn datagrams(&self) -> usize {
        self.range.len().div_ceil(self.segment)
    }
}

/// Why a message was not sent.
#[derive(Debug)]
pub enum SendError {
    /// The send buffer is full: try again when the socket is writable.
    Blocked,
    /// A datagram of this size cannot be sent without fragmentation.
    TooLarge,
    /// There is no route to the destination, or an earlier datagram was refused there.
    Unreachable,
    /// The kernel refuses this message: an invalid destination, or segmentation that the device does not
    /// support.
    Refused,
    /// The socket has failed.
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

/// Whether the error concerns a destination or a temporary shortage, and not the socket.
pub fn is_elsewhere(error: &io::Error) -> bool {
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
