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
use crate::mqtt::claim::{Claim, Releases};
use crate::mqtt::client_counters::Weight;
use crate::mqtt::codec::reason::Reason;
use crate::mqtt::counters::Counters;
use crate::mqtt::distribution::batch::Series;
use crate::mqtt::distribution::message::{Message, Terms};
use crate::mqtt::io::connections::ConnectionId;
use crate::mqtt::session::{Delivery, Session};
use crate::mqtt::worker_event::SessionHandle;

pub use crate::mqtt::distribution::fanout::traffic::{Batches, Incoming, Options, Parcel, What};
use crate::mqtt::distribution::fanout::traffic::{merge, terms};

/// What a listener on hold keeps at `QoS` 0; the rest is bounded by the network's credit.
const MOST_HELD: usize = 1_000;
/// How many listeners of sessions that have left are remembered.
const MOST_LEFT: usize = 65_536;

/// The table.
#[derive(Default)]
pub struct Fanout {
    listeners: FxHashMap<u64, Listener>,
    sessions: FxHashMap<SessionHandle, Seat>,
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

struct Seat {
    place: Place,
    /// As [`Incoming::origin`].
    origin: u64,
    /// Its client tells subscriptions apart: it gets a copy for each that matches. (Before MQTT 5 it could not.)
    gets_copies: bool,
    /// Its listeners.
    listeners: SmallVec<[u64; 2]>,
    /// The message that it was last found for, and where among its recipients.
    found: (u64, usize),
}

impl Seat {
    fn new(place: Place) -> Self {
        Self { place, origin: 0, gets_copies: false, listeners: SmallVec::new(), found: (0, 0) }
    }
}

/// A session that goes to its client's connection.
pub struct Seated {
    pub session: Box<Session>,
    /// It has a subscription without the client's own messages (MQTT 5 §3.8.3.1), made before: these are to bear their origin from the first on.
    pub has_no_local: bool,
}

enum Place {
    With(ConnectionId),
    /// Its connection has ended, and the worker has not handed it over yet.
    Leaving(Vec<What>),
    Parked(Box<Session>),
}

/// One who gets a message: a session, or a listener on hold.
struct Recipient {
    session: SessionHandle,
    terms: Terms,
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
        if let Some(seat) = self.sessions.get_mut(&session) {
            seat.listeners.push(listener);
            let hold = hold.map(|packet| (packet, Vec::new()));
            self.listeners.insert(listener, Listener { session, options, hold });
        }
    }

    /// SUBACK is out: gives what waited for it to the session, and from now on everything at once.
    pub fn release(&mut self, now: Micros, session: SessionHandle, packet: u16, batches: &mut Batches) {
        let listeners = self.sessions.get(&session).map(|seat| seat.listeners.clone());
        for listener in listeners.unwrap_or_default() {
            let Some(entry) = self.listeners.get_mut(&listener) else {
                continue;
            };
            if entry.hold.as_ref().is_some_and(|(awaited, _)| *awaited == packet) {
                let held = entry.hold.take().map(|(_, held)| held).unwrap_or_default();
                held.into_iter()
                    .for_each(|delivery| self.hand(now, session, What::Message(delivery), batches));
            }
        }
    }

