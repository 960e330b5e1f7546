//! A gateway: a client pool (many clients of the network behind one socket) and the MQTT server in front of
//! it.
//!
//! ```text
//! Gateway (this file)   every verb of the gateway, for Python
//!   dispatcher             routes messages and commands to workers; keeps the parked sessions
//!      |  command             from other threads to the clients of a worker
//!      v
//!   clients                the clients of one worker; called by io through the trait `io::protocol`
//!   worker_event           events for Python
//!   metrics                of all workers, for telemetry
//!   unfinished             limits the memory of incomplete packets
//! ```
//!
//! Python calls the methods. Calls for one connection or session take effect in the order of the calls. A
//! call does not wait for a worker, except one that asks for status.

pub mod clients;
pub mod command;
pub mod dispatcher;
pub mod metrics;
mod unfinished;
pub mod worker_event;

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use bytes::Bytes;
use siphasher::sip::SipHasher24;

use crate::Micros;
use crate::client_pool::core::ClientPoolCore;
use crate::client_pool::messages::Mailbox;
use crate::config::Config;
use crate::load::Report;
use crate::mqtt::access::attempts::Attempts;
use crate::mqtt::access::rules::{AccessList, Rule};
use crate::mqtt::codec::reason::Reason;
use crate::mqtt::distribution::bridge::{InboxSorter, enter};
use crate::mqtt::distribution::fanout::Incoming;
use crate::mqtt::distribution::message::Message;
use crate::mqtt::gateway::clients::Clients;
use crate::mqtt::gateway::command::{Admitted, Command, ConnectionStatus};
use crate::mqtt::gateway::dispatcher::Dispatcher;
use crate::mqtt::gateway::metrics::GatewayMetrics;
use crate::mqtt::gateway::unfinished::UnfinishedPackets;
use crate::mqtt::gateway::worker_event::SessionHandle;
use crate::mqtt::io::Server;
use crate::mqtt::io::connections::ConnectionId;
use crate::mqtt::io::listener::Settings;
use crate::mqtt::metrics::counters::Drop as Loss;
use crate::mqtt::session::{Session, SessionState};
use crate::mqtt::settings::{ListenerSettings, SessionSettings};
use crate::wire::PublishView;

/// How long a status call waits for the answer of each worker. No worker blocks, so only the answer of a
/// worker that has ended takes so long.
const PATIENCE: Duration = Duration::from_secs(5);

/// The native half of a gateway.
pub struct Gateway {
    client_pool: Arc<ClientPoolCore>,
    pub dispatcher: Arc<Dispatcher>,
    server: Server<Clients>,
    seed: u64,
    gateway_metrics: Option<GatewayMetrics>,
}

impl Gateway {
    /// Starts a gateway. The client pool has the address `listen`, and its first pool client has these
    /// settings. `workers`: the number of MQTT workers. `own`: receives the messages for the gateway itself.
    /// `unfinished`: the bytes that the incomplete packets of all clients may hold.
    ///
    /// # Errors
    /// The address cannot be bound, or a thread cannot be started.
    pub fn start(
        config: Config,
        listen: SocketAddr,
        workers: usize,
        own: &Mailbox,
        unfinished: usize,
    ) -> io::Result<Self> {
        let seed = config.seed;
        let dispatcher = Arc::new(Dispatcher::new(UnfinishedPackets::new(unfinished, seed)));
        let (publisher, telemetry) = (config.publisher(), config.telemetry);
        let spans = config.spans.clone();
        let sorter = InboxSorter::new(Arc::clone(&dispatcher), own.clone(), publisher, spans);
        let client_pool =
            Arc::new(ClientPoolCore::on_thread(Config { hold: true, ..config }, listen, Box::new(sorter))?);
        let endpoint_state = client_pool.endpoint().endpoint_state();
        let mut gateway_metrics = telemetry.then(GatewayMetrics::new);
        let clients = |worker| {
            let worker_metrics = gateway_metrics.as_mut().map(GatewayMetrics::add);
            Clients::new(worker, Arc::clone(&client_pool), Arc::clone(&dispatcher), worker_metrics)
        };
        let server = Server::start(workers, endpoint_state.clock, clients)?;
        let worker_handles =
            server.worker_handles().iter().map(|worker_handle| Arc::clone(worker_handle) as _);
        dispatcher.introduce(endpoint_state, worker_handles.collect());
        Ok(Self { client_pool, dispatcher, server, seed, gateway_metrics })
    }

