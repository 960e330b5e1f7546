//! Where sealed datagrams go.

use std::net::SocketAddr;

/// Takes datagrams one by one, end to end in one buffer, so that equal ones to one peer can leave in one system call.
pub trait DatagramSink {
    /// The buffer to append a datagram to.
    fn buffer(&mut self) -> &mut Vec<u8>;
    /// The bytes of the buffer from `start` on are one datagram, for `destination`.
    fn commit(&mut self, destination: &SocketAddr, start: usize);
    /// Enough for one go: keep the rest, `poll_transmit` is called again once this has been sent.
    fn is_full(&self) -> bool {
        false
    }
}
