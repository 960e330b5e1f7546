//! The sessions of one worker: what it remembers of each client that subscribed here, with a link or without (§6.4).
//!
//! A session is found by its id, which its client chose, or by its key, under which the tables know it. It lives on one
//! worker, its home, as its links do: the directory names it for as long as either is there.

use hashbrown::HashMap;
use slab::Slab;

use crate::Micros;
use crate::engine::sessions::counters::SessionCounters;
use crate::engine::sessions::queue::Bounds;
use crate::engine::sessions::session::{Session, Waiting};
use crate::keyed_hash::KeyedHash;
use crate::link_id::{LinkId, SessionKey};
use crate::prefix::Prefix;
use crate::shares::Shares;

/// How often those that wait for an answer are looked at.
pub const LOOK: Micros = 250_000;

/// All of a worker's.
pub struct Sessions {
    worker: u8,
    generation: u32,
    sessions: Slab<Session>,
    by_id: HashMap<u64, SessionKey, KeyedHash>,
    /// Those for which something was waiting or in flight when they were last looked at, or since.
    watched: Vec<SessionKey>,
    next_look: Micros,
    /// What waits in the queues of those that count as connected, and how much may.
    ready_bytes: usize,
    most_bytes: usize,
    /// What waits for these, and what is in flight to all. Each session is a place of its client's host.
    connected: Shares<Prefix>,
    /// What waits in those of the others. Each queue is a place of its client's host.
    others: Shares<Prefix>,
    /// What was counted for sessions that are gone.
    ended: SessionCounters,
}

impl Sessions {
    /// `memory`: bytes that may wait in all queues together.
    pub fn new(worker: u8, memory: usize, hasher: KeyedHash) -> Self {
        Self {
            worker,
            generation: 0,
            sessions: Slab::new(),
            by_id: HashMap::with_hasher(hasher),
            watched: Vec::new(),
            next_look: Micros::MAX,
            ready_bytes: 0,
            most_bytes: memory / 2,
            connected: Shares::new(memory / 2, hasher),
            others: Shares::new(memory - memory / 2, hasher),
            ended: SessionCounters::default(),
        }
    }

    /// Makes a session, which is not known here yet.
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
        self.discount(session.waiting());
        Some(session)
    }

    /// Adds up what was counted for a session that is gone.
    pub fn close(&mut self, session_counters: SessionCounters) {
        debug_assert_eq!(session_counters.open(), 0, "{session_counters:?}");
        self.ended += session_counters;
    }

    /// Has a session looked at until nothing waits for it and nothing is in flight.
    pub fn watch(&mut self, now: Micros, key: SessionKey) {
        if let Some(session) = self.get_mut(key)
            && !std::mem::replace(&mut session.is_watched, true)
        {
            self.watched.push(key);
            self.look_by(now + LOOK);
        }
    }

    /// Has the watched ones looked at no later than this.
    pub fn look_by(&mut self, time: Micros) {
        self.next_look = self.next_look.min(time);
    }

    /// When the watched ones are to be looked at.
    pub fn next_look(&self) -> Micros {
        self.next_look
    }

    /// Those for which something may be waiting or in flight, of those that have a link.
    pub fn watched(&self) -> impl Iterator<Item = &Session> {
        self.watched.iter().filter_map(|&key| self.get(key))
    }

    /// Those to be looked at now. Watch them again where that is due.
    pub fn take_watched(&mut self) -> Vec<SessionKey> {
        self.next_look = Micros::MAX;
        let watched = std::mem::take(&mut self.watched);
        for &key in &watched {
            if let Some(session) = self.get_mut(key) {
                session.is_watched = false;
            }
        }
        watched
    }

    /// What waited for a session is another thing now.
    pub fn recount(&mut self, before: Waiting, after: Waiting) {
        self.discount(before);
        match after.is_ready {
            true => self.ready_bytes += after.bytes,
            false => self.others.add(after.host, after.bytes),
        }
    }

    /// Counts for its host what is held for a session.
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

    /// Whether more is held for a session than this part of what it may have of what its host may have.
    pub fn is_fuller_than(&self, parts: usize, session: &Session) -> bool {
        let (counted, own) = (session.counted_bytes(), session.shared_bytes());
        let host = session.counted_for();
        host.is_some_and(|host| self.connected.is_fuller_than(parts, host, counted, own))
    }

    /// How many bytes a queue may have, in which `before` waited and now `now`, by what all of its kind may hold together. What it has
    /// already stays, whatever others have.
    pub fn most_bytes(&self, before: Waiting, now: Waiting) -> usize {
        let is_as_before = (before.is_ready, before.host) == (now.is_ready, now.host);
        let own = if is_as_before { before.bytes } else { 0 };
        own.max(match now.is_ready {
            true => self.most_bytes.saturating_sub(self.ready_bytes - own),
            false => self.others.most_of_share(now.host, own),
        })
    }

    /// More waits for those that count as connected than may: nothing more is taken over for them.
    pub fn is_full(&self) -> bool {
        self.ready_bytes > self.most_bytes
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

    /// The one in this place, to change; `None`: there are no more places, or (inside) nobody is there.
    pub fn at_position(&mut self, position: usize) -> Option<Option<&mut Session>> {
        (position < self.sessions.capacity()).then(|| self.sessions.get_mut(position))
    }

    /// Those in so many places from one on; `None`: there are no more places.
    pub fn slots(&self, from: usize, positions: usize) -> Option<impl Iterator<Item = &Session>> {
        let slots = from..from + positions;
        (from < self.sessions.capacity()).then(|| slots.filter_map(|slot| self.sessions.get(slot)))
    }

    /// Bytes that wait in all queues, with the cost of keeping them.
    pub fn waiting_bytes(&self) -> usize {
        self.ready_bytes + self.others.used()
    }

    /// Of these what waits for sessions that do not count as connected.
    pub fn away_bytes(&self) -> usize {
        self.others.used()
    }

    /// What counts for those that count as connected, and what is in flight.
    #[cfg(test)]
    pub fn connected(&self) -> &Shares<Prefix> {
        &self.connected
    }

    fn discount(&mut self, before: Waiting) {
        match before.is_ready {
            true => self.ready_bytes -= before.bytes,
            false => self.others.remove(before.host, before.bytes),
        }
    }

    /// What was counted for sessions that are gone.
    pub fn ended(&self) -> SessionCounters {
        self.ended.clone()
    }
}
