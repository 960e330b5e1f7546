//! The properties of the control packets that Python decides on (MQTT 5 §2.2.2).

use bytes::Bytes;
use smallvec::SmallVec;

use crate::mqtt::codec::Checked;
use crate::mqtt::codec::packets::{UserProperties, Version};
use crate::mqtt::codec::reader::Reader;
use crate::mqtt::codec::reason::Reason;

pub const USER_PROPERTY: u8 = 0x26;

/// A list of properties: each except the user property at most once, with a value of its type and range.
#[derive(Default)]
pub struct Properties<'a>(SmallVec<[(u8, Value<'a>); 4]>);

enum Value<'a> {
    Number(u32),
    Text(&'a str),
    Data(&'a [u8]),
    Pair(&'a str, &'a str),
}

impl<'a> Properties<'a> {
    /// Reads and checks the properties of a packet. Before MQTT 5 there are none.
    pub fn read(version: Version, body: &mut Reader<'a>) -> Checked<Self> {
        let mut found = Self::default();
        if version < Version::V5 {
            return Ok(found);
        }
        let mut properties = body.properties()?;
        while !properties.is_empty() {
            let id = properties.byte()?;
            let value = match id {
                0x01 | 0x17 | 0x19 | 0x24 | 0x25 | 0x28..=0x2A => Value::Number(properties.byte()?.into()),
                0x13 | 0x21..=0x23 => Value::Number(properties.u16()?.into()),
                0x02 | 0x11 | 0x18 | 0x27 => Value::Number(properties.u32()?),
                0x0B => Value::Number(properties.varint()?),
                0x03 | 0x08 | 0x12 | 0x15 | 0x1A | 0x1C | 0x1F => Value::Text(properties.text()?),
                0x09 | 0x16 => Value::Data(properties.binary()?),
                USER_PROPERTY => Value::Pair(properties.text()?, properties.text()?),
                _ => return Err(Reason::MALFORMED),
            };
            let is_in_range = match (id, &value) {
                (0x01 | 0x17 | 0x19, Value::Number(number)) => *number <= 1,
                (0x02 | 0x0B | 0x21 | 0x27, Value::Number(number)) => *number > 0,
                _ => true,
            };
            if !is_in_range || (id != USER_PROPERTY && found.value(id).is_some()) {
                return Err(Reason::PROTOCOL_ERROR);
            }
            found.0.push((id, value));
        }
        Ok(found)
    }

    /// Refuses properties other than these.
    pub fn only(&self, ids: &[u8]) -> Checked<()> {
        if self.0.iter().all(|(id, _)| ids.contains(id)) { Ok(()) } else { Err(Reason::MALFORMED) }
    }

    pub fn number(&self, id: u8) -> Option<u32> {
        if let Some(Value::Number(number)) = self.value(id) { Some(*number) } else { None }
    }

    pub fn text(&self, id: u8) -> Option<String> {
        if let Some(Value::Text(text)) = self.value(id) { Some((*text).to_owned()) } else { None }
    }

    pub fn data(&self, id: u8) -> Option<Bytes> {
        if let Some(Value::Data(data)) = self.value(id) { Some(Bytes::copy_from_slice(data)) } else { None }
    }

    pub fn user_properties(&self) -> UserProperties {
        let pair = |(_, value): &(u8, Value<'_>)| match value {
            Value::Pair(name, value) => Some(((*name).to_owned(), (*value).to_owned())),
            _ => None,
        };
        self.0.iter().filter_map(pair).collect()
    }

    fn value(&self, id: u8) -> Option<&Value<'a>> {
        self.0.iter().find(|(known, _)| *known == id).map(|(_, value)| value)
    }
}
