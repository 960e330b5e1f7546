//! What a client has to send on one topic, and what of it is in flight: always in the order of the sequence numbers.
//!
//! Parts that come back from an owner that did not take them were sent before all that still waits, so they lie apart from
//! it: both lots stay in order, whichever way they grow.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use crate::Micros;
use crate::engine::fragmentation::fragments::{Outgoing, Part};
use crate::keyed_hash::Keyed;

/// The backlogs of a client, by topic. That of the topic that was published on last lies apart: it often is the next one's, too, and is found
/// without a search.
pub struct Backlogs {
    others: HashMap<Arc<str>, Backlog, Keyed>,
    /// Perhaps over.
    current: (Arc<str>, Backlog),
}

#[derive(Default)]
pub struct Backlog {
    /// Parts that were sent and came back.
    returned: BTreeMap<u64, Part>,
    /// Messages that were not sent, or not to the end.
    fresh: VecDeque<Outgoing>,
    flight: Option<Flight>,
    /// Its turn for room on the link to its owner, where it waits for that.
    pub turn: Option<Turn>,
}

/// (an owner, a number that rises with every turn).
pub type Turn = (SocketAddr, u64);

/// A part that was taken to be sent.
pub struct Taken {
    pub part: Part,
    /// How many of the bytes that wait went with it: those of a large message all with its last part.
    pub freed: usize,
    /// When what was taken would have died.
    pub dies_at: Micros,
}

/// What is in flight on one topic: all of it to one owner.
struct Flight {
    owner: SocketAddr,
    parts: u32,
    bytes: usize,
    /// The highest sequence number that was sent.
    newest: u64,
    /// The delivery that was queued last.
    last: u64,
}

impl Backlogs {
    pub fn new(hasher: Keyed) -> Self {
        Self { others: HashMap::with_hasher(hasher), current: (Arc::from(""), Backlog::default()) }
    }

    // Change

    /// Makes this topic's the current one; its name, to be kept.
    pub fn turn_to(&mut self, topic: &str) -> &(Arc<str>, Backlog) {
        if *self.current.0 != *topic {
            let next = self.others.remove_entry(topic);
            let next = next.unwrap_or_else(|| (Arc::from(topic), Backlog::default()));
            let (name, before) = std::mem::replace(&mut self.current, next);
            if !before.is_over() {
                self.others.insert(name, before);
            }
        }
        &self.current
    }

    pub fn get_mut(&mut self, topic: &str) -> Option<&mut Backlog> {
        let (name, current) = &mut self.current;
        if **name == *topic { Some(current) } else { self.others.get_mut(topic) }
    }

    /// A topic's, made where there is none.
    pub fn make(&mut self, topic: &Arc<str>) -> &mut Backlog {
        let (name, current) = &mut self.current;
        if *name == *topic { current } else { self.others.entry(Arc::clone(topic)).or_default() }
    }

    /// Ends a topic's, if it is over; the turn that it waited for.
    pub fn end_if_over(&mut self, topic: &str) -> Option<Turn> {
        let (name, current) = &mut self.current;
        if **name == *topic {
            return if current.is_over() { std::mem::take(current).turn } else { None };
        }
        if self.others.get(topic)?.is_over() { self.others.remove(topic)?.turn } else { None }
    }

    // Read

    /// Whether this topic's is the current one.
    pub fn is_current(&self, topic: &str) -> bool {
        *self.current.0 == *topic
    }

    pub fn get(&self, topic: &str) -> Option<&Backlog> {
        let (name, current) = &self.current;
        if **name == *topic { Some(current) } else { self.others.get(topic) }
    }

    /// Those of which something waits or is in flight.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Backlog)> {
        let (name, current) = &self.current;
        self.others.iter().chain((!current.is_over()).then_some((name, current)))
    }
}

impl Backlog {
    pub fn push(&mut self, message: Outgoing) {
        self.fresh.push_back(message);
    }

    pub fn give_back(&mut self, part: Part) {
        self.returned.insert(part.sequence, part);
    }

