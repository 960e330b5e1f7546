//! How fit the members of shared groups are to take a message now (§6.5), readable for every worker.
//!
//! A worker knows its own sessions. It reports their fitness here for the other workers, only for members of
//! groups, and only when it changes. So only messages for groups cost a look here, and of those only the
//! messages of groups with members on other workers.

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
