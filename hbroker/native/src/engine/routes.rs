//! From a topic to those who get its messages: the tables decide, and a cache remembers (§7.2).
//!
//! Publishers use their topics again and again, so what was found for one is kept. The cache is direct-mapped: a topic has one
//! place in it, by its hash, and who comes later takes it. So a stranger who fills it with topics of his own costs others a
//! search in the tables for each message, and no more. Where topics that are in use take places from one another, the cache
//! grows, but not without end. Its memory is bounded: a long topic, or one with many subscribers, whose copies cost more than the search for
//! them, is not kept.
//!
//! Tables are changed through the methods here alone, and with each change all that is remembered ends, but that a filter without
//! wildcards touches its own topic alone. The end of a lease changes no table, and is compared for each message.

use std::cell::Cell;
use std::hash::Hasher;

use rustc_hash::FxHasher;

use crate::Micros;
use crate::link_id::SessionKey;
use crate::load::topics::Mark;
use crate::tables::groups::GroupList;
use crate::tables::jurisdiction::{Cut, Decision, Jurisdiction};
use crate::tables::match_set::{MatchSet, Subscriber};
use crate::tables::trie::SubscriptionTrie;
use crate::topic;

/// Places in the cache, at first and at most: with one subscriber for each topic 0.2 and 7 MB, and with the next two never over 45 MB.
const PLACES: usize = 1_024;
const MOST_PLACES: usize = 32_768;
/// The cache grows once so many routes for each place were given up that were still good.
const PATIENCE: usize = 8;
const LONGEST_TOPIC: usize = 256;
const MOST_SUBSCRIBERS: usize = 64;

/// Why an owner did not take a message over.
#[derive(Clone, Debug)]
pub enum Refusal {
    InvalidTopic,
    InvalidMessage,
    /// Not ours; the cut that it lies in, where we know.
    NotResponsible(Option<Cut>),
    Handover,
    /// Nobody publishes there but this node.
    NotAuthorized,
    /// It outlived its expiry on the way (§7.8).
    Expired,
}

/// A topic that is this node's.
#[derive(Clone, Copy, Debug)]
pub struct Route<'a> {
    /// Each session that wants its messages, once.
    pub subscribers: &'a [Subscriber],
    /// Each shared group of which one member gets them.
    pub groups: &'a GroupList,
    /// Only this node itself publishes there.
    pub reserved: bool,
    /// Its subscribers are on their way back.
    pub gathering: bool,
    /// Where its messages are counted is remembered here; `None`: the route is not.
    pub mark: Option<&'a Cell<Mark>>,
}

/// The tables of one worker, and the routes that were found last.
pub struct Routes {
    jurisdiction: Jurisdiction,
    subscriptions: SubscriptionTrie,
    matches: MatchSet,
    /// How often a table was changed, from 1.
    version: u64,
    places: Box<[Place]>,
    /// Good routes that were given up since there are so many places.
    given_up: usize,
}

/// A route remembered. Buffers are used again by the next topic in this place.
#[derive(Clone, Default)]
struct Place {
    topic: String,
    /// Of the tables that it was found in; 0: none.
    version: u64,
    /// The end of the lease.
    until: Micros,
    reserved: bool,
    gathering: bool,
    subscribers: Vec<Subscriber>,
    groups: GroupList,
    mark: Cell<Mark>,
}

impl Routes {
    /// Empty tables. `seed`: random and secret.
    pub fn new(seed: u64) -> Self {
        Self {
            jurisdiction: Jurisdiction::new(seed),
            subscriptions: SubscriptionTrie::new(seed),
            matches: MatchSet::default(),
            version: 1,
            places: vec![Place::default(); PLACES].into(),
            given_up: 0,
        }
    }

    /// What is owned.
    pub fn jurisdiction(&self) -> &Jurisdiction {
        &self.jurisdiction
    }

    /// To change what is owned.
    pub fn jurisdiction_mut(&mut self) -> &mut Jurisdiction {
        self.version += 1;
        &mut self.jurisdiction
    }

    /// Adds a subscription, or replaces its options, as [`SubscriptionTrie::insert`].
    pub fn subscribe(&mut self, filter: &str, group: &str, subscriber: Subscriber) -> bool {
        self.forget_matches(filter);
        self.subscriptions.insert(filter, group, subscriber)
    }

    /// Removes a subscription, as [`SubscriptionTrie::remove`].
    pub fn unsubscribe(&mut self, filter: &str, group: &str, session: SessionKey) -> bool {
        self.forget_matches(filter);
        self.subscriptions.remove(filter, group, session)
    }

