//! SUBSCRIBE, UNSUBSCRIBE, DISCONNECT and AUTH from a client. The crate parses them; this module checks the
//! rules that the crate does not know.

use bytes::BytesMut;
use rmqtt_codec::error::DecodeError;
use rmqtt_codec::{v3, v5};
use tokio_util::codec::Decoder;

use crate::mqtt::codec::Checked;
use crate::mqtt::codec::frame::Frame;
use crate::mqtt::codec::packets::{Auth, Disconnect, Subscribe, Subscription, Unsubscribe, Version};
use crate::mqtt::codec::reader::Reader;
use crate::mqtt::codec::reason::Reason;
use crate::topic;

const SHARED: &str = "$share/";

/// Parses SUBSCRIBE (MQTT 5 §3.8).
///
/// # Errors
/// The reason code of the violation.
pub fn subscribe(version: Version, frame: &Frame<'_>) -> Checked<Subscribe> {
    check_options(version, frame)?;
    match decode(version, frame)? {
        Decoded::V3(v3::Packet::Subscribe { packet_id, topic_filters }) => {
            let filters = topic_filters.iter().map(|(filter, qos)| Subscription {
                filter: filter.to_string(),
                qos: qos.value(),
                no_local: false,
                retain_as_published: false,
                retain_handling: 0,
            });
            checked(Subscribe { packet_id: packet_id.get(), identifier: 0, filters: filters.collect() })
        }
        Decoded::V5(v5::Packet::Subscribe(packet)) => {
            let filters = packet.topic_filters.iter().map(|(filter, options)| Subscription {
                filter: filter.to_string(),
                qos: options.qos.value(),
                no_local: options.no_local,
                retain_as_published: options.retain_as_published,
                retain_handling: options.retain_handling.into(),
            });
            checked(Subscribe {
                packet_id: packet.packet_id.get(),
                identifier: packet.id.map_or(0, std::num::NonZeroU32::get),
                filters: filters.collect(),
            })
        }
        _ => Err(Reason::MALFORMED),
    }
}

/// Parses UNSUBSCRIBE (MQTT 5 §3.10).
///
/// # Errors
/// The reason code of the violation.
pub fn unsubscribe(version: Version, frame: &Frame<'_>) -> Checked<Unsubscribe> {
    let mut body = Reader::new(frame.body);
    body.packet_id()?;
    if version == Version::V5 {
        check_properties(body.properties()?)?;
    }
    let (packet_id, filters) = match decode(version, frame)? {
        Decoded::V3(v3::Packet::Unsubscribe { packet_id, topic_filters }) => (packet_id, topic_filters),
        Decoded::V5(v5::Packet::Unsubscribe(packet)) => (packet.packet_id, packet.topic_filters),
        _ => return Err(Reason::MALFORMED),
    };
    let filters: Vec<String> = filters.iter().map(ToString::to_string).collect();
    // MQTT 5 §3.10.3
    if filters.is_empty() {
        return Err(Reason::PROTOCOL_ERROR);
    }
    if !filters.iter().all(|filter| is_filter(filter)) {
        return Err(Reason::TOPIC_FILTER_INVALID);
    }
    Ok(Unsubscribe { packet_id: packet_id.get(), filters })
}

/// Parses DISCONNECT (MQTT 5 §3.14).
///
/// # Errors
/// The reason code of the violation.
pub fn disconnect(version: Version, frame: &Frame<'_>) -> Checked<Disconnect> {
    if version < Version::V5 {
        let is_empty = frame.body.is_empty() && frame.flags == 0;
        let disconnect = Disconnect { reason: Reason::SUCCESS, session_expiry: None };
        return if is_empty { Ok(disconnect) } else { Err(Reason::MALFORMED) };
    }
    check_tail(frame)?;
    let Decoded::V5(v5::Packet::Disconnect(packet)) = decode(version, frame)? else {
        return Err(Reason::MALFORMED);
    };
    let reason = Reason(packet.reason_code.into());
    // MQTT 5 §3.14.2: the properties and reason codes that only a server may send.
    if packet.server_reference.is_some() || !is_a_clients(reason) {
        return Err(Reason::PROTOCOL_ERROR);
    }
    Ok(Disconnect { reason, session_expiry: packet.session_expiry_interval_secs })
}

/// Parses AUTH (MQTT 5 §3.15).
///
/// # Errors
/// The reason code of the violation.
pub fn auth(frame: &Frame<'_>) -> Checked<Auth> {
    check_tail(frame)?;
    let Decoded::V5(v5::Packet::Auth(packet)) = decode(Version::V5, frame)? else {
        return Err(Reason::MALFORMED);
    };
    let reason = Reason(packet.reason_code.into());
    // MQTT 5 §3.15.2.1: only a server sends "success".
    let (false, Some(method)) = (reason == Reason::SUCCESS, packet.auth_method) else {
        return Err(Reason::PROTOCOL_ERROR);
    };
    Ok(Auth { reason, method: method.into(), data: packet.auth_data })
}

