//! Where a packet's numbers and its payload stand.
//!
//! Messages that a publisher sends on one topic, one behind the other, differ in their payloads and in numbers that rise: sequence, time,
//! delivery. All other bytes are the same, and they stand at the same places as long as nothing changes its length. So of two such packets the
//! second needs no parser: it is compared with the first, and what differs is read. Whatever is equal was checked in the first.

use super::reader::leading_varint;

/// The places of what may differ, each from where it begins to its end; (0, 0): there is none. Of a field that occurs several times it is the last.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shape {
    pub delivery: Span,
    pub after: Span,
    pub payload: Span,
    pub sequence: Span,
    pub published_at_us: Span,
}

pub type Span = (usize, usize);

/// What differs. A number that has no place is 0.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    pub delivery: u64,
    pub after: u64,
    pub sequence: u64,
    pub published_at_us: u64,
}

impl Shape {
    /// Where `part` stands in the bytes that it is a part of.
    pub fn span_of(part: &[u8], whole: &[u8]) -> Span {
        let start = (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
        (start, start.wrapping_add(part.len()))
    }

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
        comparison.pass((packet.len(), packet.len()))?;
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
    fn pass(&mut self, (start, end): Span) -> Option<()> {
        if end == 0 {
            return Some(());
        }
        if self.packet.get(self.at..start)? != self.other.get(self.at..start)? {
            return None;
        }
        self.at = end;
        Some(())
    }

    /// Reads the other's number, which has to fill the place.
    #[inline]
    fn number(&mut self, span: Span) -> Option<u64> {
        let (start, end) = span;
        self.pass(span)?;
        if end == 0 {
            return Some(0);
        }
        let (value, length) = leading_varint(self.other.get(start..)?)?;
        (length == end - start).then_some(value)
    }
}
