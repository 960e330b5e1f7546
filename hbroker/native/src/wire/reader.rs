//! Protobuf's encoding, one field at a time: tags, varints, lengths, and how to skip unknown fields.
//!
//! A tag is kept as encoded, field number and wire type together. So a known field with the wrong wire type
//! matches no known tag, and is skipped as the unknown field that it is. The limits are those of the
//! reference parser (upb), found by fuzzing against it: a tag and a length have at most 5 bytes and a varint
//! 10, and bits beyond the value's width are dropped; sub-messages and groups nest at most [`MAX_DEPTH`]
//! deep.

use std::iter;
use std::ops::Range;

use super::Malformed;
use crate::schema::{Check, Checks};

/// How deep sub-messages and groups may nest in a datagram.
pub const MAX_DEPTH: u32 = 100;

/// The longest varint: 64 bits, 7 in each byte.
pub const MOST_VARINT: usize = 10;

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH_DELIMITED: u32 = 2;
const START_GROUP: u32 = 3;
const END_GROUP: u32 = 4;
const FIXED32: u32 = 5;

/// The position of bytes in others. 32 bits each, because every view of a datagram has several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Span {
    start: u32,
    end: u32,
}

impl Span {
    pub fn new(start: usize, end: usize) -> Self {
        Self { start: start as u32, end: end as u32 }
    }

    /// The position of `fragment` in the bytes that contain it.
    pub fn of(fragment: &[u8], whole: &[u8]) -> Self {
        let start = (fragment.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
        Self::new(start, start.wrapping_add(fragment.len()))
    }

    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// Whether there is no such position.
    pub fn is_nowhere(self) -> bool {
        self.end == 0
    }

    /// The number at this position; 0 if there is none.
    #[inline]
    pub fn number_in(self, packet: &[u8]) -> u64 {
        if self.is_nowhere() {
            return 0;
        }
        packet.get(self.range().start..).and_then(leading_varint).map_or(0, |(value, _)| value)
    }
}

/// The unread bytes of a message, and how deep fields may still nest in them.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
    depth: u32,
}

impl<'a> Reader<'a> {
    /// Reads a message in which fields may nest `depth` deep.
    #[inline]
    pub fn new(message: &'a [u8], depth: u32) -> Self {
        Self { rest: message, depth }
    }

    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// How many bytes are left: the position, counted from the end.
    #[inline]
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// Skips `bytes` bytes, or all.
    #[inline]
    pub fn pass(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    /// The next field's tag; None at the end of the message.
    #[inline]
    pub fn tag(&mut self) -> Result<Option<u32>, Malformed> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.short_varint()?;
        if is_field_zero(tag) { Err(Malformed) } else { Ok(Some(tag)) }
    }

    #[inline]
    pub fn varint(&mut self) -> Result<u64, Malformed> {
        match *self.rest {
            [first, ref rest @ ..] if first < 0x80 => {
                self.rest = rest;
                Ok(u64::from(first))
            }
            _ => self.long_varint(MOST_VARINT),
        }
    }

    /// A varint. Its position in `whole`, which contains these bytes, is stored in `position`.
    #[inline]
    pub fn varint_at(&mut self, whole: &[u8], position: &mut Span) -> Result<u64, Malformed> {
        let before = self.rest;
        let value = self.varint()?;
        *position = Span::of(&before[..before.len() - self.rest.len()], whole);
        Ok(value)
    }

    /// The lower half of a varint: the value of a field of 32 bits.
    #[inline]
    pub fn varint32(&mut self) -> Result<u32, Malformed> {
        self.varint().map(|value| value as u32)
    }

    /// An enum. The enums of proto3 are open: any value is kept.
    #[inline]
    pub fn open_enum(&mut self) -> Result<i32, Malformed> {
        self.varint().map(|value| value as i32)
    }

    #[inline]
    pub fn boolean(&mut self) -> Result<bool, Malformed> {
        self.varint().map(|value| value != 0)
    }

    #[inline]
    pub fn fixed64(&mut self) -> Result<u64, Malformed> {
        let (value, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*value))
    }

    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.short_varint()? as usize;
        let (value, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        self.rest = rest;
        Ok(value)
    }

    #[inline]
    pub fn text(&mut self) -> Result<&'a str, Malformed> {
        str::from_utf8(self.bytes()?).map_err(|_| Malformed)
    }

    /// A sub-message.
    #[inline]
    pub fn message(&mut self) -> Result<Reader<'a>, Malformed> {
        let depth = self.depth.checked_sub(1).ok_or(Malformed)?;
        Ok(Self { rest: self.bytes()?, depth })
    }

    /// A packed field of varints. It is checked here, and read by [`elements`].
    pub fn varints(&mut self) -> Result<(), Malformed> {
        let mut packed = Self { rest: self.bytes()?, depth: 0 };
        while packed.left() > 0 {
            packed.varint()?;
        }
        Ok(())
    }

    /// Skips the value of the field with this tag.
    #[inline]
    pub fn skip(&mut self, tag: u32) -> Result<(), Malformed> {
        self.rest = skip_value(self.rest, tag, self.depth)?;
        Ok(())
    }

    /// A tag or a length.
    #[inline]
    fn short_varint(&mut self) -> Result<u32, Malformed> {
        match *self.rest {
            [first, ref rest @ ..] if first < 0x80 => {
                self.rest = rest;
                Ok(u32::from(first))
            }
            _ => u32::try_from(self.long_varint(5)?).map_err(|_| Malformed),
        }
    }

    #[inline]
    fn long_varint(&mut self, limit: usize) -> Result<u64, Malformed> {
        let (value, rest) = split_varint(self.rest, limit)?;
        self.rest = rest;
        Ok(value)
    }
}

