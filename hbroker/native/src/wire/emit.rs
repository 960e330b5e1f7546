//! Writes packets and datagrams: exact protobuf, appended to a buffer. As proto3 requires, a field with its
//! default value is not written.
//!
//! A datagram is its header field, one field for each packet, and padding. A parser accepts them in any
//! order: each function here appends whole fields of `Datagram`, and each `*_field` function whole fields of
//! `Packet`.

use std::net::{IpAddr, SocketAddr};

use super::acks::CutView;
use super::fields::{ACK_MODE_QUEUED, FragmentView, MeantFor};
use super::reader::MOST_VARINT;
use crate::schema::{
    ack, address, challenge, credit, cut, datagram, fragment, header, packet, ping, pong, pub_ack, publish,
    reset, user_property,
};

/// The link header to send (§2.2).
#[derive(Debug, Clone, Copy, Default)]
pub struct HeaderOut<'a> {
    pub session: u64,
    pub incarnation: u64,
    pub number: u64,
    pub ack: Option<AckOut<'a>>,
    pub token: &'a [u8],
    /// How many datagrams the peer may leave unacknowledged; 0: the default number.
    pub ack_every: u32,
}

/// The received datagrams (§3.2).
#[derive(Debug, Clone, Copy)]
pub struct AckOut<'a> {
    pub delay_us: u64,
    /// Inclusive (low, high), from the highest down. Between two ranges at least one number is missing.
    pub ranges: &'a [(u64, u64)],
}

/// The message to publish (§7).
#[derive(Debug, Clone, Copy, Default)]
pub struct PublishOut<'a> {
    pub topic: &'a str,
    pub payload: &'a [u8],
    pub publisher: u64,
    pub sequence: u64,
    pub qos: u8,
    pub retain: bool,
    pub ack_queued: bool,
    pub published_at_us: u64,
    pub expiry_s: Option<u32>,
    pub fragment: Option<FragmentView>,
    pub content_type: &'a str,
    pub payload_format: Option<i32>,
    pub response_topic: &'a str,
    pub correlation_data: &'a [u8],
    pub user_properties: &'a [(String, String)],
    pub origin: u64,
}

// Fields of Datagram

/// The field `header`.
pub fn put_header(out: &mut Vec<u8>, header: &HeaderOut<'_>) {
    put_message(out, datagram::HEADER, |out| {
        put_fixed64(out, header::SESSION, header.session);
        put_fixed64(out, header::INCARNATION, header.incarnation);
        put_number(out, header::NUMBER, header.number);
        if let Some(ack) = &header.ack {
            put_ack(out, ack);
        }
        put_bytes_unless_empty(out, header::TOKEN, header.token);
        put_number(out, header::ACK_EVERY, header.ack_every.into());
    });
}

/// One field `packets`. `body_field` is the output of a `put_*_field` function, or a whole serialised control
/// packet.
pub fn put_packet(
    out: &mut Vec<u8>,
    delivery: u64,
    after: u64,
    meant_for: Option<MeantFor>,
    body_field: &[u8],
) {
    PacketHead::new(delivery, after, meant_for, body_field.len()).put(out, body_field);
}

/// The field `packets` of a message that is like the one before it (§2.4).
#[inline]
pub fn put_delta(out: &mut Vec<u8>, payload: &[u8]) {
    out.reserve(2 * (1 + MOST_VARINT) + payload.len());
    put_varint(out, datagram::PACKETS.into());
    put_varint(out, delta_content(payload.len()) as u64);
    put_delta_field(out, payload);
}

/// The field `again` of a packet.
pub fn put_delta_field(out: &mut Vec<u8>, payload: &[u8]) {
    put_bytes(out, packet::AGAIN, payload);
}

/// The size of the output of `put_delta`, for a payload of this size.
pub fn delta_len(payload: usize) -> usize {
    let content = delta_content(payload);
    1 + varint_len(content as u64) + content
}

/// The size of that packet without tag and length.
pub(super) fn delta_content(payload: usize) -> usize {
    1 + varint_len(payload as u64) + payload
}

/// The bytes before the body of a packet in a datagram.
pub struct PacketHead {
    bytes: [u8; MOST_HEAD],
    length: usize,
    /// The positions of the numbers `delivery` and `after`; 0: there is none.
    numbers: [usize; 2],
    body: usize,
}

/// At most four numbers, each with a tag of one byte.
const MOST_HEAD: usize = 4 * (1 + MOST_VARINT);

