//! The engine: everything that one socket's peers send and get, without IO.
//!
//! Datagrams and time go in (`handle_datagram`, `handle_timeout`); datagrams, events and a deadline come out
//! (`poll_transmit`, `take_events`, `poll_timeout`). The engine finds the link that a datagram belongs to,
//! handles PUBLISH, PUBACK, CREDIT, PING, PONG and RESET itself, and reports all other packets to Python as
//! events. What it does with a PUBLISH depends on its side: a node distributes it (`owner`), a client
//! delivers it to its application (`subscriber`).
//!
//! ```text
//!     transport       datagrams in -> links -> packets      datagrams, events, handoffs out
//!       |
//!       |-- node:    owner -----> sessions                   distribute a PUBLISH; queue it for each subscriber
//!       |              |-------> retained                    retained messages for new subscriptions
//!       |              `-------> handover                    a subtree moves from source to target
//!       `-- client:  publisher                               from `publish` to the owner's PUBACK
//!                    subscriber ---> fragmentation           from a delivery to the application; reassembly
//!     metrics         counters, load by topic
//! ```

pub mod fragmentation;
pub mod handover;
pub mod metrics;
pub mod owner;
pub mod publisher;
pub mod retained;
pub mod sessions;
pub mod subscriber;
#[cfg(test)]
pub mod tests;
pub mod transport;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::Micros;
use crate::config::Config;
use crate::engine::fragmentation::fragments::Splitter;
use crate::engine::handover::moves::Moves;
use crate::engine::metrics::counters::{Counters, Drop};
use crate::engine::owner::forward::Forwarder;
use crate::engine::owner::home_workers::HomeWorkers;
use crate::engine::owner::member_fitness::MemberFitness;
use crate::engine::owner::throttled_links::{FullSessions, ThrottledLinks};
use crate::engine::owner::workspace_rates::WorkspaceRates;
use crate::engine::publisher::outgoing::Publisher;
use crate::engine::publisher::pauses::Pauses;
use crate::engine::publisher::sending::FastPath;
use crate::engine::sessions::settlement::PendingSettlement;
use crate::engine::sessions::storing::Storing;
use crate::engine::sessions::table::Sessions;
use crate::engine::subscriber::inbox::Inbox;
use crate::engine::transport::delivery_records::{Positions, Ticket};
use crate::engine::transport::event::{DownReason, Event, Events, Flow};
use crate::engine::transport::links::{LinkSlot, Links};
use crate::engine::transport::outbound::{Handoff, Outbound};
use crate::engine::transport::session_claims::SessionClaims;
use crate::engine::transport::token_bucket::RateLimit;
use crate::host_counts::{self, Full, HostCounts};
use crate::keyed_hash::KeyedHash;
use crate::link::{Link, LinkConfig, Liveness, Role};
use crate::link_id::LinkId;
use crate::load::Load;
use crate::prefix::Prefix;
use crate::publisher_id::LINK_BITS;
use crate::rights::{LinkRights, Rights};
use crate::sink::DatagramSink;
use crate::store::mailbox::Mailbox;
use crate::tables::retained::RetainedStore;
use crate::wire::ViewBuffers;

/// How often partial messages, and messages without a listener, are checked for expiry.
const HOUSEKEEPING: Micros = 5_000_000;
/// The delivery numbers of a named session begin at the top 20 random bits of its run's incarnation (§3.6).
const FIRST_NUMBER_SHIFT: u32 = 44;

/// What the workers of one core share. No datagram of an established link needs it.
#[derive(Clone)]
pub struct Shared {
    pub home_workers: Arc<HomeWorkers>,
    pub retained: Arc<Mutex<RetainedStore>>,
    /// Subtrees that are moving, in or out.
    pub moves: Arc<Mutex<Moves>>,
    member_fitness: Arc<MemberFitness>,
    /// Counts, by host, the links that their peers opened, and the sessions without a link.
    hosts: Arc<HostCounts>,
    pub workspace_rates: WorkspaceRates,
    /// Links opened so far. Each link has an incarnation of its own, so that its peer can distinguish it from
    /// the one before (§3.6).
    opened: Arc<AtomicU64>,
}

