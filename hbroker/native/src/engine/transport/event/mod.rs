//! What an engine reports to Python: events that need a decision, and messages for the application.
//!
//! Python decides more slowly than a link delivers. So that a flood from one source does not delay the
//! others, events wait in several queues: one for each session, one for each address from which requests
//! outside of sessions come, and the engine's own. The queues are served round robin, one event each, as a
//! fair queue in a router is. Within a queue the order is kept. The sessions of a node's children have queues
//! as well, and the links to its parents use the engine's own queue.
//!
//! A round over all queues is long if a flood comes from many sessions or addresses. So a queue has one of
//! three *classes* (`Class`), and the classes are served round robin before the queues are. Leases and
//! handovers of nodes wait only for other nodes, joins and operators' orders only for others of their kind,
//! whatever clients send.
//!
//! The bound of a queue depends on the room that is left for all: it may hold no more than a part of it
//! (Choudhury and Hahne, "Dynamic queue length thresholds", 1998). A single flood may be large; many at once
//! leave room for others. A session may always have one event waiting, and the sessions leave a part of all
//! room to requests from outside. If a session's queue has no room for a packet, the packet is not
//! acknowledged, so that the link slows down. A packet from outside of sessions is dropped (§3.3).

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};
use smallvec::SmallVec;

use crate::association::packet::AssociationId;
use crate::keyed_hash::KeyedHash;
use crate::link_id::LinkId;
use crate::prefix::Prefix;
use crate::shrink::shrink;
use crate::wire::{Body, MeantFor, MessageId, PacketView, PublishView};

/// Why a link has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownReason {
    /// The peer was silent for too long (§3.2, §3.5).
    Timeout,
    /// The peer does not know the session (§3.6).
    Reset,
    /// The peer opens no session for this side, because it has too many (§3.6).
    Refused,
    /// The peer runs under another incarnation (§3.6).
    Restarted,
    /// Another run of the peer began a link in its session (§6.4).
    TakenOver,
    /// This side closed it.
    Closed,
}

impl DownReason {
    pub fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Reset => "reset",
            Self::Refused => "refused",
            Self::Restarted => "restarted",
            Self::TakenOver => "taken_over",
            Self::Closed => "closed",
        }
    }
}

/// The other end of a link.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    pub link: LinkId,
    pub address: SocketAddr,
    pub session: u64,
    /// Whether the peer opened it.
    pub inbound: bool,
    /// The key of the peer's rights ([`crate::rights::Rights`]); 0: it may do everything.
    pub rights: u64,
}

/// A client that wants to go on with a session. `rights`: the key of its rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionClaim {
    pub session: u64,
    pub source: SocketAddr,
    pub rights: u64,
}

/// Something that Python has to decide, or to know for a decision.
#[derive(Clone, Debug)]
pub enum Event {
    /// A control packet. `link`: `None` outside of a session.
    Control {
        link: Option<LinkId>,
        source: SocketAddr,
        packet: Vec<u8>,
        inbound: bool,
        /// As of a [`Peer`].
        rights: u64,
    },
    /// A client has sent its token, empty if it has none. It waits until `set_rights` says what it may do.
    RightsRequested {
        association: AssociationId,
        source: SocketAddr,
        token: Vec<u8>,
    },
    /// A client with these rights wants to go on with a session whose client had others. It may not until
    /// `allow_session`.
    SessionClaimed(SessionClaim),
    /// The rights of a link's peer are others than before.
    RightsChanged(Peer),
    LinkUp(Peer),
    LinkDown(Peer, DownReason),
    /// A session ended because its queue overflowed (§7.8).
    Overflow {
        session: u64,
        link: Option<LinkId>,
    },
    /// A client's message waits for the owner of its topic. `start`: the node to ask; `None`: the root.
    Unresolved {
        topic: Box<str>,
        start: Option<SocketAddr>,
    },
    /// The outcome of `count` messages of `QoS` 1 or 2 with consecutive sequence numbers, from `first` on.
    Published {
        first: u64,
        count: u64,
        topic: Arc<str>,
        reason: i32,
    },
}

