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
//! client that was touched in it.
//!
//! The kernel gives all datagrams of one owner to one worker's socket, whichever client they are for. If a
//! pool has several workers, each client therefore has its home on one of them, and the other workers hand
//! its datagrams to that one.
//!
//! ```text
//!     core.rs           the verbs of the native API
//!       |
//!     client_pool.rs    ClientPool: queues and timers of one worker's clients
//!       |-- routing.rs         datagram in -> client, or the worker that has it
//!       |     `-- request_table.rs   number of a request -> client that sent it
//!       |-- client.rs          PoolClient: one engine, and the queues that it is in
//!       `-- messages.rs        messages out: the MessageSink of the worker's thread
//! ```

mod client;
pub mod core;
pub mod messages;
mod request_table;
mod routing;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use slab::Slab;

use crate::Micros;
use crate::client_pool::client::{LINGER, PoolClient};
use crate::client_pool::messages::MessageSink;
use crate::client_pool::request_table::RequestTable;
use crate::config::Config;
use crate::endpoint::worker::{Machine, TurnHook};
use crate::engine::metrics::counters::{Counters, EngineCounters};
use crate::engine::owner::home_workers::HomeWorkers;
use crate::engine::transport::event::Event;
use crate::engine::{Engine, Shared};
use crate::keyed_hash::KeyedHash;
use crate::link_id::PoolClientId;
use crate::sink::DatagramSink;
use crate::wire::ViewBuffers;

pub use crate::client_pool::client::Identity;
pub use crate::client_pool::routing::Forwarded;

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

/// What the workers of a pool have in common.
pub struct PoolShared {
    config: Config,
    workers: u8,
    shared: Shared,
    /// The home worker of each client's session.
    homes: HomeWorkers,
    requests: Mutex<RequestTable>,
}

impl PoolShared {
    /// For a pool of `workers` workers. `config` is that of the first client; the others have the same,
    /// except for their `Identity`.
    pub fn new(config: Config, workers: u8) -> Self {
        Self {
            workers,
            shared: Shared::new(&config, workers),
            homes: HomeWorkers::new(config.seed),
            requests: Mutex::new(RequestTable::new(KeyedHash::new(config.seed))),
            config,
        }
    }
}

/// The pool clients whose home is one worker.
pub struct ClientPool {
    worker: u8,
    common: Arc<PoolShared>,
    // Boxed, so that growing the slab moves only pointers.
    pool_clients: Slab<Box<PoolClient>>,
    generation: u32,
    by_session: HashMap<u64, PoolClientId, KeyedHash>,
    timers: BTreeSet<(Micros, usize)>,
    touched: Vec<usize>,
    with_datagrams: VecDeque<usize>,
    with_events: VecDeque<usize>,
    with_messages: VecDeque<usize>,
    sink: Box<dyn MessageSink>,
    /// The first client's events, without the answers that the sink took.
    unread_events: VecDeque<Event>,
    handoffs: VecDeque<(u8, Forwarded)>,
    view_buffers: ViewBuffers,
    counters: Counters,
    /// Counters of clients that have been removed.
    ended: EngineCounters,
}

impl ClientPool {
    /// The pool of worker number `worker`. It delivers the messages of its clients to `sink`.
    pub fn new(worker: u8, common: Arc<PoolShared>, sink: Box<dyn MessageSink>) -> Self {
        let hasher = KeyedHash::new(common.config.seed);
        Self {
            worker,
            common,
            pool_clients: Slab::new(),
            generation: 0,
            by_session: HashMap::with_hasher(hasher),
            timers: BTreeSet::new(),
            touched: Vec::new(),
            with_datagrams: VecDeque::new(),
            with_events: VecDeque::new(),
            with_messages: VecDeque::new(),
            sink,
            unread_events: VecDeque::new(),
            handoffs: VecDeque::new(),
            view_buffers: ViewBuffers::default(),
            counters: Counters::default(),
            ended: EngineCounters::default(),
        }
    }

    /// Adds a client. Returns `None` if another open client has its session. A closing client with that
    /// session is removed at once.
    pub fn open_pool_client(&mut self, config: Config) -> Option<PoolClientId> {
        let session = config.session;
        if let Some(known) = self.by_session.get(&session).copied() {
            self.pool_client(known).filter(|pool_client| pool_client.closing.is_some())?;
            self.remove(known.slot());
        }
        if self.common.homes.claim(session, self.worker) != self.worker {
            return None;
        }
        let entry = self.pool_clients.vacant_entry();
        let id = PoolClientId::new(self.worker, self.generation, entry.key());
        self.generation = self.generation.wrapping_add(1);
        entry.insert(Box::new(PoolClient::new(id, config, self.common.shared.clone())));
        self.by_session.insert(session, id);
        Some(id)
    }

