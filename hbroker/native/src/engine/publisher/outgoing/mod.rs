//! A client's outgoing messages: from `publish` to the owner's PUBACK (§§5.3, 7).
//!
//! A message or a fragment is in one of two states:
//!
//! - *Waiting*, until the owner of its topic is known, until there is room on the link and in the owner's
//!   credit (§7.7), or until it is its topic's turn.
//! - *In flight* on the link to an owner, under a delivery number. The link's `delivery_records` map that
//!   number to its ticket.
//!
//! A refusal (NOT_RESPONSIBLE, HANDOVER, QUOTA_EXCEEDED) or the end of the link makes it wait again, under
//! the same message id. Any other PUBACK of the owner ends it. A message expires while it waits, but not once
//! it has been sent. Messages that are sent together (the fast path, `take_batch`) are one [`Fragment`] with
//! one ticket until they are acknowledged. Each may be refused separately, and then waits again by itself.
//!
//! Messages of one topic keep their order throughout: they wait in the order of their sequence numbers, no
//! message is sent past those that wait, and none is sent to an owner while an older one is in flight to
//! another owner. Topics that wait for room with the same owner are served round robin.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;

use slab::Slab;
use smallvec::{SmallVec, smallvec};

use crate::Micros;
use crate::engine::fragmentation::fragments::{Fragment, Fragments, Outgoing};
use crate::engine::publisher::send_queue::{SendQueue, SendQueues, TakenFragment, Turn};
use crate::engine::sessions::copy_blocks::CopyBlocks;
use crate::engine::transport::credit::Room;
use crate::engine::transport::delivery_records::{Positions, Ticket};
use crate::keyed_hash::KeyedHash;
use crate::tables::jurisdiction::Cut;
use crate::tables::window;
use crate::tables::zones::{Lookup, Zones};

/// How long a cut from a refusal is believed.
const CUT_TTL: Micros = 300_000_000;
/// Half of the span of the duplicate window that an owner keeps for a publisher, whatever gaps its numbers
/// have.
const WINDOW_SPAN: u64 = window::SPAN as u64 / 2;
/// The shortest time between two updates of the window.
const WINDOW_UPDATE_INTERVAL: Micros = 100_000;

/// The next step for the messages that wait on a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send the first one, of this `QoS` and at most this size, to this owner.
    Send { owner: SocketAddr, qos: u8, bytes: usize },
    /// Look the owner up, starting at this node or (`None`) at the root.
    Resolve(Option<SocketAddr>),
    /// Wait until the messages in flight are acknowledged.
    AwaitInFlight,
    /// No message waits.
    Nothing,
}

/// A message that ended without the owner's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedMessage {
    pub topic: Arc<str>,
    pub message: u64,
    pub qos: u8,
}

/// The owner that new messages of a topic are sent to, and how long that is valid.
#[derive(Clone, Debug)]
pub struct PublishRoute {
    /// The topic's name, to be shared.
    pub topic: Arc<str>,
    /// The owner that it can be sent to at once; `None`: it has to wait.
    pub owner: Option<SocketAddr>,
    /// When the owner has to be looked up again.
    until: Micros,
    /// The version of the zones.
    version: u64,
    /// The previous message was on this topic, too.
    pub is_last: bool,
}

/// The messages of a client that publishes.
pub struct Publisher {
    pub zones: Zones,
    topics: SendQueues,
    /// The owner of the last published topic, until when this is valid, and the version of the zones.
    last_owner: Option<(SocketAddr, Micros, u64)>,
    budget: Budget,
    /// What is in flight, each with its number of unacknowledged messages.
    in_flight: Slab<(Fragment, u32)>,
    /// The number of unacknowledged fragments, for fragmented messages at `QoS` 1 and 2.
    fragments_out: HashMap<u64, u32, KeyedHash>,
    /// When waiting messages expire.
    expiries: BTreeSet<(Micros, u64, Arc<str>)>,
    /// The topics that wait for room with each owner, in the order of their turns.
    blocked: BTreeMap<Turn, Arc<str>>,
    turns: u64,
    sequence_window: SequenceWindow,
    /// Joins waiting messages into one batch.
    copy_blocks: CopyBlocks,
}

