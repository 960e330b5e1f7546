//! The exchange between the client pool's thread, the workers and Python. Messages of the network enter here
//! and leave to the workers in batches.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard, RwLock};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::Micros;
use crate::endpoint::EndpointState;
use crate::endpoint::machine::TurnHook;
use crate::mqtt::Key;
use crate::mqtt::access::attempts::Attempts;
use crate::mqtt::access::rules::AccessList;
use crate::mqtt::codec::frame::kind;
use crate::mqtt::codec::packets::{CloseReason, Connect};
use crate::mqtt::codec::reason::Reason;
use crate::mqtt::distribution::ack_guard::{AckGuard, Releases, Ticket};
use crate::mqtt::distribution::batch::MessageBatch;
use crate::mqtt::distribution::fanout::{
    Batches, Fanout, Incoming, ItemContent, Options, ResumedSession, SessionItem,
};
use crate::mqtt::gateway::command::Command;
use crate::mqtt::gateway::unfinished::UnfinishedPackets;
use crate::mqtt::gateway::worker_event::{SessionHandle, WorkerEvent, WorkerEventQueue};
use crate::mqtt::io::connections::ConnectionId;
use crate::mqtt::io::worker_handle::CommandSink;
use crate::mqtt::metrics::counters::{Counters, Drop as Loss};
use crate::mqtt::session::{QueueTotals, Session, SessionState};
use crate::mqtt::settings::ListenerSettings;

/// How many bytes may be posted to one worker before messages of `QoS` 0 for it are dropped. (The network's
/// credit bounds other messages.)
const MOST_WAITING: usize = 64 << 20;

/// How much later a parked session is looked at after it has changed.
const HOUSEKEEPING: Micros = 250_000;

/// How long a session that ended may wait for the network's answers before Python gets the `Closed` event.
const SETTLING: Micros = 2_000_000;

/// How much the client pool's thread delivers itself while a worker sleeps: this many items in one iteration,
/// with this many bytes in all. If there are more, each worker delivers its own.
const FEW: usize = 16;
const LITTLE: usize = 16_384;

type WorkerHandles = Vec<Arc<dyn CommandSink<Command>>>;

/// See the module.
pub struct Dispatcher {
    pub worker_events: WorkerEventQueue,
    pub releases: Arc<Releases>,
    fanout: Mutex<Fanout>,
    /// Messages that the network took: by sequence number, the session and key that wait for the answer.
    expected: Mutex<FxHashMap<u64, (SessionHandle, Key)>>,
    worker_handles: OnceLock<WorkerHandles>,
    pending_wakes: Mutex<PendingWakes>,
    /// Bytes that are posted to each worker and not handled.
    waiting: OnceLock<Vec<AtomicUsize>>,
    /// By listener.
    settings: RwLock<FxHashMap<u32, Arc<ListenerSettings>>>,
    access: Mutex<FxHashMap<u32, Arc<AccessList>>>,
    settling: Mutex<Vec<Settling>>,
    sessions: AtomicU64,
    /// One in this many messages of the network is timed; 0 for none.
    pub timed: AtomicU32,
    pub unfinished: UnfinishedPackets,
    attempts: RwLock<Option<(Arc<Attempts>, Micros)>>,
}

/// The workers to which the client pool's thread has posted commands, and which it has not woken yet.
#[derive(Default)]
struct PendingWakes {
    workers: SmallVec<[u8; 4]>,
    items: usize,
    bytes: usize,
}

/// A session whose client is gone, and whose messages the network has not all answered.
struct Settling {
    handle: SessionHandle,
    due: Micros,
    worker_events: WorkerEvent,
}

impl Dispatcher {
    pub fn new(unfinished: UnfinishedPackets) -> Self {
        let releases = Arc::new(Releases::default());
        Self {
            worker_events: WorkerEventQueue::default(),
            fanout: Mutex::new(Fanout::new(Arc::clone(&releases))),
            releases,
            expected: Mutex::default(),
            worker_handles: OnceLock::new(),
            pending_wakes: Mutex::default(),
            waiting: OnceLock::new(),
            settings: RwLock::default(),
            access: Mutex::default(),
            settling: Mutex::default(),
            sessions: AtomicU64::new(1),
            timed: AtomicU32::new(0),
            unfinished,
            attempts: RwLock::default(),
        }
    }

