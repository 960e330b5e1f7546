//! Which publishers wait for which sessions (§7.7).
//!
//! A session that answers, but whose queue is half full, is *crowded*: whoever publishes to it is held back until no more than a
//! quarter is left, or until nobody waits for the session any more, because it stalled, is away or has ended. A publisher is
//! held by its link, and as often as there are such sessions; it may send again when none of them holds it.
//!
//! The home of a session keeps which links it holds, and the home of a link by how many sessions it is held. What is empty, as
//! most often, costs a message nothing.

use rustc_hash::{FxHashMap, FxHashSet};

use super::Engine;
use crate::Micros;
use crate::engine::outlet::Handoff;
use crate::link_id::{LinkId, SessionKey};

/// A session begins to hold a publisher's link, or lets go of it.
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
    /// A crowded session gets a message over a link. What is to be done about it, if it did not hold that yet.
    pub fn add(&mut self, session: SessionKey, link: LinkId) -> Option<Hold> {
        let is_new = self.by_session.entry(session).or_default().insert(link);
        is_new.then_some(Hold { session, link, is_held: true })
    }

    /// A session lets all go that it holds.
    pub fn release(&mut self, session: SessionKey) -> impl Iterator<Item = Hold> + use<> {
        let links = self.by_session.remove(&session).unwrap_or_default();
        links.into_iter().map(move |link| Hold { session, link, is_held: false })
    }

    /// A link is gone.
    fn forget(&mut self, link: LinkId) {
        self.by_session.values_mut().for_each(|links| _ = links.remove(&link));
    }

    /// No session is crowded.
    pub fn is_empty(&self) -> bool {
        self.by_session.is_empty()
    }

    /// Links that are held, once for each session that does.
    pub fn len(&self) -> usize {
        self.by_session.values().map(FxHashSet::len).sum()
    }
}

impl Engine {
    /// Counts what holds a link of this worker, and tells its publisher.
    pub(super) fn hold(&mut self, now: Micros, hold: Hold) {
        let Hold { session, link, is_held } = hold;
        if link.worker() != self.worker {
            return self.out.handoffs.push_back((link.worker(), Handoff::Hold(hold)));
        }
        if self.out.links.get(link).is_none() {
            if is_held {
                self.forget_holds(session.worker(), link);
            }
            return;
        }
        if let Some(entry) = self.out.links.get_mut(link) {
            entry.holds = if is_held { entry.holds + 1 } else { entry.holds.saturating_sub(1) };
            self.out.links.touch(link);
        }
        self.update_credit(now, link);
    }

    /// A link is gone that sessions held.
    pub(super) fn end_holds(&mut self, link: LinkId) {
        (0..self.workers).for_each(|worker| self.forget_holds(worker, link));
    }

    /// The sessions of a worker forget a link.
    pub(super) fn forget_holds(&mut self, worker: u8, link: LinkId) {
        if worker == self.worker {
            self.out.holds.forget(link);
        } else {
            self.out.handoffs.push_back((worker, Handoff::LinkGone { link }));
        }
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