impl PacketHead {
    /// See [`put_packet`].
    pub fn new(delivery: u64, after: u64, meant_for: Option<MeantFor>, body: usize) -> Self {
        let mut head = Self { bytes: [0; MOST_HEAD], length: 0, numbers: [0; 2], body };
        head.push(datagram::PACKETS, content_len(delivery, after, meant_for, body) as u64);
        // These precede the body, because the body of a control packet does not contain them.
        if delivery != 0 {
            head.numbers[0] = head.push(packet::DELIVERY, delivery);
        }
        if after != 0 {
            head.numbers[1] = head.push(packet::AFTER, after);
        }
        match meant_for {
            None => {}
            Some(MeantFor::Listener(listener)) => _ = head.push(packet::RETAINED_FOR, listener),
            Some(MeantFor::Shared(id)) => head.push_fixed64(packet::SHARED_FOR, id),
        }
        head
    }

    /// Changes it into the head of the next packet: with a body of this size, and both numbers increased by
    /// one. False: it must be built anew.
    #[inline]
    pub fn count_up(&mut self, body: usize) -> bool {
        let [delivery, after] = self.numbers;
        let has_both = delivery != 0 && after != 0 && body == self.body;
        has_both && count_up(&mut self.bytes[delivery..]) && count_up(&mut self.bytes[after..])
    }

    /// How many bytes [`Self::put`] appends.
    #[inline]
    pub fn packet_len(&self) -> usize {
        self.length + self.body
    }

    #[inline]
    pub fn put(&self, out: &mut Vec<u8>, body_field: &[u8]) {
        debug_assert_eq!(body_field.len(), self.body);
        out.extend_from_slice(&self.bytes[..self.length]);
        out.extend_from_slice(body_field);
    }

    /// Writes a field of eight bytes.
    fn push_fixed64(&mut self, tag: u32, number: u64) {
        debug_assert!(tag < 0x80);
        self.bytes[self.length] = tag as u8;
        let start = self.length + 1;
        self.length = start + size_of::<u64>();
        self.bytes[start..self.length].copy_from_slice(&number.to_le_bytes());
    }

    /// Writes a field. Returns the position of its number.
    fn push(&mut self, tag: u32, mut number: u64) -> usize {
        debug_assert!(tag < 0x80);
        self.bytes[self.length] = tag as u8;
        let start = self.length + 1;
        self.length = start + varint_len(number);
        for byte in &mut self.bytes[start..self.length] {
            *byte = number as u8 | 0x80;
            number >>= 7;
        }
        self.bytes[self.length - 1] &= 0x7f;
        start
    }
}

/// Adds one to the varint that begins here. False: it would need another byte.
#[inline]
pub(super) fn count_up(bytes: &mut [u8]) -> bool {
    for byte in bytes {
        if *byte & 0x7f != 0x7f {
            *byte += 1;
            return true;
        }
        if *byte == 0x7f {
            return false;
        }
        *byte = 0x80;
    }
    false
}

/// The size of the output of [`put_packet`], for a body field of `body_field` bytes.
pub fn packet_len(delivery: u64, after: u64, meant_for: Option<MeantFor>, body_field: usize) -> usize {
    let content = content_len(delivery, after, meant_for, body_field);
    varint_len(datagram::PACKETS.into()) + varint_len(content as u64) + content
}

/// Pads a datagram by exactly `bytes`. The minimum is 2, a tag and a length; for fewer nothing is written.
pub fn put_padding(out: &mut Vec<u8>, bytes: usize) {
    let Some(rest) = bytes.checked_sub(2) else {
        return;
    };
    // The sizes of one field have gaps, where its own length needs another byte. A second field fills them.
    let content =
        (0..3).map(|extra| rest.saturating_sub(extra)).find(|&n| varint_len(n as u64) + 1 + n == bytes);
    match content {
        Some(content) => {
            put_varint(out, datagram::PADDING.into());
            put_varint(out, content as u64);
            out.resize(out.len() + content, 0);
        }
        None => {
            put_padding(out, 2);
            put_padding(out, rest);
        }
    }
}

// Fields of Packet