/// Whether this is a topic filter (MQTT 5 §4.7). Python checks the rest of a filter behind `$share/` (MQTT 5
/// §4.8.2): it refuses an invalid one in SUBACK, and the connection stays open.
fn is_filter(filter: &str) -> bool {
    filter.starts_with(SHARED) || topic::filter_is_valid(filter)
}

/// Checks a list of properties (MQTT 5 §2.2.2): each except the user property at most once, with a value of
/// its type and range.
pub(super) fn check_properties(mut properties: Reader<'_>) -> Checked<()> {
    let mut seen = 0_u64;
    while !properties.is_empty() {
        let id = properties.byte()?;
        let value = match id {
            0x01 | 0x17 | 0x19 | 0x24 | 0x25 | 0x28..=0x2A => u32::from(properties.byte()?),
            0x13 | 0x21 | 0x22 | 0x23 => u32::from(properties.u16()?),
            0x02 | 0x11 | 0x18 | 0x27 => properties.u32()?,
            0x0B => properties.varint()?,
            0x03 | 0x08 | 0x12 | 0x15 | 0x1A | 0x1C | 0x1F => properties.text().map(|_| 1)?,
            0x09 | 0x16 => properties.binary().map(|_| 1)?,
            0x26 => properties.text().and(properties.text()).map(|_| 1)?,
            _ => return Err(Reason::MALFORMED),
        };
        let is_in_range = match id {
            0x01 | 0x17 | 0x19 => value <= 1,
            0x0B | 0x21 | 0x27 => value > 0,
            _ => true,
        };
        if !is_in_range || (id != 0x26 && seen & 1 << id != 0) {
            return Err(Reason::PROTOCOL_ERROR);
        }
        seen |= 1 << id;
    }
    Ok(())
}

pub(super) enum Decoded {
    V3(v3::Packet),
    V5(v5::Packet),
}

/// The packet, as the crate parses it.
pub(super) fn decode(version: Version, frame: &Frame<'_>) -> Checked<Decoded> {
    decode_bytes(version, BytesMut::from(frame.bytes))
}

pub(super) fn decode_bytes(version: Version, mut bytes: BytesMut) -> Checked<Decoded> {
    if version == Version::V31 {
        // MQTT 3.1 §2.1: SUBSCRIBE and UNSUBSCRIBE may have the DUP flag.
        bytes[0] &= !0b1000;
    }
    let decoded = match version {
        Version::V5 => {
            v5::Codec::new(0, 0).decode(&mut bytes).map(|packet| packet.map(|(it, _)| Decoded::V5(it)))
        }
        _ => v3::Codec::new(0).decode(&mut bytes).map(|packet| packet.map(|(it, _)| Decoded::V3(it))),
    };
    match decoded {
        Ok(Some(packet)) => Ok(packet),
        Err(DecodeError::InvalidClientId) => Err(Reason::CLIENT_ID_INVALID),
        Err(DecodeError::UnsupportedProtocolLevel) => Err(Reason::UNSUPPORTED_VERSION),
        Ok(None) | Err(_) => Err(Reason::MALFORMED),
    }
}

/// Checks the filters of a SUBSCRIBE, and the rules of MQTT 5 for shared subscriptions.
fn checked(subscribe: Subscribe) -> Checked<Subscribe> {
    // MQTT 5 §3.8.3
    if subscribe.filters.is_empty() {
        return Err(Reason::PROTOCOL_ERROR);
    }
    for subscription in &subscribe.filters {
        if !is_filter(&subscription.filter) {
            return Err(Reason::TOPIC_FILTER_INVALID);
        }
        // MQTT 5 §3.8.3.1
        if subscription.no_local && subscription.filter.starts_with(SHARED) {
            return Err(Reason::PROTOCOL_ERROR);
        }
    }
    Ok(subscribe)
}

/// Checks the properties, and the options of each filter (MQTT 5 §3.8.3.1; MQTT 3.1.1 §3.8.3).
fn check_options(version: Version, frame: &Frame<'_>) -> Checked<()> {
    let mut body = Reader::new(frame.body);
    body.packet_id()?;
    if version == Version::V5 {
        check_properties(body.properties()?)?;
    }
    while !body.is_empty() {
        body.text()?;
        let options = body.byte()?;
        let reserved = if version == Version::V5 { 0xC0 } else { 0xFC };
        if options & reserved != 0 || (version < Version::V5 && options == 3) {
            return Err(Reason::MALFORMED);
        }
        if options & 0x03 == 3 || options & 0x30 == 0x30 {
            return Err(Reason::PROTOCOL_ERROR);
        }
    }
    Ok(())
}

/// Checks what follows the reason code of DISCONNECT and AUTH.
fn check_tail(frame: &Frame<'_>) -> Checked<()> {
    let mut body = Reader::new(frame.body);
    if body.is_empty() {
        return Ok(());
    }
    body.byte()?;
    if !body.is_empty() {
        check_properties(body.properties()?)?;
    }
    body.end()
}

/// Whether a client may send this reason code in DISCONNECT (MQTT 5 §3.14.2.1).
fn is_a_clients(reason: Reason) -> bool {
    matches!(reason.0, 0x00 | 0x04 | 0x80..=0x83 | 0x90 | 0x93..=0x99)
}
