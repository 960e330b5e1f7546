//! The engines behind the native API, the same for all kinds of drivers.
//!
//! ```text
//! python ──> Core (this file)   `on` calls the engine of a worker, `each` those of all; what needs more than
//!              │                such a call is a method of its own
//!              ├─ moves         handovers of subtrees: begin_export … install
//!              └─ stored        the store of a node: open_store … run_store
//! Core ──> one engine in virtual time, an `Endpoint` (an engine for each thread),
//!          a pool client, or a client of a load
//! ```
//!
//! What concerns a link or a session is for the engine of the worker that has it. What changes tables
//! (jurisdiction, subscriptions) changes them in every worker. The workers share the retained messages.

mod moves;
mod stored;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use self::stored::NodeStore;
use crate::Micros;
use crate::association;
use crate::association::admission;
use crate::association::packet::AssociationId;
use crate::bench::io::client::LoadEndpoint;
use crate::client_pool::core::ClientPoolCore;
use crate::config::Config;
use crate::endpoint::Endpoint;
use crate::endpoint::machine::Machine;
use crate::endpoint::sealed::Sealed;
use crate::endpoint::socket::{Options, Socket};
use crate::engine::metrics::counters::{Counters, Drop, EngineCounters};
use crate::engine::metrics::load::LoadGauges;
use crate::engine::owner::forward::retain;
use crate::engine::owner::subscriptions::Opened;
use crate::engine::retained::replay::Request;
use crate::engine::sessions::bounds::Bounds;
use crate::engine::sessions::session::Status;
use crate::engine::transport::event::{Event, Message};
use crate::engine::transport::outbound::Handoff;
use crate::engine::{Engine, Shared};
use crate::link_id::{LinkId, PoolClientId, SessionKey};
use crate::load::{Report, Taker, latency};
use crate::rights::Rights;
use crate::sink::DatagramSink;
use crate::tables::retained::{Offer, Wanted, ranges};
use crate::tables::subscriber::Subscriber;
use crate::topic::Region;
use crate::wire::{self, Body, PacketView};
use crate::workspace::Workspace;

/// The most numbers of retained messages that are given to the store while their table is locked.
const REMOVED_AT_ONCE: usize = 1_024;

/// One or several engines, and the state that they share.
pub struct Core {
    driver: Driver,
    shared: Shared,
    /// Whose names the application uses.
    workspace: Workspace,
    /// `None` if metrics by topic are off.
    taker: Option<Mutex<Taker>>,
    /// How many barriers were sent.
    barriers: AtomicU64,
    store: OnceLock<NodeStore>,
}

enum Driver {
    /// The time is that of the last call.
    Virtual(Box<Mutex<(Sealed<Engine>, Micros)>>),
    Threads(Endpoint<Engine>),
    /// One of many clients that share a socket.
    PoolClient(Arc<ClientPoolCore>, PoolClientId),
    /// A client whose application is a load.
    Load(Arc<LoadEndpoint>),
}

impl Core {
    /// A core with one engine, in virtual time.
    pub fn in_virtual_time(config: Config) -> Self {
        let shared = Shared::new(&config, 1);
        let taker = taker(&config, 1);
        let associations = association::table::Shared::of(&config);
        let workspace = config.workspace.clone();
        let engine = Engine::new(config, 0, 1, shared.clone());
        let sealed = Sealed::new(engine, associations.as_ref(), 0);
        Self::of(shared, Driver::Virtual(Box::new(Mutex::new((sealed, 0)))), taker, workspace)
    }