/// The window of sequence numbers that may be sent at `QoS` 2. It begins at the oldest waiting message of `QoS` 2:
/// if others were too far ahead of that message, its owner could not recognise it as new any more (§7.4).
#[derive(Default)]
struct SequenceWindow {
    /// The highest sequence number in the window.
    last: u64,
    updated_at: Micros,
}

/// The bytes that wait. A message that is larger than the whole budget may wait in addition, but only one at
/// a time.
struct Budget {
    limit: usize,
    bytes: usize,
    has_oversized: bool,
}

impl Publisher {
    pub fn new(zones: Zones, waiting_limit: usize, hasher: KeyedHash) -> Self {
        Self {
            zones,
            topics: SendQueues::new(hasher),
            last_owner: None,
            budget: Budget { limit: waiting_limit, bytes: 0, has_oversized: false },
            in_flight: Slab::new(),
            fragments_out: HashMap::with_hasher(hasher),
            expiries: BTreeSet::new(),
            blocked: BTreeMap::new(),
            turns: 0,
            sequence_window: SequenceWindow::default(),
            copy_blocks: CopyBlocks::default(),
        }
    }

    /// The route of a new message.
    pub fn route(&mut self, now: Micros, topic: &str) -> PublishRoute {
        let is_last = self.topics.is_current(topic);
        let (owner, until) = self.find(now, topic, is_last).unzip();
        let (name, send_queue) = self.topics.turn_to(topic);
        let (topic, owner) = (Arc::clone(name), owner.filter(|&owner| is_free(Some(send_queue), owner)));
        PublishRoute { topic, owner, until: until.unwrap_or(now), version: self.zones.version(), is_last }
    }

    /// Whether a route is still valid, and a message can be sent at once.
    pub fn is_valid_route(&self, now: Micros, route: &PublishRoute) -> bool {
        let is_free = |owner| self.is_free(&route.topic, owner);
        now < route.until && route.version == self.zones.version() && route.owner.is_some_and(is_free)
    }

    /// Whether a new message of a topic can be sent to this owner at once: nothing waits, and nothing is in
    /// flight to another owner.
    pub fn is_free(&self, topic: &str, owner: SocketAddr) -> bool {
        is_free(self.topics.get(topic), owner)
    }

    /// Whether another message of this size may wait.
    pub fn may_wait(&self, bytes: usize) -> bool {
        self.budget.admits(bytes)
    }

    /// Whether a message waits on this topic.
    pub fn is_waiting(&self, topic: &str) -> bool {
        self.topics.get(topic).is_some_and(SendQueue::is_waiting)
    }

    /// Whether a message waits on this topic for another reason than its turn.
    pub fn is_blocked(&self, topic: &str) -> bool {
        self.topics.get(topic).is_some_and(|send_queue| send_queue.is_waiting() && send_queue.turn.is_none())
    }

    /// What is in flight on a topic: the number of messages or fragments, and their bytes.
    pub fn open_on(&self, topic: &str) -> (u32, usize) {
        self.topics.get(topic).map_or((0, 0), SendQueue::open)
    }

    /// The sequence number of the first message that waits on a topic.
    pub fn first_on(&self, topic: &str) -> Option<u64> {
        self.topics.get(topic)?.first().map(|(sequence, ..)| sequence)
    }

    /// Whether a message of `QoS` 2 may be sent: it is not too far ahead of the oldest waiting message. (Only
    /// with `for_many` do messages wait for minutes while others are sent.)
    pub fn is_in_window(&mut self, now: Micros, sequence: u64) -> bool {
        if sequence > self.sequence_window.last
            && now >= self.sequence_window.updated_at + WINDOW_UPDATE_INTERVAL
        {
            let oldest = self.topics.iter().filter_map(|(_, send_queue)| send_queue.first_qos2()).min();
            self.sequence_window =
                SequenceWindow { last: oldest.unwrap_or(sequence) + WINDOW_SPAN, updated_at: now };
        }
        sequence <= self.sequence_window.last
    }