    /// Forgets a listener, and what waited for it.
    pub fn detach(&mut self, listener: u64) {
        if let Some(Listener { session, .. }) = self.listeners.remove(&listener)
            && let Some(seat) = self.sessions.get_mut(&session)
        {
            seat.listeners.retain(|other| *other != listener);
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
    pub fn seat(
        &mut self,
        handle: SessionHandle,
        connection: ConnectionId,
        origin: u64,
        gets_copies: bool,
    ) -> Option<Seated> {
        let seat = self.sessions.get_mut(&handle)?;
        if !matches!(seat.place, Place::Parked(_)) {
            return None;
        }
        (seat.origin, seat.gets_copies) = (origin, gets_copies);
        self.connections.insert(connection, handle);
        let listeners = seat.listeners.iter().filter_map(|listener| self.listeners.get(listener));
        let has_no_local = listeners.into_iter().any(|listener| listener.options.no_local);
        match std::mem::replace(&mut seat.place, Place::With(connection)) {
            Place::Parked(session) => Some(Seated { session, has_no_local }),
            Place::With(_) | Place::Leaving(_) => None,
        }
    }

    /// The session's connection has ended: what comes waits for `park`.
    pub fn leave(&mut self, session: SessionHandle, connection: ConnectionId) {
        if let Some(seat) = self.sessions.get_mut(&session)
            && matches!(seat.place, Place::With(there) if there == connection)
        {
            seat.place = Place::Leaving(Vec::new());
            self.connections.remove(&connection);
        }
    }

    /// Takes over a session that was leaving, or is new.
    pub fn park(&mut self, now: Micros, handle: SessionHandle, session: Box<Session>) {
        self.changed = true;
        let seat = self.sessions.entry(handle).or_insert_with(|| Seat::new(Place::Leaving(Vec::new())));
        if let Place::Leaving(waited) = std::mem::replace(&mut seat.place, Place::Parked(session)) {
            waited.into_iter().for_each(|what| self.hand(now, handle, what, &mut Vec::new()));
        }
    }

    /// Takes a parked session out for good; its listeners are forgotten. What it has not done with and came through a member of its own
    /// stays unanswered: it is to come again, to whoever has that member's session next, or, if that `is_over`, to others of its group.
    /// `None`: it is not parked here.
    pub fn remove(&mut self, handle: SessionHandle, is_over: bool) -> Option<Box<Session>> {
        let hash_map::Entry::Occupied(entry) = self.sessions.entry(handle) else {
            return None;
        };
        if !matches!(entry.get().place, Place::Parked(_)) {
            return None;
        }
        let Seat { place: Place::Parked(session), listeners, .. } = entry.remove() else {
            return None;
        };
        self.remember_left(&listeners);
        let gone = listeners.iter().filter_map(|listener| self.listeners.remove(listener)?.hold);
        let held: Vec<Delivery> = gone.flat_map(|(_, held)| held).collect();
        let claims =
            session.claims(is_over).chain(held.iter().filter_map(|delivery| delivery.claim.as_ref()));
        claims.filter(|claim| !claim.is_shared()).for_each(Claim::forsake);
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
        match &mut self.sessions.get_mut(&handle)?.place {
            Place::Parked(session) => Some(session),
            Place::With(_) | Place::Leaving(_) => None,
        }
    }

    /// The session that a connection has; `None`: it has none.
    pub fn session_of(&self, connection: ConnectionId) -> Option<SessionHandle> {
        self.connections.get(&connection).copied()
    }

    /// The connection that has the session; `None`: none has.
    pub fn connection_of(&self, handle: SessionHandle) -> Option<ConnectionId> {
        match self.sessions.get(&handle)?.place {
            Place::With(connection) => Some(connection),
            Place::Leaving(_) | Place::Parked(_) => None,
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
        for seat in self.sessions.values_mut() {
            if let Place::Parked(session) = &mut seat.place {
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
        let parked = self.sessions.values().filter(|seat| matches!(seat.place, Place::Parked(_))).count();
        (self.listeners.len(), parked, self.sessions.len())
    }

    /// How many messages were routed so far; listeners and sessions there are, and what waits in those that are parked.
    pub fn weigh(&self) -> (u64, usize, usize, Weight) {
        let parked = self.sessions.values().filter_map(|seat| match &seat.place {
            Place::Parked(session) => Some(session.load()),
            Place::With(_) | Place::Leaving(_) => None,
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
        let claim = ticket.filter(|_| qos > 0).map(|ticket| Claim::new(ticket, &self.releases));
        self.hand_out(now, &message, claim, recipients, batches);
    }

    fn hand_out(
        &mut self,
        now: Micros,
        message: &Arc<Message>,
        claim: Option<Claim>,
        recipients: Recipients,
        batches: &mut Batches,
    ) {
        for Recipient { session, terms, held_by } in recipients {
            let claim = claim.clone().filter(|_| terms.qos > 0);
            let delivery = Delivery { message: Arc::clone(message), terms, claim };
            match held_by {
                None => self.hand(now, session, What::Message(delivery), batches),
                Some(listener) => self.hold(listener, delivery),
            }
        }
    }

    /// Gives messages of `QoS` 0 that came together to all whom they are for, as `route` does each.
    pub fn route_series(
        &mut self,
        now: Micros,
        series: Series,
        origin: u64,
        listeners: &[u64],
        batches: &mut Batches,
    ) {
        let is_held = |id| self.listeners.get(id).is_some_and(|listener: &Listener| listener.hold.is_some());
        let mut known = None;
        if !listeners.iter().any(is_held) {
            let recipients = self.recipients(series.common(), false, origin, listeners);
            // Who gets copies gets those of a message behind one another.
            let is_only = |(place, one): (usize, &Recipient)| {
                self.sessions.get(&one.session).is_some_and(|seat| seat.found.1 == place)
            };
            if recipients.iter().enumerate().all(is_only) {
                self.routed += series.len() as u64 - 1;
                let series = Arc::new(series);
                for Recipient { session, terms, .. } in recipients {
                    self.hand(now, session, What::Series(Arc::clone(&series), terms), batches);
                }
                return;
            }
            known = Some(recipients);
        }
        for message in series.messages() {
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
        self.hand(now, session, What::Answer(key, reason), batches);
    }

    fn recipients(&mut self, message: &Message, retained: bool, origin: u64, ids: &[u64]) -> Recipients {
        self.routed += 1;
        let mut recipients = Recipients::with_capacity(ids.len());
        for id in ids {
            let Some(Listener { session, options, hold }) = self.listeners.get(id) else {
                continue;
            };
            let Some(seat) = self.sessions.get_mut(session) else {
                continue;
            };
            if options.no_local && origin != 0 && origin == seat.origin {
                continue;
            }
            let terms = terms(options, message, retained);
            if hold.is_some() {
                recipients.push(Recipient { session: *session, terms, held_by: Some(*id) });
                continue;
            }
            let mut recipient = Recipient { session: *session, terms, held_by: None };
            if seat.found.0 == self.routed {
                let first = &mut recipients[seat.found.1];
                if !seat.gets_copies {
                    merge(&mut first.terms, recipient.terms);
                    continue;
                }
                if first.terms.qos < recipient.terms.qos {
                    std::mem::swap(first, &mut recipient);
                }
            } else {
                seat.found = (self.routed, recipients.len());
            }
            recipients.push(recipient);
        }
        // Who gets it at once is not to get it again with what waits.
        let (sessions, routed) = (&self.sessions, self.routed);
        let has_it =
            |session: &SessionHandle| sessions.get(session).is_some_and(|seat: &Seat| seat.found.0 == routed);
        recipients.retain(|recipient| recipient.held_by.is_none() || !has_it(&recipient.session));
        recipients
    }

    fn hold(&mut self, listener: u64, delivery: Delivery) {
        let Some((_, held)) = self.listeners.get_mut(&listener).and_then(|listener| listener.hold.as_mut())
        else {
            return;
        };
        if delivery.claim.is_some() || held.len() < MOST_HELD {
            held.push(delivery);
        } else {
            self.counters.drop(crate::mqtt::counters::Drop::QueueFull);
        }
    }

    fn hand(&mut self, now: Micros, handle: SessionHandle, what: What, batches: &mut Batches) {
        let Some(seat) = self.sessions.get_mut(&handle) else {
            return;
        };
        match &mut seat.place {
            Place::With(connection) => {
                let parcel = Parcel { connection: *connection, what };
                batches[usize::from(connection.worker())].push(parcel);
            }
            Place::Leaving(waiting) => waiting.push(what),
            Place::Parked(session) => match what {
                What::Message(delivery) => {
                    self.changed = true;
                    if !session.deliver(now, delivery, &mut self.counters) {
                        self.overflowed.push(handle);
                    }
                }
                What::Series(series, terms) => {
                    for message in series.messages() {
                        let delivery = Delivery { message, terms: terms.clone(), claim: None };
                        // At QoS 0 nothing waits for who is away.
                        _ = session.deliver(now, delivery, &mut self.counters);
                    }
                }
                What::Answer(key, reason) => {
                    self.changed = true;
                    session.answer(key, reason);
                }
            },
        }
    }
}

#[cfg(test)]
mod tests;
