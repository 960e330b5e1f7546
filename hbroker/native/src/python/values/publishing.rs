//! `publish` and `publish_many`: converts a caller's messages and their properties.

use bytes::Bytes;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyDict, PyString};

use crate::core::Core;
use crate::engine::Unpublishable;
use crate::python::NativeError;
use crate::wire::PublishOut;

/// The properties of messages in addition to topic and payload: `CoreProperties` of `hbroker/properties.py`,
/// QoS and the retain flag.
#[derive(Default)]
pub struct PublishProperties {
    qos: u8,
    retain: bool,
    published_at_us: u64,
    expiry_s: Option<u32>,
    ack_queued: bool,
    content_type: Option<PyBackedStr>,
    payload_format: Option<i32>,
    response_topic: Option<PyBackedStr>,
    correlation_data: Vec<u8>,
    user_properties: Vec<(String, String)>,
}

impl PublishProperties {
    /// Converts the properties.
    ///
    /// # Errors
    /// There is no such property, or the value is not valid for it.
    pub fn of(qos: u8, retain: bool, properties: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut publish_properties = Self { qos, retain, ..Self::default() };
        for (name, value) in properties.into_iter().flatten() {
            let name = name.cast::<PyString>()?;
            match name.to_str()? {
                "published_at_us" => publish_properties.published_at_us = value.extract()?,
                "expiry_s" => publish_properties.expiry_s = value.extract()?,
                "ack_queued" => publish_properties.ack_queued = value.extract()?,
                "content_type" => publish_properties.content_type = Some(value.extract()?),
                "payload_format" => publish_properties.payload_format = value.extract()?,
                "response_topic" => publish_properties.response_topic = Some(value.extract()?),
                "correlation_data" => publish_properties.correlation_data = value.extract()?,
                "user_properties" => publish_properties.user_properties = value.extract()?,
                unknown => {
                    return Err(PyTypeError::new_err(format!("a message has no property {unknown:?}")));
                }
            }
        }
        Ok(publish_properties)
    }

    #[inline]
    fn message<'a>(&'a self, topic: &'a str, payload: &'a [u8]) -> PublishOut<'a> {
        PublishOut {
            topic,
            payload,
            qos: self.qos,
            retain: self.retain,
            ack_queued: self.ack_queued,
            published_at_us: self.published_at_us,
            expiry_s: self.expiry_s,
            content_type: self.content_type.as_deref().unwrap_or_default(),
            payload_format: self.payload_format,
            response_topic: self.response_topic.as_deref().unwrap_or_default(),
            correlation_data: &self.correlation_data,
            user_properties: &self.user_properties,
            ..PublishOut::default()
        }
    }
}

/// See `_Core.publish` in the stub.
pub fn publish(
    py: Python<'_>,
    core: &Core,
    topic: &str,
    payload: Bound<'_, PyBytes>,
    publish_properties: &PublishProperties,
) -> PyResult<Option<u64>> {
    let mut buffer = String::new();
    let absolute = core.workspace().absolute(topic, &mut buffer).ok_or_else(|| not_a_topic(topic))?;
    let message = publish_properties.message(absolute, payload.as_bytes());
    // A large payload is not copied: the Python object is kept until the last fragment is built.
    let mut shared = Some(PyBackedBytes::from(payload.clone()));
    let mut share = || Bytes::from_owner(shared.take().expect("it is shared once"));
    let published = py.detach(|| core.on(0, |engine, now| engine.publish(now, &message, &mut share)));
    published.map_err(|why| unpublishable(why, &message))
}

/// See `_Core.publish_many` in the stub.
pub fn publish_many(
    py: Python<'_>,
    core: &Core,
    messages: Vec<(PyBackedStr, Bound<'_, PyBytes>)>,
    publish_properties: &PublishProperties,
) -> PyResult<Vec<u64>> {
    let messages = messages.into_iter().map(|(topic, payload)| {
        (topic, PyBackedBytes::from(payload.clone()), Some(PyBackedBytes::from(payload)))
    });
    // The rest of the messages is dropped here, where the GIL is held.
    let mut messages: Vec<_> = messages.collect();
    let mut sequences = Vec::with_capacity(messages.len());
    let mut buffer = String::new();
    let ended = py.detach(|| {
        core.on(0, |engine, now| {
            for (topic, payload, shared) in &mut messages {
                let Some(absolute) = core.workspace().absolute(topic, &mut buffer) else {
                    return Err(not_a_topic(topic));
                };
                let message = publish_properties.message(absolute, payload);
                let share = || Bytes::from_owner(shared.take().expect("it is shared once"));
                match engine.publish(now, &message, share) {
                    Ok(Some(sequence)) => sequences.push(sequence),
                    Ok(None) => return Ok(()),
                    Err(why) => return Err(unpublishable(why, &message)),
                }
            }
            Ok(())
        })
    });
    match ended {
        Err(error) if sequences.is_empty() => Err(error),
        _ => Ok(sequences),
    }
}

fn unpublishable(why: Unpublishable, message: &PublishOut<'_>) -> PyErr {
    NativeError::new_err(match why {
        Unpublishable::InvalidTopic => return not_a_topic(message.topic),
        Unpublishable::InvalidQos => format!("QoS {} is none of 0, 1 and 2", message.qos),
        Unpublishable::TooLarge => {
            format!("a message with a payload of {} bytes is too large", message.payload.len())
        }
        Unpublishable::NotOwned => format!("this node does not own {:?}", message.topic),
    })
}

fn not_a_topic(topic: &str) -> PyErr {
    NativeError::new_err(format!("{topic:?} is not a valid topic"))
}
