//! The datagrams of associations (docs/adr/0035-sealed-associations.md).
//!
//! ```text
//!     sealed    kind and epoch (1)  to (8)  number (4)                      sealed bytes, tag (16)
//!     stream    kind (1)  to (8)  from (8)  token length (1), token  offset (4)  acked (4)  bytes
//!     retry     kind (1)  to (8)  token (21)
//!     reset     kind (1)  proof (16)
//! ```
//!
//! `to` and `from` are the ids that the receiver and the sender chose for the association. `to` is 0 in the
//! first datagrams of an initiator, which does not know the other id yet. Numbers are big endian. No datagram of
//! protobuf begins with one of these kinds: their lower three bits are no wire type.
//!
//! An end that has sent and heard nothing seals a probe: a datagram of protobuf with empty padding. The answer is an
//! empty datagram. Neither concerns the layer above.

use crate::token::TOKEN_BYTES;
use crate::wire::SEAL_BYTES;

/// The id of an association, as the end that receives it chose it.
pub type AssociationId = u64;

/// What is in front of the sealed bytes: kind, id, and the lower half of the number.
pub const SEALED_HEADER: usize = 13;
/// The bytes of a tag.
pub const TAG: usize = 16;
/// How much longer a datagram is when it is sealed.
pub const OVERHEAD: usize = SEALED_HEADER + TAG;
const _: () = assert!(OVERHEAD == SEAL_BYTES);
/// The longest datagram of a stream.
pub const MOST_STREAM: usize = 1_200;
/// A reset has this length, and so is shorter than any sealed datagram.
pub const RESET_BYTES: usize = 1 + PROOF;
/// The bytes of the proof of a reset.
pub const PROOF: usize = 16;

/// What is sealed in a probe. The answer is empty.
pub const PROBE: [u8; 2] = [0x1a, 0];

const ID: usize = 8;
const EPOCH_SHIFT: u32 = 3;
const EPOCHS: u8 = 4;
const SEALED: u8 = 0x07;
const STREAM: u8 = 0x27;
const RETRY: u8 = 0x2f;
const RESET: u8 = 0x37;

/// What was sealed in a datagram that was opened where it lies.
pub fn body(opened: &mut [u8]) -> &mut [u8] {
    let end = opened.len() - TAG;
    &mut opened[SEALED_HEADER..end]
}

/// One datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    Sealed { to: AssociationId, header: SealedHeader },
    Stream { to: AssociationId, from: AssociationId, token: &'a [u8], segment: Segment<'a> },
    Retry { to: AssociationId, token: &'a [u8] },
    Reset { proof: [u8; PROOF] },
}

/// The header of a sealed datagram. `epoch`: the lower two bits; `number`: the lower 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedHeader {
    pub epoch: u8,
    pub number: u32,
}

/// A part of a stream. `acked`: the bytes of the other direction that have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    pub offset: u32,
    pub acked: u32,
    pub bytes: &'a [u8],
}

impl<'a> Packet<'a> {
    /// `None`: it is no datagram of an association.
    pub fn parse(datagram: &'a [u8]) -> Option<Self> {
        let (kind, rest) = datagram.split_first()?;
        match *kind {
            STREAM => {
                let (to, rest) = id(rest)?;
                let (from, rest) = id(rest)?;
                let (length, rest) = rest.split_first()?;
                let (token, rest) = rest.split_at_checked(usize::from(*length))?;
                Some(Self::Stream { to, from, token, segment: Segment::parse(rest)? })
            }
            RETRY => {
                let (to, token) = id(rest)?;
                (token.len() == TOKEN_BYTES).then_some(Self::Retry { to, token })
            }
            RESET => Some(Self::Reset { proof: rest.try_into().ok()? }),
            kind => {
                let (to, rest) = id(rest)?;
                let header = SealedHeader::of(kind, rest.first_chunk()?)?;
                (rest.len() >= OVERHEAD - 1 - ID).then_some(Self::Sealed { to, header })
            }
        }
    }
}

