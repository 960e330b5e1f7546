//! Messages that came to a client together: one behind the other in a datagram, on one topic, of `QoS` 0, or of `QoS` 1 for a client that
//! takes over what it reads.
//!
//! They stay together in one piece of memory, with what is the same for all of them said once. Who can use them so takes them so
//! ([`Engine::take_letters`](crate::engine::Engine::take_letters)); to all others they are the messages that they are.

use bytes::Bytes;
use smallvec::SmallVec;

use crate::engine::fragmentation::reassembly::Receipt;
use crate::engine::subscriber::unacknowledged::Deliveries;
use crate::engine::transport::event::Message;
use crate::engine::transport::runs::Run;
use crate::link_id::LinkId;
use crate::wire::{self, PublishView, Span};

/// Two messages or more, or what is left of them.
#[derive(Clone, Debug)]
pub struct Bunch {
    /// The packets, and behind them the topic.
    bytes: Bytes,
    /// Where the topic begins.
    end: usize,
    places: Vec<Place>,
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
    owed: Option<Receipt>,
}

/// Where a message and its payload stand.
#[derive(Clone, Copy, Debug)]
struct Place {
    field: Span,
    payload: Span,
    /// How many messages before it the one stands that it is like (§2.4); 0: it says all of itself.
    like: u32,
}

/// What waits for a client's application: a message by itself, or several that came together.
#[derive(Clone, Debug)]
pub enum Letter {
    Message(Message),
    Bunch(Bunch),
}

impl Bunch {
    /// The first messages of a run, as many as there is `room` for in bytes ([`Message::bytes`]); the last may go beyond it. `None`: that is
    /// none.
    pub fn of(run: &Run<'_, '_>, subscriptions: SmallVec<[u64; 2]>, room: usize) -> Option<Self> {
        let mut used = 0;
        let mut places: Vec<Place> = Vec::with_capacity(run.len());
        // What the last one says beside its payload that says all of itself.
        let (mut like, mut said) = (0, 0);
        for section in run.sections() {
            for (field, payload) in section.messages() {
                if used >= room {
                    break;
                }
                if section.is_again() {
                    like += 1;
                } else {
                    (like, said) = (0, field.len() - payload.len());
                }
                used += Message::cost(said + payload.len());
                // A payload that is empty may stand anywhere.
                let payload = if payload.is_empty() { Span::default() } else { Span::of(payload, run.bytes) };
                places.push(Place { field: Span::of(field, run.bytes), payload, like });
            }
        }
        let end = places.last()?.field.range().end;
        let origin = run.shape()?.origin;
        let says_no_more = |publish: &PublishView<'_>| publish.origin == origin && !publish.has_properties;
        let is_bare = run.shapes(places.len()).all(says_no_more);
        let bytes = [&run.bytes[..end], run.topic().as_bytes()].concat();
        Some(Self {
            bytes: Bytes::from(bytes),
            end,
            places,
            first: 0,
            cost: used,
            subscriptions,
            origin: is_bare.then_some(origin),
            qos: 0,
            owed: None,
        })
    }

    /// The same messages, to be handed up at this `QoS`, and to be acknowledged from this delivery on.
    pub fn owed(self, qos: u8, first: Receipt) -> Self {
        Self { qos, owed: Some(first), ..self }
    }

    /// What the first so many are to be acknowledged by.
    pub fn receipts(&self, count: usize) -> Option<Deliveries> {
        let (link, first) = self.owed.filter(|_| count > 0)?;
        let first = first + self.first as u64;
        Some(Deliveries { link, first, last: first + count as u64 - 1 })
    }

    /// The link is gone: its deliveries come again.
    pub fn forget_link(&mut self, link: LinkId) {
        self.owed = self.owed.filter(|(from, _)| *from != link);
    }

    pub fn len(&self) -> usize {
        self.places.len() - self.first
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
        self.places[self.first..].iter().map(|place| &self.bytes[place.payload.range()])
    }

