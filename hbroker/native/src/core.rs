//! The verbs of the border, once for all who drive engines.
//!
//! A core is one engine in virtual time, or one for each worker thread of an [`Endpoint`]. What concerns a link or a session goes to the worker that has it;
//! tables (jurisdiction, subscriptions) are changed in every worker before the verb returns; retained messages are shared.

mod load;
pub mod moves;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::Micros;
use crate::bench::io::client::LoadEndpoint;
use crate::client_pool::core::ClientPoolCore;
use crate::config::Config;
use crate::endpoint::Endpoint;
use crate::endpoint::worker::Machine;
use crate::engine::metrics::counters::Drop;
use crate::engine::owner::forward::retain;
use crate::engine::owner::subscriptions::Opened;
use crate::engine::retained::replay::Request;
use crate::engine::sessions::queue::Bounds;
use crate::engine::sessions::session::Status;
use crate::engine::transport::event::{Event, Message};
use crate::engine::transport::outbound::Handoff;
use crate::engine::{Engine, Shared};
use crate::link_id::{LinkId, PoolClientId, SessionKey};
use crate::load::Taker;
use crate::sink::DatagramSink;
use crate::tables::jurisdiction::{Cut, Grant};
use crate::tables::retained::{Wanted, ranges};
use crate::tables::trie::Subscriber;
use crate::topic::Region;
use crate::wire::{self, Body, PacketView};

/// One engine, or several, and what they share.
pub struct Core {
    driver: Driver,
    shared: Shared,
    /// `None`: nothing is counted by topic.
    taker: Option<Mutex<Taker>>,
    /// How many barriers were raised.
    barriers: AtomicU64,
}

enum Driver {
    /// `now` is what the engine was last told.
    Virtual(Box<Mutex<(Engine, Micros)>>),
    Threads(Endpoint<Engine>),
    /// One of many that share a socket.
    PoolClient(Arc<ClientPoolCore>, PoolClientId),
    /// One whose messages are a load's.
    Load(Arc<LoadEndpoint>),
}

impl Core {
    /// One engine, in virtual time.
    pub fn in_virtual_time(config: Config) -> Self {
        let shared = Shared::new(&config, 1);
        let taker = load::taker(&config, 1);
        let engine = Engine::new(config, 0, 1, shared.clone());
        Self {
            driver: Driver::Virtual(Box::new(Mutex::new((engine, 0)))),
            shared,
            taker,
            barriers: AtomicU64::default(),
        }
    }

    /// One engine for each of `workers` threads, on one address.
    ///
    /// # Errors
    /// The address cannot be bound, or a thread not be started.
    pub fn on_threads(config: Config, listen: SocketAddr, workers: u8) -> io::Result<Self> {
        let shared = Shared::new(&config, workers);
        let taker = load::taker(&config, workers);
        let engines = (0..workers).map(|worker| Engine::new(config.clone(), worker, workers, shared.clone()));
        let endpoint = Endpoint::new(engines.collect(), listen)?;
        Ok(Self { driver: Driver::Threads(endpoint), shared, taker, barriers: AtomicU64::default() })
    }

    /// A member of a hive. Once that is closed nothing that is done here has any effect.
    pub fn of_pool_client(client_pool: Arc<ClientPoolCore>, load_engine: PoolClientId) -> Self {
        Self {
            shared: client_pool.shared().clone(),
            driver: Driver::PoolClient(client_pool, load_engine),
            taker: None,
            barriers: AtomicU64::default(),
        }
    }

    /// A client in a load, whose thread others have.
    pub fn of_load(config: &Config, endpoint: Arc<LoadEndpoint>) -> Self {
        Self {
            shared: Shared::new(config, 1),
            driver: Driver::Load(endpoint),
            taker: None,
            barriers: AtomicU64::default(),
        }
    }

    /// The threads and sockets; `None` in virtual time, and for a member of a hive.
    pub fn endpoint(&self) -> Option<&Endpoint<Engine>> {
        match &self.driver {
            Driver::Virtual(_) | Driver::PoolClient(..) | Driver::Load(_) => None,
            Driver::Threads(endpoint) => Some(endpoint),
        }
    }