impl SealedHeader {
    fn of(kind: u8, number: &[u8; 4]) -> Option<Self> {
        let epoch = kind >> EPOCH_SHIFT & (EPOCHS - 1);
        let is_sealed = kind & !((EPOCHS - 1) << EPOCH_SHIFT) == SEALED;
        is_sealed.then_some(Self { epoch, number: u32::from_be_bytes(*number) })
    }

    /// The header of a datagram for `to`, as bytes.
    pub fn emit(self, to: AssociationId) -> [u8; SEALED_HEADER] {
        let mut bytes = [0; SEALED_HEADER];
        bytes[0] = SEALED | (self.epoch & (EPOCHS - 1)) << EPOCH_SHIFT;
        bytes[1..=ID].copy_from_slice(&to.to_be_bytes());
        bytes[1 + ID..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }
}

impl<'a> Segment<'a> {
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (offset, rest) = bytes.split_first_chunk()?;
        let (acked, bytes) = rest.split_first_chunk()?;
        Some(Self { offset: u32::from_be_bytes(*offset), acked: u32::from_be_bytes(*acked), bytes })
    }

    pub fn emit(&self, buffer: &mut Vec<u8>) {
        buffer.extend_from_slice(&self.offset.to_be_bytes());
        buffer.extend_from_slice(&self.acked.to_be_bytes());
        buffer.extend_from_slice(self.bytes);
    }
}

/// A part of the stream of a handshake, which is not sealed.
pub fn stream(to: AssociationId, from: AssociationId, token: &[u8], segment: &Segment<'_>) -> Vec<u8> {
    let length = u8::try_from(token.len()).expect("a token is short");
    let mut datagram = Vec::with_capacity(MOST_STREAM);
    datagram.push(STREAM);
    datagram.extend_from_slice(&to.to_be_bytes());
    datagram.extend_from_slice(&from.to_be_bytes());
    datagram.push(length);
    datagram.extend_from_slice(token);
    segment.emit(&mut datagram);
    datagram
}

/// The answer to a first datagram without a valid token.
pub fn retry(to: AssociationId, token: &[u8; TOKEN_BYTES]) -> Vec<u8> {
    let mut datagram = vec![RETRY];
    datagram.extend_from_slice(&to.to_be_bytes());
    datagram.extend_from_slice(token);
    datagram
}

/// The answer to a sealed datagram of an unknown association.
pub fn reset(proof: [u8; PROOF]) -> Vec<u8> {
    let mut datagram = vec![RESET];
    datagram.extend_from_slice(&proof);
    datagram
}

fn id(bytes: &[u8]) -> Option<(AssociationId, &[u8])> {
    let (id, rest) = bytes.split_first_chunk()?;
    Some((AssociationId::from_be_bytes(*id), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_emitted_is_parsed() {
        let segment = Segment { offset: 7, acked: 1 << 20, bytes: b"bytes" };
        for token in [&[][..], &[5; TOKEN_BYTES]] {
            let datagram = stream(3, 4, token, &segment);
            assert_eq!(Packet::parse(&datagram), Some(Packet::Stream { to: 3, from: 4, token, segment }));
        }
        let token = [9; TOKEN_BYTES];
        assert_eq!(Packet::parse(&retry(5, &token)), Some(Packet::Retry { to: 5, token: &token }));
        assert_eq!(Packet::parse(&reset([6; PROOF])), Some(Packet::Reset { proof: [6; PROOF] }));
        for epoch in 0..EPOCHS {
            let header = SealedHeader { epoch, number: 0xdead_beef };
            let datagram = [&header.emit(u64::MAX)[..], &[0; TAG]].concat();
            assert_eq!(Packet::parse(&datagram), Some(Packet::Sealed { to: u64::MAX, header }));
            assert_eq!(Packet::parse(&datagram[..datagram.len() - 1]), None, "no room for a tag");
        }
    }

    #[test]
    fn no_bytes_make_it_panic() {
        for kind in 0..=u8::MAX {
            for length in 0..80 {
                let datagram = [&[kind][..], &vec![kind; length]].concat();
                let parsed = Packet::parse(&datagram);
                assert!(parsed.is_none() || kind & 0x07 == 0x07, "protobuf takes {kind:#x}: {parsed:?}");
            }
        }
    }
}
