//! A connection, as its client sees it: bytes in, bytes and events out.

mod delivery;
mod fuzz;
mod handshake;
mod limits;
mod lossy;
mod published;
mod resumption;

use std::sync::Arc;

use crate::Micros;
use crate::engine::subscriber::batch::ReceivedBatch;
use crate::load::Load;
use crate::mqtt::codec::frame::{kind, put_binary, put_varint, split};
use crate::mqtt::codec::packets::{Accept, Version};
use crate::mqtt::codec::publish::Publish;
use crate::mqtt::codec::reason::Reason;
use crate::mqtt::connection::Connection;
use crate::mqtt::connection::event::{Cause, Closed, Event, PublishOutcome, UpperLayer};
use crate::mqtt::distribution::ack_guard::{AckGuard, Releases, SHARED_POOL_CLIENT, Ticket};
use crate::mqtt::distribution::batch::MessageBatch;
use crate::mqtt::distribution::encoder::Encoder;
use crate::mqtt::distribution::message::{DeliveryOptions, Message};
use crate::mqtt::io::output::Output;
use crate::mqtt::metrics::counters::Counters;
use crate::mqtt::session::{Delivery, Session};
use crate::mqtt::settings::{ListenerSettings, SessionSettings};
use crate::mqtt::{Key, Turn};

pub const SECOND: Micros = 1_000_000;
pub const VERSIONS: [Version; 3] = [Version::V31, Version::V311, Version::V5];

/// What came up.
pub struct Recorder {
    pub events: Vec<Event>,
    /// Topic, payload, and the key.
    pub published: Vec<(String, Vec<u8>, Option<Key>)>,
    pub outcome: PublishOutcome,
}

impl UpperLayer for Recorder {
    fn publish(&mut self, publish: &Publish<'_>, key: Option<Key>) -> PublishOutcome {
        if self.outcome == PublishOutcome::Accepted {
            self.published.push((publish.topic.to_owned(), publish.payload.to_vec(), key));
        }
        self.outcome
    }

    fn event(&mut self, event: Event) {
        self.events.push(event);
    }
}

/// A connection and those around it.
pub struct Bench {
    pub connection: Connection,
    pub now: Micros,
    pub out: Output,
    pub counters: Counters,
    /// What passed by topic, held against the counters with each turn.
    pub load: Load,
    pub upper: Recorder,
    pub encoder: Encoder,
    pub releases: Arc<Releases>,
    /// What the connection is accepted with.
    pub accept: Accept,
}

impl Bench {
    pub fn new(settings: ListenerSettings) -> Self {
        Self {
            connection: Connection::new(0, &Arc::new(settings)),
            now: 0,
            out: Output::default(),
            counters: Counters::default(),
            load: Load::new(),
            upper: Recorder { events: Vec::new(), published: Vec::new(), outcome: PublishOutcome::Accepted },
            encoder: Encoder::default(),
            releases: Arc::default(),
            accept: Accept::default(),
        }
    }

    /// An accepted client with a new session.
    pub fn open(version: Version) -> Self {
        Self::open_with(version, ListenerSettings::default(), Session::new(SessionSettings::default()), &[])
    }

    /// An accepted client that sent these properties with CONNECT.
    pub fn open_with(
        version: Version,
        settings: ListenerSettings,
        session: Session,
        properties: &[u8],
    ) -> Self {
        let mut bench = Self::new(settings);
        bench.feed(&connect(version, 2, properties, b"\0\x01c"));
        bench.accept(session);
        bench.take();
        bench.upper.events.clear();
        bench
    }

    pub fn accept(&mut self, session: Session) {
        let accept = self.accept.clone();
        let session = Box::new(session);
        self.turn(|connection, turn, upper| connection.accept(turn, &accept, session, upper));
    }

