//! The records of a handover (§5.4) that the core reads and writes itself: queued messages, copies that have
//! left their queue since, seen messages, and choices for shared groups. They pass through the native API in a serialised TRANSFER, as
//! they do through the network.

use super::Malformed;
use super::emit::{
    put_bytes, put_bytes_unless_empty, put_enum, put_fixed64, put_message_unless_empty, put_number,
    put_present, put_varint,
};
use super::fields::MeantFor;
use super::reader::{MAX_DEPTH, MOST_VARINT, Reader, elements};
use crate::schema::{choice_record, gone_record, queued_record, seen_record, transfer};

/// One more than the highest word of 64 numbers.
const WORDS_END: u64 = 1 << 58;

/// A message, or a fragment of one, that is queued for a session (§7.8).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueuedRecord<'a> {
    pub session: u64,
    /// A serialised `Publish`, not parsed.
    pub publish: &'a [u8],
    /// The highest QoS of the subscriptions that it matched, as encoded; `u8::MAX` for a value that does not
    /// fit.
    pub qos: u8,
    /// As in a packet.
    pub meant_for: Option<MeantFor>,
    /// The shared group that it is for.
    pub group: &'a str,
    pub overflow: i32,
    /// It was passed to the session's link.
    pub launched: bool,
    /// The source's queue, and its number there; 0: none.
    pub queue: u64,
    pub number: u64,
}

impl<'a> QueuedRecord<'a> {
    /// Parses a record.
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
                queued_record::QUEUE => record.queue = message.varint()?,
                queued_record::NUMBER => record.number = message.varint()?,
                _ => message.skip(tag)?,
            }
        }
        record.meant_for = MeantFor::of(retained_for, shared_for);
        Ok(record)
    }
}

/// A serialised `QueuedRecord`.
pub fn queued_record(record: &QueuedRecord<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(record.publish.len() + record.group.len() + 48);
    put_fixed64(&mut out, queued_record::SESSION, record.session);
    put_bytes_unless_empty(&mut out, queued_record::PUBLISH, record.publish);
    put_number(&mut out, queued_record::QOS, record.qos.into());
    put_present(&mut out, queued_record::RETAINED_FOR, record.meant_for.and_then(MeantFor::retained_for));
    put_bytes_unless_empty(&mut out, queued_record::GROUP, record.group.as_bytes());
    put_enum(&mut out, queued_record::OVERFLOW, record.overflow);
    put_number(&mut out, queued_record::LAUNCHED, record.launched.into());
    put_fixed64(&mut out, queued_record::SHARED_FOR, record.meant_for.map_or(0, MeantFor::shared_for));
    put_number(&mut out, queued_record::QUEUE, record.queue);
    put_number(&mut out, queued_record::NUMBER, record.number);
    out
}

/// Copies that are no longer in their queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GoneRecord {
    pub queue: u64,
    /// All below this number are gone.
    pub below: u64,
    /// Further ones: the first and the last of each run, ascending.
    pub ranges: Vec<(u64, u64)>,
    /// The remaining ones below this number were passed to the session's link.
    pub launched: u64,
}

impl GoneRecord {
    /// All copies of a queue.
    pub fn all(queue: u64) -> Self {
        Self { queue, below: u64::MAX, ..Self::default() }
    }

    /// Parses a record. Its runs are checked: they ascend, and none is empty.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let (mut record, mut message) = (Self::default(), Reader::new(bytes, MAX_DEPTH));
        while let Some(tag) = message.tag()? {
            match tag {
                gone_record::QUEUE => record.queue = message.varint()?,
                gone_record::BELOW => record.below = message.varint()?,
                gone_record::LAUNCHED => record.launched = message.varint()?,
                gone_record::RUNS => message.varints()?,
                gone_record::RUNS_ELEMENT => message.varint().map(drop)?,
                _ => message.skip(tag)?,
            }
        }
        let mut values = elements(bytes, gone_record::RUNS, gone_record::RUNS_ELEMENT);
        let mut end = record.below;
        while let Some(step) = values.next() {
            let count = values.next().filter(|&count| count > 0).ok_or(Malformed)?;
            let first = end.checked_add(step).ok_or(Malformed)?;
            end = first.checked_add(count).ok_or(Malformed)?;
            record.ranges.push((first, end - 1));
        }
        Ok(record)
    }
}

/// A serialised `GoneRecord`.
pub fn gone_record(record: &GoneRecord) -> Vec<u8> {
    let mut out = Vec::new();
    put_number(&mut out, gone_record::QUEUE, record.queue);
    put_number(&mut out, gone_record::BELOW, record.below);
    put_message_unless_empty(&mut out, gone_record::RUNS, |out| {
        let mut end = record.below;
        for &(first, last) in &record.ranges {
            put_varint(out, first.saturating_sub(end));
            put_varint(out, last - first.max(end) + 1);
            end = last + 1;
        }
    });
    put_number(&mut out, gone_record::LAUNCHED, record.launched);
    out
}

