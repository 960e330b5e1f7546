//! From a topic to those who get its messages: the tables decide, and a cache remembers (§7.2).
//!
//! Tables are changed through the methods here alone, and with each change all that is remembered ends, but that a filter without
//! wildcards touches its own topic alone. The end of a lease changes no table, and is compared for each message.

use std::cell::Cell;

use crate::Micros;
use crate::engine::metrics::counters::Drop;
use crate::link_id::SessionKey;
use crate::load::topics::Mark;
use crate::schema::reason;
use crate::tables::groups::GroupList;
use crate::tables::jurisdiction::{Cut, Decision, Jurisdiction};
use crate::tables::match_set::{MatchSet, Subscriber};
use crate::tables::trie::SubscriptionTrie;
use crate::topic;

mod cache;

use crate::engine::owner::routes::cache::Cache;

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
    /// Its publisher id is not that of the session that it came in (§7.9).
    ForeignPublisher,
    /// It outlived its expiry on the way (§7.8).
    Expired,
    /// Too much waits for sessions that count as connected, or for one that it is for, or its publisher sends more than it may (§7.7).
    QueuesFull,
}

impl Refusal {
    /// What it is counted as, and the reason that the publisher is told.
    pub fn drop_and_reason(&self) -> (Drop, i32) {
        match self {
            Self::InvalidTopic => (Drop::InvalidMessage, reason::TOPIC_NAME_INVALID),
            Self::InvalidMessage => (Drop::InvalidMessage, reason::PROTOCOL_ERROR),
            Self::NotResponsible(_) => (Drop::NotResponsible, reason::NOT_RESPONSIBLE),
            Self::Handover => (Drop::Handover, reason::HANDOVER),
            Self::Expired => (Drop::Expired, reason::MESSAGE_EXPIRED),
            Self::QueuesFull => (Drop::QueuesFull, reason::QUOTA_EXCEEDED),
            Self::NotAuthorized => (Drop::NotAuthorized, reason::NOT_AUTHORIZED),
            Self::ForeignPublisher => (Drop::ForeignPublisher, reason::NOT_AUTHORIZED),
        }
    }
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
    cache: Cache,
}

impl Routes {
    /// Empty tables. `seed`: random and secret.
    pub fn new(seed: u64) -> Self {
        Self {
            jurisdiction: Jurisdiction::new(seed),
            subscriptions: SubscriptionTrie::new(seed),
            matches: MatchSet::default(),
            version: 1,
            cache: Cache::new(),
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
        let Self { jurisdiction, subscriptions, matches, version, cache } = self;
        if let Some(slot) = cache.find(topic, *version, now) {
            return Ok(cache.route(slot));
        }
        if !topic::topic_is_valid(topic) {
            return Err(Refusal::InvalidTopic);
        }
        let grant = match jurisdiction.decide(topic, now) {
            Decision::Own(grant) => *grant,
            Decision::HandingOver => return Err(Refusal::Handover),
            Decision::Elsewhere(cut) => return Err(Refusal::NotResponsible(Some(cut.clone()))),
            Decision::NotMine => return Err(Refusal::NotResponsible(None)),
        };
        subscriptions.collect_matches(topic, matches);
        let (subscribers, groups) = (matches.subscribers(), matches.groups());
        let (reserved, gathering) = (grant.reserved, grant.gathering);
        let route = Route { subscribers, groups, reserved, gathering, mark: None };
        cache.put(now, topic, *version, grant.until, route);
        Ok(route)
    }

    /// Messages on these topics are looked up soon.
    pub fn expect<'a>(&self, topics: impl Iterator<Item = &'a str>) {
        if self.cache.is_far() {
            topics.for_each(|topic| self.cache.touch(topic));
        }
    }

    /// The groups that get the messages of a topic, whoever owns that.
    pub fn groups(&mut self, topic: &str) -> &GroupList {
        self.subscriptions.collect_matches(topic, &mut self.matches);
        self.matches.groups()
    }

    /// Whether the group of this name that has the shared subscription with this id gets the messages of a topic.
    pub fn has_group(&mut self, name: &str, id: u64, topic: &str) -> bool {
        self.groups(topic).find(name, id).is_some()
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
            self.cache.forget(filter);
        }
    }
}

#[cfg(test)]
mod tests;
