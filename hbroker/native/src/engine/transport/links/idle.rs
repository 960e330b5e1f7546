//! An idle link, and the engine's state of it (see [`link::idle`](crate::link::idle)).
//!
//! A link becomes idle when nothing is left to do for it, and is woken as soon as it is used. Both cost as
//! much as a short message. So a link that is used again and again may become idle a few times in a row, and
//! then only once in a while.

use std::net::SocketAddr;

use crate::Micros;
use crate::engine::transport::credit::Credit;
use crate::engine::transport::links::Entry;
use crate::keyed_hash::KeyedHash;
use crate::link::LinkConfig;
use crate::link::idle::IdleLink;
use crate::link_id::{LinkId, SessionKey};

/// How often a link may become idle, in the long run and in a row. A link that was just opened needs a
/// handful; a PING every two seconds needs two, for itself and for the acknowledgement of its answer.
const INTERVAL: Micros = 500_000;
const IN_A_ROW: Micros = 8;

/// An idle [`Entry`], whose peer opened the link, or whose session was handed over. It was reported to
/// Python.
pub struct IdleEntry {
    pub id: LinkId,
    pub session: u64,
    pub subscriber: Option<SessionKey>,
    pub publisher: u64,
    pub for_many: bool,
    /// Its entry among the timers.
    pub scheduled: Micros,
    pub link: IdleLink,
    /// `None`: the default credit.
    credit: Option<Box<Credit>>,
    idle_from: Micros,
}

impl Entry {
    /// The idle state of this entry, if the link may become idle now and nothing of it is under way.
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
    /// The entry that it was. `config`: the settings that all links have in common.
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