impl Shared {
    /// For a core of `workers` workers.
    pub fn new(config: &Config, workers: u8) -> Self {
        let bounds = host_counts::Bounds { all: config.max_links, of_host: config.max_links_of_host };
        let home_workers = if workers > 1 { HomeWorkers::new(config.seed) } else { HomeWorkers::single() };
        Self {
            home_workers: Arc::new(home_workers),
            retained: Arc::new(Mutex::new(RetainedStore::new(config.retained_bytes, config.seed))),
            moves: Arc::new(Mutex::new(Moves::new(config, config.seed ^ config.incarnation))),
            member_fitness: Arc::new(MemberFitness::new(config.seed)),
            hosts: Arc::new(HostCounts::new(bounds, config.seed)),
            workspace_rates: WorkspaceRates::new(
                config.workspace_rates.as_deref().map_or(&[], Vec::as_slice),
            ),
            opened: Arc::default(),
        }
    }
}

/// Why a message cannot be published at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unpublishable {
    InvalidTopic,
    InvalidQos,
    TooLarge,
    /// A node publishes only on topics that it owns.
    NotOwned,
}

/// What this engine does with messages.
enum Side {
    Node(Box<Forwarder>),
    Client(Box<Client>),
}

/// A client's messages, outgoing and incoming.
struct Client {
    publisher: Publisher,
    inbox: Inbox,
    /// Address tokens for owners that have been resolved, and to which no link is open yet.
    tokens: std::collections::HashMap<SocketAddr, Vec<u8>, KeyedHash>,
    paused: Pauses,
    /// A buffer for what one PUBACK settles. Kept for its memory.
    answered: Vec<(Ticket, Positions)>,
    fast_path: FastPath,
}

pub struct Engine {
    config: Config,
    worker: u8,
    workers: u8,
    shared: Shared,
    out: Outbound,
    side: Side,
    splitter: Splitter,
    events: Events,
    /// Datagrams outside of any link: the address and the rights of who is meant, and the bytes.
    pending: VecDeque<((SocketAddr, u64), Vec<u8>)>,
    /// Of who sent the datagram that is handled now; `None`: he may do everything.
    sender_rights: Option<Arc<Rights>>,
    /// Limits the answers to strangers: CHALLENGE, RESET, refusals at `QoS` 0.
    strangers: RateLimit,
    /// Links whose released packets wait for room (§3.3).
    stalled: Vec<LinkId>,
    housekeeping: Micros,
    /// For the packets of the next datagram. Made when first needed: the clients of a pool use the pool's
    /// buffers instead.
    view_buffers: Option<Box<ViewBuffers>>,
}

impl Engine {
    /// The engine of worker number `worker` of `workers`.
    pub fn new(config: Config, worker: u8, workers: u8, shared: Shared) -> Self {
        let hasher = KeyedHash::new(config.seed);
        let side = if config.node {
            let (retained, rates) = (Arc::clone(&shared.retained), shared.workspace_rates.clone());
            Side::Node(Box::new(Forwarder::new(worker, workers, retained, rates, config.seed)))
        } else {
            Side::Client(Box::new(Client::new(&config, hasher)))
        };
        Self {
            worker,
            workers,
            out: Outbound {
                links: Links::new(
                    worker,
                    hasher,
                    link_config(&config),
                    config.out_of_order_bytes / usize::from(workers),
                ),
                claims: SessionClaims::default(),
                sessions: Sessions::new(worker, config.queue_memory / usize::from(workers), hasher),
                pending: PendingSettlement::default(),
                exports: Vec::new(),
                throttled_links: ThrottledLinks::default(),
                full_sessions: FullSessions::default(),
                other_workers_are_full: false,
                member_fitness: (workers > 1).then(|| Arc::clone(&shared.member_fitness)),
                counters: Counters::default(),
                load: config.counts_load().then(|| Box::new(Load::new())),
                spans: config.spans.clone(),
                storing: None,
                stored_before: None,
                handoffs: VecDeque::new(),
            },
            side,
            // Fragments are forwarded to subscribers on any path, so they have the size that every path
            // carries.
            splitter: Splitter::new(config.publisher(), config.max_datagram.min(crate::link::mtu::LONE)),
            events: Events::new(config.event_queue, config.seed),
            pending: VecDeque::new(),
            sender_rights: None,
            strangers: RateLimit::new(config.stranger_rate, config.stranger_rate),
            stalled: Vec::new(),
            housekeeping: Micros::MAX,
            view_buffers: None,
            shared,
            config,
        }
    }

