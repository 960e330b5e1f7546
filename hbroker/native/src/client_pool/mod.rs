//! A client pool: many clients of the network behind one socket. A gateway is such a pool.
//!
//! Each pool client has an engine of its own, with its session, its links and its listeners. The pool finds
//! the client of a datagram by the session in the header: both directions carry the id that the initiator of
//! the link chose. This id is the pool client's session also where a node opened the link (§3.1). An answer
//! outside of sessions reaches its client by the request that it answers (`request_table`).
//!
//! An idle pool client costs memory and nothing else. Timers are in one ordered set, with at most one entry
//! for each client. Clients with datagrams to send, events to report or messages to deliver are in three
//! queues. A queue is served round robin, with a few datagrams, events or messages for each client, so that a
//! busy client does not delay the others. At the end of an event-loop iteration the pool looks once at each
//! client that has changed in it.
//!
//! ```text
//!     core                     the verbs of the native API
//!       |
//!     ClientPool (this file)   queues and timers; datagram in -> client
//!       |-- request_table      number of a request -> client that sent it
//!       |-- client             PoolClient: one engine, and the queues that it is in
//!       `-- messages           messages out: the MessageSink of the worker's thread
//! ```

mod client;
pub mod core;
pub mod messages;
mod request_table;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use hashbrown::HashMap;
use slab::Slab;
use smallvec::SmallVec;

use crate::Micros;
use crate::client_pool::client::{LINGER, PoolClient};
use crate::client_pool::messages::MessageSink;
use crate::client_pool::request_table::RequestTable;
use crate::config::Config;
use crate::endpoint::machine::{Machine, TurnHook};
use crate::engine::metrics::counters::{Counters, Drop, EngineCounters};
use crate::engine::transport::event::Event;
use crate::engine::{Engine, Shared};
use crate::keyed_hash::KeyedHash;
use crate::link_id::PoolClientId;
use crate::sink::DatagramSink;
use crate::wire::{self, Body, DatagramView, Malformed, PacketView, ViewBuffers};

pub use crate::client_pool::client::Identity;

/// How many datagrams a client may send before the next client may.
const DATAGRAMS_PER_TURN: usize = 16;
/// How many messages of a client are delivered before the next client's.
const MESSAGES_PER_TURN: usize = 256;
/// The client that every pool has from its start.
const FIRST: PoolClientId = PoolClientId(0);
/// How many of the first client's events may wait unread; at this bound the pool stops to look for answers
/// among its events.
const MOST_UNREAD: usize = 100_000;
/// How many events of a client are reported before the next client's.
const EVENTS_PER_TURN: usize = 64;

/// The clients of one socket. One worker drives them.
pub struct ClientPool {
    /// The settings of the first client. The others have the same, except for their `Identity`.
    config: Config,
    shared: Shared,
    requests: RequestTable,
    // Boxed, so that growing the slab moves only pointers.
    pool_clients: Slab<Box<PoolClient>>,
    generation: u32,
    by_session: HashMap<u64, PoolClientId, KeyedHash>,
    timers: BTreeSet<(Micros, usize)>,
    dirty: Vec<usize>,
    with_datagrams: VecDeque<usize>,
    with_events: VecDeque<usize>,
    with_messages: VecDeque<usize>,
    sink: Box<dyn MessageSink>,
    /// The first client's events, without the answers that the sink took.
    unread_events: VecDeque<Event>,
    view_buffers: ViewBuffers,
    counters: Counters,
    /// Counters of clients that have been removed.
    ended: EngineCounters,
}

impl ClientPool {
    /// A pool with its first client, which has the settings `config`. It delivers the messages of its clients
    /// to `sink`.
    pub fn new(config: Config, sink: Box<dyn MessageSink>) -> Self {
        let hasher = KeyedHash::new(config.seed);
        let mut client_pool = Self {
            shared: Shared::new(&config, 1),
            requests: RequestTable::new(hasher),
            pool_clients: Slab::new(),
            generation: 0,
            by_session: HashMap::with_hasher(hasher),
            timers: BTreeSet::new(),
            dirty: Vec::new(),
            with_datagrams: VecDeque::new(),
            with_events: VecDeque::new(),
            with_messages: VecDeque::new(),
            sink,
            unread_events: VecDeque::new(),
            view_buffers: ViewBuffers::default(),
            counters: Counters::default(),
            ended: EngineCounters::default(),
            config,
        };
        client_pool.add(client_pool.config.clone());
        client_pool
    }