    /// Takes the next part.
    pub fn take_first(&mut self) -> Option<Taken> {
        if let Some((_, part)) = self.returned.pop_first() {
            return Some(Taken { freed: part.field.len(), dies_at: part.dies_at, part });
        }
        let mut message = self.fresh.pop_front()?;
        let (freed, dies_at) = (message.bytes(), message.dies_at());
        match message {
            Outgoing::Single(part) => Some(Taken { part, freed, dies_at }),
            Outgoing::Large(ref mut large) => {
                let part = large.next()?;
                if large.is_exhausted() {
                    return Some(Taken { part, freed, dies_at });
                }
                self.fresh.push_front(message);
                Some(Taken { part, freed: 0, dies_at })
            }
        }
    }

    /// The next part, if it may go together with the messages before it, of which this is the last one's sequence number.
    pub fn joins(&self, before: u64) -> Option<&Part> {
        let next = match self.returned.first_key_value() {
            Some((_, part)) => part,
            None => match self.fresh.front()? {
                Outgoing::Single(part) => part,
                Outgoing::Large(_) => return None,
            },
        };
        (next.sequence == before + 1 && next.may_join()).then_some(next)
    }

    /// Takes what waits of a message: its parts that came back, and those not made yet.
    pub fn remove(&mut self, message: u64, parts: u32) -> (Vec<Part>, Option<Outgoing>) {
        let last = message + u64::from(parts);
        let sequences: Vec<u64> = self.returned.range(message..last).map(|(&sequence, _)| sequence).collect();
        let returned = sequences.iter().filter_map(|sequence| self.returned.remove(sequence)).collect();
        let place = self.fresh.binary_search_by_key(&message, Outgoing::message);
        (returned, place.ok().and_then(|place| self.fresh.remove(place)))
    }

    /// A part, or several messages together, were queued: the last as this delivery.
    pub fn sent(&mut self, owner: SocketAddr, part: &Part, delivery: u64) {
        let flight = self.flight.get_or_insert(Flight { owner, parts: 0, bytes: 0, newest: 0, last: 0 });
        flight.parts += part.count;
        flight.bytes += part.field.len();
        flight.last = delivery;
        flight.newest = flight.newest.max(part.last_sequence());
    }

    /// So many parts, of so many bytes, are in flight no more.
    pub fn landed(&mut self, count: u32, bytes: usize) {
        if let Some(flight) = &mut self.flight {
            flight.parts -= count;
            flight.bytes -= bytes;
            if flight.parts == 0 {
                self.flight = None;
            }
        }
    }

    pub fn is_waiting(&self) -> bool {
        !self.returned.is_empty() || !self.fresh.is_empty()
    }

    /// Whether nothing waits and nothing is in flight.
    pub fn is_over(&self) -> bool {
        !self.is_waiting() && self.flight.is_none()
    }

    /// The sequence number and the most bytes of the first part that waits, and its `QoS`.
    pub fn first(&self) -> Option<(u64, usize, u8)> {
        let returned = self.returned.first_key_value();
        let returned = returned.map(|(&sequence, part)| (sequence, part.field.len(), part.qos));
        returned.or_else(|| self.fresh.front().map(|next| (next.sequence(), next.part_bytes(), next.qos())))
    }

    /// The sequence number of the first part that waits and is of `QoS` 2.
    pub fn first_exact(&self) -> Option<u64> {
        let returned = self.returned.values().find(|part| part.qos == 2).map(|part| part.sequence);
        returned.or_else(|| self.fresh.iter().find(|next| next.qos() == 2).map(Outgoing::sequence))
    }

    /// Whether a message may go to this owner: nothing is in flight to another.
    pub fn is_free_for(&self, owner: SocketAddr) -> bool {
        self.flight.as_ref().is_none_or(|flight| flight.owner == owner)
    }

    /// What is in flight: to which owner, and how far.
    pub fn in_flight(&self) -> Option<(SocketAddr, u64)> {
        self.flight.as_ref().map(|flight| (flight.owner, flight.newest))
    }

    /// How many parts are in flight, and their bytes.
    pub fn open(&self) -> (u32, usize) {
        self.flight.as_ref().map_or((0, 0), |flight| (flight.parts, flight.bytes))
    }

    /// The delivery that was queued last of those in flight; 0: none is.
    pub fn last(&self) -> u64 {
        self.flight.as_ref().map_or(0, |flight| flight.last)
    }

    /// How many messages, or parts of them, wait.
    pub fn len(&self) -> usize {
        self.returned.len() + self.fresh.len()
    }
}
