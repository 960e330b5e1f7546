//! Packets from the server to a client, in the client's version: CONNACK, SUBACK, UNSUBACK, PINGRESP,
//! DISCONNECT and AUTH.
//!
//! A reason string is omitted if it would make the packet larger than the client's maximum packet size (MQTT
//! 5 §3.2.2.3.9 and corresponding sections), or if the client asked for no problem information (MQTT 5
//! §3.1.2.11.7). The server sends no user properties of its own.

use crate::mqtt::codec::frame::{kind, put_binary, put_varint, varint_len};
use crate::mqtt::codec::packets::{Accept, Auth, CloseReason, Version};
use crate::mqtt::codec::reason::Reason;
use crate::mqtt::settings::ListenerSettings;

pub const PINGRESP: [u8; 2] = [kind::PINGRESP << 4, 0];

/// What the packets to a client must respect.
#[derive(Clone, Copy, Debug)]
pub struct ResponseOptions {
    pub version: Version,
    /// The client's maximum packet size, in bytes.
    pub maximum_packet: usize,
    /// Whether the client takes reason strings in packets other than CONNACK and DISCONNECT.
    pub wants_text: bool,
}

/// Appends CONNACK with success. False: it is larger than the client's maximum packet size, and nothing was
/// written.
#[must_use]
pub fn put_accept(
    out: &mut Vec<u8>,
    response_options: ResponseOptions,
    accept: &Accept,
    settings: &ListenerSettings,
) -> bool {
    if response_options.version < Version::V5 {
        let is_present = accept.session_present && response_options.version == Version::V311;
        out.extend_from_slice(&[kind::CONNACK << 4, 2, u8::from(is_present), 0]);
        return true;
    }
    let mut properties = Properties::default();
    properties.u32(0x11, accept.session_expiry);
    properties.u16(0x21, Some(settings.receive_maximum).filter(|most| *most < u16::MAX));
    let most = u32::try_from(settings.maximum_packet).ok();
    properties.u32(0x27, most.filter(|_| settings.maximum_packet < LARGEST_PACKET));
    properties.text(0x12, accept.assigned_client_id.as_deref());
    properties.u16(0x22, Some(settings.topic_alias_maximum).filter(|most| *most > 0));
    properties.u16(0x13, accept.keep_alive);
    properties.text(0x15, accept.authentication_method.as_deref());
    properties.binary(0x16, accept.authentication_method.as_ref().map(|_| &accept.authentication_data[..]));
    let head = [u8::from(accept.session_present), Reason::SUCCESS.0];
    put(out, response_options, kind::CONNACK, &head, properties, "", &[])
}

/// Appends CONNACK with a refusal.
pub fn put_refusal(out: &mut Vec<u8>, response_options: ResponseOptions, close_reason: &CloseReason) {
    if response_options.version < Version::V5 {
        out.extend_from_slice(&[kind::CONNACK << 4, 2, 0, close_reason.reason.return_code()]);
        return;
    }
    let head = [0, close_reason.reason.0];
    put_close_reason(out, response_options, kind::CONNACK, &head, close_reason);
}

/// Appends DISCONNECT. Before MQTT 5 a server sends none, and nothing is written.
pub fn put_disconnect(out: &mut Vec<u8>, response_options: ResponseOptions, close_reason: &CloseReason) {
    if response_options.version == Version::V5 {
        put_close_reason(out, response_options, kind::DISCONNECT, &[close_reason.reason.0], close_reason);
    }
}

/// Appends SUBACK or UNSUBACK, by `kind`. False: it is larger than the client's maximum packet size, and
/// nothing was written.
#[must_use]
pub fn put_acknowledgement(
    out: &mut Vec<u8>,
    response_options: ResponseOptions,
    kind: u8,
    packet_id: u16,
    reasons: &[Reason],
    text: &str,
) -> bool {
    let code = |reason: &Reason| match response_options.version {
        Version::V5 => Some(reason.0),
        // MQTT 3.1.1 §3.9.3: there is one failure code.
        _ if kind == kind::SUBACK => Some(if reason.is_failure() { 0x80 } else { reason.0 }),
        _ => None,
    };
    let codes: Vec<u8> = reasons.iter().filter_map(code).collect();
    let text = if response_options.wants_text { text } else { "" };
    put(out, response_options, kind, &packet_id.to_be_bytes(), Properties::default(), text, &codes)
}

