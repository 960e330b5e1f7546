//! Backpressure (§7.7): a publisher is throttled while a session that it publishes to is congested. All publishers
//! are throttled while too many bytes are queued in total.
//!
//! Only the queues of sessions that count as connected are counted. They shrink as the subscribers
//! acknowledge, and a subscriber that does not acknowledge soon counts as offline. So publishers wait for a
//! bounded time. The queues of offline sessions have bounds of their own, and throttle no publisher.
//!
//! Connected sessions share their half of the memory for queues by hosts, as offline sessions share the other
//! half (§7.8, ADR 30). A session is charged for the messages that are queued for it and in flight to it. The
//! charge is updated in steps, and exactly at each check of the session, so that a message costs one comparison.
//! The share of a session is the part of its host's share that is free (`shares`). How much of its share a
//! session uses decides:
//!
//! | used | effect | until at most |
//! |---|---|---|
//! | more than a half | the window of messages in flight to it is small, so that further messages are queued | a half |
//! | more than a half | it is *congested*: its publishers are throttled, as if half of its queue were used | a quarter |
//! | all | it is *full*: its messages are refused before any subscriber has them, and their publishers are throttled | a half |
//!
//! All workers of a node know which sessions are full, because each worker refuses messages that come over
//! its own links. As a rule no session is full; then this costs nothing for a message.
//!
//! A session is *congested* if it acknowledges messages, but its queue is half full or it uses more than half of its
//! share. It throttles its publishers until at most a quarter is used, or until the session is stalled, is offline or
//! has ended. Throttling is by link: a congested session throttles each link over which messages for it came. The
//! publisher may send again when no session throttles its link.
//!
//! A publisher that publishes for many clients (`for_many`: the shared client of a gateway) is never sent
//! credit 0, because that would stop all of its clients. Instead the home of its link refuses messages for
//! the sessions that throttle the link, and takes all others. So a link is in one of three states:
//!
//! | a session throttles the link | its peer publishes for many | messages over it at `QoS` 1 and 2 |
//! |---|---|---|
//! | no | yes or no | are taken |
//! | yes | no | credit is 0; messages under way are taken, up to two windows |
//! | yes | yes | a message for none of these sessions is taken; of the others a quarter of a window is taken, and the rest is refused |
//!
//! A refusal comes before any subscriber has the message, and breaks the chain of its topic (`refusals`), so
//! no later message overtakes the refused one. The publisher pauses the topic, and probes with one message
//! now and then (`pauses`).
//!
//! The home of a session knows which links the session throttles (`holds`). The home of a link knows which sessions
//! throttle it (`Entry::throttled_by`). Most often both are empty, and then cost nothing for a message.

use crate::Micros;
use crate::engine::owner::throttled_links::ThrottleChange;
use crate::engine::sessions::table::CHECK_INTERVAL;
use crate::engine::transport::credit::{self, Allowance};
use crate::engine::transport::links::LinkSlot;
use crate::engine::transport::outbound::{Handoff, Outbound};
use crate::engine::{Engine, Side};
use crate::link_id::{LinkId, SessionKey};
use crate::wire::{self, PublishView};

/// Whether all publishers are throttled, and which of them have to be notified.
#[derive(Default)]
pub struct Throttle {
    /// The workers with too many queued bytes.
    high_workers: Workers,
    /// The workers whose queues of connected sessions are full: messages at `QoS` 1 and 2 are refused.
    full_workers: Workers,
    is_applied: bool,
    /// The throttled publishers' links, which get their usual credit when the throttle is off again.
    to_release: Vec<LinkId>,
    /// Links whose new credit could not be sent, because there was no room for the CREDIT.
    unsent_credits: Vec<LinkId>,
}

/// A bit for each worker.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Workers([u128; 2]);

impl Workers {
    fn set(&mut self, worker: u8, is_in: bool) {
        let (word, bit) = (&mut self.0[usize::from(worker / 128)], 1 << (worker % 128));
        *word = if is_in { *word | bit } else { *word & !bit };
    }

    fn has(self, worker: u8) -> bool {
        self.0[usize::from(worker / 128)] & (1 << (worker % 128)) != 0
    }

    fn is_empty(self) -> bool {
        self == Self::default()
    }
}

impl Throttle {
    pub fn is_on(&self) -> bool {
        !self.high_workers.is_empty()
    }
}

