//! A connection over TCP, or TLS over TCP, for any protocol over a stream.
//!
//! It reads into one buffer that the thread's connections share, so that a thousand connections use no more
//! CPU cache than one. A connection keeps only the bytes of an incomplete packet. Its output is collected
//! while it is driven, and leaves in one write.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use super::port::{BURST, Bench, LoadRole, Port, READ_BYTES, Turn};
use super::tls::{Tls, Trust};
use crate::bench::Nanos;
use crate::bench::load::Load;
use crate::bench::protocol::{Fault, Listener, StreamProtocol};

/// From this many unsent bytes on nothing is published.
const MOST_UNWRITTEN: usize = 256 * 1024;

/// One connection.
pub struct Connection<S> {
    socket: TcpStream,
    tls: Option<Box<Tls>>,
    protocol: S,
    role: LoadRole,
    /// The bytes of an incomplete packet.
    rest: Vec<u8>,
    unwritten: Vec<u8>,
    /// The same, encrypted.
    encrypted: Vec<u8>,
}

impl<S: StreamProtocol> Connection<S> {
    /// Connects, over TLS if `trust` is set, and returns once the broker has accepted the connection and its
    /// subscription.
    ///
    /// # Errors
    /// The broker is not reachable, refuses, or does not answer in time.
    pub fn open(
        address: SocketAddr,
        trust: Option<&Trust>,
        protocol: S,
        role: LoadRole,
        patience: Duration,
    ) -> io::Result<Self> {
        let socket = std::net::TcpStream::connect_timeout(&address, patience)?;
        socket.set_nodelay(true)?;
        let mut protocol = protocol;
        let mut tls = trust.map(Tls::new).transpose()?.map(Box::new);
        let rest = introduce(&socket, tls.as_deref_mut(), &mut protocol, patience)?;
        socket.set_read_timeout(None)?;
        socket.set_nonblocking(true)?;
        let socket = TcpStream::from_std(socket);
        Ok(Self { socket, tls, protocol, role, rest, unwritten: Vec::new(), encrypted: Vec::new() })
    }

    /// Reads once, up to a buffer; true: there may be more.
    fn read(&mut self, bench: &mut Bench) -> io::Result<bool> {
        // Encrypted bytes are not appended to decrypted ones.
        let kept = if self.tls.is_none() { self.rest.len() } else { 0 };
        bench.bytes.resize(kept + READ_BYTES, 0);
        bench.bytes[..kept].copy_from_slice(&self.rest[..kept]);
        let count = match self.socket.read(&mut bench.bytes[kept..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(true),
            Err(error) => return Err(error),
        };
        // The time of receipt is taken after the read.
        let now = bench.shared.now();
        let mut load = bench.shared.load.lock();
        let mut received = Received { load: &mut load, role: self.role, now };
        let mut input = &bench.bytes[..kept + count];
        if let Some(tls) = &mut self.tls {
            bench.plain.clear();
            bench.plain.extend_from_slice(&self.rest);
            tls.open(input, &mut bench.plain)?;
            input = &bench.plain;
        }
        let taken = self.protocol.understand(input, &mut self.unwritten, &mut received).map_err(broken)?;
        self.rest.clear();
        self.rest.extend_from_slice(&input[taken..]);
        // A read that did not fill the buffer took all bytes there were.
        Ok(count == READ_BYTES)
    }

    /// Publishes as much as the load allows.
    fn publish(&mut self, load: &mut Load, now: Nanos) -> Turn {
        let Some(stream) = self.role.publishes else { return Turn::default() };
        let allowed = load.may_send(stream, now);
        for _ in 0..allowed.min(BURST) {
            let topic = load.next_topic(stream);
            if self.unwritten.len() + self.encrypted.len() >= MOST_UNWRITTEN
                || !self.protocol.publish(&mut self.unwritten, topic, load.next_payload(stream, now))
            {
                return Turn { is_blocked: true, ..Turn::default() };
            }
            load.note_sent(stream, now);
        }
        Turn { has_more: allowed > BURST, ..Turn::default() }
    }

    /// Writes as much as the socket takes.
    fn write(&mut self) -> io::Result<()> {
        let wire = match &mut self.tls {
            None => &mut self.unwritten,
            Some(tls) => {
                tls.encrypt(&mut self.unwritten, &mut self.encrypted)?;
                &mut self.encrypted
            }
        };
        while !wire.is_empty() {
            match self.socket.write(wire) {
                Ok(count) => drop(wire.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl<S: StreamProtocol> Port for Connection<S> {
    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut self.socket, token, Interest::READABLE | Interest::WRITABLE)
    }

    fn turn(&mut self, bench: &mut Bench) -> io::Result<Turn> {
        let more_in = self.read(bench)?;
        let now = bench.shared.now();
        let published = self.publish(&mut bench.shared.load.lock(), now);
        self.write()?;
        // If the write emptied the buffers, publishing continues at once.
        let is_blocked = published.is_blocked && !(self.unwritten.is_empty() && self.encrypted.is_empty());
        Ok(Turn { has_more: more_in || published.has_more, is_blocked, due: None })
    }

    fn role(&self) -> LoadRole {
        self.role
    }
}

struct Received<'a> {
    load: &'a mut Load,
    role: LoadRole,
    now: Nanos,
}

impl Listener for Received<'_> {
    fn message(&mut self, payload: &[u8]) {
        if let Some(subscriber) = self.role.subscribes {
            self.load.note_received(subscriber, payload, self.now);
        }
    }

    fn answer(&mut self, is_success: bool) {
        if let Some(stream) = self.role.publishes {
            self.load.note_answers(stream, 1, is_success);
        }
    }
}

/// Before the load begins: no message arrives yet.
struct NoSink;

impl Listener for NoSink {
    fn message(&mut self, _: &[u8]) {}
    fn answer(&mut self, _: bool) {}
}

/// Exchanges packets until the broker has accepted the connection. Returns the bytes that are not parsed yet.
fn introduce(
    mut socket: &std::net::TcpStream,
    mut tls: Option<&mut Tls>,
    protocol: &mut impl StreamProtocol,
    patience: Duration,
) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + patience;
    let (mut input, mut out, mut encrypted) = (Vec::new(), Vec::new(), Vec::new());
    protocol.greet(&mut out);
    let mut bytes = [0; 4_096];
    loop {
        let wire = match &mut tls {
            None => &mut out,
            Some(tls) => {
                tls.encrypt(&mut out, &mut encrypted)?;
                &mut encrypted
            }
        };
        socket.write_all(wire)?;
        wire.clear();
        if protocol.is_ready() {
            return Ok(input);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        socket.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match socket.read(&mut bytes) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => match &mut tls {
                None => input.extend_from_slice(&bytes[..count]),
                Some(tls) => tls.open(&bytes[..count], &mut input)?,
            },
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(ErrorKind::TimedOut.into()),
            Err(error) => return Err(error),
        }
        let taken = protocol.understand(&input, &mut out, &mut NoSink).map_err(broken)?;
        input.drain(..taken);
    }
}

fn broken(fault: Fault) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, fault.to_string())
}