    /// A core with one engine for each of `workers` threads, at one address. `inherited`: a bound socket for
    /// each, of an earlier process; empty: they are bound now.
    ///
    /// # Errors
    /// The address cannot be bound, the inherited ones are no UDP sockets, or a thread cannot be started.
    pub fn on_threads(
        config: Config,
        listen: SocketAddr,
        workers: u8,
        inherited: &[RawFd],
    ) -> io::Result<Self> {
        let shared = Shared::new(&config, workers);
        let taker = taker(&config, workers);
        let engines = (0..workers).map(|worker| Engine::new(config.clone(), worker, workers, shared.clone()));
        let associations = association::table::Shared::of(&config);
        let engines = engines.collect();
        let endpoint = if inherited.is_empty() {
            Endpoint::new(engines, listen, associations)?
        } else {
            let sockets = inherited.iter().map(|&one| Socket::inherit(one, Options::default()));
            Endpoint::on_sockets(engines, sockets.collect::<io::Result<_>>()?, associations)?
        };
        Ok(Self::of(shared, Driver::Threads(endpoint), taker, config.workspace))
    }

    /// The core of a pool client. Once that client is closed, the core's methods have no effect.
    pub fn of_pool_client(client_pool: Arc<ClientPoolCore>, id: PoolClientId) -> Self {
        let workspace = client_pool.workspace().clone();
        Self::of(client_pool.shared().clone(), Driver::PoolClient(client_pool, id), None, workspace)
    }

    /// The core of a client in a load, which the load's thread drives.
    pub fn of_load(config: &Config, endpoint: Arc<LoadEndpoint>) -> Self {
        Self::of(Shared::new(config, 1), Driver::Load(endpoint), None, config.workspace.clone())
    }

    fn of(shared: Shared, driver: Driver, taker: Option<Mutex<Taker>>, workspace: Workspace) -> Self {
        Self { driver, shared, workspace, taker, barriers: AtomicU64::default(), store: OnceLock::new() }
    }

    /// The workspace whose names the application uses.
    pub fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// The threads and sockets; `None` in virtual time, and for clients of a pool or a load.
    pub fn endpoint(&self) -> Option<&Endpoint<Engine>> {
        match &self.driver {
            Driver::Virtual(_) | Driver::PoolClient(..) | Driver::Load(_) => None,
            Driver::Threads(endpoint) => Some(endpoint),
        }
    }

    /// The certificate with which the peer at an address proved itself, as DER; `None`: it has not.
    pub fn certificate(&self, peer: SocketAddr) -> Option<Vec<u8>> {
        match &self.driver {
            Driver::Virtual(sealed) => sealed.lock().0.certificate(peer),
            Driver::Threads(endpoint) => endpoint.associations()?.certificate(peer),
            Driver::PoolClient(..) | Driver::Load(_) => None,
        }
    }

    /// Whether there is an association with this id.
    pub fn has_association(&self, association: AssociationId) -> bool {
        match &self.driver {
            Driver::Virtual(sealed) => sealed.lock().0.has_association(association),
            Driver::Threads(endpoint) => endpoint.associations().is_some_and(|all| all.has(association)),
            Driver::PoolClient(..) | Driver::Load(_) => false,
        }
    }

    /// From now on the client at the other end of an association may do this ([`Event::RightsRequested`]). False:
    /// there is no such association.
    pub fn set_rights(&self, association: AssociationId, rights: Rights) -> bool {
        let rights = Arc::new(rights);
        match &self.driver {
            Driver::Virtual(sealed) => sealed.lock().0.set_rights(association, rights),
            Driver::Threads(endpoint) => endpoint.set_rights(association, rights),
            Driver::PoolClient(..) | Driver::Load(_) => false,
        }
    }

    /// Calls the engine of a core in virtual time at a time. The time never goes back.
    pub fn at<R>(
        &self,
        now: Option<Micros>,
        act: impl FnOnce(&mut Sealed<Engine>, Micros) -> R,
    ) -> Option<R> {
        let Driver::Virtual(sealed) = &self.driver else {
            return None;
        };
        let mut guard = sealed.lock();
        let (sealed, last) = &mut *guard;
        *last = now.unwrap_or(*last).max(*last);
        Some(act(sealed, *last))
    }