pub fn put_publish_field(out: &mut Vec<u8>, message: &PublishOut<'_>) {
    put_message(out, packet::PUBLISH, |out| {
        put_bytes_unless_empty(out, publish::TOPIC, message.topic.as_bytes());
        put_bytes_unless_empty(out, publish::PAYLOAD, message.payload);
        put_fixed64(out, publish::PUBLISHER, message.publisher);
        put_number(out, publish::SEQUENCE, message.sequence);
        put_number(out, publish::QOS, message.qos.into());
        put_number(out, publish::RETAIN, message.retain.into());
        put_number(out, publish::PUBLISHED_AT_US, message.published_at_us);
        put_present(out, publish::EXPIRY_S, message.expiry_s.map(u64::from));
        if let Some(fragment) = &message.fragment {
            put_fragment(out, fragment);
        }
        if message.ack_queued {
            put_enum(out, publish::ACK_MODE, ACK_MODE_QUEUED);
        }
        put_bytes_unless_empty(out, publish::CONTENT_TYPE, message.content_type.as_bytes());
        put_present(out, publish::PAYLOAD_FORMAT, message.payload_format.map(sign_extended));
        put_bytes_unless_empty(out, publish::RESPONSE_TOPIC, message.response_topic.as_bytes());
        put_bytes_unless_empty(out, publish::CORRELATION_DATA, message.correlation_data);
        for (name, value) in message.user_properties {
            put_message(out, publish::USER_PROPERTIES, |out| {
                put_bytes_unless_empty(out, user_property::NAME, name.as_bytes());
                put_bytes_unless_empty(out, user_property::VALUE, value.as_bytes());
            });
        }
        put_fixed64(out, publish::ORIGIN, message.origin);
    });
}

/// The field `publish` of one fragment of a message. `common`: a serialised `Publish` with the fields that
/// all fragments share.
pub fn put_fragment_field(
    out: &mut Vec<u8>,
    common: &[u8],
    payload: &[u8],
    sequence: u64,
    fragment: &FragmentView,
) {
    put_message(out, packet::PUBLISH, |out| {
        out.extend_from_slice(common);
        put_number(out, publish::SEQUENCE, sequence);
        put_fragment(out, fragment);
        put_bytes(out, publish::PAYLOAD, payload);
    });
}

/// `ranges`: inclusive (first, last) of delivery numbers, from 1, ascending and not adjacent.
pub fn put_puback_field(
    out: &mut Vec<u8>,
    ranges: impl IntoIterator<Item = (u64, u64)>,
    reason: i32,
    topic: &str,
    referral: Option<&CutView<'_>>,
) {
    put_message(out, packet::PUBACK, |out| {
        let mut end = 0;
        put_message_unless_empty(out, pub_ack::RANGES, |out| {
            for (first, last) in ranges {
                put_varint(out, first - end);
                put_varint(out, last - first + 1);
                end = last;
            }
        });
        put_enum(out, pub_ack::REASON, reason);
        if let Some(cut) = referral {
            put_cut(out, pub_ack::REFERRAL, cut);
        }
        put_bytes_unless_empty(out, pub_ack::TOPIC, topic.as_bytes());
    });
}

/// The field `credit` of a packet.
pub fn put_credit_field(out: &mut Vec<u8>, messages: u32, bytes: u64, for_many: bool) {
    put_message(out, packet::CREDIT, |out| {
        put_number(out, credit::MESSAGES, u64::from(messages));
        put_number(out, credit::BYTES, bytes);
        put_number(out, credit::FOR_MANY, for_many.into());
    });
}

/// The field `ping` of a packet.
pub fn put_ping_field(out: &mut Vec<u8>, sent_at_us: u64) {
    put_message(out, packet::PING, |out| put_number(out, ping::SENT_AT_US, sent_at_us));
}

pub fn put_pong_field(out: &mut Vec<u8>, sent_at_us: u64) {
    put_message(out, packet::PONG, |out| put_number(out, pong::SENT_AT_US, sent_at_us));
}

pub fn put_reset_field(out: &mut Vec<u8>, session: u64, token: &[u8], reason: i32) {
    put_message(out, packet::RESET, |out| {
        put_fixed64(out, reset::SESSION, session);
        put_bytes_unless_empty(out, reset::TOKEN, token);
        put_enum(out, reset::REASON, reason);
    });
}

pub fn put_challenge_field(out: &mut Vec<u8>, token: &[u8], lifetime_s: u32) {
    put_message(out, packet::CHALLENGE, |out| {
        put_bytes_unless_empty(out, challenge::TOKEN, token);
        put_number(out, challenge::LIFETIME_S, lifetime_s.into());
    });
}

// Messages within

fn put_ack(out: &mut Vec<u8>, ack: &AckOut<'_>) {
    let [(low, largest), below @ ..] = ack.ranges else {
        return;
    };
    put_message(out, header::ACK, |out| {
        put_number(out, ack::LARGEST, *largest);
        put_number(out, ack::DELAY_US, ack.delay_us);
        put_message(out, ack::RANGES, |out| {
            put_varint(out, largest - low);
            let mut lowest = *low;
            for (low, high) in below {
                // RFC 9000 §19.3.1: the gap is encoded less one, because no gap is empty.
                put_varint(out, lowest - high - 2);
                put_varint(out, high - low);
                lowest = *low;
            }
        });
    });
}

