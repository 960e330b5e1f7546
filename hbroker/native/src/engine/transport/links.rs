//! All links of one engine: how they are found, which have something to send, and whose timer is due next.
//!
//! An accepted link is found by its session, whatever the source address (§3.1). A link that this side opened
//! is found by its peer's address. Timers are in one ordered set, with at most one entry for each link. If
//! the deadline of a link moves back, it keeps its earlier entry, and is looked at once in vain.
//!
//! A link becomes idle when nothing is left to do for it: it is reduced to an `IdleEntry` (see
//! [`link::idle`](crate::link::idle)), and is woken as soon as it is to be changed. Both cost as much as a
//! short message. So a link that is used again and again may become idle a few times in a row, and then only
//! once in a while.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use hashbrown::HashMap;
use rustc_hash::FxHashMap;
use slab::Slab;

use crate::Micros;
use crate::broken::Defect;
use crate::engine::metrics::message_metrics::Timed;
use crate::engine::publisher::refusals::Refusals;
use crate::engine::transport::credit::{Allowance, Credit};
use crate::engine::transport::delivery_records::DeliveryRecords;
use crate::engine::transport::event::Peer;
use crate::keyed_hash::KeyedHash;
use crate::link::idle::IdleLink;
use crate::link::{Link, LinkConfig, LinkStats, ReceiveOutcome};
use crate::link_id::{LinkId, SessionKey};
use crate::prefix::Prefix;
use crate::rights::{LinkRights, Rights};
use crate::shares::{Share, Shares};
use crate::wire::{PacketView, PublishView};

/// How many ended links' incarnations are remembered: late datagrams are rare, and arrive soon.
const MOST_PAST: usize = 4_096;

/// A link, and the engine's state of it outside of the link layer.
pub struct Entry {
    pub link: Link,
    pub session: u64,
    /// Whether the peer opened it.
    pub inbound: bool,
    /// Whether it was reported to Python.
    pub announced: bool,
    /// The publisher id of the messages that its peer sends (§7.9); 0: it has sent none yet.
    pub publisher: u64,
    /// How often a RESET gave it a new token while it was opening.
    pub token_renewals: u8,
    /// When CHALLENGE may be sent again, if its peer has moved.
    pub challenge_from: Micros,
    /// What each delivery that needs a PUBACK carries.
    pub delivery_records: DeliveryRecords,
    /// How much more the peer takes (§7.7). At an owner: the credit that it has granted, for its session.
    pub credit: Credit,
    /// Its session, if anything was subscribed in it.
    pub subscriber: Option<SessionKey>,
    /// At an owner: the chains that a refusal broke.
    pub refusals: Refusals,
    /// The messages on it whose departure is timed.
    pub timed: Timed,
    /// Released packets wait for room (§3.3); the link is in the engine's list of such links.
    pub stalled: bool,
    /// Its session's replays pause until there is room (§7.6).
    pub awaits_room: bool,
    /// The sessions that throttle it (§7.7), each with what it still takes if the peer publishes for many clients.
    pub throttled_by: FxHashMap<SessionKey, Allowance>,
    /// Its peer publishes for many clients: the sessions that throttle it refuse their own messages, and the peer keeps
    /// its credit for all others.
    pub for_many: bool,
    /// What its peer may do, and the topic that it was let publish on last.
    pub rights: LinkRights,
    pub allowed: String,
    /// Its publisher was sent credit 0.
    pub is_throttled: bool,
    /// What may still arrive while it is throttled.
    pub allowance: Option<Allowance>,
    /// Its share of the memory for packets that arrived out of order.
    early: Share<Prefix>,
    id: LinkId,
    dirty: bool,
    /// Its entry among the timers; `Micros::MAX`: none.
    scheduled: Micros,
    /// It does not become idle before this time.
    idle_from: Micros,
}

/// A link, awake or idle.
#[expect(clippy::large_enum_variant, reason = "nearly all are at rest")]
pub enum LinkSlot {
    Awake(Box<Entry>),
    Idle(IdleEntry),
}

impl Entry {
    /// Whether its publisher sends more than it may while the link is throttled (§7.7).
    pub fn is_beyond_allowance(&mut self, publish: &PublishView<'_>) -> bool {
        let length = publish.topic.len() + publish.payload.len();
        self.allowance.as_mut().is_some_and(|allowance| !allowance.take(length))
    }

    /// Whether sessions throttle it and its peer publishes for many clients: only messages for these sessions may be
    /// refused.
    pub fn is_partly_throttled(&self) -> bool {
        self.for_many && !self.throttled_by.is_empty()
    }