    /// The next events.
    pub fn take_events(&self, limit: usize) -> Vec<Event> {
        if let Driver::Load(endpoint) = &self.driver {
            return endpoint.with_machine(0, |load_engine, _| load_engine.take_events(limit));
        }
        self.gather(limit, Engine::take_events)
    }

    /// The next messages for a client's application. They count as handled by the application, and are
    /// acknowledged.
    pub fn take_messages(&self, limit: usize) -> Vec<Message> {
        self.gather(limit, Engine::take_messages)
    }

    /// The link of a session that another node handed over (§5.4). It is opened if there is none; `None`:
    /// there are too many.
    /// `rights`: the key of its client's rights.
    pub fn adopt(&self, session: u64, address: SocketAddr, rights: u64) -> Option<LinkId> {
        let worker = self.shared.home_workers.place_for(session);
        self.on(worker, |engine, now| engine.adopt(now, session, address, rights))
    }

    /// Sends one datagram outside of any session, padded to at least `pad_to` bytes. `rights`: the key of those of who
    /// is meant; 0: a node, or a client where no tokens are required.
    pub fn send_to(&self, address: SocketAddr, packet: &[u8], token: &[u8], pad_to: usize, rights: u64) {
        match &self.driver {
            Driver::PoolClient(client_pool, id) => {
                client_pool.with(|pool, now| pool.send_to(now, *id, address, packet, token, pad_to));
            }
            _ => self.on(0, |engine, _| engine.send_to((address, rights), packet, token, pad_to)),
        }
    }

    /// Opens a session, or changes it. `bounds`: the limits of its queue; 0 means the node's own. False:
    /// there are too many sessions, or it is not persistent and has no link.
    /// `rights`: the key of those of its client, if it has no link here.
    pub fn open_session(&self, session: u64, persistent: bool, bounds: Bounds, rights: u64) -> bool {
        let mut home = self.shared.home_workers.place_for(session);
        loop {
            match self.on(home, |engine, now| engine.open_session(now, session, persistent, bounds, rights)) {
                Opened::Here => return true,
                Opened::Refused => return false,
                // Its link was opened on another worker meanwhile.
                Opened::At(worker) => home = worker,
            }
        }
    }

    /// A client with these rights may go on with a session ([`Event::SessionClaimed`]).
    pub fn allow_session(&self, session: u64, rights: u64) {
        let home = self.shared.home_workers.place_for(session);
        self.on(home, |engine, _| engine.allow_session(session, rights));
    }

    /// It may not, and is told so.
    pub fn refuse_session(&self, session: u64, client: SocketAddr, rights: u64) {
        self.on(0, |engine, _| engine.refuse_session(session, (client, rights)));
    }

    /// Ends a session, and drops its queue and its subscriptions. `why`: the counter for its messages.
    pub fn end_session(&self, session: u64, why: Drop) {
        if let Some(key) = self.session_key(session) {
            self.on(key.worker(), |engine, now| engine.end_session(now, key, why));
            self.others(key.worker(), |engine, _| engine.forget_subscriptions(key));
        }
    }

    /// Subscribes a session. Returns whether the subscription is new; false also if there is no such session.
    /// `subscriber`: how the session receives the messages.
    pub fn subscribe(
        &self,
        session: u64,
        filter: &str,
        group: &str,
        subscriber: impl FnOnce(SessionKey) -> Subscriber,
    ) -> bool {
        let Some(key) = self.session_key(session) else {
            return false;
        };
        let (home, subscriber) = (key.worker(), subscriber(key));
        let Some(is_new) = self.on(home, |engine, _| engine.subscribe(filter, group, subscriber)) else {
            return false;
        };
        self.others(home, |engine, _| _ = engine.subscribe(filter, group, subscriber));
        // If the session ended meanwhile, the other workers dropped its subscriptions, perhaps before this
        // one was added.
        if self.workers() > 1 && !self.on(home, |engine, _| engine.has_session(key)) {
            self.others(home, |engine, _| engine.forget_subscriptions(key));
        }
        is_new
    }

