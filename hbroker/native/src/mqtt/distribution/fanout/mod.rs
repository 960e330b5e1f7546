//! Routes the messages of the network: from a listener to its session, and on to the worker that has the
//! session, or into the parked session.
//!
//! A session is in one of three places: with the worker that has its client's connection, on its way from
//! that worker, or parked here. The client pool's thread routes messages under this table's lock, and posts
//! them to the workers before it releases the lock. A session moves under the same lock. So a session
//! receives its messages in order, wherever it is.
//!
//! A thread that needs several locks takes that of a worker first, then the client pool's, then this one,
//! then a mailbox's.

use std::collections::{VecDeque, hash_map};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::Micros;
use crate::mqtt::Key;
use crate::mqtt::codec::reason::Reason;
use crate::mqtt::distribution::ack_guard::{AckGuard, Releases, Ticket};
use crate::mqtt::distribution::batch::MessageBatch;
use crate::mqtt::distribution::message::{DeliveryOptions, Message};
use crate::mqtt::gateway::worker_event::SessionHandle;
use crate::mqtt::io::connections::ConnectionId;
use crate::mqtt::metrics::counters::Counters;
use crate::mqtt::session::{Delivery, QueueTotals, Session};

/// How many messages of `QoS` 0 a listener on hold queues. The network's credit bounds the other messages.
const MOST_HELD: usize = 1_000;
/// How many listeners of removed sessions are remembered.
const MOST_REMOVED: usize = 65_536;

/// The options of a subscription.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub qos: u8,
    pub no_local: bool,
    pub retain_as_published: bool,
    /// The subscription identifier; 0: none.
    pub identifier: u32,
}

/// A message of the network, and its listeners.
pub struct Incoming<'a> {
    /// The message to acknowledge, at `QoS` 1 and 2; `None`: the owner waits for no acknowledgement.
    pub ticket: Option<Ticket>,
    pub message: Message,
    /// Sent as a retained message because a subscription was made.
    pub retained: bool,
    /// The origin of the publishing client; 0: it has none.
    pub origin: u64,
    pub listeners: &'a [u64],
}

/// An item for a session that is with a worker.
pub struct SessionItem {
    pub connection: ConnectionId,
    pub content: ItemContent,
}

pub enum ItemContent {
    Message(Delivery),
    /// A batch of messages of `QoS` 0.
    MessageBatch(Arc<MessageBatch>, DeliveryOptions),
    /// The network's answer to a message that the client published.
    Answer(Key, Reason),
}

impl ItemContent {
    /// Passes the item to a session that no connection has.
    pub fn pass_to(self, now: Micros, session: &mut Session, counters: &mut Counters) {
        match self {
            Self::Message(delivery) => session.deliver(now, delivery, counters),
            // At QoS 0 nothing is queued for an offline client: the session drops and counts it.
            Self::MessageBatch(batch, delivery_options) => {
                for message in batch.messages() {
                    let delivery_options = delivery_options.clone();
                    session.deliver(now, Delivery { message, delivery_options, ack_guard: None }, counters);
                }
            }
            Self::Answer(key, reason) => session.incoming.answer(key, reason),
        }
    }
}

impl SessionItem {
    /// The size that counts towards the limit of bytes for a worker.
    pub fn bytes(&self) -> usize {
        match &self.content {
            ItemContent::Message(delivery) => size_of::<Self>() + delivery.message.payload.len(),
            ItemContent::MessageBatch(batch, _) => size_of::<Self>() + batch.payload_bytes(),
            ItemContent::Answer(..) => size_of::<Self>(),
        }
    }

    /// How many messages without an ack guard it has.
    pub fn qos0(&self) -> usize {
        match &self.content {
            ItemContent::Message(delivery) => usize::from(delivery.ack_guard.is_none()),
            ItemContent::MessageBatch(batch, _) => batch.len(),
            ItemContent::Answer(..) => 0,
        }
    }
}

/// The items for each worker, by worker number.
pub type Batches = Vec<Vec<SessionItem>>;

