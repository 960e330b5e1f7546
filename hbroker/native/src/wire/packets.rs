//! The packets of a datagram, in order. Packets that are alike form a group.
//!
//! A publisher under load fills its datagrams with messages that differ in their numbers and payloads only
//! ([`Layout`]). One view represents all of them. The views of the others are derived from it on demand; a
//! relay only needs their bytes.

use std::borrow::Cow;

use super::Malformed;
use super::emit::delta_content;
use super::reader::{Reader, Span};
use super::view::{Body, PacketView};
use crate::wire::layout::{Layout, Mask};

/// One packet, or several successive messages of one layout. If they have delivery numbers, these are
/// consecutive.
#[derive(Debug)]
pub struct PacketGroup<'a> {
    first: PacketView<'a>,
    layout: Layout,
    /// Their fields, tags and lengths included.
    bytes: &'a [u8],
    count: usize,
}

/// Successive packets of a datagram.
#[derive(Debug, Clone, Copy)]
pub struct Packets<'a, 'b> {
    datagram: &'a [u8],
    grouped: &'b [PacketGroup<'a>],
    /// How many packets of the first group are excluded.
    passed: usize,
    len: usize,
}

/// Successive packets of one group: at least one.
#[derive(Debug, Clone, Copy)]
pub struct Section<'a, 'b> {
    grouped: &'b PacketGroup<'a>,
    start: usize,
    len: usize,
}

impl<'a> PacketGroup<'a> {
    /// A packet and its field, not parsed yet.
    pub(super) fn unread(raw: &'a [u8], field: &'a [u8]) -> Self {
        Self { first: PacketView::empty(raw), layout: Layout::default(), bytes: field, count: 1 }
    }

    /// Parses the first packet, whose bytes are `message`.
    pub(super) fn read(&mut self, message: Reader<'a>) -> Result<(), Malformed> {
        self.first.read(message, &mut self.layout)
    }

    /// If this is a delta of the message `before`, turns it into that message.
    #[inline]
    pub(super) fn follow(&mut self, before: Option<&Self>) {
        let Body::Delta(payload) = self.first.body else {
            return;
        };
        let PacketView { raw, delivery, after, .. } = self.first;
        let is_all = raw.len() == delta_content(payload.len());
        if is_all
            && (delivery, after, self.first.meant_for()) == (0, 0, None)
            && let Some(before) = before
            && let Some(model) = before.packet(before.count - 1).model()
        {
            self.first.body = Body::Publish(model.again(1, payload, raw));
        }
    }

    /// Adds the following packets that are like the first. Returns their size in bytes. `bytes`: everything
    /// from the first packet's field on.
    #[inline]
    pub(super) fn extend(&mut self, bytes: &'a [u8], mask: &mut Mask) -> usize {
        let field = self.bytes;
        if self.is_delta() {
            let (length, head) = (field.len(), field.len() - self.layout.payload.range().len());
            let others = bytes[length..].chunks_exact(length);
            self.count += others.take_while(|other| begin_equal(field, other, head)).count();
            self.bytes = &bytes[..self.count * length];
            return self.bytes.len() - length;
        }
        let PacketView { delivery, raw, body, .. } = &self.first;
        let (length, head) = (field.len(), field.len() - raw.len());
        let is_next = bytes.get(length..length + head).is_some_and(|other| *other == field[..head]);
        let is_numbered = !self.layout.delivery.is_nowhere();
        if !is_next || !matches!(body, Body::Publish(_)) || (is_numbered && *delivery == 0) {
            return 0;
        }
        mask.cut(&self.layout, length, raw.len());
        let others = bytes[length..].chunks_exact(length).zip(1..);
        let like = others.take_while(|(other, position)| {
            let number = || self.layout.delivery.number_in(&other[head..]);
            mask.finds_equal(field, other)
                && (!is_numbered || delivery.checked_add(*position) == Some(number()))
        });
        self.count += like.count();
        self.bytes = &bytes[..self.count * length];
        self.bytes.len() - length
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Whether they are deltas of the message before them (§2.4).
    fn is_delta(&self) -> bool {
        matches!(&self.first.body, Body::Publish(publish) if publish.is_delta())
    }

    /// The size of each field.
    fn length(&self) -> usize {
        self.bytes.len() / self.count
    }

    /// The bytes of the packet at an index.
    fn raw(&self, position: usize) -> &'a [u8] {
        let end = (position + 1) * self.length();
        &self.bytes[end - self.first.raw.len()..end]
    }

    /// The packet at an index.
    fn packet(&self, position: usize) -> PacketView<'a> {
        let Self { first, layout, .. } = self;
        let Body::Publish(publish) = &first.body else {
            return *first;
        };
        let raw = self.raw(position);
        if publish.is_delta() {
            let body = Body::Publish(publish.again(position as u64, &raw[layout.payload.range()], raw));
            return PacketView { body, raw, ..*first };
        }
        let delivery = if first.delivery > 0 { first.delivery + position as u64 } else { 0 };
        let body = Body::Publish(publish.like(layout, first.raw, raw));
        PacketView { delivery, after: layout.after.number_in(raw), body, raw, ..*first }
    }
}

