//! Connected sessions share their half of the memory for queues by hosts, as those that are away share the other (§7.7, §7.8, ADR 30).
//!
//! What counts is what waits for a session, and what is in flight to it. It is counted in steps, and exactly each time the sessions are looked at:
//! a message costs a comparison. What a session may have is what its host leaves of what that may have (`shares`); how much of it is held decides:
//!
//! | more than | from then on | until no more than |
//! |---|---|---|
//! | a half | little is in flight to it, so that what comes waits | a half |
//! | a half | who publishes to it is held back, as where half of its queue waits (`holds`) | a quarter |
//! | all | it is *full*: what is for it is refused before anybody has it, and its publisher is held back, too | a half |
//!
//! All workers of a node know which sessions are full, for each refuses what comes over its links. As a rule none is: that costs a message nothing.

use rustc_hash::FxHashSet;

use crate::engine::Engine;
use crate::engine::transport::outbound::{Handoff, Outbound};
use crate::link_id::{LinkId, SessionKey};
use crate::tables::match_set::{Overflow, Subscriber};

/// The sessions of all workers that are full.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FullSessions {
    sessions: FxHashSet<SessionKey>,
}

impl FullSessions {
    /// A session is full, or is so no more.
    pub fn set(&mut self, session: SessionKey, is_full: bool) {
        if is_full {
            self.sessions.insert(session);
        } else {
            self.sessions.remove(&session);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    pub fn has(&self, session: SessionKey) -> bool {
        !self.is_empty() && self.sessions.contains(&session)
    }

    /// Those of these that may not get a message, for they are full and would lose nothing of it.
    pub fn among(&self, subscribers: impl Iterator<Item = Subscriber>) -> impl Iterator<Item = SessionKey> {
        let keeps =
            |subscriber: &Subscriber| subscriber.qos > 0 && subscriber.overflow == Overflow::DropOldest;
        let subscribers = (!self.is_empty()).then_some(subscribers).into_iter().flatten();
        subscribers
            .filter(move |subscriber| keeps(subscriber) && self.has(subscriber.session))
            .map(|it| it.session)
    }
}

impl Outbound {
    /// Weighs a session, if what is held for it has changed by a step, or if it has more than half of what it may have.
    pub(in crate::engine) fn weigh_if_changed(&mut self, key: SessionKey) {
        if self.sessions.get(key).is_some_and(|session| session.is_capped || session.is_miscounted()) {
            self.weigh(key);
        }
    }

    /// Counts what is held for a session, or for one that is gone, and looks how much that is of what it may have.
    pub(in crate::engine) fn weigh(&mut self, key: SessionKey) {
        self.sessions.count(key);
        let session = self.sessions.get(key);
        let is_half = session.is_some_and(|session| self.sessions.is_fuller_than(2, session));
        let was_full = self.full.has(key);
        let is_full = is_half
            && session.is_some_and(|session| {
                session.is_ready()
                    && !session.is_bounded
                    && (was_full || self.sessions.is_fuller_than(1, session))
            });
        if let Some(session) = self.sessions.get_mut(key) {
            session.is_capped = is_half;
        }
        if is_full != was_full {
            self.full.set(key, is_full);
            self.pending.full.push((key, is_full));
        }
    }

    /// A message that came over a link was refused, for this session is full.
    pub(in crate::engine) fn note_refused(&mut self, session: SessionKey, link: LinkId) {
        let is_known = self.links.awake(link).is_none_or(|entry| entry.holders.contains_key(&session));
        if session.worker() == link.worker() {
            self.hold_back(session, link);
        } else if !is_known {
            self.handoffs.push_back((session.worker(), Handoff::Refused { session, link }));
        }
    }

    /// A session of this worker holds back who publishes to it over a link, while it is full.
    pub(in crate::engine) fn hold_back(&mut self, session: SessionKey, link: LinkId) {
        if self.full.has(session) && self.sessions.get(session).is_some() {
            self.pending.holds.extend(self.holds.add(session, link));
        }
    }
}

impl Engine {
    /// Tells the other workers that a session is full, or is so no more.
    pub(in crate::engine) fn tell_full(&mut self, session: SessionKey, is_full: bool) {
        for worker in (0..self.workers).filter(|&worker| worker != self.worker) {
            self.out.handoffs.push_back((worker, Handoff::Full { session, is_full }));
        }
    }
}
