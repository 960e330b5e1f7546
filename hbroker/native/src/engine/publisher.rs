//! A client's outgoing messages: from `publish` to the owner's PUBACK (§§5.3, 7).
//!
//! A message is in one of two places. *Waiting*: the owner of its topic is not known; Python resolves it. *In flight*: on the link
//! to an owner, under the delivery number that the link's ledger maps to its ticket. A refusal (NOT_RESPONSIBLE, HANDOVER)
//! or the end of the link brings it back to waiting under the same message id; the owner's PUBACK ends it. Messages of one topic wait in the
//! order of their sequence numbers, and nothing is sent past them.

use std::collections::VecDeque;
use std::collections::hash_map::Entry as MapEntry;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use slab::Slab;

use crate::Micros;
use crate::engine::ledger::Ticket;
use crate::engine::parts::Part;
use crate::keyed::Keyed;
use crate::tables::jurisdiction::Cut;
use crate::tables::zones::{Lookup, Zones};

/// How long a cut that a refusal told is believed.
const CUT_TTL: Micros = 300_000_000;

/// Where to send a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    Owner(SocketAddr),
    /// Ask, from there or (`None`) from the root.
    Ask(Option<SocketAddr>),
}

/// What a client keeps of what it publishes.
pub struct Publisher {
    pub zones: Zones,
    waiting: HashMap<Box<str>, BTreeMap<u64, Part>, Keyed>,
    waiting_bytes: usize,
    waiting_limit: usize,
    in_flight: Slab<Part>,
    /// Parts still out, for messages of more than one.
    parts_out: HashMap<u64, u32, Keyed>,
}

impl Publisher {
    pub fn new(zones: Zones, waiting_limit: usize, hasher: Keyed) -> Self {
        Self {
            zones,
            waiting: HashMap::with_hasher(hasher.clone()),
            waiting_bytes: 0,
            waiting_limit,
            in_flight: Slab::new(),
            parts_out: HashMap::with_hasher(hasher),
        }
    }

    /// Where a message on this topic goes now.
    pub fn route(&mut self, now: Micros, topic: &str) -> Route {
        if self.waiting.contains_key(topic) {
            return Route::Ask(None);
        }
        self.look_up(now, topic)
    }

    fn look_up(&mut self, now: Micros, topic: &str) -> Route {
        match self.zones.lookup(topic, now) {
            Lookup::Owner(owner) => Route::Owner(owner),
            Lookup::Below(node) => Route::Ask(Some(node)),
            Lookup::Unknown => Route::Ask(None),
        }
    }

    /// Whether another message of so many bytes may wait for its owner.
    pub fn may_wait(&self, bytes: usize) -> bool {
        self.waiting_bytes == 0 || self.waiting_bytes + bytes <= self.waiting_limit
    }

    /// Puts a part among those that wait. True: its topic was not waiting before, so Python is to be asked.
    pub fn wait(&mut self, part: Part) -> bool {
        self.waiting_bytes += part.field.len();
        match self.waiting.entry(part.topic.clone()) {
            MapEntry::Occupied(mut topic) => {
                topic.get_mut().insert(part.sequence, part);
                false
            }
            MapEntry::Vacant(topic) => {
                topic.insert(BTreeMap::from([(part.sequence, part)]));
                true
            }
        }
    }

    /// Takes all that waits for an owner that is now known, topic by topic, each in order.
    pub fn take_routable(&mut self, now: Micros) -> Vec<(SocketAddr, Part)> {
        let topics: Vec<(SocketAddr, Box<str>)> = {
            let zones = &mut self.zones;
            self.waiting
                .keys()
                .filter_map(|topic| match zones.lookup(topic, now) {
                    Lookup::Owner(owner) => Some((owner, topic.clone())),
                    _ => None,
                })
                .collect()
        };
        let mut routable = Vec::new();
        for (owner, topic) in topics {
            routable.extend(
                self.take_waiting(&topic)
                    .into_iter()
                    .map(|part| (owner, part)),
            );
        }
        routable
    }

    /// Takes what waits on one topic.
    pub fn take_waiting(&mut self, topic: &str) -> VecDeque<Part> {
        let parts: VecDeque<Part> = self
            .waiting
            .remove(topic)
            .into_iter()
            .flat_map(BTreeMap::into_values)
            .collect();
        self.waiting_bytes -= parts.iter().map(|part| part.field.len()).sum::<usize>();
        parts
    }

    /// Opens a message: it ends when all its parts have.
    pub fn open(&mut self, parts: &[Part]) {
        if let [first, _, ..] = parts
            && first.qos > 0
        {
            self.parts_out.insert(first.message, first.parts);
        }
    }

    /// Keeps a part until its PUBACK; the ticket goes into the link's ledger.
    pub fn keep(&mut self, part: Part) -> Ticket {
        let key = self.in_flight.insert(part);
        Ticket {
            worker: 0,
            key: u32::try_from(key).expect("fewer than 2^32 parts fit in memory"),
        }
    }

    /// Gives back the part of a ticket, which is spent.
    pub fn settle(&mut self, ticket: Ticket) -> Part {
        self.in_flight.remove(ticket.key as usize)
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

    /// Ends a message of several parts at once (it failed); true if it was open.
    pub fn abandon(&mut self, part: &Part) -> bool {
        part.parts == 1 || self.parts_out.remove(&part.message).is_some()
    }

    /// What a refusal teaches (§5.3).
    pub fn learn(&mut self, now: Micros, owner: SocketAddr, topic: &str, cut: &Cut) {
        self.zones.learn_cut(owner, topic, cut, now + CUT_TTL);
    }

    pub fn is_drained(&self) -> bool {
        self.waiting.is_empty() && self.in_flight.is_empty()
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    pub fn waiting(&self) -> usize {
        self.waiting.values().map(BTreeMap::len).sum()
    }
}
