//! A node's sessions: Python makes and ends them, links come and go (§6).
//!
//! Only a client with subscriptions has a session here; a publisher's link has none. A session that is not
//! persistent ends with its link, without Python, so none is left behind if Python acts on outdated events.
//! But if its client begins another link, the session counts as persistent until Python decides.

use crate::Micros;
use crate::engine::metrics::counters::Drop;
use crate::engine::owner::forward::Forwarder;
use crate::engine::retained::replay::Request;
use crate::engine::sessions::bounds::Bounds;
use crate::engine::sessions::counters::SessionCounters;
use crate::engine::sessions::send::EndedSession;
use crate::engine::sessions::session::{Session, Status};
use crate::engine::transport::event::{DownReason, Event};
use crate::engine::transport::links::Entry;
use crate::engine::transport::outbound::Handoff;
use crate::engine::{Engine, Side};
use crate::link_id::{LinkId, SessionKey};
use crate::tables::groups::shared_id;
use crate::tables::subscriber::Subscriber;
use crate::wire::MeantFor;

/// The result of opening a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// The session is open.
    Here,
    /// There are too many sessions; or it is not persistent and has no link.
    Refused,
    /// Another worker is its home.
    At(u8),
}

impl Engine {
    /// Makes a session, or changes it. `bounds` are those of its queue: 0, or a value above this node's
    /// bound, means this node's bound.
    /// `rights`: the key of those of its client, if it has no link here.
    pub fn open_session(
        &mut self,
        now: Micros,
        session: u64,
        persistent: bool,
        bounds: Bounds,
        rights: u64,
    ) -> Opened {
        let link = self.out.links.by_session(session);
        let known = self.out.sessions.by_id(session);
        if link.is_none() && !persistent {
            known.into_iter().for_each(|key| self.end_session(now, key, Drop::SessionEnded));
            return Opened::Refused;
        }
        let home = self.shared.home_workers.claim(session, self.worker);
        if home != self.worker {
            return Opened::At(home);
        }
        if known.is_none() && link.is_none() && self.shared.hosts.enter(None, true).is_err() {
            self.out.counters.drop(Drop::TooManyLinks);
            self.shared.home_workers.remove(session, self.worker);
            return Opened::Refused;
        }
        let bounds = self.bounds(bounds);
        let is_client_limit = bounds != self.own_bounds();
        let opened = match known.and_then(|key| self.out.sessions.get_mut(key)) {
            Some(known) => known,
            None => self.out.sessions.insert(session, link, bounds),
        };
        opened.persistent = persistent;
        let key = opened.key();
        self.out.set_bounds(now, key, bounds, is_client_limit);
        if link.is_none() {
            self.out.claims.note(session, rights);
        }
        if known.is_none()
            && let Some(link) = link
        {
            self.out.attach(now, key, link);
        }
        self.settle_pending(now);
        Opened::Here
    }

    /// Forgets a session, its queue and its subscriptions, in every worker. If it has a link, the link stays.
    pub fn end_session(&mut self, now: Micros, key: SessionKey, why: Drop) {
        let link = self.out.sessions.get(key).and_then(|session| session.link);
        let unsent = link.and_then(|link| self.out.links.awake(link)).map_or(0, |entry| entry.link.unsent());
        self.close_session(now, key, unsent, why);
    }

    /// A session's queue overflowed, and its subscriber has asked to lose the session rather than single
    /// messages (§7.8).
    pub(in crate::engine) fn end_overflowed(&mut self, now: Micros, key: SessionKey) {
        if let Some(session) = self.out.sessions.get(key) {
            let (session, link) = (session.id, session.link);
            self.end_session(now, key, Drop::SessionEnded);
            self.events.push(self.flow_of(session), Event::Overflow { session, link });
        }
    }

    pub fn has_session(&self, key: SessionKey) -> bool {
        self.out.sessions.get(key).is_some()
    }

    /// The key of a session whose home is here.
    pub fn session_key(&self, session: u64) -> Option<SessionKey> {
        self.out.sessions.by_id(session)
    }

    /// Adds a subscription. Returns whether it is new; `None`: its session, whose home is here, has ended.
    pub fn subscribe(&mut self, filter: &str, group: &str, subscriber: Subscriber) -> Option<bool> {
        let Subscriber { session, .. } = subscriber;
        if session.worker() == self.worker && self.out.sessions.get(session).is_none() {
            return None;
        }
        if !group.is_empty() {
            self.out.make_member(session);
        }
        self.node(|node| !node.routes.subscribe(filter, group, subscriber))
    }

    /// Removes a subscription. Returns whether there was one. Messages that a member leaving its group has
    /// not acknowledged go to another member, so the home of the session has to be called last.
    pub fn unsubscribe(&mut self, now: Micros, filter: &str, group: &str, session: SessionKey) -> bool {
        let Side::Node(forwarder) = &mut self.side else {
            return false;
        };
        let was_there = forwarder.routes.unsubscribe(filter, group, session);
        if group.is_empty() {
            forwarder.replays.forget(session, filter, None);
        }
        if was_there && !group.is_empty() {
            let id = shared_id(group, filter);
            let left = self.out.take(session, Drop::Regrouped, |queued_message| {
                let is_its = queued_message.group.as_deref() == Some(group)
                    && queued_message.meant_for == Some(MeantFor::Shared(id));
                is_its
                    && queued_message
                        .topic()
                        .is_some_and(|topic| forwarder.routes.has_group(group, id, topic))
            });
            self.out.pending.orphans.extend(left);
            self.settle_pending(now);
        }
        was_there
    }

    /// Forgets the subscriptions of a session in this worker.
    pub fn forget_subscriptions(&mut self, session: SessionKey) {
        self.node(|node| node.routes.forget_session(session));
    }

