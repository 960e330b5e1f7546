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
use crate::client_pool::core::HiveCore;
use crate::client_pool::messages::Mailbox;
use crate::config::Config;
use crate::load::Report;
use crate::mqtt::access::attempts::Attempts;
use crate::mqtt::access::rules::{AccessList, Rule};
use crate::mqtt::client_counters::Slates;
use crate::mqtt::clients::Clients;
use crate::mqtt::codec::packets::{Auth, Farewell};
use crate::mqtt::codec::reason::Reason;
use crate::mqtt::command::{Admitted, Command, ConnectionStatus};
use crate::mqtt::counters::Drop as Loss;
use crate::mqtt::distribution::bridge::Sorter;
use crate::mqtt::distribution::fanout::{Incoming, Options};
use crate::mqtt::distribution::message::Message;
use crate::mqtt::distribution::network::{Network, Visit};
use crate::mqtt::io::Server;
use crate::mqtt::io::commands::Post;
use crate::mqtt::io::connections::ConnectionId;
use crate::mqtt::io::listener::Settings;
use crate::mqtt::mailbox::Office;
use crate::mqtt::session::{Session, SessionState};
use crate::mqtt::settings::{ListenerSettings, SessionSettings};
use crate::mqtt::unfinished::Unfinished;
use crate::mqtt::worker_event::{News, SessionHandle};
use crate::wire::PublishView;

/// How long who asks waits for each worker. None blocks, so this is for one that has ended.
const PATIENCE: Duration = Duration::from_secs(5);

