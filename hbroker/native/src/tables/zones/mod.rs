//! The zones that a client has cached (§5.3), as a DNS resolver does.
//!
//! For each subtree there are at most two facts: a node serves it, and the owner above delegated it. The
//! longest subtree that contains a topic and has a fact decides. "Served" takes precedence over "delegated",
//! because its source is nearer. Every fact has a source, the owner that sent it, and a time of expiry.

use std::net::SocketAddr;

use hashbrown::HashMap;

use crate::Micros;
use crate::keyed_hash::KeyedHash;
use crate::tables::jurisdiction::Cut;
use crate::topic;

/// Which node to ask about a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Its owner.
    Owner(SocketAddr),
    /// Not cached. Ask this node, the deepest known one above the owner.
    Below(SocketAddr),
    /// Not cached. Ask the root.
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

/// According to `source`, this subtree belongs to `node` until `expires`. (For a served subtree the source is
/// the node itself.)
#[derive(Clone, Copy)]
struct Fact {
    node: SocketAddr,
    source: SocketAddr,
    expires: Micros,
}

impl Zones {
    /// An empty cache of at most `max_entries` (at least one) subtrees. `seed`: random and secret.
    pub fn new(max_entries: usize, seed: u64) -> Self {
        Self {
            max_entries: max_entries.max(1),
            entries: HashMap::with_hasher(KeyedHash::new(seed)),
            deepest: 0,
            version: 0,
        }
    }

    /// A result of [`Self::find`] is valid while the version stays the same, until the time in the result.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Which node to ask about a topic now, and until when that is valid; None: not cached.
    pub fn find(&self, topic: &str, now: Micros) -> Option<(Lookup, Micros)> {
        topic::prefixes_to_depth(topic, self.deepest).find_map(|prefix| self.entries.get(prefix)?.lookup(now))
    }

    /// Which node to ask about a topic now.
    pub fn lookup(&self, topic: &str, now: Micros) -> Lookup {
        self.find(topic, now).map_or(Lookup::Unknown, |(lookup, _)| lookup)
    }

    /// `owner` serves `scope` without `cuts`, which is the complete list. Facts that contradict this are
    /// dropped.
    pub fn install(&mut self, scope: &str, cuts: &[Cut], owner: SocketAddr, expires: Micros) {
        let cut_above = |path: &str| cuts.iter().find(|cut| topic::is_within(path, &cut.subtree));
        self.retain(|path, entry| {
            if !topic::is_within(path, scope) {
                return;
            }
            match cut_above(path) {
                // The fact from the owner that delegated the scope stays: it leads to the next owner once
                // this one is dropped.
                None if path == scope => entry.served = None,
                None => *entry = Entry::default(),
                // Nothing older is valid for the cut itself, except the fact that the new owner sent.
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

    /// `owner` refused a message with `topic`, and sent `cut` (§7.2). Afterwards `owner` does not count as
    /// the owner of the topic.
    ///
    /// A cut that does not contain the topic explains nothing (the empty subtree means the same: begin at the
    /// root). Then all facts from `owner` are dropped.
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

    /// Drops all facts from an owner, or everything.
    pub fn forget(&mut self, owner: Option<SocketAddr>) {
        self.retain(|_, entry| entry.forget(|fact| owner.is_none_or(|owner| fact.source == owner)));
    }

    /// How many subtrees have a fact.
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

    /// Drops the subtree whose last fact expires first.
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
