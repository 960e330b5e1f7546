//! Events on their way to Python, which takes them by turns.
//!
//! Python decides slower than a link delivers. So that nobody waits for another's flood, events wait in *lanes*: one for each session,
//! one for each address from which requests come outside of sessions, and the engine's own. Lanes that have something take turns,
//! an event each (round robin, as a fair queue in a router does it); within a lane nothing passes anything. A node's children are
//! sessions too, and its parents are in the engine's own lane: so leases and handovers wait for a round at most.
//!
//! How much a lane may hold depends on what is left for all: no more than a part of that (Choudhury and Hahne, "Dynamic queue
//! length thresholds", 1998). A single flood may be large; many at once leave room for others. A session may always have one event
//! waiting, and sessions leave a part of all to requests from outside. What a session's lane has no room for is not acknowledged, so
//! that its link slows it down; from outside of sessions it is dropped (§3.3).

use std::collections::VecDeque;
use std::net::IpAddr;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::engine::event::Event;
use crate::keyed::Keyed;
use crate::shrink::shrink;

/// What events may hold before the queue is full, however few they are.
pub const MOST_EVENT_BYTES: usize = 64 << 20;
/// A lane holds no more than this part of what is left, and what sessions leave to others is this part of all.
const SHARE: usize = 8;
/// What Python takes at once, but for the last event: what it takes it holds twice, as bytes and parsed.
const TAKEN_BYTES: usize = 1 << 20;

/// Whose events take turns with those of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// This engine's: news of its messages, and what comes by links that it opened. It may fill what is left.
    Own,
    Session(u64),
    Outside(Prefix),
}

/// The part of an address that tells hosts apart: of IPv6 the network, since a host chooses the rest as it likes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix(u64);

impl From<IpAddr> for Prefix {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(u64::from(address.to_bits())),
            IpAddr::V6(address) => Self((address.to_bits() >> 64) as u64),
        }
    }
}

/// Queues of events with an end, in number and in bytes. News of links and sessions is always taken: there is no more of it than of those.
pub struct Events {
    limit: usize,
    own: Waiting,
    others: HashMap<Lane, Waiting, Keyed>,
    /// The lanes that have something, the next to take a turn first.
    turns: VecDeque<Lane>,
    count: usize,
    bytes: usize,
}

#[derive(Default)]
struct Waiting {
    events: VecDeque<Event>,
    bytes: usize,
}

impl Events {
    /// Nothing yet, and about `limit` events at most. `seed`: random and secret.
    pub fn new(limit: usize, seed: u64) -> Self {
        Self {
            limit,
            own: Waiting::default(),
            others: HashMap::with_hasher(Keyed::new(seed)),
            turns: VecDeque::new(),
            count: 0,
            bytes: 0,
        }
    }

    /// Adds an event behind those of its lane, or to the last of them.
    pub fn push(&mut self, lane: Lane, event: Event) {
        let waiting = match lane {
            Lane::Own => &mut self.own,
            _ => self.others.entry(lane).or_default(),
        };
        if waiting.events.back_mut().is_some_and(|last| last.absorb(&event)) {
            return;
        }
        if waiting.events.is_empty() {
            self.turns.push_back(lane);
        }
        let bytes = event.bytes();
        waiting.bytes += bytes;
        waiting.events.push_back(event);
        self.bytes += bytes;
        self.count += 1;
    }

    /// The next events: one of each lane in turn, until there are so many, or they are large.
    pub fn take(&mut self, limit: usize) -> Vec<Event> {
        let mut taken = Vec::with_capacity(self.count.min(limit));
        let mut bytes = 0;
        while taken.len() < limit
            && bytes < TAKEN_BYTES
            && let Some(lane) = self.turns.pop_front()
        {
            let (event, is_left) = match lane {
                Lane::Own => self.own.pop(),
                _ => self.pop(lane),
            };
            if is_left {
                self.turns.push_back(lane);
            }
            bytes += event.as_ref().map_or(0, Event::bytes);
            taken.extend(event);
        }
        self.bytes -= bytes;
        self.count -= taken.len();
        shrink(&mut self.turns);
        taken
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn is_full(&self) -> bool {
        self.count >= self.limit || self.bytes >= MOST_EVENT_BYTES
    }

    /// Whether there is room for another event of this lane.
    pub fn has_room(&self, lane: Lane) -> bool {
        let is_session = matches!(lane, Lane::Session(_));
        let left = |most: usize, used: usize| {
            let kept = if is_session { most / SHARE } else { 0 };
            (most - kept).saturating_sub(used)
        };
        match self.others.get(&lane) {
            Some(waiting) => {
                SHARE * waiting.events.len() < left(self.limit, self.count)
                    && SHARE * waiting.bytes < left(MOST_EVENT_BYTES, self.bytes)
            }
            None => is_session || !self.is_full(),
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.count
    }

    /// The next event of a lane that is not the engine's own, and whether there is another.
    fn pop(&mut self, lane: Lane) -> (Option<Event>, bool) {
        let Entry::Occupied(mut waiting) = self.others.entry(lane) else {
            return (None, false);
        };
        let (event, is_left) = waiting.get_mut().pop();
        if !is_left {
            waiting.remove();
        }
        (event, is_left)
    }
}

impl Waiting {
    /// The next event, and whether there is another.
    fn pop(&mut self) -> (Option<Event>, bool) {
        let event = self.events.pop_front();
        self.bytes -= event.as_ref().map_or(0, Event::bytes);
        shrink(&mut self.events);
        (event, !self.events.is_empty())
    }
}

#[cfg(test)]
mod tests;
