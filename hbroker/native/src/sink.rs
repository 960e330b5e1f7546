//! Where datagrams go once they are built.

use std::net::SocketAddr;

/// Takes datagrams one by one, end to end in one buffer, so that datagrams of equal size to one peer can be
/// sent with one system call.
pub trait DatagramSink {
    /// Begins a datagram. Returns where in the buffer its bytes are to begin.
    fn begin(&mut self) -> usize;
    /// The buffer to append the bytes of a datagram to.
    fn buffer(&mut self) -> &mut Vec<u8>;
    /// The datagrams from now on are for somebody with these rights ([`crate::rights::Rights`]); 0, as before the first
    /// call: for nodes, or for any client where no tokens are required.
    fn set_rights(&mut self, _key: u64) {}
    /// The bytes of the buffer from `start` on are one datagram, for `destination`.
    fn commit(&mut self, destination: &SocketAddr, start: usize);
    /// Whether this was enough for one call. The rest is kept: `poll_transmit` is called again once these
    /// datagrams were sent.
    fn is_full(&self) -> bool {
        false
    }
}
