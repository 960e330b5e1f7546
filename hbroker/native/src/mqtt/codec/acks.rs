//! PUBACK, PUBREC, PUBREL and PUBCOMP (MQTT 5 §§3.4–3.7), both ways.

use crate::mqtt::codec::Checked;
use crate::mqtt::codec::frame::{Frame, kind, put_binary, put_varint, varint_len};
use crate::mqtt::codec::packets::Version;
use crate::mqtt::codec::properties::{Properties, USER_PROPERTY};
use crate::mqtt::codec::reader::Reader;
use crate::mqtt::codec::reason::Reason;

const REASON_STRING: u8 = 0x1F;

/// Parses an acknowledgement: the packet id and the reason code.
///
/// # Errors
/// The reason code of the violation.
pub fn parse(version: Version, frame: &Frame<'_>) -> Checked<(u16, Reason)> {
    // MQTT 3.1 §2.1: PUBREL may have the DUP flag.
    let flags = if version == Version::V31 { frame.flags & 0b0111 } else { frame.flags };
    if flags != expected_flags(frame.kind) {
        return Err(Reason::MALFORMED);
    }
    let mut body = Reader::new(frame.body);
    let packet_id = body.packet_id()?;
    if version < Version::V5 || body.is_empty() {
        body.end()?;
        return Ok((packet_id, Reason::SUCCESS));
    }
    let reason = Reason(body.byte()?);
    if !body.is_empty() {
        Properties::read(version, &mut body)?.only(&[REASON_STRING, USER_PROPERTY])?;
        body.end()?;
    }
    if is_allowed(frame.kind, reason) { Ok((packet_id, reason)) } else { Err(Reason::MALFORMED) }
}

/// Appends an acknowledgement. Before MQTT 5 it has no reason code. `text`: the reason string; empty: none.
pub fn put(
    out: &mut Vec<u8>,
    version: Version,
    kind: u8,
    packet_id: u16,
    reason: Reason,
    text: &'static str,
) {
    let [high, low] = packet_id.to_be_bytes();
    let first = kind << 4 | expected_flags(kind);
    if version < Version::V5 || reason == Reason::SUCCESS {
        out.extend_from_slice(&[first, 2, high, low]);
    } else if text.is_empty() {
        out.extend_from_slice(&[first, 3, high, low, reason.0]);
    } else {
        let listed = 1 + 2 + text.len();
        out.push(first);
        put_varint(out, 3 + varint_len(listed) + listed);
        out.extend_from_slice(&[high, low, reason.0]);
        put_varint(out, listed);
        out.push(REASON_STRING);
        put_binary(out, text.as_bytes());
    }
}

/// The size in bytes of an acknowledgement with this reason string.
pub fn len_with(text: &str) -> usize {
    let listed = 1 + 2 + text.len();
    let remaining = 3 + varint_len(listed) + listed;
    1 + varint_len(remaining) + remaining
}

/// Whether an acknowledgement of this type may have this reason code (MQTT 5 §3.4.2.1 and corresponding
/// sections).
pub fn is_allowed(kind: u8, reason: Reason) -> bool {
    match kind {
        kind::PUBREL | kind::PUBCOMP => {
            matches!(reason, Reason::SUCCESS | Reason::PACKET_ID_NOT_FOUND)
        }
        _ => matches!(
            reason,
            Reason::SUCCESS
                | Reason::NO_MATCHING_SUBSCRIBERS
                | Reason::UNSPECIFIED
                | Reason::IMPLEMENTATION_SPECIFIC
                | Reason::NOT_AUTHORIZED
                | Reason::TOPIC_NAME_INVALID
                | Reason::PACKET_ID_IN_USE
                | Reason::QUOTA_EXCEEDED
                | Reason::PAYLOAD_FORMAT_INVALID
        ),
    }
}

fn expected_flags(kind: u8) -> u8 {
    if kind == kind::PUBREL { 0b0010 } else { 0 }
}
