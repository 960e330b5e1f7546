//! One thread: the connections that came in by its sockets, from accept to close.
//!
//! A turn reads what has come, has the protocol work through it, and writes once to each connection that has something to say. All
//! sockets are edge-triggered, registered once for both directions: what a turn leaves unread or unwritten is in a list, not in the kernel.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use mio::{Events, Interest, Poll, Token};

use super::arrivals::{Arrivals, Input};
use super::connection::{Connection, Ending, Flushed, Origin};
use super::connections::{ConnectionId, Connections};
use super::counters::{Counters, add};
use super::doors::Doors;
use super::listener::Listener;
use super::mailbox::Mailbox;
use super::protocol::{Protocol, Turn};
use super::transport::Transport;
use crate::Micros;
use crate::endpoint::fleet::Clock;

const WAKER: Token = Token(usize::MAX);
/// Tokens from here on are of listening sockets; those below are slots of connections.
const FIRST_DOOR: usize = 1 << 40;
/// Events that one poll tells of.
const EVENTS: usize = 1_024;
/// Commands that are handled before what they caused is written: each may bring many messages.
const COMMANDS_PER_TURN: usize = 32;
/// It looks again by itself after this.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// What a worker is told.
pub enum Order<M> {
    /// For the protocol.
    Command(M),
    OpenDoor(Arc<Listener>, mio::net::TcpListener),
    /// Takes no more connections in there.
    CloseDoor(u32),
    /// Takes no more connections in, and ends when the last has ended, or at that time.
    Stop(Micros),
}

/// See the module.
pub struct Worker<P: Protocol> {
    poll: Poll,
    protocol: P,
    connections: Connections<P::Conversation>,
    arrivals: Arrivals,
    doors: Doors,
    mailbox: Arc<Mailbox<Order<P::Command>>>,
    clock: Clock,
    counters: Arc<Counters>,
    /// What the protocol has not handled yet.
    commands: VecDeque<P::Command>,
    /// Those that have room again.
    drained: Vec<ConnectionId>,
    /// When to end, whatever is left.
    stop_at: Option<Micros>,
}

impl<P: Protocol> Worker<P> {
    /// `index`: its number among its server's.
    pub fn new(index: u8, protocol: P, clock: Clock) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mailbox = Arc::new(Mailbox::new(&poll, WAKER)?);
        Ok(Self {
            poll,
            protocol,
            connections: Connections::new(index),
            arrivals: Arrivals::new(),
            doors: Doors::new(),
            mailbox,
            clock,
            counters: Arc::default(),
            commands: VecDeque::new(),
            drained: Vec::new(),
            stop_at: None,
        })
    }

    pub fn mailbox(&self) -> Arc<Mailbox<Order<P::Command>>> {
        Arc::clone(&self.mailbox)
    }

    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Works until it is told to stop.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        let mut mail = Vec::new();
        loop {
            self.sleep(&mut events)?;
            for event in &events {
                match event.token() {
                    WAKER => {}
                    Token(door) if door >= FIRST_DOOR => self.doors.ring(door - FIRST_DOOR),
                    Token(slot) => self.connections.handle_event(slot, event),
                }
            }
            let now = self.clock.now();
            self.read();
            self.mailbox.take(&mut mail);
            self.obey(&mut mail)?;
            self.turn(now);
            self.flush(now);
            if self.stop_at.is_some_and(|at| at <= now || self.connections.is_empty()) {
                return Ok(());
            }
        }
    }

    fn sleep(&mut self, events: &mut Events) -> io::Result<()> {
        let now = self.clock.now();
        let busy = !self.connections.ready.is_empty()
            || !self.connections.dirty.is_empty()
            || !self.drained.is_empty()
            || !self.commands.is_empty()
            || self.doors.is_open(now);
        let deadlines = [
            self.connections.next_deadline(),
            self.doors.next_deadline(),
            self.protocol.poll_timeout(),
            self.stop_at,
        ];
        let next = deadlines.into_iter().flatten().min();
        let wait = next.map_or(LONGEST_SLEEP, |at| Duration::from_micros(at.saturating_sub(now)));
        let sleeps = !busy && !wait.is_zero() && self.mailbox.begin_sleep();
        let wait = if sleeps { wait.min(LONGEST_SLEEP) } else { Duration::ZERO };
        let polled = self.poll.poll(events, Some(wait));
        self.mailbox.end_sleep();
        match polled {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
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
            self.bury(id);
        } else if entry.connection.is_still_ready() {
            self.connections.ready.push(id);
        }
    }

    /// Does what is for the worker itself; what is left is for the protocol.
    fn obey(&mut self, mail: &mut Vec<Order<P::Command>>) -> io::Result<()> {
        for order in mail.drain(..) {
            match order {
                Order::Command(command) => self.commands.push_back(command),
                Order::OpenDoor(listener, socket) => {
                    let registry = self.poll.registry();
                    self.doors.open(listener, socket, |socket, index| {
                        registry.register(socket, Token(FIRST_DOOR + index), Interest::READABLE)
                    })?;
                }
                Order::CloseDoor(number) => self.doors.close(Some(number)),
                Order::Stop(at) => {
                    self.doors.close(None);
                    self.stop_at = Some(at);
                }
            }
        }
        Ok(())
    }

    /// Has the protocol work through everything that is new.
    fn turn(&mut self, now: Micros) {
        let connections = &mut self.connections;
        let mut turn = self.protocol.begin_turn(now);
        let count = self.commands.len().min(COMMANDS_PER_TURN);
        for command in self.commands.drain(..count) {
            turn.handle_command(connections, command);
        }
        self.doors.accept(now, &self.counters, |door, socket, source, pass| {
            let settings = door.settings();
            let Ok(transport) = Transport::new(&settings.layers) else {
                return false;
            };
            let origin = Origin { listener: door.number, settings, pass };
            let mut connection = Connection::new(socket, source, transport, origin);
            let id = connections.next_id();
            let interest = Interest::READABLE | Interest::WRITABLE;
            if self.poll.registry().register(&mut connection.socket, Token(id.slot()), interest).is_err() {
                return false;
            }
            connections.insert(id, connection);
            let opening = turn.open(id, door.number);
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
                self.bury(id);
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
                self.bury(id);
            }
        }
    }

    fn bury(&mut self, id: ConnectionId) {
        if let Some(mut socket) = self.connections.remove(id) {
            // It is closed in any case, and leaves the poll with that.
            let _ = self.poll.registry().deregister(&mut socket);
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