    /// Opens a fragmented message: it ends when all of its fragments have ended.
    pub fn open(&mut self, fragments: &Fragments) {
        if fragments.count() > 1 && fragments.qos() > 0 {
            self.fragments_out.insert(fragments.message(), fragments.count());
        }
    }

    /// Appends a message to those that wait.
    pub fn push(&mut self, message: Outgoing) {
        self.budget.add(message.bytes());
        if message.expires_at() < Micros::MAX {
            let topic = Arc::clone(message.topic());
            self.expiries.insert((message.expires_at(), message.message(), topic));
        }
        self.topics.make(&Arc::clone(message.topic())).push(message);
    }

    /// Makes a fragment that was sent wait again, unless its message has failed. The messages of a batch wait
    /// separately.
    pub fn give_back(&mut self, fragment: Fragment) {
        if fragment.count > 1 {
            return (0..fragment.count).for_each(|position| self.give_back(fragment.section(position, 1)));
        }
        if fragment.fragments > 1 && fragment.qos > 0 && !self.fragments_out.contains_key(&fragment.message) {
            return;
        }
        self.budget.add(fragment.field.len());
        if fragment.expires_at < Micros::MAX {
            self.expiries.insert((fragment.expires_at, fragment.message, Arc::clone(&fragment.topic)));
        }
        self.topics.make(&Arc::clone(&fragment.topic)).give_back(fragment);
    }

    /// What to do next about a topic.
    pub fn next(&self, now: Micros, topic: &str) -> Next {
        let Some((send_queue, (first, bytes, qos))) =
            self.topics.get(topic).and_then(|send_queue| Some((send_queue, send_queue.first()?)))
        else {
            return Next::Nothing;
        };
        match (self.zones.lookup(topic, now), send_queue.in_flight()) {
            (Lookup::Owner(owner), Some((to, newest))) if owner == to && newest < first => {
                Next::Send { owner, qos, bytes }
            }
            (_, Some(_)) => Next::AwaitInFlight,
            (Lookup::Owner(owner), None) => Next::Send { owner, qos, bytes },
            (Lookup::Below(node), None) => Next::Resolve(Some(node)),
            (Lookup::Unknown, None) => Next::Resolve(None),
        }
    }

    /// The topics with waiting messages whose owner is known.
    pub fn routable(&self, now: Micros) -> Vec<Arc<str>> {
        let is_routable = |topic: &str| matches!(self.zones.lookup(topic, now), Lookup::Owner(_));
        let waiting = self.topics.iter().filter(|(_, send_queue)| send_queue.is_waiting());
        waiting.map(|(topic, _)| topic).filter(|topic| is_routable(topic)).cloned().collect()
    }

    /// Takes the first fragment that waits on a topic.
    pub fn take_first(&mut self, topic: &str) -> Option<Fragment> {
        let TakenFragment { fragment, freed, expires_at } = self.topics.get_mut(topic)?.take_first()?;
        self.budget.free(freed);
        self.forget_expiry(expires_at, fragment.message, &fragment.topic);
        self.tidy(topic);
        Some(fragment)
    }

