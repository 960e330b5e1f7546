//! The client side of MQTT 3.1.1 and 5, as far as a load needs it: some topics to publish to, one filter to
//! subscribe to, any `QoS`.
//!
//! The beginning of a PUBLISH is built once for each topic and copied; only the packet id and the payload
//! change.

use crate::bench::protocol::{Fault, Listener, StreamProtocol};

/// The largest packet that is accepted: the largest payload of a load, and room for its headers.
const MOST_PACKET: usize = 65 << 20;
/// The receive maximum in CONNECT: how many messages of `QoS` 1 and 2 may be unacknowledged (MQTT 5
/// §3.1.2.11.3).
const RECEIVE_MAXIMUM: u16 = 65_535;

const CONNACK: u8 = 2;
const PUBLISH: u8 = 3;
const PUBACK: u8 = 4;
const PUBREC: u8 = 5;
const PUBREL: u8 = 6;
const PUBCOMP: u8 = 7;
const SUBACK: u8 = 9;
const PINGRESP: u8 = 13;

/// The lowest reason code that is a failure (MQTT 5 §2.4).
const FAILURE: u8 = 0x80;
/// The packet id of the only SUBSCRIBE, which is sent before any message.
const SUBSCRIPTION: u16 = 1;

/// A version of the protocol, by its level in CONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V311 = 4,
    V5 = 5,
}

/// A connection: it publishes to topics, subscribes to a filter, or both.
pub struct Mqtt {
    version: Version,
    qos: u8,
    client_id: String,
    /// For each topic: the encoded topic name, as PUBLISH contains it.
    topics: Vec<Vec<u8>>,
    filter: Option<String>,
    is_ready: bool,
    ids: PacketIds,
}

impl Mqtt {
    pub fn new(
        version: Version,
        qos: u8,
        client_id: String,
        topics: &[String],
        filter: Option<&str>,
    ) -> Self {
        Self {
            version,
            qos,
            client_id,
            topics: topics.iter().map(|topic| text(topic).collect()).collect(),
            filter: filter.map(str::to_owned),
            is_ready: false,
            ids: PacketIds::new(),
        }
    }

    fn take(
        &mut self,
        head: u8,
        body: &[u8],
        out: &mut Vec<u8>,
        listener: &mut impl Listener,
    ) -> Result<(), Fault> {
        match head >> 4 {
            PUBLISH => self.take_publish(head, body, out, listener),
            PUBACK => self.take_end(body, listener),
            PUBCOMP => self.take_end(body, listener),
            PUBREC => self.take_received(body, out, listener),
            PUBREL => {
                put_answer(out, PUBCOMP << 4, packet_id(body)?);
                Ok(())
            }
            CONNACK => self.take_connack(body, out),
            SUBACK => self.take_suback(body),
            PINGRESP => Ok(()),
            kind => Err(Fault::new(format!("a packet of type {kind}"))),
        }
    }

    fn take_publish(
        &mut self,
        head: u8,
        body: &[u8],
        out: &mut Vec<u8>,
        listener: &mut impl Listener,
    ) -> Result<(), Fault> {
        let qos = (head >> 1) & 3;
        let (length, rest) = body.split_first_chunk().ok_or_else(cut_short)?;
        let mut rest = rest.get(u16::from_be_bytes(*length).into()..).ok_or_else(cut_short)?;
        let mut id = 0;
        if qos > 0 {
            let (bytes, after) = rest.split_first_chunk().ok_or_else(cut_short)?;
            (id, rest) = (u16::from_be_bytes(*bytes), after);
        }
        if self.version == Version::V5 {
            rest = skip_properties(rest)?;
        }
        match qos {
            0 => {}
            1 => put_answer(out, PUBACK << 4, id),
            2 => put_answer(out, PUBREC << 4, id),
            _ => return Err(Fault::new("a message of QoS 3")),
        }
        listener.message(rest);
        Ok(())
    }