/// The routing table. See the module.
#[derive(Default)]
pub struct Fanout {
    listeners: FxHashMap<u64, Listener>,
    sessions: FxHashMap<SessionHandle, SessionRecord>,
    connections: FxHashMap<ConnectionId, SessionHandle>,
    /// Listeners of removed sessions, the oldest first.
    removed: VecDeque<u64>,
    removed_set: FxHashSet<u64>,
    /// Counts messages. It tells whether a session was already found for the current message.
    routed: u64,
    releases: Arc<Releases>,
    counters: Counters,
    /// A parked session was added, or received something.
    changed: bool,
}

struct Listener {
    session: SessionHandle,
    options: Options,
    /// On hold: messages are queued here until the SUBACK with this packet id is sent; `None`: not on hold.
    hold: Option<(u16, Vec<Delivery>)>,
}

struct SessionRecord {
    location: SessionLocation,
    /// As in [`Incoming::origin`].
    origin: u64,
    /// The client can tell its subscriptions apart, so it receives one copy for each subscription that
    /// matches. (Before MQTT 5 a client cannot.)
    gets_copies: bool,
    /// The listeners of the session.
    listeners: SmallVec<[u64; 2]>,
    /// The last message that the session was found for, and the session's index among its recipients.
    found: (u64, usize),
}

impl SessionRecord {
    fn new(location: SessionLocation) -> Self {
        Self { location, origin: 0, gets_copies: false, listeners: SmallVec::new(), found: (0, 0) }
    }
}

/// A session that moves to its client's connection.
pub struct ResumedSession {
    pub session: Box<Session>,
    /// It already has a subscription with No Local (MQTT 5 §3.8.3.1), so the client's messages must carry
    /// their origin from the first on.
    pub has_no_local: bool,
}

enum SessionLocation {
    With(ConnectionId),
    /// Its connection has ended, and the worker has not parked it yet. Its items are queued here.
    Leaving(Vec<ItemContent>),
    Parked(Box<Session>),
}

/// A recipient of a message: a session, or a listener on hold.
struct Recipient {
    session: SessionHandle,
    delivery_options: DeliveryOptions,
    /// The listener on hold; `None`: the session receives the message at once.
    held_by: Option<u64>,
}

/// Most messages have one recipient.
type Recipients = SmallVec<[Recipient; 1]>;

impl Fanout {
    pub fn new(releases: Arc<Releases>) -> Self {
        Self { releases, ..Self::default() }
    }

    // Listeners

    /// Routes the messages of a listener to a session. `hold`: they are held back until the SUBACK with this
    /// packet id is sent.
    pub fn attach(&mut self, listener: u64, session: SessionHandle, options: Options, hold: Option<u16>) {
        self.detach(listener);
        if let Some(record) = self.sessions.get_mut(&session) {
            record.listeners.push(listener);
            let hold = hold.map(|packet| (packet, Vec::new()));
            self.listeners.insert(listener, Listener { session, options, hold });
        }
    }

    /// The SUBACK was sent: passes the messages that were held back to the session, and all later ones at
    /// once.
    pub fn release(&mut self, now: Micros, session: SessionHandle, packet: u16, batches: &mut Batches) {
        let listeners = self.sessions.get(&session).map(|record| record.listeners.clone());
        for listener in listeners.unwrap_or_default() {
            let Some(entry) = self.listeners.get_mut(&listener) else {
                continue;
            };
            if entry.hold.as_ref().is_some_and(|(awaited, _)| *awaited == packet) {
                let waiting = entry.hold.take().map(|(_, waiting)| waiting).unwrap_or_default();
                waiting
                    .into_iter()
                    .for_each(|delivery| self.hand(now, session, ItemContent::Message(delivery), batches));
            }
        }
    }

    /// Removes a listener, and the messages that were held back for it.
    pub fn detach(&mut self, listener: u64) {
        if let Some(Listener { session, .. }) = self.listeners.remove(&listener)
            && let Some(record) = self.sessions.get_mut(&session)
        {
            record.listeners.retain(|other| *other != listener);
        }
    }

    /// Whether one of these listeners is known.
    pub fn has_any(&self, listeners: &[u64]) -> bool {
        listeners.iter().any(|listener| self.listeners.contains_key(listener))
    }

