//! A message (§7), as the path from publisher to subscriber reads it.
//!
//! The view contains the fields that a node needs for each message. The MQTT properties, which only the
//! subscriber's application reads, are checked with the rest, and read from the bytes by
//! [`PublishView::properties`].

use std::borrow::Cow;

use super::Malformed;
use super::emit::{PublishOut, put_publish_field};
use super::fields::{ACK_MODE_QUEUED, FragmentView};
use super::reader::{MAX_DEPTH, Reader, Span, check, occurrences};
use crate::Micros;
use crate::schema::{checks, packet, publish, user_property};
use crate::wire::layout::Layout;

/// The most bytes that a message may have in addition to its payload for others to be sent as its deltas: a
/// few bytes of deltas become as many when they are expanded.
pub(super) const MOST_SAID: usize = 256;

/// A message, or one fragment of a large one.
#[derive(Debug, Clone, Copy, Default)]
pub struct PublishView<'a> {
    pub topic: &'a str,
    pub payload: &'a [u8],
    pub publisher: u64,
    pub sequence: u64,
    /// As encoded, so it may be no valid QoS; `u8::MAX` for a value that does not fit.
    pub qos: u8,
    pub retain: bool,
    /// The publisher wants its PUBACK as soon as the message is queued.
    pub ack_queued: bool,
    pub published_at_us: u64,
    /// Seconds after `published_at_us`. None: it never expires.
    pub expiry_s: Option<u32>,
    /// The MQTT client that published it through the publisher; 0: none.
    pub origin: u64,
    /// None: the message is not fragmented.
    pub fragment: Option<FragmentView>,
    /// It has properties that only an application reads, or fields that this version does not know.
    pub has_properties: bool,
    /// From the first field `publish` of the packet to the end of the last.
    fields: &'a [u8],
    /// There are several fields `publish`.
    split: bool,
    /// It was received as a delta of the message before it: `fields` is that packet.
    is_delta: bool,
}