    /// Adds a client. Returns `None` if another open client has its session. A closing client with that
    /// session is removed at once.
    pub fn open_pool_client(&mut self, identity: Identity) -> Option<PoolClientId> {
        if let Some(known) = self.by_session.get(&identity.session).copied() {
            self.pool_client(known).filter(|pool_client| pool_client.closing.is_some())?;
            self.remove(known.slot());
        }
        Some(self.add(identity.config(&self.config)))
    }

    fn add(&mut self, config: Config) -> PoolClientId {
        let session = config.session;
        let entry = self.pool_clients.vacant_entry();
        let id = PoolClientId::new(self.generation, entry.key());
        self.generation = self.generation.wrapping_add(1);
        entry.insert(Box::new(PoolClient::new(id, config, self.shared.clone())));
        self.by_session.insert(session, id);
        id
    }

    /// Closes a client: it reports nothing any more. It is removed once all that it has to send is
    /// acknowledged, and at the latest after `LINGER`.
    pub fn close_pool_client(&mut self, now: Micros, id: PoolClientId) {
        if let Some(pool_client) = self.pool_client(id).filter(|pool_client| pool_client.closing.is_none()) {
            pool_client.closing = Some(now + LINGER);
            self.mark_dirty(id.slot());
        }
    }

    /// The client's engine, which the caller may change; `None` if there is no such client.
    pub fn engine(&mut self, id: PoolClientId) -> Option<&mut Engine> {
        self.pool_client(id)?;
        self.mark_dirty(id.slot());
        self.pool_client(id).map(|pool_client| &mut pool_client.engine)
    }

    /// Acts on the client's engine. If it does not exist or has been closed, acts on a new engine that is
    /// dropped afterwards.
    pub fn on_pool_client<R>(&mut self, id: PoolClientId, act: impl FnOnce(&mut Engine) -> R) -> R {
        if self.pool_client(id).is_some_and(|pool_client| pool_client.closing.is_none())
            && let Some(engine) = self.engine(id)
        {
            return act(engine);
        }
        act(&mut Engine::new(self.config.clone(), 0, 1, self.shared.clone()))
    }

    /// Sends one datagram outside of any session for a client, which gets the answers.
    pub fn send_to(
        &mut self,
        now: Micros,
        id: PoolClientId,
        address: SocketAddr,
        packet: &[u8],
        token: &[u8],
        pad_to: usize,
    ) {
        if let Some(request) = PacketView::from_raw(packet).ok().and_then(|view| wire::request_of(&view)) {
            self.requests.note(now, request, id, address);
        }
        self.on_pool_client(id, |engine| engine.send_to((address, 0), packet, token, pad_to));
    }

    /// The next events, each with its client.
    pub fn take_events(&mut self, now: Micros, limit: usize) -> Vec<(PoolClientId, Event)> {
        let first = self.unread_events.len().min(limit);
        let mut taken: Vec<_> = self.unread_events.drain(..first).map(|event| (FIRST, event)).collect();
        while taken.len() < limit
            && let Some(slot) = self.with_events.pop_front()
        {
            let pool_client = &mut self.pool_clients[slot];
            let events = pool_client.engine.take_events(now, EVENTS_PER_TURN.min(limit - taken.len()));
            taken.extend(events.into_iter().map(|event| (pool_client.id, event)));
            pool_client.tells = pool_client.engine.has_events();
            if pool_client.tells {
                self.with_events.push_back(slot);
            }
            self.mark_dirty(slot);
        }
        taken
    }

    /// Every counter, summed over all clients including removed ones; every gauge, summed over the present
    /// ones.
    pub fn counters(&self, mut with: impl FnMut(&str, u64)) {
        self.counters.each(&mut with);
        let mut engine_counters = self.ended.clone();
        let mut gauges: Vec<(String, u64)> = Vec::new();
        for (_, pool_client) in &self.pool_clients {
            engine_counters += pool_client.engine.engine_counters();
            let mut known = gauges.iter_mut();
            let mut fresh = Vec::new();
            // Every engine names its gauges in the same order.
            pool_client.engine.gauges(|name, value| match known.next() {
                Some((_, sum)) => *sum += value,
                None => fresh.push((name.to_owned(), value)),
            });
            gauges.extend(fresh);
        }
        engine_counters.each(&mut with);
        gauges.iter().for_each(|(name, value)| with(name, *value));
        with("members", self.pool_clients.len() as u64);
    }

    fn pool_client(&mut self, id: PoolClientId) -> Option<&mut PoolClient> {
        self.pool_clients.get_mut(id.slot()).map(Box::as_mut).filter(|pool_client| pool_client.id == id)
    }

