//! The messages of a client on one topic that wait or are in flight, always in the order of their sequence
//! numbers.
//!
//! Fragments that an owner did not take were sent before all messages that still wait. They are kept apart
//! from those, so both lists stay in order.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use crate::Micros;
use crate::engine::fragmentation::fragments::{Fragment, Outgoing};
use crate::keyed_hash::KeyedHash;

/// The queues of a client, by topic. The queue of the last published topic is kept apart, because the next
/// message often has the same topic and then needs no search.
pub struct SendQueues {
    others: HashMap<Arc<str>, SendQueue, KeyedHash>,
    /// May be empty.
    current: (Arc<str>, SendQueue),
}

#[derive(Default)]
pub struct SendQueue {
    /// Fragments that were sent and came back.
    returned: BTreeMap<u64, Fragment>,
    /// Messages that were not sent, or not all of their fragments.
    fresh: VecDeque<Outgoing>,
    flight: Option<Flight>,
    /// Its turn for room on the link to its owner, if it waits for that.
    pub turn: Option<Turn>,
}

/// (an owner, a number that rises with each turn).
pub type Turn = (SocketAddr, u64);

/// A fragment that was taken to be sent.
pub struct TakenFragment {
    pub fragment: Fragment,
    /// How many waiting bytes went with it. Those of a fragmented message all go with its last fragment.
    pub freed: usize,
    /// When it would have expired.
    pub expires_at: Micros,
}

/// What is in flight on one topic, all to one owner.
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

    /// Makes this topic's queue the current one. Returns it, with the topic's shared name.
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

    /// A topic's queue, made if there is none.
    pub fn make(&mut self, topic: &Arc<str>) -> &mut SendQueue {
        let (name, current) = &mut self.current;
        if *name == *topic { current } else { self.others.entry(Arc::clone(topic)).or_default() }
    }

    /// Removes a topic's queue if nothing waits and nothing is in flight. Returns the turn that it waited
    /// for.
    pub fn end_if_over(&mut self, topic: &str) -> Option<Turn> {
        let (name, current) = &mut self.current;
        if **name == *topic {
            return if current.is_over() { std::mem::take(current).turn } else { None };
        }
        if self.others.get(topic)?.is_over() { self.others.remove(topic)?.turn } else { None }
    }

    // Read

    /// Whether this topic's queue is the current one.
    pub fn is_current(&self, topic: &str) -> bool {
        *self.current.0 == *topic
    }

    pub fn get(&self, topic: &str) -> Option<&SendQueue> {
        let (name, current) = &self.current;
        if **name == *topic { Some(current) } else { self.others.get(topic) }
    }

    /// The queues in which a message waits or is in flight.
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

    /// Takes the next fragment.
    pub fn take_first(&mut self) -> Option<TakenFragment> {
        if let Some((_, fragment)) = self.returned.pop_first() {
            return Some(TakenFragment {
                freed: fragment.field.len(),
                expires_at: fragment.expires_at,
                fragment,
            });
        }
        let mut message = self.fresh.pop_front()?;
        let (freed, expires_at) = (message.bytes(), message.expires_at());
        match message {
            Outgoing::Single(fragment) => Some(TakenFragment { fragment, freed, expires_at }),
            Outgoing::LargeMessage(ref mut large) => {
                let fragment = large.next()?;
                if large.is_exhausted() {
                    return Some(TakenFragment { fragment, freed, expires_at });
                }
                self.fresh.push_front(message);
                Some(TakenFragment { fragment, freed: 0, expires_at })
            }
        }
    }

    /// The next fragment, if it may be sent in one batch with the messages before it, of which `before` is
    /// the last sequence number.
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

    /// Removes the waiting fragments of a message: those that came back, and those not made yet.
    pub fn remove(&mut self, message: u64, fragments: u32) -> (Vec<Fragment>, Option<Outgoing>) {
        let last = message + u64::from(fragments);
        let sequences: Vec<u64> = self.returned.range(message..last).map(|(&sequence, _)| sequence).collect();
        let returned = sequences.iter().filter_map(|sequence| self.returned.remove(sequence)).collect();
        let position = self.fresh.binary_search_by_key(&message, Outgoing::message);
        (returned, position.ok().and_then(|position| self.fresh.remove(position)))
    }

    /// A fragment or a batch was queued on the link, its last message as this delivery.
    pub fn sent(&mut self, owner: SocketAddr, fragment: &Fragment, delivery: u64) {
        let flight = self.flight.get_or_insert(Flight { owner, fragments: 0, bytes: 0, newest: 0, last: 0 });
        flight.fragments += fragment.count;
        flight.bytes += fragment.field.len();
        flight.last = delivery;
        flight.newest = flight.newest.max(fragment.last_sequence());
    }

    /// `count` fragments, of this size in total, are in flight no more.
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

    /// The sequence number, the greatest size and the `QoS` of the first fragment that waits.
    pub fn first(&self) -> Option<(u64, usize, u8)> {
        let returned = self.returned.first_key_value();
        let returned = returned.map(|(&sequence, fragment)| (sequence, fragment.field.len(), fragment.qos));
        returned
            .or_else(|| self.fresh.front().map(|next| (next.sequence(), next.fragment_bytes(), next.qos())))
    }

    /// The sequence number of the first waiting fragment of `QoS` 2.
    pub fn first_qos2(&self) -> Option<u64> {
        let returned =
            self.returned.values().find(|fragment| fragment.qos == 2).map(|fragment| fragment.sequence);
        returned.or_else(|| self.fresh.iter().find(|next| next.qos() == 2).map(Outgoing::sequence))
    }

    /// Whether a message may be sent to this owner: nothing is in flight to another one.
    pub fn is_free_for(&self, owner: SocketAddr) -> bool {
        self.flight.as_ref().is_none_or(|flight| flight.owner == owner)
    }

    /// The owner of what is in flight, and the highest sequence number that was sent to it.
    pub fn in_flight(&self) -> Option<(SocketAddr, u64)> {
        self.flight.as_ref().map(|flight| (flight.owner, flight.newest))
    }

    /// The number of fragments in flight, and their bytes.
    pub fn open(&self) -> (u32, usize) {
        self.flight.as_ref().map_or((0, 0), |flight| (flight.fragments, flight.bytes))
    }

    /// The last delivery in flight; 0: there is none.
    pub fn last(&self) -> u64 {
        self.flight.as_ref().map_or(0, |flight| flight.last)
    }

    /// How many messages or fragments wait.
    pub fn len(&self) -> usize {
        self.returned.len() + self.fresh.len()
    }
}
