//! The zones that a client knows (§5.3), as a resolver caches zones of the DNS.
//!
//! For each subtree at most two facts: somebody serves it, and somebody above delegated it. The longest
//! subtree that holds a topic and of which a fact is known decides; served beats delegated, since it is
//! the nearer knowledge. Every fact has a source, the owner who told it, and an end.

use std::net::SocketAddr;

use hashbrown::HashMap;

use crate::Micros;
use crate::keyed_hash::KeyedHash;
use crate::tables::jurisdiction::Cut;
use crate::topic;

/// Where to turn with a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Its owner.
    Owner(SocketAddr),
    /// Not known; ask this node, the deepest one known above the owner.
    Below(SocketAddr),
    /// Not known; ask the root.
    Unknown,
}

/// A bounded cache of zones.
pub struct Zones {
    max_entries: usize,
    entries: HashMap<Box<str>, Entry, KeyedHash>,
    deepest: usize,
    /// Rises with every change.
    version: u64,
}

#[derive(Default)]
struct Entry {
    served: Option<Fact>,
    cut: Option<Fact>,
}

/// `source` says until `expires`: this subtree is `node`'s. (Of what is served the source is the node
/// itself.)
#[derive(Clone, Copy)]
struct Fact {
    node: SocketAddr,
    source: SocketAddr,
    expires: Micros,
}

impl Zones {
    /// Knows nothing, and never of more than `max_entries` (at least one) subtrees. `seed`: random and
    /// secret.
    pub fn new(max_entries: usize, seed: u64) -> Self {
        Self {
            max_entries: max_entries.max(1),
            entries: HashMap::with_hasher(KeyedHash::new(seed)),
            deepest: 0,
            version: 0,
        }
    }

    /// What [`Self::find`] said at a version holds while that stays, until the time that it told.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Where to turn with a topic now, and until when that is known; None: not known.
    pub fn find(&self, topic: &str, now: Micros) -> Option<(Lookup, Micros)> {
        topic::prefixes_to_depth(topic, self.deepest).find_map(|prefix| self.entries.get(prefix)?.lookup(now))
    }

    /// Where to turn with a topic now.
    pub fn lookup(&self, topic: &str, now: Micros) -> Lookup {
        self.find(topic, now).map_or(Lookup::Unknown, |(lookup, _)| lookup)
    }

    /// `owner` serves `scope` less `cuts`, which are all there are. What contradicts it is forgotten.
    pub fn install(&mut self, scope: &str, cuts: &[Cut], owner: SocketAddr, expires: Micros) {
        let cut_above = |path: &str| cuts.iter().find(|cut| topic::is_within(path, &cut.subtree));
        self.retain(|path, entry| {
            if !topic::is_within(path, scope) {
                return;
            }
            match cut_above(path) {
                // The word of whoever delegated it stays: it leads to the next owner once this one is forgotten.
                None if path == scope => entry.served = None,
                None => *entry = Entry::default(),
                // Of the cut itself nothing older is true, but for the new owner's own word.
                Some(cut) if path == &*cut.subtree => {
                    entry.served = entry.served.filter(|fact| fact.node == cut.address);
                    entry.cut = None;
                }
                Some(_) => entry.forget(|fact| fact.source == owner),
            }
        });
        self.entry(scope, |entry| entry.served = Some(Fact { node: owner, source: owner, expires }));
        for cut in cuts.iter().filter(|cut| topic::is_within(&cut.subtree, scope)) {
            let fact = Fact { node: cut.address, source: owner, expires };
            self.entry(&cut.subtree, |entry| entry.cut = Some(fact));
        }
    }

    /// `owner` refused a message on `topic` and told of `cut` (§7.2). Afterwards `owner` is not taken for
    /// the topic's owner.
    ///
    /// A cut that does not hold the topic explains nothing (the empty subtree says as much: begin at the
    /// root): then all that `owner` told is forgotten.
    pub fn learn_cut(&mut self, owner: SocketAddr, topic: &str, cut: &Cut, expires: Micros) {
        if cut.subtree.is_empty() || !topic::is_within(topic, &cut.subtree) {
            return self.forget(Some(owner));
        }
        self.retain(|path, entry| {
            if topic::is_within(path, &cut.subtree) {
                entry.forget(|fact| fact.source == owner);
            }
        });
        let fact = Fact { node: cut.address, source: owner, expires };
        self.entry(&cut.subtree, |entry| entry.cut = Some(fact));
    }

    /// Forgets all that an owner told, or everything.
    pub fn forget(&mut self, owner: Option<SocketAddr>) {
        self.retain(|_, entry| entry.forget(|fact| owner.is_none_or(|owner| fact.source == owner)));
    }

    /// Of how many subtrees something is known.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    fn entry(&mut self, subtree: &str, change: impl FnOnce(&mut Entry)) {
        if !self.entries.contains_key(subtree) && self.entries.len() >= self.max_entries {
            self.evict();
        }
        self.version += 1;
        self.deepest = self.deepest.max(topic::depth(subtree));
        change(self.entries.entry(subtree.into()).or_default());
    }

    /// Forgets the subtree of which all knowledge ends first.
    fn evict(&mut self) {
        let first =
            self.entries.iter().min_by_key(|(_, entry)| entry.expires()).map(|(path, _)| path.clone());
        if let Some(path) = first {
            self.entries.remove(&path);
        }
    }

    fn retain(&mut self, mut change: impl FnMut(&str, &mut Entry)) {
        self.version += 1;
        let mut deepest = 0;
        self.entries.retain(|path, entry| {
            change(path, entry);
            let keep = entry.served.is_some() || entry.cut.is_some();
            if keep {
                deepest = deepest.max(topic::depth(path));
            }
            keep
        });
        self.deepest = deepest;
    }
}

impl Entry {
    fn lookup(&self, now: Micros) -> Option<(Lookup, Micros)> {
        let holds = |fact: &&Fact| now < fact.expires;
        let served = self.served.as_ref().filter(holds).map(|fact| (Lookup::Owner(fact.node), fact.expires));
        let cut = || self.cut.as_ref().filter(holds).map(|fact| (Lookup::Below(fact.node), fact.expires));
        served.or_else(cut)
    }

    fn forget(&mut self, is_it: impl Fn(&Fact) -> bool) {
        self.served = self.served.filter(|fact| !is_it(fact));
        self.cut = self.cut.filter(|fact| !is_it(fact));
    }

    fn expires(&self) -> Option<Micros> {
        self.served.iter().chain(&self.cut).map(|fact| fact.expires).max()
    }
}

#[cfg(test)]
mod tests;
