//! The fitness of the members of shared groups, as the workers of a node tell each other (§6.5).

use hashbrown::HashMap;
use parking_lot::RwLock;

use crate::keyed_hash::KeyedHash;
use crate::link_id::SessionKey;
use crate::tables::groups::Fitness;

/// Maps a session to its id and its fitness.
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

    /// `None`: the session has ended.
    pub fn of(&self, key: SessionKey) -> Option<(u64, Fitness)> {
        self.member_loads.read().get(&key).copied()
    }
}
