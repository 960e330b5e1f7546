//! Makes a message into PUBLISH packets that fit a datagram (§7.5).
//!
//! A message that fits one packet is encoded at once. A fragment of a larger message is encoded only when it
//! is about to be sent, from the payload that the application gave. The payload is kept if not all fragments
//! can be sent at once. So a message costs its payload once, however large it is.

use std::hash::Hasher;
use std::sync::Arc;

use bytes::Bytes;
use rustc_hash::FxHasher;

use crate::Micros;
use crate::engine::sessions::copy_blocks::CopyBlocks;
use crate::link::{DATAGRAM_OVERHEAD, MOST_BODY};
use crate::wire::{self, Delta, FragmentView, PublishOut};

/// No fragment is smaller than this, however long the topic is.
const MIN_FRAGMENT: usize = 256;
/// The most bytes that a fragment's sequence number, position and lengths take.
const POSITION_BYTES: usize = 64;

/// One packet of a message; or a batch of messages of one packet each, on one topic, with consecutive
/// sequence numbers.
#[derive(Clone, Debug)]
pub struct Fragment {
    pub topic: Arc<str>,
    /// The field `publish`, ready to send; of a batch, the fields end to end.
    pub field: Bytes,
    /// How many messages it has.
    pub count: u32,
    pub qos: u8,
    /// The sequence number in the message id, which is that of the first fragment. Of a batch, that of the
    /// first message.
    pub message: u64,
    /// The fragment's own sequence number; of a batch, that of the first message.
    pub sequence: u64,
    /// How many fragments the message has.
    pub fragments: u32,
    /// When the message expires.
    pub expires_at: Micros,
}

impl Fragment {
    /// `count` of its messages, from a position on.
    pub fn section(&self, position: u32, count: u32) -> Self {
        debug_assert!(position + count <= self.count);
        let start = end_of(&self.field, position);
        let end = if position + count == self.count {
            self.field.len()
        } else {
            start + end_of(&self.field[start..], count)
        };
        let (message, sequence) = (self.message + u64::from(position), self.sequence + u64::from(position));
        Self { field: self.field.slice(start..end), count, message, sequence, ..self.clone() }
    }

    /// Whether it may join a batch: a whole message of `QoS` 1 that does not expire. (A message of `QoS` 2
    /// may be too far ahead by itself.)
    pub fn may_join(&self) -> bool {
        self.qos == 1 && self.fragments == 1 && self.expires_at == Micros::MAX
    }

    /// The sequence number of its last message.
    pub fn last_sequence(&self) -> u64 {
        self.sequence + u64::from(self.count - 1)
    }
}

/// A message to be sent.
#[derive(Debug)]
pub enum Outgoing {
    Single(Fragment),
    LargeMessage(LargeMessage),
}

/// A message that has its sequence numbers.
#[derive(Debug)]
pub enum Split {
    Single(Fragment),
    LargeMessage(Fragments),
}

/// The fragments of a message that have not been made yet. Its payload is elsewhere.
#[derive(Debug)]
pub struct Fragments {
    topic: Arc<str>,
    /// A serialised `Publish` with the common fields of all fragments.
    common: Vec<u8>,
    qos: u8,
    first: u64,
    /// The payload bytes of each fragment but the last.
    room: usize,
    count: u32,
    next: u32,
    expires_at: Micros,
}

/// A fragmented message without the fragments that were made. Iterating makes the others.
#[derive(Debug)]
pub struct LargeMessage {
    fragments: Fragments,
    payload: Bytes,
}

/// The message fits no packet, however it is split, because its topic and properties are too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

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
    /// The message that is being made.
    field: Vec<u8>,
    copy_blocks: CopyBlocks,
}

impl Splitter {
    pub fn new(publisher: u64, max_datagram: usize) -> Self {
        let (field, copy_blocks) = (Vec::new(), CopyBlocks::default());
        Self { publisher, next_sequence: 1, max_datagram, field, copy_blocks }
    }

    /// Skips `count` sequence numbers.
    #[cfg(test)]
    pub fn skip(&mut self, count: u64) {
        self.next_sequence += count;
    }

