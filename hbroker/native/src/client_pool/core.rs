//! The verbs of the border for a hive: of the hive here, and of each member as those of any core (`crate::core`).

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

/// The hives of all workers of one address.
pub struct ClientPoolCore {
    endpoint: Endpoint<ClientPool>,
    common: Arc<PoolShared>,
}

impl ClientPoolCore {
    /// A hive with its first member, whose settings `config` has. `sink`: where the messages of a worker's members go.
    ///
    /// # Errors
    /// The address cannot be bound, or a thread not be started.
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

    /// As `on_threads` for one worker, which the caller drives, step by step, and drops before the core is.
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

    /// Adds a member; `None`: another one has its session.
    pub fn open_pool_client(&self, identity: Identity) -> Option<PoolClientId> {
        let config = identity.config(&self.common.config);
        let known = self.common.homes.worker_of(identity.session);
        // Random, or a hash: members spread evenly.
        let home = known.unwrap_or((identity.session % u64::from(self.common.workers)) as u8);
        self.endpoint.with_machine(usize::from(home), |client_pool, _| client_pool.open_pool_client(config))
    }

    /// Closes a member: it tells nothing any more, and is gone once what it was to send is acknowledged, soon in any case.
    pub fn close_pool_client(&self, id: PoolClientId) {
        self.at(id, |client_pool, now| client_pool.close_pool_client(now, id));
    }

    /// Acts on a member's engine. Where there is no such member, on one that nobody sees.
    pub fn on_pool_client<R>(&self, id: PoolClientId, act: impl FnOnce(&mut Engine, Micros) -> R) -> R {
        // A link or a member may be made up by the caller; there is always a worker 0.
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

    /// Sends one datagram outside of any session for a member, which gets the answers.
    pub fn send_to(&self, id: PoolClientId, address: SocketAddr, packet: &[u8], token: &[u8], pad_to: usize) {
        let request = PacketView::from_raw(packet).ok().and_then(|view| wire::request_of(&view));
        self.on_pool_client(id, |engine, now| {
            if let Some(request) = request {
                self.common.inquiries.lock().note(now, request, id, address);
            }
            engine.send_to(address, packet, token, pad_to);
        });
    }

    /// The next events, and whose each is.
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

    /// Has every worker end a turn: somebody took from a sink, which so has room again, or no output.
    pub fn end_turns(&self) {
        (0..self.endpoint.workers()).for_each(|worker| self.endpoint.with_machine(worker, |_, _| {}));
    }

    /// The application has handled these messages of these members.
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

    /// Every counter and gauge by name, summed over members and workers.
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

    /// What members' engines share.
    pub fn shared(&self) -> &Shared {
        &self.common.shared
    }

    /// Calls with the hive of a member's worker; `None`: there is no such worker.
    fn at<R>(&self, id: PoolClientId, act: impl FnOnce(&mut ClientPool, Micros) -> R) -> Option<R> {
        let worker = usize::from(id.worker());
        (worker < self.endpoint.workers()).then(|| self.endpoint.with_machine(worker, act))
    }
}