/// The native half of a gateway.
pub struct Gateway {
    hive: Arc<HiveCore>,
    office: Arc<Office>,
    server: Server<Clients<HiveCore>>,
    seed: u64,
    slates: Option<Slates>,
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
        let office = Arc::new(Office::new(Unfinished::new(unfinished, seed)));
        let (publisher, telemetry) = (config.publisher(), config.telemetry);
        let sorter = |_| Box::new(Sorter::new(Arc::clone(&office), own.clone(), publisher)) as _;
        let hive = Arc::new(HiveCore::on_threads(Config { hold: true, ..config }, listen, 1, sorter)?);
        let fleet = hive.endpoint().fleet();
        let mut slates = telemetry.then(Slates::new);
        let clients = |worker| {
            let slate = slates.as_mut().map(Slates::add);
            Clients::new(worker, Arc::clone(&hive), Arc::clone(&office), slate)
        };
        let server = Server::start(workers, fleet.clock, clients)?;
        office.introduce(
            fleet,
            server.desks().iter().map(|desk| Arc::clone(desk) as Arc<dyn Post<Command>>).collect(),
        );
        Ok(Self { hive, office, server, seed, slates })
    }

    /// The members' side.
    pub fn hive(&self) -> &Arc<HiveCore> {
        &self.hive
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
        self.office.set_settings(number, mqtt);
        Ok(self.server.listen(number, address, io)?.address)
    }

    /// Sets a listener anew, for those who come from now on. False: there is none of this number.
    pub fn set_listener(&self, number: u32, io: Settings, mqtt: ListenerSettings) -> bool {
        let Some(listener) = self.server.listener(number) else {
            return false;
        };
        self.office.set_settings(number, mqtt);
        listener.set(io);
        true
    }

    /// Takes nobody in there any more.
    pub fn close_listener(&self, number: u32) {
        self.server.close_listener(number);
    }

    // Connections

    /// What there is to decide on.
    pub fn take_news(&self, limit: usize) -> Vec<News> {
        self.office.news.take(limit)
    }

    /// Says yes to CONNECT. `access`: the number of an access list; `None`: everything is allowed.
    pub fn accept(&self, connection: ConnectionId, mut admitted: Admitted, access: Option<u32>) {
        admitted.access = access.and_then(|number| Some((number, self.office.access(number)?)));
        self.post(connection, Command::Accept(connection, Box::new(admitted)));
    }

    pub fn refuse(&self, connection: ConnectionId, farewell: Farewell) {
        self.post(connection, Command::Refuse(connection, Box::new(farewell)));
    }

    pub fn challenge(&self, connection: ConnectionId, auth: Auth) {
        self.post(connection, Command::Challenge(connection, Box::new(auth)));
    }

    pub fn disconnect(&self, connection: ConnectionId, farewell: Farewell) {
        self.post(connection, Command::Disconnect(connection, Box::new(farewell)));
    }

    /// Every connection.
    pub fn disconnect_all(&self, farewell: &Farewell) {
        self.office.post_all(|| Command::DisconnectAll(Box::new(farewell.clone())));
    }

    /// SUBACK, and then what waited for it.
    pub fn suback(&self, connection: ConnectionId, packet: u16, reasons: Vec<Reason>, text: String) {
        self.office.suback(self.now(), connection, packet, reasons, text);
    }

    pub fn unsuback(&self, connection: ConnectionId, packet: u16, reasons: Vec<Reason>, text: String) {
        self.post(connection, Command::Unsuback(connection, packet, reasons, text));
    }

    // Sessions and listeners

    /// A session without a connection. What comes for it waits.
    pub fn open_session(&self, state: SessionState) -> SessionHandle {
        self.office.open_session(self.now(), Session::import(SessionSettings::default(), state))
    }

    /// Ends a session that has no connection; `None`: there is no such session. Its listeners end too. `is_over`: nobody goes on with it.
    pub fn export_session(&self, session: SessionHandle, is_over: bool) -> Option<SessionState> {
        let state = self.office.export(session, is_over)?;
        // Before its member can say anything else: what owners hear of behind the session's end goes to others.
        let tickets = self.office.releases.take();
        if !tickets.is_empty() {
            self.hive.enter().handled(&tickets);
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
        self.office.attach(listener, session, options, hold);
    }

    pub fn detach_listener(&self, listener: u64) {
        self.office.detach(listener);
    }

    /// Gives one listener a message of the gateway's own, as if its owner had sent it.
    pub fn deliver(&self, listener: u64, topic: &str, payload: Bytes, qos: u8, retained: bool) {
        let mut view = PublishView::default();
        (view.topic, view.qos) = (topic, qos);
        let message = Message::from_network(&view, Arc::from(view.topic), payload);
        let incoming = Incoming { ticket: None, message, retained, origin: 0, listeners: &[listener] };
        self.office.round(self.now()).message(incoming);
    }

    // Policy

    /// Makes an access list, or replaces it, at once for all who have it.
    pub fn install_access(&self, number: u32, rules: Vec<Rule>) {
        self.office.set_access(number, AccessList::new(rules, self.seed));
    }

    /// Holds a client to another list; false: there is no such list.
    pub fn assign_access(&self, connection: ConnectionId, number: u32) -> bool {
        let Some(list) = self.office.access(number) else {
            return false;
        };
        self.post(connection, Command::Assign(connection, number, list));
        true
    }

    pub fn forget_access(&self, number: u32) {
        self.office.forget_access(number);
    }

    /// Has CONNECTs refused that these refuse, unasked; `None`: none. Their clock is the machine's own count.
    pub fn refuse_guesses(&self, attempts: Option<Arc<Attempts>>) {
        let ahead = self.hive.endpoint().fleet().clock.unix_offset();
        self.office.set_attempts(attempts.map(|attempts| (attempts, ahead)));
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
        let parked = self.office.count(&mut add);
        for counters in self.ask(Command::Count).into_iter().chain([parked]) {
            counters.each(&mut add);
            dropped += Loss::ALL.iter().map(|why| counters.drops[*why as usize]).sum::<u64>();
        }
        for (name, value) in self.server.counters() {
            add(name, value);
        }
        add("dropped", dropped);
        add("unfinished_bytes", self.office.unfinished.bytes() as u64);
        let (accepted, closed) = (sums.get("accepted").copied(), sums.get("closed").copied());
        let connections = accepted.unwrap_or(0).saturating_sub(closed.unwrap_or(0));
        sums.insert("connections".to_owned(), connections);
        sums
    }

    /// Ends the interval of what is counted by topic; `None`: nothing is. In each worker all that is said is of the same moment.
    pub fn take_load(&self) -> Option<Report> {
        let mut report = self.slates.as_ref()?.take(&self.office);
        for (name, value) in self.hive.endpoint().counters() {
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
        self.hive.endpoint().fault().or_else(|| self.server.fault())
    }

    /// Takes nobody in, gives those who are being told their end `grace` to hear it, and stops the threads. Idempotent.
    pub fn shutdown(&self, grace: Duration) {
        self.server.shutdown(grace);
        self.hive.endpoint().shutdown();
    }

    fn post(&self, connection: ConnectionId, command: Command) {
        self.office.post(connection.worker(), command);
    }

    fn now(&self) -> Micros {
        self.hive.endpoint().fleet().clock.now()
    }

    /// Asks every worker; what came within patience.
    fn ask<T>(&self, make: impl Fn(SyncSender<T>) -> Command) -> Vec<T> {
        let (sender, receiver): (_, Receiver<T>) = sync_channel(self.server.workers());
        self.office.post_all(|| make(sender.clone()));
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
