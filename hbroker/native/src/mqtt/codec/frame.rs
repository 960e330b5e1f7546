//! The fixed header (MQTT 5 §2.1): it tells where a packet ends.

use crate::mqtt::codec::Checked;
use crate::mqtt::codec::reason::Reason;

/// The largest remaining length (MQTT 5 §2.1.4).
pub const MAX_REMAINING: usize = 268_435_455;

/// Packet types (MQTT 5 §2.1.2).
pub mod kind {
    pub const CONNECT: u8 = 1;
    pub const CONNACK: u8 = 2;
    pub const PUBLISH: u8 = 3;
    pub const PUBACK: u8 = 4;
    pub const PUBREC: u8 = 5;
    pub const PUBREL: u8 = 6;
    pub const PUBCOMP: u8 = 7;
    pub const SUBSCRIBE: u8 = 8;
    pub const SUBACK: u8 = 9;
    pub const UNSUBSCRIBE: u8 = 10;
    pub const UNSUBACK: u8 = 11;
    pub const PINGREQ: u8 = 12;
    pub const PINGRESP: u8 = 13;
    pub const DISCONNECT: u8 = 14;
    pub const AUTH: u8 = 15;
}

/// One complete packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub kind: u8,
    pub flags: u8,
    /// The bytes after the fixed header.
    pub body: &'a [u8],
    /// The bytes of the packet, fixed header included.
    pub bytes: &'a [u8],
}

/// The size in bytes of the first packet in `bytes`; None if its fixed header is incomplete.
///
/// # Errors
/// The length is malformed, or the packet is larger than `most` bytes.
pub fn length(bytes: &[u8], most: usize) -> Checked<Option<usize>> {
    let mut remaining = 0;
    for (at, &byte) in bytes.iter().skip(1).take(4).enumerate() {
        remaining |= usize::from(byte & 0x7F) << (7 * at);
        if byte & 0x80 == 0 {
            // MQTT 5 §1.5.5: a length has the shortest encoding.
            if byte == 0 && at > 0 {
                return Err(Reason::MALFORMED);
            }
            let length = 2 + at + remaining;
            return if length > most { Err(Reason::PACKET_TOO_LARGE) } else { Ok(Some(length)) };
        }
    }
    if bytes.len() > 4 { Err(Reason::MALFORMED) } else { Ok(None) }
}

/// The first packet in `bytes`; None if it is incomplete.
///
/// # Errors
/// As [`length`].
#[inline]
pub fn split(bytes: &[u8], most: usize) -> Checked<Option<Frame<'_>>> {
    let Some(length) = length(bytes, most)? else {
        return Ok(None);
    };
    let Some(packet) = bytes.get(..length) else {
        return Ok(None);
    };
    let header = 2 + packet[1..].iter().take_while(|byte| **byte & 0x80 != 0).count().min(3);
    Ok(Some(Frame { kind: packet[0] >> 4, flags: packet[0] & 0x0F, body: &packet[header..], bytes: packet }))
}

/// The size in bytes of a variable byte integer.
pub fn varint_len(value: usize) -> usize {
    match value {
        0..=0x7F => 1,
        0x80..=0x3FFF => 2,
        0x4000..=0x1F_FFFF => 3,
        _ => 4,
    }
}

/// Appends a variable byte integer of at most `MAX_REMAINING`.
pub fn put_varint(out: &mut Vec<u8>, mut value: usize) {
    debug_assert!(value <= MAX_REMAINING);
    while value > 0x7F {
        out.push((value & 0x7F) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a string or binary data (MQTT 5 §1.5.4, §1.5.6) of at most 65,535 bytes.
pub fn put_binary(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend_from_slice(&bytes[..bytes.len().min(usize::from(u16::MAX))]);
}
