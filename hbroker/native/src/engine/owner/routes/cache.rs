//! The routes that were found last.
//!
//! Publishers use the same topics again and again, so the route of a topic is kept. The cache is
//! direct-mapped: the hash of a topic gives its only slot. A route that is used keeps its slot for a while
//! when other topics need it. So if more topics than slots are in use, some of them stay in the cache,
//! instead of all being replaced for nothing. A stranger who fills the cache with topics of his own costs
//! others one search in the tables for each message, and no more. If topics in use compete for slots, the
//! cache grows up to a bound. Its memory is bounded: a long topic, or a topic with many subscribers, whose
//! copies cost more than the search, is not kept.
//!
//! A large cache does not fit into that of the processor. So all that a route needs lies in its slot, which
//! is two cache lines long, if its topic is short and it has one subscriber. The slots that a datagram will
//! need can be prefetched together for all of its messages (`touch`).

use std::cell::Cell;
use std::hash::Hasher;
use std::hint::black_box;

use rustc_hash::FxHasher;
use smallvec::SmallVec;

use crate::Micros;
use crate::engine::owner::routes::Route;
use crate::load::topics::Mark;
use crate::tables::groups::GroupList;
use crate::tables::match_set::Subscriber;

/// Slots at first and at most, of 128 bytes each: 0.1 and 17 MB.
pub const SLOTS: usize = 1_024;
pub const MOST_SLOTS: usize = 131_072;
/// The cache grows after this number of conflicts for each slot.
const PATIENCE: usize = 8;
/// How many conflicts a route survives after its last use.
const STANDS: u8 = 8;
/// A cache with more slots does not fit into that of the processor.
const NEAR: usize = 4_096;
pub const LONGEST_TOPIC: usize = 256;
pub const MOST_SUBSCRIBERS: usize = 64;
/// The bound for the bytes outside of the slots, of topics and lists that are too long for them.
pub const MOST_BESIDE: usize = 32 << 20;

static NO_GROUPS: GroupList = GroupList::NONE;

/// Routes by topic.
pub struct Cache {
    /// Their number is a power of two.
    slots: Box<[CachedRoute]>,
    /// Conflicts with valid routes since the cache has this size.
    in_the_way: usize,
    /// Bytes outside of the slots.
    beside: usize,
}

/// A cached route.
#[derive(Clone, Default)]
#[repr(align(128))]
struct CachedRoute {
    /// The bytes of the topic.
    topic: SmallVec<[u8; 48]>,
    /// The version of the tables that it was found in; 0: the slot is empty.
    version: u64,
    /// The end of the lease.
    until: Micros,
    subscribers: SmallVec<[Subscriber; 1]>,
    groups: Option<Box<GroupList>>,
    mark: Cell<Mark>,
    reserved: bool,
    gathering: bool,
    /// How many more conflicts it survives.
    stands: u8,
}

const _: () = assert!(size_of::<CachedRoute>() == 128, "two lines of a processor's cache");

impl Cache {
    pub fn new() -> Self {
        Self { slots: vec![CachedRoute::default(); SLOTS].into(), in_the_way: 0, beside: 0 }
    }

    /// The slot of a topic's route, if it is cached and from tables of this version.
    pub fn find(&mut self, topic: &str, version: u64, now: Micros) -> Option<usize> {
        let index = slot_of(topic, self.slots.len());
        let slot = &mut self.slots[index];
        if !slot.leads(topic, version, now) {
            return None;
        }
        if slot.stands < STANDS {
            slot.stands = STANDS;
        }
        Some(index)
    }