    /// Unsubscribes a session. Returns whether there was such a subscription.
    pub fn unsubscribe(&self, session: u64, filter: &str, group: &str) -> bool {
        let Some(key) = self.session_key(session) else {
            return false;
        };
        self.others(key.worker(), |engine, now| _ = engine.unsubscribe(now, filter, group, key));
        self.on(key.worker(), |engine, now| engine.unsubscribe(now, filter, group, key))
    }

    /// Begins to send a session the matching retained messages. False: it does not, because too many sessions
    /// wait for theirs already.
    pub fn send_retained(&self, session: u64, request: Request<'_>) -> bool {
        self.session_key(session)
            .is_none_or(|key| self.on(key.worker(), |engine, now| engine.send_retained(now, key, request)))
    }

    /// Calls `with` for each session that has not received all retained messages of a subtree yet, with the
    /// rest of its request.
    pub fn replays(&self, subtree: &str, mut with: impl FnMut(u64, Request<'_>)) {
        self.each(|engine, _| engine.replays(subtree, &mut with));
    }

    /// The retained messages of a region, each a serialised `Publish`. A message that is stored or cleared
    /// during the call may be missing.
    pub fn retained(&self, region: Region<'_>) -> Vec<Vec<u8>> {
        let (now, wanted) = (self.now(), Wanted::Region(region));
        let mut messages = Vec::new();
        let mut next = Some(wanted.first());
        while let Some(place) = next {
            let batch = {
                let mut retained = self.shared.retained.lock();
                retained.set_time(now);
                retained.read(wanted, u64::MAX, &place)
            };
            messages.extend(batch.pieces.iter().map(|piece| wire::message_of(&piece.field)));
            next = batch.rest;
        }
        messages
    }

    /// Stores retained messages. Returns for how many there was no room.
    pub fn take_retained(&self, messages: &[Vec<u8>]) -> usize {
        let now = self.now();
        let kept = |message: &Vec<u8>| match PacketView::from_raw(&wire::field_of(message)) {
            Ok(PacketView { body: Body::Publish(publish), .. }) => {
                retain(now, &mut self.shared.retained.lock(), &publish) != Offer::Refused
            }
            _ => false,
        };
        messages.iter().filter(|message| !kept(message)).count()
    }

    /// Drops the retained messages of a region.
    pub fn drop_retained(&self, region: Region<'_>) {
        self.shared.retained.lock().drop_unfinished(region);
        for (from, to) in ranges(region) {
            let run = self.shared.retained.lock().detach(&from, to.as_deref());
            if self.store.get().is_some() {
                let numbers = run.numbers(); // They may be many, so the table is not locked.
                numbers
                    .chunks(REMOVED_AT_ONCE)
                    .for_each(|some| self.shared.retained.lock().note_removed(some));
            }
            self.shared.retained.lock().discard(run);
        }
        self.on(0, Engine::tidy_retained);
    }

    /// How many messages of a region are not acknowledged to their publisher yet, or are with a connected
    /// subscriber that has not acknowledged them.
    pub fn drain_subtree(&self, region: Region<'_>) -> usize {
        (0..self.workers()).map(|worker| self.on(worker, |engine, _| engine.unanswered_within(region))).sum()
    }

    /// Sends a barrier from each worker to each other, behind all handoffs between them, for a subtree that
    /// is not served any more. Returns the number for [`Self::has_passed`].
    pub fn raise_barrier(&self, subtree: &str) -> u64 {
        let number = self.barriers.fetch_add(1, Ordering::Relaxed) + 1;
        self.each(|engine, _| engine.raise_barrier(number, subtree));
        number
    }

    /// Whether all handoffs between workers from before a barrier have arrived.
    pub fn has_passed(&self, barrier: u64) -> bool {
        (0..self.workers()).all(|worker| self.on(worker, |engine, _| engine.has_passed(barrier)))
    }

    /// The status of at most `most` sessions, those with the most queued bytes first.
    pub fn sessions(&self, most: usize) -> Vec<Status> {
        let mut sessions = Vec::new();
        self.each(|engine, _| sessions.extend(engine.sessions(most)));
        sessions.sort_by_key(|status| std::cmp::Reverse(status.queued_bytes));
        sessions.truncate(most);
        sessions
    }

    /// Every counter and gauge by name, summed over the workers.
    pub fn counters(&self) -> BTreeMap<String, u64> {
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        let mut add = |name: &str, value: u64| *sums.entry(name.to_owned()).or_default() += value;
        self.each(|engine, _| {
            engine.counters(&mut add);
            engine.gauges(&mut add);
        });
        add("subscriptions", self.on(0, |engine, _| engine.subscriptions()) as u64);
        add("retained", self.shared.retained.lock().len() as u64);
        self.count_moves(&mut add);
        for (name, value) in self.endpoint().into_iter().flat_map(Endpoint::counters) {
            add(name, value);
        }
        sums
    }

    /// Calls the engine of one worker.
    pub fn on<R>(&self, worker: u8, act: impl FnOnce(&mut Engine, Micros) -> R) -> R {
        match &self.driver {
            Driver::Virtual(sealed) => {
                let mut guard = sealed.lock();
                let (sealed, now) = &mut *guard;
                act(&mut sealed.machine, *now)
            }
            Driver::PoolClient(client_pool, id) => {
                client_pool.with(|pool, now| pool.on_pool_client(*id, |engine| act(engine, now)))
            }
            Driver::Load(endpoint) => {
                endpoint.with_machine(0, |load_engine, now| act(&mut load_engine.engine, now))
            }
            // The caller may have made the link id up. Worker 0 always exists.
            Driver::Threads(endpoint) => {
                let worker = usize::from(worker);
                endpoint.with_machine(if worker < endpoint.workers() { worker } else { 0 }, act)
            }
        }
    }

    fn session_key(&self, session: u64) -> Option<SessionKey> {
        let home = self.shared.home_workers.worker_of(session)?;
        self.on(home, |engine, _| engine.session_key(session))
    }

    fn now(&self) -> Micros {
        self.on(0, |_, now| now)
    }

    fn workers(&self) -> u8 {
        match &self.driver {
            Driver::Virtual(_) | Driver::PoolClient(..) | Driver::Load(_) => 1,
            Driver::Threads(endpoint) => u8::try_from(endpoint.workers()).unwrap_or(u8::MAX),
        }
    }

    /// Calls the engine of every worker, one after the other.
    pub fn each(&self, mut act: impl FnMut(&mut Engine, Micros)) {
        for worker in 0..self.workers() {
            self.on(worker, &mut act);
        }
    }

    fn others(&self, but: u8, mut act: impl FnMut(&mut Engine, Micros)) {
        for worker in (0..self.workers()).filter(|&worker| worker != but) {
            self.on(worker, &mut act);
        }
    }

    /// Takes at most `limit` items from the workers. Each worker gets an equal share of what is left.
    fn gather<T>(&self, limit: usize, take: impl Fn(&mut Engine, Micros, usize) -> Vec<T>) -> Vec<T> {
        let mut gathered = Vec::new();
        for (worker, still) in (0..self.workers()).zip((1..=usize::from(self.workers())).rev()) {
            let share = (limit - gathered.len()).div_ceil(still);
            gathered.extend(self.on(worker, |engine, now| take(engine, now, share)));
        }
        gathered
    }
}

impl Machine for Engine {
    type Handoff = Handoff;

