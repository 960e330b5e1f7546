//! A client's outgoing messages: from `publish` to the owner's PUBACK (§§5.3, 7).
//!
//! A message, or a part of one, is in one of two places. *Waiting*: for its topic's owner to be known, for room on the link to
//! it and the owner's credit (§7.7), or for its turn. *In flight*: on the link to an owner, under the delivery number that the
//! link's ledger maps to its ticket. A refusal (NOT_RESPONSIBLE, HANDOVER) or the end of the link brings it back to waiting under
//! the same message id; the owner's PUBACK ends it. One that outlives its expiry ends while it waits, and not once it was sent.
//!
//! Messages of one topic keep their order through all of this: they wait in the order of their sequence numbers, nothing is sent past
//! those that wait, and nothing goes to one owner while an older message, or one that may come back, is in flight to another.
//! Topics that wait for room with the same owner take turns.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;

use slab::Slab;

use crate::Micros;
use crate::engine::backlog::{Backlog, Taken, Turn};
use crate::engine::ledger::Ticket;
use crate::engine::parts::{Outgoing, Part};
use crate::keyed::Keyed;
use crate::tables::jurisdiction::Cut;
use crate::tables::zones::{Lookup, Zones};

/// How long a cut that a refusal told is believed.
const CUT_TTL: Micros = 300_000_000;

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
    topics: HashMap<Arc<str>, Backlog, Keyed>,
    /// The name of the topic that was published on last: it often is the next one's, too.
    last: Arc<str>,
    budget: Budget,
    in_flight: Slab<Part>,
    /// Parts still out, for messages of more than one, at `QoS` 1 and 2.
    parts_out: HashMap<u64, u32, Keyed>,
    /// When those that wait and are mortal die.
    deaths: BTreeSet<(Micros, u64, Arc<str>)>,
    /// The topics that wait for room with each owner, in the order of their turns.
    blocked: BTreeMap<Turn, Arc<str>>,
    turns: u64,
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
            topics: HashMap::with_hasher(hasher),
            last: Arc::from(""),
            budget: Budget { limit: waiting_limit, bytes: 0, has_oversized: false },
            in_flight: Slab::new(),
            parts_out: HashMap::with_hasher(hasher),
            deaths: BTreeSet::new(),
            blocked: BTreeMap::new(),
            turns: 0,
        }
    }

    /// Where a new message goes.
    pub fn route(&mut self, now: Micros, topic: &str) -> Route {
        let known = self.topics.get_key_value(topic);
        let is_last = *self.last == *topic;
        if !is_last {
            self.last = known.map_or_else(|| Arc::from(topic), |(name, _)| Arc::clone(name));
        }
        let (owner, until) = match self.zones.find(topic, now) {
            Some((Lookup::Owner(owner), until)) if is_free(known.map(|(_, backlog)| backlog), owner) => {
                (Some(owner), until)
            }
            _ => (None, now),
        };
        Route { topic: Arc::clone(&self.last), owner, until, version: self.zones.version(), is_last }
    }

    /// Whether a route still leads to its owner, at once.
    pub fn holds(&self, now: Micros, route: &Route) -> bool {
        let is_free = |owner| self.topics.is_empty() || is_free(self.topics.get(&route.topic), owner);
        now < route.until && route.version == self.zones.version() && route.owner.is_some_and(is_free)
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

    /// Opens a message of several parts: it ends when all of them have.
    pub fn open(&mut self, message: &Outgoing) {
        if message.parts() > 1 && message.qos() > 0 {
            self.parts_out.insert(message.message(), message.parts());
        }
    }

    /// Puts a message behind those that wait.
    pub fn push(&mut self, message: Outgoing) {
        self.budget.add(message.bytes());
        if message.dies_at() < Micros::MAX {
            let topic = Arc::clone(message.topic());
            self.deaths.insert((message.dies_at(), message.message(), topic));
        }
        self.topics.entry(Arc::clone(message.topic())).or_default().push(message);
    }

    /// Has a part that was sent wait again, unless its message has failed.
    pub fn give_back(&mut self, part: Part) {
        if part.parts > 1 && part.qos > 0 && !self.parts_out.contains_key(&part.message) {
            return;
        }
        self.budget.add(part.field.len());
        if part.dies_at < Micros::MAX {
            self.deaths.insert((part.dies_at, part.message, Arc::clone(&part.topic)));
        }
        self.topics.entry(Arc::clone(&part.topic)).or_default().give_back(part);
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

    /// The delivery that the next one of a topic follows: the last one whose fate is open; 0: there is none. If that one is
    /// refused, so are all that follow it.
    pub fn last(&self, topic: &str) -> u64 {
        self.topics.get(topic).map_or(0, Backlog::last)
    }

    /// Keeps a part that was queued as this delivery until its PUBACK; the ticket goes into the link's ledger.
    pub fn keep(&mut self, owner: SocketAddr, part: Part, delivery: u64) -> Ticket {
        match self.topics.get_mut(&part.topic) {
            Some(backlog) => backlog.sent(owner, part.sequence, delivery),
            None => {
                let topic = Arc::clone(&part.topic);
                self.topics.entry(topic).or_default().sent(owner, part.sequence, delivery);
            }
        }
        let key = self.in_flight.insert(part);
        Ticket { worker: 0, key: u32::try_from(key).expect("fewer than 2^32 parts fit in memory") }
    }

    /// Gives back the part of a ticket, which is spent.
    pub fn settle(&mut self, ticket: Ticket) -> Part {
        let part = self.in_flight.remove(ticket.key as usize);
        let is_over = self.topics.get_mut(&part.topic).is_some_and(|backlog| {
            backlog.landed();
            backlog.is_over()
        });
        if is_over {
            self.tidy(&part.topic);
        }
        part
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
        self.topics.is_empty()
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    pub fn waiting(&self) -> usize {
        self.topics.values().map(Backlog::len).sum()
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

    fn tidy(&mut self, topic: &str) {
        if self.topics.get(topic).is_some_and(Backlog::is_over)
            && let Some(Backlog { turn: Some(turn), .. }) = self.topics.remove(topic)
        {
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