    /// Closes a client: it reports nothing any more. It is removed once all that it has to send is
    /// acknowledged, and at the latest after `LINGER`.
    pub fn close_pool_client(&mut self, now: Micros, id: PoolClientId) {
        if let Some(pool_client) = self.pool_client(id).filter(|pool_client| pool_client.closing.is_none()) {
            pool_client.closing = Some(now + LINGER);
            self.touch(id.slot());
        }
    }

    /// The client's engine, which the caller may change; `None` if there is no such client.
    pub fn engine(&mut self, id: PoolClientId) -> Option<&mut Engine> {
        self.pool_client(id)?;
        self.touch(id.slot());
        self.pool_client(id).map(|pool_client| &mut pool_client.engine)
    }

    /// Whether the client exists and has not been closed.
    pub fn is_open(&mut self, id: PoolClientId) -> bool {
        self.pool_client(id).is_some_and(|pool_client| pool_client.closing.is_none())
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
            self.touch(slot);
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

    // An event-loop iteration and its end

    fn touch(&mut self, slot: usize) {
        if !std::mem::replace(&mut self.pool_clients[slot].is_touched, true) {
            self.touched.push(slot);
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

    /// Puts every touched client into the queues where it belongs.
    fn sort_touched(&mut self, now: Micros) {
        let mut touched = std::mem::take(&mut self.touched);
        for slot in touched.drain(..) {
            let pool_client = &mut self.pool_clients[slot];
            pool_client.is_touched = false;
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
            enqueue(
                &mut self.with_datagrams,
                slot,
                &mut pool_client.sends,
                pool_client.engine.has_transmit(),
            );
            enqueue(
                &mut self.with_events,
                slot,
                &mut pool_client.tells,
                is_open && pool_client.engine.has_events(),
            );
            enqueue(
                &mut self.with_messages,
                slot,
                &mut pool_client.reads,
                is_open && pool_client.engine.has_messages(),
            );
            schedule(&mut self.timers, slot, pool_client);
        }
        self.touched = touched; // Its memory serves the next iteration.
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
            self.touch(slot);
        }
        self.sink.flush(now);
    }

    fn remove(&mut self, slot: usize) {
        let pool_client = self.pool_clients.remove(slot);
        self.by_session.remove(&pool_client.session);
        self.common.homes.remove(pool_client.session, self.worker);
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
        if pool_client.is_touched {
            self.touched.retain(|&other| other != slot);
        }
        self.ended += pool_client.engine.engine_counters();
    }
}

impl Machine for ClientPool {
    type Handoff = Forwarded;

    fn handle_datagram(&mut self, now: Micros, source: SocketAddr, datagram: &[u8]) {
        self.counters.datagrams_in += 1;
        self.counters.bytes_in += datagram.len() as u64;
        self.take_datagram(now, source, datagram);
    }

    fn handle_timeout(&mut self, now: Micros) {
        while let Some(&(due, slot)) = self.timers.first().filter(|&&(due, _)| due <= now) {
            self.timers.remove(&(due, slot));
            let pool_client = &mut self.pool_clients[slot];
            pool_client.scheduled = Micros::MAX;
            pool_client.engine.handle_timeout(now);
            self.touch(slot);
        }
    }

    fn handle_handoff(&mut self, now: Micros, handoff: Forwarded) {
        self.take_forwarded(now, handoff);
    }

    fn end_turn(&mut self, now: Micros) {
        self.hand_answers_on(now);
        self.sort_touched(now);
        self.hand_on(now);
        self.sort_touched(now);
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

    fn poll_handoff(&mut self) -> Option<(u8, Forwarded)> {
        self.handoffs.pop_front()
    }

    fn has_handoff(&self) -> bool {
        !self.handoffs.is_empty()
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
        self.handoffs.is_empty()
            && self.pool_clients.iter().all(|(_, pool_client)| pool_client.engine.is_drained())
    }
}

/// Limits one client to its number of datagrams in a round.
struct TurnSink<'a, S> {
    sink: &'a mut S,
    left: usize,
}

impl<S: DatagramSink> DatagramSink for TurnSink<'_, S> {
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
