//! A link at rest, and what the engine knows of it (see [`link::rest`](crate::link::idle)).
//!
//! A link goes to rest when nothing is left to do for it, and wakes as soon as anybody has to do with it. Both cost as much as a short
//! message, so a link that is used again and again may rest a few times in a row, and then only once in a while.

use std::net::SocketAddr;

use crate::Micros;
use crate::engine::transport::credit::Credit;
use crate::engine::transport::links::Entry;
use crate::keyed_hash::KeyedHash;
use crate::link::LinkConfig;
use crate::link::idle::IdleLink;
use crate::link_id::{LinkId, SessionKey};

/// How often a link may rest, in the long run, and how often in a row: those who come need a handful, and a PING every two seconds needs
/// two, for it and for what acknowledges the answer.
const INTERVAL: Micros = 500_000;
const IN_A_ROW: Micros = 8;

/// An [`Entry`] at rest, whose peer opened the link, or whose session was handed over. Python was told that it is up.
pub struct IdleEntry {
    pub id: LinkId,
    pub session: u64,
    pub subscriber: Option<SessionKey>,
    pub publisher: u64,
    pub for_many: bool,
    /// Its entry among the timers.
    pub scheduled: Micros,
    pub link: IdleLink,
    /// None: what is in force until its peer says something else.
    credit: Option<Box<Credit>>,
    idle_from: Micros,
}

impl Entry {
    /// What is left of it, if it may rest now, and nothing of it is under way.
    pub fn idle_state(&self, now: Micros) -> Option<IdleEntry> {
        if now < self.idle_from || !self.is_idle(now) {
            return None;
        }
        let idle_from = self.idle_from.max(now.saturating_sub((IN_A_ROW - 1) * INTERVAL)) + INTERVAL;
        Some(IdleEntry {
            id: self.id,
            session: self.session,
            subscriber: self.subscriber,
            publisher: self.publisher,
            for_many: self.for_many,
            scheduled: self.scheduled,
            link: self.link.idle_state()?,
            credit: (self.credit != Credit::default()).then(|| Box::new(self.credit)),
            idle_from,
        })
    }

    fn is_idle(&self, now: Micros) -> bool {
        self.inbound
            && self.announced
            && !self.stalled
            && !self.awaits_room
            && self.holders.is_empty()
            && !self.is_held_back
            && self.allowance.is_none()
            && now >= self.challenge_from
            && self.refusals.is_empty()
            && self.delivery_records.len() == 0
            && self.timed.is_empty()
    }
}

impl IdleEntry {
    /// The entry that it was. `config`: what all links have in common.
    pub fn wake(&mut self, config: &LinkConfig, hasher: KeyedHash) -> Entry {
        Entry {
            subscriber: self.subscriber,
            publisher: self.publisher,
            for_many: self.for_many,
            announced: true,
            credit: self.credit.take().map_or_else(Credit::default, |credit| *credit),
            scheduled: self.scheduled,
            idle_from: self.idle_from,
            ..Entry::new(self.link.wake(self.session, config), self.session, true, self.id, hasher)
        }
    }

    /// The peer's address.
    pub fn peer(&self) -> SocketAddr {
        self.link.peer()
    }
}
