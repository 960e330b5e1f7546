//! Acknowledgements: of datagrams (§3.2), and of messages (§7.3).
//!
//! Their ranges stay in the datagram, in all the fields that a parser would merge, and are read
//! while they are iterated. What they claim is a stranger's word: numbers may lie far beyond
//! anything ever sent.

use std::net::{IpAddr, SocketAddr};

use super::Malformed;
use super::check::check;
use super::reader::{MAX_DEPTH, Reader, elements, occurrences};
use crate::schema::{ack, address, cut, datagram, header, packet, pub_ack};

/// Acknowledges datagram numbers (§3.2).
#[derive(Debug, Clone, Copy, Default)]
pub struct AckView<'a> {
    pub largest: u64,
    /// How long the peer held the acknowledgement of `largest` back.
    pub delay_us: u64,
    /// The fields `header` of the datagram.
    headers: &'a [u8],
}

impl<'a> AckView<'a> {
    /// The inclusive ranges (low, high), from the highest down, as in RFC 9000 §19.3.1. A range
    /// that would begin below 0 ends them.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        let mut counts = occurrences(self.headers, datagram::HEADER)
            .flat_map(|content| occurrences(content, header::ACK))
            .flat_map(|content| elements(content, ack::RANGES, ack::RANGES_ELEMENT));
        let first = self.largest.checked_sub(counts.next().unwrap_or(0)).map(|low| (low, self.largest));
        std::iter::successors(first, move |&(low, _)| {
            let gap = counts.next()?;
            let high = low.checked_sub(gap)?.checked_sub(2)?;
            Some((high.checked_sub(counts.next()?)?, high))
        })
    }

    pub(super) fn merge(&mut self, mut message: Reader<'a>) -> Result<(), Malformed> {
        while let Some(tag) = message.tag()? {
            match tag {
                ack::LARGEST => self.largest = message.varint()?,
                ack::DELAY_US => self.delay_us = message.varint()?,
                ack::RANGES => message.varints()?,
                _ => message.skip(tag)?,
            }
        }
        Ok(())
    }

    pub(super) fn set_headers(&mut self, headers: &'a [u8]) {
        self.headers = headers;
    }
}

/// Acknowledges messages, or refuses one (§7.3).
#[derive(Debug, Clone, Copy, Default)]
pub struct PubAckView<'a> {
    /// A `Reason`, as on the wire: it may be one that this version does not know.
    pub reason: i32,
    pub topic: &'a str,
    /// The fields `puback` of the packet.
    fields: &'a [u8],
}

impl<'a> PubAckView<'a> {
    /// The inclusive ranges (first, last) of delivery numbers, ascending. One that is empty, or
    /// does not lie above the one before, ends them.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        let mut numbers =
            self.contents().flat_map(|content| elements(content, pub_ack::RANGES, pub_ack::RANGES_ELEMENT));
        let mut end = 0u64;
        std::iter::from_fn(move || {
            let first = end.checked_add(numbers.next()?).filter(|&first| first > end)?;
            let length = numbers.next()?;
            end = first.checked_add(length.checked_sub(1)?)?;
            Some((first, end))
        })
    }

    /// Where to look (§5.3), if the packet says.
    pub fn referral(&self) -> Option<CutView<'a>> {
        let mut referral = None;
        for content in self.contents().flat_map(|content| occurrences(content, pub_ack::REFERRAL)) {
            referral.get_or_insert_with(CutFields::default).merge(content).ok()?;
        }
        referral.map(CutFields::view)
    }

    fn contents(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        occurrences(self.fields, packet::PUBACK)
    }

    pub(super) fn merge(&mut self, mut message: Reader<'a>) -> Result<(), Malformed> {
        while let Some(tag) = message.tag()? {
            match tag {
                pub_ack::RANGES => message.varints()?,
                pub_ack::REASON => self.reason = message.open_enum()?,
                pub_ack::REFERRAL => check(message.message()?, cut::CHECKS)?,
                pub_ack::TOPIC => self.topic = message.text()?,
                _ => message.skip(tag)?,
            }
        }
        Ok(())
    }

    pub(super) fn set_fields(&mut self, fields: &'a [u8]) {
        self.fields = fields;
    }
}

/// A delegation: who holds a subtree (§5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutView<'a> {
    pub subtree: &'a str,
    pub node: &'a str,
    /// None: there is none, or it is no address (4 or 16 bytes, and a port of 16 bits).
    pub address: Option<SocketAddr>,
    pub epoch: u64,
}

/// A `Cut` while its fields are read.
#[derive(Default)]
struct CutFields<'a> {
    subtree: &'a str,
    node: &'a str,
    ip: &'a [u8],
    port: u32,
    epoch: u64,
}

impl<'a> CutFields<'a> {
    fn merge(&mut self, content: &'a [u8]) -> Result<(), Malformed> {
        let mut message = Reader::new(content, MAX_DEPTH);
        while let Some(tag) = message.tag()? {
            match tag {
                cut::SUBTREE => self.subtree = message.text()?,
                cut::NODE => self.node = message.text()?,
                cut::ADDRESS => self.merge_address(message.message()?)?,
                cut::EPOCH => self.epoch = message.varint()?,
                _ => message.skip(tag)?,
            }
        }
        Ok(())
    }

    fn merge_address(&mut self, mut message: Reader<'a>) -> Result<(), Malformed> {
        while let Some(tag) = message.tag()? {
            match tag {
                address::IP => self.ip = message.bytes()?,
                address::PORT => self.port = message.varint32()?,
                _ => message.skip(tag)?,
            }
        }
        Ok(())
    }

    fn view(self) -> CutView<'a> {
        let ip = (<[u8; 4]>::try_from(self.ip).map(IpAddr::from))
            .or_else(|_| <[u8; 16]>::try_from(self.ip).map(IpAddr::from));
        let port = u16::try_from(self.port);
        let address = ip.ok().zip(port.ok()).map(SocketAddr::from);
        CutView { subtree: self.subtree, node: self.node, address, epoch: self.epoch }
    }
}
