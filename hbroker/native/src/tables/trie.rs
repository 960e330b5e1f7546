//! The subscription trie: from a topic to the sessions whose filters match it.
//!
//! A filter without wildcards matches one topic, so it is found by its whole text, whatever its depth. The
//! others form a trie. A node stands for the first levels of some filters; below it hang its named
//! children and, in slots of their own, two wildcard children, `+` and `#`. A lookup keeps the set of
//! nodes that match the levels so far and moves it down level by level. So its cost depends on the topic's
//! levels and on the wildcards met on the way, and not on how many filters there are. It neither recurses
//! nor allocates.
//!
//! Whole texts are kept as if they were one level, below a root of their own; and one hash table holds the
//! named children of all nodes, under (parent, name).
//!
//! A subscription is known in two places, at its node and at its session, and each holds its position in the
//! other: so both are removed in constant time, and a session that ends costs no more than its own filters.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

use crate::link_id::SessionKey;
use crate::tables::arena::Arena;
use crate::tables::few::{Crowds, Few};
use crate::tables::level_names::LevelNames;
pub use crate::tables::match_set::{MatchSet, Subscriber};

/// Above the first levels of the filters that have wildcards.
const ROOT: u32 = 0;
/// Above the whole texts of those that have none.
const PLAIN: u32 = 1;
/// No node.
const NONE: u32 = u32::MAX;
/// Instead of a name's number: the node hangs in one of its parent's wildcard slots.
const PLUS: u32 = u32::MAX;
const HASH: u32 = u32::MAX - 1;

/// Filters, and the sessions that subscribed to each.
pub struct SubscriptionTrie {
    seed: u64,
    names: LevelNames,
    nodes: Arena<Node>,
    /// The named children of all nodes.
    children: HashTable<Child>,
    crowds: Crowds<Subscription>,
    session_crowds: Crowds<Filter>,
    sessions: Arena<Session>,
    session_slots: HashTable<u32>,
    len: usize,
}

// Two share a cache line; none lies across two.
#[repr(align(32))]
struct Node {
    parent: u32,
    name: u32,
    plus: u32,
    hash: u32,
    children: u32,
    subscriptions: Few<Subscription>,
}

/// An entry of the table of children. It repeats what the node holds, so that a lookup waits for one cache
/// line less.
struct Child {
    parent: u32,
    name: u32,
    node: u32,
}

#[derive(Clone, Copy)]
struct Subscription {
    session: u32,
    /// Where among the session's filters this one is.
    position: u32,
    options: Options,
}

/// A subscriber less its session.
#[derive(Clone, Copy)]
struct Options {
    qos: u8,
    no_local: bool,
    retain_as_published: bool,
}

struct Session {
    id: SessionKey,
    filters: Few<Filter>,
}

#[derive(Clone, Copy)]
struct Filter {
    node: u32,
    /// Where among the node's subscriptions this one is.
    position: u32,
}

impl SubscriptionTrie {
    /// No filters. `seed`: random and secret.
    pub fn new(seed: u64) -> Self {
        let mut nodes = Arena::default();
        for root in [ROOT, PLAIN] {
            let slot = nodes.insert(Node::default());
            debug_assert_eq!(slot, root);
        }
        Self {
            seed,
            names: LevelNames::new(seed),
            nodes,
            children: HashTable::new(),
            crowds: Arena::default(),
            session_crowds: Arena::default(),
            sessions: Arena::default(),
            session_slots: HashTable::new(),
            len: 0,
        }
    }

    /// Adds a session's subscription to a valid filter, or replaces its options. Whether it was there before.
    pub fn insert(&mut self, filter: &str, subscriber: Subscriber) -> bool {
        let Subscriber { session, qos, no_local, retain_as_published } = subscriber;
        let options = Options { qos, no_local, retain_as_published };
        let (node, session) = (self.make_node(filter), self.make_session(session));
        if let Some(position) = self.position(node, session) {
            self.subscriptions_mut(node)[position as usize].options = options;
            return true;
        }
        let position = self.subscriptions(node).len() as u32;
        self.sessions[session].filters.push(Filter { node, position }, &mut self.session_crowds);
        let subscription =
            Subscription { session, position: self.filters(session).len() as u32 - 1, options };
        self.nodes[node].subscriptions.push(subscription, &mut self.crowds);
        self.len += 1;
        false
    }

