//! From a topic to its subscribers: the tables decide, and a cache (`routes/cache.rs`) remembers (§7.2).
//!
//! The tables are changed only through the methods here. Each change invalidates the whole cache, with one
//! exception: a filter without wildcards invalidates only its own topic. The end of a lease changes no table,
//! and is compared for each message.

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

/// Why an owner does not take a message over.
#[derive(Clone, Debug)]
pub enum Refusal {
    InvalidTopic,
    InvalidMessage,
    /// The topic is not this node's. With the cut that it lies in, if one is known.
    NotResponsible(Option<Cut>),
    Handover,
    /// Only this node itself publishes on this topic.
    NotAuthorized,
    /// Its publisher id is not that of the session that it came in (§7.9).
    ForeignPublisher,
    /// It expired on the way (§7.8).
    Expired,
    /// One of three bounds is reached (§7.7): the queues of sessions that count as connected, the queue of
    /// one of the message's sessions, or what its publisher may send.
    QueuesFull,
}

impl Refusal {
    /// The counter of this refusal, and the reason in the PUBACK.
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

/// The route of a topic that this node owns.
#[derive(Clone, Copy, Debug)]
pub struct Route<'a> {
    /// Each subscribed session, once.
    pub subscribers: &'a [Subscriber],
    /// Each shared group; one member of each gets the message.
    pub groups: &'a GroupList,
    /// Only this node itself publishes on this topic.
    pub reserved: bool,
    /// Recovery: its subscribers are not all back yet.
    pub gathering: bool,
    /// Where the cache remembers the load counter of this topic; `None`: the route is not cached.
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
    /// Empty tables. `seed` is random and secret.
    pub fn new(seed: u64) -> Self {
        Self {
            jurisdiction: Jurisdiction::new(seed),
            subscriptions: SubscriptionTrie::new(seed),
            matches: MatchSet::default(),
            version: 1,
            cache: Cache::new(),
        }
    }

    /// The subtrees that this node owns.
    pub fn jurisdiction(&self) -> &Jurisdiction {
        &self.jurisdiction
    }

    /// The subtrees that this node owns, to be changed. Invalidates the cache.
    pub fn jurisdiction_mut(&mut self) -> &mut Jurisdiction {
        self.version += 1;
        &mut self.jurisdiction
    }

    /// Adds a subscription, or replaces its options, as [`SubscriptionTrie::insert`] does.
    pub fn subscribe(&mut self, filter: &str, group: &str, subscriber: Subscriber) -> bool {
        self.forget_matches(filter);
        self.subscriptions.insert(filter, group, subscriber)
    }

    /// Removes a subscription, as [`SubscriptionTrie::remove`] does.
    pub fn unsubscribe(&mut self, filter: &str, group: &str, session: SessionKey) -> bool {
        self.forget_matches(filter);
        self.subscriptions.remove(filter, group, session)
    }

    /// A session has ended. If it had no subscriptions, the cache stays valid: publishers come and go.
    pub fn forget_session(&mut self, session: SessionKey) {
        if self.subscriptions.remove_session(session) > 0 {
            self.version += 1;
        }
    }

    /// The route of a topic now.
    ///
    /// # Errors
    /// Why this node does not take its messages.
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

    /// Messages on these topics will be looked up soon.
    pub fn expect<'a>(&self, topics: impl Iterator<Item = &'a str>) {
        if self.cache.is_far() {
            topics.for_each(|topic| self.cache.touch(topic));
        }
    }

    /// The groups that match a topic, whether or not this node owns it.
    pub fn groups(&mut self, topic: &str) -> &GroupList {
        self.subscriptions.collect_matches(topic, &mut self.matches);
        self.matches.groups()
    }

    /// Whether the group of this name that has the shared subscription with this id matches a topic.
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

    /// Invalidates the routes that a filter may be part of: that of one topic if it has no wildcards, else
    /// all. (To look for the matching entries would cost more than to look the topics up again, when many
    /// clients subscribe at once.)
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
