//! Batches: messages of one `QoS` on one topic that followed one another in a datagram.
//!
//! A publisher under load fills its datagrams with messages of few topics. What is the same for a whole batch
//! is looked up once: at an owner its route, its subscribers' links and its load counter; at a subscriber the
//! matching listeners. The packets leave an owner with the bytes that they arrived with, so a batch costs
//! each subscriber one copy of all of them. A session of another worker gets them through that worker. A
//! subscriber keeps them in one allocation, which its messages share. A batch gets the same result as
//! [`Engine::forward`] and [`Engine::read`] for each message. A message that is not plain (retained, with an
//! expiry, a fragment, for a shared group) is handled by these.
//!
//! While a worker handles a receive batch, it collects the copies for the same sessions of another worker
//! into one handoff. So memory, a slot in the mailbox, and reading the packets are paid once for many
//! messages. The other worker reads them like the packets of a datagram.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::Micros;
use crate::engine::metrics::counters::Drop;
use crate::engine::metrics::load::MessageMetrics;
use crate::engine::owner::forward::{Forwarder, wants};
use crate::engine::owner::routes::Route;
use crate::engine::transport::links::Entry;
use crate::engine::transport::outbound::{ByWorker, Handoff, Outbound};
use crate::engine::{Engine, Side};
use crate::link::Queued;
use crate::link::send::outbox::Stretch;
use crate::link_id::{LinkId, SessionKey};
use crate::load::latency::Sample;
use crate::load::topics::Mark;
use crate::wire::{self, Body, DatagramView, PacketView, Packets, PublishView, Section};

/// Two messages or more, one after the other; or a part of such a batch.
#[derive(Clone, Copy)]
pub struct PublishBatch<'a, 'b> {
    packets: Packets<'a, 'b>,
    /// The bytes of the packets. The first packet has all of its fields.
    pub bytes: &'a [u8],
}

/// What telemetry counts of a batch (see [`MessageMetrics`](crate::engine::metrics::load::MessageMetrics)).
#[derive(Default)]
pub(in crate::engine) struct BatchMetrics {
    mark: Mark,
    /// The bytes of all payloads.
    payload: u64,
    /// The timed messages, by their position in the batch.
    timed: SmallVec<[(u32, Arc<Sample>); 2]>,
}

impl<'a, 'b> PublishBatch<'a, 'b> {
    /// The batch at the beginning of these packets.
    ///
    /// # Errors
    /// There is none: returns how many packets have to be handled one by one.
    #[inline]
    pub(in crate::engine) fn at(packets: Packets<'a, 'b>) -> Result<Self, usize> {
        let plain = packets.sections().map_while(|section| match section.body() {
            Body::Publish(publish) if section.is_bare() && publish.is_plain() => {
                Some((publish.topic, section.len()))
            }
            _ => None,
        });
        let mut plain = plain.peekable();
        let &(topic, _) = plain.peek().ok_or(1_usize)?;
        let len: usize = plain.take_while(|(other, _)| *other == topic).map(|(_, len)| len).sum();
        Self::of(packets.take(len)).filter(|_| len > 1).ok_or(len)
    }

    /// Messages on one topic; `None`: there is another field between them.
    #[inline]
    pub(in crate::engine) fn of(packets: Packets<'a, 'b>) -> Option<Self> {
        Some(Self { packets, bytes: packets.encoded()? })
    }

    pub fn len(&self) -> usize {
        self.packets.len()
    }

    pub fn topic(&self) -> &'a str {
        self.head().map_or("", |publish| publish.topic)
    }

    /// The first message.
    pub fn first(&self) -> Option<PublishView<'a>> {
        match self.packets.sections().next()?.first().body {
            Body::Publish(publish) => Some(publish),
            _ => None,
        }
    }

    /// For each message the field `publish` or, at `QoS` 0, the delta packet (§2.4); and the payload.
    pub fn messages(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone + use<'a, 'b> {
        self.packets.sections().flat_map(Section::messages)
    }

    /// The first message. Its numbers and payload have no meaning.
    pub fn head(&self) -> Option<&'b PublishView<'a>> {
        self.heads(1).next()
    }

    /// The first `count` messages; messages that differ only in their numbers and payloads appear once.
    pub fn heads(&self, count: usize) -> impl Iterator<Item = &'b PublishView<'a>> + use<'a, 'b> {
        self.packets.take(count).sections().filter_map(|section| match section.body() {
            Body::Publish(publish) => Some(publish),
            _ => None,
        })
    }

    /// Whether all of them may come over this link, by their publisher ids.
    pub fn is_of(&self, entry: &Entry) -> bool {
        self.heads(self.len()).all(|publish| entry.is_of(publish.publisher))
    }

    /// The bytes of the payloads of `count` messages from a position on.
    fn payload(&self, first: u32, count: u32) -> u64 {
        let sections = self.packets.skip(first as usize).take(count as usize).sections();
        let bytes = sections.map(|section| match section.body() {
            Body::Publish(publish) => section.len() * publish.payload.len(),
            _ => 0,
        });
        bytes.sum::<usize>() as u64
    }

    /// Its packets, by their lengths.
    fn stretches(&self) -> impl Iterator<Item = Stretch> + use<'a, 'b> {
        self.sections().map(|section| Stretch {
            length: section.length(),
            count: section.len() as u32,
            is_delta: section.is_delta(),
        })
    }

    /// Its messages; those that are alike are together.
    pub fn sections(&self) -> impl Iterator<Item = Section<'a, 'b>> + Clone + use<'a, 'b> {
        self.packets.sections()
    }

    /// The view of each message.
    fn views(&self) -> impl Iterator<Item = PublishView<'a>> + use<'a, 'b> {
        self.packets.iter().filter_map(|packet| match packet.body {
            Body::Publish(publish) => Some(publish),
            _ => None,
        })
    }
}