    pub fn turn<R>(&mut self, act: impl FnOnce(&mut Connection, &mut Turn<'_>, &mut Recorder) -> R) -> R {
        let load = Some(&mut self.load);
        let mut turn = Turn { now: self.now, out: &mut self.out, counters: &mut self.counters, load };
        let result = act(&mut self.connection, &mut turn, &mut self.upper);
        self.audit();
        result
    }

    pub fn feed(&mut self, bytes: &[u8]) {
        self.turn(|connection, turn, upper| connection.handle_bytes(turn, bytes, upper));
    }

    pub fn answer(&mut self, key: u64, reason: Reason) {
        self.turn(|connection, turn, upper| connection.answer(turn, Key(key), reason, upper));
    }

    /// Delivers a message at this QoS; with a claim from QoS 1 on.
    pub fn deliver(&mut self, message: Message, qos: u8) {
        self.deliver_from(SHARED_POOL_CLIENT, message, qos);
    }

    /// As `deliver`, a message that came through this member.
    pub fn deliver_from(&mut self, pool_client: u64, message: Message, qos: u8) {
        let ticket = Ticket { pool_client, message: message.id };
        let ack_guard = (qos > 0).then(|| AckGuard::new(ticket, &self.releases));
        let delivery_options = DeliveryOptions { qos, ..DeliveryOptions::default() };
        self.deliver_all(Delivery { message: Arc::new(message), delivery_options, ack_guard });
    }

    pub fn deliver_all(&mut self, delivery: Delivery) {
        let load = Some(&mut self.load);
        let mut turn = Turn { now: self.now, out: &mut self.out, counters: &mut self.counters, load };
        self.connection.deliver(&mut turn, delivery, &mut self.encoder);
        self.audit();
    }

    /// Delivers messages of `QoS` 0 that came together.
    pub fn deliver_batch(&mut self, topic: &str, payloads: &[&[u8]], delivery_options: &DeliveryOptions) {
        let batch =
            MessageBatch::new(topic.into(), ReceivedBatch::plain(topic, payloads), std::iter::empty());
        let load = Some(&mut self.load);
        let mut turn = Turn { now: self.now, out: &mut self.out, counters: &mut self.counters, load };
        self.connection.deliver_batch(&mut turn, &Arc::new(batch), delivery_options, &mut self.encoder);
        self.audit();
    }

    fn audit(&self) {
        let counted = self.load.topics.total();
        let Counters { messages_in, refused, messages_out, payload_out, .. } = self.counters;
        assert_eq!(counted.messages_in, messages_in - refused, "what was refused did not come in");
        assert_eq!((counted.messages_out, counted.bytes_out), (messages_out, payload_out));
    }

    /// Waits until the connection's deadline, which must come at this time.
    pub fn wait_until(&mut self, when: Micros) {
        assert_eq!(self.connection.poll_timeout(), when);
        self.now = when;
        self.turn(|connection, turn, upper| connection.handle_timeout(turn, upper));
    }

    /// Takes the output, packet by packet.
    pub fn take(&mut self) -> Vec<Vec<u8>> {
        let out = std::mem::take(&mut self.out).slices().collect::<Vec<_>>().concat();
        let (mut rest, mut packets) = (out.as_slice(), Vec::new());
        while let Some(frame) = split(rest, usize::MAX).expect("the server writes sound packets") {
            packets.push(frame.bytes.to_vec());
            rest = &rest[frame.bytes.len()..];
        }
        assert!(rest.is_empty(), "whole packets");
        packets
    }

    /// The client's connection breaks; its session.
    pub fn part(mut self) -> Session {
        self.connection.handle_end(&mut self.upper);
        *self.turn(|connection, turn, _| connection.take_session(turn)).expect("it was accepted")
    }

    /// How many messages are settled since the last time.
    pub fn settled(&self) -> usize {
        self.releases.take().len()
    }

    /// How the connection ended.
    pub fn closed(&self) -> Option<(Cause, Reason)> {
        let closed = self.upper.events.iter().filter_map(|event| match event {
            Event::Closed(Closed { cause, reason, .. }) => Some((*cause, *reason)),
            _ => None,
        });
        let closed: Vec<_> = closed.collect();
        assert!(closed.len() <= 1, "it ends once");
        assert_eq!(self.connection.is_closed(), closed.len() == 1);
        closed.first().copied()
    }
}

/// A packet of a client.
pub fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![first];
    put_varint(&mut packet, body.len());
    packet.extend_from_slice(body);
    packet
}

/// CONNECT with a keep alive of 60 s. `properties`: before MQTT 5 there are none.
pub fn connect(version: Version, flags: u8, properties: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    put_binary(&mut body, if version == Version::V31 { b"MQIsdp" } else { b"MQTT" });
    body.extend_from_slice(&[version as u8, flags, 0, 60]);
    put_listed(&mut body, version, properties);
    body.extend_from_slice(payload);
    packet(0x10, &body)
}

/// PUBLISH.
pub fn publish(
    version: Version,
    flags: u8,
    topic: &str,
    id: u16,
    properties: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let mut body = Vec::new();
    put_binary(&mut body, topic.as_bytes());
    if flags & 6 != 0 {
        body.extend_from_slice(&id.to_be_bytes());
    }
    put_listed(&mut body, version, properties);
    body.extend_from_slice(payload);
    packet(kind::PUBLISH << 4 | flags, &body)
}

/// PUBACK, PUBREC, PUBREL or PUBCOMP with success.
pub fn ack(kind: u8, id: u16) -> Vec<u8> {
    let mut out = Vec::new();
    crate::mqtt::codec::acks::put(&mut out, Version::V5, kind, id, Reason::SUCCESS, "");
    out
}

/// An acknowledgement of MQTT 5 with a reason, and what it says to people.
pub fn ack_with(kind: u8, id: u16, reason: Reason) -> Vec<u8> {
    let mut out = Vec::new();
    crate::mqtt::codec::acks::put(&mut out, Version::V5, kind, id, reason, reason.explanation());
    out
}

fn put_listed(body: &mut Vec<u8>, version: Version, properties: &[u8]) {
    if version == Version::V5 {
        put_varint(body, properties.len());
        body.extend_from_slice(properties);
    }
}
