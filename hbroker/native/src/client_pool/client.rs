//! One member of a hive: an engine, and in which of the hive's queues it stands.

use crate::Micros;
use crate::config::Config;
use crate::engine::{Engine, Shared};
use crate::link_id::PoolClientId;

/// How long a member that was closed may still say what it had to say.
pub const LINGER: Micros = 1_000_000;

/// What a member takes from each of its owners without having acknowledged it (§7.7): a little more than its client may leave
/// unanswered. The rest waits at the owner, which counts it; here it would be neither delivered nor the owner's any more.
const RECEIVE_MESSAGES: u32 = 1_024;
const RECEIVE_BYTES: u64 = 2 << 20;

/// What tells a member from the others of its hive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its session's id.
    pub session: u64,
    /// The session outlives the member: what comes before it listens waits for it.
    pub persistent: bool,
    /// Random for each run of it.
    pub incarnation: u64,
    /// What keeps its links alive: well below the nodes' idle timeout. Most members are idle.
    pub keep_alive: Micros,
}

pub struct PoolClient {
    pub engine: Engine,
    pub id: PoolClientId,
    pub session: u64,
    /// It was closed, and is forgotten by then.
    pub closing: Option<Micros>,
    /// Something happened to it in this turn.
    pub is_touched: bool,
    /// It stands in the queue of those with datagrams to send, events to tell, messages to hand on.
    pub sends: bool,
    pub tells: bool,
    pub reads: bool,
    /// Its entry among the timers; `Micros::MAX`: none.
    pub scheduled: Micros,
}

impl Identity {
    /// The settings of such a member, where those of the hive's first are these.
    pub fn config(self, first: &Config) -> Config {
        let Self { session, persistent, incarnation, keep_alive } = self;
        Config {
            session,
            persistent,
            named: true,
            incarnation,
            keep_alive,
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
            is_touched: false,
            sends: false,
            tells: false,
            reads: false,
            scheduled: Micros::MAX,
        }
    }

    /// When the hive has to look at it.
    pub fn deadline(&self) -> Micros {
        let due = self.engine.poll_timeout().unwrap_or(Micros::MAX);
        self.closing.map_or(due, |closing| due.min(closing))
    }

    /// Whether it was closed and nothing is left to be said.
    pub fn is_over(&self, now: Micros) -> bool {
        self.closing.is_some_and(|closing| now >= closing || self.engine.is_drained())
    }
}
