//! Many clients of the network behind one socket: the members of a gateway.
//!
//! Each member is an engine of its own, with its session, its links and its listeners. A datagram finds its member by the session in its
//! header: both directions carry the id that the initiator of the link chose, and that is the member, also where a node opened it (§3.1).
//! Outside of sessions an answer finds its member by the request that it answers (`inquiries`).
//!
//! An idle member costs memory and nothing else. Timers lie in one ordered set, with at most one entry for each member; who has
//! datagrams to send, events to tell or messages to hand on stands in a queue. Those who send take turns of a few datagrams, so that one
//! with much to send holds up no other. What happened to a member in a turn is looked at once, when the turn ends.
//!
//! The kernel gives each owner's datagrams to one worker's socket, whichever member they are for. So where a hive has several workers, each
//! member has its home on one of them, and the others pass its datagrams on.

pub mod core;
mod inquiries;
mod member;
pub mod messages;
mod routing;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use slab::Slab;

use crate::Micros;
use crate::client_pool::inquiries::Inquiries;
use crate::client_pool::member::{LINGER, Member};
use crate::client_pool::messages::MessageSink;
use crate::config::Config;
use crate::endpoint::worker::{Errand, Machine};
use crate::engine::metrics::counters::{Counters, Tally};
use crate::engine::owner::home_workers::Directory;
use crate::engine::transport::event::Event;
use crate::engine::{Engine, Shared};
use crate::keyed_hash::Keyed;
use crate::link_id::MemberId;
use crate::sink::DatagramSink;
use crate::wire::Rooms;

pub use crate::client_pool::member::Identity;
pub use crate::client_pool::routing::Forwarded;

/// Datagrams that a member may send before the next one has its turn.
const DATAGRAMS_PER_TURN: usize = 16;
/// Messages of one member that are handed on before the next one has its turn.
const MESSAGES_PER_TURN: usize = 256;
/// The member that a hive begins with.
const FIRST: MemberId = MemberId(0);
/// Events of the first member that wait to be told, when answers are looked for among more.
const MOST_UNTOLD: usize = 100_000;
/// Events of one member that are told before the next one has its turn.
const EVENTS_PER_TURN: usize = 64;

/// What the workers of a hive have in common.
pub struct Common {
    config: Config,
    workers: u8,
    shared: Shared,
    /// The home of each member's session.
    homes: Directory,
    inquiries: Mutex<Inquiries>,
}

impl Common {
    /// For a hive of so many workers. `config`: that of its first member, and, less what tells members apart, of all.
    pub fn new(config: Config, workers: u8) -> Self {
        Self {
            workers,
            shared: Shared::new(&config, workers),
            homes: Directory::new(config.seed),
            inquiries: Mutex::new(Inquiries::new(Keyed::new(config.seed))),
            config,
        }
    }
}

/// The members whose home is one worker.
pub struct Hive {
    worker: u8,
    common: Arc<Common>,
    // Boxed: so that to make room for more moves pointers.
    members: Slab<Box<Member>>,
    generation: u32,
    by_session: HashMap<u64, MemberId, Keyed>,
    timers: BTreeSet<(Micros, usize)>,
    touched: Vec<usize>,
    senders: VecDeque<usize>,
    tellers: VecDeque<usize>,
    readers: VecDeque<usize>,
    sink: Box<dyn MessageSink>,
    /// The first member's events, less the answers that the sink took.
    untold: VecDeque<Event>,
    handoffs: VecDeque<(u8, Forwarded)>,
    rooms: Rooms,
    counters: Counters,
    /// What members counted that are gone.
    ended: Tally,
}

impl Hive {
    /// Worker number `worker`'s part. Messages of its members go to `sink`.
    pub fn new(worker: u8, common: Arc<Common>, sink: Box<dyn MessageSink>) -> Self {
        let keyed = Keyed::new(common.config.seed);
        Self {
            worker,
            common,
            members: Slab::new(),
            generation: 0,
            by_session: HashMap::with_hasher(keyed),
            timers: BTreeSet::new(),
            touched: Vec::new(),
            senders: VecDeque::new(),
            tellers: VecDeque::new(),
            readers: VecDeque::new(),
            sink,
            untold: VecDeque::new(),
            handoffs: VecDeque::new(),
            rooms: Rooms::default(),
            counters: Counters::default(),
            ended: Tally::default(),
        }
    }

    /// Adds a member; `None`: another one has its session. One that was closed gives way.
    pub fn open_member(&mut self, config: Config) -> Option<MemberId> {
        let session = config.session;
        if let Some(known) = self.by_session.get(&session).copied() {
            self.member(known).filter(|member| member.closing.is_some())?;
            self.remove(known.slot());
        }
        if self.common.homes.claim(session, self.worker) != self.worker {
            return None;
        }
        let entry = self.members.vacant_entry();
        let id = MemberId::new(self.worker, self.generation, entry.key());
        self.generation = self.generation.wrapping_add(1);
        entry.insert(Box::new(Member::new(id, config, self.common.shared.clone())));
        self.by_session.insert(session, id);
        Some(id)
    }