    /// Whether one of these listeners belonged to a session that was removed.
    pub fn was_removed(&self, listeners: &[u64]) -> bool {
        listeners.iter().any(|listener| self.removed_set.contains(listener))
    }

    /// Moves a parked session to a connection, and returns it; `None`: it was not parked here. `gets_copies`:
    /// the client receives one copy for each subscription.
    pub fn record(
        &mut self,
        handle: SessionHandle,
        connection: ConnectionId,
        origin: u64,
        gets_copies: bool,
    ) -> Option<ResumedSession> {
        let record = self.sessions.get_mut(&handle)?;
        if !matches!(record.location, SessionLocation::Parked(_)) {
            return None;
        }
        (record.origin, record.gets_copies) = (origin, gets_copies);
        self.connections.insert(connection, handle);
        let listeners = record.listeners.iter().filter_map(|listener| self.listeners.get(listener));
        let has_no_local = listeners.into_iter().any(|listener| listener.options.no_local);
        match std::mem::replace(&mut record.location, SessionLocation::With(connection)) {
            SessionLocation::Parked(session) => Some(ResumedSession { session, has_no_local }),
            SessionLocation::With(_) | SessionLocation::Leaving(_) => None,
        }
    }

    /// The session's connection has ended: its items are queued until `park`.
    pub fn end_connection(&mut self, session: SessionHandle, connection: ConnectionId) {
        if let Some(record) = self.sessions.get_mut(&session)
            && matches!(record.location, SessionLocation::With(there) if there == connection)
        {
            record.location = SessionLocation::Leaving(Vec::new());
            self.connections.remove(&connection);
        }
    }

    /// Parks a session that was leaving, or is new.
    pub fn park(&mut self, now: Micros, handle: SessionHandle, session: Box<Session>) {
        self.changed = true;
        let record = self
            .sessions
            .entry(handle)
            .or_insert_with(|| SessionRecord::new(SessionLocation::Leaving(Vec::new())));
        if let SessionLocation::Leaving(waited) =
            std::mem::replace(&mut record.location, SessionLocation::Parked(session))
        {
            waited.into_iter().for_each(|content| self.hand(now, handle, content, &mut Vec::new()));
        }
    }

    /// Removes a parked session for good, with its listeners. Messages that it has not acknowledged, and that
    /// a pool client of its own received, stay unacknowledged. So their owners send them again: to the next
    /// gateway that has the session, or, if `is_over`, to other members of a shared group. `None`: it is not
    /// parked here.
    pub fn remove(&mut self, handle: SessionHandle, is_over: bool) -> Option<Box<Session>> {
        let hash_map::Entry::Occupied(entry) = self.sessions.entry(handle) else {
            return None;
        };
        if !matches!(entry.get().location, SessionLocation::Parked(_)) {
            return None;
        }
        let SessionRecord { location: SessionLocation::Parked(session), listeners, .. } = entry.remove()
        else {
            return None;
        };
        self.remember_removed(&listeners);
        let gone = listeners.iter().filter_map(|listener| self.listeners.remove(listener)?.hold);
        let waiting: Vec<Delivery> = gone.flat_map(|(_, waiting)| waiting).collect();
        let ack_guards = session
            .ack_guards(is_over)
            .chain(waiting.iter().filter_map(|delivery| delivery.ack_guard.as_ref()));
        ack_guards.filter(|ack_guard| !ack_guard.is_shared()).for_each(AckGuard::withhold);
        Some(session)
    }

    fn remember_removed(&mut self, listeners: &[u64]) {
        self.removed.extend(listeners);
        self.removed_set.extend(listeners);
        while self.removed.len() > MOST_REMOVED {
            if let Some(oldest) = self.removed.pop_front() {
                self.removed_set.remove(&oldest);
            }
        }
    }

    /// A parked session. `None`: it is not parked here.
    pub fn parked(&mut self, handle: SessionHandle) -> Option<&mut Session> {
        match &mut self.sessions.get_mut(&handle)?.location {
            SessionLocation::Parked(session) => Some(session),
            SessionLocation::With(_) | SessionLocation::Leaving(_) => None,
        }
    }

    /// The session of a connection; `None`: it has none.
    pub fn session_of(&self, connection: ConnectionId) -> Option<SessionHandle> {
        self.connections.get(&connection).copied()
    }

