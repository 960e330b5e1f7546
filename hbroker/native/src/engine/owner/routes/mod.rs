//! From a topic to its subscribers: the tables decide, and a cache remembers (§7.2).
//!
//! The tables are changed only through the methods here. Each change invalidates the whole cache, with one
//! exception: a filter without wildcards invalidates only its own topic. The end of a lease changes no table,
//! and is compared for each message.
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
//! need can be prefetched together for all of its messages (`prefetch`).

use std::cell::Cell;
use std::hash::Hasher;
use std::hint::black_box;

use rustc_hash::FxHasher;
use smallvec::SmallVec;

use crate::Micros;
use crate::engine::metrics::counters::Drop;
use crate::link_id::SessionKey;
use crate::load::topics::TopicSlot;
use crate::schema::reason;
use crate::tables::groups::GroupList;
use crate::tables::jurisdiction::{Cut, Decision, Jurisdiction};
use crate::tables::match_set::MatchSet;
use crate::tables::subscriber::Subscriber;
use crate::tables::trie::SubscriptionTrie;
use crate::topic;

/// Why an owner does not take a message over.
#[derive(Clone, Debug)]
pub enum Refusal {
    InvalidTopic,
    InvalidMessage,
    /// The topic is not this node's. With the cut that it lies in, if one is known.
    NotResponsible(Option<Cut>),
    Handover,
    /// Only this node itself publishes on this topic.
    NotAuthorized,
    /// Its publisher id is not that of the session that it came in (§7.9).
    ForeignPublisher,
    /// It expired on the way (§7.8).
    Expired,
    /// One of three bounds is reached (§7.7): the queues of sessions that count as connected, the queue of
    /// one of the message's sessions, or what its publisher may send.
    QueuesFull,
    /// Its workspace has had all messages of this second.
    OverRate,
}

impl Refusal {
    /// The counter of this refusal, and the reason in the PUBACK.
    pub fn drop_and_reason(&self) -> (Drop, i32) {
        match self {
            Self::InvalidTopic => (Drop::InvalidMessage, reason::TOPIC_NAME_INVALID),
            Self::InvalidMessage => (Drop::InvalidMessage, reason::PROTOCOL_ERROR),
            Self::NotResponsible(_) => (Drop::NotResponsible, reason::NOT_RESPONSIBLE),
            Self::Handover => (Drop::Handover, reason::HANDOVER),
            Self::Expired => (Drop::Expired, reason::MESSAGE_EXPIRED),
            Self::QueuesFull => (Drop::QueuesFull, reason::QUOTA_EXCEEDED),
            Self::OverRate => (Drop::WorkspaceRate, reason::QUOTA_EXCEEDED),
            Self::NotAuthorized => (Drop::NotAuthorized, reason::NOT_AUTHORIZED),
            Self::ForeignPublisher => (Drop::ForeignPublisher, reason::NOT_AUTHORIZED),
        }
    }
}

/// The route of a topic that this node owns.
#[derive(Clone, Copy, Debug)]
pub struct Route<'a> {
    /// Each subscribed session, once.
    pub subscribers: &'a [Subscriber],
    /// Each shared group; one member of each gets the message.
    pub groups: &'a GroupList,
    /// Only this node itself publishes on this topic.
    pub reserved: bool,
    /// Recovery: its subscribers are not all back yet.
    pub recovering: bool,
    /// Where the cache remembers the load counter of this topic; `None`: the route is not cached.
    pub topic_slot: Option<&'a Cell<TopicSlot>>,
}

/// The tables of one worker, and the routes that were found last.
pub struct Routes {
    jurisdiction: Jurisdiction,
    subscriptions: SubscriptionTrie,
    matches: MatchSet,
    /// How often a table was changed, from 1.
    version: u64,
    cache: Cache,
}

impl Routes {
    /// Empty tables. `seed` is random and secret.
    pub fn new(seed: u64) -> Self {
        Self {
            jurisdiction: Jurisdiction::new(seed),
            subscriptions: SubscriptionTrie::new(seed),
            matches: MatchSet::default(),
            version: 1,
            cache: Cache::new(),
        }
    }

    /// The subtrees that this node owns.
    pub fn jurisdiction(&self) -> &Jurisdiction {
        &self.jurisdiction
    }

    /// The subtrees that this node owns, to be changed. Invalidates the cache.
    pub fn jurisdiction_mut(&mut self) -> &mut Jurisdiction {
        self.version += 1;
        &mut self.jurisdiction
    }