    /// PUBACK or PUBCOMP: a message is acknowledged finally.
    fn take_end(&mut self, body: &[u8], listener: &mut impl Listener) -> Result<(), Fault> {
        self.ids.free(packet_id(body)?)?;
        listener.answer(is_success(body));
        Ok(())
    }

    fn take_received(
        &mut self,
        body: &[u8],
        out: &mut Vec<u8>,
        listener: &mut impl Listener,
    ) -> Result<(), Fault> {
        let id = packet_id(body)?;
        if is_success(body) {
            put_answer(out, PUBREL << 4 | 2, id);
        } else {
            self.ids.free(id)?;
            listener.answer(false);
        }
        Ok(())
    }

    fn take_connack(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        let &[_, code, ref properties @ ..] = body else { return Err(cut_short()) };
        if code != 0 {
            return Err(Fault::new(format!("the broker refused the connection: code {code}")));
        }
        if self.version == Version::V5 {
            self.ids.limit = receive_maximum(properties)?;
        }
        let Some(filter) = &self.filter else {
            self.is_ready = true;
            return Ok(());
        };
        let mut subscribe = SUBSCRIPTION.to_be_bytes().to_vec();
        subscribe.extend(self.no_properties());
        subscribe.extend(text(filter));
        subscribe.push(self.qos);
        put_packet(out, 0x82, &subscribe);
        Ok(())
    }

    fn take_suback(&mut self, body: &[u8]) -> Result<(), Fault> {
        if packet_id(body)? != SUBSCRIPTION || body.last().is_none_or(|&code| code >= FAILURE) {
            return Err(Fault::new("the broker refused the subscription"));
        }
        self.is_ready = true;
        Ok(())
    }

    /// An empty property list, if the version has properties.
    fn no_properties(&self) -> impl Iterator<Item = u8> + use<> {
        (self.version == Version::V5).then_some(0).into_iter()
    }
}

impl StreamProtocol for Mqtt {
    fn greet(&mut self, out: &mut Vec<u8>) {
        let mut connect: Vec<u8> = text("MQTT").collect();
        // Clean start, and no keep-alive: a subscriber at QoS 0 sends nothing.
        connect.extend([self.version as u8, 2, 0, 0]);
        if self.version == Version::V5 {
            let [high, low] = RECEIVE_MAXIMUM.to_be_bytes();
            connect.extend([3, 0x21, high, low]);
        }
        connect.extend(text(&self.client_id));
        put_packet(out, 0x10, &connect);
    }

    fn is_ready(&self) -> bool {
        self.is_ready
    }

    fn understand(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        listener: &mut impl Listener,
    ) -> Result<usize, Fault> {
        let mut taken = 0;
        while let Some((&head, rest)) = input[taken..].split_first() {
            let Some((length, width)) = number(rest)? else { break };
            if length > MOST_PACKET {
                return Err(Fault::new("a packet that is too large"));
            }
            let Some(body) = rest.get(width..width + length) else { break };
            self.take(head, body, out, listener)?;
            taken += 1 + width + length;
        }
        Ok(taken)
    }

    fn publish(&mut self, out: &mut Vec<u8>, topic: usize, payload: &[u8]) -> bool {
        let Some(topic) = self.topics.get(topic) else { return false };
        let id = if self.qos > 0 { self.ids.take() } else { Some(0) };
        let Some(id) = id else { return false };
        let between = 2 * usize::from(self.qos > 0) + usize::from(self.version == Version::V5);
        out.push(PUBLISH << 4 | self.qos << 1);
        put_number(out, topic.len() + between + payload.len());
        out.extend_from_slice(topic);
        if self.qos > 0 {
            out.extend_from_slice(&id.to_be_bytes());
        }
        if self.version == Version::V5 {
            out.push(0);
        }
        out.extend_from_slice(payload);
        true
    }
}

/// The packet ids in use.
struct PacketIds {
    used: Box<[u64]>,
    open: u16,
    limit: u16,
    last: u16,
}

impl PacketIds {
    fn new() -> Self {
        Self { used: vec![0; 1 << 10].into(), open: 0, limit: u16::MAX, last: 0 }
    }

