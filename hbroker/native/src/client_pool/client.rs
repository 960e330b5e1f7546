//! One pool client: an engine, and which of the pool's queues it is in.

use crate::Micros;
use crate::config::Config;
use crate::engine::{Engine, Shared};
use crate::link_id::PoolClientId;

/// How long a closed client may go on sending what it still has to send.
pub const LINGER: Micros = 1_000_000;

/// The keep-alive interval of a pool client's links, well below the nodes' idle timeout. Most pool clients are idle.
const KEEP_ALIVE: Micros = 7_000_000;

/// The credit of a pool client to each of its owners (§7.7), a little more than an MQTT client may leave
/// unacknowledged. Further messages wait at the owner, which counts them. Messages that waited here would be
/// neither delivered nor in the owner's queue any more.
const RECEIVE_MESSAGES: u32 = 1_024;
const RECEIVE_BYTES: u64 = 2 << 20;

/// The settings in which the clients of a pool differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The id of the client's session.
    pub session: u64,
    /// The session outlives the client. Messages that arrive before the client listens wait for it.
    pub persistent: bool,
    /// Random for each run of the client.
    pub incarnation: u64,
}

pub struct PoolClient {
    pub engine: Engine,
    pub id: PoolClientId,
    pub session: u64,
    /// When the client is removed at the latest, if it has been closed.
    pub closing: Option<Micros>,
    /// Something has happened to it in this event-loop iteration.
    pub is_dirty: bool,
    /// It is in the queue of the clients with datagrams to send, with events to report, with messages to
    /// deliver.
    pub sends: bool,
    pub tells: bool,
    pub reads: bool,
    /// Its entry among the timers; `Micros::MAX` if it has none.
    pub scheduled: Micros,
}

impl Identity {
    /// The settings of this client in a pool whose first client has the settings `first`.
    pub fn config(self, first: &Config) -> Config {
        let Self { session, persistent, incarnation } = self;
        Config {
            session,
            persistent,
            named: true,
            incarnation,
            keep_alive: KEEP_ALIVE,
            receive_messages: first.receive_messages.min(RECEIVE_MESSAGES),
            receive_bytes: first.receive_bytes.min(RECEIVE_BYTES),
            for_many: false,
            ..first.clone()
        }
    }
}

impl PoolClient {
    pub fn new(id: PoolClientId, config: Config, shared: Shared) -> Self {
        Self {
            id,
            session: config.session,
            engine: Engine::new(Config { hold: true, ..config }, 0, 1, shared),
            closing: None,
            is_dirty: false,
            sends: false,
            tells: false,
            reads: false,
            scheduled: Micros::MAX,
        }
    }

    /// When the pool has to look at the client next.
    pub fn deadline(&self) -> Micros {
        let due = self.engine.poll_timeout().unwrap_or(Micros::MAX);
        self.closing.map_or(due, |closing| due.min(closing))
    }

    /// Whether the client has been closed and has nothing left to send.
    pub fn is_over(&self, now: Micros) -> bool {
        self.closing.is_some_and(|closing| now >= closing || self.engine.is_drained())
    }
}
