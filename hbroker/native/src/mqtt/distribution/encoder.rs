//! Encodes a message once for each packet format, and appends these bytes to the output of each client with
//! that format. Only the packet id differs.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::Micros;
use crate::mqtt::codec::packets::Version;
use crate::mqtt::distribution::batch::MessageBatch;
use crate::mqtt::distribution::message::{Alias, Message, PacketFormat};
use crate::mqtt::io::output::Output;

/// A larger packet costs too much copying, and is written directly to each client.
const MOST_BYTES: usize = 16_384;
/// At most this many formats are cached. For clients with other formats the message is encoded each time.
const MOST_FORMATS: usize = 16;

/// The encodings of the current message or batch. Each worker has one encoder.
#[derive(Default)]
pub struct Encoder {
    current: Option<EncodedItem>,
    now: Micros,
    bytes: Vec<u8>,
    encodings: Vec<Encoding>,
}

/// The message or batch that the encodings are of.
enum EncodedItem {
    Message(Arc<Message>),
    MessageBatch(Arc<MessageBatch>),
}

struct Encoding {
    version: Version,
    qos: u8,
    retain: bool,
    identifiers: SmallVec<[u32; 2]>,
    range: Range<usize>,
    packet_id: usize,
}

impl Encoder {
    /// Appends a PUBLISH, as [`Message::put`] does.
    pub fn put(
        &mut self,
        out: &mut Output,
        now: Micros,
        message: &Arc<Message>,
        packet_format: &PacketFormat<'_>,
        packet_id: u16,
    ) {
        self.set_current(now, message);
        let known = self.encodings.iter().position(|encoding| encoding.is(packet_format));
        let is_common = packet_format.alias == Alias::None
            && !packet_format.dup
            && message.payload.len() < MOST_BYTES
            && (known.is_some() || self.encodings.len() < MOST_FORMATS);
        if !is_common {
            message.put_to(out, now, packet_format, packet_id);
            return;
        }
        let encoding = known.unwrap_or_else(|| self.encode(message, packet_format));
        let encoding = &self.encodings[encoding];
        let at = out.len() + encoding.packet_id;
        out.extend_from_slice(&self.bytes[encoding.range.clone()]);
        if packet_format.qos > 0 {
            out[at..at + 2].copy_from_slice(&packet_id.to_be_bytes());
        }
    }

    /// Appends a PUBLISH for each message of the batch, as [`MessageBatch::put`] does.
    pub fn put_batch(
        &mut self,
        out: &mut Output,
        batch: &Arc<MessageBatch>,
        packet_format: &PacketFormat<'_>,
    ) {
        let is_same =
            matches!(&self.current, Some(EncodedItem::MessageBatch(known)) if Arc::ptr_eq(known, batch));
        if !is_same {
            self.clear();
            self.current = Some(EncodedItem::MessageBatch(Arc::clone(batch)));
        }
        let known = self.encodings.iter().find(|encoding| encoding.is(packet_format));
        let is_common =
            packet_format.alias == Alias::None && (known.is_some() || self.encodings.len() < MOST_FORMATS);
        if !is_common {
            return batch.put(out, packet_format);
        }
        let range = known.map(|encoding| encoding.range.clone()).unwrap_or_else(|| {
            let start = self.bytes.len();
            batch.put(&mut self.bytes, packet_format);
            self.keep(packet_format, start, 0)
        });
        out.extend_from_slice(&self.bytes[range]);
    }

    /// Drops the current message, so that nothing keeps it alive between iterations.
    pub fn clear(&mut self) {
        self.current = None;
        self.bytes.clear();
        self.encodings.clear();
    }

    fn set_current(&mut self, now: Micros, message: &Arc<Message>) {
        let is_same =
            matches!(&self.current, Some(EncodedItem::Message(known)) if Arc::ptr_eq(known, message));
        if !is_same || (self.now != now && message.expires < Micros::MAX) {
            self.clear();
            self.current = Some(EncodedItem::Message(Arc::clone(message)));
            self.now = now;
        }
    }

    fn encode(&mut self, message: &Message, packet_format: &PacketFormat<'_>) -> usize {
        let start = self.bytes.len();
        let packet_id = message.put(&mut self.bytes, self.now, packet_format, 0);
        self.keep(packet_format, start, packet_id);
        self.encodings.len() - 1
    }

    /// Records the bytes from `start` on as the encoding for a format.
    fn keep(&mut self, packet_format: &PacketFormat<'_>, start: usize, packet_id: usize) -> Range<usize> {
        let range = start..self.bytes.len();
        self.encodings.push(Encoding {
            version: packet_format.version,
            qos: packet_format.qos,
            retain: packet_format.retain,
            identifiers: packet_format.identifiers.into(),
            range: range.clone(),
            packet_id,
        });
        range
    }
}

impl Encoding {
    /// Whether a packet of this format is the same. MQTT 3.1 and 3.1.1 have the same PUBLISH.
    fn is(&self, packet_format: &PacketFormat<'_>) -> bool {
        let is_v5 = |version| version == Version::V5;
        is_v5(self.version) == is_v5(packet_format.version)
            && (self.qos, self.retain) == (packet_format.qos, packet_format.retain)
            && (!is_v5(packet_format.version) || self.identifiers.as_slice() == packet_format.identifiers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet_format(version: Version, qos: u8, identifiers: &[u32]) -> PacketFormat<'_> {
        PacketFormat { version, qos, retain: false, dup: false, identifiers, alias: Alias::None }
    }

    #[test]
    fn every_client_gets_what_the_message_itself_would_write() {
        let mut encoder = Encoder::default();
        let mut message = Message::plain(1, "a/b", b"payload", 2);
        message.expires = 10_000_000;
        let message = Arc::new(message);
        let identifiers: [&[u32]; 3] = [&[], &[7], &[7, 300_000]];
        for now in [0, 0, 4_500_001] {
            for version in [Version::V31, Version::V311, Version::V5] {
                for (qos, identifiers) in (0..3).zip(identifiers) {
                    let packet_format = packet_format(version, qos, identifiers);
                    let (mut cached, mut direct) = (Output::default(), vec![9]);
                    cached.push(9);
                    encoder.put(&mut cached, now, &message, &packet_format, 513);
                    message.put(&mut direct, now, &packet_format, 513);
                    assert_eq!(*cached, direct);
                    assert_eq!(direct.len() - 1, message.packet_len(&packet_format));
                }
            }
        }
        assert_eq!(encoder.encodings.len(), 6, "3.1 and 3.1.1 share theirs");
        encoder.put(
            &mut Output::default(),
            0,
            &Arc::new(Message::plain(2, "a", b"", 0)),
            &packet_format(Version::V5, 0, &[]),
            0,
        );
        assert_eq!(encoder.encodings.len(), 1, "another message");
    }

    #[test]
    fn expiry_counts_down_and_is_never_zero_for_what_lives() {
        let mut message = Message::plain(1, "t", b"", 0);
        message.expires = 5_000_000;
        for (now, seconds) in [(0, 5), (1, 5), (1_000_000, 4), (4_999_999, 1)] {
            let mut out = Vec::new();
            message.put(&mut out, now, &packet_format(Version::V5, 0, &[]), 0);
            assert_eq!(out, [0x30, 9, 0, 1, b't', 5, 2, 0, 0, 0, seconds]);
        }
    }
}
