//! The clients of one worker: MQTT between their connections and the network.
//!
//! [`Clients`] is the protocol that `io` runs. In one iteration it passes bytes to the connections and
//! network messages to their sessions. It publishes the clients' messages while it holds the network's lock
//! once, posts requests to Python, and parks the sessions of connections that have ended.
//!
//! This file has the calls from `io` (bytes, timeouts, closed connections), `commands` those that other
//! threads posted. Both call a connection through `ClientTurn::with`.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;

use crate::Micros;
use crate::client_pool::core::ClientPoolCore;
use crate::mqtt::codec::packets::{CloseReason, Connect, Version};
use crate::mqtt::codec::publish::Publish;
use crate::mqtt::codec::reason::Reason;
use crate::mqtt::connection::Connection;
use crate::mqtt::connection::event::{Cause, Closed, Event, PublishOutcome, UpperLayer};
use crate::mqtt::distribution::bridge::{PoolGuard, PublishOptions, enter};
use crate::mqtt::distribution::encoder::Encoder;
use crate::mqtt::gateway::command::{Command, Traffic};
use crate::mqtt::gateway::dispatcher::Dispatcher;
use crate::mqtt::gateway::metrics::WorkerMetrics;
use crate::mqtt::gateway::worker_event::{Arrival, SessionHandle, WorkerEvent};
use crate::mqtt::io::admission::Admission;
use crate::mqtt::io::connection::Connection as Stream;
use crate::mqtt::io::connection::Ending;
use crate::mqtt::io::connections::Opening;
use crate::mqtt::io::connections::{ConnectionId, Connections};
use crate::mqtt::io::output::Output;
use crate::mqtt::io::protocol::{Protocol, Turn};
use crate::mqtt::metrics::counters::Counters;
use crate::mqtt::session::Session;
use crate::mqtt::{Key, Turn as ConnectionTurn};
use crate::prefix::Prefix;
use crate::shares::Share;

mod commands;

/// How a connection ended that reported no reason itself.
const LOST: Closed = Closed { cause: Cause::Lost, reason: Reason::UNSPECIFIED, session_expiry: None };

/// How many events may wait for Python before the workers accept no more connections. Python needs some 50 ms
/// for so many. So neither the queue to Python nor the number of clients that wait in it grows with the rate
/// of new connections.
const MOST_UNREAD: usize = 1_024;

/// A client may have this many requests to Python open. At that number its connection is not read until
/// Python has answered one.
const MOST_OPEN_REQUESTS: u16 = 16;

/// When the connection first offers a message again that the network had no room for.
const FIRST_RETRY: Micros = 2_000;
/// The delay doubles at most this many times.
const MOST_DOUBLINGS: u8 = 7;

/// The clients of one worker.
pub struct Clients {
    worker: u8,
    client_pool: Arc<ClientPoolCore>,
    dispatcher: Arc<Dispatcher>,
    encoder: Encoder,
    counters: Counters,
    /// Sessions whose connections have ended. They stay here until all items that were already posted for
    /// them have arrived.
    leaving: FxHashMap<ConnectionId, Leaving>,
    /// When parked sessions must be looked at. The first worker does so.
    parked_due: Micros,
    worker_events: Vec<WorkerEvent>,
    worker_metrics: Option<Arc<Mutex<WorkerMetrics>>>,
}

struct Leaving {
    handle: SessionHandle,
    session: Box<Session>,
    closed: Closed,
}

impl Clients {
    /// `worker_metrics`: where the clients' metrics are counted; `None` if telemetry is off.
    pub fn new(
        worker: u8,
        client_pool: Arc<ClientPoolCore>,
        dispatcher: Arc<Dispatcher>,
        worker_metrics: Option<Arc<Mutex<WorkerMetrics>>>,
    ) -> Self {
        Self {
            worker,
            client_pool,
            dispatcher,
            encoder: Encoder::default(),
            counters: Counters::default(),
            leaving: HashMap::default(),
            parked_due: Micros::MAX,
            worker_events: Vec::new(),
            worker_metrics,
        }
    }
}

impl Protocol for Clients {
    type Conversation = Client;
    type Command = Command;
    type Turn<'t> = ClientTurn<'t>;