    /// Sets the workers, and the endpoint whose reader is signalled. Before that there are no clients.
    pub fn introduce(&self, endpoint_state: Arc<EndpointState>, worker_handles: WorkerHandles) {
        self.worker_events.introduce(endpoint_state);
        let waiting = worker_handles.iter().map(|_| AtomicUsize::new(0)).collect();
        let _ = self.waiting.set(waiting);
        let _ = self.worker_handles.set(worker_handles);
    }

    pub fn post(&self, worker: u8, command: Command) {
        if let Some(worker_handle) = self.worker_handles().get(usize::from(worker)) {
            worker_handle.post(command);
        }
    }

    /// Posts a command to every worker.
    pub fn post_all(&self, mut make: impl FnMut() -> Command) {
        self.worker_handles().iter().for_each(|worker_handle| worker_handle.post(make()));
    }

    fn worker_handles(&self) -> &[Arc<dyn CommandSink<Command>>] {
        self.worker_handles.get().map_or(&[], Vec::as_slice)
    }

    pub fn workers(&self) -> usize {
        self.worker_handles().len()
    }

    // Messages of the network

    /// Begins a round of messages. When the round is dropped, everything is posted. `without_wake`, for the
    /// client pool's thread: the workers are not woken until `run_pending` is called.
    pub fn round(&self, now: Micros, without_wake: bool) -> Round<'_> {
        let batches = self.worker_handles().iter().map(|_| Vec::new()).collect();
        Round { dispatcher: self, fanout: self.fanout.lock(), batches, now, without_wake }
    }

    /// Runs the commands that the client pool's thread posted without waking the workers, or wakes the workers
    /// for them. `may_run_here`: as in [`CommandSink::run_pending`].
    fn run_pending(&self, may_run_here: bool) {
        let PendingWakes { workers, items, bytes } = std::mem::take(&mut *self.pending_wakes.lock());
        let may_run_here = may_run_here && items <= FEW && bytes <= LITTLE;
        workers
            .iter()
            .for_each(|worker| self.worker_handles()[usize::from(*worker)].run_pending(may_run_here));
    }

    /// The network took these messages: (sequence number, session, key). Called before the network can
    /// answer.
    pub fn expect_answers(&self, published: impl Iterator<Item = (u64, SessionHandle, Key)>) {
        self.expected.lock().extend(published.map(|(sequence, session, key)| (sequence, (session, key))));
    }

    /// The session and key that wait for the network's answer to this message; `None` if no client published
    /// it.
    pub fn take_expected(&self, sequence: u64) -> Option<(SessionHandle, Key)> {
        self.expected.lock().remove(&sequence)
    }

    /// A worker has handled this many bytes that were posted to it.
    pub fn arrived(&self, worker: u8, bytes: usize) {
        if let Some(waiting) = self.waiting(worker) {
            waiting.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    fn waiting(&self, worker: u8) -> Option<&AtomicUsize> {
        self.waiting.get()?.get(usize::from(worker))
    }

    // Listeners and sessions

    /// See [`Fanout::attach`]. For a parked session, `record` reports the same.
    pub fn attach(&self, listener: u64, session: SessionHandle, options: Options, hold: Option<u16>) {
        let mut fanout = self.fanout.lock();
        fanout.attach(listener, session, options, hold);
        if options.no_local
            && let Some(connection) = fanout.connection_of(session)
        {
            self.post(connection.worker(), Command::SendOrigin(connection));
        }
    }

    /// Posts SUBACK, and then the messages that were held back for it.
    pub fn suback(
        &self,
        now: Micros,
        connection: ConnectionId,
        packet: u16,
        reasons: Vec<Reason>,
        text: String,
    ) {
        let mut round = self.round(now, false);
        self.post(connection.worker(), Command::Acknowledge(connection, kind::SUBACK, packet, reasons, text));
        if let Some(session) = round.fanout.session_of(connection) {
            round.fanout.release(now, session, packet, &mut round.batches);
        }
    }

    /// See [`Fanout::detach`].
    pub fn detach(&self, listener: u64) {
        self.fanout.lock().detach(listener);
        self.settle();
    }

    /// Parks a new session, or one from another gateway.
    pub fn open_session(&self, now: Micros, session: Session) -> SessionHandle {
        let handle = self.sessions.fetch_add(1, Ordering::Relaxed);
        self.fanout.lock().park(now, handle, Box::new(session));
        handle
    }

    /// See [`Fanout::record`].
    pub fn record(
        &self,
        session: SessionHandle,
        connection: ConnectionId,
        origin: u64,
        gets_copies: bool,
    ) -> Option<ResumedSession> {
        self.fanout.lock().record(session, connection, origin, gets_copies)
    }

    /// The session's connection has ended. [`Command::Park`] is posted behind all items that were posted for
    /// it.
    pub fn end_connection(&self, session: SessionHandle, connection: ConnectionId) {
        self.fanout.lock().end_connection(session, connection);
        self.post(connection.worker(), Command::Park(connection));
    }

    /// Parks a session whose connection has ended. `worker_events` is posted once the network has answered
    /// all messages that the client published, and at the latest after `SETTLING`.
    pub fn park(
        &self,
        now: Micros,
        handle: SessionHandle,
        session: Box<Session>,
        worker_events: WorkerEvent,
    ) {
        self.fanout.lock().park(now, handle, session);
        self.settling.lock().push(Settling { handle, due: now + SETTLING, worker_events });
        if self.workers() > 1 {
            self.post(0, Command::Settle);
        }
    }

    /// Ends a parked session, and returns the state that another gateway needs to resume it; `None` if it is
    /// not parked. Its ack guards are dropped.
    pub fn export(&self, handle: SessionHandle, is_over: bool) -> Option<SessionState> {
        let mut fanout = self.fanout.lock();
        let session = fanout.remove(handle, is_over)?;
        let state = session.export();
        session.end(fanout.counters());
        Some(state)
    }

    /// Does what is due for parked sessions. Returns when to call again.
    pub fn run_housekeeping(&self, now: Micros, due: Micros, worker_events: &mut Vec<WorkerEvent>) -> Micros {
        let mut fanout = self.fanout.lock();
        let mut settling = self.settling.lock();
        let is_over = |known: &mut Settling| {
            known.due <= now
                || fanout.parked(known.handle).is_none_or(|session| session.incoming.is_settled())
        };
        worker_events.extend(settling.extract_if(.., is_over).map(|known| known.worker_events));
        let next = match fanout.take_changed() {
            _ if due <= now => fanout.handle_timeout(now),
            true => due.min(now + HOUSEKEEPING),
            false => due,
        };
        settling.iter().map(|known| known.due).fold(next, Micros::min)
    }

    /// Posts a command to one worker so that it acknowledges the messages whose ack guards were dropped
    /// outside of an iteration.
    fn settle(&self) {
        if !self.releases.is_empty() {
            self.post(0, Command::Settle);
        }
    }

    // Settings

    pub fn set_settings(&self, listener: u32, settings: ListenerSettings) {
        self.settings.write().insert(listener, Arc::new(settings));
    }

    /// The settings for a new connection.
    pub fn settings_of(&self, listener: u32) -> Arc<ListenerSettings> {
        self.settings.read().get(&listener).cloned().unwrap_or_default()
    }

    /// Sets an access list. It applies at once to clients that already have it.
    pub fn set_access(&self, number: u32, list: AccessList) {
        let list = Arc::new(list);
        self.access.lock().insert(number, Arc::clone(&list));
        self.post_all(|| Command::Access(number, Arc::clone(&list)));
    }

    /// No new client gets this access list.
    pub fn forget_access(&self, number: u32) {
        self.access.lock().remove(&number);
    }

    pub fn access(&self, number: u32) -> Option<Arc<AccessList>> {
        self.access.lock().get(&number).cloned()
    }

    /// Sets the limits on guesses that refuse a CONNECT before Python is asked, and by how much the workers'
    /// clock is ahead of the clock of these limits; `None` for no limits.
    pub fn set_attempts(&self, attempts: Option<(Arc<Attempts>, Micros)>) {
        *self.attempts.write() = attempts;
    }

    /// Refuses a guess beyond the limits.
    pub fn refuse_guess(&self, now: Micros, host: IpAddr, connect: &Connect) -> Option<CloseReason> {
        let attempts = self.attempts.read();
        let (attempts, ahead) = attempts.as_ref()?;
        attempts.refuse_connect(now.saturating_sub(*ahead), host, connect)
    }

    // Counting

    /// How many messages were routed so far, how many listeners and sessions there are, and what is queued in
    /// parked sessions.
    pub fn routing_totals(&self) -> (u64, usize, usize, QueueTotals) {
        self.fanout.lock().routing_totals()
    }

    /// What parked sessions dropped. `with` gets the numbers of listeners, parked sessions, sessions and
    /// expected answers.
    pub fn count(&self, with: &mut impl FnMut(&str, u64)) -> Counters {
        let mut fanout = self.fanout.lock();
        let (listeners, parked, sessions) = fanout.sizes();
        with("mqtt.listeners", listeners as u64);
        with("mqtt.sessions_parked", parked as u64);
        with("mqtt.sessions", sessions as u64);
        with("mqtt.unanswered", self.expected.lock().len() as u64);
        *fanout.counters()
    }
}

impl TurnHook for Dispatcher {
    fn run(&self, is_worker: bool) {
        self.run_pending(is_worker);
    }
}

/// The messages that one caller brings together, mostly the client pool's thread in one iteration.
pub struct Round<'a> {
    dispatcher: &'a Dispatcher,
    pub fanout: MutexGuard<'a, Fanout>,
    batches: Batches,
    now: Micros,
    /// The workers are not woken for their commands: `run_pending` does that.
    without_wake: bool,
}

