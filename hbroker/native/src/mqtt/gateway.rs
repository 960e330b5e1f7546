//! A gateway: many clients of the network behind one socket, and an MQTT server in front of them.
//!
//! Its verbs are Python's. Those for one connection or session take effect in the order in which they are called; nobody waits for
//! a worker but who asks how things are.

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
use crate::mqtt::clients::Clients;
use crate::mqtt::codec::packets::{Auth, CloseReason};
use crate::mqtt::codec::reason::Reason;
use crate::mqtt::command::{Admitted, Command, ConnectionStatus};
use crate::mqtt::counters::Drop as Loss;
use crate::mqtt::dispatcher::Dispatcher;
use crate::mqtt::distribution::bridge::Sorter;
use crate::mqtt::distribution::fanout::{Incoming, Options};
use crate::mqtt::distribution::message::Message;
use crate::mqtt::distribution::network::{Guard, Network};
use crate::mqtt::io::Server;
use crate::mqtt::io::connections::ConnectionId;
use crate::mqtt::io::listener::Settings;
use crate::mqtt::io::worker_handle::CommandSender;
use crate::mqtt::metrics::GatewayMetrics;
use crate::mqtt::session::{Session, SessionState};
use crate::mqtt::settings::{ListenerSettings, SessionSettings};
use crate::mqtt::unfinished::Unfinished;
use crate::mqtt::worker_event::{SessionHandle, WorkerEvent};
use crate::wire::PublishView;

/// How long who asks waits for each worker. None blocks, so this is for one that has ended.
const PATIENCE: Duration = Duration::from_secs(5);

/// The native half of a gateway.
pub struct Gateway {
    client_pool: Arc<ClientPoolCore>,
    dispatcher: Arc<Dispatcher>,
    server: Server<Clients<ClientPoolCore>>,
    seed: u64,
    gateway_metrics: Option<GatewayMetrics>,
}

impl Gateway {
    /// A gateway whose hive has the address `listen`, and whose first member has these settings. `workers`: of MQTT. `own`: where
    /// messages for the gateway itself go. `unfinished`: bytes of packets that are not whole yet, of all clients.
    ///
    /// # Errors
    /// The address cannot be bound, or a thread not be started.
    pub fn start(
        config: Config,
        listen: SocketAddr,
        workers: usize,
        own: &Mailbox,
        unfinished: usize,
    ) -> io::Result<Self> {
        let seed = config.seed;
        let dispatcher = Arc::new(Dispatcher::new(Unfinished::new(unfinished, seed)));
        let (publisher, telemetry) = (config.publisher(), config.telemetry);
        let sorter = |_| Box::new(Sorter::new(Arc::clone(&dispatcher), own.clone(), publisher)) as _;
        let client_pool =
            Arc::new(ClientPoolCore::on_threads(Config { hold: true, ..config }, listen, 1, sorter)?);
        let endpoint_state = client_pool.endpoint().endpoint_state();
        let mut gateway_metrics = telemetry.then(GatewayMetrics::new);
        let clients = |worker| {
            let worker_metrics = gateway_metrics.as_mut().map(GatewayMetrics::add);
            Clients::new(worker, Arc::clone(&client_pool), Arc::clone(&dispatcher), worker_metrics)
        };
        let server = Server::start(workers, endpoint_state.clock, clients)?;
        dispatcher.introduce(
            endpoint_state,
            server
                .worker_handles()
                .iter()
                .map(|worker_handle| Arc::clone(worker_handle) as Arc<dyn CommandSender<Command>>)
                .collect(),
        );
        Ok(Self { client_pool, dispatcher, server, seed, gateway_metrics })
    }

    /// The members' side.
    pub fn client_pool(&self) -> &Arc<ClientPoolCore> {
        &self.client_pool
    }

    /// Takes clients in at an address (port 0: any free one); where it is now. `number`: what connections are said to come by.
    ///
    /// # Errors
    /// The address is taken, or not here.
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

    /// Sets a listener anew, for those who come from now on. False: there is none of this number.
    pub fn set_listener(&self, number: u32, io: Settings, mqtt: ListenerSettings) -> bool {
        let Some(listener) = self.server.listener(number) else {
            return false;
        };
        self.dispatcher.set_settings(number, mqtt);
        listener.set(io);
        true
    }

    /// Takes nobody in there any more.
    pub fn close_listener(&self, number: u32) {
        self.server.close_listener(number);
    }

    // Connections

    /// What there is to decide on.
    pub fn take_worker_events(&self, limit: usize) -> Vec<WorkerEvent> {
        self.dispatcher.worker_events.take(limit)
    }

    /// Says yes to CONNECT. `access`: the number of an access list; `None`: everything is allowed.
    pub fn accept(&self, connection: ConnectionId, mut admitted: Admitted, access: Option<u32>) {
        admitted.access = access.and_then(|number| Some((number, self.dispatcher.access(number)?)));
        self.post(connection, Command::Accept(connection, Box::new(admitted)));
    }

    pub fn refuse(&self, connection: ConnectionId, close_reason: CloseReason) {
        self.post(connection, Command::Refuse(connection, Box::new(close_reason)));
    }

    pub fn challenge(&self, connection: ConnectionId, auth: Auth) {
        self.post(connection, Command::Challenge(connection, Box::new(auth)));
    }