    /// A session is gone. Where it had no subscriptions nothing that is remembered ends: publishers come and go.
    pub fn forget_session(&mut self, session: SessionKey) {
        if self.subscriptions.remove_session(session) > 0 {
            self.version += 1;
        }
    }

    /// Who gets the messages of a topic now.
    ///
    /// # Errors
    /// Why this node does not take them.
    pub fn find(&mut self, now: Micros, topic: &str) -> Result<Route<'_>, Refusal> {
        let place = self.place_of(topic);
        if self.places[place].leads(topic, self.version, now) {
            return Ok(self.places[place].route());
        }
        if !topic::topic_is_valid(topic) {
            return Err(Refusal::InvalidTopic);
        }
        let grant = match self.jurisdiction.decide(topic, now) {
            Decision::Own(grant) => *grant,
            Decision::HandingOver => return Err(Refusal::Handover),
            Decision::Elsewhere(cut) => return Err(Refusal::NotResponsible(Some(cut.clone()))),
            Decision::NotMine => return Err(Refusal::NotResponsible(None)),
        };
        self.subscriptions.collect_matches(topic, &mut self.matches);
        let is_kept = topic.len() <= LONGEST_TOPIC
            && self.matches.subscribers().len() + self.matches.groups().members() <= MOST_SUBSCRIBERS;
        let place = if is_kept { self.make_room(place, topic, now) } else { place };
        let (subscribers, groups) = (self.matches.subscribers(), self.matches.groups());
        let (reserved, gathering) = (grant.reserved, grant.gathering);
        let route = Route { subscribers, groups, reserved, gathering, mark: None };
        if is_kept {
            self.places[place].remember(topic, self.version, grant.until, route);
        }
        Ok(route)
    }

    /// The groups that get the messages of a topic, whoever owns that.
    pub fn groups(&mut self, topic: &str) -> &GroupList {
        self.subscriptions.collect_matches(topic, &mut self.matches);
        self.matches.groups()
    }

    /// Whether a group of this name, with whatever filter, gets the messages of a topic.
    pub fn has_group(&mut self, name: &str, topic: &str) -> bool {
        self.groups(topic).iter().any(|group| **group.name == *name)
    }

    /// How many subscriptions match a topic.
    pub fn matching(&mut self, topic: &str) -> usize {
        self.subscriptions.collect_matches(topic, &mut self.matches);
        self.matches.subscriptions()
    }

    /// How many subscriptions there are.
    pub fn subscriptions(&self) -> usize {
        self.subscriptions.len()
    }

    /// Forgets the routes that a filter may be part of: of one without wildcards one place alone, else all. (To look through
    /// all places for those that match would cost more, where many subscribe at once, than to search anew.)
    fn forget_matches(&mut self, filter: &str) {
        if topic::has_wildcards(filter) {
            self.version += 1;
        } else {
            self.places[self.place_of(filter)].version = 0;
        }
    }

    /// The place for a topic's route, where a good one of another may give way, or the cache grow.
    fn make_room(&mut self, place: usize, topic: &str, now: Micros) -> usize {
        let Place { version, until, .. } = self.places[place];
        self.given_up += usize::from(version == self.version && now < until);
        if self.given_up < PATIENCE * self.places.len() || self.places.len() >= MOST_PLACES {
            return place;
        }
        self.given_up = 0;
        self.places = vec![Place::default(); 2 * self.places.len()].into();
        self.place_of(topic)
    }

    fn place_of(&self, topic: &str) -> usize {
        let mut hasher = FxHasher::default();
        hasher.write(topic.as_bytes());
        hasher.finish() as usize % self.places.len()
    }
}

impl Place {
    fn leads(&self, topic: &str, version: u64, now: Micros) -> bool {
        self.version == version && now < self.until && self.topic == topic
    }

    fn route(&self) -> Route<'_> {
        Route {
            subscribers: &self.subscribers,
            groups: &self.groups,
            reserved: self.reserved,
            gathering: self.gathering,
            mark: Some(&self.mark),
        }
    }

    fn remember(&mut self, topic: &str, version: u64, until: Micros, route: Route<'_>) {
        self.topic.clear();
        self.topic.push_str(topic);
        self.subscribers.clear();
        self.subscribers.extend_from_slice(route.subscribers);
        self.groups.copy_from(route.groups);
        (self.version, self.until) = (version, until);
        (self.reserved, self.gathering) = (route.reserved, route.gathering);
        self.mark.set(Mark::default());
    }
}

#[cfg(test)]
mod tests;
