//! The sessions of one worker: what it remembers of each client that subscribed here, with a link or without (§6.4).
//!
//! A session is found by its id, which its client chose, or by its key, under which the tables know it. It lives on one
//! worker, its home, as its links do: the directory names it for as long as either is there.

use hashbrown::HashMap;
use slab::Slab;

use crate::keyed::Keyed;
use crate::link_id::{LinkId, SessionKey};

/// One client's session.
#[derive(Debug)]
pub struct Session {
    pub id: u64,
    /// `None`: it is away.
    pub link: Option<LinkId>,
    /// Outlives its link.
    pub persistent: bool,
    key: SessionKey,
}

/// All of a worker's.
pub struct Sessions {
    worker: u8,
    generation: u32,
    sessions: Slab<Session>,
    by_id: HashMap<u64, SessionKey, Keyed>,
}

impl Sessions {
    pub fn new(worker: u8, hasher: Keyed) -> Self {
        Self { worker, generation: 0, sessions: Slab::new(), by_id: HashMap::with_hasher(hasher) }
    }

    /// Makes a session, which is not known here yet.
    pub fn insert(&mut self, id: u64, link: Option<LinkId>) -> &mut Session {
        self.generation = self.generation.wrapping_add(1);
        let entry = self.sessions.vacant_entry();
        let key = SessionKey::new(self.worker, self.generation, entry.key());
        self.by_id.insert(id, key);
        entry.insert(Session { id, link, persistent: false, key })
    }

    /// Takes a session out.
    pub fn remove(&mut self, key: SessionKey) -> Option<Session> {
        self.get(key)?;
        let session = self.sessions.remove(key.slot());
        self.by_id.remove(&session.id);
        Some(session)
    }

    pub fn by_id(&self, id: u64) -> Option<SessionKey> {
        self.by_id.get(&id).copied()
    }

    pub fn get(&self, key: SessionKey) -> Option<&Session> {
        self.sessions.get(key.slot()).filter(|session| session.key == key)
    }

    pub fn get_mut(&mut self, key: SessionKey) -> Option<&mut Session> {
        self.sessions.get_mut(key.slot()).filter(|session| session.key == key)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Session> {
        self.sessions.iter().map(|(_, session)| session)
    }

    pub fn len(&self) -> usize {
        self.sessions.len()
    }
}

impl Session {
    pub fn key(&self) -> SessionKey {
        self.key
    }
}
