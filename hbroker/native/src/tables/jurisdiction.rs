//! What a node owns (§1): the subtrees that were granted to it, without the cuts that it delegated.
//!
//! The longest entry that contains a topic decides. Only prefixes of depths at which there are entries are
//! looked up.

use std::net::SocketAddr;

use hashbrown::HashMap;

use crate::Micros;
use crate::keyed_hash::KeyedHash;
use crate::topic;
use crate::wire::CutView;

/// A subtree that is delegated to another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The delegated subtree.
    pub subtree: Box<str>,
    /// The name of the node that owns it.
    pub node: Box<str>,
    /// The address of that node.
    pub address: SocketAddr,
    /// The epoch of the delegation.
    pub epoch: u64,
}

impl Cut {
    /// The delegation in a packet; `None` if it contains no address.
    pub fn from_view(view: CutView<'_>) -> Option<Self> {
        let CutView { subtree, node, address, epoch } = view;
        Some(Self { subtree: subtree.into(), node: node.into(), address: address?, epoch })
    }

    pub fn view(&self) -> CutView<'_> {
        CutView { subtree: &self.subtree, node: &self.node, address: Some(self.address), epoch: self.epoch }
    }
}

/// A subtree that this node owns, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The epoch of the grant. A grant with a lower epoch is refused.
    pub epoch: u64,
    /// False: messages are refused until the handover is complete (§5.4).
    pub serving: bool,
    /// Only the node itself publishes here (§7.2).
    pub reserved: bool,
    /// Recovery: the subscribers of the former owner are on their way back (§5.8). Messages that must reach
    /// them are refused.
    pub recovering: bool,
    /// The end of the lease (§5.6). The grant ends then, whatever happens to the node that granted it.
    pub until: Micros,
}

/// Which node owns a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision<'a> {
    /// This node owns and serves it.
    Own(&'a Grant),
    /// This node owns it, and a handover is in progress: no node serves it now (§5.4).
    HandingOver,
    /// Another node owns it: it is delegated.
    Elsewhere(&'a Cut),
    /// Outside of all grants, or the grant has ended.
    NotMine,
}

/// The grants and cuts of one node.
pub struct Jurisdiction {
    entries: HashMap<Box<str>, Entry, KeyedHash>,
    /// The number of entries at each depth.
    at_depth: Vec<usize>,
}

/// The state of one subtree. If it is both cut and granted, it counts as cut: in doubt a node does not serve.
#[derive(Default)]
struct Entry {
    cut: Option<Cut>,
    grant: Option<Grant>,
}

impl Jurisdiction {
    /// Owns nothing. `seed`: random and secret.
    pub fn new(seed: u64) -> Self {
        Self { entries: HashMap::with_hasher(KeyedHash::new(seed)), at_depth: Vec::new() }
    }

    /// Grants this subtree, or renews the grant before the lease ends. False: there is a grant with a higher
    /// epoch, and nothing is changed.
    pub fn grant(&mut self, subtree: &str, grant: Grant) -> bool {
        let entry = self.entry(subtree);
        if entry.grant.is_some_and(|held| held.epoch > grant.epoch) {
            return false;
        }
        entry.grant = Some(grant);
        true
    }

    /// Revokes the grant of this subtree. False: there was none.
    pub fn revoke(&mut self, subtree: &str) -> bool {
        self.take(subtree, |entry| entry.grant.take().is_some())
    }

    /// Delegates a subtree. False: it is delegated with a higher epoch, and nothing is changed.
    pub fn cut(&mut self, cut: Cut) -> bool {
        let entry = self.entry(&cut.subtree);
        if entry.cut.as_ref().is_some_and(|held| held.epoch > cut.epoch) {
            return false;
        }
        entry.cut = Some(cut);
        true
    }

    /// Ends a delegation. False: there was none.
    pub fn uncut(&mut self, subtree: &str) -> bool {
        self.take(subtree, |entry| entry.cut.take().is_some())
    }

    /// Which node owns this topic.
    pub fn decide(&self, topic: &str, now: Micros) -> Decision<'_> {
        let Some(deepest) = self.at_depth.len().checked_sub(1) else {
            return Decision::NotMine;
        };
        let longest = topic::prefix_to_depth(topic, deepest);
        topic::prefixes(longest)
            .zip((0..=topic::depth(longest)).rev())
            // An empty first level has no subtree of its own.
            .filter(|&(prefix, depth)| self.at_depth[if prefix.is_empty() { 0 } else { depth }] > 0)
            .find_map(|(prefix, _)| self.entries.get(prefix))
            .map_or(Decision::NotMine, |entry| entry.decision(now))
    }

    fn entry(&mut self, subtree: &str) -> &mut Entry {
        let at_depth = &mut self.at_depth;
        self.entries.entry(subtree.into()).or_insert_with(|| {
            let depth = topic::depth(subtree);
            at_depth.resize(at_depth.len().max(depth + 1), 0);
            at_depth[depth] += 1;
            Entry::default()
        })
    }

    fn take(&mut self, subtree: &str, take: impl FnOnce(&mut Entry) -> bool) -> bool {
        let Some(entry) = self.entries.get_mut(subtree) else {
            return false;
        };
        let taken = take(entry);
        if entry.cut.is_none() && entry.grant.is_none() {
            self.entries.remove(subtree);
            self.at_depth[topic::depth(subtree)] -= 1;
            while self.at_depth.last() == Some(&0) {
                self.at_depth.pop();
            }
        }
        taken
    }
}

