//! Events on their way to Python, which takes them by turns.
//!
//! Python decides slower than a link delivers. So that nobody waits for another's flood, events wait in *lanes*: one for each session,
//! one for each address from which requests come outside of sessions, and the engine's own. Lanes that have something take turns,
//! an event each (round robin, as a fair queue in a router does it); within a lane nothing passes anything. A node's children are
//! sessions too, and its parents are in the engine's own lane.
//!
//! A round of all lanes is long where a flood comes from many sessions or addresses. So lanes have one of three *classes* (`Class`), and the
//! classes take turns before lanes do: leases and handovers of nodes wait for other nodes alone, joins and operators' orders for others of
//! their kind, whatever clients send.
//!
//! How much a lane may hold depends on what is left for all: no more than a part of that (Choudhury and Hahne, "Dynamic queue
//! length thresholds", 1998). A single flood may be large; many at once leave room for others. A session may always have one event
//! waiting, and sessions leave a part of all to requests from outside. What a session's lane has no room for is not acknowledged, so
//! that its link slows it down; from outside of sessions it is dropped (§3.3).

use std::collections::VecDeque;

use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};

use crate::engine::transport::event::Event;
use crate::keyed_hash::KeyedHash;
use crate::prefix::Prefix;
use crate::shrink::shrink;

/// What events may hold before the queue is full, however few they are.
pub const MOST_EVENT_BYTES: usize = 64 << 20;
/// A lane holds no more than this part of what is left, and what sessions leave to others is this part of all.
const SHARE: usize = 8;
/// How many orders and joins may wait that come from outside of sessions, in all and of one host. No other flood takes their room.
const MOST_ORDERS: usize = 1_024;
const ORDERS_EACH: usize = 16;
/// What Python takes at once, but for the last event: what it takes it holds twice, as bytes and parsed.
const TAKEN_BYTES: usize = 1 << 20;

/// Whose events take turns with those of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flow {
    /// This engine's: news of its messages, and what comes by links that it opened. It may fill what is left.
    Own,
    Session(u64),
    Outside(Prefix),
    /// JOIN and ORDER from outside of sessions: no flood of other requests from the same host takes their room.
    Order(Prefix),
}

/// Which lanes wait for which: the classes take turns, an event each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// This engine's own lane, and the sessions of the node's children (§5.1).
    Nodes,
    /// Whoever asks to join, or orders something (§5.7).
    Requests,
    /// All others.
    Clients,
}

impl Class {
    const COUNT: usize = 3;
}

/// Queues of events with an end, in number and in bytes. News of links and sessions is always taken: there is no more of it than of those.
pub struct Events {
    limit: usize,
    own: Waiting,
    others: HashMap<Flow, Waiting, KeyedHash>,
    /// The lanes of each class that have something, the next to take a turn first; each at most once (`Waiting::lines`). A lane that has
    /// another class by then, or nothing left, is passed over.
    turns: [VecDeque<Flow>; Class::COUNT],
    /// The class whose turn it is.
    next: usize,
    /// The sessions of the node's children.
    children: HashSet<u64, KeyedHash>,
    /// How many events wait in lanes of orders.
    orders: usize,
    count: usize,
    bytes: usize,
}

struct Waiting {
    events: VecDeque<Event>,
    bytes: usize,
    class: Class,
    /// The classes in whose lines its lane stands.
    lines: [bool; Class::COUNT],
}

impl Events {
    /// Nothing yet, and about `limit` events at most. `seed`: random and secret.
    pub fn new(limit: usize, seed: u64) -> Self {
        Self {
            limit,
            own: Waiting::new(Class::Nodes),
            others: HashMap::with_hasher(KeyedHash::new(seed)),
            turns: Default::default(),
            next: 0,
            children: HashSet::with_hasher(KeyedHash::new(seed)),
            orders: 0,
            count: 0,
            bytes: 0,
        }
    }

    /// From now on the events of this session, a child's, wait for those of nodes alone.
    pub fn prefer(&mut self, session: u64) {
        self.children.insert(session);
    }

    /// The session's link is gone: what comes in it next is a client's until the node says otherwise.
    pub fn unprefer(&mut self, session: u64) {
        self.children.remove(&session);
    }

    /// Adds an event behind those of its lane, or to the last of them.
    pub fn push(&mut self, flow: Flow, event: Event) {
        let class = match flow {
            Flow::Own => Class::Nodes,
            Flow::Session(session) if self.children.contains(&session) => Class::Nodes,
            Flow::Order(_) => Class::Requests,
            Flow::Session(_) | Flow::Outside(_) => Class::Clients,
        };
        self.push_as(class, flow, event);
    }