    /// Takes the first fragment that waits on a topic. The messages that follow it without a gap join it in
    /// one batch, as far as `room` allows.
    pub fn take_batch(&mut self, topic: &str, room: Room) -> Option<Fragment> {
        let mut run = self.take_first(topic)?;
        let Some(send_queue) = self.topics.get_mut(topic).filter(|_| run.may_join()) else {
            return Some(run);
        };
        let (most, mut bytes) = (room.messages.min(Positions::MOST as usize), run.field.len());
        while (run.count as usize) < most
            && let Some(next) = send_queue.joins(run.last_sequence())
            && bytes + next.field.len() <= room.bytes
            && (run.count > 1 || self.copy_blocks.gather(&run.field))
            && self.copy_blocks.gather(&next.field)
            && let Some(TakenFragment { freed, .. }) = send_queue.take_first()
        {
            self.budget.free(freed);
            bytes += freed;
            run.count += 1;
        }
        if self.copy_blocks.gathered_bytes() > 0 {
            run.field = self.copy_blocks.take();
            self.tidy(topic);
        }
        Some(run)
    }

    /// The delivery that the next message of a topic has to follow: the last one in flight; 0: there is none.
    /// If the owner refuses that one, it refuses all that follow it, too.
    pub fn last(&self, topic: &str) -> u64 {
        self.topics.get(topic).map_or(0, SendQueue::last)
    }

    /// Keeps a fragment until its PUBACK. It was queued as this delivery and, if it is a batch, the following
    /// ones. The returned ticket goes into the link's `delivery_records`.
    pub fn keep(&mut self, owner: SocketAddr, fragment: Fragment, delivery: u64) -> Ticket {
        let (count, last) = (fragment.count, delivery + u64::from(fragment.count - 1));
        self.topics.make(&fragment.topic).sent(owner, &fragment, last);
        let key = self.in_flight.insert((fragment, count));
        Ticket {
            worker: 0,
            position: 0,
            key: u32::try_from(key).expect("fewer than 2^32 parts fit in memory"),
        }
    }

    /// Returns the messages at these positions of a ticket, in order. After the last of them the ticket is
    /// spent.
    pub fn settle(&mut self, ticket: Ticket, positions: Positions) -> SmallVec<[Fragment; 1]> {
        let key = ticket.key as usize;
        let (fragment, open) = &mut self.in_flight[key];
        *open -= positions.len();
        let (is_spent, is_whole) = (*open == 0, positions.len() == fragment.count);
        let settled: SmallVec<[Fragment; 1]> = if is_whole {
            smallvec![self.in_flight.remove(key).0]
        } else {
            positions.runs().map(|(position, count)| fragment.section(position, count)).collect()
        };
        if is_spent && !is_whole {
            self.in_flight.remove(key);
        }
        let bytes = settled.iter().map(|fragment| fragment.field.len()).sum();
        self.end_flight(&settled[0].topic, positions.len(), bytes);
        settled
    }

    /// Counts a fragment as ended. Returns true if the whole message has ended.
    pub fn completes(&mut self, fragment: &Fragment) -> bool {
        if fragment.fragments == 1 {
            return true;
        }
        let Some(out) = self.fragments_out.get_mut(&fragment.message) else {
            return false;
        };
        *out -= 1;
        let done = *out == 0;
        if done {
            self.fragments_out.remove(&fragment.message);
        }
        done
    }

    /// Ends a whole message because this fragment of it failed: its waiting fragments are removed, and those
    /// in flight will not wait again. Returns whether it was open.
    pub fn abandon(&mut self, fragment: &Fragment) -> bool {
        if fragment.fragments == 1 {
            return true;
        }
        let was_open = self.fragments_out.remove(&fragment.message).is_some() || fragment.qos == 0;
        self.remove(&fragment.topic, fragment.message, fragment.fragments);
        was_open
    }

    /// Removes the waiting messages that have expired.
    pub fn expire(&mut self, now: Micros) -> Vec<EndedMessage> {
        let mut ended = Vec::new();
        while let Some((expires_at, ..)) = self.expiries.first()
            && *expires_at <= now
            && let Some((_, message, topic)) = self.expiries.pop_first()
        {
            ended.extend(self.remove(&topic, message, 1).map(|qos| EndedMessage { topic, message, qos }));
        }
        ended
    }

    /// When `expire` is to be called next.
    pub fn next_expiry(&self) -> Option<Micros> {
        self.expiries.first().map(|(expires_at, ..)| *expires_at)
    }