impl Engine {
    /// Checks the sessions with unacknowledged messages, and whether this worker has too many bytes queued for
    /// them. Tells the other workers if that changed.
    pub(in crate::engine) fn check_sessions(&mut self, now: Micros) {
        let waiting_bytes = self.out.check_sessions(now);
        self.settle_pending(now);
        let Side::Node(node) = &mut self.side else {
            return;
        };
        let high = self.config.queue_memory / usize::from(self.workers) / 2;
        let was_high = node.throttle.high_workers.has(self.worker);
        // Hysteresis: without it publishers would stop and go with every message.
        let is_high = waiting_bytes > high || was_high && waiting_bytes > high / 2;
        let is_full = self.out.sessions.is_full();
        let is_news = (is_high, is_full) != (was_high, node.throttle.full_workers.has(self.worker));
        node.throttle.full_workers.set(self.worker, is_full);
        node.throttle.high_workers.set(self.worker, is_high);
        if is_news {
            self.tell_others(&Handoff::Pressure { worker: self.worker, is_high, is_full });
        }
        self.update_publishers(now);
    }

    /// Whether this node throttles all publishers.
    pub(in crate::engine) fn throttles_all(&self) -> bool {
        matches!(&self.side, Side::Node(node) if node.throttle.is_on())
    }

    /// Another worker reports its pressure.
    pub(in crate::engine) fn handle_pressure(
        &mut self,
        now: Micros,
        worker: u8,
        is_high: bool,
        is_full: bool,
    ) {
        let Side::Node(node) = &mut self.side else {
            return;
        };
        node.throttle.high_workers.set(worker, is_high);
        node.throttle.full_workers.set(worker, is_full);
        let mut others = node.throttle.full_workers;
        others.set(self.worker, false);
        self.out.other_workers_are_full = !others.is_empty();
        self.update_publishers(now);
    }

    /// Sends the publishers their new credit, if it has changed.
    fn update_publishers(&mut self, now: Micros) {
        let Side::Node(node) = &mut self.side else {
            return;
        };
        let is_on = node.throttle.is_on();
        let was_on = std::mem::replace(&mut node.throttle.is_applied, is_on);
        let mut links = std::mem::take(&mut node.throttle.unsent_credits);
        if is_on && !was_on {
            let publishers =
                self.out.links.iter().filter(|link_slot| link_slot.inbound() && link_slot.published());
            node.throttle.to_release = publishers.map(LinkSlot::id).collect();
            links.extend(&node.throttle.to_release);
        } else if !is_on && was_on {
            links.append(&mut node.throttle.to_release);
        }
        links.into_iter().for_each(|link| self.update_credit(now, link));
    }

    /// A link has carried its first PUBLISH: its peer is a publisher, and is throttled if all are.
    pub(in crate::engine) fn register_publisher(&mut self, now: Micros, link: LinkId) {
        if let Side::Node(node) = &mut self.side
            && node.throttle.is_on()
        {
            node.throttle.to_release.push(link);
            self.update_credit(now, link);
        }
    }

    /// Sends a publisher credit 0, or its usual credit, if that has changed.
    pub(in crate::engine) fn update_credit(&mut self, now: Micros, link: LinkId) {
        let is_on = self.throttles_all();
        if !is_on && self.out.links.awake(link).is_none() {
            return; // An idle link is not throttled.
        }
        let Some(entry) = self.out.links.get_mut(link) else {
            return;
        };
        let is_throttled = is_on || !entry.for_many && !entry.throttled_by.is_empty();
        entry.allowance = is_throttled.then(|| entry.allowance.unwrap_or_default());
        if is_throttled == entry.is_throttled {
            return self.out.links.mark_dirty(link);
        }
        let (messages, bytes) = if is_throttled { (0, 0) } else { (credit::MESSAGES, credit::BYTES) };
        let mut field = Vec::new();
        wire::put_credit_field(&mut field, messages, bytes, false);
        if !self.out.queue_control(link, field.into()) {
            // There is no room for the CREDIT now.
            self.node(|node| node.throttle.unsent_credits.push(link));
            self.out.sessions.check_by(now + CHECK_INTERVAL);
        } else if let Some(entry) = self.out.links.get_mut(link) {
            entry.is_throttled = is_throttled;
        }
    }
}