    fn handle_datagram(&mut self, now: Micros, source: SocketAddr, datagram: &[u8]) {
        self.handle_datagram(now, source, datagram);
    }

    fn note_rights(&mut self, rights: Option<&Arc<Rights>>) {
        self.note_rights(rights);
    }

    fn ask_for_rights(&mut self, request: &admission::Request) -> bool {
        self.ask_for_rights(request)
    }

    fn handle_timeout(&mut self, now: Micros) {
        self.handle_timeout(now);
    }

    fn handle_handoff(&mut self, now: Micros, handoff: Handoff) {
        self.handle_handoff(now, handoff);
    }

    fn end_turn(&mut self, now: Micros) {
        self.end_turn(now);
    }

    fn poll_transmit(&mut self, now: Micros, sink: &mut impl DatagramSink) {
        self.poll_transmit(now, sink);
    }

    fn note_departure(&mut self, now: impl FnOnce() -> Micros) {
        self.note_departure(now);
    }

    fn poll_handoff(&mut self) -> Option<(u8, Handoff)> {
        self.poll_handoff()
    }

    fn has_handoff(&self) -> bool {
        self.has_handoff()
    }

    fn poll_timeout(&self) -> Option<Micros> {
        self.poll_timeout()
    }

    fn has_output(&self) -> bool {
        self.has_output()
    }

