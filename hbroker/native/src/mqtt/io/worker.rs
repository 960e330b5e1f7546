//! The connections that came in by one thread's sockets, from accept to close.
//!
//! A turn reads what has come, has the protocol work through it, and writes once to each connection that has something to say. All
//! sockets are edge-triggered, registered once for both directions: what a turn leaves unread or unwritten is in a list, not in the kernel.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use mio::{Events, Interest, Registry, Token};

use super::arrivals::{Arrivals, Input};
use super::connection::{Connection, Ending, Flushed, Origin};
use super::connections::{ConnectionId, Connections};
use super::counters::{Counters, add};
use super::listener::Listener;
use super::mailbox::Mailbox;
use super::protocol::{Protocol, Turn};
use super::transport::Transport;
use crate::Micros;
use crate::endpoint::clock::Clock;
use crate::mqtt::io::listeners::Listeners;
use crate::mqtt::io::worker_handle::WAKER;

/// Tokens from here on are of listening sockets; those below are slots of connections.
const FIRST_LISTENER: usize = 1 << 40;
/// Commands that are handled before what they caused is written: each may bring many messages.
const COMMANDS_PER_TURN: usize = 32;
/// It looks again by itself after this.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// What a worker is told.
pub enum WorkerCommand<M> {
    /// For the protocol.
    Command(M),
    OpenListener(Arc<Listener>, mio::net::TcpListener),
    /// Takes no more connections in there.
    CloseListener(u32),
    /// Takes no more connections in, and ends when the last has ended, or at that time.
    Stop(Micros),
}

/// See the module.
pub struct Worker<P: Protocol> {
    registry: Registry,
    protocol: P,
    connections: Connections<P::Conversation>,
    arrivals: Arrivals,
    listeners: Listeners,
    clock: Clock,
    counters: Arc<Counters>,
    inbox: Vec<WorkerCommand<P::Command>>,
    /// What the protocol has not handled yet.
    commands: VecDeque<P::Command>,
    /// Those that have room again.
    drained: Vec<ConnectionId>,
    /// When to end, whatever is left.
    stop_at: Option<Micros>,
    /// Until when its thread sleeps, if nothing comes.
    asleep_until: Micros,
    /// What its thread is to end with.
    fault: Option<io::Error>,
}

impl<P: Protocol> Worker<P> {
    /// `index`: its number among its server's. `registry`: of the poll that its thread sleeps at.
    pub fn new(index: u8, protocol: P, registry: Registry, clock: Clock, counters: Arc<Counters>) -> Self {
        Self {
            registry,
            protocol,
            connections: Connections::new(index),
            arrivals: Arrivals::new(),
            listeners: Listeners::new(),
            clock,
            counters,
            inbox: Vec::new(),
            commands: VecDeque::new(),
            drained: Vec::new(),
            stop_at: None,
            asleep_until: 0,
            fault: None,
        }
    }

    /// Notes what the poll says.
    pub fn hear(&mut self, events: &Events) {
        for event in events {
            match event.token() {
                WAKER => {}
                Token(listen_socket) if listen_socket >= FIRST_LISTENER => {
                    self.listeners.ring(listen_socket - FIRST_LISTENER);
                }
                Token(slot) => self.connections.handle_event(slot, event),
            }
        }
    }

