//! The verbs of the native API for a client pool. Those of a single pool client are the verbs of any core
//! (`crate::core`).

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::Micros;
use crate::client_pool::messages::MessageSink;
use crate::client_pool::{ClientPool, Identity, PoolShared};
use crate::config::Config;
use crate::endpoint::Endpoint;
use crate::endpoint::worker::Worker;
use crate::engine::subscriber::unacknowledged::MessageId;
use crate::engine::transport::event::Event;
use crate::engine::{Engine, Shared};
use crate::link_id::PoolClientId;
use crate::wire::{self, PacketView};

/// The client pools of all workers of one address.
pub struct ClientPoolCore {
    endpoint: Endpoint<ClientPool>,
    common: Arc<PoolShared>,
}

impl ClientPoolCore {
    /// A pool with its first client, which has the settings `config`. `sink` makes the `MessageSink` of each
    /// worker.
    ///
    /// # Errors
    /// The address cannot be bound, or a thread cannot be started.
    pub fn on_threads(
        config: Config,
        listen: SocketAddr,
        workers: u8,
        mut sink: impl FnMut(u8) -> Box<dyn MessageSink>,
    ) -> io::Result<Self> {
        let common = Arc::new(PoolShared::new(config, workers));
        let client_pool = |worker| ClientPool::new(worker, Arc::clone(&common), sink(worker));
        let mut client_pools: Vec<ClientPool> = (0..workers).map(client_pool).collect();
        if let Some(first) = client_pools.first_mut() {
            first.open_pool_client(common.config.clone());
        }
        Ok(Self { endpoint: Endpoint::new(client_pools, listen)?, common })
    }

    /// As `on_threads`, with one worker. The caller drives that worker step by step, and drops it before the
    /// core.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn without_thread(
        config: Config,
        listen: SocketAddr,
        sink: Box<dyn MessageSink>,
    ) -> io::Result<(Self, Worker<ClientPool>)> {
        let common = Arc::new(PoolShared::new(config, 1));
        let mut client_pool = ClientPool::new(0, Arc::clone(&common), sink);
        client_pool.open_pool_client(common.config.clone());
        let (endpoint, worker) = Endpoint::without_thread(client_pool, listen)?;
        Ok((Self { endpoint, common }, worker))
    }

    /// The threads and sockets.
    pub fn endpoint(&self) -> &Endpoint<ClientPool> {
        &self.endpoint
    }

    /// Adds a client. Returns `None` if another open client has its session.
    pub fn open_pool_client(&self, identity: Identity) -> Option<PoolClientId> {
        let config = identity.config(&self.common.config);
        let known = self.common.homes.worker_of(identity.session);
        // A session id is random or a hash, so the clients are spread evenly.
        let home = known.unwrap_or((identity.session % u64::from(self.common.workers)) as u8);
        self.endpoint.with_machine(usize::from(home), |client_pool, _| client_pool.open_pool_client(config))
    }

    /// Closes a client: it reports nothing any more. It is removed once all that it has to send is
    /// acknowledged, and after one second at the latest.
    pub fn close_pool_client(&self, id: PoolClientId) {
        self.at(id, |client_pool, now| client_pool.close_pool_client(now, id));
    }

    /// Acts on the client's engine. If there is no such client, acts on a new engine that is dropped
    /// afterwards.
    pub fn on_pool_client<R>(&self, id: PoolClientId, act: impl FnOnce(&mut Engine, Micros) -> R) -> R {
        // The caller may have made the id up. Worker 0 always exists.
        let worker = if usize::from(id.worker()) < self.endpoint.workers() { id.worker() } else { 0 };
        self.endpoint.with_machine(usize::from(worker), |client_pool, now| {
            if client_pool.is_open(id)
                && let Some(engine) = client_pool.engine(id)
            {
                return act(engine, now);
            }
            let config = self.common.config.clone();
            act(&mut Engine::new(config, 0, 1, self.common.shared.clone()), now)
        })
    }

    /// Sends one datagram outside of any session for a client, which gets the answers.
    pub fn send_to(&self, id: PoolClientId, address: SocketAddr, packet: &[u8], token: &[u8], pad_to: usize) {
        let request = PacketView::from_raw(packet).ok().and_then(|view| wire::request_of(&view));
        self.on_pool_client(id, |engine, now| {
            if let Some(request) = request {
                self.common.requests.lock().note(now, request, id, address);
            }
            engine.send_to(address, packet, token, pad_to);
        });
    }

    /// The next events, each with its client.
    pub fn take_events(&self, limit: usize) -> Vec<(PoolClientId, Event)> {
        let mut taken = Vec::new();
        for worker in 0..self.endpoint.workers() {
            let left = limit - taken.len();
            taken.extend(
                self.endpoint.with_machine(worker, |client_pool, now| client_pool.take_events(now, left)),
            );
        }
        taken
    }

    /// Makes every worker end an event-loop iteration. A caller does so when it has taken messages out of a
    /// sink, which then has room again or no output any more.
    pub fn end_turns(&self) {
        (0..self.endpoint.workers()).for_each(|worker| self.endpoint.with_machine(worker, |_, _| {}));
    }

    /// The application has handled these messages of these clients.
    pub fn handled(&self, messages: &[(PoolClientId, MessageId)]) {
        let mut of_worker: BTreeMap<u8, BTreeMap<PoolClientId, Vec<MessageId>>> = BTreeMap::new();
        for (id, message) in messages {
            of_worker.entry(id.worker()).or_default().entry(*id).or_default().push(*message);
        }
        for of_pool_client in of_worker.values() {
            let Some((&any, _)) = of_pool_client.first_key_value() else { continue };
            self.at(any, |client_pool, _| {
                for (id, messages) in of_pool_client {
                    client_pool.engine(*id).into_iter().for_each(|engine| engine.handled(messages));
                }
            });
        }
    }

    /// Every counter and gauge by name, summed over clients and workers.
    pub fn counters(&self) -> BTreeMap<String, u64> {
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        let mut add = |name: &str, value: u64| *sums.entry(name.to_owned()).or_default() += value;
        for worker in 0..self.endpoint.workers() {
            self.endpoint.with_machine(worker, |client_pool, _| client_pool.counters(&mut add));
        }
        for (name, value) in self.endpoint.counters() {
            add(name, value);
        }
        sums
    }

    /// What the engines of all pool clients share.
    pub fn shared(&self) -> &Shared {
        &self.common.shared
    }

    /// Calls `act` with the pool of the client's worker; `None` if there is no such worker.
    fn at<R>(&self, id: PoolClientId, act: impl FnOnce(&mut ClientPool, Micros) -> R) -> Option<R> {
        let worker = usize::from(id.worker());
        (worker < self.endpoint.workers()).then(|| self.endpoint.with_machine(worker, act))
    }
}