    /// The client pool.
    pub fn client_pool(&self) -> &Arc<ClientPoolCore> {
        &self.client_pool
    }

    /// Opens a listener at an address (port 0: any free port) and returns the bound address. `number`:
    /// identifies the listener in events.
    ///
    /// # Errors
    /// The address is in use, or not of this machine.
    pub fn listen(
        &self,
        number: u32,
        address: SocketAddr,
        io: Settings,
        mqtt: ListenerSettings,
    ) -> io::Result<SocketAddr> {
        self.dispatcher.set_settings(number, mqtt);
        Ok(self.server.listen(number, address, io)?.address)
    }

    /// Changes the settings of a listener for new connections. Clients that its TLS does not admit any more
    /// are disconnected. False: there is no listener with this number.
    pub fn set_listener(&self, number: u32, io: Settings, mqtt: ListenerSettings) -> bool {
        let is_known = self.server.set_listener(number, io);
        if is_known {
            self.dispatcher.set_settings(number, mqtt);
        }
        is_known
    }

    // Connections

    /// Posts a command for a connection.
    pub fn post(&self, connection: ConnectionId, command: Command) {
        self.dispatcher.post(connection.worker(), command);
    }

    /// Accepts a CONNECT. `access`: the number of an access list; `None` allows everything.
    pub fn accept(&self, connection: ConnectionId, mut admitted: Admitted, access: Option<u32>) {
        admitted.access = access.and_then(|number| Some((number, self.dispatcher.access(number)?)));
        self.post(connection, Command::Accept(connection, Box::new(admitted)));
    }

    /// Sends SUBACK, and then the messages that were held back for it.
    pub fn suback(&self, connection: ConnectionId, packet: u16, reasons: Vec<Reason>, text: String) {
        self.dispatcher.suback(self.now(), connection, packet, reasons, text);
    }

    // Sessions and listeners

    /// Opens a session without a connection. Its messages are queued.
    pub fn open_session(&self, state: SessionState) -> SessionHandle {
        self.dispatcher.open_session(self.now(), Session::import(SessionSettings::default(), state))
    }

    /// Ends a session that has no connection, and its listeners; `None` if there is no such session.
    /// `is_over`: no other gateway resumes it.
    pub fn export_session(&self, session: SessionHandle, is_over: bool) -> Option<SessionState> {
        let state = self.dispatcher.export(session, is_over)?;
        // Before the session's pool client can send anything else: after the session's end its owners send to
        // other members of a shared group.
        let tickets = self.dispatcher.releases.take();
        if !tickets.is_empty() {
            enter(&self.client_pool).handled(&tickets);
        }
        Some(state)
    }

    /// Delivers a message of the gateway itself to one listener, as if the owner had sent it.
    pub fn deliver(&self, listener: u64, topic: &str, payload: Bytes, qos: u8, retained: bool) {
        let mut view = PublishView::default();
        (view.topic, view.qos) = (topic, qos);
        let message = Message::from_network(&view, Arc::from(view.topic), payload);
        let incoming = Incoming { ticket: None, message, retained, origin: 0, listeners: &[listener] };
        self.dispatcher.round(self.now(), false).message(incoming);
    }

    // Policy

    /// Installs or replaces an access list. It applies at once to all clients that have it.
    pub fn install_access(&self, number: u32, rules: Vec<Rule>) {
        self.dispatcher.set_access(number, AccessList::new(rules, self.seed));
    }