    /// Runs the engine of a virtual core at a time.
    pub fn at<R>(&self, now: Option<Micros>, act: impl FnOnce(&mut Engine, Micros) -> R) -> Option<R> {
        let Driver::Virtual(engine) = &self.driver else {
            return None;
        };
        let mut guard = engine.lock();
        let (engine, last) = &mut *guard;
        *last = now.unwrap_or(*last).max(*last);
        Some(act(engine, *last))
    }

    /// The next events.
    pub fn take_events(&self, limit: usize) -> Vec<Event> {
        if let Driver::Load(endpoint) = &self.driver {
            return endpoint.with_machine(0, |load_engine, _| load_engine.take_events(limit));
        }
        self.gather(limit, Engine::take_events)
    }

    /// The next messages of a client's application, which takes them over: they are acknowledged.
    pub fn take_messages(&self, limit: usize) -> Vec<Message> {
        self.gather(limit, Engine::take_messages)
    }

    /// The link to a node, opened if there was none; `None`: there are too many.
    pub fn connect(&self, address: SocketAddr, token: Vec<u8>) -> Option<LinkId> {
        self.on(0, |engine, now| engine.connect(now, address, token))
    }

    /// The link of a session that another node handed over (§5.4), opened if there was none; `None`: there are too many.
    pub fn adopt(&self, session: u64, address: SocketAddr) -> Option<LinkId> {
        let worker = self.shared.directory.place_for(session);
        self.on(worker, |engine, now| engine.adopt(now, session, address))
    }

    /// Whether the peer of a link opened it, and never answered there.
    pub fn is_one_sided(&self, link: LinkId) -> bool {
        self.on(link.worker(), |engine, _| engine.is_one_sided(link))
    }

    /// The publisher id of the wills of the end that opened a link, or whose session it is; 0: there is no such link.
    pub fn will_publisher(&self, link: LinkId) -> u64 {
        self.on(link.worker(), |engine, _| engine.will_publisher(link))
    }

    /// The session of this link is a child's: its events wait for those of nodes alone.
    pub fn prefer(&self, link: LinkId) {
        self.on(link.worker(), |engine, _| engine.prefer(link));
    }

    /// Where the peer of a link is now (§4.4); `None`: there is no such link.
    pub fn peer_of(&self, link: LinkId) -> Option<SocketAddr> {
        self.on(link.worker(), |engine, _| engine.peer_of(link))
    }

    /// Forgets a link, its queue and its subscriptions.
    pub fn close(&self, link: LinkId) {
        self.on(link.worker(), |engine, now| engine.close(now, link));
    }

    /// Queues a control packet; false: there is no such link, or no room.
    pub fn send(&self, link: LinkId, packet: Vec<u8>) -> bool {
        self.on(link.worker(), |engine, _| engine.send(link, packet))
    }

    /// Sends one datagram outside of any session, padded to at least `pad_to` bytes.
    pub fn send_to(&self, address: SocketAddr, packet: &[u8], token: &[u8], pad_to: usize) {
        match &self.driver {
            Driver::PoolClient(client_pool, load_engine) => {
                client_pool.send_to(*load_engine, address, packet, token, pad_to);
            }
            _ => self.on(0, |engine, _| engine.send_to(address, packet, token, pad_to)),
        }
    }

    /// A token that proves `address` to this node (§4.2).
    pub fn token_for(&self, address: SocketAddr) -> Vec<u8> {
        self.on(0, |engine, now| engine.token_for(now, address))
    }

    /// Owns a subtree, until its lease ends.
    pub fn grant(&self, subtree: &str, grant: Grant) {
        self.each(|engine, _| engine.grant(subtree, grant));
    }

    /// Owns a subtree no more.
    pub fn revoke(&self, subtree: &str) {
        self.each(|engine, _| engine.revoke(subtree));
    }

