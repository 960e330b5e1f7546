//! The subscription trie: it finds the sessions whose filters match a topic.
//!
//! A filter without wildcards matches one topic, so it is found by its whole text (`plain`). The other filters form a
//! trie. A node stands for the first levels of some filters. It has named children and, in fields of their
//! own, two wildcard children, `+` and `#`. A look-up keeps the set of nodes that match the levels so far,
//! and replaces it level by level. So its cost depends on the topic's levels and on the wildcards on the way,
//! and not on the number of filters. It neither recurses nor allocates. No two nodes of the set have their
//! `+` at the same levels, so the set has at most as many nodes as the node accepts shapes of filters (§6.3,
//! §9).
//!
//! One index holds the named children of all nodes, by (parent, name).
//!
//! A subscription is recorded twice, at its filter and at its session, and each record holds its position in
//! the other list. So both are removed in constant time, and the end of a session costs no more than its own
//! filters. Members of shared groups (§6.5) are among the other subscribers: a session has a slot for its own
//! subscriptions, and one for each of its groups, so that sessions outside of groups pay nothing for groups.

mod plain;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;

use crate::keyed_hash::KeyedHash;
use crate::link_id::SessionKey;
use crate::tables::arena::{Arena, ListArena, SmallList};
use crate::tables::groups::{Numbered, OWN, shared_id};
use crate::tables::slot_index::SlotIndex;
use crate::tables::trie::plain::PlainFilters;
use crate::topic;

pub use crate::tables::match_set::MatchSet;
use crate::tables::subscriber::{Overflow, Subscriber};

/// The node above the first levels of all filters.
const ROOT: u32 = 0;
/// No node.
const NONE: u32 = u32::MAX;
/// Below this number of slots it is not worthwhile to release memory.
const FEW_SLOTS: usize = 8_192;

/// Filters, and the sessions that subscribed to each.
pub struct SubscriptionTrie {
    seed: u64,
    plain: PlainFilters,
    hasher: KeyedHash,
    nodes: Arena<Node>,
    /// The named children of all nodes.
    children: SlotIndex,
    list_arena: ListArena<Subscription>,
    session_lists: ListArena<Filter>,
    sessions: Arena<Session>,
    session_slots: HashTable<u32>,
    groups: Numbered<Arc<str>>,
    shared_ids: Numbered<u64>,
    /// The groups of each session.
    memberships: BTreeSet<(SessionKey, u32)>,
    len: usize,
}

// One CPU cache line, unless the name is long or there are several subscriptions.
#[repr(align(64))]
struct Node {
    parent: u32,
    plus: u32,
    hash: u32,
    children: u32,
    subscriptions: SmallList<Subscription>,
    name: SmallVec<[u8; 16]>,
}

#[derive(Clone, Copy)]
struct Subscription {
    /// The id of the session, so that a look-up need not read the session's slot.
    id: SessionKey,
    session: u32,
    /// The index of this filter among the session's filters.
    position: u32,
    options: Options,
    /// The number of the shared subscription's id (§6.5); the session's slot has the group's name. `OWN`: it
    /// is not shared.
    shared: u32,
}

/// A subscriber without its session.
#[derive(Clone, Copy)]
struct Options {
    qos: u8,
    no_local: bool,
    retain_as_published: bool,
    overflow: Overflow,
}

/// A session, or its membership of a group.
struct Session {
    id: SessionKey,
    /// The number of the group, or `OWN`.
    group: u32,
    filters: SmallList<Filter>,
}

#[derive(Clone, Copy)]
struct Filter {
    location: FilterLocation,
    /// The index of this subscription among the filter's subscriptions.
    position: u32,
}

/// Where a filter is stored, with all its subscriptions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FilterLocation {
    /// The number of a filter without wildcards.
    Plain(u32),
    /// A node of the trie.
    Node(u32),
}