    /// Runs what is due at `now`.
    pub fn handle_timeout(&mut self, now: Micros) {
        while let Some(id) = self.out.links.pop_due(now) {
            let Some(entry) = self.out.links.get_mut(id) else {
                continue;
            };
            match entry.link.handle_timeout(now) {
                Liveness::Alive => self.out.links.mark_dirty(id),
                Liveness::TimedOut => self.end_link(now, id, DownReason::Timeout),
            }
        }
        self.resume_paused(now);
        self.expire_waiting(now);
        self.step_retained(now);
        if now >= self.out.sessions.next_check() {
            self.check_sessions(now);
        }
        if now >= self.housekeeping {
            self.run_housekeeping(now);
        }
    }

    /// Builds datagrams from what is queued, until the sink is full.
    pub fn poll_transmit(&mut self, now: Micros, sink: &mut impl DatagramSink) {
        self.send_pending(now);
        let Outbound { links, counters, .. } = &mut self.out;
        let mut counted = Counted { sink, counters };
        while !counted.is_full()
            && let Some(((destination, rights), datagram)) = self.pending.pop_front()
        {
            counted.set_rights(rights);
            let start = counted.begin();
            counted.buffer().extend_from_slice(&datagram);
            counted.commit(&destination, start);
        }
        let side = &mut self.side;
        links.drain_dirty(now, |entry| {
            counted.set_rights(entry.rights.key());
            let is_left = entry.link.poll_transmit(now, &mut counted);
            let has_room = std::mem::take(&mut entry.awaits_room);
            if let Side::Node(forwarder) = &mut *side {
                entry.timed.take_departed(&entry.link, &mut forwarder.departed);
                if let Some(session) = entry.subscriber.filter(|_| has_room) {
                    forwarder.replays.resume(now, session);
                }
            }
            is_left
        });
    }

    /// From now on messages of sessions that do not count as connected are given to a store.
    pub fn store_in(&mut self, mailbox: Arc<Mailbox>) {
        self.out.storing = Some(Box::new(Storing::new(mailbox)));
    }

    /// What is to be done once after many datagrams: acknowledges what is stored now, takes what was read, and
    /// gives the store what has gathered.
    pub fn end_turn(&mut self, now: Micros) {
        self.out.stored_before.take_if(|stored_before| stored_before.is_over(now));
        if let Some(storing) = &mut self.out.storing {
            storing.return_tickets(&mut self.out.pending.tickets);
            for (request, messages) in storing.take_answers(self.worker) {
                match request.for_export {
                    None => self.out.load(now, request.key, request.from, messages),
                    Some((export, request)) => self.out.take_read(export, request, messages),
                }
            }
            self.settle_pending(now);
        }
        if let Some(storing) = &mut self.out.storing {
            storing.submit();
        }
    }

    /// When `handle_timeout` is to be called next.
    pub fn poll_timeout(&self) -> Option<Micros> {
        let links = self.out.links.next_timeout().unwrap_or(Micros::MAX);
        let waiting = match &self.side {
            Side::Client(client) => client.next_timeout(),
            Side::Node(forwarder) => forwarder.next_timeout(),
        };
        let deadline = links.min(self.housekeeping).min(self.out.sessions.next_check()).min(waiting);
        (deadline != Micros::MAX).then_some(deadline)
    }

    pub fn poll_handoff(&mut self) -> Option<(u8, Handoff)> {
        self.out.handoffs.pop_front()
    }

    pub fn has_handoff(&self) -> bool {
        !self.out.handoffs.is_empty()
    }

