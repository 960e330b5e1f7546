//! The identity of an engine, and its limits.

use std::sync::Arc;

use crate::Micros;
use crate::association::credentials::Credentials;
use crate::load::spans::SpanLog;
use crate::publisher_id::publisher_id;
use crate::token::TokenKeys;
use crate::workspace::Workspace;

/// The settings of a core's engines. `_native.pyi` documents each.
#[derive(Clone, Debug)]
pub struct Config {
    /// Distributes messages, as a node; else it is a client's, and delivers them to the application.
    pub node: bool,
    /// The session id of the links that it opens.
    pub session: u64,
    /// Random for each run.
    pub incarnation: u64,
    /// Keys of address tokens (§4.2).
    pub token_keys: TokenKeys,
    /// With which its datagrams are sealed; `None`: security is off.
    pub credentials: Option<Credentials>,
    /// A client has to show a token, and may do what its token allows.
    pub requires_tokens: bool,
    /// For hash keys; secret.
    pub seed: u64,
    /// The most links that others opened, and sessions without a link: in total, and of one host.
    pub max_links: usize,
    pub max_links_of_host: usize,
    pub max_datagram: usize,
    pub link_queue_bytes: usize,
    /// The bounds of one session's queue (§7.8).
    pub queue_messages: usize,
    pub queue_bytes: usize,
    /// The bytes that the queues of all sessions may use together.
    pub queue_memory: usize,
    /// If a subtree comes with more bytes in queues, they go to the store while it comes.
    pub spool_bytes: usize,
    /// The bytes of packets that arrived out of order, of all links together (§3.3).
    pub out_of_order_bytes: usize,
    pub event_queue: usize,
    pub message_queue_bytes: usize,
    pub retained_bytes: usize,
    /// The largest payload, out and in.
    pub max_message_bytes: usize,
    /// The bytes of all incomplete messages.
    pub reassembly_bytes: usize,
    /// The session outlives its link: messages that no listener wants wait for one.
    pub persistent: bool,
    /// Other runs may have the session's id, too, one after the other: its links begin with numbers of their
    /// own run (§3.6).
    pub named: bool,
    /// The application reports each message that it has handled. Otherwise a message counts as handled when
    /// it is read.
    pub hold: bool,
    /// The credit that this end grants: what it takes before it acknowledges.
    pub receive_messages: u32,
    pub receive_bytes: u64,
    /// A client's, whose application uses the names of it.
    pub workspace: Workspace,
    /// A node's: how many messages it takes in a second on the topics of a workspace.
    pub workspace_rates: Option<Arc<Vec<(String, u32)>>>,
    /// It publishes for many clients, none of which may hold back the others (§7.7).
    pub for_many: bool,
    /// Answers to unproven addresses, per second.
    pub stranger_rate: u32,
    pub keep_alive: Micros,
    pub idle_timeout: Micros,
    /// Count by topic, and time messages, for a reader that asks each second.
    pub telemetry: bool,
    /// Messages with a sampled `traceparent` have spans, which go here.
    pub spans: Option<Arc<SpanLog>>,
}

impl Config {
    /// The publisher id of its messages (§7.9).
    pub fn publisher(&self) -> u64 {
        publisher_id(self.session, self.incarnation)
    }

    /// Whether an engine with these settings counts by topic. Only a node's does. (A gateway counts the
    /// messages of its clients elsewhere.)
    pub fn counts_load(&self) -> bool {
        self.telemetry && self.node
    }
}