    /// The connection that has the session; `None`: no connection has it.
    pub fn connection_of(&self, handle: SessionHandle) -> Option<ConnectionId> {
        match self.sessions.get(&handle)?.location {
            SessionLocation::With(connection) => Some(connection),
            SessionLocation::Leaving(_) | SessionLocation::Parked(_) => None,
        }
    }

    pub fn has_changed(&self) -> bool {
        self.changed
    }

    /// Whether a parked session was added, or received something, since the last call.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Drops the ack guards of parked sessions that held them too long. Returns when to call again.
    pub fn handle_timeout(&mut self, now: Micros) -> Micros {
        let mut next = Micros::MAX;
        for record in self.sessions.values_mut() {
            if let SessionLocation::Parked(session) = &mut record.location {
                if session.poll_timeout() <= now {
                    session.handle_timeout(now, &mut self.counters);
                }
                next = next.min(session.poll_timeout());
            }
        }
        next
    }

    /// (listeners, parked sessions, sessions)
    pub fn sizes(&self) -> (usize, usize, usize) {
        let parked = self
            .sessions
            .values()
            .filter(|record| matches!(record.location, SessionLocation::Parked(_)))
            .count();
        (self.listeners.len(), parked, self.sessions.len())
    }

    /// How many messages were routed so far, how many listeners and sessions there are, and what is queued in
    /// parked sessions.
    pub fn routing_totals(&self) -> (u64, usize, usize, QueueTotals) {
        let parked = self.sessions.values().filter_map(|record| match &record.location {
            SessionLocation::Parked(session) => Some(session.load()),
            SessionLocation::With(_) | SessionLocation::Leaving(_) => None,
        });
        let queued = parked.fold(QueueTotals::default(), QueueTotals::plus);
        (self.routed, self.listeners.len(), self.sessions.len(), queued)
    }

    /// What parked sessions dropped.
    pub fn counters(&mut self) -> &mut Counters {
        &mut self.counters
    }

    // Messages

    /// Routes a message to its recipients: one copy to each session, or one for each subscription, the copy
    /// of the highest `QoS` first (MQTT 5 §3.3.4).
    pub fn route(&mut self, now: Micros, incoming: Incoming<'_>, batches: &mut Batches) {
        let Incoming { ticket, message, .. } = incoming;
        let recipients = self.recipients(&message, incoming.retained, incoming.origin, incoming.listeners);
        let (qos, message) = (message.qos, Arc::new(message));
        // If the message has no recipient, this is the only ack guard: it is dropped here, and the message is
        // acknowledged.
        let ack_guard = ticket.filter(|_| qos > 0).map(|ticket| AckGuard::new(ticket, &self.releases));
        self.hand_out(now, &message, ack_guard, recipients, batches);
    }

    fn hand_out(
        &mut self,
        now: Micros,
        message: &Arc<Message>,
        ack_guard: Option<AckGuard>,
        recipients: Recipients,
        batches: &mut Batches,
    ) {
        for Recipient { session, delivery_options, held_by } in recipients {
            let ack_guard = ack_guard.clone().filter(|_| delivery_options.qos > 0);
            let delivery = Delivery { message: Arc::clone(message), delivery_options, ack_guard };
            match held_by {
                None => self.hand(now, session, ItemContent::Message(delivery), batches),
                Some(listener) => self.hold(listener, delivery),
            }
        }
    }

    /// Routes a batch of messages of `QoS` 0 to its recipients, as `route` does with each message.
    pub fn route_batch(
        &mut self,
        now: Micros,
        batch: MessageBatch,
        origin: u64,
        listeners: &[u64],
        batches: &mut Batches,
    ) {
        let is_held = |id| self.listeners.get(id).is_some_and(|listener: &Listener| listener.hold.is_some());
        let mut known = None;
        if !listeners.iter().any(is_held) {
            let recipients = self.recipients(batch.common(), false, origin, listeners);
            // A client that receives several copies must receive the copies of each message one after the
            // other.
            let is_only = |(location, one): (usize, &Recipient)| {
                self.sessions.get(&one.session).is_some_and(|record| record.found.1 == location)
            };
            if recipients.iter().enumerate().all(is_only) {
                self.routed += batch.len() as u64 - 1;
                let batch = Arc::new(batch);
                for Recipient { session, delivery_options, .. } in recipients {
                    self.hand(
                        now,
                        session,
                        ItemContent::MessageBatch(Arc::clone(&batch), delivery_options),
                        batches,
                    );
                }
                return;
            }
            known = Some(recipients);
        }
        for message in batch.messages() {
            let found = known.take();
            let recipients = found.unwrap_or_else(|| self.recipients(&message, false, origin, listeners));
            self.hand_out(now, &message, None, recipients, batches);
        }
    }