impl SubscriptionTrie {
    /// An empty trie. `seed`: random and secret.
    pub fn new(seed: u64) -> Self {
        let mut nodes = Arena::default();
        let root = nodes.insert(Node::default());
        debug_assert_eq!(root, ROOT);
        Self {
            seed,
            plain: PlainFilters::new(seed),
            hasher: KeyedHash::new(seed),
            nodes,
            children: SlotIndex::default(),
            list_arena: Arena::default(),
            session_lists: Arena::default(),
            sessions: Arena::default(),
            session_slots: HashTable::new(),
            groups: Numbered::new(seed),
            shared_ids: Numbered::new(seed),
            memberships: BTreeSet::new(),
            len: 0,
        }
    }

    /// Adds a session's subscription to a valid filter, or replaces its options. `group`: the shared group of
    /// which the session is a member; empty: none. Returns whether the subscription existed.
    pub fn insert(&mut self, filter: &str, group: &str, subscriber: Subscriber) -> bool {
        let Subscriber { session, qos, no_local, retain_as_published, overflow } = subscriber;
        let options = Options { qos, no_local, retain_as_published, overflow };
        let (location, session) = (self.make(filter), self.make_session(session, group));
        if let Some(position) = self.position(location, session) {
            self.subscriptions_mut(location)[position as usize].options = options;
            return true;
        }
        let shared = if group.is_empty() { OWN } else { self.shared_ids.acquire(shared_id(group, filter)) };
        self.attach(location, session, options, shared);
        false
    }

    /// Removes a session's subscription to a filter, its own or that of a group member. Returns whether there
    /// was one.
    pub fn remove(&mut self, filter: &str, group: &str, session: SessionKey) -> bool {
        let found = || {
            let group = if group.is_empty() { OWN } else { self.groups.number(group)? };
            let session = self.find_session(session, group)?;
            let location = self.find(filter)?;
            Some((location, self.position(location, session)?))
        };
        let Some((location, position)) = found() else {
            return false;
        };
        self.detach(location, position);
        self.give_back();
        true
    }

    /// Removes all subscriptions of a session. Returns how many there were.
    pub fn remove_session(&mut self, session: SessionKey) -> usize {
        let before = self.len;
        for slot in self.slots_of(session) {
            for remaining in (0..self.filters(slot).len()).rev() {
                let Filter { location, position } = self.filters(slot)[remaining];
                self.detach(location, position);
            }
        }
        self.give_back();
        before - self.len
    }

    /// Finds the subscriptions whose filters match a valid topic. They replace the contents of `found`.
    pub fn collect_matches(&self, topic: &str, found: &mut MatchSet) {
        found.begin(self.sessions.end());
        if let Some(filter) = self.plain.find(topic) {
            self.collect(&self.plain[filter].subscriptions, found);
        }
        if !self.nodes[ROOT].is_bare() {
            self.descend(topic, found);
        }
        found.end(&self.groups, &self.shared_ids);
    }

    /// How many subscriptions there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// How many sessions have a subscription.
    #[cfg(test)]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Finds the matching filters of the trie. (Not inlined, so that topics without any do not pay for its
    /// registers.)
    #[inline(never)]
    fn descend(&self, topic: &str, found: &mut MatchSet) {
        let (mut frontier, mut next) = (std::mem::take(&mut found.frontier), std::mem::take(&mut found.next));
        frontier.push(ROOT);
        // MQTT 5 §4.7.2: no wildcard at the first level matches a topic that begins with `$`.
        let mut wildcards = !topic.starts_with('$');
        // Byte by byte: levels are short, and a search that is fast over long distances costs more than it
        // saves.
        for level in topic.as_bytes().split(|&byte| byte == b'/') {
            let mut level_hash = None;
            #[cfg(test)]
            found.note_visits(frontier.len());
            for &node in &frontier {
                let &Node { plus, hash: rest, children, .. } = &self.nodes[node];
                if wildcards && rest != NONE {
                    self.collect(&self.nodes[rest].subscriptions, found);
                }
                if wildcards && plus != NONE {
                    next.push(plus);
                }
                if children > 0 {
                    let level_hash = *level_hash.get_or_insert_with(|| self.hasher.hash_bytes(level));
                    next.extend(self.child(node, level_hash, level));
                }
            }
            wildcards = true;
            std::mem::swap(&mut frontier, &mut next);
            next.clear();
            if frontier.is_empty() {
                break;
            }
        }
        #[cfg(test)]
        found.note_visits(frontier.len());
        for &node in &frontier {
            let Node { hash: rest, subscriptions, .. } = &self.nodes[node];
            self.collect(subscriptions, found);
            if *rest != NONE {
                self.collect(&self.nodes[*rest].subscriptions, found);
            }
        }
        (found.frontier, found.next) = (frontier, next);
    }

