//! A batch of messages of the network: at `QoS` 0, with one topic, and without properties. All recipients
//! share one copy.
//!
//! A batch travels like one message: to each recipient in one item, and into its output in one call. Where
//! that is not possible, its messages are handled one by one: if a listener is on hold, an output has no
//! room, or a client is offline.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::engine::subscriber::batch::ReceivedBatch;
use crate::load::latency::Sample;
use crate::mqtt::codec::frame::{kind, put_varint, varint_len};
use crate::mqtt::distribution::message::{Message, PacketFormat};

/// See the module.
#[derive(Debug)]
pub struct MessageBatch {
    /// The common fields of the messages, as one message without a payload.
    common: Message,
    received_batch: ReceivedBatch,
    longest: usize,
    payload_bytes: usize,
    /// The messages that are timed, by their index in the batch.
    samples: SmallVec<[(u32, Arc<Sample>); 1]>,
}

impl MessageBatch {
    /// `topic`: the topic of the batch, shared with other messages.
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

    /// The bytes of all payloads.
    pub fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// The common fields of the messages, as one message.
    pub fn common(&self) -> &Message {
        &self.common
    }

    pub fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter().map(|(_, sample)| &**sample)
    }

    /// The messages, one by one.
    pub fn messages(&self) -> impl Iterator<Item = Arc<Message>> {
        (0..self.len()).map(|position| {
            let mut message = Message::bare(Arc::clone(self.topic()), self.received_batch.payload(position));
            let timed = self.samples.iter().find(|(timed, _)| *timed as usize == position);
            message.sample = timed.map(|(_, sample)| Arc::clone(sample));
            Arc::new(message)
        })
    }

    /// The size of the longest packet in this format. The whole batch takes at most `len` times that.
    pub fn longest_packet(&self, packet_format: &PacketFormat<'_>) -> usize {
        let remaining = self.common.remaining(packet_format) + self.longest;
        1 + varint_len(remaining) + remaining
    }

    /// Appends one PUBLISH for each message.
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