    /// Assigns another access list to a client; false: there is no such list.
    pub fn assign_access(&self, connection: ConnectionId, number: u32) -> bool {
        let Some(list) = self.dispatcher.access(number) else {
            return false;
        };
        self.post(connection, Command::Assign(connection, number, list));
        true
    }

    /// Refuses CONNECTs beyond these limits without asking Python; `None`: none. The limits use the machine's
    /// own clock.
    pub fn refuse_guesses(&self, attempts: Option<Arc<Attempts>>) {
        let ahead = self.client_pool.endpoint().endpoint_state().clock.unix_offset();
        self.dispatcher.set_attempts(attempts.map(|attempts| (attempts, ahead)));
    }

    // Status

    /// At most `most` open connections.
    pub fn connections(&self, most: usize) -> Vec<ConnectionStatus> {
        let mut connections: Vec<ConnectionStatus> =
            self.ask(Command::Report).into_iter().flatten().collect();
        connections.truncate(most);
        connections
    }

    /// Every counter and gauge of the MQTT side, by name.
    pub fn counters(&self) -> BTreeMap<String, u64> {
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        let mut add = |name: &str, value: u64| {
            let name = name.strip_prefix("mqtt.").unwrap_or(name);
            *sums.entry(name.to_owned()).or_default() += value;
        };
        let mut dropped = 0;
        let parked = self.dispatcher.count(&mut add);
        for counters in self.ask(Command::Count).into_iter().chain([parked]) {
            counters.each(&mut add);
            dropped += Loss::ALL.iter().map(|why| counters.drops[*why as usize]).sum::<u64>();
        }
        for (name, value) in self.server.counters() {
            add(name, value);
        }
        add("dropped", dropped);
        add("unfinished_bytes", self.dispatcher.unfinished.bytes() as u64);
        let (accepted, closed) = (sums.get("accepted").copied(), sums.get("closed").copied());
        let connections = accepted.unwrap_or(0).saturating_sub(closed.unwrap_or(0));
        sums.insert("connections".to_owned(), connections);
        sums
    }

    /// Ends the interval of the metrics by topic; `None` if they are off. All values of one worker are from
    /// the same moment.
    pub fn take_load(&self) -> Option<Report> {
        let mut report = self.gateway_metrics.as_ref()?.take(&self.dispatcher);
        for (name, value) in self.client_pool.endpoint().counters() {
            let name = name.strip_prefix("socket.").unwrap_or(name);
            report.count(name, value);
        }
        let of = |wanted: &str| {
            self.server.counters().iter().find(|(name, _)| *name == wanted).map_or(0, |(_, n)| *n)
        };
        report.gauges.insert("connections", of("mqtt.accepted").saturating_sub(of("mqtt.closed")));
        Some(report)
    }

    /// Why a thread ended by itself, if one has.
    pub fn fault(&self) -> Option<String> {
        self.client_pool.endpoint().fault().or_else(|| self.server.fault())
    }

    /// Stops accepting, lets the connections that are closing send their last bytes for `grace`, and stops
    /// the threads. Idempotent.
    pub fn shutdown(&self, grace: Duration) {
        self.server.shutdown(grace);
        self.client_pool.endpoint().shutdown();
    }

    fn now(&self) -> Micros {
        self.client_pool.endpoint().endpoint_state().clock.now()
    }

    /// Asks every worker, and returns the answers that arrive in time.
    fn ask<T>(&self, make: impl Fn(SyncSender<T>) -> Command) -> Vec<T> {
        let (sender, receiver): (_, Receiver<T>) = sync_channel(self.server.workers());
        self.dispatcher.post_all(|| make(sender.clone()));
        drop(sender);
        std::iter::from_fn(|| receiver.recv_timeout(PATIENCE).ok()).collect()
    }
}

/// Marks the messages of a client, with the same value at every gateway, for the client's own subscriptions
/// with No Local (§3.8.3.1). Not 0.
pub fn origin_of(client_id: &str) -> u64 {
    let mut hasher = SipHasher24::new();
    hasher.write(client_id.as_bytes());
    hasher.finish().max(1)
}
