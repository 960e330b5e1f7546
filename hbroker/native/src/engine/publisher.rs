//! A client's outgoing messages: from `publish` to the owner's PUBACK (§§5.3, 7).
//!
//! A part of a message is in one of two places. *Waiting*: for its topic's owner to be known, for room on the link to it, or for
//! its turn. *In flight*: on the link to an owner, under the delivery number that the link's ledger maps to its ticket. A
//! refusal (NOT_RESPONSIBLE, HANDOVER) or the end of the link brings it back to waiting under the same message id; the owner's
//! PUBACK ends it.
//!
//! Messages of one topic keep their order through all of this: they wait in the order of their sequence numbers, nothing is sent past
//! those that wait, and nothing goes to one owner while an older message, or one that may come back, is in flight to another.

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

/// What is to be done about the messages that wait on a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The first is to be sent to this owner.
    Send(SocketAddr),
    /// Somebody must be asked for the owner: this node, or (`None`) the root.
    Ask(Option<SocketAddr>),
    /// Those in flight come first.
    Hold,
    /// There are none.
    Nothing,
}

/// What a client keeps of what it publishes.
pub struct Publisher {
    pub zones: Zones,
    waiting: HashMap<Box<str>, BTreeMap<u64, Part>, Keyed>,
    waiting_bytes: usize,
    waiting_limit: usize,
    in_flight: Slab<Part>,
    flights: HashMap<Box<str>, Flight, Keyed>,
    /// Parts still out, for messages of more than one.
    parts_out: HashMap<u64, u32, Keyed>,
}

/// What is in flight on one topic: all of it to one owner.
struct Flight {
    owner: SocketAddr,
    parts: u32,
    /// The highest sequence number that was sent.
    newest: u64,
    /// The delivery that was queued last.
    last: u64,
}

impl Publisher {
    pub fn new(zones: Zones, waiting_limit: usize, hasher: Keyed) -> Self {
        Self {
            zones,
            waiting: HashMap::with_hasher(hasher),
            waiting_bytes: 0,
            waiting_limit,
            in_flight: Slab::new(),
            flights: HashMap::with_hasher(hasher),
            parts_out: HashMap::with_hasher(hasher),
        }
    }

    /// Where a new message on this topic goes at once; `None`: it has to wait.
    pub fn route(&self, now: Micros, topic: &str) -> Option<SocketAddr> {
        let Lookup::Owner(owner) = self.zones.lookup(topic, now) else {
            return None;
        };
        let is_free =
            !self.is_waiting(topic) && self.flights.get(topic).is_none_or(|flight| flight.owner == owner);
        is_free.then_some(owner)
    }

    /// Whether another message of so many bytes may wait.
    pub fn may_wait(&self, bytes: usize) -> bool {
        self.waiting_bytes == 0 || self.waiting_bytes + bytes <= self.waiting_limit
    }

    /// Whether something waits on this topic.
    pub fn is_waiting(&self, topic: &str) -> bool {
        self.waiting.contains_key(topic)
    }

    /// Puts a part among those that wait, unless its message has failed.
    pub fn wait(&mut self, part: Part) {
        if !self.is_open(&part) {
            return;
        }
        self.waiting_bytes += part.field.len();
        match self.waiting.get_mut(&part.topic) {
            Some(parts) => _ = parts.insert(part.sequence, part),
            None => _ = self.waiting.insert(part.topic.clone(), BTreeMap::from([(part.sequence, part)])),
        }
    }

    /// What is to be done next about a topic.
    pub fn next(&self, now: Micros, topic: &str) -> Next {
        let Some((&first, _)) = self.waiting.get(topic).and_then(BTreeMap::first_key_value) else {
            return Next::Nothing;
        };
        let lookup = self.zones.lookup(topic, now);
        match (lookup, self.flights.get(topic)) {
            (Lookup::Owner(owner), Some(flight)) if flight.owner == owner && flight.newest < first => {
                Next::Send(owner)
            }
            (_, Some(_)) => Next::Hold,
            (Lookup::Owner(owner), None) => Next::Send(owner),
            (Lookup::Below(node), None) => Next::Ask(Some(node)),
            (Lookup::Unknown, None) => Next::Ask(None),
        }
    }

    /// The topics on which something waits and whose owner is known.
    pub fn routable(&self, now: Micros) -> Vec<Box<str>> {
        let is_routable = |topic: &str| matches!(self.zones.lookup(topic, now), Lookup::Owner(_));
        self.waiting.keys().filter(|topic| is_routable(topic)).cloned().collect()
    }

    /// Takes the first part that waits on a topic.
    pub fn take_first(&mut self, topic: &str) -> Option<Part> {
        let parts = self.waiting.get_mut(topic)?;
        let (_, part) = parts.pop_first()?;
        if parts.is_empty() {
            self.waiting.remove(topic);
        }
        self.waiting_bytes -= part.field.len();
        Some(part)
    }

    /// Opens a message: it ends when all its parts have.
    pub fn open(&mut self, parts: &[Part]) {
        if let [first, _, ..] = parts
            && first.qos > 0
        {
            self.parts_out.insert(first.message, first.parts);
        }
    }