    /// Handles what another worker handed off.
    pub fn handle_handoff(&mut self, now: Micros, handoff: Handoff) {
        let Side::Node(forwarder) = &mut self.side else {
            return;
        };
        match handoff {
            Handoff::Deliver { queued_batch, targets } => {
                forwarder.deliver(now, queued_batch, targets, &mut self.out);
            }
            Handoff::Copies(copies) => return self.deliver_copies(&copies),
            Handoff::Settled { tickets } => forwarder.settle(tickets, &mut self.out),
            Handoff::SessionEnded { session } => forwarder.routes.forget_session(session),
            Handoff::Full { session, is_full } => self.out.full_sessions.set(session, is_full),
            Handoff::RefusedFull { session, link } => self.out.throttle_link(session, link),
            Handoff::Pressure { worker, is_high, is_full } => {
                return self.handle_pressure(now, worker, is_high, is_full);
            }
            Handoff::Throttle(change) => return self.apply_throttle(now, change),
            Handoff::LinkEnded { link } => return self.forget_throttled_link(self.worker, link),
            Handoff::Barrier { worker, number } => return forwarder.barriers.receive(worker, number),
            Handoff::Datagram { source, rights, datagram } => {
                self.sender_rights = rights;
                return self.take_datagram(now, source, &datagram);
            }
        }
        self.settle_pending(now);
    }

    /// Whether Python has something to poll.
    pub fn has_output(&self) -> bool {
        self.has_events() || self.has_messages()
    }

    /// Whether `take_events` has something.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Whether `take_messages` has something.
    pub fn has_messages(&self) -> bool {
        matches!(&self.side, Side::Client(client) if !client.inbox.is_empty())
    }

    /// Whether `poll_transmit` may have something.
    pub fn has_transmit(&self) -> bool {
        !self.pending.is_empty() || self.out.links.has_dirty()
    }

    #[cfg(test)]
    fn undrained(&self) -> Vec<(&'static str, usize)> {
        let links =
            self.out.links.iter().filter_map(LinkSlot::link).filter(|link| !link.is_drained()).count();
        let mut left =
            vec![("loose", self.pending.len()), ("handoffs", self.out.handoffs.len()), ("links", links)];
        match &self.side {
            Side::Node(forwarder) => {
                left.extend([("open", forwarder.open_messages()), ("replays", forwarder.replays.len())]);
            }
            Side::Client(client) => {
                left.extend([("waiting", client.waiting()), ("in flight", client.publisher.in_flight())]);
            }
        }
        left
    }

    /// Whether nothing is queued, waits or is unacknowledged.
    pub fn is_drained(&self) -> bool {
        self.pending.is_empty()
            && self.out.handoffs.is_empty()
            && self.out.storing.as_ref().is_none_or(|storing| storing.is_drained())
            && self.out.links.iter().filter_map(LinkSlot::link).all(Link::is_drained)
            && match &self.side {
                Side::Node(forwarder) => {
                    forwarder.open_messages() == 0 && forwarder.replays.due() == Micros::MAX
                }
                Side::Client(client) => {
                    client.fast_path.gathered_messages() == 0 && client.publisher.is_drained()
                }
            }
    }

    /// Opens a link for a session, or returns the one that is open. A failure is counted.
    fn open_link(
        &mut self,
        now: Micros,
        role: Role,
        session: u64,
        peer: SocketAddr,
        token: Vec<u8>,
        rights: LinkRights,
    ) -> Result<LinkId, Drop> {
        let inbound = role != Role::Initiator;
        let links = &mut self.out.links;
        let known = if inbound { links.by_session(session) } else { links.by_address(peer) };
        if let Some(known) = known {
            return Ok(known);
        }
        let entered = match inbound {
            true => self.enter(session, role, peer),
            false if links.len() >= self.config.max_links => Err(Drop::TooManyLinks),
            false => Ok(()),
        };
        if let Err(why) = entered {
            self.out.counters.drop(why);
            return Err(why);
        }
        let links = &mut self.out.links;
        let opened = self.shared.opened.fetch_add(1, Ordering::Relaxed);
        let config = LinkConfig {
            session,
            incarnation: of_link(self.config.incarnation, opened),
            past: if inbound { None } else { links.past(peer) },
            first_number: if inbound { 1 } else { links.first_number() },
            role,
            ..link_config(&self.config)
        };
        let id = links.insert(Link::new(config, peer, token, now), session, inbound);
        links.mark_dirty(id);
        if let Some(entry) = links.get_mut(id) {
            entry.rights = rights;
        }
        self.offer_credit(id);
        if inbound {
            self.attach(now, session, id);
        }
        Ok(id)
    }