/// A message for a client's application.
#[derive(Clone, Debug)]
pub struct Message {
    /// The body of a serialised `Publish`. If the message was fragmented, it lacks the payload.
    pub publish: Bytes,
    /// The payload, reassembled from fragments; `None`: it is in `publish`.
    pub whole: Option<Bytes>,
    /// As in a packet.
    pub meant_for: Option<MeantFor>,
    /// The flag that the application sees (§7.6).
    pub retain: bool,
    pub qos: u8,
    /// The listeners that it matches.
    pub subscriptions: SmallVec<[u64; 2]>,
    /// The id of this copy for `handled` and `give_back`; `None`: it was received at `QoS` 0.
    pub awaiting_acknowledgement: Option<MessageId>,
}

impl Message {
    /// Its fields, parsed anew in each call. If it was fragmented, the payload is not there.
    pub fn view(&self) -> PublishView<'_> {
        match PacketView::from_raw(&self.publish) {
            Ok(PacketView { body: Body::Publish(publish), .. }) => publish,
            // It was parsed when it was received.
            _ => PublishView::default(),
        }
    }

    /// The payload, without a copy. `fields`: its view.
    pub fn payload(&self, fields: &PublishView<'_>) -> Bytes {
        self.whole.clone().unwrap_or_else(|| self.publish.slice_ref(fields.payload))
    }

    /// The id of this copy for those that handle it. `fields`: its view.
    pub fn copy_id(&self, fields: &PublishView<'_>) -> MessageId {
        self.awaiting_acknowledgement.unwrap_or_else(|| self.id(fields))
    }

    /// The id that its publisher gave it: the number is that of its first fragment (§7.5). `fields`: its
    /// view.
    pub fn id(&self, fields: &PublishView<'_>) -> MessageId {
        let index = fields.fragment.map_or(0, |fragment| u64::from(fragment.index));
        (fields.publisher, fields.sequence.saturating_sub(index))
    }

    pub fn is_retained(&self) -> bool {
        self.meant_for.is_some_and(MeantFor::is_retained)
    }

    /// The size that it counts for in a bounded queue.
    pub fn bytes(&self) -> usize {
        Self::cost(self.publish.len() + self.whole.as_ref().map_or(0, Bytes::len))
    }

    /// The size that a message of `bytes` counts for.
    pub fn cost(bytes: usize) -> usize {
        bytes + 64
    }
}

impl Event {
    /// Merges the next event into this one, if both report the same outcome of consecutive messages, or the rights of
    /// the same link. Its size does not change.
    pub fn absorb(&mut self, next: &Self) -> bool {
        if let (Self::RightsChanged(peer), Self::RightsChanged(next)) = (&mut *self, next) {
            let is_same = peer.link == next.link;
            if is_same {
                *peer = *next;
            }
            return is_same;
        }
        if let (Self::SessionClaimed(claim), Self::SessionClaimed(next)) = (&*self, next) {
            return claim == next;
        }
        let (
            Self::Published { first, count, topic, reason },
            Self::Published { first: next_first, count: next_count, topic: next_topic, reason: next_reason },
        ) = (self, next)
        else {
            return false;
        };
        let is_next = *next_first == *first + *count && reason == next_reason && topic == next_topic;
        *count += if is_next { *next_count } else { 0 };
        is_next
    }

    /// The size that it counts for in a bounded queue.
    pub fn bytes(&self) -> usize {
        let variable = match self {
            Self::Control { packet, .. } => packet.len(),
            Self::RightsRequested { token, .. } => token.len(),
            Self::SessionClaimed(_)
            | Self::LinkUp(_)
            | Self::RightsChanged(_)
            | Self::LinkDown(..)
            | Self::Overflow { .. } => 0,
            Self::Unresolved { topic, .. } => topic.len(),
            Self::Published { topic, .. } => topic.len(),
        };
        size_of::<Self>() + variable
    }
}

