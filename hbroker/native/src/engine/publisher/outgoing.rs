//! A client's outgoing messages: from `publish` to the owner's PUBACK (§§5.3, 7).
//!
//! A message, or a part of one, is in one of two places. *Waiting*: for its topic's owner to be known, for room on the link to
//! it and the owner's credit (§7.7), or for its turn. *In flight*: on the link to an owner, under the delivery number that the
//! link's ledger maps to its ticket. A refusal (NOT_RESPONSIBLE, HANDOVER) or the end of the link brings it back to waiting under
//! the same message id; the owner's PUBACK ends it. One that outlives its expiry ends while it waits, and not once it was sent.
//! Messages that go together (`at_once`, `take_run`) are one part with one ticket until they are answered: each may be for itself, and comes back so.
//!
//! Messages of one topic keep their order through all of this: they wait in the order of their sequence numbers, nothing is sent past
//! those that wait, and nothing goes to one owner while an older message, or one that may come back, is in flight to another.
//! Topics that wait for room with the same owner take turns.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;

use slab::Slab;
use smallvec::{SmallVec, smallvec};

use crate::Micros;
use crate::engine::fragmentation::fragments::{Outgoing, Part, Parts};
use crate::engine::publisher::send_queue::{Backlog, Backlogs, Taken, Turn};
use crate::engine::sessions::copy_blocks::Blocks;
use crate::engine::transport::credit::Room;
use crate::engine::transport::delivery_records::{Places, Ticket};
use crate::keyed_hash::Keyed;
use crate::tables::jurisdiction::Cut;
use crate::tables::window;
use crate::tables::zones::{Lookup, Zones};

/// How long a cut that a refusal told is believed.
const CUT_TTL: Micros = 300_000_000;
/// Half of what an owner remembers of a publisher's numbers, whatever gaps they have.
const MOST_LEAD: u64 = window::SPAN as u64 / 2;
/// How often it is found anew, at most.
const FINDING_LEAD: Micros = 100_000;

/// What is to be done about the messages that wait on a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The first, of this QoS and at most so many bytes, is to be sent to this owner.
    Send { owner: SocketAddr, qos: u8, bytes: usize },
    /// Somebody must be asked for the owner: this node, or (`None`) the root.
    Ask(Option<SocketAddr>),
    /// Those in flight come first.
    Hold,
    /// There are none.
    Nothing,
}

/// A message that came to its end without an owner's word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub topic: Arc<str>,
    pub message: u64,
    pub qos: u8,
}

/// Where a new message of a topic goes.
#[derive(Clone, Debug)]
pub struct Route {
    /// The topic's name, to be kept.
    pub topic: Arc<str>,
    /// To whom it goes at once; `None`: it has to wait.
    pub owner: Option<SocketAddr>,
    /// When the owner is to be found again.
    until: Micros,
    /// Of the zones.
    version: u64,
    /// The message before was on this topic, too.
    pub is_last: bool,
}

/// What a client keeps of what it publishes.
pub struct Publisher {
    pub zones: Zones,
    topics: Backlogs,
    /// Whose the topic is that was published on last: its owner, until when, and by which version of the zones.
    way: Option<(SocketAddr, Micros, u64)>,
    budget: Budget,
    /// With how many of its messages are open.
    in_flight: Slab<(Part, u32)>,
    /// Parts still out, for messages of more than one, at `QoS` 1 and 2.
    parts_out: HashMap<u64, u32, Keyed>,
    /// When those that wait and are mortal die.
    deaths: BTreeSet<(Micros, u64, Arc<str>)>,
    /// The topics that wait for room with each owner, in the order of their turns.
    blocked: BTreeMap<Turn, Arc<str>>,
    turns: u64,
    lead: Lead,
    /// Makes one part of messages that waited.
    blocks: Blocks,
}

/// How far messages of `QoS` 2 may be ahead of one that waits, for their owners must know it for new when it comes (§7.4).
#[derive(Default)]
struct Lead {
    /// Up to this sequence number they may go.
    until: u64,
    /// When that was found last.
    found: Micros,
}

/// The bytes that wait. A message that is larger than all that may wait waits beside it, if it is the only one.
struct Budget {
    limit: usize,
    bytes: usize,
    has_oversized: bool,
}

impl Publisher {
    pub fn new(zones: Zones, waiting_limit: usize, hasher: Keyed) -> Self {
        Self {
            zones,
            topics: Backlogs::new(hasher),
            way: None,
            budget: Budget { limit: waiting_limit, bytes: 0, has_oversized: false },
            in_flight: Slab::new(),
            parts_out: HashMap::with_hasher(hasher),
            deaths: BTreeSet::new(),
            blocked: BTreeMap::new(),
            turns: 0,
            lead: Lead::default(),
            blocks: Blocks::default(),
        }
    }

