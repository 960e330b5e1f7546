//! Subscriptions, at their filter and at their session.

use std::borrow::Cow;
use std::hash::BuildHasher;

use rustc_hash::FxBuildHasher;

use super::{Filter, FilterLocation, Options, Session, Subscription, SubscriptionTrie};
use crate::link_id::SessionKey;
use crate::tables::arena::{ListArena, SmallList};
use crate::tables::groups::OWN;
use crate::topic;

impl SubscriptionTrie {
    /// The slot of a session: for its own subscriptions, or for its membership of a group.
    pub(super) fn find_session(&self, id: SessionKey, group: u32) -> Option<u32> {
        let is_it = |slot: &u32| (self.sessions[*slot].id, self.sessions[*slot].group) == (id, group);
        self.session_slots.find(session_hash(id, group), is_it).copied()
    }

    pub(super) fn make_session(&mut self, id: SessionKey, group: &str) -> u32 {
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
    pub(super) fn slots_of(&self, id: SessionKey) -> Vec<u32> {
        let groups = self.memberships.range((id, 0)..=(id, OWN)).map(|&(_, group)| group);
        groups.chain([OWN]).filter_map(|group| self.find_session(id, group)).collect()
    }

    /// Where a filter is stored.
    pub(super) fn find(&self, filter: &str) -> Option<FilterLocation> {
        if topic::has_wildcards(filter) {
            self.find_node(filter).map(FilterLocation::Node)
        } else {
            self.plain.find(filter).map(FilterLocation::Plain)
        }
    }

    /// Where a filter is stored. It is added if it is new.
    pub(super) fn make(&mut self, filter: &str) -> FilterLocation {
        if topic::has_wildcards(filter) {
            FilterLocation::Node(self.make_node(filter))
        } else {
            FilterLocation::Plain(self.plain.make(filter))
        }
    }

    /// The filter at a location.
    pub(super) fn text(&self, location: FilterLocation) -> Cow<'_, str> {
        match location {
            FilterLocation::Plain(filter) => self.plain.text(filter).into(),
            FilterLocation::Node(node) => self.filter_of(node).into(),
        }
    }

    /// The index of the session's subscription among those of a filter. It searches the shorter of the two
    /// lists.
    pub(super) fn position(&self, location: FilterLocation, session: u32) -> Option<u32> {
        let (subscriptions, filters) = (self.subscriptions(location), self.filters(session));
        if subscriptions.len() <= filters.len() {
            subscriptions.iter().position(|each| each.session == session).map(|position| position as u32)
        } else {
            filters.iter().find(|filter| filter.location == location).map(|filter| filter.position)
        }
    }

    /// Adds a subscription that is not there yet.
    pub(super) fn attach(&mut self, location: FilterLocation, session: u32, options: Options, shared: u32) {
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
    pub(super) fn detach(&mut self, location: FilterLocation, position: u32) {
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

    pub(super) fn subscriptions(&self, location: FilterLocation) -> &[Subscription] {
        let list = match location {
            FilterLocation::Plain(filter) => &self.plain[filter].subscriptions,
            FilterLocation::Node(node) => &self.nodes[node].subscriptions,
        };
        list.as_slice(&self.list_arena)
    }

    pub(super) fn subscriptions_mut(&mut self, location: FilterLocation) -> &mut [Subscription] {
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

    pub(super) fn filters(&self, session: u32) -> &[Filter] {
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