    /// Whether a message of this size for these sessions is let through: each of them that throttles the link still
    /// takes it.
    pub fn is_let_through(&mut self, sessions: &[SessionKey], bytes: usize) -> bool {
        let is_taken = sessions
            .iter()
            .filter_map(|session| self.throttled_by.get(session))
            .all(|allowance| allowance.covers(bytes));
        if is_taken {
            for session in sessions {
                self.throttled_by.get_mut(session).map(|allowance| allowance.take(bytes));
            }
        }
        is_taken
    }

    /// The entry of a link that was just opened.
    fn new(link: Link, session: u64, inbound: bool, id: LinkId, hasher: KeyedHash) -> Self {
        Self {
            link,
            session,
            inbound,
            announced: false,
            publisher: 0,
            token_renewals: 0,
            challenge_from: 0,
            delivery_records: DeliveryRecords::default(),
            credit: Credit::default(),
            refusals: Refusals::new(hasher),
            subscriber: None,
            timed: Timed::default(),
            stalled: false,
            awaits_room: false,
            throttled_by: FxHashMap::default(),
            for_many: false,
            rights: LinkRights::default(),
            allowed: String::new(),
            is_throttled: false,
            allowance: None,
            early: Share::default(),
            idle_from: 0,
            id,
            dirty: false,
            scheduled: Micros::MAX,
        }
    }

    /// Whether a message of this publisher may come over it. (Before the first message none may.)
    pub fn is_of(&self, publisher: u64) -> bool {
        self.publisher != 0 && (self.publisher == publisher || Defect::TakesAnyPublisher.is_present())
    }

    pub fn peer(&self) -> Peer {
        Peer {
            link: self.id,
            address: self.link.peer(),
            session: self.session,
            inbound: self.inbound,
            rights: self.rights.key(),
        }
    }

    /// A datagram of its peer came from somebody with these rights. True: they are others than before.
    pub fn note_rights(&mut self, rights: Option<&Arc<Rights>>) -> bool {
        let is_changed = self.rights.note(rights);
        if is_changed {
            self.allowed.clear();
        }
        is_changed
    }

    /// Whether its peer has the right to publish on a topic.
    pub fn may_publish(&mut self, topic: &str, retain: bool) -> bool {
        self.rights.may_publish(topic, retain, &mut self.allowed)
    }
}

impl LinkSlot {
    pub fn id(&self) -> LinkId {
        match self {
            LinkSlot::Awake(entry) => entry.id,
            LinkSlot::Idle(idle_entry) => idle_entry.id,
        }
    }

    /// Whether the peer opened it, or its session was handed over.
    pub fn inbound(&self) -> bool {
        match self {
            LinkSlot::Awake(entry) => entry.inbound,
            LinkSlot::Idle(_) => true,
        }
    }

    /// Whether it has carried a PUBLISH.
    pub fn published(&self) -> bool {
        match self {
            LinkSlot::Awake(entry) => entry.publisher != 0,
            LinkSlot::Idle(idle_entry) => idle_entry.publisher != 0,
        }
    }

    /// `None`: it is idle, and has nothing queued and nothing counted.
    pub fn link(&self) -> Option<&Link> {
        match self {
            LinkSlot::Awake(entry) => Some(&entry.link),
            LinkSlot::Idle(_) => None,
        }
    }

    /// The peer's address.
    pub fn address(&self) -> SocketAddr {
        match self {
            LinkSlot::Awake(entry) => entry.link.peer(),
            LinkSlot::Idle(idle_entry) => idle_entry.peer(),
        }
    }

    pub fn session(&self) -> u64 {
        match self {
            LinkSlot::Awake(entry) => entry.session,
            LinkSlot::Idle(idle_entry) => idle_entry.session,
        }
    }

    /// The key of the rights of its peer.
    pub fn rights(&self) -> u64 {
        match self {
            LinkSlot::Awake(entry) => entry.rights.key(),
            LinkSlot::Idle(idle_entry) => idle_entry.rights_key(),
        }
    }

    /// The incarnation of the peer, once it has sent something.
    pub fn peer_incarnation(&self) -> Option<u64> {
        match self {
            LinkSlot::Awake(entry) => entry.link.peer_incarnation(),
            LinkSlot::Idle(idle_entry) => Some(idle_entry.link.peer_incarnation()),
        }
    }