impl Outbound {
    /// Weighs a session if its charge has changed by a step, or if it uses more than half of its share.
    pub(in crate::engine) fn update_charge_if_changed(&mut self, key: SessionKey) {
        if self.sessions.get(key).is_some_and(|session| session.is_capped || session.is_miscounted()) {
            self.update_charge(key);
        }
    }

    /// Updates the charge of a session, which may have ended, and compares it with its share.
    pub(in crate::engine) fn update_charge(&mut self, key: SessionKey) {
        self.sessions.count(key);
        let session = self.sessions.get(key);
        let is_half = session.is_some_and(|session| self.sessions.is_fuller_than(2, session));
        let was_full = self.full_sessions.has(key);
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
            self.full_sessions.set(key, is_full);
            self.pending.full_changes.push((key, is_full));
        }
    }

    /// A message that came over a link was refused, because this session is full.
    pub(in crate::engine) fn note_refused(&mut self, session: SessionKey, link: LinkId) {
        let is_known = self.links.awake(link).is_none_or(|entry| entry.throttled_by.contains_key(&session));
        if session.worker() == link.worker() {
            self.throttle_link(session, link);
        } else if !is_known {
            self.handoffs.push_back((session.worker(), Handoff::RefusedFull { session, link }));
        }
    }

    /// A session of this worker throttles a publisher's link, if the session is full.
    pub(in crate::engine) fn throttle_link(&mut self, session: SessionKey, link: LinkId) {
        if self.full_sessions.has(session) && self.sessions.get(session).is_some() {
            self.pending.throttle_changes.extend(self.throttled_links.add(session, link));
        }
    }
}

impl Engine {
    /// Tells every other worker the same.
    pub(in crate::engine) fn tell_others(&mut self, handoff: &Handoff) {
        for worker in (0..self.workers).filter(|&worker| worker != self.worker) {
            self.out.handoffs.push_back((worker, handoff.clone()));
        }
    }
}

impl Engine {
    /// A session begins to throttle a link, or releases it: records that at the home of the link, and updates the
    /// credit of the link's publisher.
    pub(in crate::engine) fn apply_throttle(&mut self, now: Micros, change: ThrottleChange) {
        let ThrottleChange { session, link, is_throttled } = change;
        if link.worker() != self.worker {
            return self.out.handoffs.push_back((link.worker(), Handoff::Throttle(change)));
        }
        if self.out.links.get(link).is_none() {
            if is_throttled {
                self.forget_throttled_link(session.worker(), link);
            }
            return;
        }
        if let Some(entry) = self.out.links.get_mut(link) {
            if is_throttled {
                entry.throttled_by.entry(session).or_insert_with(Allowance::of_many);
            } else {
                entry.throttled_by.remove(&session);
            }
            self.out.links.mark_dirty(link);
        }
        self.update_credit(now, link);
    }

    /// Whether a message has to be refused because a session throttles the link that it came over, whose peer
    /// publishes for many clients: the message is for such a session, and that one takes no more.
    pub(in crate::engine) fn is_throttled_message(
        &mut self,
        now: Micros,
        link: LinkId,
        publish: &PublishView<'_>,
    ) -> bool {
        let Self { side: Side::Node(forwarder), out, .. } = self else {
            return false;
        };
        let Some(entry) = out.links.awake(link).filter(|entry| entry.is_partly_throttled()) else {
            return false;
        };
        let mut sessions = forwarder.sessions_for(now, publish, entry.subscriber, out);
        sessions.retain(|session| entry.throttled_by.contains_key(session));
        let bytes = publish.topic.len() + publish.payload.len();
        !out.links.get_mut(link).is_none_or(|entry| entry.is_let_through(&sessions, bytes))
    }

    /// A link that sessions throttled has ended.
    pub(in crate::engine) fn end_throttles(&mut self, link: LinkId) {
        (0..self.workers).for_each(|worker| self.forget_throttled_link(worker, link));
    }

    /// The sessions of a worker forget a link.
    pub(in crate::engine) fn forget_throttled_link(&mut self, worker: u8, link: LinkId) {
        if worker == self.worker {
            self.out.throttled_links.forget(link);
        } else {
            self.out.handoffs.push_back((worker, Handoff::LinkEnded { link }));
        }
    }
}
