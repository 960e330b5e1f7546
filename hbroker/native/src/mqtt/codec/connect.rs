//! CONNECT (MQTT 5 §3.1) of all three versions.

use bytes::Bytes;

use crate::mqtt::codec::Checked;
use crate::mqtt::codec::frame::{Frame, kind};
use crate::mqtt::codec::packets::{Connect, Version, Will};
use crate::mqtt::codec::properties::{Properties, USER_PROPERTY};
use crate::mqtt::codec::reader::Reader;
use crate::mqtt::codec::reason::Reason;
use crate::topic;

const USER_NAME: u8 = 0x80;
const PASSWORD: u8 = 0x40;
const WILL_RETAIN: u8 = 0x20;
const WILL_QOS: u8 = 0x18;
const WILL: u8 = 0x04;
const CLEAN_START: u8 = 0x02;
const RESERVED: u8 = 0x01;
/// The bit of the protocol level by which mosquitto's bridge identifies itself as a bridge before MQTT 5
/// (`try_private` in mosquitto.conf). Other brokers know it, too.
const BRIDGE: u8 = 0x80;

/// A refused first packet, and the version to answer in. None: it is not MQTT, and gets no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidConnect {
    pub version: Option<Version>,
    pub reason: Reason,
}

/// Parses the first packet of a stream.
///
/// # Errors
/// It is no CONNECT, or violates the protocol.
pub fn parse(frame: &Frame<'_>) -> Result<Connect, InvalidConnect> {
    if frame.kind != kind::CONNECT || frame.flags != 0 {
        return Err(InvalidConnect { version: None, reason: Reason::PROTOCOL_ERROR });
    }
    let (version, is_bridge) = version(frame.body)?;
    let connect = parse_body(version, Reader::new(frame.body))
        .map_err(|reason| InvalidConnect { version: Some(version), reason })?;
    Ok(Connect { is_bridge, ..connect })
}

/// The version, and whether the client identifies itself as a bridge.
fn version(body: &[u8]) -> Result<(Version, bool), InvalidConnect> {
    let mut body = Reader::new(body);
    let unsupported =
        |version| InvalidConnect { version: Some(version), reason: Reason::UNSUPPORTED_VERSION };
    match body.binary().and_then(|name| Ok((name, body.byte()?))) {
        Ok((b"MQTT", 5)) => Ok((Version::V5, false)),
        Ok((b"MQTT", level)) if level & !BRIDGE == 4 => Ok((Version::V311, level & BRIDGE != 0)),
        Ok((b"MQIsdp", level)) if level & !BRIDGE == 3 => Ok((Version::V31, level & BRIDGE != 0)),
        // MQTT 5 §3.1.2.2, for later versions. A client of MQTT 3 knows the CONNACK of MQTT 3 only (MQTT
        // 3.1.1 §3.1.2.2).
        Ok((b"MQTT", level)) if level & !BRIDGE >= 5 => Err(unsupported(Version::V5)),
        Ok((b"MQTT" | b"MQIsdp", _)) => Err(unsupported(Version::V311)),
        _ => Err(InvalidConnect { version: None, reason: Reason::PROTOCOL_ERROR }),
    }
}

fn will_of(flags: u8, properties: &Properties<'_>, topic: &str, payload: &[u8]) -> Checked<Will> {
    properties.only(&[0x01, 0x02, 0x03, 0x08, 0x09, 0x18, USER_PROPERTY])?;
    Ok(Will {
        topic: topic.to_owned(),
        payload: Bytes::copy_from_slice(payload),
        qos: (flags & WILL_QOS) >> 3,
        retain: flags & WILL_RETAIN != 0,
        delay_s: properties.number(0x18).unwrap_or(0),
        expiry_s: properties.number(0x02),
        is_text: properties.number(0x01).map(|format| format == 1),
        content_type: properties.text(0x03),
        response_topic: properties.text(0x08),
        correlation_data: properties.data(0x09),
        user_properties: properties.user_properties(),
    })
}

fn parse_body(version: Version, mut body: Reader<'_>) -> Checked<Connect> {
    body.binary()?;
    body.byte()?;
    let flags = body.byte()?;
    let has = |flag| flags & flag != 0;
    let keep_alive = body.u16()?;
    let is_contradictory = (!has(WILL) && has(WILL_QOS | WILL_RETAIN))
        || flags & WILL_QOS == WILL_QOS
        // MQTT 3.1.1 §3.1.2.9
        || (version < Version::V5 && has(PASSWORD) && !has(USER_NAME));
    if has(RESERVED) || is_contradictory {
        return Err(Reason::MALFORMED);
    }
    let properties = Properties::read(version, &mut body)?;
    let client_id = body.text()?.to_owned();
    let will = has(WILL).then(|| Ok((Properties::read(version, &mut body)?, body.text()?, body.binary()?)));
    let will = will.transpose()?;
    let user = has(USER_NAME).then(|| body.text().map(str::to_owned)).transpose()?;
    let password = has(PASSWORD).then(|| body.binary().map(Bytes::copy_from_slice)).transpose()?;
    body.end()?;
    properties.only(&[0x11, 0x15, 0x16, 0x17, 0x19, 0x21, 0x22, USER_PROPERTY, 0x27])?;
    let clean_start = has(CLEAN_START);
    // MQTT 3.1.1 §3.1.3.1; MQTT 3.1 §3.1: a client id has at least one character.
    let needs_id = version == Version::V31 || (version == Version::V311 && !clean_start);
    if client_id.is_empty() && needs_id {
        return Err(Reason::CLIENT_ID_INVALID);
    }
    let will = will.map(|(properties, topic, payload)| will_of(flags, &properties, topic, payload));
    let will = will.transpose()?;
    let (authentication_method, authentication_data) = (properties.text(0x15), properties.data(0x16));
    // MQTT 5 §4.12: authentication data without a method is a protocol error.
    if authentication_data.is_some() && authentication_method.is_none() {
        return Err(Reason::PROTOCOL_ERROR);
    }
    let is_topic = |topic: &str| topic::topic_is_valid(topic);
    let is_fit = |will: &Will| is_topic(&will.topic) && will.response_topic.as_deref().is_none_or(is_topic);
    if !will.as_ref().is_none_or(is_fit) {
        return Err(Reason::TOPIC_NAME_INVALID);
    }
    let forever = if clean_start { 0 } else { u32::MAX };
    Ok(Connect {
        version,
        is_bridge: false,
        client_id,
        clean_start,
        keep_alive,
        session_expiry: if version < Version::V5 { forever } else { properties.number(0x11).unwrap_or(0) },
        user,
        password,
        will,
        receive_maximum: properties.number(0x21).map_or(u16::MAX, |most| most as u16),
        maximum_packet: properties.number(0x27),
        topic_alias_maximum: properties.number(0x22).map_or(0, |most| most as u16),
        wants_problem_information: properties.number(0x17) != Some(0),
        authentication_method,
        authentication_data,
    })
}
