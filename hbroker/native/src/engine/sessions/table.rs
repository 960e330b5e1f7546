//! The sessions of one worker: what it remembers of each client that subscribed here, with or without a link
//! (§6.4).
//!
//! A session is found by its id, which its client chose, or by its key, which the tables use. It belongs to
//! one worker, its home, as its link does. `HomeWorkers` knows the home as long as the session or its link
//! exists.

use hashbrown::HashMap;
use slab::Slab;

use crate::Micros;
use crate::engine::sessions::bounds::Bounds;
use crate::engine::sessions::counters::SessionCounters;
use crate::engine::sessions::session::{QueueCharge, Session};
use crate::keyed_hash::KeyedHash;
use crate::link_id::{LinkId, SessionKey};
use crate::prefix::Prefix;
use crate::shares::Shares;

/// How often sessions that are not idle are checked.
pub const CHECK_INTERVAL: Micros = 250_000;

/// All sessions of a worker.
pub struct Sessions {
    worker: u8,
    generation: u32,
    sessions: Slab<Session>,
    by_id: HashMap<u64, SessionKey, KeyedHash>,
    /// The sessions that were not idle when they were last checked, or since.
    watched: Vec<SessionKey>,
    next_check: Micros,
    /// The cost of the queues of sessions that count as connected, and its bound.
    ready_bytes: usize,
    most_bytes: usize,
    /// The charges of sessions: queues of connected ones, and what is in flight to all. Each session shares
    /// with the others of its client's host.
    connected: Shares<Prefix>,
    /// The queues of the other sessions. Each shares with the others of its client's host.
    others: Shares<Prefix>,
    /// The counters of sessions that have ended.
    ended: SessionCounters,
}

impl Sessions {
    /// `memory`: the bytes that all queues together may use.
    pub fn new(worker: u8, memory: usize, hasher: KeyedHash) -> Self {
        Self {
            worker,
            generation: 0,
            sessions: Slab::new(),
            by_id: HashMap::with_hasher(hasher),
            watched: Vec::new(),
            next_check: Micros::MAX,
            ready_bytes: 0,
            most_bytes: memory / 2,
            connected: Shares::new(memory / 2, hasher),
            others: Shares::new(memory - memory / 2, hasher),
            ended: SessionCounters::default(),
        }
    }

    /// Makes a session that is not known here yet.
    pub fn insert(&mut self, id: u64, link: Option<LinkId>, bounds: Bounds) -> &mut Session {
        self.generation = self.generation.wrapping_add(1);
        let entry = self.sessions.vacant_entry();
        let key = SessionKey::new(self.worker, self.generation, entry.key());
        self.by_id.insert(id, key);
        entry.insert(Session::new(id, key, link, bounds))
    }

    /// Takes a session out.
    pub fn remove(&mut self, key: SessionKey) -> Option<Session> {
        self.get(key)?;
        let session = self.sessions.remove(key.slot());
        self.by_id.remove(&session.id);
        self.connected.remove(session.counted_for(), session.counted_bytes());
        self.remove_queue_charge(session.queue_charge());
        Some(session)
    }

    /// Adds the counters of a session that has ended.
    pub fn close(&mut self, session_counters: SessionCounters) {
        debug_assert_eq!(session_counters.open(), 0, "{session_counters:?}");
        self.ended += session_counters;
    }

    /// Has a session checked until it is idle.
    pub fn watch(&mut self, now: Micros, key: SessionKey) {
        if let Some(session) = self.get_mut(key)
            && !std::mem::replace(&mut session.is_watched, true)
        {
            self.watched.push(key);
            self.check_by(now + CHECK_INTERVAL);
        }
    }

    /// The watched sessions have to be checked by this time.
    pub fn check_by(&mut self, time: Micros) {
        self.next_check = self.next_check.min(time);
    }

    /// When the watched sessions have to be checked.
    pub fn next_check(&self) -> Micros {
        self.next_check
    }

    /// The connected sessions that may have queued messages or messages in flight.
    pub fn watched(&self) -> impl Iterator<Item = &Session> {
        self.watched.iter().filter_map(|&key| self.get(key))
    }

    /// The sessions to be checked now. The caller watches them again if necessary.
    pub fn take_watched(&mut self) -> Vec<SessionKey> {
        self.next_check = Micros::MAX;
        let watched = std::mem::take(&mut self.watched);
        for &key in &watched {
            if let Some(session) = self.get_mut(key) {
                session.is_watched = false;
            }
        }
        watched
    }

