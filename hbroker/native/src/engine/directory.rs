//! Which worker has which session.
//!
//! The kernel gives each source address to one worker's socket. A client whose address changed may so reach another worker than the one that has its
//! session; that worker looks here. No datagram of a session that is where it belongs does.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::keyed::Keyed;

pub struct Directory {
    workers: Mutex<HashMap<u64, u8, Keyed>>,
}

impl Directory {
    pub fn new(seed: u64) -> Self {
        Self {
            workers: Mutex::new(HashMap::with_hasher(Keyed::new(seed))),
        }
    }

    pub fn add(&self, session: u64, worker: u8) {
        self.workers.lock().insert(session, worker);
    }

    /// Forgets a session, if this worker has it.
    pub fn remove(&self, session: u64, worker: u8) {
        let mut workers = self.workers.lock();
        if workers.get(&session) == Some(&worker) {
            workers.remove(&session);
        }
    }

    pub fn worker_of(&self, session: u64) -> Option<u8> {
        self.workers.lock().get(&session).copied()
    }
}