    /// The route in a slot that `find` returned.
    pub fn route(&self, slot: usize) -> Route<'_> {
        self.slots[slot].route()
    }

    /// Prefetches the slot of a topic that will be looked up soon. Costs little, and nothing waits for it.
    pub fn touch(&self, topic: &str) {
        let slot = &self.slots[slot_of(topic, self.slots.len())];
        black_box((slot.topic.len(), slot.stands));
    }

    /// Whether `touch` is worth while.
    pub fn is_far(&self) -> bool {
        self.slots.len() > NEAR
    }

    /// Caches a route, if there is room.
    pub fn put(&mut self, now: Micros, topic: &str, version: u64, until: Micros, route: Route<'_>) {
        if topic.len() > LONGEST_TOPIC || route.subscribers.len() + route.groups.members() > MOST_SUBSCRIBERS
        {
            return;
        }
        let slot = self.slot_for(now, topic, version);
        let beside = self.beside - slot.map_or(0, |slot| self.slots[slot].beside());
        let Some(slot) = slot.map(|slot| &mut self.slots[slot]) else {
            return;
        };
        *slot = CachedRoute::of(topic, version, until, route);
        self.beside = beside + slot.beside();
        if self.beside > MOST_BESIDE {
            self.beside = beside;
            *slot = CachedRoute::default();
        }
    }

    /// Invalidates the route of a topic.
    pub fn forget(&mut self, topic: &str) {
        self.slots[slot_of(topic, self.slots.len())].version = 0;
    }

    /// The slot for a topic; `None` if a route that is used keeps it. The cache may grow.
    fn slot_for(&mut self, now: Micros, topic: &str, version: u64) -> Option<usize> {
        let index = slot_of(topic, self.slots.len());
        let slot = &mut self.slots[index];
        if !slot.is_good(version, now) {
            return Some(index);
        }
        self.in_the_way += 1;
        if self.in_the_way < PATIENCE * self.slots.len() || self.slots.len() >= MOST_SLOTS {
            let slot = &mut self.slots[index];
            let gives_way = slot.stands == 0;
            slot.stands = slot.stands.saturating_sub(1);
            return gives_way.then_some(index);
        }
        let slots = vec![CachedRoute::default(); 2 * self.slots.len()].into();
        *self = Self { slots, in_the_way: 0, beside: 0 };
        Some(slot_of(topic, self.slots.len()))
    }
}

fn slot_of(topic: &str, slots: usize) -> usize {
    let mut hasher = FxHasher::default();
    hasher.write(topic.as_bytes());
    hasher.finish() as usize & (slots - 1)
}

impl CachedRoute {
    fn of(topic: &str, version: u64, until: Micros, route: Route<'_>) -> Self {
        Self {
            topic: SmallVec::from_slice(topic.as_bytes()),
            version,
            until,
            subscribers: SmallVec::from_slice(route.subscribers),
            groups: (route.groups.members() > 0).then(|| Box::new(route.groups.clone())),
            mark: Cell::default(),
            reserved: route.reserved,
            gathering: route.gathering,
            stands: STANDS,
        }
    }

    fn is_good(&self, version: u64, now: Micros) -> bool {
        self.version == version && now < self.until
    }

    fn leads(&self, topic: &str, version: u64, now: Micros) -> bool {
        self.is_good(version, now) && self.topic[..] == *topic.as_bytes()
    }

    fn route(&self) -> Route<'_> {
        Route {
            subscribers: &self.subscribers,
            groups: self.groups.as_deref().unwrap_or(&NO_GROUPS),
            reserved: self.reserved,
            gathering: self.gathering,
            mark: Some(&self.mark),
        }
    }

    /// The bytes that it takes outside of its slot.
    fn beside(&self) -> usize {
        let topic = if self.topic.spilled() { self.topic.capacity() } else { 0 };
        let subscribers = if self.subscribers.spilled() { self.subscribers.capacity() } else { 0 };
        let groups = self.groups.as_ref().map_or(0, |groups| size_of::<GroupList>() + groups.bytes());
        topic + subscribers * size_of::<Subscriber>() + groups
    }
}

#[cfg(test)]
impl Cache {
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    pub fn leads(&self, topic: &str, version: u64, now: Micros) -> bool {
        self.slots[slot_of(topic, self.slots.len())].leads(topic, version, now)
    }

    /// Bytes outside of the slots, as counted and as they are.
    pub fn bytes_beside(&self) -> (usize, usize) {
        (self.beside, self.slots.iter().map(CachedRoute::beside).sum())
    }
}
