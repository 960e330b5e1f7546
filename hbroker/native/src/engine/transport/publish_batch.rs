//! Batches: messages of one `QoS` on one topic that followed one another in a datagram.
//!
//! A publisher under load fills its datagrams with messages of few topics. What is the same for a whole batch
//! is looked up once: at an owner its route, its subscribers' links and its load counter; at a subscriber the
//! matching listeners. The packets leave an owner with the bytes that they arrived with, so a batch costs
//! each subscriber one copy of all of them. A session of another worker gets them through that worker. A
//! subscriber keeps them in one allocation, which its messages share.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::Micros;
use crate::engine::metrics::message_metrics::MessageMetrics;
use crate::engine::transport::copy_batch::timed_of;
use crate::engine::transport::links::Entry;
use crate::link::send::outbox::PacketRun;
use crate::load::Load;
use crate::load::latency::Sample;
use crate::load::topics::TopicSlot;
use crate::wire::{Body, Packets, PublishView, Section};

/// Two messages or more, one after the other; or a part of such a batch.
#[derive(Clone, Copy)]
pub struct PublishBatch<'a, 'b> {
    packets: Packets<'a, 'b>,
    /// The bytes of the packets. The first packet has all of its fields.
    pub bytes: &'a [u8],
}

/// What telemetry counts of a batch (see [`MessageMetrics`](crate::engine::metrics::message_metrics::MessageMetrics)).
#[derive(Default)]
pub(in crate::engine) struct BatchMetrics {
    pub(in crate::engine) topic_slot: TopicSlot,
    /// The bytes of all payloads.
    pub(in crate::engine) payload: u64,
    /// The timed messages, by their position in the batch.
    pub(in crate::engine) timed: SmallVec<[(u32, Arc<Sample>); 2]>,
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
    pub(in crate::engine) fn packet_runs(&self) -> impl Iterator<Item = PacketRun> + use<'a, 'b> {
        self.sections().map(|section| PacketRun {
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
    pub(in crate::engine) fn views(&self) -> impl Iterator<Item = PublishView<'a>> + use<'a, 'b> {
        self.packets.iter().filter_map(|packet| match packet.body {
            Body::Publish(publish) => Some(publish),
            _ => None,
        })
    }
}

impl BatchMetrics {
    /// Counts the messages of a batch as taken over. `cached`: the slot that their route remembers.
    pub(in crate::engine) fn of(
        batch: &PublishBatch<'_, '_>,
        now: Micros,
        cached: Option<&std::cell::Cell<TopicSlot>>,
        load: &mut Option<Box<Load>>,
    ) -> Self {
        let Some(load) = load else {
            return Self::default();
        };
        let topic_slot = load.topic_slot_of(batch.topic(), cached);
        let payload = batch.payload(0, batch.len() as u32);
        load.topics.count_in(topic_slot, batch.len() as u32, payload);
        let timed = load.latency.begin_among(now, batch.len() as u32).collect();
        Self { topic_slot, payload, timed }
    }

    /// The metrics of messages that another worker took over and counted.
    pub(in crate::engine) fn handed_over(
        batch: &PublishBatch<'_, '_>,
        timed: SmallVec<[(u32, Arc<Sample>); 2]>,
        load: &mut Option<Box<Load>>,
    ) -> Self {
        let Some(load) = load else {
            return Self::default();
        };
        let payload = batch.payload(0, batch.len() as u32);
        Self { topic_slot: load.topics.topic_slot(batch.topic()), payload, timed }
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
        (MessageMetrics::of_several(self.topic_slot, batch.payload(first, count), sample), timed)
    }

    /// The metrics of each message of the batch.
    pub(in crate::engine) fn metrics_of_each<'c>(
        &'c self,
        batch: &PublishBatch<'c, 'c>,
    ) -> impl Iterator<Item = MessageMetrics> + 'c {
        let mut timed = self.timed.iter().peekable();
        (0..).zip(batch.messages()).map(move |(position, (_, payload))| {
            let sample = timed.next_if(|(due, _)| *due == position).map(|(_, sample)| Arc::clone(sample));
            MessageMetrics::new(self.topic_slot, payload, sample)
        })
    }
}
