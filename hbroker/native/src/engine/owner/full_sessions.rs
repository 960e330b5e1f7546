//! Connected sessions share their half of the memory for queues by hosts, as offline sessions share the other
//! half (§7.7, §7.8, ADR 30).
//!
//! A session is charged for what is queued for it and what is in flight to it. The charge is updated in
//! steps, and exactly whenever the sessions are looked at, so that a message costs one comparison. The share
//! of a session is what the share of its host leaves free (`shares`). How much of its share a session uses
//! decides:
//!
//! | used | effect | until at most |
//! |---|---|---|
//! | more than a half | the window of messages in flight to it is small, so that further messages are queued | a half |
//! | more than a half | its publishers are held back, as if half of its queue were used (`holds`) | a quarter |
//! | all | it is *full*: its messages are refused before any subscriber has them, and their publishers are held back | a half |
//!
//! All workers of a node know which sessions are full, because each worker refuses messages that come over
//! its own links. As a rule no session is full; then this costs nothing for a message.

use rustc_hash::FxHashSet;

use crate::engine::Engine;
use crate::engine::transport::outbound::{Handoff, Outbound};
use crate::link_id::{LinkId, SessionKey};
use crate::tables::match_set::{Overflow, Subscriber};

/// The full sessions of all workers.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FullSessions {
    sessions: FxHashSet<SessionKey>,
}

impl FullSessions {
    /// Records that a session is full, or is full no more.
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

    /// The sessions that are full and must lose nothing (`QoS` 1 or 2, `Overflow::DropOldest`) among these
    /// subscribers.
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
    /// Weighs a session if its charge has changed by a step, or if it uses more than half of its share.
    pub(in crate::engine) fn weigh_if_changed(&mut self, key: SessionKey) {
        if self.sessions.get(key).is_some_and(|session| session.is_capped || session.is_miscounted()) {
            self.weigh(key);
        }
    }

    /// Updates the charge of a session, which may have ended, and compares it with its share.
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

    /// A message that came over a link was refused, because this session is full.
    pub(in crate::engine) fn note_refused(&mut self, session: SessionKey, link: LinkId) {
        let is_known = self.links.awake(link).is_none_or(|entry| entry.holders.contains_key(&session));
        if session.worker() == link.worker() {
            self.hold_back(session, link);
        } else if !is_known {
            self.handoffs.push_back((session.worker(), Handoff::Refused { session, link }));
        }
    }

    /// A session of this worker holds a publisher's link back, while it is full.
    pub(in crate::engine) fn hold_back(&mut self, session: SessionKey, link: LinkId) {
        if self.full.has(session) && self.sessions.get(session).is_some() {
            self.pending.holds.extend(self.holds.add(session, link));
        }
    }
}

impl Engine {
    /// Reports to the other workers that a session is full, or is full no more.
    pub(in crate::engine) fn tell_full(&mut self, session: SessionKey, is_full: bool) {
        for worker in (0..self.workers).filter(|&worker| worker != self.worker) {
            self.out.handoffs.push_back((worker, Handoff::Full { session, is_full }));
        }
    }
}
