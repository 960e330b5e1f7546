//! Messages that came to a client together: one behind the other in a datagram, on one topic, of `QoS` 0, or of `QoS` 1 for a client that
//! takes over what it reads.
//!
//! They stay together in one piece of memory, with what is the same for all of them said once. Who can use them so takes them so
//! ([`Engine::take_inbox_items`](crate::engine::Engine::take_letters)); to all others they are the messages that they are.

use bytes::Bytes;
use smallvec::SmallVec;

use crate::engine::fragmentation::reassembly::Receipt;
use crate::engine::subscriber::unacknowledged::Deliveries;
use crate::engine::transport::event::Message;
use crate::engine::transport::publish_batch::PublishBatch;
use crate::link_id::LinkId;
use crate::wire::{self, PublishView, Span};

/// Two messages or more, or what is left of them.
#[derive(Clone, Debug)]
pub struct ReceivedBatch {
    /// The packets, and behind them the topic.
    bytes: Bytes,
    /// Where the topic begins.
    end: usize,
    extents: Vec<Extent>,
    /// Those before this one were taken.
    first: usize,
    /// What the others count for in a bounded queue.
    cost: usize,
    /// The listeners that they match.
    pub subscriptions: SmallVec<[u64; 2]>,
    /// Who published them behind their publisher, if they say nothing else but their payloads.
    pub origin: Option<u64>,
    qos: u8,
    /// The first one's delivery; the others' follow it. `None`: nothing is to be acknowledged.
    awaiting_acknowledgement: Option<Receipt>,
}

/// Where a message and its payload stand.
#[derive(Clone, Copy, Debug)]
struct Extent {
    field: Span,
    payload: Span,
    /// How many messages before it the one stands that it is like (§2.4); 0: it says all of itself.
    like: u32,
}

/// What waits for a client's application: a message by itself, or several that came together.
#[derive(Clone, Debug)]
pub enum InboxItem {
    Message(Message),
    ReceivedBatch(ReceivedBatch),
}

impl ReceivedBatch {
    /// The first messages of a run, as many as there is `room` for in bytes ([`Message::bytes`]); the last may go beyond it. `None`: that is
    /// none.
    pub fn of(batch: &PublishBatch<'_, '_>, subscriptions: SmallVec<[u64; 2]>, room: usize) -> Option<Self> {
        let mut used = 0;
        let mut extents: Vec<Extent> = Vec::with_capacity(batch.len());
        // What the last one says beside its payload that says all of itself.
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
                // A payload that is empty may stand anywhere.
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

    /// The same messages, to be handed up at this `QoS`, and to be acknowledged from this delivery on.
    pub fn awaiting_acknowledgement(self, qos: u8, first: Receipt) -> Self {
        Self { qos, awaiting_acknowledgement: Some(first), ..self }
    }

    /// What the first so many are to be acknowledged by.
    pub fn receipts(&self, count: usize) -> Option<Deliveries> {
        let (link, first) = self.awaiting_acknowledgement.filter(|_| count > 0)?;
        let first = first + self.first as u64;
        Some(Deliveries { link, first, last: first + count as u64 - 1 })
    }

    /// The link is gone: its deliveries come again.
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
        // It was checked when it came in.
        str::from_utf8(&self.bytes[self.end..]).unwrap_or_default()
    }

    /// Each message's payload.
    pub fn payloads(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.extents[self.first..].iter().map(|extent| &self.bytes[extent.payload.range()])
    }

    /// The payload of one, without a copy.
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

    /// The one that the next message, which has this place, is like; or itself.
    fn model(&self, extent: &Extent) -> &Extent {
        &self.extents[self.first - extent.like as usize]
    }

    /// What the next message counts for.
    fn cost_of(&self, extent: &Extent) -> usize {
        let Extent { field, payload, .. } = self.model(extent);
        Message::cost(field.range().len() - payload.range().len() + extent.payload.range().len())
    }

    /// The field `publish` of the message at this place, the next one.
    fn field(&self, extent: &Extent) -> Bytes {
        if extent.like == 0 {
            return self.bytes.slice(extent.field.range());
        }
        let model = &self.bytes[self.model(extent).field.range()];
        wire::field_like(model, extent.like.into(), &self.bytes[extent.payload.range()]).into()
    }

    /// What they count for in a bounded queue.
    pub fn bytes(&self) -> usize {
        self.cost
    }
}

impl InboxItem {
    /// How many messages it is.
    pub fn len(&self) -> usize {
        match self {
            Self::Message(_) => 1,
            Self::ReceivedBatch(received_batch) => received_batch.len(),
        }
    }

    /// Tells each payload.
    pub fn tell_payloads(&self, mut tell: impl FnMut(&[u8])) {
        match self {
            Self::Message(message) => {
                tell(message.whole.as_deref().unwrap_or_else(|| message.view().payload));
            }
            Self::ReceivedBatch(received_batch) => received_batch.payloads().for_each(tell),
        }
    }

    /// The message, if it is one by itself.
    pub fn alone(&self) -> Option<&Message> {
        match self {
            Self::Message(message) => Some(message),
            Self::ReceivedBatch(_) => None,
        }
    }

    /// What it counts for in a bounded queue.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Message(message) => message.bytes(),
            Self::ReceivedBatch(received_batch) => received_batch.bytes(),
        }
    }

    /// What is to be acknowledged once all of it is taken over, of several that came together.
    pub fn receipts(&self) -> Option<Deliveries> {
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
    /// For tests: nothing but payloads, which stand for the fields, too.
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