    /// Replaces `field` by the field `publish` of a message that fits one packet. Returns its sequence
    /// number. `None`: the message has to be split.
    pub fn encode(&mut self, message: &PublishOut<'_>, field: &mut Vec<u8>) -> Option<u64> {
        let PublishOut { topic, payload, .. } = message;
        if payload.len() > self.max_datagram.max(MIN_FRAGMENT) {
            return None;
        }
        let sequence = self.next_sequence;
        field.clear();
        field.reserve(payload.len() + topic.len() + DATAGRAM_OVERHEAD);
        wire::put_publish_field(field, &PublishOut { publisher: self.publisher, sequence, ..*message });
        let is_small = field.len() + DATAGRAM_OVERHEAD <= self.max_datagram || payload.len() <= MIN_FRAGMENT;
        if !is_small || field.len() > MOST_BODY {
            return None;
        }
        self.next_sequence += 1;
        Some(sequence)
    }

    /// As `encode`, for a message on the topic of the one that `delta` was made from; makes the whole packet.
    pub fn encode_delta(&mut self, message: &PublishOut<'_>, delta: &mut Delta) -> Option<u64> {
        let sequence = self.next_sequence;
        if delta.repeat(message, sequence) {
            self.next_sequence += 1;
            return Some(sequence);
        }
        let mut field = std::mem::take(&mut self.field);
        let encoded = self.encode(message, &mut field);
        if encoded.is_some() {
            delta.cut(&PublishOut { publisher: self.publisher, sequence, ..*message }, &field);
        }
        self.field = field;
        encoded
    }

    /// Whether the next message can be sent as a delta of the previous one (§2.4).
    pub fn is_delta(&self, message: &PublishOut<'_>, delta: &Delta) -> bool {
        delta.is_delta(message, self.next_sequence)
    }

    /// Gives that message its sequence number.
    pub fn pass(&mut self, delta: &mut Delta) -> u64 {
        delta.pass();
        self.next_sequence += 1;
        self.next_sequence - 1
    }

    /// Appends a message's field to the gathered batch. False: the batch has to be taken first.
    pub fn gather(&mut self, field: &[u8]) -> bool {
        self.copy_blocks.gather(field)
    }

    /// The number of gathered bytes.
    pub fn gathered_bytes(&self) -> usize {
        self.copy_blocks.gathered_bytes()
    }

    /// Takes the gathered fields, end to end.
    pub fn take_pending(&mut self) -> Bytes {
        self.copy_blocks.take()
    }

    /// Gives a message the next sequence numbers: one, or as many as it has fragments.
    ///
    /// # Errors
    /// Its topic and properties leave no room for a payload.
    pub fn split(&mut self, topic: Arc<str>, message: &PublishOut<'_>) -> Result<Split, TooLarge> {
        let expires_at = expiry_of(message);
        let mut field = std::mem::take(&mut self.field);
        let encoded = self.encode(message, &mut field);
        let copy = encoded.map(|sequence| (sequence, self.copy_blocks.copy(&field)));
        self.field = field; // Its memory serves the next one.
        if let Some((sequence, field)) = copy {
            let qos = message.qos;
            let fragment = Fragment {
                topic,
                field,
                count: 1,
                qos,
                message: sequence,
                sequence,
                fragments: 1,
                expires_at,
            };
            return Ok(Split::Single(fragment));
        }
        let (first, qos) = (self.next_sequence, message.qos);
        let bare = PublishOut { publisher: self.publisher, payload: &[], sequence: 0, ..*message };
        self.field.clear();
        wire::put_publish_field(&mut self.field, &bare);
        if self.field.len() + POSITION_BYTES + MIN_FRAGMENT > MOST_BODY {
            return Err(TooLarge);
        }
        let room = self.max_datagram.saturating_sub(DATAGRAM_OVERHEAD + self.field.len()).max(MIN_FRAGMENT);
        let count = u32::try_from(message.payload.len().div_ceil(room)).map_err(|_| TooLarge)?;
        self.next_sequence += u64::from(count);
        let common = wire::message_of(&self.field);
        Ok(Split::LargeMessage(Fragments { topic, common, qos, first, room, count, next: 0, expires_at }))
    }

    /// The field `publish` of the next fragment of a message with this payload; `None`: there is none.
    pub fn next_field(&mut self, fragments: &mut Fragments, payload: &[u8]) -> Option<&[u8]> {
        self.field.clear();
        fragments.put_next(payload, &mut self.field).then_some(&self.field)
    }
}

impl Split {
    /// The sequence number in the message id.
    pub fn message(&self) -> u64 {
        match self {
            Self::Single(fragment) => fragment.message,
            Self::LargeMessage(fragments) => fragments.first,
        }
    }