/// How many bytes events may use before the queues are full, however few events there are.
pub const MOST_EVENT_BYTES: usize = 64 << 20;
/// A queue holds at most one part in `SHARE` of the room that is left. Sessions leave one part in `SHARE` of
/// all room to others.
const SHARE: usize = 8;
/// How many orders and joins from outside of sessions may wait, in total and from one host. No other flood
/// takes their room.
const MOST_ORDERS: usize = 1_024;
const ORDERS_EACH: usize = 16;
/// How many bytes Python takes at once, without the last event: it holds each event twice, as bytes and
/// parsed.
const TAKEN_BYTES: usize = 1 << 20;

/// The queue that an event waits in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flow {
    /// This engine's own: events about its messages, and packets over links that it opened. It may use all
    /// room that is left.
    Own,
    Session(u64),
    Outside(Prefix),
    /// JOIN and ORDER from outside of sessions: no flood of other requests from the same host takes their
    /// room.
    Order(Prefix),
}

/// The class of a queue: the classes are served round robin, one event each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// This engine's own queue, and the sessions of the node's children (§5.1).
    Nodes,
    /// Requests to join, and orders (§5.7).
    Requests,
    /// All others.
    Clients,
}

impl Class {
    const COUNT: usize = 3;
}

/// Queues of events, bounded in number and in bytes. Events about links and sessions are always taken,
/// because their number is bounded by that of links and sessions.
pub struct Events {
    limit: usize,
    own: EventQueue,
    others: HashMap<Flow, EventQueue, KeyedHash>,
    /// The queues of each class that have events, the next one first, each at most once
    /// ([`EventQueue::is_listed`]). A queue is skipped if it is empty, or has another class, when its turn comes.
    ready: [VecDeque<Flow>; Class::COUNT],
    /// The next class to be served.
    next: usize,
    /// The sessions of the node's children.
    children: HashSet<u64, KeyedHash>,
    /// How many orders wait.
    orders: usize,
    count: usize,
    bytes: usize,
}

/// The events of one flow, in order.
struct EventQueue {
    events: VecDeque<Event>,
    bytes: usize,
    class: Class,
    /// By class, whether its list in [`Events::ready`] contains this queue.
    is_listed: [bool; Class::COUNT],
}

impl Events {
    /// Without events; bounded to about `limit`. `seed` is random and secret.
    pub fn new(limit: usize, seed: u64) -> Self {
        Self {
            limit,
            own: EventQueue::new(Class::Nodes),
            others: HashMap::with_hasher(KeyedHash::new(seed)),
            ready: Default::default(),
            next: 0,
            children: HashSet::with_hasher(KeyedHash::new(seed)),
            orders: 0,
            count: 0,
            bytes: 0,
        }
    }

    /// The session is a child's: from now on its events wait only for those of nodes.
    pub fn prioritise(&mut self, session: u64) {
        self.children.insert(session);
    }

    /// The session's link has ended: its next packets count as a client's until the node calls `prioritise`
    /// again.
    pub fn deprioritise(&mut self, session: u64) {
        self.children.remove(&session);
    }

    /// Appends an event to its queue, or merges it into the last event there.
    pub fn push(&mut self, flow: Flow, event: Event) {
        let class = match flow {
            Flow::Own => Class::Nodes,
            Flow::Session(session) if self.children.contains(&session) => Class::Nodes,
            Flow::Order(_) => Class::Requests,
            Flow::Session(_) | Flow::Outside(_) => Class::Clients,
        };
        self.push_as(class, flow, event);
    }

    /// As `push` for a JOIN, or a packet that proves one (§5.5), through which a session may become a
    /// child's.
    pub fn push_join(&mut self, flow: Flow, event: Event) {
        let is_child = matches!(flow, Flow::Session(session) if self.children.contains(&session));
        self.push_as(if is_child { Class::Nodes } else { Class::Requests }, flow, event);
    }