    /// §4.1, §6.1: passes answers to the clients that sent the requests.
    fn handle_outside(&mut self, now: Micros, source: SocketAddr, view: &DatagramView<'_>, datagram: &[u8]) {
        let mut ids: SmallVec<[PoolClientId; 2]> = SmallVec::new();
        for packet in view.packets().iter() {
            if matches!(packet.body, Body::Challenge { .. }) {
                ids.extend(self.requests.take_challenged(source));
            } else if let Some(session) = wire::session_of(&packet) {
                ids.extend(self.by_session.get(&session).copied());
            } else if let Some(request) = wire::request_of(&packet) {
                ids.extend(self.requests.requester(request));
            }
        }
        if ids.is_empty() {
            self.counters.drop(Drop::UnexpectedPacket);
        }
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            self.pass(now, id, source, view, datagram);
        }
    }

    fn pass(
        &mut self,
        now: Micros,
        id: PoolClientId,
        source: SocketAddr,
        view: &DatagramView<'_>,
        datagram: &[u8],
    ) {
        match self.engine(id) {
            Some(engine) => engine.handle_view(now, source, view, datagram),
            None => self.counters.drop(Drop::UnknownSession),
        }
    }

    // An event-loop iteration and its end

    fn mark_dirty(&mut self, slot: usize) {
        if !std::mem::replace(&mut self.pool_clients[slot].is_dirty, true) {
            self.dirty.push(slot);
        }
    }

    /// Offers the answers to the first client's messages to the sink, while fewer than `MOST_UNREAD` other
    /// events wait.
    fn hand_answers_on(&mut self, now: Micros) {
        let Some(first) = self.pool_clients.get_mut(FIRST.slot()).filter(|first| first.id == FIRST) else {
            return;
        };
        let room = MOST_UNREAD.saturating_sub(self.unread_events.len());
        for event in first.engine.take_events(now, room) {
            match event {
                Event::Published { first, count, topic, reason } => {
                    let others =
                        (first..first + count).filter(|&sequence| !self.sink.answered(now, sequence, reason));
                    for first in others {
                        let event = Event::Published { first, count: 1, topic: Arc::clone(&topic), reason };
                        if !self.unread_events.back_mut().is_some_and(|last| last.absorb(&event)) {
                            self.unread_events.push_back(event);
                        }
                    }
                }
                event => self.unread_events.push_back(event),
            }
        }
    }

    /// Puts every changed client into the queues where it belongs.
    fn sort_dirty(&mut self, now: Micros) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for slot in dirty.drain(..) {
            let pool_client = &mut self.pool_clients[slot];
            pool_client.is_dirty = false;
            if pool_client.is_over(now) {
                self.remove(slot);
                continue;
            }
            if pool_client.closing.is_some() {
                // A closing client has no control logic any more. Its messages stay unacknowledged, so the
                // next client with its session gets them.
                while !pool_client.engine.take_events(now, usize::MAX).is_empty() {}
            }
            let is_open = pool_client.closing.is_none();
            let sends = pool_client.engine.has_transmit();
            let tells = is_open && pool_client.engine.has_events();
            let reads = is_open && pool_client.engine.has_messages();
            enqueue(&mut self.with_datagrams, slot, &mut pool_client.sends, sends);
            enqueue(&mut self.with_events, slot, &mut pool_client.tells, tells);
            enqueue(&mut self.with_messages, slot, &mut pool_client.reads, reads);
            schedule(&mut self.timers, slot, pool_client);
        }
        self.dirty = dirty; // Its memory serves the next iteration.
    }

    /// Delivers messages to the sink, until it is full.
    fn hand_on(&mut self, now: Micros) {
        while !self.sink.is_full()
            && let Some(slot) = self.with_messages.pop_front()
        {
            let pool_client = &mut self.pool_clients[slot];
            let items = pool_client.engine.take_inbox_items(now, MESSAGES_PER_TURN);
            pool_client.reads = pool_client.engine.has_messages();
            if pool_client.reads {
                self.with_messages.push_back(slot);
            }
            self.sink.take(now, pool_client.id, items);
            self.mark_dirty(slot);
        }
        self.sink.flush(now);
    }

    fn remove(&mut self, slot: usize) {
        let pool_client = self.pool_clients.remove(slot);
        self.by_session.remove(&pool_client.session);
        self.timers.remove(&(pool_client.scheduled, slot));
        // Removal is rare, and a queue holds only the clients that wait in it.
        for (queue, stands) in [
            (&mut self.with_datagrams, pool_client.sends),
            (&mut self.with_events, pool_client.tells),
            (&mut self.with_messages, pool_client.reads),
        ] {
            if stands {
                queue.retain(|&other| other != slot);
            }
        }
        if pool_client.is_dirty {
            self.dirty.retain(|&other| other != slot);
        }
        self.ended += pool_client.engine.engine_counters();
    }
}