    /// Closes a member: it tells nothing any more, and is gone once what it was to send is acknowledged, soon in any case.
    pub fn close_member(&mut self, now: Micros, id: MemberId) {
        if let Some(member) = self.member(id).filter(|member| member.closing.is_none()) {
            member.closing = Some(now + LINGER);
            self.touch(id.slot());
        }
    }

    /// A member's engine, to act on it; `None`: there is no such member.
    pub fn engine(&mut self, id: MemberId) -> Option<&mut Engine> {
        self.member(id)?;
        self.touch(id.slot());
        self.member(id).map(|member| &mut member.engine)
    }

    /// Whether there is such a member, and it was not closed.
    pub fn is_open(&mut self, id: MemberId) -> bool {
        self.member(id).is_some_and(|member| member.closing.is_none())
    }

    /// The next events, and whose each is.
    pub fn take_events(&mut self, now: Micros, limit: usize) -> Vec<(MemberId, Event)> {
        let first = self.untold.len().min(limit);
        let mut taken: Vec<_> = self.untold.drain(..first).map(|event| (FIRST, event)).collect();
        while taken.len() < limit
            && let Some(slot) = self.tellers.pop_front()
        {
            let member = &mut self.members[slot];
            let events = member.engine.take_events(now, EVENTS_PER_TURN.min(limit - taken.len()));
            taken.extend(events.into_iter().map(|event| (member.id, event)));
            member.tells = member.engine.has_events();
            if member.tells {
                self.tellers.push_back(slot);
            }
            self.touch(slot);
        }
        taken
    }

    /// What all members counted, those that are gone too; and what there is now, by name.
    pub fn counters(&self, mut with: impl FnMut(&str, u64)) {
        self.counters.each(&mut with);
        let mut tally = self.ended.clone();
        let mut gauges: Vec<(String, u64)> = Vec::new();
        for (_, member) in &self.members {
            tally += member.engine.tally();
            let mut known = gauges.iter_mut();
            let mut fresh = Vec::new();
            // An engine names its gauges in one order.
            member.engine.gauges(|name, value| match known.next() {
                Some((_, sum)) => *sum += value,
                None => fresh.push((name.to_owned(), value)),
            });
            gauges.extend(fresh);
        }
        tally.each(&mut with);
        gauges.iter().for_each(|(name, value)| with(name, *value));
        with("members", self.members.len() as u64);
    }

    fn member(&mut self, id: MemberId) -> Option<&mut Member> {
        self.members.get_mut(id.slot()).map(Box::as_mut).filter(|member| member.id == id)
    }

    // A turn and its end

    fn touch(&mut self, slot: usize) {
        if !std::mem::replace(&mut self.members[slot].is_touched, true) {
            self.touched.push(slot);
        }
    }

    /// Gives answers to the first member's messages to the sink, as long as there is room for its other events.
    fn hand_answers_on(&mut self, now: Micros) {
        let Some(first) = self.members.get_mut(FIRST.slot()).filter(|first| first.id == FIRST) else {
            return;
        };
        let room = MOST_UNTOLD.saturating_sub(self.untold.len());
        for event in first.engine.take_events(now, room) {
            match event {
                Event::Published { first, count, topic, reason } => {
                    let others =
                        (first..first + count).filter(|&sequence| !self.sink.answered(now, sequence, reason));
                    for first in others {
                        let event = Event::Published { first, count: 1, topic: Arc::clone(&topic), reason };
                        if !self.untold.back_mut().is_some_and(|last| last.absorb(&event)) {
                            self.untold.push_back(event);
                        }
                    }
                }
                event => self.untold.push_back(event),
            }
        }
    }

    /// Puts those that something happened to into the queues where they belong.
    fn sort_touched(&mut self, now: Micros) {
        let mut touched = std::mem::take(&mut self.touched);
        for slot in touched.drain(..) {
            let member = &mut self.members[slot];
            member.is_touched = false;
            if member.is_over(now) {
                self.remove(slot);
                continue;
            }
            if member.closing.is_some() {
                // Nobody decides for it any more. Its messages stay unanswered: who has its session next gets them.
                while !member.engine.take_events(now, usize::MAX).is_empty() {}
            }
            let is_open = member.closing.is_none();
            enqueue(&mut self.senders, slot, &mut member.sends, member.engine.has_transmit());
            enqueue(&mut self.tellers, slot, &mut member.tells, is_open && member.engine.has_events());
            enqueue(&mut self.readers, slot, &mut member.reads, is_open && member.engine.has_messages());
            schedule(&mut self.timers, slot, member);
        }
        self.touched = touched; // Its memory serves the next turn.
    }