    fn begin_turn(&mut self, now: Micros) -> ClientTurn<'_> {
        ClientTurn {
            worker: self.worker,
            now,
            dispatcher: &self.dispatcher,
            encoder: &mut self.encoder,
            counters: &mut self.counters,
            leaving: &mut self.leaving,
            parked_due: &mut self.parked_due,
            worker_events: &mut self.worker_events,
            upstream: Upstream::new(&self.client_pool),
            worker_metrics: self.worker_metrics.as_ref().map(|worker_metrics| worker_metrics.lock()),
        }
    }

    fn takes_connections(&self) -> bool {
        self.dispatcher.worker_events.waiting() < MOST_UNREAD
    }

    fn poll_timeout(&self) -> Option<Micros> {
        (self.parked_due < Micros::MAX).then_some(self.parked_due)
    }
}

/// One iteration over the clients of a worker.
pub struct ClientTurn<'t> {
    worker: u8,
    now: Micros,
    dispatcher: &'t Dispatcher,
    encoder: &'t mut Encoder,
    counters: &'t mut Counters,
    leaving: &'t mut FxHashMap<ConnectionId, Leaving>,
    parked_due: &'t mut Micros,
    worker_events: &'t mut Vec<WorkerEvent>,
    upstream: Upstream<'t>,
    /// Locked until the iteration ends. A reader of the metrics waits for that.
    worker_metrics: Option<MutexGuard<'t, WorkerMetrics>>,
}

impl<'t> Turn<'t, Client, Command> for ClientTurn<'t> {
    fn open(&mut self, _: ConnectionId, listener: u32) -> Opening<Client> {
        let client = Client::new(Connection::new(self.now, &self.dispatcher.settings_of(listener)));
        let deadline = client.deadline();
        let read_limit = client.connection.read_limit();
        Opening { conversation: client, deadline, read_limit }
    }

    fn handle_bytes(&mut self, connections: &mut Connections<Client>, id: ConnectionId, bytes: &'t [u8]) {
        self.with(connections, id, |connection, turn, upstream, _| {
            connection.handle_bytes(turn, bytes, upstream);
        });
    }

    fn handle_command(&mut self, connections: &mut Connections<Client>, command: Command) {
        self.obey(connections, command);
    }

    fn handle_timeout(&mut self, connections: &mut Connections<Client>, id: ConnectionId) {
        let now = self.now;
        let Some((_, client)) = connections.get(id) else {
            return;
        };
        let offer = client.retry.is_some_and(|at| at <= now);
        if offer {
            client.retry = None;
        }
        self.with(connections, id, |connection, turn, upstream, _| {
            if offer {
                connection.resume(turn, upstream);
            }
            if connection.poll_timeout() <= now {
                connection.handle_timeout(turn, upstream);
            }
        });
    }

    fn handle_not_admitted(&mut self, connections: &mut Connections<Client>, id: ConnectionId) {
        self.with(connections, id, |connection, turn, upstream, _| {
            connection.disconnect(turn, &Reason::NOT_AUTHORIZED.into(), upstream);
        });
    }

    fn handle_drained(&mut self, connections: &mut Connections<Client>, id: ConnectionId) {
        self.with(connections, id, |connection, turn, _, _| connection.flush(turn));
    }

    fn handle_close(&mut self, _: &mut Connections<Client>, id: ConnectionId, mut client: Client, _: Ending) {
        client.connection.handle_end(&mut self.upstream);
        for event in std::mem::take(&mut self.upstream.events) {
            if let Event::Closed(closed) = event {
                client.closed = Some(closed);
            }
        }
        self.conclude(id, client);
    }

    fn end(mut self, _: &mut Connections<Client>) {
        let tickets = self.dispatcher.releases.take();
        if !tickets.is_empty() {
            self.upstream.guard().handled(&tickets);
        }
        // Before the network's lock is released: after that the network may answer.
        if !self.upstream.published.is_empty() {
            self.dispatcher.expect_answers(self.upstream.published.drain(..));
        }
        drop(self.upstream);
        if let Some(worker_metrics) = &mut self.worker_metrics {
            worker_metrics.counters = *self.counters;
        }
        self.encoder.clear();
        if self.worker == 0 {
            *self.parked_due =
                self.dispatcher.run_housekeeping(self.now, *self.parked_due, self.worker_events);
        }
        self.dispatcher.worker_events.push(self.worker_events);
    }
}

