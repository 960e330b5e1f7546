//! Where the messages of the network go: from a listener to a session, and to the worker that has it, or to the place where it is parked.
//!
//! A session is in one place: with the worker that has its client's connection, on its way from there, or parked here. Whoever routes (the
//! network's thread) does so under this table's lock and posts to the workers before it lets go; whoever moves a session changes its
//! place under the same lock. So a session gets its messages in order, wherever it is.
//!
//! Who needs several locks takes that of a worker first, then the network's, then this one, then a mailbox's.

mod traffic;

use std::collections::{VecDeque, hash_map};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::Micros;
use crate::mqtt::Key;
use crate::mqtt::ack_guard::{AckGuard, Releases};
use crate::mqtt::codec::reason::Reason;
use crate::mqtt::counters::Counters;
use crate::mqtt::distribution::batch::MessageBatch;
use crate::mqtt::distribution::message::{DeliveryOptions, Message};
use crate::mqtt::io::connections::ConnectionId;
use crate::mqtt::metrics::Weight;
use crate::mqtt::session::{Delivery, Session};
use crate::mqtt::worker_event::SessionHandle;

pub use crate::mqtt::distribution::fanout::traffic::{Batches, Incoming, ItemContent, Options, SessionItem};
use crate::mqtt::distribution::fanout::traffic::{delivery_options, merge};

/// What a listener on hold keeps at `QoS` 0; the rest is bounded by the network's credit.
const MOST_HELD: usize = 1_000;
/// How many listeners of sessions that have left are remembered.
const MOST_LEFT: usize = 65_536;

/// The table.
#[derive(Default)]
pub struct Fanout {
    listeners: FxHashMap<u64, Listener>,
    sessions: FxHashMap<SessionHandle, SessionRecord>,
    connections: FxHashMap<ConnectionId, SessionHandle>,
    /// Listeners of sessions that have left, the oldest first.
    left: VecDeque<u64>,
    left_set: FxHashSet<u64>,
    /// Counts messages: so a session that one matches twice is found.
    routed: u64,
    releases: Arc<Releases>,
    counters: Counters,
    overflowed: Vec<SessionHandle>,
    /// A parked session has come, or got something.
    changed: bool,
}

struct Listener {
    session: SessionHandle,
    options: Options,
    /// Until the SUBACK with this packet id is out, what comes waits here; `None`: it is.
    hold: Option<(u16, Vec<Delivery>)>,
}

struct SessionRecord {
    location: SessionLocation,
    /// As [`Incoming::origin`].
    origin: u64,
    /// Its client tells subscriptions apart: it gets a copy for each that matches. (Before MQTT 5 it could not.)
    gets_copies: bool,
    /// Its listeners.
    listeners: SmallVec<[u64; 2]>,
    /// The message that it was last found for, and where among its recipients.
    found: (u64, usize),
}

impl SessionRecord {
    fn new(location: SessionLocation) -> Self {
        Self { location, origin: 0, gets_copies: false, listeners: SmallVec::new(), found: (0, 0) }
    }
}

/// A session that goes to its client's connection.
pub struct ResumedSession {
    pub session: Box<Session>,
    /// It has a subscription without the client's own messages (MQTT 5 §3.8.3.1), made before: these are to bear their origin from the first on.
    pub has_no_local: bool,
}

enum SessionLocation {
    With(ConnectionId),
    /// Its connection has ended, and the worker has not handed it over yet.
    Leaving(Vec<ItemContent>),
    Parked(Box<Session>),
}

/// One who gets a message: a session, or a listener on hold.
struct Recipient {
    session: SessionHandle,
    delivery_options: DeliveryOptions,
    /// The listener on hold; `None`: the session gets it at once.
    held_by: Option<u64>,
}

/// Most messages have one.
type Recipients = SmallVec<[Recipient; 1]>;

impl Fanout {
    pub fn new(releases: Arc<Releases>) -> Self {
        Self { releases, ..Self::default() }
    }

    // Listeners

    /// Has a listener's messages go to a session. `hold`: they wait for the SUBACK with this packet id.
    pub fn attach(&mut self, listener: u64, session: SessionHandle, options: Options, hold: Option<u16>) {
        self.detach(listener);
        if let Some(record) = self.sessions.get_mut(&session) {
            record.listeners.push(listener);
            let hold = hold.map(|packet| (packet, Vec::new()));
            self.listeners.insert(listener, Listener { session, options, hold });
        }
    }

    /// SUBACK is out: gives what waited for it to the session, and from now on everything at once.
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

    /// Forgets a listener, and what waited for it.
    pub fn detach(&mut self, listener: u64) {
        if let Some(Listener { session, .. }) = self.listeners.remove(&listener)
            && let Some(record) = self.sessions.get_mut(&session)
        {
            record.listeners.retain(|other| *other != listener);
        }
    }

    /// Whether some of these listeners are known.
    pub fn has_any(&self, listeners: &[u64]) -> bool {
        listeners.iter().any(|listener| self.listeners.contains_key(listener))
    }

    /// Whether one of these listeners was of a session that has left.
    pub fn has_left(&self, listeners: &[u64]) -> bool {
        listeners.iter().any(|listener| self.left_set.contains(listener))
    }

    /// A session is with a connection from now on. Returns it; `None`: it was not parked here. `gets_copies`: one for each subscription.
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

    /// The session's connection has ended: what comes waits for `park`.
    pub fn leave(&mut self, session: SessionHandle, connection: ConnectionId) {
        if let Some(record) = self.sessions.get_mut(&session)
            && matches!(record.location, SessionLocation::With(there) if there == connection)
        {
            record.location = SessionLocation::Leaving(Vec::new());
            self.connections.remove(&connection);
        }
    }

