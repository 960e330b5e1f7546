//! How fit the members of shared groups are to take a message now (§6.5), where every worker can read it.
//!
//! A worker knows its own sessions. What they tell here is for the others, and is told only of members and only when it changes; so no
//! message but those for groups costs a look, and of those only the ones whose group has members on other workers.

use hashbrown::HashMap;
use parking_lot::RwLock;

use crate::keyed_hash::Keyed;
use crate::link_id::SessionKey;
use crate::tables::groups::Fitness;

/// By session: its id, and how fit it is.
pub struct Standings {
    standings: RwLock<HashMap<SessionKey, (u64, Fitness), Keyed>>,
}

impl Standings {
    pub fn new(seed: u64) -> Self {
        Self { standings: RwLock::new(HashMap::with_hasher(Keyed::new(seed))) }
    }

    pub fn tell(&self, key: SessionKey, id: u64, fitness: Fitness) {
        self.standings.write().insert(key, (id, fitness));
    }

    pub fn forget(&self, key: SessionKey) {
        self.standings.write().remove(&key);
    }

    /// `None`: it is gone.
    pub fn of(&self, key: SessionKey) -> Option<(u64, Fitness)> {
        self.standings.read().get(&key).copied()
    }
}
