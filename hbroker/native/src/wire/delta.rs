//! Writes a message that is like the one before it. It is the counterpart of `layout`.
//!
//! The messages of a sensor differ in the payload, the sequence number and the time. All other bytes are
//! kept.

use std::ops::Range;

use super::emit::{PublishOut, put_packet, varint_len};
use super::publish::MOST_SAID;

/// The size of the field `origin`, whose tag has two bytes.
const ORIGIN_BYTES: usize = 2 + size_of::<u64>();

/// A packet with one message, from which the next one is built.
#[derive(Debug, Default)]
pub struct Delta {
    packet: Vec<u8>,
    /// The offset of the message's field `publish`.
    field: usize,
    qos: u8,
    /// The position of the payload; empty: no message can be built from this one.
    payload: Range<usize>,
    sequence: Range<usize>,
    published_at: Range<usize>,
    last: u64,
    last_at_us: u64,
    origin: u64,
}

impl Delta {
    /// The whole field `packets` of a datagram at `QoS` 0, without a delivery number.
    pub fn packet(&self) -> &[u8] {
        &self.packet
    }

    /// The field `publish` in it.
    pub fn field(&self) -> &[u8] {
        &self.packet[self.field..]
    }

    /// Builds the packet anew. `field`: the output of `put_publish_field` for the message.
    pub fn cut(&mut self, message: &PublishOut<'_>, field: &[u8]) {
        self.packet.clear();
        put_packet(&mut self.packet, 0, 0, None, field);
        self.field = self.packet.len() - field.len();
        (self.qos, self.last, self.last_at_us) = (message.qos, message.sequence, message.published_at_us);
        self.payload = 0..0;
        if is_plain(message) {
            // Counted from the end, where only the origin follows the time. Each other field has a tag of one
            // byte.
            let origin = if message.origin == 0 { 0 } else { ORIGIN_BYTES };
            self.origin = message.origin;
            self.published_at = ending_at(self.packet.len() - origin, varint_len(message.published_at_us));
            let qos = if message.qos == 0 { 0 } else { 1 + varint_len(message.qos.into()) };
            self.sequence = ending_at(self.published_at.start - 1 - qos, varint_len(message.sequence));
            let publisher = if message.publisher == 0 { 0 } else { 1 + size_of::<u64>() };
            self.payload = ending_at(self.sequence.start - 1 - publisher, message.payload.len());
        }
    }

    /// Whether the next message of the same publisher and topic can be sent as a delta of the last one
    /// (§2.4).
    pub fn is_delta(&self, message: &PublishOut<'_>, sequence: u64) -> bool {
        let is_short = self.packet.len() - self.field - self.payload.len() <= MOST_SAID;
        let is_next = is_short && message.published_at_us == self.last_at_us && sequence == self.last + 1;
        is_next
            && message.origin == self.origin
            && (message.qos, self.qos) == (0, 0)
            && !self.payload.is_empty()
            && is_plain(message)
    }

    /// The next message was sent as a delta.
    pub fn pass(&mut self) {
        self.last += 1;
    }

    /// Changes the packet into that of the next message of the same publisher and topic; false: it must be
    /// built anew.
    pub fn repeat(&mut self, message: &PublishOut<'_>, sequence: u64) -> bool {
        let is_like = is_plain(message)
            && (message.qos, message.origin) == (self.qos, self.origin)
            && message.payload.len() == self.payload.len()
            && sequence == self.last + 1
            && varint_len(sequence) == self.sequence.len()
            && varint_len(message.published_at_us) == self.published_at.len();
        if !is_like {
            return false;
        }
        self.last = sequence;
        write_varint(&mut self.packet[self.sequence.clone()], sequence);
        self.packet[self.payload.clone()].copy_from_slice(message.payload);
        if message.published_at_us != self.last_at_us {
            self.last_at_us = message.published_at_us;
            write_varint(&mut self.packet[self.published_at.clone()], self.last_at_us);
        }
        true
    }
}

/// Overwrites a varint with one of the same length.
fn write_varint(position: &mut [u8], mut number: u64) {
    let [bytes @ .., last] = position else {
        return;
    };
    for byte in bytes {
        *byte = number as u8 | 0x80;
        number >>= 7;
    }
    *last = number as u8;
}

/// Whether it has a payload and a time, and no optional fields except perhaps an origin.
fn is_plain(message: &PublishOut<'_>) -> bool {
    message.published_at_us > 0
        && !(message.payload.is_empty() || message.retain || message.ack_queued)
        && message.expiry_s.is_none()
        && message.fragment.is_none()
        && message.payload_format.is_none()
        && message.content_type.is_empty()
        && message.response_topic.is_empty()
        && message.correlation_data.is_empty()
        && message.user_properties.is_empty()
}

fn ending_at(end: usize, length: usize) -> Range<usize> {
    end - length..end
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::wire::{Body, PacketView, put_publish_field};

    fn fresh(message: &PublishOut<'_>) -> Vec<u8> {
        let (mut field, mut packet) = (Vec::new(), Vec::new());
        put_publish_field(&mut field, message);
        put_packet(&mut packet, 0, 0, None, &field);
        packet
    }

    #[test]
    fn a_message_made_from_the_one_before_is_the_same_as_one_made_anew() {
        let mut repeated = 0;
        for seed in 0..300 {
            let mut random = SmallRng::seed_from_u64(seed);
            let mut delta = Delta::default();
            let (publisher, mut sequence) = (random.random_range(0..3), random.random_range(1..20_000));
            let mut published_at_us = random.random_range(0..3) * (1 << 20);
            for _ in 0..300 {
                sequence += if random.random_bool(0.95) { 1 } else { random.random_range(0..200) };
                published_at_us += if random.random_bool(0.5) { 0 } else { random.random_range(0..1 << 14) };
                let origin = u64::from(seed % 4 == 1) * 7;
                let rare = |random: &mut SmallRng| random.random_bool(0.01);
                let payload =
                    vec![random.random(); if rare(&mut random) { 0 } else { 100 * (seed as usize % 3) }];
                let message = PublishOut {
                    topic: "home/kitchen/oven",
                    payload: &payload,
                    publisher,
                    sequence,
                    published_at_us,
                    qos: if rare(&mut random) { random.random_range(0..3) } else { (seed % 3) as u8 },
                    retain: rare(&mut random),
                    expiry_s: rare(&mut random).then_some(0),
                    content_type: if rare(&mut random) { "text" } else { "" },
                    payload_format: rare(&mut random).then_some(0),
                    response_topic: if rare(&mut random) { "home" } else { "" },
                    correlation_data: if rare(&mut random) { b"7" } else { b"" },
                    origin: origin + u64::from(rare(&mut random)),
                    ..PublishOut::default()
                };
                if delta.repeat(&message, sequence) {
                    repeated += 1;
                } else {
                    let mut field = Vec::new();
                    put_publish_field(&mut field, &message);
                    delta.cut(&message, &field);
                }
                let expected = fresh(&message);
                assert_eq!(delta.packet(), expected, "seed {seed}");
                assert!(expected.ends_with(delta.field()));
                assert!(PacketView::from_raw(delta.field()).is_ok_and(|packet| match packet.body {
                    Body::Publish(publish) => publish.only_field() == delta.field(),
                    _ => false,
                }));
            }
        }
        assert!(repeated > 30_000, "{repeated}");
    }
}