    /// Collects the subscriptions to one filter.
    fn collect(&self, subscriptions: &SmallList<Subscription>, found: &mut MatchSet) {
        found.begin_filter();
        for &Subscription { id, session: slot, options, shared, .. } in
            subscriptions.as_slice(&self.list_arena)
        {
            let Options { qos, no_local, retain_as_published, overflow } = options;
            let subscriber = Subscriber { session: id, qos, no_local, retain_as_published, overflow };
            if shared != OWN {
                found.add_member(self.sessions[slot].group, shared, subscriber);
            } else {
                found.add(slot, subscriber);
            }
        }
    }

    /// Releases memory if most of it is not needed any more. A trie that has shrunk to an eighth is rebuilt;
    /// the removed subscriptions have paid for that.
    fn give_back(&mut self) {
        let is_hollow = |end: usize, used: usize| end > FEW_SLOTS && used < end / 8;
        let tables = [
            (self.plain.end(), self.plain.len()),
            (self.nodes.end(), self.nodes.len()),
            (self.sessions.end(), self.sessions.len()),
        ];
        if self.len == 0 || tables.iter().any(|&(end, used)| is_hollow(end, used)) {
            let mut fresh = Self::new(self.seed);
            self.each_subscription(|filter, group, subscriber| {
                fresh.insert(filter, group, subscriber);
            });
            *self = fresh;
        }
    }

    fn each_subscription(&self, mut visit: impl FnMut(&str, &str, Subscriber)) {
        for &slot in &self.session_slots {
            let Session { id, group, .. } = self.sessions[slot];
            let group = if group == OWN { "" } else { self.groups.value(group) };
            for &Filter { location, position } in self.filters(slot) {
                let Subscription { options, .. } = self.subscriptions(location)[position as usize];
                let Options { qos, no_local, retain_as_published, overflow } = options;
                let subscriber = Subscriber { session: id, qos, no_local, retain_as_published, overflow };
                visit(&self.text(location), group, subscriber);
            }
        }
    }
}

impl SubscriptionTrie {
    fn find_node(&self, filter: &str) -> Option<u32> {
        filter.split('/').try_fold(ROOT, |node, level| self.step(node, level))
    }

    fn make_node(&mut self, filter: &str) -> u32 {
        filter.split('/').fold(ROOT, |node, level| self.make_child(node, level))
    }

    fn make_child(&mut self, node: u32, level: &str) -> u32 {
        match self.step(node, level) {
            Some(child) => child,
            None => self.add_child(node, level),
        }
    }

    fn step(&self, node: u32, level: &str) -> Option<u32> {
        match level {
            "+" => Some(self.nodes[node].plus).filter(|&child| child != NONE),
            "#" => Some(self.nodes[node].hash).filter(|&child| child != NONE),
            _ => self.child(node, self.hasher.hash_bytes(level.as_bytes()), level.as_bytes()),
        }
    }

    fn child(&self, parent: u32, name_hash: u64, name: &[u8]) -> Option<u32> {
        let is_it = |child: u32| {
            let child = &self.nodes[child];
            child.parent == parent && child.name[..] == *name
        };
        self.children.find(child_hash(parent, name_hash), is_it)
    }

    fn add_child(&mut self, parent: u32, level: &str) -> u32 {
        let name = SmallVec::from_slice(level.as_bytes());
        let node = self.nodes.insert(Node { parent, name, ..Node::default() });
        match level {
            "+" => self.nodes[parent].plus = node,
            "#" => self.nodes[parent].hash = node,
            _ => {
                self.nodes[parent].children += 1;
                let name_hash = self.hasher.hash_bytes(level.as_bytes());
                self.children.insert(child_hash(parent, name_hash), node);
            }
        }
        node
    }