fn put_fragment(out: &mut Vec<u8>, fragment: &FragmentView) {
    put_message(out, publish::FRAGMENT, |out| {
        put_number(out, fragment::INDEX, fragment.index.into());
        put_number(out, fragment::COUNT, fragment.count.into());
        put_number(out, fragment::TOTAL, fragment.total);
    });
}

fn put_cut(out: &mut Vec<u8>, field: u32, cut: &CutView<'_>) {
    put_message(out, field, |out| {
        put_bytes_unless_empty(out, cut::SUBTREE, cut.subtree.as_bytes());
        put_bytes_unless_empty(out, cut::NODE, cut.node.as_bytes());
        if let Some(at) = cut.address {
            put_address(out, cut::ADDRESS, at);
        }
        put_number(out, cut::EPOCH, cut.epoch);
    });
}

fn put_address(out: &mut Vec<u8>, field: u32, at: SocketAddr) {
    put_message(out, field, |out| {
        match at.ip() {
            IpAddr::V4(ip) => put_bytes(out, address::IP, &ip.octets()),
            IpAddr::V6(ip) => put_bytes(out, address::IP, &ip.octets()),
        }
        put_number(out, address::PORT, at.port().into());
    });
}

// Fields

/// A varint field; omitted if 0.
pub(super) fn put_number(out: &mut Vec<u8>, tag: u32, value: u64) {
    if value != 0 {
        put_present(out, tag, Some(value));
    }
}

/// A varint field with presence: written even if 0.
pub(super) fn put_present(out: &mut Vec<u8>, tag: u32, value: Option<u64>) {
    if let Some(value) = value {
        put_varint(out, tag.into());
        put_varint(out, value);
    }
}

pub(super) fn put_enum(out: &mut Vec<u8>, tag: u32, value: i32) {
    put_number(out, tag, sign_extended(value));
}

pub(super) fn put_fixed64(out: &mut Vec<u8>, tag: u32, value: u64) {
    if value != 0 {
        put_varint(out, tag.into());
        out.extend_from_slice(&value.to_le_bytes());
    }
}

pub(super) fn put_bytes(out: &mut Vec<u8>, tag: u32, value: &[u8]) {
    put_varint(out, tag.into());
    put_varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

pub(super) fn put_bytes_unless_empty(out: &mut Vec<u8>, tag: u32, value: &[u8]) {
    if !value.is_empty() {
        put_bytes(out, tag, value);
    }
}

/// A length-delimited field whose content `write` appends. The length is inserted afterwards, because it is
/// known only then.
fn put_message(out: &mut Vec<u8>, tag: u32, write: impl FnOnce(&mut Vec<u8>)) {
    put_varint(out, tag.into());
    let start = out.len();
    write(out);
    let end = out.len();
    put_varint(out, (end - start) as u64);
    let prefix = out.len() - end;
    let mut length = [0; MOST_VARINT];
    length[..prefix].copy_from_slice(&out[end..]);
    out.copy_within(start..end, start + prefix);
    out[start..start + prefix].copy_from_slice(&length[..prefix]);
}

pub(super) fn put_message_unless_empty(out: &mut Vec<u8>, tag: u32, write: impl FnOnce(&mut Vec<u8>)) {
    let before = out.len();
    put_message(out, tag, write);
    if out.len() == before + varint_len(tag.into()) + 1 {
        out.truncate(before);
    }
}

#[inline]
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    if value < 0x80 {
        return out.push(value as u8);
    }
    let mut bytes = [0; MOST_VARINT];
    let mut length = 0;
    while value >= 0x80 {
        bytes[length] = value as u8 | 0x80;
        value >>= 7;
        length += 1;
    }
    bytes[length] = value as u8;
    out.extend_from_slice(&bytes[..=length]);
}

// Lengths

fn content_len(delivery: u64, after: u64, meant_for: Option<MeantFor>, body_field: usize) -> usize {
    let number_len = |value| if value == 0 { 0 } else { 1 + varint_len(value) };
    let meant_for_len = meant_for.map_or(0, |meant_for| match meant_for {
        MeantFor::Listener(listener) => 1 + varint_len(listener),
        MeantFor::Shared(_) => 1 + size_of::<u64>(),
    });
    number_len(delivery) + number_len(after) + meant_for_len + body_field
}

#[inline]
pub(super) fn varint_len(value: u64) -> usize {
    // 7 bits in each byte: the number of bits, divided by 7 and rounded up. 0 takes one byte, too.
    (70 - (value | 1).leading_zeros() as usize) / 7
}

/// Encodes an enum as protobuf does: as 64 bits with the sign extended.
fn sign_extended(value: i32) -> u64 {
    i64::from(value) as u64
}
