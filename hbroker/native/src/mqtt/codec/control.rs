//! SUBSCRIBE, UNSUBSCRIBE, DISCONNECT and AUTH from a client.

use crate::mqtt::codec::Checked;
use crate::mqtt::codec::frame::Frame;
use crate::mqtt::codec::packets::{Auth, Disconnect, Subscribe, Subscription, Unsubscribe, Version};
use crate::mqtt::codec::properties::{Properties, USER_PROPERTY};
use crate::mqtt::codec::reader::Reader;
use crate::mqtt::codec::reason::Reason;
use crate::topic;

const SHARED: &str = "$share/";
const SUBSCRIPTION_IDENTIFIER: u8 = 0x0B;
const SESSION_EXPIRY: u8 = 0x11;
const AUTHENTICATION_METHOD: u8 = 0x15;
const AUTHENTICATION_DATA: u8 = 0x16;
const SERVER_REFERENCE: u8 = 0x1C;
const REASON_STRING: u8 = 0x1F;

/// Parses SUBSCRIBE (MQTT 5 §3.8).
///
/// # Errors
/// The reason code of the violation.
pub fn subscribe(version: Version, frame: &Frame<'_>) -> Checked<Subscribe> {
    let mut body = Reader::new(frame.body);
    let packet_id = body.packet_id()?;
    let properties = Properties::read(version, &mut body)?;
    let mut filters = Vec::new();
    while !body.is_empty() {
        let filter = body.text()?.to_owned();
        filters.push(subscription(version, filter, body.byte()?)?);
    }
    check_flags(version, frame)?;
    properties.only(&[SUBSCRIPTION_IDENTIFIER, USER_PROPERTY])?;
    // MQTT 5 §3.8.3
    if filters.is_empty() {
        return Err(Reason::PROTOCOL_ERROR);
    }
    for Subscription { filter, no_local, .. } in &filters {
        if !is_filter(filter) {
            return Err(Reason::TOPIC_FILTER_INVALID);
        }
        // MQTT 5 §3.8.3.1
        if *no_local && filter.starts_with(SHARED) {
            return Err(Reason::PROTOCOL_ERROR);
        }
    }
    Ok(Subscribe { packet_id, identifier: properties.number(SUBSCRIPTION_IDENTIFIER).unwrap_or(0), filters })
}

/// A filter with its options (MQTT 5 §3.8.3.1; MQTT 3.1.1 §3.8.3).
fn subscription(version: Version, filter: String, options: u8) -> Checked<Subscription> {
    let reserved = if version == Version::V5 { 0xC0 } else { 0xFC };
    if options & reserved != 0 || (version < Version::V5 && options == 3) {
        return Err(Reason::MALFORMED);
    }
    let (qos, retain_handling) = (options & 3, options >> 4);
    if qos == 3 || retain_handling == 3 {
        return Err(Reason::PROTOCOL_ERROR);
    }
    let (no_local, retain_as_published) = (options & 0x04 != 0, options & 0x08 != 0);
    Ok(Subscription { filter, qos, no_local, retain_as_published, retain_handling })
}

/// Parses UNSUBSCRIBE (MQTT 5 §3.10).
///
/// # Errors
/// The reason code of the violation.
pub fn unsubscribe(version: Version, frame: &Frame<'_>) -> Checked<Unsubscribe> {
    let mut body = Reader::new(frame.body);
    let packet_id = body.packet_id()?;
    let properties = Properties::read(version, &mut body)?;
    check_flags(version, frame)?;
    properties.only(&[USER_PROPERTY])?;
    let mut filters = Vec::new();
    while !body.is_empty() {
        filters.push(body.text()?.to_owned());
    }
    // MQTT 5 §3.10.3
    if filters.is_empty() {
        return Err(Reason::PROTOCOL_ERROR);
    }
    if !filters.iter().all(|filter| is_filter(filter)) {
        return Err(Reason::TOPIC_FILTER_INVALID);
    }
    Ok(Unsubscribe { packet_id, filters })
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
    let (reason, properties) = read_tail(frame)?;
    // MQTT 5 §3.14.2.1: the codes of DISCONNECT.
    if !matches!(reason.0, 0x00 | 0x04 | 0x80..=0x83 | 0x87 | 0x89 | 0x8B..=0x90 | 0x93..=0xA2) {
        return Err(Reason::MALFORMED);
    }
    properties.only(&[SESSION_EXPIRY, SERVER_REFERENCE, REASON_STRING, USER_PROPERTY])?;
    // MQTT 5 §3.14.2: the properties and reason codes that only a server may send.
    let is_a_clients = matches!(reason.0, 0x00 | 0x04 | 0x80..=0x83 | 0x90 | 0x93..=0x99);
    if properties.text(SERVER_REFERENCE).is_some() || !is_a_clients {
        return Err(Reason::PROTOCOL_ERROR);
    }
    Ok(Disconnect { reason, session_expiry: properties.number(SESSION_EXPIRY) })
}

/// Parses AUTH (MQTT 5 §3.15).
///
/// # Errors
/// The reason code of the violation.
pub fn auth(frame: &Frame<'_>) -> Checked<Auth> {
    let (reason, properties) = read_tail(frame)?;
    if !matches!(reason, Reason::SUCCESS | Reason::CONTINUE_AUTHENTICATION | Reason::REAUTHENTICATE) {
        return Err(Reason::MALFORMED);
    }
    properties.only(&[AUTHENTICATION_METHOD, AUTHENTICATION_DATA, REASON_STRING, USER_PROPERTY])?;
    // MQTT 5 §3.15.2.1: only a server sends "success".
    let (false, Some(method)) = (reason == Reason::SUCCESS, properties.text(AUTHENTICATION_METHOD)) else {
        return Err(Reason::PROTOCOL_ERROR);
    };
    Ok(Auth { reason, method, data: properties.data(AUTHENTICATION_DATA) })
}

/// Whether this is a topic filter (MQTT 5 §4.7). Python checks the rest of a filter behind `$share/` (MQTT 5
/// §4.8.2): it refuses an invalid one in SUBACK, and the connection stays open.
fn is_filter(filter: &str) -> bool {
    filter.starts_with(SHARED) || topic::filter_is_valid(filter)
}

/// The flags of SUBSCRIBE and UNSUBSCRIBE. MQTT 3.1 §2.1: they may have the DUP flag.
fn check_flags(version: Version, frame: &Frame<'_>) -> Checked<()> {
    let flags = if version == Version::V31 { frame.flags & 0b0111 } else { frame.flags };
    if flags == 0b0010 { Ok(()) } else { Err(Reason::MALFORMED) }
}

/// The reason code and the properties of DISCONNECT and AUTH. Both may be left out.
fn read_tail<'a>(frame: &Frame<'a>) -> Checked<(Reason, Properties<'a>)> {
    let mut body = Reader::new(frame.body);
    let reason = if body.is_empty() { Reason::SUCCESS } else { Reason(body.byte()?) };
    let properties =
        if body.is_empty() { Properties::default() } else { Properties::read(Version::V5, &mut body)? };
    body.end()?;
    if frame.flags == 0 { Ok((reason, properties)) } else { Err(Reason::MALFORMED) }
}