    /// Replaces the charge for a session's queue.
    pub fn update_queue_charge(&mut self, before: QueueCharge, after: QueueCharge) {
        self.remove_queue_charge(before);
        match after.is_ready {
            true => self.ready_bytes += after.bytes,
            false => self.others.add(after.host, after.bytes),
        }
    }

    /// Updates what is charged to a session's host.
    pub fn count(&mut self, key: SessionKey) {
        let session = self.sessions.get_mut(key.slot()).filter(|session| session.key() == key);
        if let Some(session) = session
            && let Some(host) = session.host()
        {
            let bytes = session.shared_bytes();
            if bytes != session.counted_bytes() {
                self.connected.set(session.counted_mut(), host, bytes);
            }
        }
    }

    /// Whether a session uses more than one part in `parts` of its share of its host's share.
    pub fn is_fuller_than(&self, parts: usize, session: &Session) -> bool {
        let (counted, own) = (session.counted_bytes(), session.shared_bytes());
        let host = session.counted_for();
        host.is_some_and(|host| self.connected.is_fuller_than(parts, host, counted, own))
    }

    /// The most bytes that a queue may have, given the memory for all queues of its kind. Its charge was `before`
    /// and is `now`. The bytes that it has already stay, whatever other queues have.
    pub fn most_bytes(&self, before: QueueCharge, now: QueueCharge) -> usize {
        let is_as_before = (before.is_ready, before.host) == (now.is_ready, now.host);
        let own = if is_as_before { before.bytes } else { 0 };
        own.max(match now.is_ready {
            true => self.most_bytes.saturating_sub(self.ready_bytes - own),
            false => self.others.most_of_share(now.host, own),
        })
    }

    /// Whether the queues of sessions that count as connected are too large. Then no more messages are taken over
    /// for these sessions.
    pub fn is_full(&self) -> bool {
        self.ready_bytes > self.most_bytes
    }

    /// Whether there is room for so many bytes more, without using more than half of the memory for queues of
    /// either kind.
    pub fn has_room_for(&self, bytes: usize) -> bool {
        self.ready_bytes + bytes < self.most_bytes / 2 && self.others.used() + bytes < self.most_bytes / 2
    }

    pub fn by_id(&self, id: u64) -> Option<SessionKey> {
        self.by_id.get(&id).copied()
    }

    pub fn get(&self, key: SessionKey) -> Option<&Session> {
        self.sessions.get(key.slot()).filter(|session| session.key() == key)
    }

    pub fn get_mut(&mut self, key: SessionKey) -> Option<&mut Session> {
        self.sessions.get_mut(key.slot()).filter(|session| session.key() == key)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Session> {
        self.sessions.iter_mut().map(|(_, session)| session)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Session> {
        self.sessions.iter().map(|(_, session)| session)
    }

    /// Whether there are no slots from this one on.
    pub fn is_end(&self, position: usize) -> bool {
        position >= self.sessions.capacity()
    }

    /// The session in this slot, to be changed. `None`: there are no more slots; `Some(None)`: the slot is
    /// empty.
    pub fn at_position(&mut self, position: usize) -> Option<Option<&mut Session>> {
        (position < self.sessions.capacity()).then(|| self.sessions.get_mut(position))
    }

    /// The sessions in `positions` slots from `from` on; `None`: there are no more slots.
    pub fn slots(&self, from: usize, positions: usize) -> Option<impl Iterator<Item = &Session>> {
        let slots = from..from + positions;
        (from < self.sessions.capacity()).then(|| slots.filter_map(|slot| self.sessions.get(slot)))
    }

    /// The bytes of all queues, with the cost of keeping them.
    pub fn waiting_bytes(&self) -> usize {
        self.ready_bytes + self.others.used()
    }

    /// The part of these bytes for sessions that do not count as connected.
    pub fn offline_bytes(&self) -> usize {
        self.others.used()
    }

    /// The charges of connected sessions, and of what is in flight.
    #[cfg(test)]
    pub fn connected(&self) -> &Shares<Prefix> {
        &self.connected
    }

    fn remove_queue_charge(&mut self, before: QueueCharge) {
        match before.is_ready {
            true => self.ready_bytes -= before.bytes,
            false => self.others.remove(before.host, before.bytes),
        }
    }

    /// The counters of sessions that have ended.
    pub fn ended(&self) -> SessionCounters {
        self.ended.clone()
    }
}
