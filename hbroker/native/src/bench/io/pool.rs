//! Subscribers of a load that share a socket: the clients of a client pool, with the load as their
//! application.
//!
//! Each is a client of its own, with its session, its links, and its copy of each message. They share the
//! socket, because a process may have fewer sockets than a load has subscribers. Events for their controls go
//! to Python, as in any client pool.

use std::net::SocketAddr;
use std::sync::Arc;
use std::{io, mem};

use mio::{Registry, Token};
use parking_lot::Mutex;

use super::port::{Bench, LoadRole, Port, Shared, Turn, register_worker};
use crate::Micros;
use crate::client_pool::ClientPool;
use crate::client_pool::core::ClientPoolCore;
use crate::client_pool::messages::MessageSink;
use crate::config::Config;
use crate::endpoint::worker::{Step, Worker};
use crate::engine::subscriber::batch::InboxItem;
use crate::link_id::PoolClientId;
use crate::wire::MessageId;

/// Which subscriber of the load each pool client is. Clones share one map.
#[derive(Clone, Default)]
pub struct SubscriberMap(Arc<Mutex<Vec<Option<usize>>>>);

impl SubscriberMap {
    /// Records that a pool client is this subscriber.
    pub fn enter(&self, pool_client: PoolClientId, subscriber: usize) {
        let mut subscriber_map = self.0.lock();
        if subscriber_map.len() <= pool_client.slot() {
            subscriber_map.resize(pool_client.slot() + 1, None);
        }
        subscriber_map[pool_client.slot()] = Some(subscriber);
    }

    fn subscriber(&self, pool_client: PoolClientId) -> Option<usize> {
        self.0.lock().get(pool_client.slot()).copied().flatten()
    }
}

/// Messages that pool clients have received and that are to be acknowledged.
type Taken = Arc<Mutex<Vec<(PoolClientId, MessageId)>>>;

/// Passes messages of pool clients to the load.
struct LoadSink {
    shared: Shared,
    subscriber_map: SubscriberMap,
    taken: Taken,
}

impl MessageSink for LoadSink {
    fn take(&mut self, _now: Micros, pool_client: PoolClientId, items: Vec<InboxItem>) {
        let Some(subscriber) = self.subscriber_map.subscriber(pool_client) else { return };
        let received_at = self.shared.now();
        let mut load = self.shared.load.lock();
        for item in &items {
            item.tell_payloads(|payload| load.note_received(subscriber, payload, received_at));
        }
        let awaiting_acknowledgement =
            items.iter().filter_map(|item| Some((pool_client, item.alone()?.awaiting_acknowledgement?)));
        self.taken.lock().extend(awaiting_acknowledgement);
    }
}

/// The socket and the worker of a client pool, as the thread drives them.
pub struct PoolPort {
    worker: Worker<ClientPool>,
    core: Arc<ClientPoolCore>,
    taken: Taken,
}

impl PoolPort {
    /// Binds a socket. Returns the port for the thread, the pool's core, and the map from pool clients to
    /// subscribers.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn open(
        config: Config,
        listen: SocketAddr,
        shared: Shared,
    ) -> io::Result<(Self, Arc<ClientPoolCore>, SubscriberMap)> {
        let (subscriber_map, taken) = (SubscriberMap::default(), Taken::default());
        let load_sink =
            LoadSink { shared, subscriber_map: subscriber_map.clone(), taken: Arc::clone(&taken) };
        let (core, worker) = ClientPoolCore::without_thread(config, listen, Box::new(load_sink))?;
        let core = Arc::new(core);
        Ok((Self { worker, core: Arc::clone(&core), taken }, core, subscriber_map))
    }
}

impl Port for PoolPort {
    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        register_worker(&self.worker, registry, token)
    }

    fn turn(&mut self, bench: &mut Bench) -> io::Result<Turn> {
        let Step { has_more, due } = self.worker.step(&mut bench.arrivals)?;
        let taken = mem::take(&mut *self.taken.lock());
        if !taken.is_empty() {
            self.core.handled(&taken);
        }
        Ok(Turn { has_more: has_more || !taken.is_empty(), is_blocked: false, due: bench.due_in(due) })
    }

    fn role(&self) -> LoadRole {
        LoadRole::default()
    }
}