/// The member of a shared group that gets the rest of a large message (§6.5).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChoiceRecord {
    /// The id of the message's first fragment.
    pub publisher: u64,
    pub sequence: u64,
    /// The id of the shared subscription.
    pub shared_for: u64,
    /// The member's session.
    pub session: u64,
}

impl ChoiceRecord {
    /// Parses a record.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let (mut record, mut message) = (Self::default(), Reader::new(bytes, MAX_DEPTH));
        while let Some(tag) = message.tag()? {
            match tag {
                choice_record::PUBLISHER => record.publisher = message.fixed64()?,
                choice_record::SEQUENCE => record.sequence = message.varint()?,
                choice_record::SHARED_FOR => record.shared_for = message.fixed64()?,
                choice_record::SESSION => record.session = message.fixed64()?,
                _ => message.skip(tag)?,
            }
        }
        Ok(record)
    }

    fn to_bytes(self) -> Vec<u8> {
        let mut out = Vec::new();
        put_fixed64(&mut out, choice_record::PUBLISHER, self.publisher);
        put_number(&mut out, choice_record::SEQUENCE, self.sequence);
        put_fixed64(&mut out, choice_record::SHARED_FOR, self.shared_for);
        put_fixed64(&mut out, choice_record::SESSION, self.session);
        out
    }
}

/// The records in one TRANSFER that the core reads; Python reads the others.
#[derive(Debug, Default)]
pub struct TransferRecords<'a> {
    pub queued: Vec<&'a [u8]>,
    pub gone: Vec<&'a [u8]>,
    pub seen: Vec<&'a [u8]>,
    pub choices: Vec<&'a [u8]>,
}

impl<'a> TransferRecords<'a> {
    /// Parses a TRANSFER. The records stay serialised.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (mut records, mut message) = (Self::default(), Reader::new(bytes, MAX_DEPTH));
        while let Some(tag) = message.tag()? {
            match tag {
                transfer::QUEUED => records.queued.push(message.bytes()?),
                transfer::GONE => records.gone.push(message.bytes()?),
                transfer::SEEN => records.seen.push(message.bytes()?),
                transfer::CHOICES => records.choices.push(message.bytes()?),
                _ => message.skip(tag)?,
            }
        }
        Ok(records)
    }
}

/// The bytes of records in one packet, so that it fits into a datagram of 1,200. A larger record is sent
/// alone.
const CHUNK: usize = 900;

/// Records in serialised TRANSFERs, each of which fits into a packet.
#[derive(Debug, Default)]
pub struct Transfers {
    whole: Vec<Vec<u8>>,
    last: Vec<u8>,
}

impl Transfers {
    pub fn add_queued(&mut self, record: &QueuedRecord<'_>) {
        self.add(transfer::QUEUED, &queued_record(record));
    }

    pub fn add_gone(&mut self, record: &GoneRecord) {
        // The number of runs, of two numbers each, that fit into a packet. Fields that are repeated do no
        // harm.
        let parts = record.ranges.chunks(CHUNK / 2 / MOST_VARINT);
        let mut has_records = false;
        for ranges in parts {
            has_records = true;
            self.add(transfer::GONE, &gone_record(&GoneRecord { ranges: ranges.to_vec(), ..*record }));
        }
        if !has_records {
            self.add(transfer::GONE, &gone_record(record));
        }
    }

    pub fn add_seen(&mut self, record: &[u8]) {
        self.add(transfer::SEEN, record);
    }

    pub fn add_choice(&mut self, record: ChoiceRecord) {
        self.add(transfer::CHOICES, &record.to_bytes());
    }

    pub fn into_all(mut self) -> Vec<Vec<u8>> {
        self.whole.extend((!self.last.is_empty()).then_some(self.last));
        self.whole
    }

    fn add(&mut self, tag: u32, record: &[u8]) {
        if !self.last.is_empty() && self.last.len() + record.len() > CHUNK {
            self.whole.push(std::mem::take(&mut self.last));
        }
        put_bytes(&mut self.last, tag, record);
    }
}

/// The record of one publisher's numbers at QoS 2 (§7.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenRecord<'a> {
    pub publisher: u64,
    /// Every number below this word of 64 was seen.
    pub floor: u64,
    message: &'a [u8],
}

impl<'a> SeenRecord<'a> {
    /// Parses a record. Its words are checked: they ascend, and none is 0.
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