    /// A subtree is delegated: its messages are refused with NOT_RESPONSIBLE and this cut.
    pub fn cut(&self, cut: &Cut) {
        self.each(|engine, _| engine.cut(cut.clone()));
    }

    /// A subtree is delegated no more.
    pub fn uncut(&self, subtree: &str) {
        self.each(|engine, _| engine.uncut(subtree));
    }

    /// Makes a session, or changes it. `bounds`: of its queue; 0: the node's own. False: there are too many, or it is not persistent and has no link.
    pub fn open_session(&self, session: u64, persistent: bool, bounds: Bounds) -> bool {
        let mut home = self.shared.directory.place_for(session);
        loop {
            match self.on(home, |engine, now| engine.open_session(now, session, persistent, bounds)) {
                Opened::Here => return true,
                Opened::Refused => return false,
                // Its link came up on another worker meanwhile.
                Opened::At(worker) => home = worker,
            }
        }
    }

    /// Forgets a session, its queue and its subscriptions. `why`: what its messages are counted as.
    pub fn end_session(&self, session: u64, why: Drop) {
        if let Some(key) = self.session_key(session) {
            self.on(key.worker(), |engine, now| engine.end_session(now, key, why));
            self.others(key.worker(), |engine, _| engine.forget_subscriptions(key));
        }
    }