impl<'a> PublishView<'a> {
    /// The field `publish`, tag and length included, to copy into the packet that relays it (§2.3). It is
    /// borrowed, except in two cases: if the sender split it into several fields, they are joined here, and
    /// if it is a delta (§2.4), it is expanded.
    pub fn field(&self) -> Cow<'a, [u8]> {
        if self.is_delta {
            let mut whole = Vec::with_capacity(self.payload.len() + MOST_SAID);
            put_publish_field(&mut whole, &self.said_whole());
            return Cow::Owned(whole);
        }
        if !self.split {
            return Cow::Borrowed(self.only_field());
        }
        let mut joined = Vec::with_capacity(self.fields.len());
        for content in self.contents() {
            super::emit::put_bytes(&mut joined, packet::PUBLISH, content);
        }
        Cow::Owned(joined)
    }

    /// As [`Self::field`], for a message that [`Self::is_simple`].
    pub fn only_field(&self) -> &'a [u8] {
        debug_assert!(!self.split && !self.is_delta);
        self.fields
    }

    /// The size of the fields `publish`, tags and lengths included.
    pub(super) fn fields_len(&self) -> usize {
        self.fields.len()
    }

    /// Whether it was received as a delta of the message before it (§2.4).
    pub fn is_delta(&self) -> bool {
        self.is_delta
    }

    /// Whether others may be sent as its deltas (§2.4).
    pub(super) fn is_model(&self) -> bool {
        let is_short = self.fields.len() - self.payload.len() <= MOST_SAID;
        is_short && self.is_plain() && !self.has_properties && !self.ack_queued
    }

    /// The message `position` after this one, which is its model, with this payload. `packet`: the packet
    /// that contained it.
    #[inline]
    pub(super) fn again(&self, position: u64, payload: &'a [u8], packet: &'a [u8]) -> Self {
        let sequence = self.sequence.wrapping_add(position);
        Self { payload, sequence, fields: packet, is_delta: true, ..*self }
    }

    /// A model, or a delta of one, with all its fields.
    pub(super) fn said_whole(&self) -> PublishOut<'a> {
        let &Self { topic, payload, publisher, sequence, published_at_us, origin, .. } = self;
        PublishOut { topic, payload, publisher, sequence, published_at_us, origin, ..PublishOut::default() }
    }

    /// Whether it is an unfragmented message of `QoS` 0 that is not retained and never expires, in one field.
    pub fn is_plain(&self) -> bool {
        self.qos == 0 && self.is_simple()
    }

    /// Whether it is an unfragmented message that is not retained and never expires, in one field.
    pub fn is_simple(&self) -> bool {
        !self.retain && self.expiry_s.is_none() && self.fragment.is_none() && !self.split
    }

    /// When it expires; `Micros::MAX`: never, or it is not known when it was published.
    pub fn expires(&self) -> Micros {
        match self.expiry_s {
            Some(seconds) if self.published_at_us > 0 => {
                self.published_at_us.saturating_add(u64::from(seconds) * 1_000_000)
            }
            _ => Micros::MAX,
        }
    }

    /// The contents of the fields `publish`, in order.
    pub(super) fn contents(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        occurrences(self.fields, packet::PUBLISH)
    }

    /// Parses a field `publish`. `packet`: the bytes that contain it; `layout` receives the positions.
    #[inline]
    pub(super) fn merge(
        &mut self,
        mut message: Reader<'a>,
        packet: &[u8],
        layout: &mut Layout,
    ) -> Result<(), Malformed> {
        while let Some(tag) = message.tag()? {
            match tag {
                publish::TOPIC => self.topic = message.text()?,
                publish::PAYLOAD => {
                    self.payload = message.bytes()?;
                    layout.payload = Span::of(self.payload, packet);
                }
                publish::PUBLISHER => self.publisher = message.fixed64()?,
                publish::SEQUENCE => self.sequence = message.varint_at(packet, &mut layout.sequence)?,
                publish::QOS => self.qos = u8::try_from(message.open_enum()?).unwrap_or(u8::MAX),
                publish::RETAIN => self.retain = message.boolean()?,
                publish::PUBLISHED_AT_US => {
                    self.published_at_us = message.varint_at(packet, &mut layout.published_at_us)?;
                }
                publish::EXPIRY_S => self.expiry_s = Some(message.varint32()?),
                publish::FRAGMENT => self.fragment.get_or_insert_default().merge(message.message()?)?,
                publish::ACK_MODE => self.ack_queued = message.open_enum()? == ACK_MODE_QUEUED,
                publish::ORIGIN => self.origin = message.fixed64()?,
                _ => {
                    self.has_properties = true;
                    match tag {
                        publish::CONTENT_TYPE | publish::RESPONSE_TOPIC => message.text().map(drop)?,
                        publish::USER_PROPERTIES => check(message.message()?, checks::USER_PROPERTY)?,
                        _ => message.skip(tag)?,
                    }
                }
            }
        }
        Ok(())
    }

    /// The message of another packet, `other`, with the layout of `packet`, which contains this message.
    #[inline]
    pub(super) fn like(&self, layout: &Layout, packet: &[u8], other: &'a [u8]) -> Self {
        Self {
            payload: &other[layout.payload.range()],
            sequence: layout.sequence.number_in(other),
            published_at_us: layout.published_at_us.number_in(other),
            fields: &other[Span::of(self.fields, packet).range()],
            ..*self
        }
    }

    /// One more field was merged. `fields` extends from the first to this one.
    #[inline]
    pub(super) fn add_field(&mut self, fields: &'a [u8]) {
        self.split = !self.fields.is_empty();
        self.fields = fields;
    }
}

/// The serialised `Publish` in a field `publish`, as returned by [`PublishView::field`].
pub fn message_of(field: &[u8]) -> Vec<u8> {
    occurrences(field, packet::PUBLISH).collect::<Vec<_>>().concat()
}

