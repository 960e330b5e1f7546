//! Where a packet's numbers and its payload stand.
//!
//! Messages that a publisher sends on one topic, one behind the other, differ in their payloads and in numbers that rise: sequence, time,
//! delivery. All other bytes are the same, and they stand at the same places as long as nothing changes its length. So of two such packets the
//! second needs no parser: it is compared with the first, and what differs is read. Whatever is equal was checked in the first.

use std::ops::Range;

use super::reader::leading_varint;

/// The places of what may differ. Of a field that occurs several times it is the last.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shape {
    pub delivery: Span,
    pub after: Span,
    pub payload: Span,
    pub sequence: Span,
    pub published_at_us: Span,
}

/// In 32 bits each: views are copied for each packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Span {
    start: u32,
    end: u32,
}

/// What differs. A number that has no place is 0.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    pub delivery: u64,
    pub after: u64,
    pub sequence: u64,
    pub published_at_us: u64,
}

impl Span {
    pub fn new(start: usize, end: usize) -> Self {
        Self { start: start as u32, end: end as u32 }
    }

    /// Where `part` stands in the bytes that it is a part of.
    pub fn of(part: &[u8], whole: &[u8]) -> Self {
        let start = (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
        Self::new(start, start.wrapping_add(part.len()))
    }

    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// There is no such place.
    fn is_nowhere(self) -> bool {
        self.end == 0
    }
}

impl Shape {
    /// What differs between a packet of this shape and another one; `None`: more does, or the order is another than a publisher's.
    pub fn find(&self, packet: &[u8], other: &[u8]) -> Option<Found> {
        if packet.len() != other.len() {
            return None;
        }
        let mut comparison = Comparison { packet, other, at: 0 };
        let delivery = comparison.number(self.delivery)?;
        let after = comparison.number(self.after)?;
        comparison.pass(self.payload)?;
        let sequence = comparison.number(self.sequence)?;
        let published_at_us = comparison.number(self.published_at_us)?;
        comparison.pass(Span::new(packet.len(), packet.len()))?;
        Some(Found { delivery, after, sequence, published_at_us })
    }
}

/// Two packets of one length, equal up to `at` but for what may differ.
struct Comparison<'a> {
    packet: &'a [u8],
    other: &'a [u8],
    at: usize,
}

impl Comparison<'_> {
    /// Compares up to a place, and passes it.
    #[inline]
    fn pass(&mut self, span: Span) -> Option<()> {
        if span.is_nowhere() {
            return Some(());
        }
        let Range { start, end } = span.range();
        let is_same = match (self.packet.get(self.at..start)?, self.other.get(self.at..start)?) {
            // Between two numbers there is most often nothing but a tag.
            ([one], [other]) => one == other,
            (some, others) => some == others,
        };
        self.at = end;
        is_same.then_some(())
    }

    /// Reads the other's number, which has to fill the place.
    #[inline]
    fn number(&mut self, span: Span) -> Option<u64> {
        self.pass(span)?;
        if span.is_nowhere() {
            return Some(0);
        }
        let (value, length) = leading_varint(self.other.get(span.range().start..)?)?;
        (length == span.range().len()).then_some(value)
    }
}