    /// Where a new message goes.
    pub fn route(&mut self, now: Micros, topic: &str) -> Route {
        let is_last = self.topics.is_current(topic);
        let (owner, until) = self.find(now, topic, is_last).unzip();
        let (name, backlog) = self.topics.turn_to(topic);
        let (topic, owner) = (Arc::clone(name), owner.filter(|&owner| is_free(Some(backlog), owner)));
        Route { topic, owner, until: until.unwrap_or(now), version: self.zones.version(), is_last }
    }

    /// Whether a route still leads to its owner, at once.
    pub fn holds(&self, now: Micros, route: &Route) -> bool {
        let is_free = |owner| self.is_free(&route.topic, owner);
        now < route.until && route.version == self.zones.version() && route.owner.is_some_and(is_free)
    }

    /// Whether a new message of a topic may go to this owner at once: nothing waits, and nothing is in flight to another.
    pub fn is_free(&self, topic: &str, owner: SocketAddr) -> bool {
        is_free(self.topics.get(topic), owner)
    }

    /// Whether another message of so many bytes may wait.
    pub fn may_wait(&self, bytes: usize) -> bool {
        self.budget.admits(bytes)
    }

    /// Whether something waits on this topic.
    pub fn is_waiting(&self, topic: &str) -> bool {
        self.topics.get(topic).is_some_and(Backlog::is_waiting)
    }

    /// Whether something waits on this topic, and not merely for its turn.
    pub fn is_held(&self, topic: &str) -> bool {
        self.topics.get(topic).is_some_and(|backlog| backlog.is_waiting() && backlog.turn.is_none())
    }

    /// How much of a topic is in flight: messages, or parts of them, and their bytes.
    pub fn open_on(&self, topic: &str) -> (u32, usize) {
        self.topics.get(topic).map_or((0, 0), Backlog::open)
    }

    /// The sequence number of the first that waits on a topic.
    pub fn first_on(&self, topic: &str) -> Option<u64> {
        self.topics.get(topic)?.first().map(|(sequence, ..)| sequence)
    }

    /// Whether a message of `QoS` 2 may go, or would be too far ahead of one that waits. (Only one who publishes for many has some that wait for
    /// minutes, while others go on.)
    pub fn may_lead(&mut self, now: Micros, sequence: u64) -> bool {
        if sequence > self.lead.until && now >= self.lead.found + FINDING_LEAD {
            let oldest = self.topics.iter().filter_map(|(_, backlog)| backlog.first_exact()).min();
            self.lead = Lead { until: oldest.unwrap_or(sequence) + MOST_LEAD, found: now };
        }
        sequence <= self.lead.until
    }

    /// Opens a message of several parts: it ends when all of them have.
    pub fn open(&mut self, parts: &Parts) {
        if parts.count() > 1 && parts.qos() > 0 {
            self.parts_out.insert(parts.message(), parts.count());
        }
    }

    /// Puts a message behind those that wait.
    pub fn push(&mut self, message: Outgoing) {
        self.budget.add(message.bytes());
        if message.dies_at() < Micros::MAX {
            let topic = Arc::clone(message.topic());
            self.deaths.insert((message.dies_at(), message.message(), topic));
        }
        self.topics.make(&Arc::clone(message.topic())).push(message);
    }

    /// Has a part that was sent wait again, unless its message has failed. Of several messages each waits for itself.
    pub fn give_back(&mut self, part: Part) {
        if part.count > 1 {
            return (0..part.count).for_each(|place| self.give_back(part.section(place, 1)));
        }
        if part.parts > 1 && part.qos > 0 && !self.parts_out.contains_key(&part.message) {
            return;
        }
        self.budget.add(part.field.len());
        if part.dies_at < Micros::MAX {
            self.deaths.insert((part.dies_at, part.message, Arc::clone(&part.topic)));
        }
        self.topics.make(&Arc::clone(&part.topic)).give_back(part);
    }

    /// What is to be done next about a topic.
    pub fn next(&self, now: Micros, topic: &str) -> Next {
        let Some((backlog, (first, bytes, qos))) =
            self.topics.get(topic).and_then(|backlog| Some((backlog, backlog.first()?)))
        else {
            return Next::Nothing;
        };
        match (self.zones.lookup(topic, now), backlog.in_flight()) {
            (Lookup::Owner(owner), Some((to, newest))) if owner == to && newest < first => {
                Next::Send { owner, qos, bytes }
            }
            (_, Some(_)) => Next::Hold,
            (Lookup::Owner(owner), None) => Next::Send { owner, qos, bytes },
            (Lookup::Below(node), None) => Next::Ask(Some(node)),
            (Lookup::Unknown, None) => Next::Ask(None),
        }
    }