impl ClientTurn<'_> {
    /// Calls a connection, and does what follows from the call.
    fn with(
        &mut self,
        connections: &mut Connections<Client>,
        id: ConnectionId,
        act: impl FnOnce(&mut Connection, &mut ConnectionTurn<'_>, &mut Upstream<'_>, &mut Encoder),
    ) {
        let now = self.now;
        let Some((client, output)) = connections.write(id) else {
            return;
        };
        (self.upstream.session, self.upstream.publish_options) = (client.session, client.publish_options);
        let (upstream, encoder, counters) = (&mut self.upstream, &mut *self.encoder, &mut *self.counters);
        let before = *counters;
        let load = self.worker_metrics.as_mut().map(|worker_metrics| &mut *worker_metrics.load);
        act(
            &mut client.connection,
            &mut ConnectionTurn { now, out: output, counters, load },
            upstream,
            encoder,
        );
        client.traffic.add(&before, counters);
        if std::mem::take(&mut upstream.has_published) {
            client.refusals = 0;
        }
        if std::mem::take(&mut upstream.had_no_room) {
            client.offer_later(now);
        }
        self.follow_up(connections, id);
    }

    /// Posts the connection's events to Python, pauses or resumes reading, and closes an ended connection.
    fn follow_up(&mut self, connections: &mut Connections<Client>, id: ConnectionId) {
        if !self.upstream.events.is_empty() {
            for event in std::mem::take(&mut self.upstream.events) {
                self.ask(connections, id, event);
            }
        }
        let Some((connection, client)) = connections.get(id) else {
            return;
        };
        let (source, held) = (connection.source().ip(), client.connection.buffered_bytes());
        let waits = !client.connection.wants_bytes();
        if !self.dispatcher.unfinished.set(&mut client.unfinished, source, held, waits) {
            self.counters.unfinished_full += 1;
            return self.with(connections, id, |connection, turn, upstream, _| {
                connection.disconnect(turn, &Reason::QUOTA_EXCEEDED.into(), upstream);
            });
        }
        if client.connection.is_closed() {
            if let Some(client) = connections.close(id) {
                self.conclude(id, client);
            }
            return;
        }
        let (held, deadline, read_limit) =
            (client.is_held(), client.deadline(), client.connection.read_limit());
        connections.set_read_limit(id, read_limit);
        connections.set_paused(id, held);
        connections.set_deadline(id, deadline);
    }

    fn ask(&mut self, connections: &mut Connections<Client>, id: ConnectionId, event: Event) {
        let Some((connection, client)) = connections.get(id) else {
            return;
        };
        let worker_events = match event {
            Event::Connect(connect) => {
                let Some(close_reason) = self.judge(connection, &connect) else {
                    client.version = Some(connect.version);
                    client.open_requests += 1;
                    let arrival = Arrival {
                        listener: connection.listener(),
                        source: connection.source(),
                        identity: connection.identity(),
                        connect: *connect,
                    };
                    return self.worker_events.push(WorkerEvent::Connect(id, Box::new(arrival)));
                };
                return self.with(connections, id, |connection, turn, upstream, _| {
                    connection.refuse(turn, &close_reason, upstream);
                });
            }
            Event::Subscribe(subscribe) => WorkerEvent::Subscribe(id, subscribe),
            Event::Unsubscribe(unsubscribe) => WorkerEvent::Unsubscribe(id, unsubscribe),
            Event::Auth(auth) => WorkerEvent::Auth(id, auth),
            // Python gets this event once all items that were already posted for the session have arrived.
            Event::Closed(closed) => {
                client.closed = Some(closed);
                return;
            }
        };
        client.open_requests += 1;
        self.worker_events.push(worker_events);
    }

    /// Why a client is refused without asking Python; `None` if Python decides.
    fn judge(&self, connection: &Stream, connect: &Connect) -> Option<CloseReason> {
        match connection.admission() {
            Admission::Full | Admission::HostFull => Some(Reason::QUOTA_EXCEEDED.into()),
            Admission::TooFast => Some(Reason::CONNECTION_RATE_EXCEEDED.into()),
            Admission::Welcome if connection.identity().is_some() => None,
            Admission::Welcome => self.dispatcher.refuse_guess(self.now, connection.source().ip(), connect),
        }
    }

    /// A connection has ended: parks its session and reports the end to Python.
    fn conclude(&mut self, id: ConnectionId, mut client: Client) {
        let closed = client.closed.take().unwrap_or(LOST);
        self.dispatcher.unfinished.free(std::mem::take(&mut client.unfinished));
        let mut nowhere = Output::default();
        let mut turn =
            ConnectionTurn { now: self.now, out: &mut nowhere, counters: self.counters, load: None };
        match client.connection.take_session(&mut turn) {
            Some(session) if client.session > 0 => {
                self.leaving.insert(id, Leaving { handle: client.session, session, closed });
                self.dispatcher.end_connection(client.session, id);
            }
            _ if client.version.is_some() => self.worker_events.push(WorkerEvent::Closed(id, closed)),
            _ => {}
        }
    }
}

