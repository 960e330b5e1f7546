//! Where the network's thread, the workers and Python meet: messages come in here, and go out to the workers in batches.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard, RwLock};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::Micros;
use crate::endpoint::state::EndpointState;
use crate::endpoint::worker::TurnHook;
use crate::mqtt::Key;
use crate::mqtt::access::attempts::Attempts;
use crate::mqtt::access::rules::AccessList;
use crate::mqtt::ack_guard::{AckGuard, Releases, Ticket};
use crate::mqtt::codec::packets::{CloseReason, Connect};
use crate::mqtt::codec::reason::Reason;
use crate::mqtt::command::Command;
use crate::mqtt::counters::{Counters, Drop as Loss};
use crate::mqtt::distribution::batch::MessageBatch;
use crate::mqtt::distribution::fanout::{Batches, Fanout, Incoming, Options, ResumedSession, SessionItem};
use crate::mqtt::io::connections::ConnectionId;
use crate::mqtt::io::worker_handle::CommandSender;
use crate::mqtt::metrics::Weight;
use crate::mqtt::session::{Session, SessionState};
use crate::mqtt::settings::ListenerSettings;
use crate::mqtt::unfinished::Unfinished;
use crate::mqtt::worker_event::{SessionHandle, WorkerEvent, WorkerEventQueue};

/// What may wait for one worker, in bytes, before messages of `QoS` 0 for it are dropped. (Others are bounded by the network's credit.)
const MOST_WAITING: usize = 64 << 20;

/// So much later than a parked session changed it is looked at.
const HOUSEKEEPING: Micros = 250_000;

/// So long a session that ended may wait for the network's answers, before Python hears of the end.
const SETTLING: Micros = 2_000_000;

/// What the network's thread delivers itself while a worker sleeps: so many parcels of one turn, of so many bytes together. Of more, each
/// worker has its own to do.
const FEW: usize = 16;
const LITTLE: usize = 16_384;

type WorkerHandles = Vec<Arc<dyn CommandSender<Command>>>;

/// See the module.
pub struct Dispatcher {
    pub worker_events: WorkerEventQueue,
    pub releases: Arc<Releases>,
    fanout: Mutex<Fanout>,
    /// Messages that the network took, by sequence number, and who waits for the answer.
    expected: Mutex<FxHashMap<u64, (SessionHandle, Key)>>,
    worker_handles: OnceLock<WorkerHandles>,
    left: Mutex<Left>,
    /// Bytes on the way to each worker.
    waiting: OnceLock<Vec<Arc<AtomicUsize>>>,
    /// By listener.
    settings: RwLock<FxHashMap<u32, Arc<ListenerSettings>>>,
    access: Mutex<FxHashMap<u32, Arc<AccessList>>>,
    settling: Mutex<Vec<Settling>>,
    sessions: AtomicU64,
    /// Of messages of the network one in so many is timed; 0: none.
    pub timed: AtomicU32,
    pub unfinished: Unfinished,
    attempts: RwLock<Option<(Arc<Attempts>, Micros)>>,
}

/// What the network's thread left with workers that it has not seen to.
#[derive(Default)]
struct Left {
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
    pub fn new(unfinished: Unfinished) -> Self {
        let releases = Arc::new(Releases::default());
        Self {
            worker_events: WorkerEventQueue::default(),
            fanout: Mutex::new(Fanout::new(Arc::clone(&releases))),
            releases,
            expected: Mutex::default(),
            worker_handles: OnceLock::new(),
            left: Mutex::default(),
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

    /// The workers are there, and the reader that they tell. Until then nobody has a client.
    pub fn introduce(&self, endpoint_state: Arc<EndpointState>, worker_handles: WorkerHandles) {
        self.worker_events.introduce(endpoint_state);
        let waiting = worker_handles.iter().map(|_| Arc::default()).collect();
        // It is introduced once.
        let _ = self.waiting.set(waiting);
        let _ = self.worker_handles.set(worker_handles);
    }

    pub fn post(&self, worker: u8, command: Command) {
        if let Some(worker_handle) = self.worker_handles().get(usize::from(worker)) {
            worker_handle.post(command);
        }
    }

    /// Posts the same to every worker.
    pub fn post_all(&self, mut make: impl FnMut() -> Command) {
        self.worker_handles().iter().for_each(|worker_handle| worker_handle.post(make()));
    }

    fn worker_handles(&self) -> &[Arc<dyn CommandSender<Command>>] {
        self.worker_handles.get().map_or(&[], Vec::as_slice)
    }

    pub fn workers(&self) -> usize {
        self.worker_handles().len()
    }

    // What the network brings

    /// Lets somebody in who brings messages; when the round is over, everything is posted.
    pub fn round(&self, now: Micros) -> Round<'_> {
        self.begin_round(now, false)
    }

    /// As `round`, for the network's thread: everything is left with the workers, until `run_pending` is called.
    pub fn network_round(&self, now: Micros) -> Round<'_> {
        self.begin_round(now, true)
    }

