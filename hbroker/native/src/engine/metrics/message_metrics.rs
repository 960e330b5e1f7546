//! What is counted of a message, for telemetry: when it is taken over, and when a copy is given to a link
//! (docs/telemetry.md).
//!
//! The [`MessageMetrics`] of a message name the counter of its topic. They are made when the message is taken
//! over, with the slot that the route remembers, and go with every copy. So the topic is not looked up again in
//! that interval. If they are out of date (the message waited, or another worker made them), they are renewed
//! from the message itself. With telemetry off they are empty, and cost one comparison.

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::Micros;
use crate::link::{Link, Queued};
use crate::load::Load;
use crate::load::latency::Sample;
use crate::load::spans::Traced;
use crate::load::topics::TopicSlot;
use crate::wire::{PublishView, publish_of};

/// How many timed messages a link keeps at most; further ones are not timed.
const MOST_TIMED: usize = 64;

/// Of one message: what the metrics count when a copy is sent.
#[derive(Clone, Debug, Default)]
pub struct MessageMetrics {
    topic_slot: TopicSlot,
    /// The size of its payload.
    bytes: u32,
    /// It is a fragment of a large message, and not the first (§7.5).
    is_later_fragment: bool,
    sample: Option<Arc<Sample>>,
}

impl MessageMetrics {
    /// For a message that was counted as taken over. It is timed if there is a `sample`.
    pub fn new(topic_slot: TopicSlot, payload: &[u8], sample: Option<Arc<Sample>>) -> Self {
        let bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        Self { topic_slot, bytes, is_later_fragment: false, sample }
    }

    /// For a message that was counted as taken over before, or at another node.
    pub fn of(publish: &PublishView<'_>) -> Self {
        let is_later_fragment = publish.fragment.is_some_and(|slots| slots.index > 0);
        Self { is_later_fragment, ..Self::new(TopicSlot::default(), publish.payload, None) }
    }

    /// Counts a message that is taken over. `cached`: the slot that its route remembers.
    pub fn arrives(
        load: &mut Option<Box<Load>>,
        now: Micros,
        publish: &PublishView<'_>,
        cached: Option<&Cell<TopicSlot>>,
    ) -> Self {
        let mut message_metrics = Self::of(publish);
        if let Some(load) = load {
            message_metrics.topic_slot = load.topic_slot_of(publish.topic, cached);
            load.topics.count_in(message_metrics.topic_slot, 1, publish.payload.len() as u64);
            if message_metrics.is_later_fragment {
                load.topics.note_later_in(message_metrics.topic_slot);
            }
            message_metrics.sample = load.latency.begin(now);
        }
        message_metrics
    }

    /// For a message that another worker took over and counted.
    pub fn handed_over(
        load: &mut Option<Box<Load>>,
        publish: &PublishView<'_>,
        sample: Option<Arc<Sample>>,
    ) -> Self {
        let topic_slot = load.as_mut().map(|load| load.topics.topic_slot(publish.topic));
        Self { topic_slot: topic_slot.unwrap_or_default(), sample, ..Self::of(publish) }
    }

    /// The message has spans. It is not timed then.
    pub fn trace(&mut self, traced: &Arc<Traced>) {
        self.sample = Some(Arc::new(Sample::traced(Arc::clone(traced))));
    }

    /// The sample that times the message.
    pub fn sample(&self) -> Option<&Arc<Sample>> {
        self.sample.as_ref()
    }

    /// For messages of one topic that were counted as taken over, with `bytes` of payload in total. `sample`:
    /// if it is a single message that is timed.
    pub fn of_several(topic_slot: TopicSlot, bytes: u64, sample: Option<Arc<Sample>>) -> Self {
        Self { topic_slot, bytes: u32::try_from(bytes).unwrap_or(u32::MAX), is_later_fragment: false, sample }
    }

    /// For one message of several. `field` is that message.
    pub fn of_one(&self, field: &[u8], sample: Option<Arc<Sample>>) -> Self {
        publish_of(field)
            .map_or_else(Self::default, |publish| Self::new(self.topic_slot, publish.payload, sample))
    }

    /// Counts a copy of each of `count` messages that were given to a link. `field` is the first message, and
    /// `packet` its packet.
    pub fn copies_leave(
        &self,
        load: &mut Option<Box<Load>>,
        count: u32,
        field: &[u8],
        timed: &mut Timed,
        packet: Queued,
    ) {
        if let Some(load) = load {
            let topic_slot = if load.topics.is_current(self.topic_slot) {
                self.topic_slot
            } else {
                topic_slot_of(load, field)
            };
            load.topics.count_out(topic_slot, count, self.bytes.into());
            if self.is_later_fragment {
                load.topics.note_later_out(topic_slot, count);
            }
        }
        if let Some(sample) = &self.sample {
            timed.add(packet, sample);
        }
    }

    /// Looks up the slot again, because another worker's table gave it.
    pub fn changes_hands(&mut self, load: &mut Option<Box<Load>>, field: &[u8]) {
        if let Some(load) = load {
            self.topic_slot = topic_slot_of(load, field);
        }
    }
}

/// Every field was checked when it was received, so there is a message in it.
fn topic_slot_of(load: &mut Load, field: &[u8]) -> TopicSlot {
    publish_of(field).map_or_else(TopicSlot::default, |publish| load.topics.topic_slot(publish.topic))
}

/// The timed messages on a link.
#[derive(Default)]
pub struct Timed(VecDeque<(Queued, Arc<Sample>)>);

impl Timed {
    pub fn add(&mut self, packet: Queued, sample: &Arc<Sample>) {
        if self.0.len() < MOST_TIMED && (!sample.is_over() || sample.spans().is_some()) {
            self.0.push_back((packet, Arc::clone(sample)));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes out the messages that have been sent. For each that was the first of its copies to be sent, the
    /// arrival time goes to `departed`; each that has spans goes there, too.
    pub fn take_departed(&mut self, link: &Link, departed: &mut Departed) {
        self.0.retain(|(packet, sample)| {
            let has_left = link.has_left(*packet);
            if has_left {
                departed.timed.extend(sample.end());
                departed.copies.extend(sample.spans().map(|traced| (Arc::clone(traced), link.peer())));
            }
            !has_left
        });
    }
}

/// The messages that have just been sent.
#[derive(Default)]
pub struct Departed {
    /// When those that are timed arrived.
    pub timed: Vec<Micros>,
    /// Copies of those that have spans, and to whom they were sent.
    pub copies: Vec<(Arc<Traced>, SocketAddr)>,
}