/// The first of several fields that lie end to end. Bytes that are not a field count as one. `like`: another
/// field, mostly of the same size.
#[inline]
pub fn first_field<'a>(fields: &'a [u8], like: &[u8]) -> &'a [u8] {
    // A tag of one byte, and a length of at most three: a field that begins with the same bytes has the same
    // size.
    if let (Some(head), Some(other)) = (fields.first_chunk::<4>(), like.first_chunk::<4>())
        && head == other
        && head[1] & head[2] & head[3] < 0x80
        && head[0] < 0x80
        && let Some(field) = fields.get(..like.len())
    {
        return field;
    }
    let mut reader = Reader::new(fields, 0);
    let is_field = reader.tag().is_ok() && reader.bytes().is_ok();
    &fields[..if is_field { fields.len() - reader.left() } else { fields.len() }]
}

/// A field `publish` that contains a serialised `Publish`.
pub fn field_of(message: &[u8]) -> Vec<u8> {
    let mut field = Vec::with_capacity(message.len() + 6);
    super::emit::put_bytes(&mut field, packet::PUBLISH, message);
    field
}

/// The MQTT 5 properties that only an application reads.
#[derive(Debug, Clone, Copy, Default)]
pub struct Properties<'a> {
    pub content_type: &'a str,
    pub payload_format: Option<i32>,
    pub response_topic: &'a str,
    pub correlation_data: &'a [u8],
}

impl<'a> PublishView<'a> {
    /// The properties except the user properties.
    pub fn properties(&self) -> Properties<'a> {
        let mut properties = Properties::default();
        for content in self.contents() {
            // It was parsed before, so reading ends without an error.
            let _ = properties.merge(Reader::new(content, MAX_DEPTH));
        }
        properties
    }

    /// (name, value) pairs, in the publisher's order.
    pub fn user_properties(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.contents().flat_map(|content| occurrences(content, publish::USER_PROPERTIES)).map(|property| {
            let text = |field| occurrences(property, field).last().and_then(|text| str::from_utf8(text).ok());
            (text(user_property::NAME).unwrap_or(""), text(user_property::VALUE).unwrap_or(""))
        })
    }
}

impl<'a> Properties<'a> {
    fn merge(&mut self, mut message: Reader<'a>) -> Result<(), Malformed> {
        while let Some(tag) = message.tag()? {
            match tag {
                publish::CONTENT_TYPE => self.content_type = message.text()?,
                publish::PAYLOAD_FORMAT => self.payload_format = Some(message.open_enum()?),
                publish::RESPONSE_TOPIC => self.response_topic = message.text()?,
                publish::CORRELATION_DATA => self.correlation_data = message.bytes()?,
                _ => message.skip(tag)?,
            }
        }
        Ok(())
    }
}

/// The id of a message: (publisher, sequence number).
pub type MessageId = (u64, u64);

/// Which message it is. The rest of it is not looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublishId {
    pub publisher: u64,
    pub sequence: u64,
    pub published_at_us: u64,
    /// Which of its fragments.
    pub fragment: Option<u32>,
}

impl PublishId {
    /// `packet`: without its tag and length.
    ///
    /// # Errors
    /// It is not valid.
    pub fn of(packet: &[u8]) -> Result<Self, Malformed> {
        let (mut id, mut fragment) = (Self::default(), None);
        let mut reader = Reader::new(packet, MAX_DEPTH - 1);
        while let Some(tag) = reader.tag()? {
            if tag != packet::PUBLISH {
                reader.skip(tag)?;
                continue;
            }
            let mut message = reader.message()?;
            while let Some(tag) = message.tag()? {
                match tag {
                    publish::PUBLISHER => id.publisher = message.fixed64()?,
                    publish::SEQUENCE => id.sequence = message.varint()?,
                    publish::PUBLISHED_AT_US => id.published_at_us = message.varint()?,
                    publish::FRAGMENT => {
                        fragment.get_or_insert_with(FragmentView::default).merge(message.message()?)?;
                    }
                    _ => message.skip(tag)?,
                }
            }
        }
        id.fragment = fragment.map(|fragment| fragment.index);
        Ok(id)
    }
}