    /// If the class is better than that of the queue, the whole queue gets it, so that the order is kept.
    fn push_as(&mut self, class: Class, flow: Flow, event: Event) {
        let queue = match flow {
            Flow::Own => &mut self.own,
            _ => self.others.entry(flow).or_insert_with(|| EventQueue::new(class)),
        };
        if queue.events.back_mut().is_some_and(|last| last.absorb(&event)) {
            return;
        }
        if queue.events.is_empty() || class < queue.class {
            queue.class = class;
        }
        if !std::mem::replace(&mut queue.is_listed[queue.class as usize], true) {
            self.ready[queue.class as usize].push_back(flow);
        }
        let bytes = event.bytes();
        queue.bytes += bytes;
        queue.events.push_back(event);
        self.bytes += bytes;
        self.count += 1;
        self.orders += usize::from(matches!(flow, Flow::Order(_)));
    }

    /// The next events, round robin over the classes and over the queues of a class, up to `limit` or
    /// `TAKEN_BYTES`.
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
        self.ready.iter_mut().for_each(shrink);
        taken
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn is_full(&self) -> bool {
        self.count >= self.limit || self.bytes >= MOST_EVENT_BYTES
    }

    /// Whether there is room for another event in this queue.
    pub fn has_room(&self, flow: Flow) -> bool {
        if let Flow::Order(_) = flow {
            let waiting = self.others.get(&flow).map_or(0, |queue| queue.events.len());
            return self.orders < MOST_ORDERS && waiting < ORDERS_EACH;
        }
        let is_session = matches!(flow, Flow::Session(_));
        let left = |most: usize, used: usize| {
            let kept = if is_session { most / SHARE } else { 0 };
            (most - kept).saturating_sub(used)
        };
        match self.others.get(&flow).filter(|queue| !queue.events.is_empty()) {
            Some(queue) => {
                SHARE * queue.events.len() < left(self.limit, self.count)
                    && SHARE * queue.bytes < left(MOST_EVENT_BYTES, self.bytes)
            }
            None => is_session || !self.is_full(),
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.count
    }

    /// The next event of the next class that has one.
    fn pop(&mut self) -> Option<Event> {
        for _ in 0..Class::COUNT {
            let class = self.next;
            self.next = (class + 1) % Class::COUNT;
            while let Some(flow) = self.ready[class].pop_front() {
                let (event, is_left) = match flow {
                    Flow::Own => self.own.serve(class),
                    _ => self.pop_flow(flow, class),
                };
                if is_left {
                    self.ready[class].push_back(flow);
                }
                if event.is_some() {
                    self.orders -= usize::from(matches!(flow, Flow::Order(_)));
                    return event;
                }
            }
        }
        None
    }

    /// The next event of a queue that is not the engine's own, as [`EventQueue::serve`]. A queue that is in
    /// no list any more is removed.
    fn pop_flow(&mut self, flow: Flow, class: usize) -> (Option<Event>, bool) {
        let Entry::Occupied(mut queue) = self.others.entry(flow) else {
            return (None, false);
        };
        let served = queue.get_mut().serve(class);
        if queue.get().is_listed == [false; Class::COUNT] {
            queue.remove();
        }
        served
    }
}

impl EventQueue {
    fn new(class: Class) -> Self {
        Self { events: VecDeque::new(), bytes: 0, class, is_listed: [false; Class::COUNT] }
    }

    /// The queue is the next of a class: returns its next event, if it is of that class, and whether it goes
    /// to the end of the list for another one.
    fn serve(&mut self, class: usize) -> (Option<Event>, bool) {
        self.is_listed[class] = false;
        if self.class as usize != class {
            return (None, false);
        }
        let event = self.events.pop_front();
        self.bytes -= event.as_ref().map_or(0, Event::bytes);
        shrink(&mut self.events);
        self.is_listed[class] = !self.events.is_empty();
        (event, self.is_listed[class])
    }
}

#[cfg(test)]
mod tests;
