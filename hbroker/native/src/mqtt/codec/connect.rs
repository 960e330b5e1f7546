//! CONNECT (MQTT 5 §3.1) of all three versions. The crate parses it; this module checks the rules that the
//! crate does not know.

use bytes::BytesMut;
use bytestring::ByteString;
use rmqtt_codec::{v3, v5};

use crate::mqtt::codec::Checked;
use crate::mqtt::codec::control::{Decoded, check_properties, decode_bytes};
use crate::mqtt::codec::frame::{Frame, kind};
use crate::mqtt::codec::packets::{Connect, Version, Will};
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
/// The offset of the connect flags, behind the name "MQTT" and the level.
const V5_FLAGS_AT: usize = 7;
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
    let connect =
        parse_body(version, frame).map_err(|reason| InvalidConnect { version: Some(version), reason })?;
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

fn parse_body(version: Version, frame: &Frame<'_>) -> Checked<Connect> {
    let flags = check(version, Reader::new(frame.body))?;
    let mut bytes = BytesMut::from(frame.bytes);
    let body = frame.bytes.len() - frame.body.len();
    if version == Version::V5 {
        // MQTT 5 §3.1.3.1: an empty client id is valid with any Clean Start. The crate requires Clean Start,
        // so it is set here.
        bytes[body + V5_FLAGS_AT] |= CLEAN_START;
    } else {
        let level = body + 2 + usize::from(u16::from_be_bytes([frame.body[0], frame.body[1]]));
        bytes[level] &= !BRIDGE;
    }
    let mut connect = match decode_bytes(version, bytes)? {
        Decoded::V3(v3::Packet::Connect(packet)) => from_v3(version, *packet),
        Decoded::V5(v5::Packet::Connect(packet)) => from_v5(*packet),
        _ => return Err(Reason::MALFORMED),
    };
    connect.clean_start = flags & CLEAN_START != 0;
    // MQTT 3.1 §3.1: a client id has at least one character.
    if version == Version::V31 && connect.client_id.is_empty() {
        return Err(Reason::CLIENT_ID_INVALID);
    }
    // MQTT 5 §4.12: authentication data without a method is a protocol error.
    if connect.authentication_data.is_some() && connect.authentication_method.is_none() {
        return Err(Reason::PROTOCOL_ERROR);
    }
    if let Some(will) = &connect.will {
        let is_fit = topic::topic_is_valid(&will.topic)
            && will.response_topic.as_deref().is_none_or(topic::topic_is_valid);
        return if is_fit { Ok(connect) } else { Err(Reason::TOPIC_NAME_INVALID) };
    }
    Ok(connect)
}

/// Checks what the crate does not: reserved and contradictory flags, U+0000, repeated properties, overlong
/// integers, and excess bytes. Returns the connect flags.
fn check(version: Version, mut body: Reader<'_>) -> Checked<u8> {
    body.binary()?;
    body.byte()?;
    let flags = body.byte()?;
    let has = |flag| flags & flag != 0;
    body.u16()?;
    let is_contradictory = (!has(WILL) && has(WILL_QOS | WILL_RETAIN))
        || flags & WILL_QOS == WILL_QOS
        // MQTT 3.1.1 §3.1.2.9
        || (version < Version::V5 && has(PASSWORD) && !has(USER_NAME));
    if has(RESERVED) || is_contradictory {
        return Err(Reason::MALFORMED);
    }
    if version == Version::V5 {
        check_properties(body.properties()?)?;
    }
    body.text()?;
    if has(WILL) {
        if version == Version::V5 {
            check_properties(body.properties()?)?;
        }
        body.text()?;
        body.binary()?;
    }
    if has(USER_NAME) {
        body.text()?;
    }
    if has(PASSWORD) {
        body.binary()?;
    }
    body.end()?;
    Ok(flags)
}

fn from_v3(version: Version, packet: v3::Connect) -> Connect {
    Connect {
        version,
        is_bridge: false,
        client_id: packet.client_id.into(),
        clean_start: packet.clean_session,
        keep_alive: packet.keep_alive,
        session_expiry: if packet.clean_session { 0 } else { u32::MAX },
        user: packet.username.map(Into::into),
        password: packet.password,
        will: packet.last_will.map(|will| Will {
            topic: will.topic.into(),
            payload: will.message,
            qos: will.qos.value(),
            retain: will.retain,
            ..Will::default()
        }),
        receive_maximum: u16::MAX,
        maximum_packet: None,
        topic_alias_maximum: 0,
        wants_problem_information: true,
        authentication_method: None,
        authentication_data: None,
    }
}

fn from_v5(packet: v5::Connect) -> Connect {
    Connect {
        version: Version::V5,
        is_bridge: false,
        client_id: packet.client_id.into(),
        clean_start: packet.clean_start,
        keep_alive: packet.keep_alive,
        session_expiry: packet.session_expiry_interval_secs,
        user: packet.username.map(Into::into),
        password: packet.password,
        will: packet.last_will.map(will_from_v5),
        receive_maximum: packet.receive_max.map_or(u16::MAX, std::num::NonZeroU16::get),
        maximum_packet: packet.max_packet_size.map(std::num::NonZeroU32::get),
        topic_alias_maximum: packet.topic_alias_max,
        wants_problem_information: packet.request_problem_info,
        authentication_method: packet.auth_method.map(Into::into),
        authentication_data: packet.auth_data,
    }
}

fn will_from_v5(will: v5::LastWill) -> Will {
    let text = |text: Option<ByteString>| text.map(Into::into);
    let pairs = will.user_properties.into_iter().map(|(name, value)| (name.into(), value.into()));
    Will {
        topic: will.topic.into(),
        payload: will.message,
        qos: will.qos.value(),
        retain: will.retain,
        delay_s: will.will_delay_interval_sec.unwrap_or(0),
        expiry_s: will.message_expiry_interval.map(std::num::NonZeroU32::get),
        is_text: will.is_utf8_payload,
        content_type: text(will.content_type),
        response_topic: text(will.response_topic),
        correlation_data: will.correlation_data,
        user_properties: pairs.collect(),
    }
}
