//! The way of a message to a session: straight onto its link, while there is credit and nothing waits; else into its queue, and
//! from there onto the link when the subscriber has answered for others (§7.7, §7.8).
//!
//! Tickets that come back on the way are collected, and so are sessions that are to end: whoever called settles both when it is done.

use crate::Micros;
use crate::broken::Defect;
use crate::engine::counters::{Counters, Drop};
use crate::engine::ledger::Tickets;
use crate::engine::links::Entry;
use crate::engine::load::Docket;
use crate::engine::outlet::{Outlet, Target};
use crate::engine::parcel::{Consignment, Parcel};
use crate::engine::session::Session;
use crate::engine::session_queue::{Bounds, Excess};
use crate::link::{Chain, QueueFull, Queued};
use crate::link_id::{LinkId, SessionKey};
use crate::load::Load;
use crate::tables::groups::Fitness;
use crate::wire::{MeantFor, PubAckView};

/// What came of messages on their way, to be settled.
#[derive(Default)]
pub struct Loose {
    /// Tickets that no copy holds any more.
    pub tickets: Tickets,
    /// Sessions whose queue overflowed, and that would rather end (§7.8).
    pub overflowed: Vec<SessionKey>,
    /// Messages of shared groups whose member is gone.
    pub orphans: Vec<Parcel>,
}

impl Loose {
    pub fn is_empty(&self) -> bool {
        self.tickets.is_empty() && self.overflowed.is_empty() && self.orphans.is_empty()
    }
}

