//! Which sessions are full, and which publishers' links crowded sessions hold (`throttle`, §7.7).

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

/// A session begins to hold a publisher's link, or releases it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    pub session: SessionKey,
    pub link: LinkId,
    pub is_held: bool,
}

/// The crowded sessions of one worker, each with the links that it holds.
#[derive(Debug, Default)]
pub struct Holds {
    by_session: FxHashMap<SessionKey, FxHashSet<LinkId>>,
}

impl Holds {
    /// A crowded session gets a message over a link. Returns the `Hold` to carry out, if the session did not
    /// hold this link before.
    pub fn add(&mut self, session: SessionKey, link: LinkId) -> Option<Hold> {
        let is_new = self.by_session.entry(session).or_default().insert(link);
        is_new.then_some(Hold { session, link, is_held: true })
    }

    /// A session releases all links that it holds.
    pub fn release(&mut self, session: SessionKey) -> impl Iterator<Item = Hold> + use<> {
        let links = self.by_session.remove(&session).unwrap_or_default();
        links.into_iter().map(move |link| Hold { session, link, is_held: false })
    }

    /// A link has ended.
    pub fn forget(&mut self, link: LinkId) {
        self.by_session.values_mut().for_each(|links| _ = links.remove(&link));
    }

    /// Whether no session is crowded.
    pub fn is_empty(&self) -> bool {
        self.by_session.is_empty()
    }

    /// The number of held links, each counted once for each session that holds it.
    pub fn len(&self) -> usize {
        self.by_session.values().map(FxHashSet::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn each_link_is_held_once_by_a_session_and_let_go_once() {
        let (one, other) = (SessionKey(1), SessionKey(2));
        let mut holds = Holds::default();
        assert!(holds.add(one, LinkId(7)).is_some_and(|hold| hold.is_held));
        assert!(holds.add(one, LinkId(7)).is_none() && holds.add(one, LinkId(8)).is_some());
        assert!(holds.add(other, LinkId(7)).is_some());
        assert_eq!(holds.len(), 3);
        let mut released: Vec<_> = holds.release(one).map(|hold| (hold.link, hold.is_held)).collect();
        released.sort();
        assert_eq!(released, [(LinkId(7), false), (LinkId(8), false)]);
        assert_eq!(holds.release(one).count(), 0);
        holds.forget(LinkId(7));
        assert_eq!((holds.release(other).count(), holds.is_empty()), (0, true));
    }
}
