//! The verbs of the native API for a client pool. Those of a single pool client are the verbs of any core
//! (`crate::core`).

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use crate::Micros;
use crate::association;
use crate::client_pool::ClientPool;
use crate::client_pool::messages::MessageSink;
use crate::config::Config;
use crate::endpoint::Endpoint;
use crate::endpoint::worker::Worker;
use crate::engine::Shared;
use crate::link_id::PoolClientId;
use crate::wire::MessageId;
use crate::workspace::Workspace;

/// A client pool on a thread with a socket.
pub struct ClientPoolCore {
    endpoint: Endpoint<ClientPool>,
    shared: Shared,
    /// Whose names the applications of all pool clients use.
    workspace: Workspace,
}

impl ClientPoolCore {
    /// A pool with its first client, which has the settings `config`.
    ///
    /// # Errors
    /// The address cannot be bound, or the thread cannot be started.
    pub fn on_thread(config: Config, listen: SocketAddr, sink: Box<dyn MessageSink>) -> io::Result<Self> {
        let associations = association::table::Shared::of(&config);
        let workspace = config.workspace.clone();
        let client_pool = ClientPool::new(config, sink);
        let shared = client_pool.shared.clone();
        Ok(Self { endpoint: Endpoint::new(vec![client_pool], listen, associations)?, shared, workspace })
    }

    /// As `on_thread`, for a caller that drives the worker step by step, and drops it before the core.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn without_thread(
        config: Config,
        listen: SocketAddr,
        sink: Box<dyn MessageSink>,
    ) -> io::Result<(Self, Worker<ClientPool>)> {
        let associations = association::table::Shared::of(&config);
        let workspace = config.workspace.clone();
        let client_pool = ClientPool::new(config, sink);
        let shared = client_pool.shared.clone();
        let (endpoint, worker) = Endpoint::without_thread(client_pool, listen, associations)?;
        Ok((Self { endpoint, shared, workspace }, worker))
    }

    /// The thread and the socket.
    pub fn endpoint(&self) -> &Endpoint<ClientPool> {
        &self.endpoint
    }

    /// Calls with the pool and the time, and ends an event-loop iteration.
    pub fn with<R>(&self, act: impl FnOnce(&mut ClientPool, Micros) -> R) -> R {
        self.endpoint.with_machine(0, act)
    }

    /// The application has handled these messages of these clients.
    pub fn handled(&self, messages: &[(PoolClientId, MessageId)]) {
        let mut of_client: BTreeMap<PoolClientId, Vec<MessageId>> = BTreeMap::new();
        for (id, message) in messages {
            of_client.entry(*id).or_default().push(*message);
        }
        self.with(|client_pool, _| {
            for (id, messages) in of_client {
                client_pool.engine(id).into_iter().for_each(|engine| engine.handled(&messages));
            }
        });
    }

    /// Every counter and gauge by name, summed over the clients.
    pub fn counters(&self) -> BTreeMap<String, u64> {
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        let mut add = |name: &str, value: u64| *sums.entry(name.to_owned()).or_default() += value;
        self.with(|client_pool, _| client_pool.counters(&mut add));
        for (name, value) in self.endpoint.counters() {
            add(name, value);
        }
        sums
    }

    /// Whose names the applications of all pool clients use.
    pub fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// What the engines of all pool clients share.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }
}
