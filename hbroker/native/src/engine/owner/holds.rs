//! Which sessions hold which publishers back (§7.7).
//!
//! A session is *crowded* if it acknowledges messages, but its queue is half full or it uses more than half
//! of its share (`full_sessions`). Its publishers are held back until at most a quarter is used, or until the
//! session is stalled, is offline or has ended. A publisher is held back by its link, once for each crowded
//! session that it publishes to. It may send again when none of them holds it.
//!
//! A publisher that publishes for many clients (`for_many`: the shared client of a gateway) is never sent
//! credit 0, because that would stop all of its clients. Instead the home of its link refuses messages for
//! the sessions that hold it, and takes all others. So a link is in one of three states:
//!
//! | a session holds the link | its peer publishes for many | messages over it at `QoS` 1 and 2 |
//! |---|---|---|
//! | no | yes or no | are taken |
//! | yes | no | credit is 0; messages under way are taken, up to two windows (`throttle`) |
//! | yes | yes | a message for none of these sessions is taken; of the others a quarter of a window is taken, and the rest is refused |
//!
//! A refusal comes before any subscriber has the message, and breaks the chain of its topic (`refusals`), so
//! no later message overtakes the refused one. The publisher pauses the topic, and probes with one message
//! now and then (`pauses`).
//!
//! The home of a session knows which links the session holds; the home of a link knows which sessions hold
//! it. Most often both are empty, and then cost nothing for a message.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::Micros;
use crate::engine::transport::credit::Allowance;
use crate::engine::transport::outbound::Handoff;
use crate::engine::{Engine, Side};
use crate::link_id::{LinkId, SessionKey};
use crate::wire::PublishView;

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
    fn forget(&mut self, link: LinkId) {
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

impl Engine {
    /// Records which session holds a link of this worker, and updates the credit of the link's publisher.
    pub(in crate::engine) fn hold(&mut self, now: Micros, hold: Hold) {
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
            if is_held {
                entry.holders.entry(session).or_insert_with(Allowance::of_many);
            } else {
                entry.holders.remove(&session);
            }
            self.out.links.touch(link);
        }
        self.update_credit(now, link);
    }

    /// Whether a message of a publisher for many is for a session that holds its link and that takes no more
    /// of it.
    pub(in crate::engine) fn is_held(
        &mut self,
        now: Micros,
        link: LinkId,
        publish: &PublishView<'_>,
    ) -> bool {
        let Self { side: Side::Node(forwarder), out, .. } = self else {
            return false;
        };
        let Some(entry) = out.links.awake(link).filter(|entry| entry.holds_some()) else {
            return false;
        };
        let mut sessions = forwarder.sessions_for(now, publish, entry.subscriber, out);
        sessions.retain(|session| entry.holders.contains_key(session));
        let bytes = publish.topic.len() + publish.payload.len();
        !out.links.get_mut(link).is_none_or(|entry| entry.is_let_through(&sessions, bytes))
    }

    /// A link that sessions held has ended.
    pub(in crate::engine) fn end_holds(&mut self, link: LinkId) {
        (0..self.workers).for_each(|worker| self.forget_holds(worker, link));
    }

    /// The sessions of a worker forget a link.
    pub(in crate::engine) fn forget_holds(&mut self, worker: u8, link: LinkId) {
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