    /// The topics on which something waits and whose owner is known.
    pub fn routable(&self, now: Micros) -> Vec<Arc<str>> {
        let is_routable = |topic: &str| matches!(self.zones.lookup(topic, now), Lookup::Owner(_));
        let waiting = self.topics.iter().filter(|(_, backlog)| backlog.is_waiting());
        waiting.map(|(topic, _)| topic).filter(|topic| is_routable(topic)).cloned().collect()
    }

    /// Takes the first part that waits on a topic.
    pub fn take_first(&mut self, topic: &str) -> Option<Part> {
        let Taken { part, freed, dies_at } = self.topics.get_mut(topic)?.take_first()?;
        self.budget.free(freed);
        self.bury(dies_at, part.message, &part.topic);
        self.tidy(topic);
        Some(part)
    }

    /// Takes the first part that waits on a topic; with it, as one part, the messages that follow it closely and may join it, as far as there is room.
    pub fn take_run(&mut self, topic: &str, room: Room) -> Option<Part> {
        let mut run = self.take_first(topic)?;
        let Some(backlog) = self.topics.get_mut(topic).filter(|_| run.may_join()) else {
            return Some(run);
        };
        let (most, mut bytes) = (room.messages.min(Places::MOST as usize), run.field.len());
        while (run.count as usize) < most
            && let Some(next) = backlog.joins(run.last_sequence())
            && bytes + next.field.len() <= room.bytes
            && (run.count > 1 || self.blocks.gather(&run.field))
            && self.blocks.gather(&next.field)
            && let Some(Taken { freed, .. }) = backlog.take_first()
        {
            self.budget.free(freed);
            bytes += freed;
            run.count += 1;
        }
        if self.blocks.gathered() > 0 {
            run.field = self.blocks.take();
            self.tidy(topic);
        }
        Some(run)
    }

    /// The delivery that the next one of a topic follows: the last one whose fate is open; 0: there is none. If that one is
    /// refused, so are all that follow it.
    pub fn last(&self, topic: &str) -> u64 {
        self.topics.get(topic).map_or(0, Backlog::last)
    }

    /// Keeps a part until its PUBACK that was queued as this delivery, and as those that follow; the ticket goes into the link's ledger.
    pub fn keep(&mut self, owner: SocketAddr, part: Part, delivery: u64) -> Ticket {
        let (count, last) = (part.count, delivery + u64::from(part.count - 1));
        self.topics.make(&part.topic).sent(owner, &part, last);
        let key = self.in_flight.insert((part, count));
        Ticket { worker: 0, place: 0, key: u32::try_from(key).expect("fewer than 2^32 parts fit in memory") }
    }

    /// Gives back what a ticket stands for at these places, in its order; with the last of them it is spent.
    pub fn settle(&mut self, ticket: Ticket, places: Places) -> SmallVec<[Part; 1]> {
        let key = ticket.key as usize;
        let (part, open) = &mut self.in_flight[key];
        *open -= places.len();
        let (is_spent, is_whole) = (*open == 0, places.len() == part.count);
        let settled: SmallVec<[Part; 1]> = if is_whole {
            smallvec![self.in_flight.remove(key).0]
        } else {
            places.runs().map(|(place, count)| part.section(place, count)).collect()
        };
        if is_spent && !is_whole {
            self.in_flight.remove(key);
        }
        let bytes = settled.iter().map(|part| part.field.len()).sum();
        self.land(&settled[0].topic, places.len(), bytes);
        settled
    }

    /// Counts a part as ended; true when the whole message is.
    pub fn completes(&mut self, part: &Part) -> bool {
        if part.parts == 1 {
            return true;
        }
        let Some(out) = self.parts_out.get_mut(&part.message) else {
            return false;
        };
        *out -= 1;
        let done = *out == 0;
        if done {
            self.parts_out.remove(&part.message);
        }
        done
    }

    /// Ends a whole message, since this part of it failed: what waits of it goes, and parts in flight will not wait again.
    /// True if it was open.
    pub fn abandon(&mut self, part: &Part) -> bool {
        if part.parts == 1 {
            return true;
        }
        let was_open = self.parts_out.remove(&part.message).is_some() || part.qos == 0;
        self.remove(&part.topic, part.message, part.parts);
        was_open
    }

    /// Ends the messages that wait and are worth nothing any more.
    pub fn expire(&mut self, now: Micros) -> Vec<Ended> {
        let mut ended = Vec::new();
        while let Some((dies_at, ..)) = self.deaths.first()
            && *dies_at <= now
            && let Some((_, message, topic)) = self.deaths.pop_first()
        {
            ended.extend(self.remove(&topic, message, 1).map(|qos| Ended { topic, message, qos }));
        }
        ended
    }

