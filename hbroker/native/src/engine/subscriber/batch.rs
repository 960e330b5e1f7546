//! Messages that a client received together: consecutive in a datagram, on one topic, of `QoS` 0, or of `QoS`
//! 1 for a client that takes messages over by reading them.
//!
//! They stay together in one allocation, with their common fields stored once. A reader that can use the
//! batch takes it as a whole ([`Engine::take_inbox_items`](crate::engine::Engine::take_inbox_items)); other
//! readers get single messages.

use bytes::Bytes;
use smallvec::SmallVec;

use crate::engine::fragmentation::reassembly::Receipt;
use crate::engine::transport::event::Message;
use crate::engine::transport::publish_batch::PublishBatch;
use crate::link_id::LinkId;
use crate::wire::{self, PublishView, Span};

/// Consecutive deliveries of a link, to be acknowledged together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryRange {
    pub link: LinkId,
    pub first: u64,
    pub last: u64,
}

impl From<Receipt> for DeliveryRange {
    fn from((link, delivery): Receipt) -> Self {
        Self { link, first: delivery, last: delivery }
    }
}

/// Two messages or more, or the rest of them.
#[derive(Clone, Debug)]
pub struct ReceivedBatch {
    /// The packets, followed by the topic.
    bytes: Bytes,
    /// Where the topic begins.
    end: usize,
    extents: Vec<Extent>,
    /// The messages before this one have been taken.
    first: usize,
    /// The size of the others in a bounded queue.
    cost: usize,
    /// The listeners that they match.
    pub subscriptions: SmallVec<[u64; 2]>,
    /// The client behind their publisher, if their packets have no other fields than their payloads. `None`:
    /// they have.
    pub origin: Option<u64>,
    qos: u8,
    /// The delivery of the first message; those of the others follow it. `None`: none has to be acknowledged.
    awaiting_acknowledgement: Option<Receipt>,
}

/// Where a message and its payload are.
#[derive(Clone, Copy, Debug)]
struct Extent {
    field: Span,
    payload: Span,
    /// How many messages before this one the message is whose fields it repeats (§2.4); 0: it has all of its
    /// fields.
    like: u32,
}

/// An item in a client's inbox: a single message, or several that were received together.
#[derive(Clone, Debug)]
pub enum InboxItem {
    Message(Message),
    ReceivedBatch(ReceivedBatch),
}

impl ReceivedBatch {
    /// The first messages of a batch, as many as there is `room` for in bytes ([`Message::bytes`]); the last
    /// may exceed it. `None`: there is room for none.
    pub fn of(batch: &PublishBatch<'_, '_>, subscriptions: SmallVec<[u64; 2]>, room: usize) -> Option<Self> {
        let mut used = 0;
        let mut extents: Vec<Extent> = Vec::with_capacity(batch.len());
        // How far back the last message with all of its fields is, and its size without its payload.
        let (mut like, mut overhead) = (0, 0);
        for section in batch.sections() {
            for (field, payload) in section.messages() {
                if used >= room {
                    break;
                }
                if section.is_delta() {
                    like += 1;
                } else {
                    (like, overhead) = (0, field.len() - payload.len());
                }
                used += Message::cost(overhead + payload.len());
                // An empty payload has no address that counts.
                let payload =
                    if payload.is_empty() { Span::default() } else { Span::of(payload, batch.bytes) };
                extents.push(Extent { field: Span::of(field, batch.bytes), payload, like });
            }
        }
        let end = extents.last()?.field.range().end;
        let origin = batch.head()?.origin;
        let says_no_more = |publish: &PublishView<'_>| publish.origin == origin && !publish.has_properties;
        let is_bare = batch.heads(extents.len()).all(says_no_more);
        let bytes = [&batch.bytes[..end], batch.topic().as_bytes()].concat();
        Some(Self {
            bytes: Bytes::from(bytes),
            end,
            extents,
            first: 0,
            cost: used,
            subscriptions,
            origin: is_bare.then_some(origin),
            qos: 0,
            awaiting_acknowledgement: None,
        })
    }

    /// The same messages, for the application at this `QoS`, to be acknowledged from this delivery on.
    pub fn awaiting_acknowledgement(self, qos: u8, first: Receipt) -> Self {
        Self { qos, awaiting_acknowledgement: Some(first), ..self }
    }

    /// The deliveries of the first `count` messages, if they have to be acknowledged.
    pub fn receipts(&self, count: usize) -> Option<DeliveryRange> {
        let (link, first) = self.awaiting_acknowledgement.filter(|_| count > 0)?;
        let first = first + self.first as u64;
        Some(DeliveryRange { link, first, last: first + count as u64 - 1 })
    }