    /// Removes a node that is not needed any more, and then its ancestors that only it needed.
    fn prune(&mut self, mut node: u32) {
        while node != ROOT && self.nodes[node].is_bare() {
            let Node { parent, name, .. } = self.nodes.take(node);
            match &name[..] {
                b"+" => self.nodes[parent].plus = NONE,
                b"#" => self.nodes[parent].hash = NONE,
                _ => {
                    self.nodes[parent].children -= 1;
                    self.children.remove(child_hash(parent, self.hasher.hash_bytes(&name)), node);
                }
            }
            node = parent;
        }
    }

    /// The filter that a node stands for.
    fn filter_of(&self, mut node: u32) -> String {
        let mut levels = Vec::new();
        while node != ROOT {
            levels.push(str::from_utf8(&self.nodes[node].name).expect("it was a string when it came"));
            node = self.nodes[node].parent;
        }
        levels.reverse();
        levels.join("/")
    }
}

impl Default for Node {
    fn default() -> Self {
        Self {
            parent: NONE,
            plus: NONE,
            hash: NONE,
            children: 0,
            subscriptions: SmallList::None,
            name: SmallVec::new(),
        }
    }
}

impl Node {
    /// Whether the node has no children and no subscriptions.
    fn is_bare(&self) -> bool {
        self.children == 0
            && self.plus == NONE
            && self.hash == NONE
            && matches!(self.subscriptions, SmallList::None)
    }
}