    /// As [`Link::is_half_open`].
    pub fn is_half_open(&self) -> bool {
        match self {
            LinkSlot::Awake(entry) => entry.link.is_half_open(),
            LinkSlot::Idle(idle_entry) => idle_entry.link.is_half_open(),
        }
    }

    #[cold]
    fn wake(&mut self, config: &LinkConfig, hasher: KeyedHash) {
        if let LinkSlot::Idle(idle_entry) = self {
            *self = LinkSlot::Awake(Box::new(idle_entry.wake(config, hasher)));
        }
    }

    fn awake(&self) -> Option<&Entry> {
        match self {
            LinkSlot::Awake(entry) => Some(entry),
            LinkSlot::Idle(_) => None,
        }
    }
}

pub struct Links {
    worker: u8,
    hasher: KeyedHash,
    /// The settings that all links have in common.
    config: LinkConfig,
    generation: u32,
    entries: Slab<LinkSlot>,
    by_session: HashMap<u64, LinkId, KeyedHash>,
    by_address: HashMap<SocketAddr, LinkId, KeyedHash>,
    /// The link that was found last; most often it is needed again.
    found: Cell<Option<LinkId>>,
    dirty: Vec<LinkId>,
    timers: BTreeSet<(Micros, LinkId)>,
    /// The memory of all links for packets that arrived out of order (§3.3). A packet without room is not
    /// acknowledged, and so is retransmitted.
    early: Shares<Prefix>,
    /// The incarnation of the peer in the last link that this side opened and that has ended.
    past: HashMap<SocketAddr, u64, KeyedHash>,
    /// No ended link that this side opened has used this number or a higher one.
    first_number: u64,
    /// The counters of links that have ended.
    ended: LinkStats,
}

impl Links {
    /// `config`: the settings that all links have in common, and the first number of the first link that this
    /// side opens. `out_of_order_bytes`: the memory for packets that arrived out of order.
    pub fn new(worker: u8, hasher: KeyedHash, config: LinkConfig, out_of_order_bytes: usize) -> Self {
        Self {
            worker,
            hasher,
            generation: 0,
            entries: Slab::new(),
            by_session: HashMap::with_hasher(hasher),
            by_address: HashMap::with_hasher(hasher),
            found: Cell::new(None),
            past: HashMap::with_hasher(hasher),
            dirty: Vec::new(),
            timers: BTreeSet::new(),
            early: Shares::new(out_of_order_bytes, hasher),
            first_number: config.first_number,
            ended: LinkStats::default(),
            config,
        }
    }

    /// Adds a link. It is found by its session if the peer opened it, else by the peer's address.
    pub fn insert(&mut self, link: Link, session: u64, inbound: bool) -> LinkId {
        self.generation = self.generation.wrapping_add(1);
        let slot = self.entries.vacant_key();
        let id = LinkId::new(self.worker, self.generation, slot);
        if inbound {
            self.by_session.insert(session, id);
        } else {
            self.by_address.insert(link.peer(), id);
        }
        let entry = Entry::new(link, session, inbound, id, self.hasher);
        self.entries.insert(LinkSlot::Awake(Box::new(entry)));
        id
    }

    /// Takes a link out.
    pub fn remove(&mut self, id: LinkId) -> Option<Box<Entry>> {
        self.get_mut(id)?;
        let LinkSlot::Awake(mut entry) = self.entries.remove(id.slot()) else {
            return None;
        };
        self.timers.remove(&(entry.scheduled, id));
        self.early.free(std::mem::take(&mut entry.early));
        self.ended += entry.link.stats();
        if entry.inbound {
            self.by_session.remove(&entry.session);
        } else {
            self.by_address.remove(&entry.link.peer());
            self.first_number = self.first_number.max(entry.link.next_number());
            self.remember(&entry.link);
        }
        Some(entry)
    }

    /// Takes a reliable packet that a link received, as [`Link::receive`] does, within the memory of all
    /// links. `None`: the link has ended.
    pub fn receive(&mut self, id: LinkId, packet: &PacketView<'_>) -> Option<ReceiveOutcome> {
        self.change_out_of_order(id, |link, early, share| {
            let (&PacketView { delivery, after, raw, .. }, host) = (packet, link.peer().ip());
            link.receive(delivery, after, raw, |more| early.fits_in(share, host.into(), more))
        })
    }

    /// As [`Link::next_released`].
    pub fn next_released(&mut self, id: LinkId) -> Option<Box<[u8]>> {
        self.change_out_of_order(id, |link, _, _| link.next_released())?
    }

