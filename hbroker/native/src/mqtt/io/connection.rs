//! One connection: its socket, its layers, and its output.
//!
//! A connection closes in two steps, so that the peer receives the last packet (a refusal, a DISCONNECT):
//!
//! 1. The output is sent, and then the sending side is shut down.
//! 2. The connection reads and discards until the peer closes its side, within bounds.
//!
//! If a socket is closed with unread bytes, the kernel sends a reset, and the reset would destroy what the
//! peer has not read yet.

use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr};

use mio::net::TcpStream;

use super::admission::{Admission, ConnectionPermit};
use super::output::Output;
use super::transport::{Failure, Layers, Transport};
use crate::Micros;
use crate::mqtt::io::timers::Timer;

/// How many bytes of output may wait for a client that does not read, before it receives no more.
const MOST_OUTPUT: usize = 1 << 20;
/// How long the peer has to close its side.
pub const LINGER: Micros = 2_000_000;
/// How often the connection is read meanwhile, at most.
const LINGER_READS: u8 = 64;

/// Why a connection ended that the protocol did not close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The peer closed it.
    Closed,
    /// The kernel reports an error: reset, timed out.
    Failed,
    /// The peer violated the protocol of a layer.
    Broken(Failure),
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// The output is sent, and then the sending side is shut down.
    Closing,
    /// The connection waits for the peer to close its side. The number counts the reads meanwhile.
    Lingering(u8),
    Dead,
}

/// A connection, without the protocol's state of it.
pub struct Connection {
    pub(super) generation: u32,
    pub(super) socket: TcpStream,
    pub(super) transport: Transport,
    pub(super) timer: Timer,
    pub(super) source: SocketAddr,
    listener: u32,
    permit: ConnectionPermit,
    /// What the protocol writes.
    pub(super) plain: Output,
    wire: Output,
    phase: Phase,
    flags: Flags,
    /// Since when the socket has taken no bytes; `Micros::MAX`: it takes bytes.
    blocked_since: Micros,
    /// How many bytes the protocol takes from one read, at most.
    pub(super) read_limit: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Flags {
    /// The socket may have something to read.
    readable: bool,
    /// The peer has sent its last byte, or the socket failed: the next reads report it.
    ending: bool,
    /// A read has reported the end.
    ended: bool,
    /// The protocol takes no bytes at present.
    paused: bool,
    /// The output holds more than its limit.
    congested: bool,
    /// It is in the list of connections to write to.
    dirty: bool,
    /// It is in the list of connections to read from.
    ready: bool,
}

/// The result of writing to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// Nothing that the caller must act on.
    Sent,
    /// The output has room again.
    Drained,
    /// It is closed, and waits for the peer to take the rest of the output or to close, too.
    Lingering,
    /// Nothing more can be sent, and the connection waits for nothing.
    Over,
}

impl Connection {
    /// `listener`: the number of the listener that accepted it.
    pub(super) fn new(
        socket: TcpStream,
        source: SocketAddr,
        transport: Transport,
        listener: u32,
        permit: ConnectionPermit,
    ) -> Self {
        Self {
            generation: 0,
            socket,
            transport,
            timer: Timer::default(),
            source,
            listener,
            permit,
            plain: Output::default(),
            wire: Output::default(),
            phase: Phase::Open,
            flags: Flags::default(),
            blocked_since: Micros::MAX,
            read_limit: usize::MAX,
        }
    }

    /// The client's address. Behind a load balancer: once the PROXY header was received.
    pub fn source(&self) -> SocketAddr {
        self.source
    }

    pub fn listener(&self) -> u32 {
        self.listener
    }

    pub fn admission(&self) -> Admission {
        self.permit.admission()
    }

    /// As [`Transport::is_admitted_by`].
    pub(super) fn is_admitted_by(&self, layers: &Layers) -> bool {
        self.transport.is_admitted_by(layers)
    }

    /// As [`Tls::identity`](super::transport::tls::Tls::identity).
    pub fn identity(&self) -> Option<String> {
        self.transport.identity()
    }

    /// Since when the client has taken no bytes of the output.
    pub fn blocked_since(&self) -> Option<Micros> {
        (self.blocked_since < Micros::MAX).then_some(self.blocked_since)
    }

    pub(super) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    pub(super) fn is_dead(&self) -> bool {
        self.phase == Phase::Dead
    }

    /// Marks the connection to be written to; true: it was not marked before.
    pub(super) fn mark_dirty(&mut self) -> bool {
        !std::mem::replace(&mut self.flags.dirty, true)
    }

    /// The socket may have bytes to read, and the peer's end if `last`. True: the connection must be read,
    /// and was not marked before.
    pub(super) fn mark_readable(&mut self, last: bool) -> bool {
        self.flags.readable = true;
        self.flags.ending |= last;
        self.mark_ready()
    }