// These functions take and return the bytes by value. A reader whose address escapes into a call would stay
// in memory, and would cost the loops over fields a store and a load at each step.

fn split_varint(bytes: &[u8], limit: usize) -> Result<(u64, &[u8]), Malformed> {
    let (value, length) = leading_varint(bytes).filter(|&(_, length)| length <= limit).ok_or(Malformed)?;
    Ok((value, &bytes[length..]))
}

/// The varint that begins here, and its length.
#[inline]
pub fn leading_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let word = bytes.first_chunk().map(|&word| u64::from_le_bytes(word));
    word.and_then(join_groups).or_else(|| gather_groups(bytes))
}

/// As [`join_groups`], byte by byte.
fn gather_groups(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (index, &byte) in bytes.iter().take(MOST_VARINT).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Some((value, index + 1));
        }
    }
    None
}

/// The varint at the beginning of a word, and its length; None: it does not end within the word.
#[inline]
fn join_groups(word: u64) -> Option<(u64, usize)> {
    let ends = !word & 0x8080_8080_8080_8080;
    if ends == 0 {
        return None;
    }
    // Keeps the bytes up to the first whose highest bit is clear. Then groups of 7 bits are joined in pairs.
    let bytes = word & (ends ^ (ends - 1)) & 0x7f7f_7f7f_7f7f_7f7f;
    let pairs = bytes & 0x007f_007f_007f_007f | (bytes & 0x7f00_7f00_7f00_7f00) >> 1;
    let fours = pairs & 0x0000_3fff_0000_3fff | (pairs & 0x3fff_0000_3fff_0000) >> 2;
    let value = fours & 0x0fff_ffff | (fours & 0x0fff_ffff_0000_0000) >> 4;
    Some((value, ends.trailing_zeros() as usize / 8 + 1))
}

fn skip_value(bytes: &[u8], tag: u32, depth: u32) -> Result<&[u8], Malformed> {
    let mut reader = Reader { rest: bytes, depth };
    match wire_type(tag) {
        VARINT => reader.varint().map(drop)?,
        LENGTH_DELIMITED => reader.bytes().map(drop)?,
        START_GROUP => return skip_group(bytes, tag, depth),
        FIXED64 => return bytes.get(8..).ok_or(Malformed),
        FIXED32 => return bytes.get(4..).ok_or(Malformed),
        _ => return Err(Malformed),
    }
    Ok(reader.rest)
}

/// Skips a group to its end tag. (Within a group even field number 0 is accepted.)
fn skip_group(bytes: &[u8], start: u32, depth: u32) -> Result<&[u8], Malformed> {
    let mut reader = Reader { rest: bytes, depth: depth.checked_sub(1).ok_or(Malformed)? };
    let end = start - START_GROUP + END_GROUP;
    loop {
        let tag = reader.short_varint()?;
        if tag == end {
            return Ok(reader.rest);
        }
        reader.skip(tag)?;
    }
}

/// The content of each occurrence of a length-delimited field, in a message that was parsed before.
pub fn occurrences(message: &[u8], field: u32) -> impl Iterator<Item = &[u8]> {
    let mut reader = Reader::new(message, MAX_DEPTH);
    iter::from_fn(move || {
        loop {
            let tag = reader.tag().ok()??;
            if tag == field {
                return reader.bytes().ok();
            }
            reader.skip(tag).ok()?;
        }
    })
}

/// The elements of a repeated varint field, packed (`field`) or not (`element`), in a message that was parsed
/// before.
pub fn elements(message: &[u8], field: u32, element: u32) -> impl Iterator<Item = u64> {
    let mut reader = Reader::new(message, MAX_DEPTH);
    let mut packed = Reader::new(&[], 0);
    iter::from_fn(move || {
        loop {
            if packed.left() > 0 {
                return packed.varint().ok();
            }
            let tag = reader.tag().ok()??;
            if tag == field {
                packed = Reader::new(reader.bytes().ok()?, 0);
            } else if tag == element {
                return reader.varint().ok();
            } else {
                reader.skip(tag).ok()?;
            }
        }
    })
}

/// Whether a tag has field number 0, which no message has.
#[inline]
fn is_field_zero(tag: u32) -> bool {
    tag < 1 << 3
}

#[inline]
fn wire_type(tag: u32) -> u32 {
    tag & 0b111
}

/// Whether a protobuf parser accepts this message: a control packet, which the core does not read. (The recursion is as deep as the schema, which has no
/// cycles.)
pub fn check(mut message: Reader<'_>, checks: Checks) -> Result<(), Malformed> {
    while let Some(tag) = message.tag()? {
        match checks.iter().find(|(known, _)| *known == tag) {
            None => message.skip(tag)?,
            Some((_, Check::Utf8)) => message.text().map(drop)?,
            Some((_, Check::Varints)) => message.varints()?,
            Some((_, Check::Message(inner))) => check(message.message()?, inner)?,
        }
    }
    Ok(())
}
