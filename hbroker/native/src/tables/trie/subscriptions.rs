//! Subscriptions, at their filter and at their session.

use std::borrow::Cow;
use std::hash::BuildHasher;

use rustc_hash::FxBuildHasher;

use super::{Filter, Options, Place, Session, Subscription, SubscriptionTrie};
use crate::link_id::SessionKey;
use crate::tables::groups::OWN;
use crate::tables::small_list::{Crowds, Few};
use crate::topic;

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
        let number = if group.is_empty() { OWN } else { self.groups.acquire(group.into()) };
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

    /// Where a filter is.
    pub(super) fn find(&self, filter: &str) -> Option<Place> {
        if topic::has_wildcards(filter) {
            self.find_node(filter).map(Place::Node)
        } else {
            self.plain.find(filter).map(Place::Plain)
        }
    }

    /// Where a filter is from now on.
    pub(super) fn make(&mut self, filter: &str) -> Place {
        if topic::has_wildcards(filter) {
            Place::Node(self.make_node(filter))
        } else {
            Place::Plain(self.plain.make(filter))
        }
    }

    /// The filter that is there.
    pub(super) fn text(&self, place: Place) -> Cow<'_, str> {
        match place {
            Place::Plain(filter) => self.plain.text(filter).into(),
            Place::Node(node) => self.filter_of(node).into(),
        }
    }

    /// Where among a filter's subscriptions the session's is. Searched for in the shorter of the two lists.
    pub(super) fn position(&self, place: Place, session: u32) -> Option<u32> {
        let (subscriptions, filters) = (self.subscriptions(place), self.filters(session));
        if subscriptions.len() <= filters.len() {
            subscriptions.iter().position(|each| each.session == session).map(|position| position as u32)
        } else {
            filters.iter().find(|filter| filter.place == place).map(|filter| filter.position)
        }
    }

    /// Adds a subscription that is not there yet.
    pub(super) fn attach(&mut self, place: Place, session: u32, options: Options, shared: u32) {
        let filter = Filter { place, position: self.subscriptions(place).len() as u32 };
        let Session { id, .. } = self.sessions[session];
        let position = self.filters(session).len() as u32;
        let subscription = Subscription { id, session, position, options, shared };
        self.sessions[session].filters.push(filter, &mut self.session_crowds);
        let (list, crowds) = self.list_mut(place);
        list.push(subscription, crowds);
        self.len += 1;
    }

    /// Removes the subscription at this position of a filter, and what existed only for it.
    pub(super) fn detach(&mut self, place: Place, position: u32) {
        let (list, crowds) = self.list_mut(place);
        let Some(gone) = list.swap_remove(position, crowds) else {
            return;
        };
        if gone.shared != OWN {
            self.shared_ids.release(gone.shared);
        }
        if let Some(&moved) = self.subscriptions(place).get(position as usize) {
            self.filters_mut(moved.session)[moved.position as usize].position = position;
        }
        self.sessions[gone.session].filters.swap_remove(gone.position, &mut self.session_crowds);
        if let Some(&moved) = self.filters(gone.session).get(gone.position as usize) {
            self.subscriptions_mut(moved.place)[moved.position as usize].position = gone.position;
        }
        if self.filters(gone.session).is_empty() {
            self.drop_session(gone.session);
        }
        match place {
            Place::Plain(filter) if self.subscriptions(place).is_empty() => self.plain.remove(filter),
            Place::Plain(_) => {}
            Place::Node(node) => self.prune(node),
        }
        self.len -= 1;
    }

    pub(super) fn subscriptions(&self, place: Place) -> &[Subscription] {
        let list = match place {
            Place::Plain(filter) => &self.plain[filter].subscriptions,
            Place::Node(node) => &self.nodes[node].subscriptions,
        };
        list.as_slice(&self.crowds)
    }

    pub(super) fn subscriptions_mut(&mut self, place: Place) -> &mut [Subscription] {
        let (list, crowds) = self.list_mut(place);
        list.as_mut_slice(crowds)
    }

    fn list_mut(&mut self, place: Place) -> (&mut Few<Subscription>, &mut Crowds<Subscription>) {
        let list = match place {
            Place::Plain(filter) => &mut self.plain[filter].subscriptions,
            Place::Node(node) => &mut self.nodes[node].subscriptions,
        };
        (list, &mut self.crowds)
    }

    pub(super) fn filters(&self, session: u32) -> &[Filter] {
        self.sessions[session].filters.as_slice(&self.session_crowds)
    }

    fn filters_mut(&mut self, session: u32) -> &mut [Filter] {
        self.sessions[session].filters.as_mut_slice(&mut self.session_crowds)
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