    /// The link has ended: its deliveries will be retransmitted.
    pub fn forget_link(&mut self, link: LinkId) {
        self.awaiting_acknowledgement = self.awaiting_acknowledgement.filter(|(from, _)| *from != link);
    }

    pub fn len(&self) -> usize {
        self.extents.len() - self.first
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn topic(&self) -> &str {
        // The topic was checked when it was received.
        str::from_utf8(&self.bytes[self.end..]).unwrap_or_default()
    }

    /// The payload of each message.
    pub fn payloads(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.extents[self.first..].iter().map(|extent| &self.bytes[extent.payload.range()])
    }

    /// The payload of one message, without a copy.
    pub fn payload(&self, index: usize) -> Bytes {
        self.bytes.slice(self.extents[self.first + index].payload.range())
    }

    /// Takes the next message out.
    pub fn take_first(&mut self) -> Option<Message> {
        let extent = self.extents.get(self.first)?;
        let publish = self.field(extent);
        self.cost -= self.cost_of(extent);
        self.first += 1;
        Some(Message {
            publish,
            whole: None,
            meant_for: None,
            retain: false,
            qos: self.qos,
            subscriptions: self.subscriptions.clone(),
            awaiting_acknowledgement: None,
        })
    }

    /// The message whose fields the next message repeats, or the next message itself.
    fn model(&self, extent: &Extent) -> &Extent {
        &self.extents[self.first - extent.like as usize]
    }

    /// The size that the next message counts for.
    fn cost_of(&self, extent: &Extent) -> usize {
        let Extent { field, payload, .. } = self.model(extent);
        Message::cost(field.range().len() - payload.range().len() + extent.payload.range().len())
    }

    /// The field `publish` of the next message.
    fn field(&self, extent: &Extent) -> Bytes {
        if extent.like == 0 {
            return self.bytes.slice(extent.field.range());
        }
        let model = &self.bytes[self.model(extent).field.range()];
        wire::field_like(model, extent.like.into(), &self.bytes[extent.payload.range()]).into()
    }

    /// The size that they count for in a bounded queue.
    pub fn bytes(&self) -> usize {
        self.cost
    }
}

impl InboxItem {
    /// How many messages it has.
    pub fn len(&self) -> usize {
        match self {
            Self::Message(_) => 1,
            Self::ReceivedBatch(received_batch) => received_batch.len(),
        }
    }

    /// Calls `tell` with each payload.
    pub fn tell_payloads(&self, mut tell: impl FnMut(&[u8])) {
        match self {
            Self::Message(message) => {
                tell(message.whole.as_deref().unwrap_or_else(|| message.view().payload));
            }
            Self::ReceivedBatch(received_batch) => received_batch.payloads().for_each(tell),
        }
    }

    /// The message, if it is a single one.
    pub fn alone(&self) -> Option<&Message> {
        match self {
            Self::Message(message) => Some(message),
            Self::ReceivedBatch(_) => None,
        }
    }

    /// The size that it counts for in a bounded queue.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Message(message) => message.bytes(),
            Self::ReceivedBatch(received_batch) => received_batch.bytes(),
        }
    }

    /// For a batch: the deliveries to acknowledge once all of it is taken over.
    pub fn receipts(&self) -> Option<DeliveryRange> {
        match self {
            Self::Message(_) => None,
            Self::ReceivedBatch(received_batch) => received_batch.receipts(received_batch.len()),
        }
    }

    /// Its messages, one by one.
    pub fn into_messages(self) -> impl Iterator<Item = Message> {
        let (alone, mut received_batch) = match self {
            Self::Message(message) => (Some(message), None),
            Self::ReceivedBatch(received_batch) => (None, Some(received_batch)),
        };
        alone.into_iter().chain(std::iter::from_fn(move || received_batch.as_mut()?.take_first()))
    }
}

#[cfg(test)]
impl ReceivedBatch {
    /// For tests: messages that consist of payloads alone.
    pub fn plain(topic: &str, payloads: &[&[u8]]) -> Self {
        let extents = payloads.iter().scan(0, |end, payload| {
            *end += payload.len();
            let span = Span::new(*end - payload.len(), *end);
            Some(Extent { field: span, payload: span, like: 0 })
        });
        let bytes = payloads.concat();
        let (extents, end) = (extents.collect(), bytes.len());
        let bytes = Bytes::from([&bytes, topic.as_bytes()].concat());
        let (subscriptions, origin) = (SmallVec::new(), Some(0));
        let cost = payloads.iter().map(|payload| Message::cost(payload.len())).sum();
        Self {
            bytes,
            end,
            extents,
            first: 0,
            cost,
            subscriptions,
            origin,
            qos: 0,
            awaiting_acknowledgement: None,
        }
    }
}
