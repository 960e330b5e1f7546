//! The protocol of the tests: it sends back what it gets, does as it is told, and keeps a journal.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use crate::Micros;
use crate::endpoint::clock::Clock;
use crate::mqtt::io::Server;
use crate::mqtt::io::admission::Admission;
use crate::mqtt::io::connection::Ending;
use crate::mqtt::io::connections::Opening;
use crate::mqtt::io::connections::{ConnectionId, Connections};
use crate::mqtt::io::listener::{Listener, Settings};
use crate::mqtt::io::protocol::{Protocol, Turn};
use crate::mqtt::io::worker_handle::CommandSink;

/// Nothing here takes so long, but on a machine that others use.
pub const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    Opened(ConnectionId),
    /// The first bytes came.
    Spoke(ConnectionId, SocketAddr, Option<String>),
    Closed(ConnectionId, Ending),
    TimedOut(ConnectionId),
    Drained(ConnectionId),
    NotAdmitted(ConnectionId),
}

#[derive(Default)]
pub struct Journal {
    /// Those who come wait in the kernel.
    pub is_full: AtomicBool,
    entries: Mutex<Vec<Entry>>,
    written: Condvar,
}

impl Journal {
    fn write(&self, entry: Entry) {
        self.entries.lock().push(entry);
        self.written.notify_all();
    }

    /// Waits for an entry, and returns what is found in it.
    pub fn wait<R>(&self, find: impl Fn(&Entry) -> Option<R>) -> R {
        let deadline = Instant::now() + PATIENCE;
        let mut entries = self.entries.lock();
        loop {
            if let Some(found) = entries.iter().find_map(&find) {
                return found;
            }
            let timeout = self.written.wait_until(&mut entries, deadline).timed_out();
            assert!(!timeout, "not in {entries:?}");
        }
    }

    pub fn count(&self, matches: impl Fn(&Entry) -> bool) -> usize {
        self.entries.lock().iter().filter(|entry| matches(entry)).count()
    }

    /// The connection that was opened last.
    pub fn last_opened(&self) -> Option<ConnectionId> {
        let entries = self.entries.lock();
        entries.iter().rev().find_map(|entry| if let Entry::Opened(id) = entry { Some(*id) } else { None })
    }

    pub fn wait_opened(&self) -> ConnectionId {
        self.wait(|entry| if let Entry::Opened(id) = entry { Some(*id) } else { None })
    }
}

pub enum Command {
    Write(ConnectionId, Bytes),
    Close(ConnectionId),
    Pause(ConnectionId, bool),
    Everybody(Bytes),
    CloseAll,
}

pub struct Echo {
    journal: Arc<Journal>,
    /// After each byte that comes; `None`: never.
    patience: Option<Micros>,
    now: Micros,
}

pub struct Conversation {
    spoke: bool,
}

impl Protocol for Echo {
    type Conversation = Conversation;
    type Command = Command;
    type Turn<'t> = &'t mut Self;

    fn begin_turn(&mut self, now: Micros) -> &mut Self {
        self.now = now;
        self
    }

    fn takes_connections(&self) -> bool {
        !self.journal.is_full.load(Ordering::Relaxed)
    }
}

