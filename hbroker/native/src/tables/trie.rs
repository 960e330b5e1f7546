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
//! Members of shared groups (§6.5) lie among the other subscribers: a session has a slot for its own
//! subscriptions, and one for each group that it is in, so that those outside of groups pay nothing for them.

mod nodes;
mod subscriptions;

use std::collections::BTreeSet;

use hashbrown::HashTable;

use crate::link_id::SessionKey;
use crate::tables::arena::Arena;
use crate::tables::few::{Crowds, Few};
use crate::tables::groups::{GroupNames, OWN};
use crate::tables::level_names::LevelNames;
pub use crate::tables::match_set::{MatchSet, Overflow, Subscriber};

/// Above the first levels of the filters that have wildcards.
const ROOT: u32 = 0;
/// Above the whole texts of those that have none.
const PLAIN: u32 = 1;
/// No node.
const NONE: u32 = u32::MAX;
/// Instead of a name's number: the node hangs in one of its parent's wildcard slots.
const PLUS: u32 = u32::MAX;
const HASH: u32 = u32::MAX - 1;
/// Slots below which it is not worth giving memory back.
const FEW_SLOTS: usize = 8_192;

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
    groups: GroupNames,
    /// The groups of each session.
    memberships: BTreeSet<(SessionKey, u32)>,
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
    overflow: Overflow,
}

/// A session, or one as a member of a group.
struct Session {
    id: SessionKey,
    /// The group's number, or `OWN`.
    group: u32,
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
            groups: GroupNames::new(seed),
            memberships: BTreeSet::new(),
            len: 0,
        }
    }

    /// Adds a session's subscription to a valid filter, or replaces its options. `group`: the shared group that it is a member of;
    /// empty: none. Whether it was there before.
    pub fn insert(&mut self, filter: &str, group: &str, subscriber: Subscriber) -> bool {
        let Subscriber { session, qos, no_local, retain_as_published, overflow } = subscriber;
        let options = Options { qos, no_local, retain_as_published, overflow };
        let (node, session) = (self.make_node(filter), self.make_session(session, group));
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

    /// Removes a session's subscription to a filter, its own or as a member of a group. Whether there was one.
    pub fn remove(&mut self, filter: &str, group: &str, session: SessionKey) -> bool {
        let found = || {
            let group = if group.is_empty() { OWN } else { self.groups.number(group)? };
            let session = self.find_session(session, group)?;
            let node = self.find_node(filter)?;
            Some((node, self.position(node, session)?))
        };
        let Some((node, position)) = found() else {
            return false;
        };
        self.detach(node, position);
        self.give_back();
        true
    }

    /// Removes all subscriptions of a session; returns how many there were.
    pub fn remove_session(&mut self, session: SessionKey) -> usize {
        let before = self.len;
        for slot in self.slots_of(session) {
            for remaining in (0..self.filters(slot).len()).rev() {
                let Filter { node, position } = self.filters(slot)[remaining];
                self.detach(node, position);
            }
        }
        self.give_back();
        before - self.len
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
        found.end(&self.groups);
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
        for &Subscription { session: slot, options, .. } in self.subscriptions(node) {
            let Options { qos, no_local, retain_as_published, overflow } = options;
            let Session { id, group, .. } = self.sessions[slot];
            let subscriber = Subscriber { session: id, qos, no_local, retain_as_published, overflow };
            if group == OWN {
                found.add(slot, subscriber);
            } else {
                found.add_member(node, group, subscriber);
            }
        }
    }

    /// Gives memory back where most of what was once needed is not. A trie that has shrunk to an eighth is built anew: those who
    /// left pay for it.
    fn give_back(&mut self) {
        let is_hollow = |end: usize, used: usize| end > FEW_SLOTS && used < end / 8;
        let nodes = is_hollow(self.nodes.end(), self.nodes.len());
        if nodes || is_hollow(self.sessions.end(), self.sessions.len()) || self.len == 0 {
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
            let group = if group == OWN { "" } else { self.groups.name(group) };
            for &Filter { node, position } in self.filters(slot) {
                let Options { qos, no_local, retain_as_published, overflow } =
                    self.subscriptions(node)[position as usize].options;
                let subscriber = Subscriber { session: id, qos, no_local, retain_as_published, overflow };
                visit(&self.filter_of(node), group, subscriber);
            }
        }
    }
}

#[cfg(test)]
mod tests;