/// The state that a worker keeps for one connection.
pub struct Client {
    pub connection: Connection,
    /// 0 until the client is accepted.
    pub session: SessionHandle,
    /// The number of its access list.
    pub access: Option<u32>,
    /// The origin that its messages carry once it has a subscription with No Local.
    pub origin: u64,
    /// Requests that Python has not answered.
    pub open_requests: u16,
    /// The network had no room for the client's message: when to offer it again, and how many times it was
    /// refused.
    pub retry: Option<Micros>,
    pub refusals: u8,
    pub publish_options: PublishOptions,
    /// The version of the CONNECT; `None` if Python does not know of the connection.
    pub version: Option<Version>,
    pub traffic: Traffic,
    /// The client's share of the memory for incomplete packets.
    pub unfinished: Share<Prefix>,
    /// How the connection ended.
    pub closed: Option<Closed>,
}

impl Client {
    pub fn new(connection: Connection) -> Self {
        Self {
            connection,
            session: 0,
            access: None,
            origin: 0,
            open_requests: 0,
            retry: None,
            refusals: 0,
            publish_options: PublishOptions::default(),
            version: None,
            traffic: Traffic::default(),
            unfinished: Share::default(),
            closed: None,
        }
    }

    /// The network had no room: offers the message again later. The delay doubles with each refusal.
    pub fn offer_later(&mut self, now: Micros) {
        self.retry = Some(now + (FIRST_RETRY << self.refusals.min(MOST_DOUBLINGS)));
        self.refusals = self.refusals.saturating_add(1);
    }

    /// Whether the connection must not be read now.
    pub fn is_held(&self) -> bool {
        self.open_requests >= MOST_OPEN_REQUESTS || self.retry.is_some() || !self.connection.wants_bytes()
    }

    /// When the worker must next call the connection.
    pub fn deadline(&self) -> Option<Micros> {
        let due = self.connection.poll_timeout().min(self.retry.unwrap_or(Micros::MAX));
        (due < Micros::MAX).then_some(due)
    }
}

/// Everything above the connections in one iteration of a worker: the network, and the events for Python.
pub struct Upstream<'t> {
    client_pool: &'t ClientPoolCore,
    guard: Option<PoolGuard<'t>>,
    /// (sequence number, session, key) of each message that the network took and has to answer.
    pub published: Vec<(u64, SessionHandle, Key)>,
    pub events: Vec<Event>,
    /// The session of the connection that is being called.
    pub session: SessionHandle,
    pub publish_options: PublishOptions,
    /// `had_no_room`: the network had no room for a message. `has_published`: the network took a message.
    pub had_no_room: bool,
    pub has_published: bool,
}

impl<'t> Upstream<'t> {
    pub fn new(client_pool: &'t ClientPoolCore) -> Self {
        Self {
            client_pool,
            guard: None,
            published: Vec::new(),
            events: Vec::new(),
            session: 0,
            publish_options: PublishOptions::default(),
            had_no_room: false,
            has_published: false,
        }
    }

    /// The network. Its lock is taken at most once in an iteration.
    pub fn guard(&mut self) -> &mut PoolGuard<'t> {
        self.guard.get_or_insert_with(|| enter(self.client_pool))
    }
}

impl UpperLayer for Upstream<'_> {
    fn publish(&mut self, publish: &Publish<'_>, key: Option<Key>) -> PublishOutcome {
        let publish_options = self.publish_options;
        match self.guard().publish(publish, publish_options) {
            Ok(Some(sequence)) => {
                self.has_published = true;
                if let Some(key) = key {
                    self.published.push((sequence, self.session, key));
                }
                PublishOutcome::Accepted
            }
            Ok(None) => {
                self.had_no_room = true;
                PublishOutcome::Later
            }
            Err(reason) => PublishOutcome::Refused(reason),
        }
    }

    fn event(&mut self, event: Event) {
        self.events.push(event);
    }
}