    /// The message as it waits. `payload` gives its payload, if that has to be kept.
    pub fn keep(self, payload: impl FnOnce() -> Bytes) -> Outgoing {
        match self {
            Self::Single(fragment) => Outgoing::Single(fragment),
            Self::LargeMessage(fragments) => {
                Outgoing::LargeMessage(LargeMessage { fragments, payload: payload() })
            }
        }
    }
}

impl Outgoing {
    pub fn topic(&self) -> &Arc<str> {
        match self {
            Self::Single(fragment) => &fragment.topic,
            Self::LargeMessage(large) => &large.fragments.topic,
        }
    }

    /// The sequence number in the message id.
    pub fn message(&self) -> u64 {
        match self {
            Self::Single(fragment) => fragment.message,
            Self::LargeMessage(large) => large.fragments.first,
        }
    }

    /// The sequence number of the next fragment.
    pub fn sequence(&self) -> u64 {
        match self {
            Self::Single(fragment) => fragment.sequence,
            Self::LargeMessage(large) => large.fragments.first + u64::from(large.fragments.next),
        }
    }

    pub fn qos(&self) -> u8 {
        match self {
            Self::Single(fragment) => fragment.qos,
            Self::LargeMessage(large) => large.fragments.qos,
        }
    }

    /// The bytes that it keeps.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Single(fragment) => fragment.field.len(),
            Self::LargeMessage(large) => large.payload.len(),
        }
    }

    /// The greatest size of the next fragment.
    pub fn fragment_bytes(&self) -> usize {
        match self {
            Self::Single(fragment) => fragment.field.len(),
            Self::LargeMessage(large) => large.fragments.fragment_bytes(),
        }
    }

    /// When it expires; `Micros::MAX` once a fragment was sent, because the owner may have it.
    pub fn expires_at(&self) -> Micros {
        match self {
            Self::Single(fragment) => fragment.expires_at,
            Self::LargeMessage(large) if large.fragments.next == 0 => large.fragments.expires_at,
            Self::LargeMessage(_) => Micros::MAX,
        }
    }
}

impl Fragments {
    pub fn topic(&self) -> &Arc<str> {
        &self.topic
    }

    pub fn qos(&self) -> u8 {
        self.qos
    }

    /// The sequence number in the message id.
    pub fn message(&self) -> u64 {
        self.first
    }

    /// How many fragments the message has.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// When the message expires.
    pub fn expires_at(&self) -> Micros {
        self.expires_at
    }

    /// The greatest size of the next fragment.
    pub fn fragment_bytes(&self) -> usize {
        self.room + self.common.len() + POSITION_BYTES
    }

    pub fn is_exhausted(&self) -> bool {
        self.next == self.count
    }

    /// Makes the next fragment of a message with this payload.
    pub fn next(&mut self, payload: &[u8]) -> Option<Fragment> {
        let mut field = Vec::with_capacity(self.fragment_bytes());
        let sequence = self.first + u64::from(self.next);
        self.put_next(payload, &mut field).then(|| Fragment {
            topic: Arc::clone(&self.topic),
            field: field.into(),
            count: 1,
            qos: self.qos,
            message: self.first,
            sequence,
            fragments: self.count,
            expires_at: Micros::MAX,
        })
    }

    /// Appends the field `publish` of the next fragment; false: there is none.
    fn put_next(&mut self, payload: &[u8], field: &mut Vec<u8>) -> bool {
        if self.is_exhausted() {
            return false;
        }
        let start = self.next as usize * self.room;
        let fragment = &payload[start..(start + self.room).min(payload.len())];
        let position = FragmentView { index: self.next, count: self.count, total: payload.len() as u64 };
        wire::put_fragment_field(field, &self.common, fragment, self.first + u64::from(self.next), &position);
        self.next += 1;
        true
    }
}

impl LargeMessage {
    pub fn is_exhausted(&self) -> bool {
        self.fragments.is_exhausted()
    }
}

impl Iterator for LargeMessage {
    type Item = Fragment;

    fn next(&mut self) -> Option<Fragment> {
        self.fragments.next(&self.payload)
    }
}

/// The end of the first `count` fields in `fields`.
fn end_of(fields: &[u8], count: u32) -> usize {
    let (mut end, mut field): (_, &[u8]) = (0, &[]);
    for _ in 0..count {
        field = wire::first_field(&fields[end..], field);
        end += field.len();
    }
    end
}

/// When a message expires.
fn expiry_of(message: &PublishOut<'_>) -> Micros {
    const SECOND: Micros = 1_000_000;
    message
        .expiry_s
        .map_or(Micros::MAX, |expiry| message.published_at_us.saturating_add(Micros::from(expiry) * SECOND))
}