impl Engine {
    /// Takes the batch at the beginning of these packets. Returns its number of messages.
    ///
    /// # Errors
    /// None is taken: returns how many packets have to be handled one by one.
    pub(in crate::engine) fn take_batch(
        &mut self,
        now: Micros,
        id: LinkId,
        packets: Packets<'_, '_>,
    ) -> Result<usize, usize> {
        // `batch` is borrowed from here on. If it were moved in small pieces, copying it in large ones would
        // have to wait for them.
        let batch = &PublishBatch::at(packets)?;
        let is_taken = match &mut self.side {
            Side::Node(forwarder) => {
                // A link's session becomes a publisher's with its first message, which [`Engine::forward`]
                // handles.
                let entry = self.out.links.awake(id).filter(|entry| entry.inbound && batch.is_of(entry));
                let source = entry.map(|entry| entry.subscriber);
                source.is_some_and(|source| forwarder.forward_batch(now, batch, source, &mut self.out))
            }
            Side::Client(client) => {
                client.inbox.take_batch(batch, &mut self.out.counters);
                true
            }
        };
        if is_taken { Ok(batch.len()) } else { Err(batch.len()) }
    }
}

impl Forwarder {
    /// Takes the messages of a batch over, and offers them to all subscribers. False: they have to be
    /// forwarded one by one.
    fn forward_batch(
        &mut self,
        now: Micros,
        batch: &PublishBatch<'_, '_>,
        source: Option<SessionKey>,
        out: &mut Outbound,
    ) -> bool {
        let worker = self.worker();
        let Ok(route) = &self.routes.find(now, batch.topic()) else {
            return false;
        };
        if !is_open(route) {
            return false;
        }
        out.counters.messages_in += batch.len() as u64;
        let batch_metrics = BatchMetrics::of(batch, now, route.mark, out);
        let mut elsewhere = ByWorker::new();
        for subscriber in route.subscribers.iter().filter(|subscriber| wants(subscriber, source)) {
            let session = subscriber.session;
            if session.worker() == worker {
                out.offer_batch(session, batch, &batch_metrics);
            } else {
                elsewhere.add(session.worker(), session);
            }
        }
        for (other, sessions) in elsewhere.drain() {
            out.hand_batch_over(other, &sessions, batch, &batch_metrics);
        }
        true
    }
}

impl Outbound {
    /// Hands the messages of a batch to another worker, which offers them to its sessions.
    fn hand_batch_over(
        &mut self,
        worker: u8,
        sessions: &[SessionKey],
        batch: &PublishBatch<'_, '_>,
        batch_metrics: &BatchMetrics,
    ) {
        let (count, bytes) = (batch.len() as u32, batch.bytes.len());
        if bytes <= MOST_BYTES {
            return self.copies_for(worker, sessions, bytes).add(
                batch.bytes,
                count,
                timed_of(&batch_metrics.timed, 0, count),
            );
        }
        for (publish, message_metrics) in batch.views().zip(batch_metrics.metrics_of_each(batch)) {
            let field = publish.field();
            self.copies_for(worker, sessions, field.len()).add_one(&field, &message_metrics);
        }
    }

