//! Reads the data types of MQTT (MQTT 5 §1.5) from the body of a packet.

use crate::mqtt::codec::Checked;
use crate::mqtt::codec::reason::Reason;

/// The bytes of a body, or of its properties, that are not read yet.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub fn rest(self) -> &'a [u8] {
        self.rest
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Refuses excess bytes.
    pub fn end(self) -> Checked<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(Reason::MALFORMED) }
    }

    #[inline]
    pub fn take(&mut self, count: usize) -> Checked<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Reason::MALFORMED)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    pub fn byte(&mut self) -> Checked<u8> {
        Ok(self.take(1)?[0])
    }

    #[inline]
    pub fn u16(&mut self) -> Checked<u16> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    pub fn u32(&mut self) -> Checked<u32> {
        let bytes = self.take(4)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// A variable byte integer (MQTT 5 §1.5.5).
    #[inline]
    pub fn varint(&mut self) -> Checked<u32> {
        let mut value = 0;
        for at in 0..4 {
            let byte = self.byte()?;
            value |= u32::from(byte & 0x7F) << (7 * at);
            if byte & 0x80 == 0 {
                return if byte == 0 && at > 0 { Err(Reason::MALFORMED) } else { Ok(value) };
            }
        }
        Err(Reason::MALFORMED)
    }

    #[inline]
    pub fn binary(&mut self) -> Checked<&'a [u8]> {
        let length = self.u16()?;
        self.take(usize::from(length))
    }

    /// A UTF-8 encoded string (MQTT 5 §1.5.4): without surrogates, which Rust's strings never contain, and
    /// without U+0000.
    #[inline]
    pub fn text(&mut self) -> Checked<&'a str> {
        let text = str::from_utf8(self.binary()?).map_err(|_| Reason::MALFORMED)?;
        if text.as_bytes().contains(&0) { Err(Reason::MALFORMED) } else { Ok(text) }
    }

    /// A packet identifier (MQTT 5 §2.2.1).
    #[inline]
    pub fn packet_id(&mut self) -> Checked<u16> {
        match self.u16()? {
            0 => Err(Reason::MALFORMED),
            id => Ok(id),
        }
    }

    /// The properties (MQTT 5 §2.2.2), which begin with their length.
    #[inline]
    pub fn properties(&mut self) -> Checked<Reader<'a>> {
        let length = self.varint()?;
        Ok(Self { rest: self.take(length as usize)? })
    }
}