impl<'t> Turn<'t, Conversation, Command> for &'t mut Echo {
    fn open(&mut self, id: ConnectionId, _: u32) -> Opening<Conversation> {
        self.journal.write(Entry::Opened(id));
        let deadline = self.patience.map(|patience| self.now + patience);
        Opening { conversation: Conversation { spoke: false }, deadline, read_limit: usize::MAX }
    }

    fn handle_bytes(
        &mut self,
        connections: &mut Connections<Conversation>,
        id: ConnectionId,
        bytes: &'t [u8],
    ) {
        let (connection, conversation) = connections.get(id).unwrap();
        if !std::mem::replace(&mut conversation.spoke, true) {
            self.journal.write(Entry::Spoke(id, connection.source(), connection.identity()));
        }
        let admission = connection.admission();
        connections.set_deadline(id, self.patience.map(|patience| self.now + patience));
        let (_, output) = connections.write(id).unwrap();
        match admission {
            Admission::Welcome => output.extend_from_slice(bytes),
            Admission::Full => output.extend_from_slice(b"full"),
            Admission::HostFull => output.extend_from_slice(b"host full"),
            Admission::TooFast => output.extend_from_slice(b"too fast"),
        }
        if admission != Admission::Welcome {
            assert!(connections.close(id).is_some());
        }
    }

    fn handle_command(&mut self, connections: &mut Connections<Conversation>, command: Command) {
        match command {
            Command::Write(id, bytes) => connections.write(id).unwrap().1.share(&bytes),
            Command::Close(id) => drop(connections.close(id).unwrap()),
            Command::Pause(id, paused) => connections.set_paused(id, paused),
            Command::Everybody(bytes) => {
                for id in connections.ids() {
                    connections.write(id).unwrap().1.share(&bytes);
                }
            }
            Command::CloseAll => {
                for id in connections.ids() {
                    connections.write(id).unwrap().1.extend_from_slice(b"goodbye");
                    assert!(connections.close(id).is_some());
                    assert!(connections.get(id).is_none() && connections.close(id).is_none());
                }
            }
        }
    }

    fn handle_timeout(&mut self, connections: &mut Connections<Conversation>, id: ConnectionId) {
        self.journal.write(Entry::TimedOut(id));
        connections.close(id);
    }

    fn handle_not_admitted(&mut self, connections: &mut Connections<Conversation>, id: ConnectionId) {
        connections.close(id);
        self.journal.write(Entry::NotAdmitted(id));
    }

    fn handle_drained(&mut self, _: &mut Connections<Conversation>, id: ConnectionId) {
        self.journal.write(Entry::Drained(id));
    }

    fn handle_close(
        &mut self,
        _: &mut Connections<Conversation>,
        id: ConnectionId,
        _: Conversation,
        why: Ending,
    ) {
        self.journal.write(Entry::Closed(id, why));
    }

    fn end(self, _: &mut Connections<Conversation>) {}
}

/// A server, its journal, and one listener.
pub struct Bench {
    pub server: Server<Echo>,
    pub journal: Arc<Journal>,
    pub listener: Arc<Listener>,
}

impl Bench {
    pub fn new(settings: Settings) -> Self {
        Self::with(2, settings, None)
    }

    pub fn with(workers: usize, settings: Settings, patience: Option<Micros>) -> Self {
        let journal = Arc::new(Journal::default());
        let make = |_| Echo { journal: Arc::clone(&journal), patience, now: 0 };
        let server = Server::start(workers, Clock::start(), make).unwrap();
        let listener = server.listen(0, ([127, 0, 0, 1], 0).into(), settings).unwrap();
        Self { server, journal, listener }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.listener.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    pub fn command(&self, id: ConnectionId, command: Command) {
        self.post(id.worker(), command);
    }

    pub fn post(&self, worker: u8, command: Command) {
        self.server.worker_handles()[usize::from(worker)].post(command);
    }

    pub fn counter(&self, name: &str) -> u64 {
        self.server.counters().into_iter().find(|(known, _)| *known == name).unwrap().1
    }

    /// Waits until every connection that was accepted is closed.
    pub fn wait_empty(&self) {
        let deadline = Instant::now() + PATIENCE;
        while self.counter("mqtt.accepted") != self.counter("mqtt.closed") || self.listener.limiter.open() > 0
        {
            assert!(Instant::now() < deadline, "{:?}", self.server.counters());
            std::thread::yield_now();
        }
    }
}

/// Sends, and expects the same back.
pub fn exchange(stream: &mut (impl Read + Write), bytes: &[u8]) {
    stream.write_all(bytes).unwrap();
    expect(stream, bytes);
}

pub fn expect(stream: &mut impl Read, bytes: &[u8]) {
    let mut got = vec![0; bytes.len()];
    stream.read_exact(&mut got).unwrap();
    assert!(got == bytes);
}

/// Expects the end, and nothing before it.
pub fn expect_end(stream: &mut impl Read) {
    assert_eq!(stream.read(&mut [0; 64]).unwrap(), 0);
}
