//! What a client has to send on one topic, and what of it is in flight: always in the order of the sequence numbers.
//!
//! Parts that come back from an owner that did not take them were sent before all that still waits, so they lie apart from
//! it: both lots stay in order, whichever way they grow.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use crate::Micros;
use crate::engine::fragmentation::fragments::{Fragment, Outgoing};
use crate::keyed_hash::KeyedHash;

/// The backlogs of a client, by topic. That of the topic that was published on last lies apart: it often is the next one's, too, and is found
/// without a search.
pub struct SendQueues {
    others: HashMap<Arc<str>, SendQueue, KeyedHash>,
    /// Perhaps over.
    current: (Arc<str>, SendQueue),
}

#[derive(Default)]
pub struct SendQueue {
    /// Parts that were sent and came back.
    returned: BTreeMap<u64, Fragment>,
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
    pub fragment: Fragment,
    /// How many of the bytes that wait went with it: those of a large message all with its last part.
    pub freed: usize,
    /// When what was taken would have died.
    pub dies_at: Micros,
}

/// What is in flight on one topic: all of it to one owner.
struct Flight {
    owner: SocketAddr,
    fragments: u32,
    bytes: usize,
    /// The highest sequence number that was sent.
    newest: u64,
    /// The delivery that was queued last.
    last: u64,
}

impl SendQueues {
    pub fn new(hasher: KeyedHash) -> Self {
        Self { others: HashMap::with_hasher(hasher), current: (Arc::from(""), SendQueue::default()) }
    }

    // Change

    /// Makes this topic's the current one; its name, to be kept.
    pub fn turn_to(&mut self, topic: &str) -> &(Arc<str>, SendQueue) {
        if *self.current.0 != *topic {
            let next = self.others.remove_entry(topic);
            let next = next.unwrap_or_else(|| (Arc::from(topic), SendQueue::default()));
            let (name, before) = std::mem::replace(&mut self.current, next);
            if !before.is_over() {
                self.others.insert(name, before);
            }
        }
        &self.current
    }

    pub fn get_mut(&mut self, topic: &str) -> Option<&mut SendQueue> {
        let (name, current) = &mut self.current;
        if **name == *topic { Some(current) } else { self.others.get_mut(topic) }
    }

    /// A topic's, made where there is none.
    pub fn make(&mut self, topic: &Arc<str>) -> &mut SendQueue {
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

    pub fn get(&self, topic: &str) -> Option<&SendQueue> {
        let (name, current) = &self.current;
        if **name == *topic { Some(current) } else { self.others.get(topic) }
    }

    /// Those of which something waits or is in flight.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &SendQueue)> {
        let (name, current) = &self.current;
        self.others.iter().chain((!current.is_over()).then_some((name, current)))
    }
}

impl SendQueue {
    pub fn push(&mut self, message: Outgoing) {
        self.fresh.push_back(message);
    }

    pub fn give_back(&mut self, fragment: Fragment) {
        self.returned.insert(fragment.sequence, fragment);
    }

    /// Takes the next part.
    pub fn take_first(&mut self) -> Option<Taken> {
        if let Some((_, fragment)) = self.returned.pop_first() {
            return Some(Taken { freed: fragment.field.len(), dies_at: fragment.dies_at, fragment });
        }
        let mut message = self.fresh.pop_front()?;
        let (freed, dies_at) = (message.bytes(), message.dies_at());
        match message {
            Outgoing::Single(fragment) => Some(Taken { fragment, freed, dies_at }),
            Outgoing::LargeMessage(ref mut large) => {
                let fragment = large.next()?;
                if large.is_exhausted() {
                    return Some(Taken { fragment, freed, dies_at });
                }
                self.fresh.push_front(message);
                Some(Taken { fragment, freed: 0, dies_at })
            }
        }
    }

    /// The next part, if it may go together with the messages before it, of which this is the last one's sequence number.
    pub fn joins(&self, before: u64) -> Option<&Fragment> {
        let next = match self.returned.first_key_value() {
            Some((_, fragment)) => fragment,
            None => match self.fresh.front()? {
                Outgoing::Single(fragment) => fragment,
                Outgoing::LargeMessage(_) => return None,
            },
        };
        (next.sequence == before + 1 && next.may_join()).then_some(next)
    }

    /// Takes what waits of a message: its parts that came back, and those not made yet.
    pub fn remove(&mut self, message: u64, fragments: u32) -> (Vec<Fragment>, Option<Outgoing>) {
        let last = message + u64::from(fragments);
        let sequences: Vec<u64> = self.returned.range(message..last).map(|(&sequence, _)| sequence).collect();
        let returned = sequences.iter().filter_map(|sequence| self.returned.remove(sequence)).collect();
        let position = self.fresh.binary_search_by_key(&message, Outgoing::message);
        (returned, position.ok().and_then(|position| self.fresh.remove(position)))
    }

    /// A part, or several messages together, were queued: the last as this delivery.
    pub fn sent(&mut self, owner: SocketAddr, fragment: &Fragment, delivery: u64) {
        let flight = self.flight.get_or_insert(Flight { owner, fragments: 0, bytes: 0, newest: 0, last: 0 });
        flight.fragments += fragment.count;
        flight.bytes += fragment.field.len();
        flight.last = delivery;
        flight.newest = flight.newest.max(fragment.last_sequence());
    }

    /// So many parts, of so many bytes, are in flight no more.
    pub fn end_flight(&mut self, count: u32, bytes: usize) {
        if let Some(flight) = &mut self.flight {
            flight.fragments -= count;
            flight.bytes -= bytes;
            if flight.fragments == 0 {
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
        let returned = returned.map(|(&sequence, fragment)| (sequence, fragment.field.len(), fragment.qos));
        returned
            .or_else(|| self.fresh.front().map(|next| (next.sequence(), next.fragment_bytes(), next.qos())))
    }

    /// The sequence number of the first part that waits and is of `QoS` 2.
    pub fn first_exact(&self) -> Option<u64> {
        let returned =
            self.returned.values().find(|fragment| fragment.qos == 2).map(|fragment| fragment.sequence);
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
        self.flight.as_ref().map_or((0, 0), |flight| (flight.fragments, flight.bytes))
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