    /// The delivery that the next one of a topic follows: the last one whose fate is open; 0: there is none. If that one is
    /// refused, so are all that follow it.
    pub fn last(&self, topic: &str) -> u64 {
        self.flights.get(topic).map_or(0, |flight| flight.last)
    }

    /// Keeps a part that was queued as this delivery until its PUBACK; the ticket goes into the link's ledger.
    pub fn keep(&mut self, owner: SocketAddr, part: Part, delivery: u64) -> Ticket {
        match self.flights.get_mut(&part.topic) {
            Some(flight) => {
                flight.parts += 1;
                flight.newest = flight.newest.max(part.sequence);
                flight.last = delivery;
            }
            None => {
                let flight = Flight { owner, parts: 1, newest: part.sequence, last: delivery };
                self.flights.insert(part.topic.clone(), flight);
            }
        }
        let key = self.in_flight.insert(part);
        Ticket { worker: 0, key: u32::try_from(key).expect("fewer than 2^32 parts fit in memory") }
    }

    /// Gives back the part of a ticket, which is spent.
    pub fn settle(&mut self, ticket: Ticket) -> Part {
        let part = self.in_flight.remove(ticket.key as usize);
        if let Some(flight) = self.flights.get_mut(&part.topic) {
            flight.parts -= 1;
            if flight.parts == 0 {
                self.flights.remove(&part.topic);
            }
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

    /// Ends a whole message, since this part of it failed: parts that wait go, and those in flight will not wait again.
    /// True if it was open.
    pub fn abandon(&mut self, part: &Part) -> bool {
        if part.parts == 1 {
            return true;
        }
        let was_open = self.parts_out.remove(&part.message).is_some();
        if let Some(parts) = self.waiting.get_mut(&part.topic) {
            for sequence in part.message..part.message + u64::from(part.parts) {
                self.waiting_bytes -= parts.remove(&sequence).map_or(0, |part| part.field.len());
            }
            if parts.is_empty() {
                self.waiting.remove(&part.topic);
            }
        }
        was_open
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

    fn is_open(&self, part: &Part) -> bool {
        part.parts == 1 || part.qos == 0 || self.parts_out.contains_key(&part.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: ([u8; 4], u16) = ([10, 0, 0, 1], 1);
    const THERE: ([u8; 4], u16) = ([10, 0, 0, 2], 1);

    fn publisher() -> Publisher {
        Publisher::new(Zones::new(10, 1), 10_000, Keyed::new(1))
    }

    fn part(message: u64, sequence: u64, parts: u32) -> Part {
        Part { topic: "a".into(), field: vec![0; 100].into(), qos: 1, message, sequence, parts }
    }

    #[test]
    fn nothing_overtakes_what_is_in_flight_elsewhere_or_may_come_back() {
        let mut publisher = publisher();
        let (here, there) = (HERE.into(), THERE.into());
        publisher.zones.install("", &[], here, 1_000);
        let first = publisher.keep(here, part(1, 1, 1), 7);
        let second = publisher.keep(here, part(2, 2, 1), 8);
        assert_eq!((publisher.last("a"), publisher.last("b")), (8, 0));
        assert_eq!(publisher.route(0, "a"), Some(here));
        publisher.zones.install("", &[], there, 1_000);
        assert_eq!(publisher.route(0, "a"), None, "two are in flight to the old owner");
        let refused = publisher.settle(first);
        publisher.wait(refused);
        publisher.wait(part(3, 3, 1));
        assert_eq!(publisher.next(0, "a"), Next::Hold, "the second may come back");
        publisher.zones.install("", &[], here, 1_000);
        assert_eq!(publisher.next(0, "a"), Next::Hold, "the second would be overtaken by the first");
        let refused = publisher.settle(second);
        publisher.wait(refused);
        assert_eq!(publisher.next(0, "a"), Next::Send(here));
        assert_eq!(publisher.last("a"), 0, "whatever it followed was refused");
        let order: Vec<u64> =
            std::iter::from_fn(|| publisher.take_first("a")).map(|part| part.sequence).collect();
        assert_eq!(order, [1, 2, 3]);
        assert!(publisher.is_drained() && publisher.waiting_bytes == 0 && publisher.flights.is_empty());
    }

    #[test]
    fn a_message_that_failed_in_one_part_leaves_none_behind() {
        let mut publisher = publisher();
        let parts: Vec<Part> = (5..8).map(|sequence| part(5, sequence, 3)).collect();
        publisher.open(&parts);
        let [first, second, third] = <[Part; 3]>::try_from(parts).expect("three");
        let tickets = [publisher.keep(HERE.into(), first, 1), publisher.keep(HERE.into(), second, 2)];
        publisher.wait(third);
        publisher.wait(part(9, 9, 1));
        let failed = publisher.settle(tickets[0]);
        assert!(publisher.abandon(&failed));
        assert_eq!(publisher.waiting(), 1, "the next message waits on");
        let refused = publisher.settle(tickets[1]);
        assert!(!publisher.abandon(&refused) && !publisher.completes(&refused));
        publisher.wait(refused);
        assert_eq!((publisher.waiting(), publisher.waiting_bytes), (1, 100));
    }
}