    fn begin_round(&self, now: Micros, leaves: bool) -> Round<'_> {
        let batches = self.worker_handles().iter().map(|_| Vec::new()).collect();
        Round { dispatcher: self, fanout: self.fanout.lock(), batches, now, leaves }
    }

    /// Sees to what the network's thread left with the workers. `may_run_here`: as of [`CommandSender::run_pending`].
    fn run_pending(&self, may_run_here: bool) {
        let Left { workers, items, bytes } = std::mem::take(&mut *self.left.lock());
        let may_run_here = may_run_here && items <= FEW && bytes <= LITTLE;
        workers
            .iter()
            .for_each(|worker| self.worker_handles()[usize::from(*worker)].run_pending(may_run_here));
    }

    /// The network took these messages: (sequence number, session, key). Called before the network can answer.
    pub fn expect_answers(&self, published: impl Iterator<Item = (u64, SessionHandle, Key)>) {
        self.expected.lock().extend(published.map(|(sequence, session, key)| (sequence, (session, key))));
    }

    /// Who waits for the network's answer to this message; `None`: no client published it.
    pub fn take_expected(&self, sequence: u64) -> Option<(SessionHandle, Key)> {
        self.expected.lock().remove(&sequence)
    }

    /// A worker has taken in what was on its way to it.
    pub fn arrived(&self, worker: u8, bytes: usize) {
        if let Some(waiting) = self.waiting(worker) {
            waiting.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    fn waiting(&self, worker: u8) -> Option<&AtomicUsize> {
        self.waiting.get()?.get(usize::from(worker)).map(Arc::as_ref)
    }

    // Listeners and sessions

    /// See [`Fanout::attach`]. Of a session that is parked `record` tells the same.
    pub fn attach(&self, listener: u64, session: SessionHandle, options: Options, hold: Option<u16>) {
        let mut fanout = self.fanout.lock();
        fanout.attach(listener, session, options, hold);
        if options.no_local
            && let Some(connection) = fanout.connection_of(session)
        {
            self.post(connection.worker(), Command::Mark(connection));
        }
    }

    /// Has SUBACK sent, and then what waited for it.
    pub fn suback(
        &self,
        now: Micros,
        connection: ConnectionId,
        packet: u16,
        reasons: Vec<Reason>,
        text: String,
    ) {
        let mut round = self.round(now);
        self.post(connection.worker(), Command::Suback(connection, packet, reasons, text));
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

    /// The session's connection has ended. [`Command::Park`] follows behind all that was posted for it.
    pub fn leave(&self, session: SessionHandle, connection: ConnectionId) {
        self.fanout.lock().leave(session, connection);
        self.post(connection.worker(), Command::Park(connection));
    }

    /// Takes over a session whose connection has ended; `worker_events` follows once the network has answered all that its client
    /// published, or soon in any case.
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

    /// Ends a parked session, and returns what another gateway needs to go on with it; `None`: it is not parked. Claims are released.
    pub fn export(&self, handle: SessionHandle, is_over: bool) -> Option<SessionState> {
        let mut fanout = self.fanout.lock();
        let session = fanout.remove(handle, is_over)?;
        let state = session.export();
        session.end(fanout.counters());
        Some(state)
    }

    /// What is due of parked sessions; when to call again.
    pub fn run_housekeeping(&self, now: Micros, due: Micros, worker_events: &mut Vec<WorkerEvent>) -> Micros {
        let mut fanout = self.fanout.lock();
        worker_events.extend(fanout.take_overflowed().into_iter().map(WorkerEvent::Overflow));
        let mut settling = self.settling.lock();
        let is_over = |known: &mut Settling| {
            known.due <= now || fanout.parked(known.handle).is_none_or(|session| session.is_settled())
        };
        worker_events.extend(settling.extract_if(.., is_over).map(|known| known.worker_events));
        let next = match fanout.take_changed() {
            _ if due <= now => fanout.handle_timeout(now),
            true => due.min(now + HOUSEKEEPING),
            false => due,
        };
        settling.iter().map(|known| known.due).fold(next, Micros::min)
    }

    /// Has some worker tell the network of claims that were released outside of a turn.
    fn settle(&self) {
        if !self.releases.is_empty() {
            self.post(0, Command::Settle);
        }
    }

    // Settings

    pub fn set_settings(&self, listener: u32, settings: ListenerSettings) {
        self.settings.write().insert(listener, Arc::new(settings));
    }

    /// For a new connection.
    pub fn settings_of(&self, listener: u32) -> Arc<ListenerSettings> {
        self.settings.read().get(&listener).cloned().unwrap_or_default()
    }

    /// Sets a list of rules, also for those whom it concerns already.
    pub fn set_access(&self, number: u32, list: AccessList) {
        let list = Arc::new(list);
        self.access.lock().insert(number, Arc::clone(&list));
        self.post_all(|| Command::Access(number, Arc::clone(&list)));
    }

    /// Nobody comes in under this list any more.
    pub fn forget_access(&self, number: u32) {
        self.access.lock().remove(&number);
    }

    pub fn access(&self, number: u32) -> Option<Arc<AccessList>> {
        self.access.lock().get(&number).cloned()
    }

    /// What guesses are refused by before Python is asked, and what the workers' clock is ahead of that of these; `None`: none are.
    pub fn set_attempts(&self, attempts: Option<(Arc<Attempts>, Micros)>) {
        *self.attempts.write() = attempts;
    }

    /// Says no to a guess beyond the bounds.
    pub fn refuse_guess(&self, now: Micros, host: IpAddr, connect: &Connect) -> Option<CloseReason> {
        let attempts = self.attempts.read();
        let (attempts, ahead) = attempts.as_ref()?;
        attempts.refuse_connect(now.saturating_sub(*ahead), host, connect)
    }

    // Counting

    /// How many messages were routed so far; listeners and sessions there are, and what waits in those that are parked.
    pub fn weigh(&self) -> (u64, usize, usize, Weight) {
        self.fanout.lock().weigh()
    }

    /// What parked sessions dropped, and how many listeners, parked sessions, sessions and expected answers there are.
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

/// What somebody brings in one go, mostly the network's thread in one of its turns.
pub struct Round<'a> {
    dispatcher: &'a Dispatcher,
    fanout: MutexGuard<'a, Fanout>,
    batches: Batches,
    now: Micros,
    /// The workers are not woken.
    leaves: bool,
}

impl Round<'_> {
    /// Whether some of these listeners are clients'.
    pub fn has_any(&self, listeners: &[u64]) -> bool {
        self.fanout.has_any(listeners)
    }

    /// A message for listeners.
    pub fn message(&mut self, incoming: Incoming<'_>) {
        self.fanout.route(self.now, incoming, &mut self.batches);
    }

    /// Messages of `QoS` 0 for listeners, that came together.
    pub fn batch(&mut self, batch: MessageBatch, origin: u64, listeners: &[u64]) {
        self.fanout.route_batch(self.now, batch, origin, listeners, &mut self.batches);
    }

    /// Whether one of these listeners was of a session that has left.
    pub fn has_left(&self, listeners: &[u64]) -> bool {
        self.fanout.has_left(listeners)
    }

    /// A message for nobody here, whom its owner waits for.
    pub fn decline(&mut self, ticket: Ticket) {
        drop(AckGuard::new(ticket, &self.dispatcher.releases));
    }

    /// The network's answer to a message that a client of this session published.
    pub fn answer(&mut self, session: SessionHandle, key: Key, reason: Reason) {
        self.fanout.answer(self.now, session, key, reason, &mut self.batches);
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
            if !self.leaves {
                self.dispatcher.post(worker, Command::Deliver(items, bytes));
                continue;
            }
            let mut left = self.dispatcher.left.lock();
            left.items += items.len();
            left.bytes += bytes;
            left.workers.push(worker);
            drop(left);
            self.dispatcher.worker_handles()[usize::from(worker)].leave(Command::Deliver(items, bytes));
        }
        if self.fanout.has_changed() {
            self.dispatcher.post(0, Command::Settle);
        } else {
            self.dispatcher.settle();
        }
    }
}