    /// Offers a session the messages of a batch, as [`Outbound::offer_copy`] does each.
    pub(in crate::engine) fn offer_batch(
        &mut self,
        key: SessionKey,
        batch: &PublishBatch<'_, '_>,
        batch_metrics: &BatchMetrics,
    ) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        session.accept_copies(batch.len() as u64);
        let Some((id, entry)) = session.link.and_then(|id| Some((id, self.links.get_mut(id)?))) else {
            session.refuse_copies(Drop::Offline, batch.len() as u64);
            return self.counters.drop_many(Drop::Offline, batch.len() as u64);
        };
        let (copies, bytes) = entry.queue_publishes(batch, batch_metrics);
        self.links.touch(id);
        self.counters.messages_out += copies;
        let refused = batch.len() as u64 - copies;
        session.refuse_copies(Drop::QueueFull, refused);
        self.counters.drop_many(Drop::QueueFull, refused);
        if let Some(load) = &mut self.load {
            load.topics.count_out(batch_metrics.mark, copies as u32, bytes);
        }
    }
}

impl Entry {
    /// Queues the messages of a batch, or as many as there is room for. Returns their number, and the bytes
    /// of their payloads.
    fn queue_publishes(&mut self, batch: &PublishBatch<'_, '_>, batch_metrics: &BatchMetrics) -> (u64, u64) {
        let (queued, _) = self.link.passed();
        if self.link.queue_encoded(batch.bytes, batch.stretches()).is_ok() {
            for (position, sample) in &batch_metrics.timed {
                self.timed.add(Queued::Unreliable(queued + 1 + u64::from(*position)), sample);
            }
            return (batch.len() as u64, batch_metrics.payload);
        }
        let taken =
            batch.views().take_while(|publish| self.link.queue_unreliable(&publish.field(), None).is_ok());
        taken.fold((0, 0), |(copies, bytes), publish| (copies + 1, bytes + publish.payload.len() as u64))
    }
}

impl BatchMetrics {
    /// Counts the messages of a batch as taken over. `known`: the mark of their route.
    pub(in crate::engine) fn of(
        batch: &PublishBatch<'_, '_>,
        now: Micros,
        known: Option<&std::cell::Cell<Mark>>,
        out: &mut Outbound,
    ) -> Self {
        let Some(load) = &mut out.load else {
            return Self::default();
        };
        let mark = load.mark_of(batch.topic(), known);
        let payload = batch.payload(0, batch.len() as u32);
        load.topics.count_in(mark, batch.len() as u32, payload);
        let timed = load.latency.begin_among(now, batch.len() as u32).collect();
        Self { mark, payload, timed }
    }

    /// The metrics of messages that another worker took over and counted.
    pub(in crate::engine) fn handed_over(
        batch: &PublishBatch<'_, '_>,
        timed: SmallVec<[(u32, Arc<Sample>); 2]>,
        out: &mut Outbound,
    ) -> Self {
        let Some(load) = &mut out.load else {
            return Self::default();
        };
        let payload = batch.payload(0, batch.len() as u32);
        Self { mark: load.topics.mark(batch.topic()), payload, timed }
    }

    /// The metrics for copies of `count` messages from a position on; and, if they are several, the positions
    /// of the timed ones among them.
    pub(in crate::engine) fn of_some(
        &self,
        batch: &PublishBatch<'_, '_>,
        first: u32,
        count: u32,
    ) -> (MessageMetrics, Vec<(u32, Arc<Sample>)>) {
        let mut timed: Vec<_> = timed_of(&self.timed, first, count).collect();
        let sample = if count == 1 { timed.pop().map(|(_, sample)| sample) } else { None };
        (MessageMetrics::of_several(self.mark, batch.payload(first, count), sample), timed)
    }

    /// The metrics of each message of the batch.
    pub(in crate::engine) fn metrics_of_each<'c>(
        &'c self,
        batch: &PublishBatch<'c, 'c>,
    ) -> impl Iterator<Item = MessageMetrics> + 'c {
        let mut timed = self.timed.iter().peekable();
        (0..).zip(batch.messages()).map(move |(position, (_, payload))| {
            let sample = timed.next_if(|(due, _)| *due == position).map(|(_, sample)| Arc::clone(sample));
            MessageMetrics::new(self.mark, payload, sample)
        })
    }
}

/// Whether any client may publish on this topic, and every session gets all messages.
pub(in crate::engine) fn is_open(route: &Route<'_>) -> bool {
    !route.reserved && route.groups.iter().next().is_none()
}

/// A handoff has at most this number of bytes, unless it is a single message; so the memory of a mailbox
/// stays small.
pub const MOST_BYTES: usize = 16 * 1024;
/// How many of the last handoffs are searched for one to the same sessions.
const LOOK_BACK: usize = 16;

/// Messages, and the sessions that get a copy of each.
#[derive(Clone, Debug)]
pub struct Copies {
    /// Fields `packets`, end to end.
    packets: Vec<u8>,
    /// The number of messages.
    count: u32,
    sessions: SmallVec<[SessionKey; 4]>,
    /// The timed messages, by their positions.
    timed: Vec<(u32, Arc<Sample>)>,
}

