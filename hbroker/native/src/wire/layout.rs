//! Where a packet's numbers and its payload stand.
//!
//! Messages that a publisher sends on one topic, one behind the other, differ in their payloads and in numbers that rise: sequence, time,
//! delivery. All other bytes are the same, and they stand at the same places as long as nothing changes its length. So of two such packets the
//! second needs no parser: it is compared with the first under a [`Mask`]. Whatever is equal was checked in the first.

use std::ops::Range;

use super::reader::leading_varint;

/// The places of what may differ. Of a field that occurs several times it is the last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Layout {
    pub delivery: Span,
    pub after: Span,
    pub payload: Span,
    pub sequence: Span,
    pub published_at_us: Span,
}

/// In 32 bits each: there is a shape for each of a datagram's views.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Span {
    start: u32,
    end: u32,
}

/// Bytes of a payload that is short.
const SHORT: usize = 128;

/// Which bits two fields must have in common for the second to be a packet of the shape of the first.
///
/// It has every bit of what may not differ, of a number those that say where it ends, and of the payload none.
#[derive(Debug, Default)]
pub struct Mask {
    bits: Vec<u8>,
    /// A payload that is passed over: a short one is compared faster than it is left out.
    passed: Range<usize>,
    /// What it was cut for: the shape, and the lengths of the field and of its packet.
    layout: Layout,
    lengths: (usize, usize),
}

impl Span {
    pub fn new(start: usize, end: usize) -> Self {
        Self { start: start as u32, end: end as u32 }
    }

    /// Where `fragment` stands in the bytes that it is a part of.
    pub fn of(fragment: &[u8], whole: &[u8]) -> Self {
        let start = (fragment.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
        Self::new(start, start.wrapping_add(fragment.len()))
    }

    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// There is no such place.
    pub fn is_nowhere(self) -> bool {
        self.end == 0
    }

    /// The number that stands there; 0: there is no such place.
    #[inline]
    pub fn number_in(self, packet: &[u8]) -> u64 {
        if self.is_nowhere() {
            return 0;
        }
        packet.get(self.range().start..).and_then(leading_varint).map_or(0, |(value, _)| value)
    }
}

impl Mask {
    /// Cuts it for a field of so many bytes, and the packet of this shape that it ends with.
    pub fn cut(&mut self, layout: &Layout, field: usize, packet: usize) {
        if (self.layout, self.lengths) == (*layout, (field, packet)) {
            return;
        }
        (self.layout, self.lengths) = (*layout, (field, packet));
        let position = |span: Span| {
            let Range { start, end } = span.range();
            (!span.is_nowhere()).then_some(field - packet + start..field - packet + end)
        };
        self.bits.clear();
        self.bits.resize(field, u8::MAX);
        for number in [layout.delivery, layout.after, layout.sequence, layout.published_at_us] {
            if let Some(position) = position(number) {
                self.bits[position].fill(0x80);
            }
        }
        let payload = position(layout.payload).unwrap_or(field..field);
        self.bits[payload.clone()].fill(0);
        self.passed = if payload.len() > SHORT { payload } else { field..field };
    }

    /// Whether `other`, which is as long as the field that it was cut for, differs from that one in nothing that matters.
    #[inline]
    pub fn finds_equal(&self, field: &[u8], other: &[u8]) -> bool {
        let Range { start, end } = self.passed;
        if start == end {
            return is_same(field, other, &self.bits);
        }
        is_same(&field[..start], &other[..start], &self.bits[..start])
            && is_same(&field[end..], &other[end..], &self.bits[end..])
    }
}

/// Whether two pieces of one length have these bits in common.
#[inline]
fn is_same(one: &[u8], other: &[u8], bits: &[u8]) -> bool {
    let differ = |one: &[u8; 8], other: &[u8; 8], bits: &[u8; 8]| {
        (u64::from_le_bytes(*one) ^ u64::from_le_bytes(*other)) & u64::from_le_bytes(*bits)
    };
    let (Some(one_end), Some(other_end), Some(bits_end)) =
        (one.last_chunk(), other.last_chunk(), bits.last_chunk())
    else {
        return one.iter().zip(other).zip(bits).all(|((one, other), bits)| (one ^ other) & bits == 0);
    };
    let words = one.as_chunks().0.iter().zip(other.as_chunks().0).zip(bits.as_chunks().0);
    let found = words.fold(0, |found, ((one, other), bits)| found | differ(one, other, bits));
    found | differ(one_end, other_end, bits_end) == 0
}
