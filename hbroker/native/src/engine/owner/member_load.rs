//! How fit the members of shared groups are to take a message now (§6.5), where every worker can read it.
//!
//! A worker knows its own sessions. What they tell here is for the others, and is told only of members and only when it changes; so no
//! message but those for groups costs a look, and of those only the ones whose group has members on other workers.

use hashbrown::HashMap;
use parking_lot::RwLock;

use crate::keyed_hash::KeyedHash;
use crate::link_id::SessionKey;
use crate::tables::groups::Fitness;

/// By session: its id, and how fit it is.
pub struct MemberLoads {
    member_loads: RwLock<HashMap<SessionKey, (u64, Fitness), KeyedHash>>,
}

impl MemberLoads {
    pub fn new(seed: u64) -> Self {
        Self { member_loads: RwLock::new(HashMap::with_hasher(KeyedHash::new(seed))) }
    }

    pub fn tell(&self, key: SessionKey, id: u64, fitness: Fitness) {
        self.member_loads.write().insert(key, (id, fitness));
    }

    pub fn forget(&self, key: SessionKey) {
        self.member_loads.write().remove(&key);
    }

    /// `None`: it is gone.
    pub fn of(&self, key: SessionKey) -> Option<(u64, Fitness)> {
        self.member_loads.read().get(&key).copied()
    }
}