    /// The next free packet id; `None`: the broker's receive maximum is reached.
    fn take(&mut self) -> Option<u16> {
        if self.open >= self.limit {
            return None;
        }
        loop {
            self.last = self.last.checked_add(1).unwrap_or(1);
            let (word, bit) = bit_of(self.last);
            if self.used[word] & bit == 0 {
                self.used[word] |= bit;
                self.open += 1;
                return Some(self.last);
            }
        }
    }

    fn free(&mut self, id: u16) -> Result<(), Fault> {
        let (word, bit) = bit_of(id);
        if self.used[word] & bit == 0 {
            return Err(Fault::new("an answer to no message"));
        }
        self.used[word] &= !bit;
        self.open -= 1;
        Ok(())
    }
}

fn bit_of(id: u16) -> (usize, u64) {
    (usize::from(id >> 6), 1 << (id & 63))
}

/// Whether an acknowledgement is a success. Its reason code may be omitted (MQTT 5 §3.4.2.1), and does not
/// exist before MQTT 5.
fn is_success(body: &[u8]) -> bool {
    body.get(2).is_none_or(|&code| code < FAILURE)
}

fn packet_id(body: &[u8]) -> Result<u16, Fault> {
    body.first_chunk().map(|id| u16::from_be_bytes(*id)).ok_or_else(cut_short)
}

/// The broker's receive maximum in the properties of CONNACK (MQTT 5 §3.2.2.3).
fn receive_maximum(properties: &[u8]) -> Result<u16, Fault> {
    let (length, width) = number(properties)?.ok_or_else(cut_short)?;
    let mut rest = properties.get(width..width + length).ok_or_else(cut_short)?;
    while let Some((&identifier, value)) = rest.split_first() {
        let size = match identifier {
            0x21 => {
                return packet_id(value).and_then(|most| {
                    if most == 0 { Err(Fault::new("a Receive Maximum of 0")) } else { Ok(most) }
                });
            }
            0x24 | 0x25 | 0x28 | 0x29 | 0x2A => 1,
            0x13 | 0x22 => 2,
            0x11 | 0x27 => 4,
            0x12 | 0x15 | 0x16 | 0x1A | 0x1C | 0x1F => text_size(value)?,
            0x26 => {
                let key = text_size(value)?;
                key + text_size(value.get(key..).ok_or_else(cut_short)?)?
            }
            _ => return Err(Fault::new("a property that CONNACK does not have")),
        };
        rest = value.get(size..).ok_or_else(cut_short)?;
    }
    Ok(u16::MAX)
}

fn text_size(value: &[u8]) -> Result<usize, Fault> {
    packet_id(value).map(|length| 2 + usize::from(length))
}

fn skip_properties(body: &[u8]) -> Result<&[u8], Fault> {
    let (length, width) = number(body)?.ok_or_else(cut_short)?;
    body.get(width + length..).ok_or_else(cut_short)
}

/// A variable byte integer and its width; `None`: it is incomplete (MQTT 5 §1.5.5).
fn number(input: &[u8]) -> Result<Option<(usize, usize)>, Fault> {
    let mut value = 0;
    for (index, &byte) in input.iter().take(4).enumerate() {
        value |= usize::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            return Ok(Some((value, index + 1)));
        }
    }
    if input.len() >= 4 { Err(Fault::new("a length of more than four bytes")) } else { Ok(None) }
}

fn put_number(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_packet(out: &mut Vec<u8>, head: u8, body: &[u8]) {
    out.push(head);
    put_number(out, body.len());
    out.extend_from_slice(body);
}

fn put_answer(out: &mut Vec<u8>, head: u8, id: u16) {
    let [high, low] = id.to_be_bytes();
    out.extend_from_slice(&[head, 2, high, low]);
}

/// An encoded string: its length, then its bytes.
fn text(text: &str) -> impl Iterator<Item = u8> {
    let length = u16::try_from(text.len()).expect("topics and client ids of a load are short");
    length.to_be_bytes().into_iter().chain(text.bytes())
}

fn cut_short() -> Fault {
    Fault::new("a packet that ends too soon")
}
