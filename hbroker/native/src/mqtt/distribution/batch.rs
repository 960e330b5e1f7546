//! Messages of the network at `QoS` 0 that came together, on one topic, and say nothing but their payloads: one copy, whoever gets them.
//!
//! They go the way of one message: to each recipient in one piece, and into its output in one go. Where that cannot be (a listener on hold,
//! an output without room, a client that is away) they are the messages that they are, one by one.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::engine::subscriber::batch::ReceivedBatch;
use crate::load::latency::Sample;
use crate::mqtt::codec::frame::{kind, put_varint, varint_len};
use crate::mqtt::distribution::message::{Message, PacketFormat};

/// See the module.
#[derive(Debug)]
pub struct MessageBatch {
    /// What they have in common: one of them without its payload.
    common: Message,
    received_batch: ReceivedBatch,
    longest: usize,
    payload_bytes: usize,
    /// Those that are timed, by their place.
    samples: SmallVec<[(u32, Arc<Sample>); 1]>,
}

impl MessageBatch {
    /// `topic`: the bunch's, to be kept.
    pub fn new(
        topic: Arc<str>,
        received_batch: ReceivedBatch,
        samples: impl Iterator<Item = (u32, Arc<Sample>)>,
    ) -> Self {
        Self {
            longest: received_batch.payloads().map(<[u8]>::len).max().unwrap_or(0),
            payload_bytes: received_batch.payloads().map(<[u8]>::len).sum(),
            common: Message::bare(topic, bytes::Bytes::new()),
            received_batch,
            samples: samples.collect(),
        }
    }

    pub fn topic(&self) -> &Arc<str> {
        &self.common.topic
    }

    pub fn len(&self) -> usize {
        self.received_batch.len()
    }

    /// Bytes of all payloads.
    pub fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// What they have in common, as a message.
    pub fn common(&self) -> &Message {
        &self.common
    }

    pub fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter().map(|(_, sample)| &**sample)
    }

    /// They, one by one.
    pub fn messages(&self) -> impl Iterator<Item = Arc<Message>> {
        (0..self.len()).map(|position| {
            let mut message = Message::bare(Arc::clone(self.topic()), self.received_batch.payload(position));
            let timed = self.samples.iter().find(|(timed, _)| *timed as usize == position);
            message.sample = timed.map(|(_, sample)| Arc::clone(sample));
            Arc::new(message)
        })
    }

    /// The longest packet in this shape; all of them take no more than so many times that.
    pub fn longest_packet(&self, packet_format: &PacketFormat<'_>) -> usize {
        let remaining = self.common.remaining(packet_format) + self.longest;
        1 + varint_len(remaining) + remaining
    }

    /// Appends PUBLISH for each.
    pub fn put(&self, out: &mut Vec<u8>, packet_format: &PacketFormat<'_>) {
        let mut head = Vec::with_capacity(64);
        self.common.put_variable(&mut head, 0, packet_format, 0);
        let first = kind::PUBLISH << 4 | u8::from(packet_format.retain);
        out.reserve(self.len() * (5 + head.len()) + self.payload_bytes);
        for payload in self.received_batch.payloads() {
            out.push(first);
            put_varint(out, head.len() + payload.len());
            out.extend_from_slice(&head);
            out.extend_from_slice(payload);
        }
    }
}