    /// Begins to send a session the retained messages that it requests. False: not all of them, because too
    /// many replays wait already.
    pub fn send_retained(&mut self, now: Micros, session: SessionKey, request: Request<'_>) -> bool {
        let Side::Node(forwarder) = &mut self.side else {
            return true;
        };
        let is_taken = forwarder.replay(now, session, request, &mut self.out);
        self.settle_pending(now);
        is_taken
    }

    /// Takes one step of a replay, or of tidying the store.
    pub(in crate::engine) fn step_retained(&mut self, now: Micros) {
        let Side::Node(forwarder) = &mut self.side else {
            return;
        };
        if forwarder.replays.due() <= now {
            forwarder.step_replays(now, &mut self.out);
        } else if forwarder.next_timeout() <= now {
            forwarder.tidy_retained(now);
        }
        self.settle_pending(now);
    }

    /// Counts retained messages for which there was no room.
    pub fn count_retained_full(&mut self, count: u64) {
        self.out.counters.drop_many(Drop::RetainedFull, count);
    }

    /// The store has something to free.
    pub fn tidy_retained(&mut self, now: Micros) {
        self.node(|node| node.tidy_retained(now));
    }

    /// Calls `with` for each session that has not got all of its retained messages of a subtree yet, with a
    /// request for the rest.
    pub fn replays(&self, subtree: &str, mut with: impl FnMut(u64, Request<'_>)) {
        if let Side::Node(forwarder) = &self.side {
            for (key, request) in forwarder.replays.within(subtree) {
                self.out.sessions.get(key).into_iter().for_each(|session| with(session.id, request));
            }
        }
    }

    /// The status of up to `most` sessions, those with the most queued bytes first.
    pub fn sessions(&self, most: usize) -> Vec<Status> {
        let mut sessions: Vec<&Session> = self.out.sessions.iter().collect();
        sessions.sort_by_key(|session| std::cmp::Reverse(session.queued_bytes()));
        sessions.into_iter().take(most).map(|session| session.status(self.unsent(session))).collect()
    }

    /// What became of all messages for sessions, and how many of them are still here.
    pub fn balance(&self) -> (SessionCounters, u64) {
        let (mut sum, mut queued) = (self.out.sessions.ended(), 0);
        for session in self.out.sessions.iter() {
            let (session_counters, here) = session.balance(self.unsent(session));
            sum += session_counters;
            queued += here;
        }
        (sum, queued)
    }

    /// How many messages were accepted for a session.
    #[cfg(test)]
    pub fn accepted(&self, key: SessionKey) -> u64 {
        self.out.sessions.get(key).map_or(0, |session| session.session_counters.accepted)
    }

    pub(in crate::engine) fn unsent(&self, session: &Session) -> u64 {
        let entry = session.link.and_then(|link| self.out.links.awake(link));
        entry.map_or(0, |entry| entry.link.unsent() as u64)
    }

    /// A link has come up that its peer opened, or that was opened for its session. If the session is known
    /// here, it has a link again.
    pub(in crate::engine) fn attach(&mut self, now: Micros, session: u64, link: LinkId) {
        if let Some(key) = self.out.sessions.by_id(session) {
            self.out.attach(now, key, link);
            self.node(|node| node.replays.resume(now, key));
            self.settle_pending(now);
        }
    }

    /// Such a link has ended: its session is offline, or ends with it.
    pub(in crate::engine) fn detach(&mut self, now: Micros, gone: &Entry, reason: DownReason) {
        let unsent = gone.link.unsent();
        let knows = |forwarder: &mut Forwarder| forwarder.window.knows(gone.publisher);
        if self.workers > 1 && gone.publisher != 0 && self.node(knows) == Some(true) {
            self.shared.home_workers.note_departure(gone.session, self.worker, gone.publisher);
        }
        let host = gone.link.peer().ip().into();
        let Some(session) = gone.subscriber.and_then(|key| self.out.sessions.get_mut(key)) else {
            self.shared.hosts.leave(Some(host));
            return self.shared.home_workers.remove(gone.session, self.worker);
        };
        let key = session.key();
        // §3.6: the session goes on over the link that its client begins.
        session.persistent |= reason == DownReason::Restarted;
        if session.persistent {
            // It counts for its host as the link did.
            self.out.park(now, key, unsent, host);
            self.settle_pending(now);
        } else {
            self.shared.hosts.leave(Some(host));
            self.close_session(now, key, unsent, Drop::SessionEnded);
        }
    }

    fn close_session(&mut self, now: Micros, key: SessionKey, unsent: usize, why: Drop) {
        let Some(EndedSession { id, link, host }) = self.out.end(key, unsent, why) else {
            return;
        };
        match link.and_then(|link| self.out.links.get_mut(link)) {
            Some(entry) => entry.subscriber = None,
            None => self.shared.home_workers.remove(id, self.worker),
        }
        if link.is_none() {
            self.shared.hosts.leave(host);
        }
        self.forget_subscriptions(key);
        self.node(|node| node.replays.forget_session(key));
        self.tell_others(&Handoff::SessionEnded { session: key });
        self.settle_pending(now);
    }

    fn bounds(&self, wanted: Bounds) -> Bounds {
        let within = |wanted: usize, most: usize| if wanted == 0 { most } else { wanted.min(most) };
        let Bounds { messages, bytes } = self.own_bounds();
        Bounds { messages: within(wanted.messages, messages), bytes: within(wanted.bytes, bytes) }
    }

    /// The bounds from this node's settings.
    fn own_bounds(&self) -> Bounds {
        Bounds { messages: self.config.queue_messages, bytes: self.config.queue_bytes }
    }
}