    pub fn disconnect(&self, connection: ConnectionId, close_reason: CloseReason) {
        self.post(connection, Command::Disconnect(connection, Box::new(close_reason)));
    }

    /// Every connection.
    pub fn disconnect_all(&self, close_reason: &CloseReason) {
        self.dispatcher.post_all(|| Command::DisconnectAll(Box::new(close_reason.clone())));
    }

    /// SUBACK, and then what waited for it.
    pub fn suback(&self, connection: ConnectionId, packet: u16, reasons: Vec<Reason>, text: String) {
        self.dispatcher.suback(self.now(), connection, packet, reasons, text);
    }

    pub fn unsuback(&self, connection: ConnectionId, packet: u16, reasons: Vec<Reason>, text: String) {
        self.post(connection, Command::Unsuback(connection, packet, reasons, text));
    }

    // Sessions and listeners

    /// A session without a connection. What comes for it waits.
    pub fn open_session(&self, state: SessionState) -> SessionHandle {
        self.dispatcher.open_session(self.now(), Session::import(SessionSettings::default(), state))
    }

    /// Ends a session that has no connection; `None`: there is no such session. Its listeners end too. `is_over`: nobody goes on with it.
    pub fn export_session(&self, session: SessionHandle, is_over: bool) -> Option<SessionState> {
        let state = self.dispatcher.export(session, is_over)?;
        // Before its member can say anything else: what owners hear of behind the session's end goes to others.
        let tickets = self.dispatcher.releases.take();
        if !tickets.is_empty() {
            self.client_pool.enter().handled(&tickets);
        }
        Some(state)
    }

    /// Has a listener's messages go to a session. `hold`: once the SUBACK with this packet id is out.
    pub fn attach_listener(
        &self,
        listener: u64,
        session: SessionHandle,
        options: Options,
        hold: Option<u16>,
    ) {
        self.dispatcher.attach(listener, session, options, hold);
    }

    pub fn detach_listener(&self, listener: u64) {
        self.dispatcher.detach(listener);
    }

    /// Gives one listener a message of the gateway's own, as if its owner had sent it.
    pub fn deliver(&self, listener: u64, topic: &str, payload: Bytes, qos: u8, retained: bool) {
        let mut view = PublishView::default();
        (view.topic, view.qos) = (topic, qos);
        let message = Message::from_network(&view, Arc::from(view.topic), payload);
        let incoming = Incoming { ticket: None, message, retained, origin: 0, listeners: &[listener] };
        self.dispatcher.round(self.now()).message(incoming);
    }

    // Policy

    /// Makes an access list, or replaces it, at once for all who have it.
    pub fn install_access(&self, number: u32, rules: Vec<Rule>) {
        self.dispatcher.set_access(number, AccessList::new(rules, self.seed));
    }

    /// Holds a client to another list; false: there is no such list.
    pub fn assign_access(&self, connection: ConnectionId, number: u32) -> bool {
        let Some(list) = self.dispatcher.access(number) else {
            return false;
        };
        self.post(connection, Command::Assign(connection, number, list));
        true
    }

    pub fn forget_access(&self, number: u32) {
        self.dispatcher.forget_access(number);
    }

    /// Has CONNECTs refused that these refuse, unasked; `None`: none. Their clock is the machine's own count.
    pub fn refuse_guesses(&self, attempts: Option<Arc<Attempts>>) {
        let ahead = self.client_pool.endpoint().endpoint_state().clock.unix_offset();
        self.dispatcher.set_attempts(attempts.map(|attempts| (attempts, ahead)));
    }

    // How things are

    /// Open connections, `most` of them.
    pub fn connections(&self, most: usize) -> Vec<ConnectionStatus> {
        let mut connections: Vec<ConnectionStatus> =
            self.ask(Command::Report).into_iter().flatten().collect();
        connections.truncate(most);
        connections
    }

    /// Every counter and gauge of the MQTT side by name.
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

    /// Ends the interval of what is counted by topic; `None`: nothing is. In each worker all that is said is of the same moment.
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

    /// Takes nobody in, gives those who are being told their end `grace` to hear it, and stops the threads. Idempotent.
    pub fn shutdown(&self, grace: Duration) {
        self.server.shutdown(grace);
        self.client_pool.endpoint().shutdown();
    }

    fn post(&self, connection: ConnectionId, command: Command) {
        self.dispatcher.post(connection.worker(), command);
    }

    fn now(&self) -> Micros {
        self.client_pool.endpoint().endpoint_state().clock.now()
    }

    /// Asks every worker; what came within patience.
    fn ask<T>(&self, make: impl Fn(SyncSender<T>) -> Command) -> Vec<T> {
        let (sender, receiver): (_, Receiver<T>) = sync_channel(self.server.workers());
        self.dispatcher.post_all(|| make(sender.clone()));
        drop(sender);
        std::iter::from_fn(|| receiver.recv_timeout(PATIENCE).ok()).collect()
    }
}

/// Marks the messages of a client, the same at every gateway, for its own subscriptions without local ones (§3.8.3.1). Not 0.
pub fn origin_of(client_id: &str) -> u64 {
    let mut hasher = SipHasher24::new();
    hasher.write(client_id.as_bytes());
    hasher.finish().max(1)
}