    /// Pauses or resumes reading; true: the connection must be read, and was not marked before.
    pub(super) fn set_paused(&mut self, paused: bool) -> bool {
        self.flags.paused = paused;
        self.mark_ready()
    }

    /// Marks the connection to be read again; true: it must be read, and was not marked before.
    pub(super) fn mark_ready(&mut self) -> bool {
        self.flags.readable && !self.is_held() && !std::mem::replace(&mut self.flags.ready, true)
    }

    /// Whether the connection must not be read now.
    fn is_held(&self) -> bool {
        match self.phase {
            Phase::Open => self.flags.paused || self.flags.congested,
            Phase::Lingering(_) => false,
            Phase::Closing | Phase::Dead => true,
        }
    }

    /// Reads once; `None`: there was nothing to read. The connection records whether there may be more.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Option<io::Result<usize>> {
        self.flags.ready = false;
        if self.is_held() {
            return None;
        }
        let result = self.socket.read(buffer);
        match &result {
            // A short read emptied the socket. The next bytes raise a new readable event.
            Ok(count) => {
                self.flags.ended = *count == 0;
                self.flags.readable = *count > 0 && (*count == buffer.len() || self.flags.ending);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.flags.readable = false;
                return None;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return None,
            Err(_) => self.flags.readable = false,
        }
        Some(result)
    }

    /// Whether a layer has bytes to send.
    pub(super) fn owes_answers(&self) -> bool {
        !self.transport.is_plain() && !self.wire.is_done()
    }

    /// Decodes received bytes by the layers, and appends the result to `plain`. True: the peer closed.
    pub(super) fn open_layers(&mut self, bytes: &[u8], plain: &mut Vec<u8>) -> Result<bool, Failure> {
        let received = self.transport.receive(bytes, plain, &mut self.wire)?;
        if let Some(source) = received.source {
            self.source = source;
        }
        Ok(received.ended)
    }

    /// Closes the connection once the output is sent.
    pub(super) fn begin_close(&mut self) {
        if self.is_open() {
            self.transport.encrypt(&mut self.plain, &mut self.wire);
            self.transport.close(&mut self.wire);
            self.plain.clear();
            self.phase = Phase::Closing;
        }
    }

    /// Reads and discards bytes after the end; true: the peer closed, too, or sends without end.
    pub(super) fn linger(&mut self, scratch: &mut [u8]) -> bool {
        let read = self.read(scratch);
        let Phase::Lingering(reads) = &mut self.phase else {
            return false;
        };
        *reads += 1;
        match read {
            Some(Ok(0) | Err(_)) => true,
            Some(Ok(_)) => *reads >= LINGER_READS,
            None => false,
        }
    }

    pub(super) fn die(&mut self) {
        self.phase = Phase::Dead;
    }

    /// Sends the output. Returns how many bytes were sent.
    pub(super) fn flush(&mut self, now: Micros) -> (Flushed, usize) {
        self.flags.dirty = false;
        let Ok((all, sent)) = self.send() else {
            return (Flushed::Over, 0);
        };
        if all {
            self.blocked_since = Micros::MAX;
        } else if sent > 0 || self.blocked_since == Micros::MAX {
            self.blocked_since = now;
        }
        let was_congested = self.flags.congested;
        self.flags.congested = self.is_congested();
        let flushed = match self.phase {
            Phase::Closing if all => self.end_sending(),
            Phase::Closing => Flushed::Lingering,
            _ if was_congested && !self.flags.congested => Flushed::Drained,
            _ => Flushed::Sent,
        };
        (flushed, sent)
    }

    /// Encodes and sends the output until all is sent (true), or until the socket takes no more.
    fn send(&mut self) -> io::Result<(bool, usize)> {
        let mut sent = 0;
        loop {
            // The output is encoded only when it can be sent: then several writes become one frame.
            if self.wire.is_done() && self.is_open() {
                self.transport.encrypt(&mut self.plain, &mut self.wire);
            }
            let before = self.wire.pending();
            let all = self.wire.write_to(&mut self.socket)?;
            sent += before - self.wire.pending();
            if !all || self.plain.is_done() {
                return Ok((all, sent));
            }
        }
    }

    fn end_sending(&mut self) -> Flushed {
        self.phase = Phase::Lingering(0);
        let shut = self.socket.shutdown(Shutdown::Write);
        if shut.is_err() || self.flags.ended { Flushed::Over } else { Flushed::Lingering }
    }

    /// Whether the output has reached its limit. Once it has, it counts as full until half of the limit is
    /// free.
    fn is_congested(&self) -> bool {
        let most = if self.flags.congested { MOST_OUTPUT / 2 } else { MOST_OUTPUT };
        self.plain.pending() + self.wire.pending() >= most
    }
}
