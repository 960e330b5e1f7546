//! The MQTT 5 properties of a message, which only an application reads. The core forwards them unread.

use super::Malformed;
use super::publish::PublishView;
use super::reader::{MAX_DEPTH, Reader, occurrences};
use crate::schema::{publish, user_property};

/// The MQTT 5 properties that only an application reads.
#[derive(Debug, Clone, Copy, Default)]
pub struct Properties<'a> {
    pub content_type: &'a str,
    pub payload_format: Option<i32>,
    pub response_topic: &'a str,
    pub correlation_data: &'a [u8],
}

impl<'a> PublishView<'a> {
    /// The properties except the user properties.
    pub fn properties(&self) -> Properties<'a> {
        let mut properties = Properties::default();
        for content in self.contents() {
            // It was parsed before, so reading ends without an error.
            let _ = properties.merge(Reader::new(content, MAX_DEPTH));
        }
        properties
    }

    /// (name, value) pairs, in the publisher's order.
    pub fn user_properties(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.contents().flat_map(|content| occurrences(content, publish::USER_PROPERTIES)).map(|property| {
            let text = |field| occurrences(property, field).last().and_then(|text| str::from_utf8(text).ok());
            (text(user_property::NAME).unwrap_or(""), text(user_property::VALUE).unwrap_or(""))
        })
    }
}

impl<'a> Properties<'a> {
    fn merge(&mut self, mut message: Reader<'a>) -> Result<(), Malformed> {
        while let Some(tag) = message.tag()? {
            match tag {
                publish::CONTENT_TYPE => self.content_type = message.text()?,
                publish::PAYLOAD_FORMAT => self.payload_format = Some(message.open_enum()?),
                publish::RESPONSE_TOPIC => self.response_topic = message.text()?,
                publish::CORRELATION_DATA => self.correlation_data = message.bytes()?,
                _ => message.skip(tag)?,
            }
        }
        Ok(())
    }
}