impl Copies {
    /// Adds `count` messages: fields `packets` without numbers, end to end. `timed`: the timed ones among
    /// them, by their positions in `packets`.
    pub fn add(&mut self, packets: &[u8], count: u32, timed: impl Iterator<Item = (u32, Arc<Sample>)>) {
        if self.count > 0 {
            self.packets.reserve(MOST_BYTES.saturating_sub(self.packets.len()).max(packets.len()));
        }
        self.packets.extend_from_slice(packets);
        self.timed.extend(timed.map(|(position, sample)| (self.count + position, sample)));
        self.count += count;
    }

    /// Adds a message, of which this is the field `publish`.
    pub fn add_one(&mut self, field: &[u8], message_metrics: &MessageMetrics) {
        wire::put_packet(&mut self.packets, 0, 0, None, field);
        self.timed.extend(message_metrics.sample().map(|sample| (self.count, Arc::clone(sample))));
        self.count += 1;
    }
}

/// The timed messages among `count` messages from `first` on, by their positions among these.
fn timed_of(
    timed: &[(u32, Arc<Sample>)],
    first: u32,
    count: u32,
) -> impl Iterator<Item = (u32, Arc<Sample>)> {
    let timed = timed.iter().filter(move |(position, _)| (first..first + count).contains(position));
    timed.map(move |(position, sample)| (position - first, Arc::clone(sample)))
}

impl Outbound {
    /// The last handoff for a worker, if it is of copies for these sessions and has room for `bytes` more;
    /// else a new one. (An older handoff would not do, because handoffs arrive in the order in which they
    /// were queued.)
    pub fn copies_for(&mut self, worker: u8, sessions: &[SessionKey], bytes: usize) -> &mut Copies {
        let mut last = self.handoffs.iter().rev().take(LOOK_BACK).filter(|(to, _)| *to == worker);
        let is_open = last.next().is_some_and(|(_, handoff)| match handoff {
            Handoff::Copies(copies) => {
                *copies.sessions == *sessions && copies.packets.len() + bytes <= MOST_BYTES
            }
            _ => false,
        });
        if !is_open {
            let (packets, timed) = (Vec::new(), Vec::new());
            let copies = Copies { packets, count: 0, sessions: sessions.into(), timed };
            self.handoffs.push_back((worker, Handoff::Copies(copies)));
        }
        let mut last = self.handoffs.iter_mut().rev().filter(|(to, _)| *to == worker);
        match last.next() {
            Some((_, Handoff::Copies(copies))) => copies,
            _ => unreachable!("one that is open is the last for its worker"),
        }
    }
}

impl Engine {
    /// Offers another worker's copies to this worker's sessions.
    pub(in crate::engine) fn deliver_copies(&mut self, copies: &Copies) {
        // The fields of a datagram are `packets`, too.
        let mut buffers = self.view_buffers.take().unwrap_or_default();
        let mut view = DatagramView::unread(&copies.packets, buffers.take());
        if view.read(&mut buffers.mask).is_ok() {
            let (mut rest, mut position) = (view.packets(), 0);
            while !rest.is_empty() {
                let count = match &PublishBatch::at(rest) {
                    Ok(batch) => {
                        let timed = timed_of(&copies.timed, position, batch.len() as u32).collect();
                        let batch_metrics = BatchMetrics::handed_over(batch, timed, &mut self.out);
                        copies
                            .sessions
                            .iter()
                            .for_each(|&session| self.out.offer_batch(session, batch, &batch_metrics));
                        batch.len()
                    }
                    Err(alone) => {
                        (position..).zip(rest.take(*alone).iter()).for_each(|(position, packet)| {
                            let sample =
                                timed_of(&copies.timed, position, 1).next().map(|(_, sample)| sample);
                            self.deliver_copy(&packet, &copies.sessions, sample);
                        });
                        *alone
                    }
                };
                rest = rest.skip(count);
                position += count as u32;
            }
        }
        buffers.put_back(view.into_buffer());
        self.view_buffers = Some(buffers);
    }

    fn deliver_copy(
        &mut self,
        packet: &PacketView<'_>,
        sessions: &[SessionKey],
        sample: Option<Arc<Sample>>,
    ) {
        let Body::Publish(publish) = &packet.body else {
            return;
        };
        let message_metrics = MessageMetrics::handed_over(&mut self.out.load, publish, sample);
        for &session in sessions {
            self.out.offer_copy(session, &publish.field(), None, &message_metrics);
        }
    }
}