impl Machine for ClientPool {
    type Handoff = Infallible;

    fn handle_datagram(&mut self, now: Micros, source: SocketAddr, datagram: &[u8]) {
        self.counters.datagrams_in += 1;
        self.counters.bytes_in += datagram.len() as u64;
        let mut view = DatagramView::unread(datagram, self.view_buffers.take());
        match view.read(&mut self.view_buffers.mask) {
            Err(Malformed) => self.counters.drop(Drop::Malformed),
            Ok(()) if view.header.session == 0 => self.handle_outside(now, source, &view, datagram),
            Ok(()) => match self.by_session.get(&view.header.session) {
                Some(&id) => self.pass(now, id, source, &view, datagram),
                None => self.counters.drop(Drop::UnknownSession),
            },
        }
        self.view_buffers.put_back(view.into_buffer());
    }

    fn handle_timeout(&mut self, now: Micros) {
        while let Some(&(due, slot)) = self.timers.first().filter(|&&(due, _)| due <= now) {
            self.timers.remove(&(due, slot));
            let pool_client = &mut self.pool_clients[slot];
            pool_client.scheduled = Micros::MAX;
            pool_client.engine.handle_timeout(now);
            self.mark_dirty(slot);
        }
    }

    fn handle_handoff(&mut self, _: Micros, handoff: Infallible) {
        match handoff {}
    }

    fn end_turn(&mut self, now: Micros) {
        self.hand_answers_on(now);
        self.sort_dirty(now);
        self.hand_on(now);
        self.sort_dirty(now);
    }

    fn poll_transmit(&mut self, now: Micros, sink: &mut impl DatagramSink) {
        while !sink.is_full()
            && let Some(slot) = self.with_datagrams.pop_front()
        {
            let pool_client = &mut self.pool_clients[slot];
            pool_client.engine.poll_transmit(now, &mut TurnSink { sink, left: DATAGRAMS_PER_TURN });
            pool_client.sends = pool_client.engine.has_transmit();
            if pool_client.sends {
                self.with_datagrams.push_back(slot);
            }
            // A message that could not be sent is reported as an event.
            let has_unread = pool_client.closing.is_none() && pool_client.engine.has_events();
            enqueue(&mut self.with_events, slot, &mut pool_client.tells, has_unread);
            schedule(&mut self.timers, slot, pool_client);
        }
    }

    fn poll_timeout(&self) -> Option<Micros> {
        self.timers.first().map(|&(due, _)| due)
    }

    fn has_output(&self) -> bool {
        !self.unread_events.is_empty() || !self.with_events.is_empty() || self.sink.has_output()
    }

    fn turn_hook(&self) -> Option<Arc<dyn TurnHook>> {
        self.sink.turn_hook()
    }

    fn is_drained(&self) -> bool {
        self.pool_clients.iter().all(|(_, pool_client)| pool_client.engine.is_drained())
    }
}

/// Limits one client to its number of datagrams in a round.
struct TurnSink<'a, S> {
    sink: &'a mut S,
    left: usize,
}

impl<S: DatagramSink> DatagramSink for TurnSink<'_, S> {
    fn begin(&mut self) -> usize {
        self.sink.begin()
    }

    fn buffer(&mut self) -> &mut Vec<u8> {
        self.sink.buffer()
    }

    fn commit(&mut self, destination: &SocketAddr, start: usize) {
        self.left = self.left.saturating_sub(1);
        self.sink.commit(destination, start);
    }

    fn is_full(&self) -> bool {
        self.left == 0 || self.sink.is_full()
    }
}

/// Puts a client into a queue, or takes it out, as `should` says.
fn enqueue(queue: &mut VecDeque<usize>, slot: usize, stands: &mut bool, should: bool) {
    if should && !std::mem::replace(stands, true) {
        queue.push_back(slot);
    } else if !should && std::mem::replace(stands, false) {
        queue.retain(|&other| other != slot);
    }
}

fn schedule(timers: &mut BTreeSet<(Micros, usize)>, slot: usize, pool_client: &mut PoolClient) {
    let deadline = pool_client.deadline();
    if deadline < pool_client.scheduled {
        timers.remove(&(pool_client.scheduled, slot));
        timers.insert((deadline, slot));
        pool_client.scheduled = deadline;
    }
}