    /// Makes a topic wait for its turn until there is room with its owner.
    pub fn block(&mut self, owner: SocketAddr, topic: &Arc<str>) {
        if let Some(send_queue) = self.topics.get_mut(topic) {
            self.turns += 1;
            if let Some(turn) = send_queue.turn.replace((owner, self.turns)) {
                self.blocked.remove(&turn);
            }
            self.blocked.insert((owner, self.turns), Arc::clone(topic));
        }
    }

    /// Whether a topic waits for room with this owner.
    pub fn has_blocked_topics(&self, owner: SocketAddr) -> bool {
        self.blocked.range((owner, 0)..=(owner, u64::MAX)).next().is_some()
    }

    /// Takes the topic whose turn it is.
    pub fn unblock(&mut self, owner: SocketAddr) -> Option<Arc<str>> {
        let (&turn, _) = self.blocked.range((owner, 0)..=(owner, u64::MAX)).next()?;
        let topic = self.blocked.remove(&turn)?;
        if let Some(send_queue) = self.topics.get_mut(&topic) {
            send_queue.turn = None;
        }
        Some(topic)
    }

    /// Learns the cut in a refusal (§5.3).
    pub fn learn(&mut self, now: Micros, owner: SocketAddr, topic: &str, cut: &Cut) {
        self.zones.learn_cut(owner, topic, cut, now + CUT_TTL);
    }

    pub fn is_drained(&self) -> bool {
        self.topics.iter().next().is_none()
    }

    /// The number of messages or fragments in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.iter().map(|(_, (_, open))| *open as usize).sum()
    }

    pub fn waiting(&self) -> usize {
        self.topics.iter().map(|(_, send_queue)| send_queue.len()).sum()
    }

    /// The owner of a topic, and until when that is valid. `is_last`: the previous call had the same topic.
    fn find(&mut self, now: Micros, topic: &str, is_last: bool) -> Option<(SocketAddr, Micros)> {
        let holds = |&(_, until, version): &(SocketAddr, Micros, u64)| {
            is_last && now < until && version == self.zones.version()
        };
        self.last_owner = self.last_owner.filter(holds).or_else(|| match self.zones.find(topic, now) {
            Some((Lookup::Owner(owner), until)) => Some((owner, until, self.zones.version())),
            _ => None,
        });
        self.last_owner.map(|(owner, until, _)| (owner, until))
    }

    /// Removes the waiting fragments of a message. Returns its `QoS`, if there were any.
    fn remove(&mut self, topic: &Arc<str>, message: u64, fragments: u32) -> Option<u8> {
        let (returned, fresh) = self.topics.get_mut(topic)?.remove(message, fragments);
        returned.iter().for_each(|fragment| self.budget.free(fragment.field.len()));
        let mut qos = returned.first().map(|fragment| fragment.qos);
        if let Some(fresh) = fresh {
            self.budget.free(fresh.bytes());
            self.forget_expiry(fresh.expires_at(), message, topic);
            self.fragments_out.remove(&message);
            qos = Some(fresh.qos());
        }
        self.tidy(topic);
        qos
    }

    fn forget_expiry(&mut self, expires_at: Micros, message: u64, topic: &Arc<str>) {
        if expires_at < Micros::MAX {
            self.expiries.remove(&(expires_at, message, Arc::clone(topic)));
        }
    }

    fn end_flight(&mut self, topic: &str, count: u32, bytes: usize) {
        let is_over = self.topics.get_mut(topic).is_some_and(|send_queue| {
            send_queue.end_flight(count, bytes);
            send_queue.is_over()
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

/// Whether a new message of a topic with this queue can be sent to an owner at once.
fn is_free(send_queue: Option<&SendQueue>, owner: SocketAddr) -> bool {
    send_queue.is_none_or(|send_queue| !send_queue.is_waiting() && send_queue.is_free_for(owner))
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
