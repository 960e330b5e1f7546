//! The positions of a packet's numbers and payload.
//!
//! Successive messages of one publisher on one topic differ in their payloads and in rising numbers:
//! sequence, time, delivery. All other bytes are the same, at the same positions as long as no length
//! changes. So the second of two such packets needs no parser: it is compared with the first under a
//! [`Mask`]. All equal bytes were checked in the first.

use std::ops::Range;

use super::reader::Span;

/// The positions of the bytes that may differ. If a field occurs several times, that of the last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Layout {
    pub delivery: Span,
    pub after: Span,
    pub payload: Span,
    pub sequence: Span,
    pub published_at_us: Span,
}

/// The size of a short payload, in bytes.
const SHORT: usize = 128;

/// The bits that two fields must have in common for the second to have the layout of the first.
///
/// It has all bits of the bytes that must not differ, of a number the bits that mark its end, and no bits of
/// the payload.
#[derive(Debug, Default)]
pub struct Mask {
    bits: Vec<u8>,
    /// The range of a payload that is skipped. A short payload is not: comparing it is faster than skipping.
    passed: Range<usize>,
    /// What the mask was made for: the layout, and the lengths of the field and of its packet.
    layout: Layout,
    lengths: (usize, usize),
}

impl Mask {
    /// Makes the mask for a field of this length that ends with a packet of this length and layout.
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

    /// Whether `other` differs from `field` only in bits that may differ. Both must have the length that the
    /// mask was made for.
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

/// Whether two slices of one length have these bits in common.
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