impl Entry {
    fn decision(&self, now: Micros) -> Decision<'_> {
        match (&self.cut, &self.grant) {
            (Some(cut), _) => Decision::Elsewhere(cut),
            (None, Some(grant)) if now >= grant.until => Decision::NotMine,
            (None, Some(grant)) if grant.serving => Decision::Own(grant),
            (None, Some(_)) => Decision::HandingOver,
            (None, None) => Decision::NotMine,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    const SUBTREES: [&str; 9] = ["", "a", "a/b", "a/b/c", "a/", "/", "b", "ab", "$SYS/nodes/x"];
    const TOPICS: [&str; 13] = [
        "a",
        "a/b",
        "a/b/c",
        "a/b/c/d",
        "a/bc",
        "ab",
        "abc/d",
        "b/a",
        "/",
        "//x",
        "a//b",
        "$SYS/nodes/x/y",
        "c",
    ];

    fn cut(subtree: &str, epoch: u64) -> Cut {
        Cut { subtree: subtree.into(), node: "n".into(), address: ([127, 0, 0, 1], 7).into(), epoch }
    }

    const fn grant(epoch: u64, serving: bool, until: Micros) -> Grant {
        Grant { epoch, serving, reserved: false, recovering: false, until }
    }

    fn is_own(decision: Decision<'_>) -> bool {
        matches!(decision, Decision::Own(_))
    }

    #[test]
    fn the_longest_entry_decides() {
        let mut jurisdiction = Jurisdiction::new(1);
        assert_eq!(jurisdiction.decide("home", 0), Decision::NotMine);
        jurisdiction.grant("home", grant(1, true, Micros::MAX));
        jurisdiction.cut(cut("home/kitchen", 5));
        jurisdiction.grant("home/kitchen/oven", grant(1, false, Micros::MAX));
        assert!(is_own(jurisdiction.decide("home", 0)));
        assert!(is_own(jurisdiction.decide("home/kitchenette", 0)));
        assert_eq!(jurisdiction.decide("home/kitchen", 0), Decision::Elsewhere(&cut("home/kitchen", 5)));
        assert_eq!(jurisdiction.decide("home/kitchen/oven/door", 0), Decision::HandingOver);
        assert_eq!(jurisdiction.decide("homes", 0), Decision::NotMine);
    }

    #[test]
    fn a_lease_ends_by_itself_and_is_renewed_by_a_later_grant() {
        let mut jurisdiction = Jurisdiction::new(1);
        jurisdiction.grant("", grant(1, true, Micros::MAX));
        jurisdiction.grant("a", grant(1, true, 10));
        assert!(is_own(jurisdiction.decide("a/b", 9)));
        // What encloses it was granted by somebody else: it is no reason to serve what lies below.
        assert_eq!(jurisdiction.decide("a/b", 10), Decision::NotMine);
        assert!(is_own(jurisdiction.decide("b", 10)));
        jurisdiction.grant("a", grant(1, true, 20));
        assert!(is_own(jurisdiction.decide("a/b", 19)));
        jurisdiction.grant("a", grant(1, false, 20));
        assert_eq!(jurisdiction.decide("a/b", 19), Decision::HandingOver);
        assert_eq!(jurisdiction.decide("a/b", 20), Decision::NotMine);
    }

    #[test]
    fn a_lower_epoch_is_refused() {
        let mut jurisdiction = Jurisdiction::new(1);
        assert!(
            jurisdiction.grant("a", grant(5, true, Micros::MAX))
                && !jurisdiction.grant("a", grant(4, false, Micros::MAX))
        );
        assert!(is_own(jurisdiction.decide("a", 0)));
        assert!(jurisdiction.cut(cut("a/b", 5)) && !jurisdiction.cut(cut("a/b", 4)));
        assert!(jurisdiction.uncut("a/b") && !jurisdiction.uncut("a/b") && jurisdiction.cut(cut("a/b", 4)));
    }

    #[test]
    fn agrees_with_a_search_through_all_entries() {
        let mut random = SmallRng::seed_from_u64(1);
        let mut jurisdiction = Jurisdiction::new(1);
        let (mut grants, mut cuts) = (BTreeMap::new(), BTreeMap::new());
        let mut seen = [0; 4];
        for epoch in 0..20_000 {
            let subtree = SUBTREES[random.random_range(0..SUBTREES.len())];
            match random.random_range(0..6) {
                0 => {
                    let grant = grant(epoch, random.random(), Micros::MAX);
                    jurisdiction.grant(subtree, grant);
                    grants.insert(subtree, grant);
                }
                1 => {
                    jurisdiction.cut(cut(subtree, epoch));
                    cuts.insert(subtree, cut(subtree, epoch));
                }
                2 | 3 => assert_eq!(jurisdiction.revoke(subtree), grants.remove(subtree).is_some()),
                _ => assert_eq!(jurisdiction.uncut(subtree), cuts.remove(subtree).is_some()),
            }
            let topic = TOPICS[random.random_range(0..TOPICS.len())];
            let holder = grants.keys().chain(cuts.keys()).filter(|path| topic::is_within(topic, path));
            let expected = match holder.max_by_key(|path| path.len()) {
                None => Decision::NotMine,
                Some(path) if cuts.contains_key(path) => Decision::Elsewhere(&cuts[path]),
                Some(path) if grants[path].serving => Decision::Own(&grants[path]),
                Some(_) => Decision::HandingOver,
            };
            assert_eq!(jurisdiction.decide(topic, 0), expected, "for {topic:?}");
            seen[match expected {
                Decision::Own(_) => 0,
                Decision::HandingOver => 1,
                Decision::Elsewhere(_) => 2,
                Decision::NotMine => 3,
            }] += 1;
        }
        assert!(seen.iter().all(|count| *count > 500), "{seen:?}");
    }
}