/// The hash of the name is keyed, so the sum is, too. The odd factor, 2^64 divided by the golden ratio,
/// spreads the many parents of the same name.
fn child_hash(parent: u32, name_hash: u64) -> u64 {
    name_hash.wrapping_add(u64::from(parent).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

impl SubscriptionTrie {
    /// The slot of a session: for its own subscriptions, or for its membership of a group.
    fn find_session(&self, id: SessionKey, group: u32) -> Option<u32> {
        let is_it = |slot: &u32| (self.sessions[*slot].id, self.sessions[*slot].group) == (id, group);
        self.session_slots.find(session_hash(id, group), is_it).copied()
    }

    fn make_session(&mut self, id: SessionKey, group: &str) -> u32 {
        let number = if group.is_empty() { Some(OWN) } else { self.groups.number(group) };
        if let Some(slot) = number.and_then(|number| self.find_session(id, number)) {
            return slot;
        }
        let number = if group.is_empty() { OWN } else { self.groups.acquire(group.into()) };
        if number != OWN {
            self.memberships.insert((id, number));
        }
        let slot = self.sessions.insert(Session { id, group: number, filters: SmallList::None });
        let sessions = &self.sessions;
        let hash_of = |&slot: &u32| session_hash(sessions[slot].id, sessions[slot].group);
        self.session_slots.insert_unique(session_hash(id, number), slot, hash_of);
        slot
    }

    fn drop_session(&mut self, slot: u32) {
        let Session { id, group, .. } = self.sessions.take(slot);
        if let Ok(entry) = self.session_slots.find_entry(session_hash(id, group), |&other| other == slot) {
            entry.remove();
        }
        if group != OWN {
            self.memberships.remove(&(id, group));
            self.groups.release(group);
        }
    }

    /// All slots of a session.
    fn slots_of(&self, id: SessionKey) -> Vec<u32> {
        let groups = self.memberships.range((id, 0)..=(id, OWN)).map(|&(_, group)| group);
        groups.chain([OWN]).filter_map(|group| self.find_session(id, group)).collect()
    }

    /// Where a filter is stored.
    fn find(&self, filter: &str) -> Option<FilterLocation> {
        if topic::has_wildcards(filter) {
            self.find_node(filter).map(FilterLocation::Node)
        } else {
            self.plain.find(filter).map(FilterLocation::Plain)
        }
    }

    /// Where a filter is stored. It is added if it is new.
    fn make(&mut self, filter: &str) -> FilterLocation {
        if topic::has_wildcards(filter) {
            FilterLocation::Node(self.make_node(filter))
        } else {
            FilterLocation::Plain(self.plain.make(filter))
        }
    }

    /// The filter at a location.
    fn text(&self, location: FilterLocation) -> Cow<'_, str> {
        match location {
            FilterLocation::Plain(filter) => self.plain.text(filter).into(),
            FilterLocation::Node(node) => self.filter_of(node).into(),
        }
    }

    /// The index of the session's subscription among those of a filter. It searches the shorter of the two
    /// lists.
    fn position(&self, location: FilterLocation, session: u32) -> Option<u32> {
        let (subscriptions, filters) = (self.subscriptions(location), self.filters(session));
        if subscriptions.len() <= filters.len() {
            subscriptions.iter().position(|each| each.session == session).map(|position| position as u32)
        } else {
            filters.iter().find(|filter| filter.location == location).map(|filter| filter.position)
        }
    }

    /// Adds a subscription that is not there yet.
    fn attach(&mut self, location: FilterLocation, session: u32, options: Options, shared: u32) {
        let filter = Filter { location, position: self.subscriptions(location).len() as u32 };
        let Session { id, .. } = self.sessions[session];
        let position = self.filters(session).len() as u32;
        let subscription = Subscription { id, session, position, options, shared };
        self.sessions[session].filters.push(filter, &mut self.session_lists);
        let (list, list_arena) = self.list_mut(location);
        list.push(subscription, list_arena);
        self.len += 1;
    }

    /// Removes the subscription at this index of a filter, and everything that existed only for it.
    fn detach(&mut self, location: FilterLocation, position: u32) {
        let (list, list_arena) = self.list_mut(location);
        let Some(gone) = list.swap_remove(position, list_arena) else {
            return;
        };
        if gone.shared != OWN {
            self.shared_ids.release(gone.shared);
        }
        if let Some(&moved) = self.subscriptions(location).get(position as usize) {
            self.filters_mut(moved.session)[moved.position as usize].position = position;
        }
        self.sessions[gone.session].filters.swap_remove(gone.position, &mut self.session_lists);
        if let Some(&moved) = self.filters(gone.session).get(gone.position as usize) {
            self.subscriptions_mut(moved.location)[moved.position as usize].position = gone.position;
        }
        if self.filters(gone.session).is_empty() {
            self.drop_session(gone.session);
        }
        match location {
            FilterLocation::Plain(filter) if self.subscriptions(location).is_empty() => {
                self.plain.remove(filter);
            }
            FilterLocation::Plain(_) => {}
            FilterLocation::Node(node) => self.prune(node),
        }
        self.len -= 1;
    }

    fn subscriptions(&self, location: FilterLocation) -> &[Subscription] {
        let list = match location {
            FilterLocation::Plain(filter) => &self.plain[filter].subscriptions,
            FilterLocation::Node(node) => &self.nodes[node].subscriptions,
        };
        list.as_slice(&self.list_arena)
    }

    fn subscriptions_mut(&mut self, location: FilterLocation) -> &mut [Subscription] {
        let (list, list_arena) = self.list_mut(location);
        list.as_mut_slice(list_arena)
    }

    fn list_mut(
        &mut self,
        location: FilterLocation,
    ) -> (&mut SmallList<Subscription>, &mut ListArena<Subscription>) {
        let list = match location {
            FilterLocation::Plain(filter) => &mut self.plain[filter].subscriptions,
            FilterLocation::Node(node) => &mut self.nodes[node].subscriptions,
        };
        (list, &mut self.list_arena)
    }

    fn filters(&self, session: u32) -> &[Filter] {
        self.sessions[session].filters.as_slice(&self.session_lists)
    }

    fn filters_mut(&mut self, session: u32) -> &mut [Filter] {
        self.sessions[session].filters.as_mut_slice(&mut self.session_lists)
    }
}

impl Default for Session {
    fn default() -> Self {
        Self { id: SessionKey(0), group: OWN, filters: SmallList::None }
    }
}

/// This core assigns the numbers of sessions and groups, so a hash without a key is safe.
fn session_hash(id: SessionKey, group: u32) -> u64 {
    FxBuildHasher.hash_one((id, group))
}

#[cfg(test)]
mod tests;
