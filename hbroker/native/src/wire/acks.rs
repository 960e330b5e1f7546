//! Acknowledgements: of datagrams (§3.2), and of messages (§7.3).
//!
//! The ranges stay in the datagram, in all the fields that a parser would merge, and are read during
//! iteration. A stranger may have sent them: numbers may be far beyond any that was sent.

use std::net::{IpAddr, SocketAddr};

use super::Malformed;
use super::reader::{MAX_DEPTH, Reader, check, elements, occurrences};
use crate::schema::{ack, address, checks, cut, datagram, header, packet, pub_ack};

/// Acknowledges datagram numbers (§3.2).
#[derive(Debug, Clone, Copy, Default)]
pub struct AckView<'a> {
    pub largest: u64,
    /// For how long the peer delayed the acknowledgement of `largest`.
    pub delay_us: u64,
    /// The fields `header` of the datagram.
    headers: &'a [u8],
}

impl<'a> AckView<'a> {
    /// The inclusive ranges (low, high), from the highest down, as in RFC 9000 §19.3.1. A range that would
    /// begin below 0 ends the iteration.
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
    /// A `Reason`, as encoded; this version may not know it.
    pub reason: i32,
    pub topic: &'a str,
    /// The fields `puback` of the packet.
    fields: &'a [u8],
}

impl<'a> PubAckView<'a> {
    /// The inclusive ranges (first, last) of delivery numbers, ascending. An empty range, or one that is not
    /// above the one before, ends the iteration.
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

    /// Where to look (§5.3), if the packet contains a referral.
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
                pub_ack::REFERRAL => check(message.message()?, checks::CUT)?,
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

/// A delegation: the node that owns a subtree (§5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutView<'a> {
    pub subtree: &'a str,
    pub node: &'a str,
    /// None: there is none, or it is not valid (4 or 16 bytes, and a port of 16 bits).
    pub address: Option<SocketAddr>,
    pub epoch: u64,
}

/// The fields of a `Cut`, while they are read.
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