    fn reset_peers(&mut self, now: Micros) {
        self.reset_peers(now);
    }

    fn is_drained(&self) -> bool {
        self.is_drained()
    }
}

/// Collects datagrams one by one, for a core in virtual time.
#[derive(Default)]
pub struct Datagrams {
    buffer: Vec<u8>,
    /// The destinations and the datagrams.
    pub sent: Vec<(SocketAddr, Vec<u8>)>,
}

impl DatagramSink for Datagrams {
    fn begin(&mut self) -> usize {
        self.buffer.len()
    }

    fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    fn commit(&mut self, destination: &SocketAddr, start: usize) {
        self.sent.push((*destination, self.buffer.split_off(start)));
    }
}

/// The taker of a core with this many workers; `None` if metrics are off.
pub fn taker(config: &Config, workers: u8) -> Option<Mutex<Taker>> {
    config.counts_load().then(|| Mutex::new(Taker::new(workers.into())))
}

impl Core {
    /// Ends the interval of the metrics by topic; `None` if they are off. In each worker the metrics by topic
    /// and the counters of messages are of the same moment, so their sums agree.
    pub fn take_load(&self) -> Option<Report> {
        let mut taker = self.taker.as_ref()?.lock();
        let mut counters = Counters::default();
        let every = latency::rate_for(taker.last().topics.total().messages_in);
        let load = taker.take(|worker, spare| {
            let worker = u8::try_from(worker).expect("there are fewer workers");
            counters += &self.on(worker, |engine, _| engine.exchange_load(spare, every));
        });
        let mut report = Report::of(load);
        drop(taker);
        EngineCounters { counters, ..EngineCounters::default() }
            .each(|name, value| report.count(name, value));
        let sockets = self.endpoint().into_iter().flat_map(Endpoint::counters);
        sockets.for_each(|(name, value)| report.count(name, value));
        let LoadGauges { sessions, publishers, queued_messages, queued_bytes } = self.load_gauges();
        report.gauges.extend([
            ("workers", self.workers().into()),
            ("sessions", sessions),
            ("publishers", publishers),
            ("queued_messages", queued_messages),
            ("queued_bytes", queued_bytes),
            ("subscriptions", self.on(0, |engine, _| engine.subscriptions()) as u64),
        ]);
        Some(report)
    }

    /// The gauges of all workers. No worker's lock is held for long, however many sessions there are.
    fn load_gauges(&self) -> LoadGauges {
        let mut gauges = LoadGauges::default();
        for worker in 0..self.workers() {
            let mut next = Some(0);
            while let Some(from) = next {
                next = self.on(worker, |engine, _| engine.add_load_gauges(from, &mut gauges));
            }
        }
        gauges
    }
}
