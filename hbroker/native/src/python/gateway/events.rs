//! The requests of MQTT clients: the name of the class in `hbroker.gateway.native_api`, and its fields.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::mqtt::codec::packets::{Auth, Subscribe, Subscription, Unsubscribe, Version, Will};
use crate::mqtt::codec::reason::Reason;
use crate::mqtt::connection::event::{Cause, Closed};
use crate::mqtt::gateway::worker_event::{Arrival, WorkerEvent};
use crate::mqtt::io::connections::ConnectionId;
use crate::python::address_out;

pub type EventOut<'py> = (&'static str, Bound<'py, PyDict>);

/// A dict of fields.
macro_rules! fields {
    ($py:ident, $($name:ident: $value:expr),+ $(,)?) => {{
        let fields = PyDict::new($py);
        $(fields.set_item(stringify!($name), $value)?;)+
        fields
    }};
}

pub fn worker_event_out(py: Python<'_>, worker_event: WorkerEvent) -> PyResult<EventOut<'_>> {
    Ok(match worker_event {
        WorkerEvent::Connect(id, arrival) => ("ConnectEvent", connect_out(py, id, *arrival)?),
        WorkerEvent::Subscribe(id, Subscribe { packet_id, identifier, filters }) => {
            let options =
                |it: &Subscription| (it.qos, it.no_local, it.retain_as_published, it.retain_handling);
            let filters: Vec<_> = filters.iter().map(|it| (&it.filter, options(it))).collect();
            let fields =
                fields!(py, connection: id.0, packet_id: packet_id, filters: filters, identifier: identifier);
            ("SubscribeEvent", fields)
        }
        WorkerEvent::Unsubscribe(id, Unsubscribe { packet_id, filters }) => {
            let filters = PyTuple::new(py, filters)?;
            ("UnsubscribeEvent", fields!(py, connection: id.0, packet_id: packet_id, filters: filters))
        }
        WorkerEvent::Auth(id, Auth { reason, method, data }) => {
            let data = PyBytes::new(py, data.as_deref().unwrap_or_default());
            ("AuthEvent", fields!(py, connection: id.0, reason: reason.0, method: method, data: data))
        }
        WorkerEvent::Closed(id, closed) => {
            let fields = fields!(
                py,
                connection: id.0,
                cause: cause_out(&closed),
                reason: (closed.cause == Cause::Client).then_some(closed.reason.0),
                session_expiry_s: closed.session_expiry,
            );
            ("ClosedEvent", fields)
        }
    })
}

fn cause_out(closed: &Closed) -> &'static str {
    match closed.cause {
        Cause::Client => "disconnect",
        Cause::Lost => "closed",
        Cause::Silent => "keep_alive",
        Cause::Error if closed.reason == Reason::PACKET_TOO_LARGE => "too_large",
        Cause::Error => "protocol_error",
        Cause::Server => "server",
    }
}

fn connect_out(py: Python<'_>, id: ConnectionId, arrival: Arrival) -> PyResult<Bound<'_, PyDict>> {
    let Arrival { listener, source, identity, connect } = arrival;
    Ok(fields!(
        py,
        connection: id.0,
        listener: listener,
        peer: address_out(source),
        version: connect.version as u8,
        is_bridge: connect.is_bridge,
        client_id: connect.client_id,
        clean_start: connect.clean_start,
        certificate_name: identity.unwrap_or_default(),
        username: connect.user,
        password: connect.password.map(|password| PyBytes::new(py, &password)),
        keep_alive_s: connect.keep_alive,
        will: connect.will.map(|will| will_out(py, will)).transpose()?,
        session_expiry_s: if connect.version < Version::V5 { 0 } else { connect.session_expiry },
        wants_problem_information: connect.wants_problem_information,
        auth_method: connect.authentication_method,
        auth_data: PyBytes::new(py, connect.authentication_data.as_deref().unwrap_or_default()),
    ))
}

fn will_out(py: Python<'_>, will: Will) -> PyResult<Bound<'_, PyDict>> {
    Ok(fields!(
        py,
        topic: will.topic,
        payload: PyBytes::new(py, &will.payload),
        qos: will.qos,
        retain: will.retain,
        delay_s: will.delay_s,
        expiry_s: will.expiry_s,
        content_type: will.content_type.unwrap_or_default(),
        payload_format: will.is_text.map(u8::from),
        response_topic: will.response_topic.unwrap_or_default(),
        correlation_data: PyBytes::new(py, will.correlation_data.as_deref().unwrap_or_default()),
        user_properties: PyTuple::new(py, will.user_properties)?,
    ))
}