    /// When `expire` is to be called next.
    pub fn next_death(&self) -> Option<Micros> {
        self.deaths.first().map(|(dies_at, ..)| *dies_at)
    }

    /// Has a topic wait for its turn when there is room with its owner.
    pub fn block(&mut self, owner: SocketAddr, topic: &Arc<str>) {
        if let Some(backlog) = self.topics.get_mut(topic) {
            self.turns += 1;
            if let Some(turn) = backlog.turn.replace((owner, self.turns)) {
                self.blocked.remove(&turn);
            }
            self.blocked.insert((owner, self.turns), Arc::clone(topic));
        }
    }

    /// Whether a topic waits for room with this owner.
    pub fn is_crowded(&self, owner: SocketAddr) -> bool {
        self.blocked.range((owner, 0)..=(owner, u64::MAX)).next().is_some()
    }

    /// Takes the topic whose turn it is.
    pub fn unblock(&mut self, owner: SocketAddr) -> Option<Arc<str>> {
        let (&turn, _) = self.blocked.range((owner, 0)..=(owner, u64::MAX)).next()?;
        let topic = self.blocked.remove(&turn)?;
        if let Some(backlog) = self.topics.get_mut(&topic) {
            backlog.turn = None;
        }
        Some(topic)
    }

    /// What a refusal teaches (§5.3).
    pub fn learn(&mut self, now: Micros, owner: SocketAddr, topic: &str, cut: &Cut) {
        self.zones.learn_cut(owner, topic, cut, now + CUT_TTL);
    }

    pub fn is_drained(&self) -> bool {
        self.topics.iter().next().is_none()
    }

    /// Messages, or parts of them.
    pub fn in_flight(&self) -> usize {
        self.in_flight.iter().map(|(_, (_, open))| *open as usize).sum()
    }

    pub fn waiting(&self) -> usize {
        self.topics.iter().map(|(_, backlog)| backlog.len()).sum()
    }

    /// The owner of a topic, and until when that is known. `is_last`: it is the topic that was asked for before.
    fn find(&mut self, now: Micros, topic: &str, is_last: bool) -> Option<(SocketAddr, Micros)> {
        let holds = |&(_, until, version): &(SocketAddr, Micros, u64)| {
            is_last && now < until && version == self.zones.version()
        };
        self.way = self.way.filter(holds).or_else(|| match self.zones.find(topic, now) {
            Some((Lookup::Owner(owner), until)) => Some((owner, until, self.zones.version())),
            _ => None,
        });
        self.way.map(|(owner, until, _)| (owner, until))
    }

    /// Takes what waits of a message away; its `QoS`, if there was something.
    fn remove(&mut self, topic: &Arc<str>, message: u64, parts: u32) -> Option<u8> {
        let (returned, fresh) = self.topics.get_mut(topic)?.remove(message, parts);
        returned.iter().for_each(|part| self.budget.free(part.field.len()));
        let mut qos = returned.first().map(|part| part.qos);
        if let Some(fresh) = fresh {
            self.budget.free(fresh.bytes());
            self.bury(fresh.dies_at(), message, topic);
            self.parts_out.remove(&message);
            qos = Some(fresh.qos());
        }
        self.tidy(topic);
        qos
    }

    fn bury(&mut self, dies_at: Micros, message: u64, topic: &Arc<str>) {
        if dies_at < Micros::MAX {
            self.deaths.remove(&(dies_at, message, Arc::clone(topic)));
        }
    }

    fn land(&mut self, topic: &str, count: u32, bytes: usize) {
        let is_over = self.topics.get_mut(topic).is_some_and(|backlog| {
            backlog.landed(count, bytes);
            backlog.is_over()
        });
        if is_over {
            self.tidy(topic);
        }
    }

    fn tidy(&mut self, topic: &str) {
        if let Some(turn) = self.topics.end_if_over(topic) {
            self.blocked.remove(&turn);
        }
    }
}

/// Whether a new message of a topic with this backlog may go to an owner at once.
fn is_free(backlog: Option<&Backlog>, owner: SocketAddr) -> bool {
    backlog.is_none_or(|backlog| !backlog.is_waiting() && backlog.is_free_for(owner))
}

impl Budget {
    fn admits(&self, bytes: usize) -> bool {
        if bytes > self.limit {
            !self.has_oversized
        } else {
            self.bytes == 0 || self.bytes + bytes <= self.limit
        }
    }

    fn add(&mut self, bytes: usize) {
        if bytes > self.limit {
            self.has_oversized = true;
        } else {
            self.bytes += bytes;
        }
    }

    fn free(&mut self, bytes: usize) {
        if bytes > self.limit {
            self.has_oversized = false;
        } else {
            self.bytes -= bytes;
        }
    }
}

#[cfg(test)]
mod tests;
