//! Who an engine is, and its limits.

use crate::Micros;
use crate::publisher_id::publisher_id;
use crate::token::TokenKeys;

/// The settings of a core's engines; `_native.pyi` tells what each means.
#[derive(Clone, Debug)]
pub struct Config {
    /// Forwards messages; else it is a client's, and hands them up.
    pub node: bool,
    /// The session id of the links that it opens.
    pub session: u64,
    /// Random for each run.
    pub incarnation: u64,
    /// Keys of address-validation tokens (§4.2).
    pub token_keys: TokenKeys,
    /// For hash keys; secret.
    pub seed: u64,
    /// Links that others opened, and sessions without a link: in all, and of one host.
    pub max_links: usize,
    pub max_links_of_host: usize,
    pub max_datagram: usize,
    pub link_queue_bytes: usize,
    /// What may wait for one session (§7.8).
    pub queue_messages: usize,
    pub queue_bytes: usize,
    /// Bytes that may wait for all sessions together.
    pub queue_memory: usize,
    /// Bytes of packets that came before their turn, of all links together (§3.3).
    pub early_bytes: usize,
    pub event_queue: usize,
    pub message_queue_bytes: usize,
    pub retained_bytes: usize,
    /// The largest payload, out and in.
    pub max_message_bytes: usize,
    /// Bytes of messages of which parts are missing, in all.
    pub reassembly_bytes: usize,
    /// The session lives on without a link: messages that no listener wants wait for one.
    pub persistent: bool,
    /// Other runs may have the session's id, too, one after the other: its links begin with numbers of its run's own (§3.6).
    pub named: bool,
    /// The application says of each message when it has handled it; else it has when it has read it.
    pub hold: bool,
    /// What this end takes without having acknowledged it.
    pub receive_messages: u32,
    pub receive_bytes: u64,
    /// It publishes for many clients: none of them is to hold up the others (§7.7).
    pub for_many: bool,
    /// Answers to unproven addresses, a second.
    pub stranger_rate: u32,
    pub keep_alive: Micros,
    pub idle_timeout: Micros,
    /// Count by topic, and time messages, for who asks each second.
    pub telemetry: bool,
}

impl Config {
    /// The id of what it publishes (§7.9).
    pub fn publisher(&self) -> u64 {
        publisher_id(self.session, self.incarnation)
    }

    /// Whether an engine of these settings counts by topic: a node's does. (What a gateway's clients have is counted where they are.)
    pub fn counts_load(&self) -> bool {
        self.telemetry && self.node
    }
}
