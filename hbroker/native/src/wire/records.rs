//! Two records of a handover (§5.4) that the core reads and writes itself: messages that wait for sessions, and which messages were
//! seen. They cross the border as serialised messages, and the network within a TRANSFER.

use super::Malformed;
use super::emit::{
    put_bytes_unless_empty, put_enum, put_fixed64, put_message_unless_empty, put_number, put_present,
    put_varint,
};
use super::meant_for::MeantFor;
use super::reader::{MAX_DEPTH, Reader, elements};
use crate::schema::{queued_record, seen_record};

/// One more than the highest word of 64 numbers.
const WORDS_END: u64 = 1 << 58;

/// A message, or a part of one, that waits for a session (§7.8).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueuedRecord<'a> {
    pub session: u64,
    /// A serialised `Publish`, which was not looked into.
    pub publish: &'a [u8],
    /// The highest of the subscriptions that it matched; as on the wire, `u8::MAX` for whatever does not fit.
    pub qos: u8,
    /// As in a packet.
    pub meant_for: Option<MeantFor>,
    /// The shared group that it came for.
    pub group: &'a str,
    pub overflow: i32,
    /// It was given to the session's link.
    pub launched: bool,
}

impl<'a> QueuedRecord<'a> {
    /// Reads one.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (mut record, mut message) = (Self::default(), Reader::new(bytes, MAX_DEPTH));
        let (mut retained_for, mut shared_for) = (None, 0);
        while let Some(tag) = message.tag()? {
            match tag {
                queued_record::SESSION => record.session = message.fixed64()?,
                queued_record::PUBLISH => record.publish = message.bytes()?,
                queued_record::QOS => record.qos = u8::try_from(message.open_enum()?).unwrap_or(u8::MAX),
                queued_record::RETAINED_FOR => retained_for = Some(message.varint()?),
                queued_record::SHARED_FOR => shared_for = message.fixed64()?,
                queued_record::GROUP => record.group = message.text()?,
                queued_record::OVERFLOW => record.overflow = message.open_enum()?,
                queued_record::LAUNCHED => record.launched = message.boolean()?,
                _ => message.skip(tag)?,
            }
        }
        record.meant_for = MeantFor::of(retained_for, shared_for);
        Ok(record)
    }
}

/// A serialised `QueuedRecord`.
pub fn queued_record(record: &QueuedRecord<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(record.publish.len() + record.group.len() + 32);
    put_fixed64(&mut out, queued_record::SESSION, record.session);
    put_bytes_unless_empty(&mut out, queued_record::PUBLISH, record.publish);
    put_number(&mut out, queued_record::QOS, record.qos.into());
    put_present(&mut out, queued_record::RETAINED_FOR, record.meant_for.and_then(MeantFor::retained_for));
    put_bytes_unless_empty(&mut out, queued_record::GROUP, record.group.as_bytes());
    put_enum(&mut out, queued_record::OVERFLOW, record.overflow);
    put_number(&mut out, queued_record::LAUNCHED, record.launched.into());
    put_fixed64(&mut out, queued_record::SHARED_FOR, record.meant_for.map_or(0, MeantFor::shared_for));
    out
}

/// What is known of one publisher's numbers at QoS 2 (§7.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenRecord<'a> {
    pub publisher: u64,
    /// Every number below this word of 64 was seen.
    pub floor: u64,
    message: &'a [u8],
}

impl<'a> SeenRecord<'a> {
    /// Reads one. Its words are checked: they ascend, and each has a bit.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut record = Self { publisher: 0, floor: 0, message: bytes };
        let mut message = Reader::new(bytes, MAX_DEPTH);
        while let Some(tag) = message.tag()? {
            match tag {
                seen_record::PUBLISHER => record.publisher = message.fixed64()?,
                seen_record::FLOOR => record.floor = message.varint()?,
                seen_record::WORDS => message.varints()?,
                seen_record::WORDS_ELEMENT => message.varint().map(drop)?,
                _ => message.skip(tag)?,
            }
        }
        let values = elements(bytes, seen_record::WORDS, seen_record::WORDS_ELEMENT).count();
        let is_sound =
            values.is_multiple_of(2) && record.floor <= WORDS_END && record.words().count() == values / 2;
        is_sound.then_some(record).ok_or(Malformed)
    }

    /// (index, bits), ascending.
    pub fn words(&self) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        let mut values = elements(self.message, seen_record::WORDS, seen_record::WORDS_ELEMENT);
        let (mut last, mut is_first) = (self.floor, true);
        std::iter::from_fn(move || {
            let (step, bits) = (values.next()?, values.next()?);
            let index = last.checked_add(step).filter(|&index| index < WORDS_END)?;
            let ascends = std::mem::take(&mut is_first) || step > 0;
            last = index;
            (ascends && bits != 0).then_some((index, bits))
        })
    }
}

/// A serialised `SeenRecord`. `words`: (index, bits), ascending from the floor on.
pub fn seen_record(publisher: u64, floor: u64, words: &[(u64, u64)]) -> Vec<u8> {
    let mut out = Vec::new();
    put_fixed64(&mut out, seen_record::PUBLISHER, publisher);
    put_number(&mut out, seen_record::FLOOR, floor);
    put_message_unless_empty(&mut out, seen_record::WORDS, |out| {
        let mut last = floor;
        for &(index, bits) in words {
            put_varint(out, index - last);
            put_varint(out, bits);
            last = index;
        }
    });
    out
}