/// Appends AUTH. False: it is larger than the client's maximum packet size, and nothing was written.
#[must_use]
pub fn put_auth(out: &mut Vec<u8>, response_options: ResponseOptions, auth: &Auth) -> bool {
    let mut properties = Properties::default();
    properties.text(0x15, Some(&auth.method));
    properties.binary(0x16, auth.data.as_deref());
    put(out, response_options, kind::AUTH, &[auth.reason.0], properties, "", &[])
}

/// The largest packet that MQTT allows (MQTT 5 §2.1.4).
const LARGEST_PACKET: usize = 268_435_460;

fn put_close_reason(
    out: &mut Vec<u8>,
    response_options: ResponseOptions,
    kind: u8,
    head: &[u8],
    close_reason: &CloseReason,
) {
    let mut properties = Properties::default();
    properties.text(0x1C, Some(close_reason.server_reference.as_str()).filter(|at| !at.is_empty()));
    if !put(out, response_options, kind, head, properties, &close_reason.text, &[]) {
        // If the client does not take even this packet, it sees the end of the stream, which means the same.
        let _ = put(out, response_options, kind, head, Properties::default(), "", &[]);
    }
}

/// Appends a packet, with the reason string if it fits. False: it does not fit even without.
fn put(
    out: &mut Vec<u8>,
    response_options: ResponseOptions,
    kind: u8,
    head: &[u8],
    mut properties: Properties,
    text: &str,
    payload: &[u8],
) -> bool {
    let must = properties.bytes.len();
    properties.text(0x1F, Some(text).filter(|text| !text.is_empty()));
    if put_sized(out, response_options, kind, head, &properties.bytes, payload) {
        return true;
    }
    properties.bytes.truncate(must);
    put_sized(out, response_options, kind, head, &properties.bytes, payload)
}

fn put_sized(
    out: &mut Vec<u8>,
    response_options: ResponseOptions,
    kind: u8,
    head: &[u8],
    properties: &[u8],
    payload: &[u8],
) -> bool {
    let is_v5 = response_options.version == Version::V5;
    let listed = if is_v5 { varint_len(properties.len()) + properties.len() } else { 0 };
    let remaining = head.len() + listed + payload.len();
    if 1 + varint_len(remaining) + remaining > response_options.maximum_packet {
        return false;
    }
    out.push(kind << 4);
    put_varint(out, remaining);
    out.extend_from_slice(head);
    if is_v5 {
        put_varint(out, properties.len());
        out.extend_from_slice(properties);
    }
    out.extend_from_slice(payload);
    true
}

/// Encoded properties. A value of None is omitted.
#[derive(Default)]
struct Properties {
    bytes: Vec<u8>,
}

impl Properties {
    fn u16(&mut self, id: u8, value: Option<u16>) {
        self.put(id, value.map(u16::to_be_bytes));
    }

    fn u32(&mut self, id: u8, value: Option<u32>) {
        self.put(id, value.map(u32::to_be_bytes));
    }

    fn text(&mut self, id: u8, value: Option<&str>) {
        self.binary(id, value.map(str::as_bytes));
    }

    fn binary(&mut self, id: u8, value: Option<&[u8]>) {
        if let Some(value) = value {
            self.bytes.push(id);
            put_binary(&mut self.bytes, value);
        }
    }

    fn put<const N: usize>(&mut self, id: u8, value: Option<[u8; N]>) {
        if let Some(value) = value {
            self.bytes.push(id);
            self.bytes.extend_from_slice(&value);
        }
    }
}
