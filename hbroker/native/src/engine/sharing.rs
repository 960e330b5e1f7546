//! Shared groups at an owner (§6.5): how its members stand, which every worker may ask, and who has the parts of a message.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::RwLock;
use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;

use crate::keyed::Keyed;
use crate::link_id::SessionKey;
use crate::tables::groups::{Fitness, Group, GroupList};
use crate::tables::match_set::Subscriber;
use crate::wire::PublishView;

/// Messages in parts of which a group's member has some, and others are still to come.
const MOST_BEGUN: usize = 4_096;

/// How one member stands: told by its home worker, read by all.
#[derive(Debug)]
pub struct Standing {
    session: u64,
    fitness: AtomicU8,
}

impl Standing {
    /// The home worker says how fit the member is now.
    pub fn set(&self, fitness: Fitness) {
        self.fitness.store(fitness as u8, Ordering::Relaxed);
    }

    fn get(&self) -> (u64, Fitness) {
        let fitness = match self.fitness.load(Ordering::Relaxed) {
            0 => Fitness::Away,
            1 => Fitness::Connected,
            _ => Fitness::Ready,
        };
        (self.session, fitness)
    }
}

/// The standing of every session that is in a group. Shared by the workers of a core.
#[derive(Default)]
pub struct Standings {
    members: RwLock<HashMap<SessionKey, Arc<Standing>, FxBuildHasher>>,
}

impl Standings {
    /// A session is in a group from now on.
    pub fn add(&self, key: SessionKey, session: u64, fitness: Fitness) -> Arc<Standing> {
        let standing = Arc::new(Standing { session, fitness: AtomicU8::new(fitness as u8) });
        self.members.write().insert(key, Arc::clone(&standing));
        standing
    }

    /// A session has ended.
    pub fn remove(&self, key: SessionKey) {
        self.members.write().remove(&key);
    }
}

/// Who of each group gets a message, in one worker.
pub struct Sharing {
    standings: Arc<Standings>,
    /// By message and group, who has the parts of it that have come.
    begun: HashMap<PartsOf, SessionKey, Keyed>,
    /// The oldest first; some may have ended.
    order: VecDeque<PartsOf>,
}

/// (publisher, sequence number of its first part), and the group.
type PartsOf = ((u64, u64), Arc<str>);

impl Sharing {
    pub fn new(standings: Arc<Standings>, hasher: Keyed) -> Self {
        Self { standings, begun: HashMap::with_hasher(hasher), order: VecDeque::new() }
    }

    /// The members that get a message: of each group one, if any is left. A message in parts goes to one member whole, though
    /// others come and go meanwhile, as long as that one is there.
    pub fn choose(&mut self, groups: &GroupList, publish: &PublishView<'_>) -> SmallVec<[Subscriber; 2]> {
        if groups.is_empty() {
            return SmallVec::new();
        }
        let index = publish.fragment.map_or(0, |fragment| u64::from(fragment.index));
        let message = (publish.publisher, publish.sequence.wrapping_sub(index));
        groups.iter().filter_map(|group| self.choose_of(&group, message, publish)).collect()
    }

    fn choose_of(
        &mut self,
        group: &Group<'_>,
        message: (u64, u64),
        publish: &PublishView<'_>,
    ) -> Option<Subscriber> {
        let standings = Arc::clone(&self.standings);
        let members = standings.members.read();
        let standing = |member: &Subscriber| Some(members.get(&member.session)?.get());
        let Some(part) = publish.fragment else {
            return group.choose(message, standing);
        };
        let key = (message, Arc::clone(group.name));
        let begun = self.begun.get(&key).filter(|begun| members.contains_key(begun));
        let begun = begun.and_then(|begun| group.members.iter().find(|member| member.session == *begun));
        let chosen = begun.copied().or_else(|| group.choose(message, standing))?;
        if part.index.checked_add(1) == Some(part.count) {
            self.begun.remove(&key);
        } else if self.begun.insert(key.clone(), chosen.session).is_none() {
            self.remember(key);
        }
        Some(chosen)
    }

    /// Messages end in any order, or never: the oldest gives way.
    fn remember(&mut self, key: PartsOf) {
        self.order.push_back(key);
        while self.order.len() > MOST_BEGUN
            && let Some(oldest) = self.order.pop_front()
        {
            self.begun.remove(&oldest);
        }
    }
}