    /// Adds a subscription, or replaces its options, as [`SubscriptionTrie::insert`] does.
    pub fn subscribe(&mut self, filter: &str, group: &str, subscriber: Subscriber) -> bool {
        self.forget_matches(filter);
        self.subscriptions.insert(filter, group, subscriber)
    }

    /// Removes a subscription, as [`SubscriptionTrie::remove`] does.
    pub fn unsubscribe(&mut self, filter: &str, group: &str, session: SessionKey) -> bool {
        self.forget_matches(filter);
        self.subscriptions.remove(filter, group, session)
    }

    /// A session has ended. If it had no subscriptions, the cache stays valid: publishers come and go.
    pub fn forget_session(&mut self, session: SessionKey) {
        if self.subscriptions.remove_session(session) > 0 {
            self.version += 1;
        }
    }

    /// The route of a topic now.
    ///
    /// # Errors
    /// Why this node does not take its messages.
    pub fn find(&mut self, now: Micros, topic: &str) -> Result<Route<'_>, Refusal> {
        let Self { jurisdiction, subscriptions, matches, version, cache } = self;
        if let Some(slot) = cache.find(topic, *version, now) {
            return Ok(cache.route(slot));
        }
        if !topic::topic_is_valid(topic) {
            return Err(Refusal::InvalidTopic);
        }
        let grant = match jurisdiction.decide(topic, now) {
            Decision::Own(grant) => *grant,
            Decision::HandingOver => return Err(Refusal::Handover),
            Decision::Elsewhere(cut) => return Err(Refusal::NotResponsible(Some(cut.clone()))),
            Decision::NotMine => return Err(Refusal::NotResponsible(None)),
        };
        subscriptions.collect_matches(topic, matches);
        let (subscribers, groups) = (matches.subscribers(), matches.groups());
        let (reserved, recovering) = (grant.reserved, grant.recovering);
        let route = Route { subscribers, groups, reserved, recovering, topic_slot: None };
        cache.put(now, topic, *version, grant.until, route);
        Ok(route)
    }

    /// Messages on these topics will be looked up soon.
    pub fn expect<'a>(&self, topics: impl Iterator<Item = &'a str>) {
        if self.cache.exceeds_cpu_cache() {
            topics.for_each(|topic| self.cache.prefetch(topic));
        }
    }

    /// The groups that match a topic, whether or not this node owns it.
    pub fn groups(&mut self, topic: &str) -> &GroupList {
        self.subscriptions.collect_matches(topic, &mut self.matches);
        self.matches.groups()
    }

    /// Whether the group of this name that has the shared subscription with this id matches a topic.
    pub fn has_group(&mut self, name: &str, id: u64, topic: &str) -> bool {
        self.groups(topic).find(name, id).is_some()
    }

    /// How many subscriptions match a topic.
    pub fn matching(&mut self, topic: &str) -> usize {
        self.subscriptions.collect_matches(topic, &mut self.matches);
        self.matches.subscriptions()
    }

    /// How many subscriptions there are.
    pub fn subscriptions(&self) -> usize {
        self.subscriptions.len()
    }

    /// Invalidates the routes that a filter may be part of: that of one topic if it has no wildcards, else
    /// all. (To look for the matching entries would cost more than to look the topics up again, when many
    /// clients subscribe at once.)
    fn forget_matches(&mut self, filter: &str) {
        if topic::has_wildcards(filter) {
            self.version += 1;
        } else {
            self.cache.forget(filter);
        }
    }
}

/// Slots at first and at most, of 128 bytes each: 0.1 and 17 MB.
pub const SLOTS: usize = 1_024;
pub const MOST_SLOTS: usize = 131_072;
/// The cache grows after this number of conflicts for each slot.
const CONFLICTS_TO_GROW: usize = 8;
/// How many conflicts a route survives after its last use, as in second-chance replacement.
const CHANCES: u8 = 8;
/// A route cache with more slots does not fit into the CPU's cache.
const CPU_CACHE_SLOTS: usize = 4_096;
pub const LONGEST_TOPIC: usize = 256;
pub const MOST_SUBSCRIBERS: usize = 64;
/// The bound for the bytes outside of the slots, of topics and lists that are too long for them.
pub const MOST_HEAP_BYTES: usize = 32 << 20;

static NO_GROUPS: GroupList = GroupList::NONE;

/// Routes by topic.
pub struct Cache {
    /// Their number is a power of two.
    slots: Box<[CachedRoute]>,
    /// How often a valid route of another topic was in the slot of a new route, since the cache has this size.
    conflicts: usize,
    /// Bytes outside of the slots.
    heap_bytes: usize,
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
    topic_slot: Cell<TopicSlot>,
    reserved: bool,
    recovering: bool,
    /// How many more conflicts it survives.
    chances: u8,
}

