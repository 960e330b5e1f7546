//! A node's sessions: Python makes and ends them, links come and go (§6).
//!
//! Only a session in which something is subscribed is one here; a publisher's link has none. One that is not persistent ends
//! with its link, by itself: so none is left behind where Python acts on old news.

use super::{Engine, Side};
use crate::engine::outlet::Handoff;
use crate::link_id::{LinkId, SessionKey};
use crate::tables::trie::Subscriber;

/// What came of opening a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// It is there.
    Here,
    /// There are too many; or it is not persistent, and has no link.
    Refused,
    /// This worker is its home.
    At(u8),
}

impl Engine {
    /// Makes a session, or changes it.
    pub fn open_session(&mut self, session: u64, persistent: bool) -> Opened {
        let link = self.out.links.by_session(session);
        let known = self.out.sessions.by_id(session);
        if link.is_none() && !persistent {
            known.into_iter().for_each(|key| self.end_session(key));
            return Opened::Refused;
        }
        if known.is_none() && self.out.sessions.len() >= self.config.max_links {
            return Opened::Refused;
        }
        let home = self.shared.directory.claim(session, self.worker);
        if home != self.worker {
            return Opened::At(home);
        }
        let opened = match known.and_then(|key| self.out.sessions.get_mut(key)) {
            Some(known) => known,
            None => self.out.sessions.insert(session, link),
        };
        opened.persistent = persistent;
        let key = opened.key();
        if let Some(entry) = link.and_then(|link| self.out.links.get_mut(link)) {
            entry.subscriber = Some(key);
        }
        Opened::Here
    }

    /// Forgets a session and its subscriptions, in every worker. Its link, if it has one, stays.
    pub fn end_session(&mut self, key: SessionKey) {
        let Some(session) = self.out.sessions.remove(key) else {
            return;
        };
        match session.link.and_then(|link| self.out.links.get_mut(link)) {
            Some(entry) => entry.subscriber = None,
            None => self.shared.directory.remove(session.id, self.worker),
        }
        self.forget_subscriptions(key);
        for worker in (0..self.workers).filter(|&worker| worker != self.worker) {
            self.out.handoffs.push_back((worker, Handoff::Gone { session: key }));
        }
    }

    pub fn has_session(&self, key: SessionKey) -> bool {
        self.out.sessions.get(key).is_some()
    }

    /// The key of a session whose home is here.
    pub fn session_key(&self, session: u64) -> Option<SessionKey> {
        self.out.sessions.by_id(session)
    }

    /// Whether the subscription is new; `None`: its session, whose home is here, is gone.
    pub fn subscribe(&mut self, filter: &str, subscriber: Subscriber) -> Option<bool> {
        let Subscriber { session, .. } = subscriber;
        if session.worker() == self.worker && self.out.sessions.get(session).is_none() {
            return None;
        }
        self.node(|node| !node.routes.subscriptions_mut().insert(filter, subscriber))
    }

    pub fn unsubscribe(&mut self, filter: &str, session: SessionKey) -> bool {
        self.node(|node| node.routes.subscriptions_mut().remove(filter, session)).unwrap_or(false)
    }

    /// Forgets the subscriptions of a session in this worker.
    pub fn forget_subscriptions(&mut self, session: SessionKey) {
        self.node(|node| node.routes.forget_session(session));
    }

    /// Sends the retained messages that match; how many there were.
    pub fn send_retained(&mut self, session: SessionKey, filter: &str, qos: u8) -> usize {
        match &mut self.side {
            Side::Node(forwarder) => forwarder.send_retained(session, filter, qos, &mut self.out),
            Side::Client(_) => 0,
        }
    }

    /// A session that is known here has a link again.
    pub(super) fn attach(&mut self, session: u64, link: LinkId) {
        let Some(key) = self.out.sessions.by_id(session) else {
            return;
        };
        if let (Some(session), Some(entry)) = (self.out.sessions.get_mut(key), self.out.links.get_mut(link)) {
            session.link = Some(link);
            entry.subscriber = Some(key);
        }
    }

    /// A link that its peer opened is gone: its session is away, or ends with it.
    pub(super) fn detach(&mut self, session: u64, subscriber: Option<SessionKey>) {
        match subscriber.and_then(|key| self.out.sessions.get_mut(key)) {
            None => self.shared.directory.remove(session, self.worker),
            Some(away) => {
                away.link = None;
                if !away.persistent {
                    let key = away.key();
                    self.end_session(key);
                }
            }
        }
    }
}
