//! The fitness of the members of shared groups, as the workers of a node tell each other (§6.5).

use hashbrown::HashMap;
use parking_lot::RwLock;

use crate::keyed_hash::KeyedHash;
use crate::link_id::SessionKey;
use crate::tables::groups::Fitness;

/// The fitness of each member, with the id of its session.
pub struct MemberFitness {
    by_session: RwLock<HashMap<SessionKey, (u64, Fitness), KeyedHash>>,
}

impl MemberFitness {
    pub fn new(seed: u64) -> Self {
        Self { by_session: RwLock::new(HashMap::with_hasher(KeyedHash::new(seed))) }
    }

    pub fn report(&self, key: SessionKey, id: u64, fitness: Fitness) {
        self.by_session.write().insert(key, (id, fitness));
    }

    pub fn forget(&self, key: SessionKey) {
        self.by_session.write().remove(&key);
    }

    /// The session id and the fitness of a member; `None`: the session has ended.
    pub fn of(&self, key: SessionKey) -> Option<(u64, Fitness)> {
        self.by_session.read().get(&key).copied()
    }
}
