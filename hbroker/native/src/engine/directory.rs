//! Which worker is the home of which session.
//!
//! The kernel gives each source address to one worker's socket. A client whose address changed may so reach another worker than the one that has its
//! session; that worker looks here. No datagram of a session that is where it belongs does.

use std::collections::HashMap;

use parking_lot::RwLock;

use crate::keyed::Keyed;

pub struct Directory {
    /// `None`: there is one worker.
    workers: Option<RwLock<HashMap<u64, u8, Keyed>>>,
}

impl Directory {
    pub fn new(seed: u64) -> Self {
        Self { workers: Some(RwLock::new(HashMap::with_hasher(Keyed::new(seed)))) }
    }

    /// The only worker is the home of all.
    pub fn of_one() -> Self {
        Self { workers: None }
    }

    /// Makes this worker the session's home, unless it has one; its home.
    pub fn claim(&self, session: u64, worker: u8) -> u8 {
        self.workers.as_ref().map_or(worker, |workers| *workers.write().entry(session).or_insert(worker))
    }

    /// Forgets a session, if this worker has it.
    pub fn remove(&self, session: u64, worker: u8) {
        if let Some(mut workers) = self.workers.as_ref().map(RwLock::write)
            && workers.get(&session) == Some(&worker)
        {
            workers.remove(&session);
        }
    }

    pub fn worker_of(&self, session: u64) -> Option<u8> {
        match &self.workers {
            Some(workers) => workers.read().get(&session).copied(),
            None => Some(0),
        }
    }
}