    /// Takes over a session that was leaving, or is new.
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

    /// Takes a parked session out for good; its listeners are forgotten. What it has not done with and came through a member of its own
    /// stays unanswered: it is to come again, to whoever has that member's session next, or, if that `is_over`, to others of its group.
    /// `None`: it is not parked here.
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
        self.remember_left(&listeners);
        let gone = listeners.iter().filter_map(|listener| self.listeners.remove(listener)?.hold);
        let waiting: Vec<Delivery> = gone.flat_map(|(_, waiting)| waiting).collect();
        let ack_guards = session
            .ack_guards(is_over)
            .chain(waiting.iter().filter_map(|delivery| delivery.ack_guard.as_ref()));
        ack_guards.filter(|ack_guard| !ack_guard.is_shared()).for_each(AckGuard::forsake);
        Some(session)
    }

    fn remember_left(&mut self, listeners: &[u64]) {
        self.left.extend(listeners);
        self.left_set.extend(listeners);
        while self.left.len() > MOST_LEFT {
            if let Some(oldest) = self.left.pop_front() {
                self.left_set.remove(&oldest);
            }
        }
    }

    /// A parked session.
    pub fn parked(&mut self, handle: SessionHandle) -> Option<&mut Session> {
        match &mut self.sessions.get_mut(&handle)?.location {
            SessionLocation::Parked(session) => Some(session),
            SessionLocation::With(_) | SessionLocation::Leaving(_) => None,
        }
    }

    /// The session that a connection has; `None`: it has none.
    pub fn session_of(&self, connection: ConnectionId) -> Option<SessionHandle> {
        self.connections.get(&connection).copied()
    }

    /// The connection that has the session; `None`: none has.
    pub fn connection_of(&self, handle: SessionHandle) -> Option<ConnectionId> {
        match self.sessions.get(&handle)?.location {
            SessionLocation::With(connection) => Some(connection),
            SessionLocation::Leaving(_) | SessionLocation::Parked(_) => None,
        }
    }

    pub fn has_changed(&self) -> bool {
        self.changed
    }

    /// Whether a parked session has come, or got something, since this was last asked.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Releases the claims of parked sessions that held them too long; when to ask again.
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

    /// Parked sessions that overflowed since the last time, and are to end.
    pub fn take_overflowed(&mut self) -> Vec<SessionHandle> {
        std::mem::take(&mut self.overflowed)
    }

    /// (listeners, sessions parked, sessions)
    pub fn sizes(&self) -> (usize, usize, usize) {
        let parked = self
            .sessions
            .values()
            .filter(|record| matches!(record.location, SessionLocation::Parked(_)))
            .count();
        (self.listeners.len(), parked, self.sessions.len())
    }

    /// How many messages were routed so far; listeners and sessions there are, and what waits in those that are parked.
    pub fn weigh(&self) -> (u64, usize, usize, Weight) {
        let parked = self.sessions.values().filter_map(|record| match &record.location {
            SessionLocation::Parked(session) => Some(session.load()),
            SessionLocation::With(_) | SessionLocation::Leaving(_) => None,
        });
        let weight = parked.fold(Weight::default(), Weight::with);
        (self.routed, self.listeners.len(), self.sessions.len(), weight)
    }

    /// What parked sessions dropped.
    pub fn counters(&mut self) -> &mut Counters {
        &mut self.counters
    }

    // Messages

    /// Gives a message to all whom it is for: to each session one copy, or one for each subscription, that of the highest `QoS` first
    /// (MQTT 5 §3.3.4).
    pub fn route(&mut self, now: Micros, incoming: Incoming<'_>, batches: &mut Batches) {
        let Incoming { ticket, message, .. } = incoming;
        let recipients = self.recipients(&message, incoming.retained, incoming.origin, incoming.listeners);
        let (qos, message) = (message.qos, Arc::new(message));
        // Nobody but this has the claim of a message that nobody gets: it is released when it is dropped here.
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

    /// Gives messages of `QoS` 0 that came together to all whom they are for, as `route` does each.
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
            // Who gets copies gets those of a message behind one another.
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

    /// Gives the network's answer to whoever published the message.
    pub fn answer(
        &mut self,
        now: Micros,
        session: SessionHandle,
        key: Key,
        reason: Reason,
        batches: &mut Batches,
    ) {
        self.hand(now, session, ItemContent::Answer(key, reason), batches);
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
        // Who gets it at once is not to get it again with what waits.
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
            self.counters.drop(crate::mqtt::counters::Drop::QueueFull);
        }
    }

    fn hand(&mut self, now: Micros, handle: SessionHandle, content: ItemContent, batches: &mut Batches) {
        let Some(record) = self.sessions.get_mut(&handle) else {
            return;
        };
        match &mut record.location {
            SessionLocation::With(connection) => {
                let item = SessionItem { connection: *connection, content };
                batches[usize::from(connection.worker())].push(item);
            }
            SessionLocation::Leaving(waiting) => waiting.push(content),
            SessionLocation::Parked(session) => match content {
                ItemContent::Message(delivery) => {
                    self.changed = true;
                    if !session.deliver(now, delivery, &mut self.counters) {
                        self.overflowed.push(handle);
                    }
                }
                ItemContent::MessageBatch(batch, delivery_options) => {
                    for message in batch.messages() {
                        let delivery =
                            Delivery { message, delivery_options: delivery_options.clone(), ack_guard: None };
                        // At QoS 0 nothing waits for who is away.
                        _ = session.deliver(now, delivery, &mut self.counters);
                    }
                }
                ItemContent::Answer(key, reason) => {
                    self.changed = true;
                    session.answer(key, reason);
                }
            },
        }
    }
}

#[cfg(test)]
mod tests;
