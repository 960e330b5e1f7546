//! One connection: its socket, its layers, and what is to leave.
//!
//! It ends in two steps. What was written last (a refusal, a DISCONNECT) leaves, then the sending side is closed, and the rest waits for the
//! peer to close its own: a socket that is closed with bytes unread makes the kernel send a reset, which would destroy what
//! the peer has not read yet.

use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;

use mio::net::TcpStream;

use super::admission::{Admission, ConnectionPermit};
use super::listener::Settings;
use super::output::Output;
use super::tls::Identity;
use super::transport::{Failure, Transport};
use crate::Micros;
use crate::mqtt::io::timers::Timer;

/// How long a peer has to close its side.
pub const LINGER: Micros = 2_000_000;
/// What a peer may still send meanwhile.
const LINGER_READS: u8 = 64;

/// Why a connection is gone, if the protocol did not close it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The peer closed it.
    Closed,
    /// The kernel says so: reset, timed out.
    Failed,
    /// The peer did not keep to a layer's protocol.
    Broken(Failure),
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// What is left leaves, and then nothing.
    Closing,
    /// Only the peer's end of the conversation is waited for; so often was read meanwhile.
    Lingering(u8),
    Dead,
}

/// A connection, beside what the protocol keeps of it.
pub struct Connection {
    pub(super) generation: u32,
    pub(super) socket: TcpStream,
    pub(super) transport: Transport,
    pub(super) timer: Timer,
    pub(super) source: SocketAddr,
    /// Of its listener, as they were when it came.
    settings: Arc<Settings>,
    listener: u32,
    permit: ConnectionPermit,
    plain: Output,
    wire: Output,
    phase: Phase,
    flags: Flags,
    /// Since when the socket takes nothing; `Micros::MAX`: it takes.
    blocked_since: Micros,
    bytes_out: u64,
    /// Bytes that the protocol takes at once, at most.
    pub(super) read_limit: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Flags {
    /// The socket may have something to read.
    readable: bool,
    /// The peer has sent its last byte, or the socket failed: reading will tell.
    ending: bool,
    /// Reading has told.
    ended: bool,
    /// The protocol wants no more for the moment.
    paused: bool,
    /// More waits to leave than should.
    congested: bool,
    /// It is in the list of those to be written to.
    dirty: bool,
    /// It is in the list of those to be read.
    ready: bool,
}

/// What came of writing to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// Nothing remarkable.
    Sent,
    /// There is room where there was none.
    Drained,
    /// It is closed, and waits for its peer to take what is left, or to close too.
    Lingering,
    /// Nothing more can be sent, and nothing is waited for.
    Over,
}

impl Connection {
    pub(super) fn new(socket: TcpStream, source: SocketAddr, transport: Transport, origin: Origin) -> Self {
        Self {
            generation: 0,
            socket,
            transport,
            timer: Timer::default(),
            source,
            settings: origin.settings,
            listener: origin.listener,
            permit: origin.permit,
            plain: Output::default(),
            wire: Output::default(),
            phase: Phase::Open,
            flags: Flags::default(),
            blocked_since: Micros::MAX,
            bytes_out: 0,
            read_limit: usize::MAX,
        }
    }

    /// The client's address; behind a balancer, once it has told.
    pub fn source(&self) -> SocketAddr {
        self.source
    }

    pub fn listener(&self) -> u32 {
        self.listener
    }

    pub fn admission(&self) -> Admission {
        self.permit.admission()
    }

    /// Whom the client's certificate names.
    pub fn identity(&self) -> Option<Identity> {
        self.transport.identity()
    }

    /// Bytes that left.
    pub fn bytes_out(&self) -> u64 {
        self.bytes_out
    }

    /// Since when its client has taken nothing of what waits.
    pub fn blocked_since(&self) -> Option<Micros> {
        (self.blocked_since < Micros::MAX).then_some(self.blocked_since)
    }

    /// What the protocol writes to; [`Connections::write`](super::connections::Connections::write) is the way there.
    pub(super) fn output(&mut self) -> &mut Output {
        &mut self.plain
    }

    pub(super) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    pub(super) fn is_dead(&self) -> bool {
        self.phase == Phase::Dead
    }

    /// Marks it as one to be written to; true: it was not marked before.
    pub(super) fn mark_dirty(&mut self) -> bool {
        !std::mem::replace(&mut self.flags.dirty, true)
    }

    /// The socket may have something to read, perhaps the `last`; true: it is to be read, and was not marked before.
    pub(super) fn mark_readable(&mut self, last: bool) -> bool {
        self.flags.readable = true;
        self.flags.ending |= last;
        self.mark_ready()
    }

    /// Lets the protocol have bytes, or not; true: it is to be read, and was not marked before.
    pub(super) fn set_paused(&mut self, paused: bool) -> bool {
        self.flags.paused = paused;
        self.mark_ready()
    }

    fn mark_ready(&mut self) -> bool {
        self.flags.readable && !self.is_held() && !std::mem::replace(&mut self.flags.ready, true)
    }

    /// What it may have is not to be read now.
    fn is_held(&self) -> bool {
        match self.phase {
            Phase::Open => self.flags.paused || self.flags.congested,
            Phase::Lingering(_) => false,
            Phase::Closing | Phase::Dead => true,
        }
    }

    /// Reads once; `None`: not now. Whether more may be there it remembers itself.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Option<io::Result<usize>> {
        self.flags.ready = false;
        if self.is_held() {
            return None;
        }
        let result = self.socket.read(buffer);
        match &result {
            // A short read emptied the socket: what comes next makes it readable anew.
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

    /// A layer has something to say.
    pub(super) fn owes_answers(&self) -> bool {
        !self.transport.is_plain() && !self.wire.is_done()
    }

    /// More is to be read at once; true: it was not marked before.
    pub(super) fn is_still_ready(&mut self) -> bool {
        self.mark_ready()
    }

    /// Layers bytes: what they hold is appended to `plain`. True: the peer ended the conversation.
    pub(super) fn open_layers(&mut self, bytes: &[u8], plain: &mut Vec<u8>) -> Result<bool, Failure> {
        let received = self.transport.receive(bytes, plain, &mut self.wire)?;
        if let Some(source) = received.source {
            self.source = source;
        }
        Ok(received.ended)
    }

    /// Makes the conversation end when all is written.
    pub(super) fn begin_close(&mut self) {
        if self.is_open() {
            self.transport.encrypt(&mut self.plain, &mut self.wire);
            self.transport.close(&mut self.wire);
            self.plain.clear();
            self.phase = Phase::Closing;
        }
    }

    /// Reads on after the end and throws away what comes; true: the peer is done too, or sends without end.
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

    /// Writes what is to leave; how many bytes did.
    pub(super) fn flush(&mut self, now: Micros) -> (Flushed, usize) {
        self.flags.dirty = false;
        let Ok((all, sent)) = self.send() else {
            return (Flushed::Over, 0);
        };
        self.bytes_out += sent as u64;
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

    /// Seals and writes until nothing is left (true), or the socket takes no more.
    fn send(&mut self) -> io::Result<(bool, usize)> {
        let mut sent = 0;
        loop {
            // What waits is sealed only when its turn comes: into one frame, however often it was added to.
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

    /// Full from the bound on, until half of it is free again.
    fn is_congested(&self) -> bool {
        let most = self.settings.write_buffer;
        self.plain.pending() + self.wire.pending() >= if self.flags.congested { most / 2 } else { most }
    }
}

/// Where a connection came in.
pub struct Origin {
    pub listener: u32,
    pub settings: Arc<Settings>,
    pub permit: ConnectionPermit,
}