const _: () = assert!(size_of::<CachedRoute>() == 128, "two lines of a processor's cache");

impl Cache {
    pub fn new() -> Self {
        Self { slots: vec![CachedRoute::default(); SLOTS].into(), conflicts: 0, heap_bytes: 0 }
    }

    /// The slot of a topic's route, if it is cached and from tables of this version.
    pub fn find(&mut self, topic: &str, version: u64, now: Micros) -> Option<usize> {
        let index = slot_of(topic, self.slots.len());
        let slot = &mut self.slots[index];
        if !slot.is_for(topic, version, now) {
            return None;
        }
        if slot.chances < CHANCES {
            slot.chances = CHANCES;
        }
        Some(index)
    }

    /// The route in a slot that `find` returned.
    pub fn route(&self, slot: usize) -> Route<'_> {
        self.slots[slot].route()
    }

    /// Prefetches the slot of a topic that will be looked up soon. Costs little, and nothing waits for it.
    pub fn prefetch(&self, topic: &str) {
        let slot = &self.slots[slot_of(topic, self.slots.len())];
        black_box((slot.topic.len(), slot.chances));
    }

    /// Whether `prefetch` is worth while.
    pub fn exceeds_cpu_cache(&self) -> bool {
        self.slots.len() > CPU_CACHE_SLOTS
    }

    /// Caches a route, if there is room.
    pub fn put(&mut self, now: Micros, topic: &str, version: u64, until: Micros, route: Route<'_>) {
        if topic.len() > LONGEST_TOPIC || route.subscribers.len() + route.groups.members() > MOST_SUBSCRIBERS
        {
            return;
        }
        let slot = self.slot_for(now, topic, version);
        let heap_bytes = self.heap_bytes - slot.map_or(0, |slot| self.slots[slot].heap_bytes());
        let Some(slot) = slot.map(|slot| &mut self.slots[slot]) else {
            return;
        };
        *slot = CachedRoute::of(topic, version, until, route);
        self.heap_bytes = heap_bytes + slot.heap_bytes();
        if self.heap_bytes > MOST_HEAP_BYTES {
            self.heap_bytes = heap_bytes;
            *slot = CachedRoute::default();
        }
    }

    /// Invalidates the route of a topic.
    pub fn forget(&mut self, topic: &str) {
        self.slots[slot_of(topic, self.slots.len())].version = 0;
    }

    /// The slot for a topic; `None`: a route that is in use keeps it. The cache may grow.
    fn slot_for(&mut self, now: Micros, topic: &str, version: u64) -> Option<usize> {
        let index = slot_of(topic, self.slots.len());
        let slot = &mut self.slots[index];
        if !slot.is_valid(version, now) {
            return Some(index);
        }
        self.conflicts += 1;
        if self.conflicts < CONFLICTS_TO_GROW * self.slots.len() || self.slots.len() >= MOST_SLOTS {
            let slot = &mut self.slots[index];
            let is_replaced = slot.chances == 0;
            slot.chances = slot.chances.saturating_sub(1);
            return is_replaced.then_some(index);
        }
        let slots = vec![CachedRoute::default(); 2 * self.slots.len()].into();
        *self = Self { slots, conflicts: 0, heap_bytes: 0 };
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
            topic_slot: Cell::default(),
            reserved: route.reserved,
            recovering: route.recovering,
            chances: CHANCES,
        }
    }

    fn is_valid(&self, version: u64, now: Micros) -> bool {
        self.version == version && now < self.until
    }

    fn is_for(&self, topic: &str, version: u64, now: Micros) -> bool {
        self.is_valid(version, now) && self.topic[..] == *topic.as_bytes()
    }

    fn route(&self) -> Route<'_> {
        Route {
            subscribers: &self.subscribers,
            groups: self.groups.as_deref().unwrap_or(&NO_GROUPS),
            reserved: self.reserved,
            recovering: self.recovering,
            topic_slot: Some(&self.topic_slot),
        }
    }

    /// The bytes that it takes on the heap, outside of its slot.
    fn heap_bytes(&self) -> usize {
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

    pub fn has(&self, topic: &str, version: u64, now: Micros) -> bool {
        self.slots[slot_of(topic, self.slots.len())].is_for(topic, version, now)
    }

    /// Bytes outside of the slots, as counted and as they are.
    pub fn heap_bytes(&self) -> (usize, usize) {
        (self.heap_bytes, self.slots.iter().map(CachedRoute::heap_bytes).sum())
    }
}

#[cfg(test)]
mod tests;
