//! PUBLISH from a client (MQTT 5 §3.3), as a checked view of its bytes. This is the fast path: nothing is
//! copied or allocated.

use crate::mqtt::codec::Checked;
use crate::mqtt::codec::frame::Frame;
use crate::mqtt::codec::packets::Version;
use crate::mqtt::codec::reader::Reader;
use crate::mqtt::codec::reason::Reason;
use crate::topic;

/// The properties of PUBLISH (MQTT 5 §3.3.2.3).
pub mod property {
    pub const PAYLOAD_FORMAT: u8 = 0x01;
    pub const MESSAGE_EXPIRY: u8 = 0x02;
    pub const CONTENT_TYPE: u8 = 0x03;
    pub const RESPONSE_TOPIC: u8 = 0x08;
    pub const CORRELATION_DATA: u8 = 0x09;
    pub const SUBSCRIPTION_IDENTIFIER: u8 = 0x0B;
    pub const TOPIC_ALIAS: u8 = 0x23;
    pub const USER_PROPERTY: u8 = 0x26;
}

/// A client's message.
#[derive(Clone, Copy, Debug, Default)]
pub struct Publish<'a> {
    /// The topic of the packet, or the topic that its alias stands for.
    pub topic: &'a str,
    pub payload: &'a [u8],
    pub qos: u8,
    pub retain: bool,
    /// The packet id; 0 at `QoS` 0.
    pub packet_id: u16,
    /// 0: none.
    pub topic_alias: u16,
    /// Seconds.
    pub expiry_s: Option<u32>,
    /// Whether the payload is UTF-8 text; None if the packet has no payload format indicator.
    pub is_text: Option<bool>,
    pub content_type: &'a str,
    pub response_topic: &'a str,
    pub correlation_data: &'a [u8],
    /// All properties, as received.
    properties: &'a [u8],
    has_user_properties: bool,
}

impl<'a> Publish<'a> {
    /// Parses and checks a PUBLISH. Its topic may be empty if it has an alias.
    ///
    /// # Errors
    /// The reason code that the specification names for the violation.
    pub fn parse(version: Version, frame: &Frame<'a>) -> Checked<Self> {
        let mut body = Reader::new(frame.body);
        let qos = (frame.flags >> 1) & 3;
        let dup = frame.flags & 8 != 0;
        // MQTT 5 §3.3.1.1: no DUP flag at QoS 0. MQTT 3.1 has no such rule.
        if qos == 3 || (dup && qos == 0 && version > Version::V31) {
            return Err(Reason::MALFORMED);
        }
        let topic = body.text()?;
        let packet_id = if qos > 0 { body.packet_id()? } else { 0 };
        let mut publish = Self { topic, qos, retain: frame.flags & 1 != 0, packet_id, ..Self::default() };
        if version == Version::V5 {
            let properties = body.properties()?;
            if !properties.is_empty() {
                publish.read_properties(properties)?;
            }
        }
        publish.payload = body.rest();
        if topic.is_empty() && publish.topic_alias > 0 {
            return Ok(publish);
        }
        match (topic::topic_is_valid(topic), topic.is_empty(), version) {
            (true, ..) => Ok(publish),
            // MQTT 5 §3.3.2.1
            (_, true, Version::V5) => Err(Reason::PROTOCOL_ERROR),
            _ => Err(Reason::TOPIC_NAME_INVALID),
        }
    }

    /// (name, value) pairs, in the order of the packet.
    pub fn user_properties(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let mut rest = Reader::new(if self.has_user_properties { self.properties } else { &[] });
        // The properties were checked before, so an error marks their end.
        std::iter::from_fn(move || {
            loop {
                if let Property::User(name, value) = Property::read(&mut rest).ok()? {
                    return Some((name, value));
                }
            }
        })
    }

    fn read_properties(&mut self, mut properties: Reader<'a>) -> Checked<()> {
        self.properties = properties.rest();
        let mut seen = 0_u64;
        while !properties.is_empty() {
            let id = properties.rest()[0];
            let property = Property::read(&mut properties)?;
            // MQTT 5 §2.2.2.2: each property except the user property occurs at most once.
            if id != property::USER_PROPERTY && seen & 1 << id != 0 {
                return Err(Reason::PROTOCOL_ERROR);
            }
            seen |= 1 << id;
            self.set(property)?;
        }
        Ok(())
    }

    fn set(&mut self, property: Property<'a>) -> Checked<()> {
        match property {
            Property::PayloadFormat(format @ 0..=1) => self.is_text = Some(format == 1),
            Property::PayloadFormat(_) => return Err(Reason::PROTOCOL_ERROR),
            Property::Expiry(seconds) => self.expiry_s = Some(seconds),
            Property::ContentType(text) => self.content_type = text,
            // MQTT 5 §3.3.2.3.5: the response topic is a topic name.
            Property::ResponseTopic(topic) if !topic::topic_is_valid(topic) => {
                return Err(Reason::PROTOCOL_ERROR);
            }
            Property::ResponseTopic(topic) => self.response_topic = topic,
            Property::CorrelationData(data) => self.correlation_data = data,
            // MQTT 5 §3.3.2.3.4
            Property::TopicAlias(0) => return Err(Reason::TOPIC_ALIAS_INVALID),
            Property::TopicAlias(alias) => self.topic_alias = alias,
            Property::User(..) => self.has_user_properties = true,
        }
        Ok(())
    }
}

enum Property<'a> {
    PayloadFormat(u8),
    Expiry(u32),
    ContentType(&'a str),
    ResponseTopic(&'a str),
    CorrelationData(&'a [u8]),
    TopicAlias(u16),
    User(&'a str, &'a str),
}

impl<'a> Property<'a> {
    fn read(properties: &mut Reader<'a>) -> Checked<Self> {
        Ok(match properties.byte()? {
            property::PAYLOAD_FORMAT => Self::PayloadFormat(properties.byte()?),
            property::MESSAGE_EXPIRY => Self::Expiry(properties.u32()?),
            property::CONTENT_TYPE => Self::ContentType(properties.text()?),
            property::RESPONSE_TOPIC => Self::ResponseTopic(properties.text()?),
            property::CORRELATION_DATA => Self::CorrelationData(properties.binary()?),
            property::TOPIC_ALIAS => Self::TopicAlias(properties.u16()?),
            property::USER_PROPERTY => Self::User(properties.text()?, properties.text()?),
            // MQTT 5 §3.3.4: a client must not send one.
            property::SUBSCRIPTION_IDENTIFIER => return Err(Reason::PROTOCOL_ERROR),
            _ => return Err(Reason::MALFORMED),
        })
    }
}