    fn recipients(&mut self, message: &Message, retained: bool, origin: u64, ids: &[u64]) -> Recipients {
        self.routed += 1;
        let mut recipients = Recipients::with_capacity(ids.len());
        for id in ids {
            let Some(Listener { session, options, hold }) = self.listeners.get(id) else {
                continue;
            };
            let Some(record) = self.sessions.get_mut(session) else {
                continue;
            };
            if options.no_local && origin != 0 && origin == record.origin {
                continue;
            }
            let delivery_options = delivery_options(options, message, retained);
            if hold.is_some() {
                recipients.push(Recipient { session: *session, delivery_options, held_by: Some(*id) });
                continue;
            }
            let mut recipient = Recipient { session: *session, delivery_options, held_by: None };
            if record.found.0 == self.routed {
                let first = &mut recipients[record.found.1];
                if !record.gets_copies {
                    merge(&mut first.delivery_options, recipient.delivery_options);
                    continue;
                }
                if first.delivery_options.qos < recipient.delivery_options.qos {
                    std::mem::swap(first, &mut recipient);
                }
            } else {
                record.found = (self.routed, recipients.len());
            }
            recipients.push(recipient);
        }
        // A session that receives the message at once must not receive it again from a listener on hold.
        let (sessions, routed) = (&self.sessions, self.routed);
        let has_it = |session: &SessionHandle| {
            sessions.get(session).is_some_and(|record: &SessionRecord| record.found.0 == routed)
        };
        recipients.retain(|recipient| recipient.held_by.is_none() || !has_it(&recipient.session));
        recipients
    }

    fn hold(&mut self, listener: u64, delivery: Delivery) {
        let Some((_, waiting)) =
            self.listeners.get_mut(&listener).and_then(|listener| listener.hold.as_mut())
        else {
            return;
        };
        if delivery.ack_guard.is_some() || waiting.len() < MOST_HELD {
            waiting.push(delivery);
        } else {
            self.counters.drop(crate::mqtt::metrics::counters::Drop::QueueFull);
        }
    }

    /// Passes an item to a session, wherever it is.
    pub fn hand(&mut self, now: Micros, handle: SessionHandle, content: ItemContent, batches: &mut Batches) {
        let Some(record) = self.sessions.get_mut(&handle) else {
            return;
        };
        match &mut record.location {
            SessionLocation::With(connection) => {
                let item = SessionItem { connection: *connection, content };
                batches[usize::from(connection.worker())].push(item);
            }
            SessionLocation::Leaving(waiting) => waiting.push(content),
            SessionLocation::Parked(session) => {
                self.changed |= !matches!(content, ItemContent::MessageBatch(..));
                content.pass_to(now, session, &mut self.counters);
            }
        }
    }
}

/// How a message reaches a client by one subscription (§3.3.1.3, §3.3.4).
fn delivery_options(options: &Options, message: &Message, retained: bool) -> DeliveryOptions {
    DeliveryOptions {
        qos: options.qos.min(message.qos),
        retain: retained || (message.retain && options.retain_as_published),
        identifiers: (options.identifier > 0).then_some(options.identifier).into_iter().collect(),
    }
}

/// Combines the options of two subscriptions.
fn merge(delivery_options: &mut DeliveryOptions, other: DeliveryOptions) {
    delivery_options.qos = delivery_options.qos.max(other.qos);
    delivery_options.retain |= other.retain;
    delivery_options.identifiers.extend(other.identifiers);
}

#[cfg(test)]
mod tests;