    /// The bytes of all packets that arrived out of order, with the cost of remembering their numbers.
    pub fn out_of_order_bytes(&self) -> usize {
        self.early.used()
    }

    pub fn by_session(&self, session: u64) -> Option<LinkId> {
        let is_it = |entry: &&Entry| entry.inbound && entry.session == session;
        self.find(is_it, || self.by_session.get(&session))
    }

    pub fn by_address(&self, address: SocketAddr) -> Option<LinkId> {
        let is_it = |entry: &&Entry| !entry.inbound && entry.link.peer() == address;
        self.find(is_it, || self.by_address.get(&address))
    }

    /// The link that was found last, if it matches, else the one that a map has.
    fn find<'a>(
        &'a self,
        is_it: impl FnOnce(&&'a Entry) -> bool,
        look_up: impl FnOnce() -> Option<&'a LinkId>,
    ) -> Option<LinkId> {
        if let Some(entry) = self.found.get().and_then(|id| self.awake(id)).filter(is_it) {
            return Some(entry.id);
        }
        let found = look_up().copied();
        self.found.set(found.or(self.found.get()));
        found
    }

    /// The incarnation of this peer in the last link to it that has ended.
    pub fn past(&self, peer: SocketAddr) -> Option<u64> {
        self.past.get(&peer).copied()
    }

    /// The first number of a link that this side opens. It is so high that an acknowledgement for an earlier
    /// link acknowledges nothing of this one (§3.6).
    pub fn first_number(&self) -> u64 {
        self.first_number
    }

    /// A datagram of this peer under this incarnation belongs to no future link.
    pub fn note_past(&mut self, peer: SocketAddr, incarnation: u64) {
        if self.past.len() >= MOST_PAST {
            self.past.clear();
        }
        self.past.insert(peer, incarnation);
    }

    /// The link, awake or idle.
    pub fn get(&self, id: LinkId) -> Option<&LinkSlot> {
        self.entries.get(id.slot()).filter(|link_slot| link_slot.id() == id)
    }

    /// The link, if it is awake. It is awake while a datagram of it is handled, and always if this side
    /// opened it.
    pub fn awake(&self, id: LinkId) -> Option<&Entry> {
        self.entries.get(id.slot())?.awake().filter(|entry| entry.id == id)
    }

    /// The link, to be changed: it is awake from now on. With [`Self::mark_dirty`] the caller reports that the link
    /// may have something to send, or may become idle.
    pub fn get_mut(&mut self, id: LinkId) -> Option<&mut Entry> {
        let link_slot = self.entries.get_mut(id.slot())?;
        if let LinkSlot::Idle(idle_entry) = link_slot {
            if idle_entry.id != id {
                return None;
            }
            link_slot.wake(&self.config, self.hasher);
        }
        match link_slot {
            LinkSlot::Awake(entry) if entry.id == id => Some(entry),
            _ => None,
        }
    }

    /// Marks the link as changed: `drain_dirty` builds its datagrams, and updates its timer.
    pub fn mark_dirty(&mut self, id: LinkId) {
        if let Some(LinkSlot::Awake(entry)) = self.entries.get_mut(id.slot())
            && entry.id == id
            && !std::mem::replace(&mut entry.dirty, true)
        {
            self.dirty.push(id);
        }
    }

    /// Whether any link is marked as changed.
    pub fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Calls `build` for each marked link, until `build` returns that there is no more room, and updates
    /// their timers. The links that are left stay marked; of the others, those become idle that can.
    pub fn drain_dirty(&mut self, now: Micros, mut build: impl FnMut(&mut Entry) -> bool) {
        let mut dirty = std::mem::take(&mut self.dirty);
        let mut done = 0;
        for &id in &dirty {
            if let Some(link_slot) = self.entries.get_mut(id.slot())
                && let LinkSlot::Awake(entry) = link_slot
                && entry.id == id
            {
                entry.dirty = build(entry);
                schedule(&mut self.timers, entry);
                if entry.dirty {
                    break;
                }
                if let Some(idle_entry) = entry.idle_state(now) {
                    self.ended += entry.link.stats();
                    *link_slot = LinkSlot::Idle(idle_entry);
                }
            }
            done += 1;
        }
        dirty.drain(..done);
        self.dirty = dirty;
    }

    /// The earliest time at which a link may need its timer.
    pub fn next_timeout(&self) -> Option<Micros> {
        self.timers.first().map(|&(deadline, _)| deadline)
    }

