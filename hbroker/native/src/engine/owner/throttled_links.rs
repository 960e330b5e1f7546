//! Which sessions are full, and which publishers' links are throttled by congested sessions (`throttle`, §7.7).

use rustc_hash::{FxHashMap, FxHashSet};

use crate::link_id::{LinkId, SessionKey};
use crate::tables::subscriber::{Overflow, Subscriber};

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

/// A session begins to throttle a publisher's link, or releases it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThrottleChange {
    pub session: SessionKey,
    pub link: LinkId,
    pub is_throttled: bool,
}

/// The congested sessions of one worker, each with the links that it throttles.
#[derive(Debug, Default)]
pub struct ThrottledLinks {
    by_session: FxHashMap<SessionKey, FxHashSet<LinkId>>,
}

impl ThrottledLinks {
    /// A congested session gets a message over a link. Returns the change to carry out, if the session did not throttle
    /// this link before.
    pub fn add(&mut self, session: SessionKey, link: LinkId) -> Option<ThrottleChange> {
        let is_new = self.by_session.entry(session).or_default().insert(link);
        is_new.then_some(ThrottleChange { session, link, is_throttled: true })
    }

    /// A session releases all links that it throttles.
    pub fn release(&mut self, session: SessionKey) -> impl Iterator<Item = ThrottleChange> + use<> {
        let links = self.by_session.remove(&session).unwrap_or_default();
        links.into_iter().map(move |link| ThrottleChange { session, link, is_throttled: false })
    }

    /// A link has ended.
    pub fn forget(&mut self, link: LinkId) {
        self.by_session.values_mut().for_each(|links| _ = links.remove(&link));
    }

    /// Whether no session throttles a link.
    pub fn is_empty(&self) -> bool {
        self.by_session.is_empty()
    }

    /// The number of throttled links, each counted once for each session that throttles it.
    pub fn len(&self) -> usize {
        self.by_session.values().map(FxHashSet::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn a_session_throttles_each_link_once_and_releases_it_once() {
        let (one, other) = (SessionKey(1), SessionKey(2));
        let mut throttled_links = ThrottledLinks::default();
        assert!(throttled_links.add(one, LinkId(7)).is_some_and(|change| change.is_throttled));
        assert!(
            throttled_links.add(one, LinkId(7)).is_none() && throttled_links.add(one, LinkId(8)).is_some()
        );
        assert!(throttled_links.add(other, LinkId(7)).is_some());
        assert_eq!(throttled_links.len(), 3);
        let mut released: Vec<_> =
            throttled_links.release(one).map(|change| (change.link, change.is_throttled)).collect();
        released.sort();
        assert_eq!(released, [(LinkId(7), false), (LinkId(8), false)]);
        assert_eq!(throttled_links.release(one).count(), 0);
        throttled_links.forget(LinkId(7));
        assert_eq!((throttled_links.release(other).count(), throttled_links.is_empty()), (0, true));
    }
}
