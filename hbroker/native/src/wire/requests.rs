//! The client of a packet outside of a session is found by the request that the packet makes or answers, or
//! by a session.

use super::reader::{MAX_DEPTH, Reader, occurrences};
use super::view::{Body, Kind, PacketView};
use crate::schema::{leave, order, order_ack, packet, pub_accept, pub_connect, referral, sub_ack, subscribe};

/// The number of the request that a client makes with this packet, or that the packet answers; `None`:
/// neither.
pub fn request_of(view: &PacketView<'_>) -> Option<u64> {
    let Body::Control(kind) = view.body else { return None };
    let (body, field) = match kind {
        Kind::PubConnect => (packet::PUBCONNECT, pub_connect::REQUEST),
        Kind::PubAccept => (packet::PUBACCEPT, pub_accept::REQUEST),
        Kind::Subscribe => (packet::SUBSCRIBE, subscribe::REQUEST),
        Kind::SubAck => (packet::SUBACK, sub_ack::REQUEST),
        Kind::Referral => (packet::REFERRAL, referral::REQUEST),
        Kind::Order => (packet::ORDER, order::REQUEST),
        Kind::OrderAck => (packet::ORDERACK, order_ack::REQUEST),
        _ => return None,
    };
    last_fixed64(view, body, field)
}

/// The session that was taken over, according to LEAVE (§6.4); `None`: another packet.
pub fn session_of(view: &PacketView<'_>) -> Option<u64> {
    let is_leave = matches!(view.body, Body::Control(Kind::Leave));
    is_leave.then(|| last_fixed64(view, packet::LEAVE, leave::SESSION)).flatten()
}

/// A field of a packet's body. If it occurs several times, the last value counts (§2.1).
fn last_fixed64(view: &PacketView<'_>, body: u32, field: u32) -> Option<u64> {
    let in_body = |content| {
        let (mut reader, mut value) = (Reader::new(content, MAX_DEPTH), None);
        // It was parsed when it was received.
        while let Ok(Some(tag)) = reader.tag() {
            if tag == field {
                value = reader.fixed64().ok();
            } else {
                reader.skip(tag).ok()?;
            }
        }
        value
    };
    occurrences(view.raw, body).filter_map(in_body).last()
}