    /// As `push` for a JOIN, or what proves one (§5.5), with which a session may become a child's.
    pub fn push_join(&mut self, flow: Flow, event: Event) {
        let is_child = matches!(flow, Flow::Session(session) if self.children.contains(&session));
        self.push_as(if is_child { Class::Nodes } else { Class::Requests }, flow, event);
    }

    /// A better class than that of what waits in the lane counts for all of it: so it stays in order.
    fn push_as(&mut self, class: Class, flow: Flow, event: Event) {
        let waiting = match flow {
            Flow::Own => &mut self.own,
            _ => self.others.entry(flow).or_insert_with(|| Waiting::new(class)),
        };
        if waiting.events.back_mut().is_some_and(|last| last.absorb(&event)) {
            return;
        }
        if waiting.events.is_empty() || class < waiting.class {
            waiting.class = class;
        }
        if !std::mem::replace(&mut waiting.lines[waiting.class as usize], true) {
            self.turns[waiting.class as usize].push_back(flow);
        }
        let bytes = event.bytes();
        waiting.bytes += bytes;
        waiting.events.push_back(event);
        self.bytes += bytes;
        self.count += 1;
        self.orders += usize::from(matches!(flow, Flow::Order(_)));
    }

    /// The next events: one of each class in turn, and of each lane of it, until there are so many, or they are large.
    pub fn take(&mut self, limit: usize) -> Vec<Event> {
        let mut taken = Vec::with_capacity(self.count.min(limit));
        let mut bytes = 0;
        while taken.len() < limit
            && bytes < TAKEN_BYTES
            && let Some(event) = self.pop()
        {
            bytes += event.bytes();
            taken.push(event);
        }
        self.bytes -= bytes;
        self.count -= taken.len();
        self.turns.iter_mut().for_each(shrink);
        taken
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn is_full(&self) -> bool {
        self.count >= self.limit || self.bytes >= MOST_EVENT_BYTES
    }

    /// Whether there is room for another event of this lane.
    pub fn has_room(&self, flow: Flow) -> bool {
        if let Flow::Order(_) = flow {
            let waiting = self.others.get(&flow).map_or(0, |waiting| waiting.events.len());
            return self.orders < MOST_ORDERS && waiting < ORDERS_EACH;
        }
        let is_session = matches!(flow, Flow::Session(_));
        let left = |most: usize, used: usize| {
            let kept = if is_session { most / SHARE } else { 0 };
            (most - kept).saturating_sub(used)
        };
        match self.others.get(&flow).filter(|waiting| !waiting.events.is_empty()) {
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

    /// The next event of the class whose turn it is, or of the next one that has something.
    fn pop(&mut self) -> Option<Event> {
        for _ in 0..Class::COUNT {
            let class = self.next;
            self.next = (class + 1) % Class::COUNT;
            while let Some(flow) = self.turns[class].pop_front() {
                let (event, is_left) = match flow {
                    Flow::Own => self.own.take_turn(class),
                    _ => self.pop_flow(flow, class),
                };
                if is_left {
                    self.turns[class].push_back(flow);
                }
                if event.is_some() {
                    self.orders -= usize::from(matches!(flow, Flow::Order(_)));
                    return event;
                }
            }
        }
        None
    }

    /// A turn of a lane that is not the engine's own, as [`Waiting::take_turn`]. What stands in no line any more is forgotten.
    fn pop_flow(&mut self, flow: Flow, class: usize) -> (Option<Event>, bool) {
        let Entry::Occupied(mut waiting) = self.others.entry(flow) else {
            return (None, false);
        };
        let turn = waiting.get_mut().take_turn(class);
        if waiting.get().lines == [false; Class::COUNT] {
            waiting.remove();
        }
        turn
    }
}

impl Waiting {
    fn new(class: Class) -> Self {
        Self { events: VecDeque::new(), bytes: 0, class, lines: [false; Class::COUNT] }
    }

    /// The lane is at the head of the line of a class: its next event, if it is of that class, and whether it goes to the end of the line
    /// for another.
    fn take_turn(&mut self, class: usize) -> (Option<Event>, bool) {
        self.lines[class] = false;
        if self.class as usize != class {
            return (None, false);
        }
        let event = self.events.pop_front();
        self.bytes -= event.as_ref().map_or(0, Event::bytes);
        shrink(&mut self.events);
        self.lines[class] = !self.events.is_empty();
        (event, self.lines[class])
    }
}

#[cfg(test)]
mod tests;