    /// Counts a link that its peer opened, or that was opened for its session, and makes this worker its
    /// home.
    fn enter(&self, session: u64, role: Role, peer: SocketAddr) -> Result<(), Drop> {
        let Shared { hosts, home_workers, .. } = &self.shared;
        let host = Prefix::from(peer.ip());
        // The node that hands a session over has let it in already, so the bound of its host does not apply
        // here.
        let is_bounded = role != Role::Adopter;
        // An offline session is counted already, for the host that its client had.
        let offline = self.out.sessions.by_id(session).and_then(|key| self.out.sessions.get(key));
        let entered = match offline {
            Some(session) => hosts.move_to(session.host(), host, is_bounded),
            None => hosts.enter(Some(host), is_bounded),
        };
        entered.map_err(|full| match full {
            Full::All => Drop::TooManyLinks,
            Full::Host => Drop::TooManyOfHost,
        })?;
        if home_workers.claim(session, self.worker) == self.worker {
            return Ok(());
        }
        hosts.leave(Some(host));
        Err(Drop::UnknownSession)
    }

    /// Ends a link: settles its copies, takes unacknowledged messages back, and reports the end to Python.
    fn end_link(&mut self, now: Micros, id: LinkId, reason: DownReason) {
        self.send_pending(now);
        let Some(mut entry) = self.out.links.remove(id) else {
            return;
        };
        let peer = entry.peer();
        if !entry.throttled_by.is_empty() {
            self.end_throttles(id);
        }
        match &mut self.side {
            Side::Node(_) if entry.inbound => self.detach(now, &entry, reason),
            Side::Node(_) => {}
            Side::Client(client) => {
                let tickets: Vec<_> = entry.delivery_records.take_all().collect();
                self.out.counters.drop_many(Drop::SessionEnded, entry.link.unsent() as u64);
                client.inbox.forget_link(id);
                client.publisher.zones.forget(Some(peer.address));
                self.take_back(now, peer.address, tickets);
            }
        }
        self.events.push(self.flow_of(peer.session), Event::LinkDown(peer, reason));
        self.events.deprioritise(peer.session);
    }

    fn announce(&mut self, id: LinkId) {
        if let Some(entry) = self.out.links.get_mut(id)
            && !entry.announced
            && entry.link.is_established()
        {
            entry.announced = true;
            let peer = entry.peer();
            self.events.push(self.flow_of(peer.session), Event::LinkUp(peer));
        }
    }

    /// Which flow the events of a session's links wait in.
    fn flow_of(&self, session: u64) -> Flow {
        if session == self.config.session { Flow::Own } else { Flow::Session(session) }
    }
}

/// §3.6: the lower bits of an incarnation count the links of the run.
fn of_link(incarnation: u64, opened: u64) -> u64 {
    incarnation >> LINK_BITS << LINK_BITS | opened & ((1 << LINK_BITS) - 1)
}

/// The settings that all links of an engine have in common.
fn link_config(config: &Config) -> LinkConfig {
    LinkConfig {
        session: 0,
        incarnation: 0,
        past: None,
        first_number: if config.named { 1 + (config.incarnation >> FIRST_NUMBER_SHIFT) } else { 1 },
        max_datagram: config.max_datagram,
        queue_bytes: config.link_queue_bytes,
        keep_alive: config.keep_alive,
        idle_timeout: config.idle_timeout,
        role: Role::Acceptor,
    }
}

/// Counts the datagrams and bytes that pass.
struct Counted<'a, S> {
    sink: &'a mut S,
    counters: &'a mut Counters,
}

impl<S: DatagramSink> DatagramSink for Counted<'_, S> {
    fn begin(&mut self) -> usize {
        self.sink.begin()
    }

    fn buffer(&mut self) -> &mut Vec<u8> {
        self.sink.buffer()
    }

    fn commit(&mut self, destination: &SocketAddr, start: usize) {
        self.counters.datagrams_out += 1;
        self.counters.bytes_out += (self.sink.buffer().len() - start) as u64;
        self.sink.commit(destination, start);
    }

    fn is_full(&self) -> bool {
        self.sink.is_full()
    }

    fn set_rights(&mut self, key: u64) {
        self.sink.set_rights(key);
    }
}
