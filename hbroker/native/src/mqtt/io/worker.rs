//! A worker: the connections that its listening sockets accepted, from accept to close.
//!
//! An iteration reads received bytes, calls the protocol, and writes once to each connection that has output.
//! All sockets are edge-triggered and registered once for both directions. So the worker keeps lists of the
//! connections with unread bytes or unwritten output; the kernel does not report them again.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use mio::{Events, Interest, Registry, Token};

use super::arrivals::{Arrivals, Input};
use super::connection::{Connection, Ending, Flushed};
use super::connections::{ConnectionId, Connections};
use super::counters::{Counters, add};
use super::listener::{Listener, Listeners};
use super::protocol::{Protocol, Turn};
use super::transport::Transport;
use crate::Micros;
use crate::endpoint::clock::Clock;
use crate::mqtt::io::mailbox::{Mailbox, WAKER};

/// Tokens from this value on are listening sockets; lower tokens are slots of connections.
const FIRST_LISTENER: usize = 1 << 40;
/// The most commands that are handled before the output is written: each may contain many messages.
const COMMANDS_PER_TURN: usize = 32;
/// The most clients whose certificates are verified again in one iteration: each takes about 0.1 ms.
const REVIEWS_PER_TURN: usize = 8;
/// The longest time that the worker sleeps.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// A command to a worker.
pub enum WorkerCommand<M> {
    /// For the protocol.
    Command(M),
    OpenListener(Arc<Listener>, mio::net::TcpListener),
    /// Disconnects the clients of a listener that its TLS does not admit any more.
    ReviewClients(Arc<Listener>),
    /// Closes all listeners, and ends the worker when the last connection has ended, or at that time.
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
    /// Commands that the protocol has not handled yet.
    commands: VecDeque<P::Command>,
    /// Connections whose clients may not be admitted any more, and their listener.
    reviews: VecDeque<(ConnectionId, Arc<Listener>)>,
    /// Connections whose output has room again.
    drained: Vec<ConnectionId>,
    /// When to end, even with open connections.
    stop_at: Option<Micros>,
    /// Until when the worker's thread sleeps if nothing wakes it.
    asleep_until: Micros,
    /// The error that the worker's thread is to end with.
    fault: Option<io::Error>,
}

impl<P: Protocol> Worker<P> {
    /// `index`: the number of the worker in its server. `registry`: that of the poll in which the thread
    /// sleeps.
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
            reviews: VecDeque::new(),
            drained: Vec::new(),
            stop_at: None,
            asleep_until: 0,
            fault: None,
        }
    }

    /// Records the events of the poll.
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

    /// Runs one iteration.
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

    /// Runs an iteration while the worker's thread sleeps. False: the caller must wake the thread, because
    /// more is due than it sleeps for.
    pub fn run_here(&mut self, now: Micros, mailbox: &Mailbox<WorkerCommand<P::Command>>) -> bool {
        self.fault = self.work(now, mailbox).err();
        add(&self.counters.stand_ins, 1);
        self.fault.is_none() && !self.is_over(now) && !self.is_busy(now) && self.due() >= self.asleep_until
    }

    /// Whether the worker is to end: it received `Stop`, and has no connections left or the time is over.
    pub fn is_over(&self, now: Micros) -> bool {
        self.stop_at.is_some_and(|at| at <= now || self.connections.is_empty())
    }

    /// Prepares the thread's sleep, and returns for how long. If that is more than zero, the mailbox knows
    /// that the worker sleeps.
    pub fn rest(&mut self, mailbox: &Mailbox<WorkerCommand<P::Command>>) -> Duration {
        let now = self.clock.now();
        let wait = Duration::from_micros(self.due().saturating_sub(now)).min(LONGEST_SLEEP);
        if self.is_busy(now) || wait.is_zero() || !mailbox.begin_sleep() {
            return Duration::ZERO;
        }
        self.asleep_until = now + wait.as_micros() as Micros;
        wait
    }

    /// Whether something is due at once.
    fn is_busy(&self, now: Micros) -> bool {
        !self.connections.ready.is_empty()
            || !self.connections.dirty.is_empty()
            || !self.drained.is_empty()
            || !self.commands.is_empty()
            || !self.reviews.is_empty()
            || self.listeners.is_open(now)
    }

    /// When something is due even if nothing arrives; `Micros::MAX`: never.
    fn due(&self) -> Micros {
        let deadlines = [
            self.connections.next_deadline(),
            self.listeners.next_deadline(),
            self.protocol.poll_timeout(),
            self.stop_at,
        ];
        deadlines.into_iter().flatten().min().unwrap_or(Micros::MAX)
    }

    /// Reads once from each connection that may have bytes.
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

    /// Removes a connection that has ended, or lists it to be read again.
    fn follow_up_read(&mut self, id: ConnectionId) {
        let Some(entry) = self.connections.entry(id) else {
            return;
        };
        if entry.connection.is_dead() {
            self.remove(id);
        } else if entry.connection.mark_ready() {
            self.connections.ready.push(id);
        }
    }

    /// Carries out the commands for the worker itself, and queues those for the protocol.
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
                WorkerCommand::ReviewClients(listener) => {
                    let all = self.connections.ids().into_iter();
                    self.reviews.extend(all.map(|id| (id, Arc::clone(&listener))));
                }
                WorkerCommand::Stop(at) => {
                    self.listeners.close();
                    self.stop_at = Some(at);
                }
            }
        }
        Ok(())
    }

    /// Calls the protocol for all new input.
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
            let Ok(transport) = Transport::new(&listen_socket.settings().layers) else {
                return false;
            };
            let mut connection = Connection::new(socket, source, transport, listen_socket.number, permit);
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
        let count = self.reviews.len().min(REVIEWS_PER_TURN);
        for (id, listener) in self.reviews.drain(..count) {
            let admits = |connection: &Connection| {
                connection.listener() != listener.number
                    || connection.is_admitted_by(&listener.settings().layers)
            };
            if connections.get(id).is_some_and(|(connection, _)| !admits(connection)) {
                turn.handle_not_admitted(connections, id);
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

    /// Writes to each connection that has output.
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
                    if entry.connection.mark_ready() {
                        self.connections.ready.push(id);
                    }
                }
                Flushed::Lingering => self.connections.linger(id, now),
                Flushed::Over => self.fail(id),
            }
        }
    }

    /// Sending failed: reports the end to the protocol, or removes the connection if the protocol has closed
    /// it.
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
            // The socket closes in any case, and that removes it from the poll.
            let _ = self.registry.deregister(&mut socket);
            add(&self.counters.closed, 1);
        }
    }
}

/// The peer ended a connection: closes it. Unless it failed, the rest of the output is still sent.
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