    /// The payload of one, without a copy.
    pub fn payload(&self, index: usize) -> Bytes {
        self.bytes.slice(self.places[self.first + index].payload.range())
    }

    /// Takes the next message out.
    pub fn take_first(&mut self) -> Option<Message> {
        let place = self.places.get(self.first)?;
        let publish = self.field(place);
        self.cost -= self.cost_of(place);
        self.first += 1;
        Some(Message {
            publish,
            whole: None,
            meant_for: None,
            retain: false,
            qos: self.qos,
            subscriptions: self.subscriptions.clone(),
            owed: None,
        })
    }

    /// The one that the next message, which has this place, is like; or itself.
    fn model(&self, place: &Place) -> &Place {
        &self.places[self.first - place.like as usize]
    }

    /// What the next message counts for.
    fn cost_of(&self, place: &Place) -> usize {
        let Place { field, payload, .. } = self.model(place);
        Message::cost(field.range().len() - payload.range().len() + place.payload.range().len())
    }

    /// The field `publish` of the message at this place, the next one.
    fn field(&self, place: &Place) -> Bytes {
        if place.like == 0 {
            return self.bytes.slice(place.field.range());
        }
        let model = &self.bytes[self.model(place).field.range()];
        wire::field_like(model, place.like.into(), &self.bytes[place.payload.range()]).into()
    }

    /// What they count for in a bounded queue.
    pub fn bytes(&self) -> usize {
        self.cost
    }
}

impl Letter {
    /// How many messages it is.
    pub fn len(&self) -> usize {
        match self {
            Self::Message(_) => 1,
            Self::Bunch(bunch) => bunch.len(),
        }
    }

    /// Tells each payload.
    pub fn tell_payloads(&self, mut tell: impl FnMut(&[u8])) {
        match self {
            Self::Message(message) => {
                tell(message.whole.as_deref().unwrap_or_else(|| message.view().payload));
            }
            Self::Bunch(bunch) => bunch.payloads().for_each(tell),
        }
    }

    /// The message, if it is one by itself.
    pub fn alone(&self) -> Option<&Message> {
        match self {
            Self::Message(message) => Some(message),
            Self::Bunch(_) => None,
        }
    }

    /// What it counts for in a bounded queue.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Message(message) => message.bytes(),
            Self::Bunch(bunch) => bunch.bytes(),
        }
    }

    /// What is to be acknowledged once all of it is taken over, of several that came together.
    pub fn receipts(&self) -> Option<Deliveries> {
        match self {
            Self::Message(_) => None,
            Self::Bunch(bunch) => bunch.receipts(bunch.len()),
        }
    }

    /// Its messages, one by one.
    pub fn into_messages(self) -> impl Iterator<Item = Message> {
        let (alone, mut bunch) = match self {
            Self::Message(message) => (Some(message), None),
            Self::Bunch(bunch) => (None, Some(bunch)),
        };
        alone.into_iter().chain(std::iter::from_fn(move || bunch.as_mut()?.take_first()))
    }
}

#[cfg(test)]
impl Bunch {
    /// For tests: nothing but payloads, which stand for the fields, too.
    pub fn plain(topic: &str, payloads: &[&[u8]]) -> Self {
        let places = payloads.iter().scan(0, |end, payload| {
            *end += payload.len();
            let span = Span::new(*end - payload.len(), *end);
            Some(Place { field: span, payload: span, like: 0 })
        });
        let bytes = payloads.concat();
        let (places, end) = (places.collect(), bytes.len());
        let bytes = Bytes::from([&bytes, topic.as_bytes()].concat());
        let (subscriptions, origin) = (SmallVec::new(), Some(0));
        let cost = payloads.iter().map(|payload| Message::cost(payload.len())).sum();
        Self { bytes, end, places, first: 0, cost, subscriptions, origin, qos: 0, owed: None }
    }
}
