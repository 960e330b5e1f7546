//! The hosts of a network, and how they are set up.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use super::{HostStore, Network, SECOND};
use crate::Micros;
use crate::config::Config;
use crate::engine::{Engine, Shared};
use crate::link_id::LinkId;
use crate::tables::jurisdiction::Grant;
use crate::token::TokenKeys;
use crate::workspace::Workspace;

/// A message as an application read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    pub topic: String,
    pub publisher: u64,
    pub sequence: u64,
    /// What it is handled by.
    pub copy: (u64, u64),
    pub payload: Vec<u8>,
    pub retained: bool,
}

pub struct Host {
    pub address: SocketAddr,
    pub session: u64,
    pub publisher: u64,
    /// One for each worker.
    pub engines: Vec<Engine>,
    /// The links that were announced, by the peer's session or, where this host opened them, its own.
    pub links: HashMap<u64, LinkId>,
    pub read: Vec<Read>,
    /// Sequence number and reason of what was published at QoS 1 and 2.
    pub published: BTreeMap<u64, i32>,
    /// The application reads messages.
    pub reads: bool,
    pub downs: usize,
    /// Of these, links that their acceptor did not open.
    pub refused: usize,
    /// Sessions that ended because of their queue.
    pub overflows: usize,
    /// A node's store.
    pub store: Option<HostStore>,
}

pub fn config(node: bool, seed: u64) -> Config {
    Config {
        node,
        session: seed << 32 | 1,
        incarnation: seed << 33,
        token_keys: TokenKeys::new(vec![[7; 16]]),
        credentials: None,
        requires_tokens: false,
        seed,
        max_links: 1_000,
        max_links_of_host: 1_000,
        max_datagram: 1_200,
        link_queue_bytes: 1 << 24,
        queue_messages: 10_000,
        queue_bytes: 1 << 24,
        queue_memory: 1 << 30,
        spool_bytes: 4 << 20,
        out_of_order_bytes: 64 << 20,
        event_queue: 1_000,
        message_queue_bytes: 1 << 24,
        retained_bytes: 1 << 24,
        max_message_bytes: 1 << 28,
        reassembly_bytes: 1 << 29,
        persistent: false,
        named: false,
        hold: false,
        receive_messages: 4_096,
        receive_bytes: 8 << 20,
        workspace: Workspace::default(),
        workspace_rates: None,
        for_many: false,
        stranger_rate: 10_000,
        keep_alive: 2 * SECOND,
        idle_timeout: 15 * SECOND,
        telemetry: true,
        spans: None,
    }
}

/// Incarnations of two runs are further apart than those of the links of one (§3.6).
const ANOTHER_RUN: u64 = 1 << 40;

/// That of a node which serves all that it owns, for ever.
pub const GRANT: Grant =
    Grant { epoch: 1, serving: true, reserved: false, recovering: false, until: Micros::MAX };

impl Network {
    pub(super) fn add(&mut self, node: bool, workers: u8) -> usize {
        self.add_with(node, workers, |_| {})
    }

    pub(super) fn add_with(&mut self, node: bool, workers: u8, change: impl FnOnce(&mut Config)) -> usize {
        let index = self.hosts.len();
        let mut config = config(node, index as u64 + 1);
        change(&mut config);
        let shared = Shared::new(&config, workers);
        let engine = |worker| Engine::new(config.clone(), worker, workers, shared.clone());
        self.hosts.push(Host {
            address: ([10, 0, 0, 1], 1_000 + u16::try_from(index).expect("few hosts")).into(),
            session: config.session,
            publisher: config.publisher(),
            engines: (0..workers).map(engine).collect(),
            links: HashMap::new(),
            read: Vec::new(),
            published: BTreeMap::new(),
            reads: true,
            downs: 0,
            refused: 0,
            overflows: 0,
            store: None,
        });
        index
    }

    /// A node's process ends, and another run of it begins, with as many workers and nothing of what the former knew.
    pub fn restart(&mut self, node: usize) {
        let host = &mut self.hosts[node];
        let mut config = host.engines[0].config.clone();
        config.incarnation += ANOTHER_RUN;
        let workers = u8::try_from(host.engines.len()).expect("few workers");
        let shared = Shared::new(&config, workers);
        let engine = |worker| Engine::new(config.clone(), worker, workers, shared.clone());
        host.engines = (0..workers).map(engine).collect();
        host.links.clear();
        self.audits.forget(node);
        for (subtree, _) in self.owners.iter().filter(|(_, owner)| *owner == node) {
            for engine in &mut host.engines {
                engine.grant(subtree, GRANT);
            }
        }
    }
}
