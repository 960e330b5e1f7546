//! The sessions that match one topic, each once (§7.4), and the shared groups that match it (§6.5).

use std::sync::Arc;

use crate::tables::groups::{GroupList, Numbered};
use crate::tables::subscriber::Subscriber;

/// A buffer for matches, to be used again for every message. In the long run it does not allocate.
#[derive(Default)]
pub struct MatchSet {
    found: Vec<Subscriber>,
    /// The session slots of the first filter's subscribers. None occurs twice. They are entered in `indexes`
    /// only if a second filter matches.
    first: Vec<u32>,
    subscriptions: usize,
    /// How many filters matched.
    filters: u32,
    /// (index of the filter, group, shared subscription, member), by number, unsorted until the match ends.
    members: Vec<(u32, u32, u32, Subscriber)>,
    groups: GroupList,
    /// By session slot: the session's index in `found`, valid only in the round in which it was entered. So
    /// nothing is cleared between topics.
    indexes: Vec<StampedIndex>,
    /// The number of the look-up.
    round: u32,
    /// The nodes of the trie that match the levels so far, and those one level further.
    pub(crate) frontier: Vec<u32>,
    pub(crate) next: Vec<u32>,
    /// The number of nodes that the last look-up visited.
    #[cfg(test)]
    pub(crate) visited: usize,
}

/// An index, and the round in which it is valid.
#[derive(Clone, Copy, Default)]
struct StampedIndex {
    round: u32,
    index: u32,
}

impl MatchSet {
    /// Each session that matches, once.
    pub fn subscribers(&self) -> &[Subscriber] {
        &self.found
    }

    /// Each shared group that matches, once for each of its matching filters.
    pub fn groups(&self) -> &GroupList {
        &self.groups
    }

    /// How many subscriptions match. A session may have several.
    pub fn subscriptions(&self) -> usize {
        self.subscriptions
    }

    /// Clears the matches, and prepares for session slots below `slots`.
    pub(crate) fn begin(&mut self, slots: usize) {
        self.found.clear();
        self.first.clear();
        self.members.clear();
        self.groups.clear();
        self.subscriptions = 0;
        self.filters = 0;
        self.frontier.clear();
        self.next.clear();
        #[cfg(test)]
        self.forget_visits();
        if self.indexes.len() < slots {
            self.indexes.resize(slots, StampedIndex::default());
        }
        self.round = self.round.wrapping_add(1);
        if self.round == 0 {
            self.indexes.fill(StampedIndex::default());
            self.round = 1;
        }
    }

    /// Begins another filter: the subscribers that are added from now on belong to it.
    pub(crate) fn begin_filter(&mut self) {
        self.filters += 1;
        if self.filters == 2 {
            for (index, &slot) in self.first.iter().enumerate() {
                // No overflow: there is at most one entry for each session slot, and slots have 32 bits.
                self.indexes[slot as usize] = StampedIndex { round: self.round, index: index as u32 };
            }
        }
    }

    /// Adds a subscriber of the filter. (Inlined, because a call would cost twice the work, and a filter may
    /// have thousands of subscribers.)
    #[inline]
    pub(crate) fn add(&mut self, slot: u32, subscriber: Subscriber) {
        self.subscriptions += 1;
        if self.filters == 1 {
            self.first.push(slot);
        } else {
            let indexed = &mut self.indexes[slot as usize];
            if indexed.round == self.round {
                return self.found[indexed.index as usize].merge(subscriber);
            }
            *indexed = StampedIndex { round: self.round, index: self.found.len() as u32 };
        }
        self.found.push(subscriber);
    }

    pub(crate) fn add_member(&mut self, group: u32, shared: u32, subscriber: Subscriber) {
        self.subscriptions += 1;
        self.members.push((self.filters, group, shared, subscriber));
    }

    #[cfg(test)]
    fn forget_visits(&mut self) {
        self.visited = 0;
    }

    #[cfg(test)]
    pub(crate) fn note_visits(&mut self, nodes: usize) {
        self.visited += nodes;
    }

    /// Groups the members by filter and group.
    pub(crate) fn end(&mut self, names: &Numbered<Arc<str>>, ids: &Numbered<u64>) {
        self.members.sort_unstable_by_key(|&(filter, group, ..)| (filter, group));
        let mut last = None;
        for &(filter, group, shared, member) in &self.members {
            let begins = last.replace((filter, group)) != Some((filter, group));
            self.groups.push(begins, names.value(group), *ids.value(shared), member);
        }
    }
}
