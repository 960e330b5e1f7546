//! Subscriptions, at their node and at their session.

use std::hash::BuildHasher;

use rustc_hash::FxBuildHasher;

use super::{Filter, Session, Subscription, SubscriptionTrie};
use crate::link_id::SessionKey;
use crate::tables::few::Few;
use crate::tables::groups::OWN;

impl SubscriptionTrie {
    /// The slot of a session: for its own subscriptions, or as a member of a group.
    pub(super) fn find_session(&self, id: SessionKey, group: u32) -> Option<u32> {
        let is_it = |slot: &u32| (self.sessions[*slot].id, self.sessions[*slot].group) == (id, group);
        self.session_slots.find(session_hash(id, group), is_it).copied()
    }

    pub(super) fn make_session(&mut self, id: SessionKey, group: &str) -> u32 {
        let number = if group.is_empty() { Some(OWN) } else { self.groups.number(group) };
        if let Some(slot) = number.and_then(|number| self.find_session(id, number)) {
            return slot;
        }
        let number = if group.is_empty() { OWN } else { self.groups.acquire(group) };
        if number != OWN {
            self.memberships.insert((id, number));
        }
        let slot = self.sessions.insert(Session { id, group: number, filters: Few::None });
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

    /// Every slot of a session.
    pub(super) fn slots_of(&self, id: SessionKey) -> Vec<u32> {
        let groups = self.memberships.range((id, 0)..=(id, OWN)).map(|&(_, group)| group);
        groups.chain([OWN]).filter_map(|group| self.find_session(id, group)).collect()
    }
    /// Where among the node's subscriptions the session's is. Searched for in the shorter of the two lists.
    pub(super) fn position(&self, node: u32, session: u32) -> Option<u32> {
        let (subscriptions, filters) = (self.subscriptions(node), self.filters(session));
        if subscriptions.len() <= filters.len() {
            subscriptions.iter().position(|each| each.session == session).map(|position| position as u32)
        } else {
            filters.iter().find(|filter| filter.node == node).map(|filter| filter.position)
        }
    }

    /// Removes the subscription at this position of a node, and what existed only for it.
    pub(super) fn detach(&mut self, node: u32, position: u32) {
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
    }

    pub(super) fn subscriptions(&self, node: u32) -> &[Subscription] {
        self.nodes[node].subscriptions.as_slice(&self.crowds)
    }

    pub(super) fn filters(&self, session: u32) -> &[Filter] {
        self.sessions[session].filters.as_slice(&self.session_crowds)
    }

    fn filters_mut(&mut self, session: u32) -> &mut [Filter] {
        self.sessions[session].filters.as_mut_slice(&mut self.session_crowds)
    }

    pub(super) fn subscriptions_mut(&mut self, node: u32) -> &mut [Subscription] {
        self.nodes[node].subscriptions.as_mut_slice(&mut self.crowds)
    }
}

impl Default for Session {
    fn default() -> Self {
        Self { id: SessionKey(0), group: OWN, filters: Few::None }
    }
}

/// Sessions and groups are named by this core, not by strangers.
fn session_hash(id: SessionKey, group: u32) -> u64 {
    FxBuildHasher.hash_one((id, group))
}