    /// Whether the subscription is new; false, too, where there is no such session. `subscriber`: how it gets what matches.
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
        // A session that ended meanwhile had the other workers forget its subscriptions, perhaps before this one was there.
        if self.workers() > 1 && !self.on(home, |engine, _| engine.has_session(key)) {
            self.others(home, |engine, _| engine.forget_subscriptions(key));
        }
        is_new
    }

    /// Whether there was such a subscription.
    pub fn unsubscribe(&self, session: u64, filter: &str, group: &str) -> bool {
        let Some(key) = self.session_key(session) else {
            return false;
        };
        self.others(key.worker(), |engine, now| _ = engine.unsubscribe(now, filter, group, key));
        self.on(key.worker(), |engine, now| engine.unsubscribe(now, filter, group, key))
    }

    /// Begins to send a session the retained messages that match. False: it stopped, since too many wait for theirs already.
    pub fn send_retained(&self, session: u64, request: Request<'_>) -> bool {
        self.session_key(session)
            .is_none_or(|key| self.on(key.worker(), |engine, now| engine.send_retained(now, key, request)))
    }

    /// Calls `with` for each session that is still to get retained messages of a subtree, with what is left to be asked for.
    pub fn replays(&self, subtree: &str, mut with: impl FnMut(u64, Request<'_>)) {
        self.each(|engine, _| engine.replays(subtree, &mut with));
    }

    /// The retained messages of a region, each part a serialised `Publish`. Those that are kept or cleared meanwhile may be missing or not.
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

    /// Takes retained messages over; how many there was no room for.
    pub fn take_retained(&self, messages: &[Vec<u8>]) -> usize {
        let now = self.now();
        let kept = |message: &Vec<u8>| match PacketView::from_raw(&wire::field_of(message)) {
            Ok(PacketView { body: Body::Publish(publish), .. }) => {
                retain(now, &mut self.shared.retained.lock(), &publish)
            }
            _ => false,
        };
        messages.iter().filter(|message| !kept(message)).count()
    }

    /// Drops the retained messages of a region.
    pub fn drop_retained(&self, region: Region<'_>) {
        self.shared.retained.lock().drop_unfinished(region);
        for (from, to) in ranges(region) {
            self.shared.retained.lock().drop_range(&from, to.as_deref());
        }
        self.on(0, Engine::tidy_retained);
    }

    /// How many messages of a region have a publisher that waits for its PUBACK, or are with a connected subscriber that did not answer yet.
    pub fn drain_subtree(&self, region: Region<'_>) -> usize {
        (0..self.workers()).map(|worker| self.on(worker, |engine, _| engine.unanswered_within(region))).sum()
    }

    /// Has every worker send a barrier to every other, behind all that it has for it, for a subtree that is not served any more: the number to
    /// ask [`Self::has_passed`] for.
    pub fn raise_barrier(&self, subtree: &str) -> u64 {
        let number = self.barriers.fetch_add(1, Ordering::Relaxed) + 1;
        self.each(|engine, _| engine.raise_barrier(number, subtree));
        number
    }

    /// Whether what was on its way between the workers when a barrier was raised has come.
    pub fn has_passed(&self, barrier: u64) -> bool {
        (0..self.workers()).all(|worker| self.on(worker, |engine, _| engine.has_passed(barrier)))
    }

    /// Publishes a client's message, a serialised `Publish`, in its name; the reason why not, as its publisher would be told.
    pub fn publish_raw(&self, message: &[u8]) -> i32 {
        self.on(0, |engine, now| engine.publish_raw(now, message))
    }

    /// How many subscriptions match a topic.
    pub fn matching(&self, topic: &str) -> usize {
        self.on(0, |engine, _| engine.matching(topic))
    }

    /// How the sessions are, those for which most is held first; `most` of them.
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
        let mut add = |name: &str, value: u64| {
            if let Some(sum) = sums.get_mut(name) {
                *sum += value;
            } else {
                sums.insert(name.to_owned(), value);
            }
        };
        self.each(|engine, _| {
            engine.counters(&mut add);
            engine.gauges(&mut add);
        });
        add("subscriptions", self.on(0, |engine, _| engine.subscriptions()) as u64);
        add("retained", self.shared.retained.lock().len() as u64);
        self.count_moves(&mut add);
        if let Some(endpoint) = self.endpoint() {
            for (name, value) in endpoint.counters() {
                add(name, value);
            }
        }
        sums
    }

    /// Runs the engine of one worker.
    pub fn on<R>(&self, worker: u8, act: impl FnOnce(&mut Engine, Micros) -> R) -> R {
        match &self.driver {
            Driver::Virtual(engine) => {
                let mut guard = engine.lock();
                let (engine, now) = &mut *guard;
                act(engine, *now)
            }
            Driver::PoolClient(client_pool, load_engine) => client_pool.on_pool_client(*load_engine, act),
            Driver::Load(endpoint) => {
                endpoint.with_machine(0, |load_engine, now| act(&mut load_engine.engine, now))
            }
            // A link id may be made up by the caller; there is always a worker 0.
            Driver::Threads(endpoint) => {
                let worker = usize::from(worker);
                endpoint.with_machine(if worker < endpoint.workers() { worker } else { 0 }, act)
            }
        }
    }

    fn session_key(&self, session: u64) -> Option<SessionKey> {
        let home = self.shared.directory.worker_of(session)?;
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

    fn each(&self, mut act: impl FnMut(&mut Engine, Micros)) {
        for worker in 0..self.workers() {
            self.on(worker, &mut act);
        }
    }

    fn others(&self, but: u8, mut act: impl FnMut(&mut Engine, Micros)) {
        for worker in (0..self.workers()).filter(|&worker| worker != but) {
            self.on(worker, &mut act);
        }
    }

    /// What the workers have, `limit` at most: none takes the room of those that come after it.
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

    fn handle_timeout(&mut self, now: Micros) {
        self.handle_timeout(now);
    }

    fn handle_handoff(&mut self, now: Micros, handoff: Handoff) {
        self.handle_handoff(now, handoff);
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

    fn is_drained(&self) -> bool {
        self.is_drained()
    }
}

/// Keeps datagrams apart, for a core in virtual time.
#[derive(Default)]
pub struct Datagrams {
    buffer: Vec<u8>,
    /// For where, and what.
    pub sent: Vec<(SocketAddr, Vec<u8>)>,
}

impl DatagramSink for Datagrams {
    fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    fn commit(&mut self, destination: &SocketAddr, start: usize) {
        self.sent.push((*destination, self.buffer.split_off(start)));
    }
}