    /// The next link whose timer is due; `None`: there is none. An idle link that was looked at in vain stays
    /// idle.
    pub fn pop_due(&mut self, now: Micros) -> Option<LinkId> {
        loop {
            let &(deadline, id) = self.timers.first().filter(|&&(deadline, _)| deadline <= now)?;
            self.timers.remove(&(deadline, id));
            if let Some(LinkSlot::Idle(idle_entry)) = self.entries.get_mut(id.slot())
                && idle_entry.id == id
            {
                idle_entry.scheduled = idle_entry.link.deadline(&self.config);
                if idle_entry.scheduled > now {
                    self.timers.insert((idle_entry.scheduled, id));
                    continue;
                }
            }
            self.get_mut(id)?.scheduled = Micros::MAX;
            return Some(id);
        }
    }

    /// The counters of all links, including ended ones.
    pub fn stats(&self) -> LinkStats {
        let mut stats = self.ended;
        self.iter().filter_map(LinkSlot::link).for_each(|link| stats += link.stats());
        stats
    }

    pub fn iter(&self) -> impl Iterator<Item = &LinkSlot> {
        self.entries.iter().map(|(_, link_slot)| link_slot)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The links in `positions` slots from `from` on; `None`: there are no more slots.
    pub fn slots(&self, from: usize, positions: usize) -> Option<impl Iterator<Item = &LinkSlot>> {
        let slots = from..from + positions;
        (from < self.entries.capacity()).then(|| slots.filter_map(|slot| self.entries.get(slot)))
    }

    /// Changes a link's packets that arrived out of order, and its share of the memory for them.
    fn change_out_of_order<R>(
        &mut self,
        id: LinkId,
        change: impl FnOnce(&mut Link, &Shares<Prefix>, &Share<Prefix>) -> R,
    ) -> Option<R> {
        let LinkSlot::Awake(entry) =
            self.entries.get_mut(id.slot()).filter(|link_slot| link_slot.id() == id)?
        else {
            return None;
        };
        let Entry { link, early, .. } = &mut **entry;
        let changed = change(link, &self.early, early);
        if link.buffered_bytes() != early.bytes() {
            self.early.set(early, link.peer().ip().into(), link.buffered_bytes());
        }
        Some(changed)
    }

    fn remember(&mut self, link: &Link) {
        if let Some(incarnation) = link.peer_incarnation() {
            self.note_past(link.peer(), incarnation);
        }
    }
}

fn schedule(timers: &mut BTreeSet<(Micros, LinkId)>, entry: &mut Entry) {
    let deadline = entry.link.poll_timeout().unwrap_or(Micros::MAX);
    if deadline < entry.scheduled {
        timers.remove(&(entry.scheduled, entry.id));
        timers.insert((deadline, entry.id));
        entry.scheduled = deadline;
    }
}

/// How often a link may become idle, in the long run and in a row. A link that was just opened needs a
/// handful; a PING every two seconds needs two, for itself and for the acknowledgement of its answer.
const INTERVAL: Micros = 500_000;
const IN_A_ROW: Micros = 8;

/// What few idle links have: another credit than the default, rights of their peers.
#[derive(Default)]
struct RareState {
    credit: Credit,
    rights: Option<Arc<Rights>>,
}

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
    /// `None`: the default.
    rare: Option<Box<RareState>>,
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
            rare: self.rare_state(),
            idle_from,
        })
    }

    fn rare_state(&self) -> Option<Box<RareState>> {
        let (credit, rights) = (self.credit, self.rights.of_heard());
        (credit != Credit::default() || rights.is_some()).then(|| Box::new(RareState { credit, rights }))
    }

    fn is_idle(&self, now: Micros) -> bool {
        self.inbound
            && self.announced
            && !self.stalled
            && !self.awaits_room
            && self.throttled_by.is_empty()
            && !self.is_throttled
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
        let RareState { credit, rights } = self.rare.take().map_or_else(RareState::default, |rare| *rare);
        Entry {
            subscriber: self.subscriber,
            publisher: self.publisher,
            for_many: self.for_many,
            rights: LinkRights::heard(rights),
            announced: true,
            credit,
            scheduled: self.scheduled,
            idle_from: self.idle_from,
            ..Entry::new(self.link.wake(self.session, config), self.session, true, self.id, hasher)
        }
    }

    /// The peer's address.
    pub fn peer(&self) -> SocketAddr {
        self.link.peer()
    }

    fn rights_key(&self) -> u64 {
        let rights = self.rare.as_ref().and_then(|rare| rare.rights.as_ref());
        rights.map_or(0, |rights| rights.key)
    }
}