/// Whether the first `bytes` bytes of two slices of one length are equal. Mostly they are few.
#[inline]
fn begin_equal(one: &[u8], other: &[u8], bytes: usize) -> bool {
    match (one.first_chunk(), other.first_chunk()) {
        (Some(one), Some(other)) if (1..=size_of::<u64>()).contains(&bytes) => {
            let differ = u64::from_le_bytes(*one) ^ u64::from_le_bytes(*other);
            differ & (u64::MAX >> (u64::BITS as usize - 8 * bytes)) == 0
        }
        _ => one[..bytes] == other[..bytes],
    }
}

impl<'a, 'b> Packets<'a, 'b> {
    pub(super) fn new(datagram: &'a [u8], grouped: &'b [PacketGroup<'a>], len: usize) -> Self {
        Self { datagram, grouped, passed: 0, len }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// At most the first `count` of them.
    pub fn take(self, count: usize) -> Self {
        Self { len: self.len.min(count), ..self }
    }

    /// All but the first `count` of them.
    pub fn skip(mut self, count: usize) -> Self {
        self.len = self.len.saturating_sub(count);
        self.passed += count;
        while let [first, others @ ..] = self.grouped
            && self.passed >= first.count
        {
            self.passed -= first.count;
            self.grouped = others;
        }
        self
    }

    /// All of them, by groups of packets that are alike.
    pub fn sections(self) -> impl Iterator<Item = Section<'a, 'b>> + Clone {
        let (mut start, mut left) = (self.passed, self.len);
        self.grouped.iter().map_while(move |grouped| {
            let section = Section { grouped, start, len: left.min(grouped.count - start) };
            (start, left) = (0, left - section.len);
            (section.len > 0).then_some(section)
        })
    }

    pub fn iter(self) -> impl Iterator<Item = PacketView<'a>> + use<'a, 'b> {
        self.sections().flat_map(Section::packets)
    }

    /// Calls `handle` for each packet.
    pub fn for_each(self, mut handle: impl FnMut(&PacketView<'a>)) {
        for section in self.sections() {
            for position in section.start..section.start + section.len {
                if position == 0 {
                    handle(&section.grouped.first);
                } else {
                    handle(&section.grouped.packet(position));
                }
            }
        }
    }

    /// The bytes of their fields; `None`: there are none, or there are other bytes between them.
    #[inline]
    pub fn encoded(self) -> Option<&'a [u8]> {
        let mut fields = self.sections().map(Section::bytes);
        let all = Span::of(fields.next()?, self.datagram).range();
        let end = fields.try_fold(all.end, |end, field| {
            let next = Span::of(field, self.datagram).range();
            (next.start == end).then_some(next.end)
        })?;
        self.datagram.get(all.start..end)
    }
}

impl<'a, 'b> Section<'a, 'b> {
    pub fn len(&self) -> usize {
        self.len
    }

    /// The first packet.
    pub fn first(&self) -> Cow<'b, PacketView<'a>> {
        if self.start == 0 {
            Cow::Borrowed(&self.grouped.first)
        } else {
            Cow::Owned(self.grouped.packet(self.start))
        }
    }

    /// The body of the first packet of the group: each message is as this one, except its numbers and its
    /// payload, which has the same length.
    pub fn body(&self) -> &'b Body<'a> {
        &self.grouped.first.body
    }

    /// Whether they are unreliable, and each contains one message and nothing else.
    pub fn is_bare(&self) -> bool {
        self.grouped.first.is_bare()
    }

    /// Whether they have delivery numbers.
    pub fn is_reliable(&self) -> bool {
        self.grouped.first.delivery > 0
    }

    /// The size of each packet's field in the datagram.
    pub fn length(&self) -> usize {
        self.grouped.length()
    }

    /// The sequence number of each message.
    pub fn sequences(self) -> impl Iterator<Item = u64> + use<'a, 'b> {
        self.positions()
            .map(move |position| self.grouped.layout.sequence.number_in(self.grouped.raw(position)))
    }

    /// Whether they are deltas of the message before them (§2.4).
    pub fn is_delta(&self) -> bool {
        self.grouped.is_delta()
    }

    /// For each message its only field `publish`, and the payload. For a delta the first is its whole packet.
    pub fn messages(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone + use<'a, 'b> {
        let PacketGroup { first, layout, .. } = self.grouped;
        let field = match &first.body {
            Body::Publish(publish) if publish.is_delta() => 0..first.raw.len(),
            Body::Publish(publish) => Span::of(publish.only_field(), first.raw).range(),
            _ => 0..0,
        };
        let payload = layout.payload.range();
        self.positions().map(move |position| {
            let raw = self.grouped.raw(position);
            (&raw[field.clone()], &raw[payload.clone()])
        })
    }

    fn packets(self) -> impl Iterator<Item = PacketView<'a>> + use<'a, 'b> {
        self.positions().map(move |position| self.grouped.packet(position))
    }

    fn positions(self) -> std::ops::Range<usize> {
        self.start..self.start + self.len
    }

    /// The bytes of their fields.
    fn bytes(self) -> &'a [u8] {
        let length = self.length();
        &self.grouped.bytes[self.start * length..(self.start + self.len) * length]
    }
}