    /// Removes a session's subscription to a filter. Whether there was one.
    pub fn remove(&mut self, filter: &str, session: SessionKey) -> bool {
        let Some(session) = self.find_session(session) else {
            return false;
        };
        let Some(node) = self.find_node(filter) else {
            return false;
        };
        let Some(position) = self.position(node, session) else {
            return false;
        };
        self.detach(node, position);
        true
    }

    /// Removes all subscriptions of a session; returns how many there were.
    pub fn remove_session(&mut self, session: SessionKey) -> usize {
        let Some(slot) = self.find_session(session) else {
            return 0;
        };
        let count = self.filters(slot).len();
        for remaining in (0..count).rev() {
            let Filter { node, position } = self.filters(slot)[remaining];
            self.detach(node, position);
        }
        count
    }

    /// Finds the subscriptions whose filters match a valid topic, in place of what `found` held.
    pub fn collect_matches(&self, topic: &str, found: &mut MatchSet) {
        found.begin(self.sessions.end());
        if self.nodes[PLAIN].children > 0
            && let Some(node) = self.child(PLAIN, self.names.hash(topic), topic)
        {
            self.collect(node, found);
        }
        let (mut frontier, mut next) = (std::mem::take(&mut found.frontier), std::mem::take(&mut found.next));
        frontier.push(ROOT);
        // MQTT 5 §4.7.2: no wildcard at the first level matches a topic that begins with `$`.
        let mut wildcards = !topic.starts_with('$');
        for level in topic.split('/') {
            let mut level_hash = None;
            for &node in &frontier {
                let Node { plus, hash: rest, children, .. } = self.nodes[node];
                if wildcards && rest != NONE {
                    self.collect(rest, found);
                }
                if wildcards && plus != NONE {
                    next.push(plus);
                }
                if children > 0 {
                    let level_hash = *level_hash.get_or_insert_with(|| self.names.hash(level));
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
        for &node in &frontier {
            self.collect(node, found);
            if self.nodes[node].hash != NONE {
                self.collect(self.nodes[node].hash, found);
            }
        }
        (found.frontier, found.next) = (frontier, next);
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

    fn collect(&self, node: u32, found: &mut MatchSet) {
        for &Subscription { session, options, .. } in self.subscriptions(node) {
            let Options { qos, no_local, retain_as_published } = options;
            found.add(
                session,
                Subscriber { session: self.sessions[session].id, qos, no_local, retain_as_published },
            );
        }
    }
}

/// Nodes.
impl SubscriptionTrie {
    fn find_node(&self, filter: &str) -> Option<u32> {
        if is_plain(filter) {
            return self.step(PLAIN, filter);
        }
        filter.split('/').try_fold(ROOT, |node, level| self.step(node, level))
    }

    fn make_node(&mut self, filter: &str) -> u32 {
        if is_plain(filter) {
            return self.make_child(PLAIN, filter);
        }
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
            _ => self.child(node, self.names.hash(level), level),
        }
    }

    fn child(&self, parent: u32, name_hash: u64, name: &str) -> Option<u32> {
        let is_it = |child: &Child| child.parent == parent && self.names.is(child.name, name);
        let child = self.children.find(child_hash(parent, name_hash), is_it);
        child.map(|child| child.node)
    }

    fn add_child(&mut self, parent: u32, level: &str) -> u32 {
        let name = match level {
            "+" => PLUS,
            "#" => HASH,
            _ => self.names.acquire(level),
        };
        let node = self.nodes.insert(Node { parent, name, ..Node::default() });
        match name {
            PLUS => self.nodes[parent].plus = node,
            HASH => self.nodes[parent].hash = node,
            _ => {
                self.nodes[parent].children += 1;
                let child = Child { parent, name, node };
                let hash_of = |child: &Child| child_hash(child.parent, self.names.hash_of(child.name));
                self.children.insert_unique(hash_of(&child), child, hash_of);
            }
        }
        node
    }

    /// Removes a node that serves nothing any more, and then those above it that served it alone.
    fn prune(&mut self, mut node: u32) {
        while node != ROOT && node != PLAIN && self.nodes[node].is_bare() {
            let Node { parent, name, .. } = self.nodes.take(node);
            match name {
                PLUS => self.nodes[parent].plus = NONE,
                HASH => self.nodes[parent].hash = NONE,
                _ => {
                    self.nodes[parent].children -= 1;
                    let hash = child_hash(parent, self.names.hash_of(name));
                    if let Ok(entry) = self.children.find_entry(hash, |child| child.node == node) {
                        entry.remove();
                    }
                    self.names.release(name);
                }
            }
            node = parent;
        }
    }
}

/// Subscriptions, at their node and at their session.
impl SubscriptionTrie {
    fn find_session(&self, id: SessionKey) -> Option<u32> {
        self.session_slots.find(session_hash(id), |&slot| self.sessions[slot].id == id).copied()
    }

    fn make_session(&mut self, id: SessionKey) -> u32 {
        self.find_session(id).unwrap_or_else(|| {
            let slot = self.sessions.insert(Session { id, filters: Few::None });
            self.session_slots
                .insert_unique(session_hash(id), slot, |&slot| session_hash(self.sessions[slot].id));
            slot
        })
    }

    fn drop_session(&mut self, slot: u32) {
        let hash = session_hash(self.sessions.take(slot).id);
        if let Ok(entry) = self.session_slots.find_entry(hash, |&other| other == slot) {
            entry.remove();
        }
    }

    /// Where among the node's subscriptions the session's is. Searched for in the shorter of the two lists.
    fn position(&self, node: u32, session: u32) -> Option<u32> {
        let (subscriptions, filters) = (self.subscriptions(node), self.filters(session));
        if subscriptions.len() <= filters.len() {
            subscriptions.iter().position(|each| each.session == session).map(|position| position as u32)
        } else {
            filters.iter().find(|filter| filter.node == node).map(|filter| filter.position)
        }
    }

    /// Removes the subscription at this position of a node, and what existed only for it.
    fn detach(&mut self, node: u32, position: u32) {
        let Some(gone) = self.nodes[node].subscriptions.swap_remove(position, &mut self.crowds) else {
            return;
        };
        if let Some(&moved) = self.subscriptions(node).get(position as usize) {
            self.filters_mut(moved.session)[moved.position as usize].position = position;
        }
        self.sessions[gone.session].filters.swap_remove(gone.position, &mut self.session_crowds);
        if let Some(&moved) = self.filters(gone.session).get(gone.position as usize) {
            self.subscriptions_mut(moved.node)[moved.position as usize].position = gone.position;
        }
        if self.filters(gone.session).is_empty() {
            self.drop_session(gone.session);
        }
        self.prune(node);
        self.len -= 1;
        if self.len == 0 {
            *self = Self::new(self.seed); // Gives the memory back.
        }
    }

    fn subscriptions(&self, node: u32) -> &[Subscription] {
        self.nodes[node].subscriptions.as_slice(&self.crowds)
    }

    fn filters(&self, session: u32) -> &[Filter] {
        self.sessions[session].filters.as_slice(&self.session_crowds)
    }

    fn filters_mut(&mut self, session: u32) -> &mut [Filter] {
        self.sessions[session].filters.as_mut_slice(&mut self.session_crowds)
    }

    fn subscriptions_mut(&mut self, node: u32) -> &mut [Subscription] {
        self.nodes[node].subscriptions.as_mut_slice(&mut self.crowds)
    }
}

impl Default for Node {
    fn default() -> Self {
        Self { parent: NONE, name: NONE, plus: NONE, hash: NONE, children: 0, subscriptions: Few::None }
    }
}

impl Node {
    fn is_bare(&self) -> bool {
        self.children == 0
            && self.plus == NONE
            && self.hash == NONE
            && matches!(self.subscriptions, Few::None)
    }
}

impl Default for Session {
    fn default() -> Self {
        Self { id: SessionKey(0), filters: Few::None }
    }
}

fn is_plain(filter: &str) -> bool {
    !filter.contains(['+', '#'])
}

/// The name's hash is keyed, and so is the sum; the odd factor, 2^64 over the golden ratio, spreads the
/// many parents that one name can have.
fn child_hash(parent: u32, name_hash: u64) -> u64 {
    name_hash.wrapping_add(u64::from(parent).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Sessions are named by this core, not by strangers.
fn session_hash(id: SessionKey) -> u64 {
    FxBuildHasher.hash_one(id)
}

#[cfg(test)]
mod tests;