    /// One turn of all that is there to be done.
    pub fn work(&mut self, now: Micros, mailbox: &Mailbox<WorkerCommand<P::Command>>) -> io::Result<()> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        self.read();
        mailbox.take(&mut self.inbox);
        self.obey()?;
        self.turn(now);
        self.flush(now);
        Ok(())
    }

    /// A turn while the thread sleeps. False: the thread is to be woken, for there is more to do than it sleeps for.
    pub fn run_here(&mut self, now: Micros, mailbox: &Mailbox<WorkerCommand<P::Command>>) -> bool {
        self.fault = self.work(now, mailbox).err();
        add(&self.counters.stand_ins, 1);
        self.fault.is_none() && !self.is_over(now) && !self.is_busy(now) && self.due() >= self.asleep_until
    }

    /// It is done: it was told to stop, and nothing is left, or the time is over.
    pub fn is_over(&self, now: Micros) -> bool {
        self.stop_at.is_some_and(|at| at <= now || self.connections.is_empty())
    }

    /// The thread is about to sleep: how long. It has announced it where that is more than nothing.
    pub fn rest(&mut self, mailbox: &Mailbox<WorkerCommand<P::Command>>) -> Duration {
        let now = self.clock.now();
        let wait = Duration::from_micros(self.due().saturating_sub(now)).min(LONGEST_SLEEP);
        if self.is_busy(now) || wait.is_zero() || !mailbox.begin_sleep() {
            return Duration::ZERO;
        }
        self.asleep_until = now + wait.as_micros() as Micros;
        wait
    }

    /// There is something to do at once.
    fn is_busy(&self, now: Micros) -> bool {
        !self.connections.ready.is_empty()
            || !self.connections.dirty.is_empty()
            || !self.drained.is_empty()
            || !self.commands.is_empty()
            || self.listeners.is_open(now)
    }

    /// When there is something to do, whatever comes; `Micros::MAX`: never.
    fn due(&self) -> Micros {
        let deadlines = [
            self.connections.next_deadline(),
            self.listeners.next_deadline(),
            self.protocol.poll_timeout(),
            self.stop_at,
        ];
        deadlines.into_iter().flatten().min().unwrap_or(Micros::MAX)
    }

    /// Reads from each connection that may have something, once.
    fn read(&mut self) {
        let ready = std::mem::take(&mut self.connections.ready);
        let mut rest = ready.into_iter();
        for id in rest.by_ref() {
            let Some(entry) = self.connections.entry(id) else {
                continue;
            };
            let connection = &mut entry.connection;
            if connection.is_open() {
                let count = self.arrivals.read(id, connection);
                add(&self.counters.reads, 1);
                add(&self.counters.bytes_in, count);
                if connection.owes_answers() && connection.mark_dirty() {
                    self.connections.dirty.push(id);
                }
            } else if connection.linger(self.arrivals.scratch()) {
                connection.die();
            }
            self.follow_up_read(id);
            if self.arrivals.is_full() {
                break;
            }
        }
        self.connections.ready.extend(rest);
    }

    /// Has the connection read again, or written to, or taken out.
    fn follow_up_read(&mut self, id: ConnectionId) {
        let Some(entry) = self.connections.entry(id) else {
            return;
        };
        if entry.connection.is_dead() {
            self.remove(id);
        } else if entry.connection.is_still_ready() {
            self.connections.ready.push(id);
        }
    }

    /// Does what is for the worker itself; what is left is for the protocol.
    fn obey(&mut self) -> io::Result<()> {
        for order in self.inbox.drain(..) {
            match order {
                WorkerCommand::Command(command) => self.commands.push_back(command),
                WorkerCommand::OpenListener(listener, socket) => {
                    let registry = &self.registry;
                    self.listeners.open(listener, socket, |socket, index| {
                        registry.register(socket, Token(FIRST_LISTENER + index), Interest::READABLE)
                    })?;
                }
                WorkerCommand::CloseListener(number) => self.listeners.close(Some(number)),
                WorkerCommand::Stop(at) => {
                    self.listeners.close(None);
                    self.stop_at = Some(at);
                }
            }
        }
        Ok(())
    }

    /// Has the protocol work through everything that is new.
    fn turn(&mut self, now: Micros) {
        if self.listeners.is_open(now) && !self.protocol.takes_connections() {
            self.listeners.hold(now);
            add(&self.counters.accepts_held, 1);
        }
        let connections = &mut self.connections;
        let mut turn = self.protocol.begin_turn(now);
        let count = self.commands.len().min(COMMANDS_PER_TURN);
        for command in self.commands.drain(..count) {
            turn.handle_command(connections, command);
        }
        self.listeners.accept(now, &self.counters, |listen_socket, socket, source, permit| {
            let settings = listen_socket.settings();
            let Ok(transport) = Transport::new(&settings.layers) else {
                return false;
            };
            let origin = Origin { listener: listen_socket.number, settings, permit };
            let mut connection = Connection::new(socket, source, transport, origin);
            let id = connections.next_id();
            let interest = Interest::READABLE | Interest::WRITABLE;
            if self.registry.register(&mut connection.socket, Token(id.slot()), interest).is_err() {
                return false;
            }
            connections.insert(id, connection);
            let opening = turn.open(id, listen_socket.number);
            connections.begin(id, opening);
            true
        });
        for (id, input) in self.arrivals.iter() {
            match input {
                Input::Bytes(bytes) => {
                    if connections.get(id).is_some() {
                        turn.handle_bytes(connections, id, bytes);
                    }
                }
                Input::Ended(why) => {
                    if let Some(conversation) = end(connections, &self.counters, id, why) {
                        turn.handle_close(connections, id, conversation, why);
                    }
                }
            }
        }
        for id in self.drained.drain(..) {
            turn.handle_drained(connections, id);
        }
        while let Some(id) = connections.pop_due(now) {
            match connections.entry(id) {
                Some(entry) if entry.conversation.is_some() => turn.handle_timeout(connections, id),
                _ => _ = connections.abort(id),
            }
        }
        turn.end(connections);
        self.arrivals.clear();
    }

    /// Writes to each connection that has something to say.
    fn flush(&mut self, now: Micros) {
        let dirty = std::mem::take(&mut self.connections.dirty);
        for id in dirty {
            let Some(entry) = self.connections.entry(id) else {
                continue;
            };
            if entry.connection.is_dead() {
                self.remove(id);
                continue;
            }
            let (flushed, sent) = entry.connection.flush(now);
            add(&self.counters.writes, usize::from(sent > 0));
            add(&self.counters.writes_blocked, usize::from(entry.connection.blocked_since() == Some(now)));
            add(&self.counters.bytes_out, sent);
            match flushed {
                Flushed::Sent => {}
                Flushed::Drained => {
                    self.drained.push(id);
                    if entry.connection.is_still_ready() {
                        self.connections.ready.push(id);
                    }
                }
                Flushed::Lingering => self.connections.linger(id, now),
                Flushed::Over => self.fail(id),
            }
        }
    }

    /// The peer took nothing more: the protocol learns of it as of any end.
    fn fail(&mut self, id: ConnectionId) {
        if let Some(entry) = self.connections.entry(id) {
            if entry.conversation.is_some() {
                self.arrivals.end(id, Ending::Failed);
                self.connections.dirty.push(id);
            } else {
                self.remove(id);
            }
        }
    }

    fn remove(&mut self, id: ConnectionId) {
        if let Some(mut socket) = self.connections.remove(id) {
            // It is closed in any case, and leaves the poll with that.
            let _ = self.registry.deregister(&mut socket);
            add(&self.counters.closed, 1);
        }
    }
}

/// The peer ended a connection: what is to be told it still is, where that can be.
fn end<C>(connections: &mut Connections<C>, counters: &Counters, id: ConnectionId, why: Ending) -> Option<C> {
    match why {
        Ending::Failed => connections.abort(id),
        Ending::Closed => connections.close(id),
        Ending::Broken(failure) => {
            counters.count_failure(failure);
            connections.close(id)
        }
    }
}
