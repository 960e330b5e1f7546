//! The client side of MQTT 3.1.1 and 5, as far as a load needs it: some topics to publish to, one filter to
//! subscribe to, any `QoS`. It reads and writes packets with the parts of `mqtt::codec` that are the same at
//! both ends.
//!
//! The beginning of a PUBLISH is built once for each topic and copied; only the packet id and the payload
//! change.

use crate::bench::protocol::{Fault, Listener, StreamProtocol};
use crate::mqtt::codec::acks;
use crate::mqtt::codec::frame::{self, Frame, kind, put_binary, put_varint};
use crate::mqtt::codec::packets::Version;
use crate::mqtt::codec::properties::Properties;
use crate::mqtt::codec::reader::Reader;
use crate::mqtt::codec::reason::Reason;

/// The largest packet that is accepted: the largest payload of a load, and room for its headers.
const MOST_PACKET: usize = 65 << 20;
/// The receive maximum in CONNECT: how many messages of `QoS` 1 and 2 may be unacknowledged (MQTT 5
/// §3.1.2.11.3).
const RECEIVE_MAXIMUM: u16 = 65_535;
/// The property that has it, in CONNECT and in CONNACK.
const RECEIVE_MAXIMUM_ID: u8 = 0x21;
/// The packet id of the only SUBSCRIBE, which is sent before any message.
const SUBSCRIPTION: u16 = 1;

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
    /// Topics, filter and client id must have at most 65,535 bytes each.
    pub fn new(
        version: Version,
        qos: u8,
        client_id: String,
        topics: &[String],
        filter: Option<&str>,
    ) -> Self {
        let encoded = |topic: &String| {
            let mut name = Vec::new();
            put_binary(&mut name, topic.as_bytes());
            name
        };
        Self {
            version,
            qos,
            client_id,
            topics: topics.iter().map(encoded).collect(),
            filter: filter.map(str::to_owned),
            is_ready: false,
            ids: PacketIds::new(),
        }
    }

    fn take(
        &mut self,
        frame: &Frame<'_>,
        out: &mut Vec<u8>,
        listener: &mut impl Listener,
    ) -> Result<(), Fault> {
        match frame.kind {
            kind::PUBLISH => self.take_publish(frame, out, listener),
            kind::PUBACK | kind::PUBREC | kind::PUBREL | kind::PUBCOMP => self.take_ack(frame, out, listener),
            kind::CONNACK => self.take_connack(frame.body, out),
            kind::SUBACK => self.take_suback(frame.body),
            kind::PINGRESP => Ok(()),
            kind => Err(Fault::new(format!("a packet of type {kind}"))),
        }
    }

    fn take_publish(
        &self,
        frame: &Frame<'_>,
        out: &mut Vec<u8>,
        listener: &mut impl Listener,
    ) -> Result<(), Fault> {
        let mut body = Reader::new(frame.body);
        body.binary()?;
        let ack = match (frame.flags >> 1) & 3 {
            0 => None,
            1 => Some((kind::PUBACK, body.packet_id()?)),
            2 => Some((kind::PUBREC, body.packet_id()?)),
            _ => return Err(Fault::new("a message of QoS 3")),
        };
        if self.version == Version::V5 {
            body.properties()?;
        }
        if let Some((kind, id)) = ack {
            self.put_ack(out, kind, id);
        }
        listener.message(body.rest());
        Ok(())
    }

    /// An acknowledgement, in either direction.
    fn take_ack(
        &mut self,
        frame: &Frame<'_>,
        out: &mut Vec<u8>,
        listener: &mut impl Listener,
    ) -> Result<(), Fault> {
        let (id, reason) = acks::parse(self.version, frame)?;
        match frame.kind {
            kind::PUBREL => self.put_ack(out, kind::PUBCOMP, id),
            kind::PUBREC if !reason.is_failure() => self.put_ack(out, kind::PUBREL, id),
            // A message is acknowledged finally.
            _ => {
                self.ids.free(id)?;
                listener.answer(!reason.is_failure());
            }
        }
        Ok(())
    }

    fn put_ack(&self, out: &mut Vec<u8>, kind: u8, id: u16) {
        acks::put(out, self.version, kind, id, Reason::SUCCESS, "");
    }

    fn take_connack(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        let mut body = Reader::new(body);
        let [_, code] = body.u16()?.to_be_bytes();
        if code != 0 {
            return Err(Fault::new(format!("the broker refused the connection: code {code}")));
        }
        let properties = Properties::read(self.version, &mut body)?;
        self.ids.limit = properties.number(RECEIVE_MAXIMUM_ID).map_or(u16::MAX, |most| most as u16);
        let Some(filter) = &self.filter else {
            self.is_ready = true;
            return Ok(());
        };
        let mut subscribe = SUBSCRIPTION.to_be_bytes().to_vec();
        subscribe.extend((self.version == Version::V5).then_some(0)); // No properties.
        put_binary(&mut subscribe, filter.as_bytes());
        subscribe.push(self.qos);
        put_packet(out, 0x82, &subscribe);
        Ok(())
    }

    fn take_suback(&mut self, body: &[u8]) -> Result<(), Fault> {
        let mut body = Reader::new(body);
        if body.u16()? != SUBSCRIPTION || body.rest().last().is_none_or(|&code| Reason(code).is_failure()) {
            return Err(Fault::new("the broker refused the subscription"));
        }
        self.is_ready = true;
        Ok(())
    }
}

impl StreamProtocol for Mqtt {
    fn greet(&mut self, out: &mut Vec<u8>) {
        let mut connect = Vec::new();
        put_binary(&mut connect, b"MQTT");
        // Clean start, and no keep-alive: a subscriber at QoS 0 sends nothing.
        connect.extend([self.version as u8, 2, 0, 0]);
        if self.version == Version::V5 {
            let [high, low] = RECEIVE_MAXIMUM.to_be_bytes();
            connect.extend([3, RECEIVE_MAXIMUM_ID, high, low]);
        }
        put_binary(&mut connect, self.client_id.as_bytes());
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
        while let Some(frame) = frame::split(&input[taken..], MOST_PACKET)? {
            self.take(&frame, out, listener)?;
            taken += frame.bytes.len();
        }
        Ok(taken)
    }

    fn publish(&mut self, out: &mut Vec<u8>, topic: usize, payload: &[u8]) -> bool {
        let Some(topic) = self.topics.get(topic) else { return false };
        let id = if self.qos > 0 { self.ids.take() } else { Some(0) };
        let Some(id) = id else { return false };
        let between = 2 * usize::from(self.qos > 0) + usize::from(self.version == Version::V5);
        out.push(kind::PUBLISH << 4 | self.qos << 1);
        put_varint(out, topic.len() + between + payload.len());
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

fn put_packet(out: &mut Vec<u8>, head: u8, body: &[u8]) {
    out.push(head);
    put_varint(out, body.len());
    out.extend_from_slice(body);
}

impl From<Reason> for Fault {
    fn from(reason: Reason) -> Self {
        Self::new(format!("a packet that breaks the rules: reason code {}", reason.0))
    }
}