impl Round<'_> {
    /// Routes a message to its listeners.
    pub fn message(&mut self, incoming: Incoming<'_>) {
        self.fanout.route(self.now, incoming, &mut self.batches);
    }

    /// Routes a batch of messages of `QoS` 0 to its listeners.
    pub fn batch(&mut self, batch: MessageBatch, origin: u64, listeners: &[u64]) {
        self.fanout.route_batch(self.now, batch, origin, listeners, &mut self.batches);
    }

    /// Acknowledges a message for which there is no client here.
    pub fn decline(&mut self, ticket: Ticket) {
        drop(AckGuard::new(ticket, &self.dispatcher.releases));
    }

    /// Passes on the network's answer to a message that a client of this session published.
    pub fn answer(&mut self, session: SessionHandle, key: Key, reason: Reason) {
        self.fanout.hand(self.now, session, ItemContent::Answer(key, reason), &mut self.batches);
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        for (worker, mut items) in (0..).zip(std::mem::take(&mut self.batches)) {
            if items.is_empty() {
                continue;
            }
            let Some(waiting) = self.dispatcher.waiting(worker) else {
                continue;
            };
            if waiting.load(Ordering::Relaxed) > MOST_WAITING {
                let lost: usize = items.iter().map(SessionItem::qos0).sum();
                items.retain(|item| item.qos0() == 0);
                (0..lost).for_each(|_| self.fanout.counters().drop(Loss::QueueFull));
            }
            let bytes = items.iter().map(|item| item.bytes()).sum();
            waiting.fetch_add(bytes, Ordering::Relaxed);
            if !self.without_wake {
                self.dispatcher.post(worker, Command::Deliver(items, bytes));
                continue;
            }
            let mut pending_wakes = self.dispatcher.pending_wakes.lock();
            pending_wakes.items += items.len();
            pending_wakes.bytes += bytes;
            pending_wakes.workers.push(worker);
            drop(pending_wakes);
            self.dispatcher.worker_handles()[usize::from(worker)]
                .post_without_wake(Command::Deliver(items, bytes));
        }
        if self.fanout.has_changed() {
            self.dispatcher.post(0, Command::Settle);
        } else {
            self.dispatcher.settle();
        }
    }
}