impl Outlet {
    /// Offers a session a message at `QoS` 0.
    pub fn offer_copy(
        &mut self,
        key: SessionKey,
        field: &[u8],
        meant_for: Option<MeantFor>,
        docket: &Docket,
    ) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        session.accept_copies(1);
        let entry = session.link.and_then(|link| self.links.get_mut(link));
        let refused = match entry {
            None => Some(Drop::Away),
            Some(entry) => {
                let queued = entry.link.queue_unreliable(field, meant_for);
                if queued.is_ok() {
                    docket.copy_leaves(&mut self.load, field, entry, entry.link.last_unreliable());
                }
                queued.err().map(|QueueFull| Drop::QueueFull)
            }
        };
        match refused {
            Some(why) => {
                session.refuse_copies(why, 1);
                self.counters.drop(why);
            }
            None => {
                self.counters.messages_out += 1;
                session.link.into_iter().for_each(|link| self.links.touch(link));
            }
        }
    }

    /// Offers a session a message at `QoS` 1 or 2. Whether it took the ticket: then that comes back once.
    pub fn offer(&mut self, now: Micros, key: SessionKey, mut parcel: Parcel) -> bool {
        let Self { links, sessions, counters, load, loose, .. } = self;
        let Some(session) = sessions.get_mut(key) else {
            counters.drop(Drop::SessionEnded);
            return false;
        };
        session.accept(now, 1, &mut parcel.ticket);
        let is_held = parcel.ticket.is_some();
        let is_watched = session.is_watched;
        let bytes = parcel.field.len();
        if session.queue.is_empty()
            && session.has_credit(bytes)
            && let Some(link) = session.link
            && let Some(entry) = links.get_mut(link).filter(|entry| entry.link.has_room(bytes))
        {
            give(session, entry, parcel.into(), (counters, load), &mut loose.tickets);
            links.touch(link);
        } else {
            let before = session.queue.bytes();
            session.queue.push(parcel);
            self.fit(now, key, before);
        }
        if !is_watched {
            self.sessions.watch(now, key);
        }
        is_held
    }

    /// Offers a session several messages at once. Whether it took their tickets; `None`: its link does not take all of them now, and they are to be
    /// offered one by one.
    pub fn offer_all(&mut self, now: Micros, consignment: &Consignment, target: &Target) -> Option<bool> {
        let Self { links, sessions, counters, load, loose, .. } = self;
        let &Consignment { ref parcel, count, ref timed } = consignment;
        let Some(session) = sessions.get_mut(target.session) else {
            counters.drop_many(Drop::SessionEnded, count.into());
            return Some(false);
        };
        let bytes = parcel.field.len();
        let takes_all = session.queue.is_empty() && session.has_credit_for(count, bytes);
        let link = session.link.filter(|_| takes_all)?;
        let entry = links.get_mut(link).filter(|entry| entry.link.has_room_for_all(bytes))?;
        let mut parcel = parcel.clone().addressed(target.clone());
        session.accept(now, count, &mut parcel.ticket);
        let (is_held, is_watched) = (parcel.ticket.is_some(), session.is_watched);
        let given = Consignment { parcel, count, timed: timed.clone() };
        give(session, entry, given, (counters, load), &mut loose.tickets);
        links.touch(link);
        if !is_watched {
            sessions.watch(now, target.session);
        }
        Some(is_held)
    }

    /// A message for a session outlived its expiry before it came here.
    pub fn bury(&mut self, key: SessionKey) {
        if let Some(session) = self.sessions.get_mut(key) {
            session.bury();
        }
    }

    /// A subscriber's PUBACK.
    pub fn answer(&mut self, now: Micros, key: SessionKey, puback: &PubAckView<'_>) {
        if let Some(session) = self.sessions.get_mut(key) {
            for (first, last) in puback.ranges() {
                session.answer(now, first, last, &mut self.loose.tickets);
            }
        }
        self.pump(now, key);
    }

    /// The subscriber of a session says how much it takes (§7.7).
    pub fn grant(&mut self, now: Micros, key: SessionKey, messages: u32, bytes: u64) {
        if let Some(session) = self.sessions.get_mut(key) {
            session.grant(messages, bytes);
        }
        self.pump(now, key);
    }

    /// A session has a link.
    pub fn attach(&mut self, now: Micros, key: SessionKey, link: LinkId) {
        if let (Some(session), Some(entry)) = (self.sessions.get_mut(key), self.links.get_mut(link)) {
            session.attach(now, link, entry.credit.granted());
            entry.subscriber = Some(key);
        }
        self.pump(now, key);
        self.sessions.watch(now, key);
        self.tell_standing(key);
    }

    /// A session's link is gone, with so many unsent messages of `QoS` 0; the session stays.
    pub fn park(&mut self, now: Micros, key: SessionKey, unsent: usize) {
        if let Some(session) = self.sessions.get_mut(key) {
            let before = session.queue.bytes();
            session.park(unsent as u64, &mut self.loose.tickets);
            self.fit(now, key, before);
        }
    }

    /// Ends a session; its id and its link.
    pub fn end(&mut self, key: SessionKey, unsent: usize, why: Drop) -> Option<(u64, Option<LinkId>)> {
        let mut session = self.sessions.remove(key)?;
        self.standings.iter().filter(|_| session.is_member).for_each(|standings| standings.forget(key));
        let before = session.accounts.dropped_as(why);
        let orphans = session.end(unsent as u64, why, &mut self.loose.tickets);
        // Not what was open before: copies of `QoS` 0 count as delivered only now.
        self.counters.drop_many(why, session.accounts.dropped_as(why) - before);
        self.counters.drop_many(Drop::Regrouped, orphans.len() as u64);
        self.loose.orphans.extend(orphans);
        self.sessions.close(session.accounts);
        Some((session.id, session.link))
    }

    /// Takes a session's messages that go elsewhere, as [`Session::take`].
    pub fn take(&mut self, key: SessionKey, why: Drop, is_meant: impl FnMut(&Parcel) -> bool) -> Vec<Parcel> {
        let Some(session) = self.sessions.get_mut(key) else {
            return Vec::new();
        };
        let before = session.queue.bytes();
        let taken = session.take(why, is_meant);
        let after = session.queue.bytes();
        self.sessions.recount(before, after);
        self.counters.drop_many(why, taken.len() as u64);
        taken
    }

    /// Looks at the sessions that wait for answers: those that left messages unanswered for too long stall. The bytes that are held
    /// for those which count as connected.
    pub fn look(&mut self, now: Micros) -> usize {
        let mut held = 0;
        for key in self.sessions.take_watched() {
            self.pump(now, key);
            let Some(session) = self.sessions.get_mut(key) else {
                continue;
            };
            if session.is_idle() {
                session.rest();
                continue;
            }
            if session.is_overdue(now) {
                session.stall(&mut self.loose.tickets);
            }
            held += if session.is_ready() { session.held_bytes() } else { 0 };
            if session.link.is_some() {
                self.sessions.watch(now, key);
            }
            self.tell_standing(key);
        }
        held
    }

    /// Changes the bounds of a session's queue.
    pub fn set_bounds(&mut self, now: Micros, key: SessionKey, bounds: Bounds) {
        if let Some(session) = self.sessions.get_mut(key) {
            session.queue.set_bounds(bounds);
            let before = session.queue.bytes();
            self.fit(now, key, before);
        }
    }

    /// A session is in a shared group from now on: how fit it is, all workers are to know.
    pub fn make_member(&mut self, key: SessionKey) {
        if let Some(session) = self.sessions.get_mut(key) {
            session.is_member = true;
            self.tell_standing(key);
        }
    }

    /// How many messages for a session were dropped.
    pub fn dropped(&self, key: SessionKey) -> u64 {
        self.sessions.get(key).map_or(0, |session| session.accounts.dropped().map(|(_, count)| count).sum())
    }

    /// The session id of a shared group's member, and how fit it is; `None`: it is gone.
    pub fn standing(&self, key: SessionKey) -> Option<(u64, Fitness)> {
        match self.sessions.get(key) {
            Some(session) => Some((session.id, session.fitness())),
            None => self.standings.as_ref()?.of(key),
        }
    }

    fn tell_standing(&mut self, key: SessionKey) {
        if let Some(standings) = &self.standings
            && let Some(session) = self.sessions.get_mut(key)
            && let Some(fitness) = session.news()
        {
            standings.tell(key, session.id, fitness);
        }
    }

    /// Gives a session's link what waits, as far as it takes it.
    fn pump(&mut self, now: Micros, key: SessionKey) {
        let Self { links, sessions, counters, load, loose, .. } = self;
        let Some(session) = sessions.get_mut(key).filter(|session| !session.queue.is_empty()) else {
            return;
        };
        let before = session.queue.bytes();
        while let Some(first) = session.queue.front() {
            let (bytes, is_dead) = (first.field.len(), first.expires <= now);
            if is_dead && !Defect::SendsTheDead.is_present() {
                if let Some(dead) = session.queue.pop() {
                    session.expire(&dead, &mut loose.tickets);
                }
                continue;
            }
            let entry = session.link.and_then(|link| links.get_mut(link));
            let Some(entry) = entry.filter(|entry| session.has_credit(bytes) && entry.link.has_room(bytes))
            else {
                break;
            };
            if let Some(parcel) = session.queue.pop() {
                give(session, entry, parcel.into(), (counters, load), &mut loose.tickets);
            }
        }
        let (link, after) = (session.link, session.queue.bytes());
        sessions.recount(before, after);
        link.into_iter().for_each(|link| links.touch(link));
        self.tell_standing(key);
    }

    /// Keeps a queue, which had `before` bytes, within its bounds.
    fn fit(&mut self, now: Micros, key: SessionKey, before: usize) {
        let Self { sessions, counters, loose, .. } = self;
        let most = sessions.most_bytes(before);
        let Some(session) = sessions.get_mut(key) else {
            return;
        };
        if session.queue.is_over(most) {
            for dead in session.queue.take_dead(now) {
                session.expire(&dead, &mut loose.tickets);
            }
            while let Some(excess) = session.queue.next_excess(most) {
                let parcel = match excess {
                    Excess::Dropped(parcel) => parcel,
                    Excess::End(parcel) => {
                        loose.overflowed.push(key);
                        parcel
                    }
                };
                session.drop(Drop::QueueFull, &parcel, &mut loose.tickets);
                counters.drop(Drop::QueueFull);
                // §7.3: a queue that is full holds nobody up.
                session.stall(&mut loose.tickets);
            }
        }
        let after = session.queue.bytes();
        sessions.recount(before, after);
        self.tell_standing(key);
    }
}

/// Gives messages to the session's link, which has room for them.
fn give(
    session: &mut Session,
    entry: &mut Entry,
    consignment: Consignment,
    (counters, load): (&mut Counters, &mut Option<Box<Load>>),
    released: &mut Tickets,
) {
    let Consignment { parcel, count, timed } = &consignment;
    let (chain, fields) = (Chain::Topic(parcel.chain), parcel.field.clone());
    let Ok(first) = entry.link.queue_batch(chain, fields, *count, parcel.meant_for) else {
        // No datagram can carry it.
        counters.drop_many(Drop::QueueFull, u64::from(*count));
        return session.drop_all(Drop::QueueFull, consignment, released);
    };
    counters.messages_out += u64::from(*count);
    parcel.docket.copies_leave(load, *count, &parcel.field, entry, Queued::Reliable(first));
    for (place, sample) in timed {
        entry.timed.add(Queued::Reliable(first + u64::from(*place)), sample);
    }
    session.launch(first, consignment);
}