    /// Hands messages on, as far as there is room.
    fn hand_on(&mut self, now: Micros) {
        while !self.sink.is_full()
            && let Some(slot) = self.readers.pop_front()
        {
            let member = &mut self.members[slot];
            let letters = member.engine.take_letters(now, MESSAGES_PER_TURN);
            member.reads = member.engine.has_messages();
            if member.reads {
                self.readers.push_back(slot);
            }
            self.sink.take(now, member.id, letters);
            self.touch(slot);
        }
        self.sink.flush(now);
    }

    fn remove(&mut self, slot: usize) {
        let member = self.members.remove(slot);
        self.by_session.remove(&member.session);
        self.common.homes.remove(member.session, self.worker);
        self.timers.remove(&(member.scheduled, slot));
        // Rare, and each queue has those alone that wait in it.
        for (queue, stands) in [
            (&mut self.senders, member.sends),
            (&mut self.tellers, member.tells),
            (&mut self.readers, member.reads),
        ] {
            if stands {
                queue.retain(|&other| other != slot);
            }
        }
        if member.is_touched {
            self.touched.retain(|&other| other != slot);
        }
        self.ended += member.engine.tally();
    }
}

impl Machine for Hive {
    type Handoff = Forwarded;

    fn handle_datagram(&mut self, now: Micros, source: SocketAddr, datagram: &[u8]) {
        self.counters.datagrams_in += 1;
        self.counters.bytes_in += datagram.len() as u64;
        self.take_datagram(now, source, datagram);
    }

    fn handle_timeout(&mut self, now: Micros) {
        while let Some(&(due, slot)) = self.timers.first().filter(|&&(due, _)| due <= now) {
            self.timers.remove(&(due, slot));
            let member = &mut self.members[slot];
            member.scheduled = Micros::MAX;
            member.engine.handle_timeout(now);
            self.touch(slot);
        }
    }

    fn handle_handoff(&mut self, now: Micros, handoff: Forwarded) {
        self.take_forwarded(now, handoff);
    }

    fn end_turn(&mut self, now: Micros) {
        self.hand_answers_on(now);
        self.sort_touched(now);
        self.hand_on(now);
        self.sort_touched(now);
    }

    fn poll_transmit(&mut self, now: Micros, sink: &mut impl DatagramSink) {
        while !sink.is_full()
            && let Some(slot) = self.senders.pop_front()
        {
            let member = &mut self.members[slot];
            member.engine.poll_transmit(now, &mut Share { sink, left: DATAGRAMS_PER_TURN });
            member.sends = member.engine.has_transmit();
            if member.sends {
                self.senders.push_back(slot);
            }
            // What could not be sent is told.
            let has_news = member.closing.is_none() && member.engine.has_events();
            enqueue(&mut self.tellers, slot, &mut member.tells, has_news);
            schedule(&mut self.timers, slot, member);
        }
    }

    fn poll_handoff(&mut self) -> Option<(u8, Forwarded)> {
        self.handoffs.pop_front()
    }

    fn has_handoff(&self) -> bool {
        !self.handoffs.is_empty()
    }

    fn poll_timeout(&self) -> Option<Micros> {
        self.timers.first().map(|&(due, _)| due)
    }

    fn has_output(&self) -> bool {
        !self.untold.is_empty() || !self.tellers.is_empty() || self.sink.has_output()
    }

    fn errand(&self) -> Option<Arc<dyn Errand>> {
        self.sink.errand()
    }

    fn is_drained(&self) -> bool {
        self.handoffs.is_empty() && self.members.iter().all(|(_, member)| member.engine.is_drained())
    }
}

/// A member's share of a sink.
struct Share<'a, S> {
    sink: &'a mut S,
    left: usize,
}

impl<S: DatagramSink> DatagramSink for Share<'_, S> {
    fn buffer(&mut self) -> &mut Vec<u8> {
        self.sink.buffer()
    }

    fn commit(&mut self, destination: &SocketAddr, start: usize) {
        self.left = self.left.saturating_sub(1);
        self.sink.commit(destination, start);
    }

    fn is_full(&self) -> bool {
        self.left == 0 || self.sink.is_full()
    }
}

/// Has a member stand in a queue where it should, once.
fn enqueue(queue: &mut VecDeque<usize>, slot: usize, stands: &mut bool, should: bool) {
    if should && !std::mem::replace(stands, true) {
        queue.push_back(slot);
    } else if !should && std::mem::replace(stands, false) {
        queue.retain(|&other| other != slot);
    }
}

fn schedule(timers: &mut BTreeSet<(Micros, usize)>, slot: usize, member: &mut Member) {
    let deadline = member.deadline();
    if deadline < member.scheduled {
        timers.remove(&(member.scheduled, slot));
        timers.insert((deadline, slot));
        member.scheduled = deadline;
    }
}
