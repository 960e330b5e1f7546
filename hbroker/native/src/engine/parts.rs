//! Makes a message into PUBLISH packets that fit a datagram (§7.5).

use std::hash::Hasher;

use bytes::Bytes;
use rustc_hash::FxHasher;

use crate::link::DATAGRAM_OVERHEAD;
use crate::wire::{self, FragmentView, PublishOut};

/// No part is made smaller than this, however long the topic.
const PART_MIN: usize = 256;

/// One packet's worth of a message.
#[derive(Clone, Debug)]
pub struct Part {
    pub topic: Box<str>,
    /// The field `publish`, ready to send.
    pub field: Bytes,
    pub qos: u8,
    /// The message id's sequence number: that of its first part.
    pub message: u64,
    /// This part's own.
    pub sequence: u64,
    /// How many parts the message has.
    pub parts: u32,
}

/// The chain of a publisher's messages on a topic: they arrive in order (§3.3).
pub fn chain_of(publisher: u64, topic: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write_u64(publisher);
    hasher.write(topic);
    hasher.finish()
}

/// Gives messages their ids and splits them.
pub struct Splitter {
    publisher: u64,
    next_sequence: u64,
    max_datagram: usize,
}

impl Splitter {
    pub fn new(publisher: u64, max_datagram: usize) -> Self {
        Self { publisher, next_sequence: 1, max_datagram }
    }

    /// Makes a message into its parts and gives it the next sequence numbers.
    pub fn split(&mut self, message: &PublishOut<'_>) -> Vec<Part> {
        let room = self.room(message);
        let count = u32::try_from(message.payload.len().div_ceil(room).max(1)).unwrap_or(u32::MAX);
        let first = self.next_sequence;
        self.next_sequence += u64::from(count);
        let part = |index: u32| {
            let start = index as usize * room;
            let payload = &message.payload[start..(start + room).min(message.payload.len())];
            let fragment =
                (count > 1).then_some(FragmentView { index, count, total: message.payload.len() as u64 });
            let sequence = first + u64::from(index);
            let publish = PublishOut { payload, publisher: self.publisher, sequence, fragment, ..*message };
            let mut field = Vec::with_capacity(payload.len() + message.topic.len() + DATAGRAM_OVERHEAD);
            wire::put_publish_field(&mut field, &publish);
            Part {
                topic: message.topic.into(),
                field: field.into(),
                qos: message.qos,
                message: first,
                sequence,
                parts: count,
            }
        };
        (0..count).map(part).collect()
    }

    /// Payload bytes that one part of this message takes.
    fn room(&self, message: &PublishOut<'_>) -> usize {
        let mut bare = Vec::new();
        wire::put_publish_field(&mut bare, &PublishOut { payload: &[], ..*message });
        self.max_datagram.saturating_sub(DATAGRAM_OVERHEAD + bare.len()).max(PART_MIN)
    }
}
