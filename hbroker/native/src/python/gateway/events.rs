//! The requests of MQTT clients, as frozen classes.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::mqtt::codec::packets::{Auth, Subscribe, Unsubscribe, Version, Will};
use crate::mqtt::codec::reason::Reason;
use crate::mqtt::event::{Cause, Closed};
use crate::mqtt::io::connections::ConnectionId;
use crate::mqtt::worker_event::{Arrival, WorkerEvent};
use crate::python::{Address, address_out};

#[pyclass(module = "hbroker._native", frozen, get_all)]
pub struct WillMessage {
    topic: String,
    payload: Py<PyBytes>,
    qos: u8,
    retain: bool,
    delay_s: u32,
    expiry_s: Option<u32>,
    content_type: String,
    payload_format: Option<u8>,
    response_topic: String,
    correlation_data: Py<PyBytes>,
    user_properties: Py<PyTuple>,
}

#[pyclass(module = "hbroker._native", frozen, get_all)]
pub struct ConnectEvent {
    connection: u64,
    listener: u32,
    peer: Address,
    version: u8,
    is_bridge: bool,
    client_id: String,
    clean_start: bool,
    certificate_name: String,
    username: Option<String>,
    password: Option<Py<PyBytes>>,
    keep_alive_s: u16,
    will: Option<Py<WillMessage>>,
    session_expiry_s: u32,
    wants_problem_information: bool,
    auth_method: Option<String>,
    auth_data: Py<PyBytes>,
}

#[pyclass(module = "hbroker._native", frozen, get_all)]
pub struct SubscribeOptions {
    qos: u8,
    no_local: bool,
    retain_as_published: bool,
    retain_handling: u8,
}

#[pyclass(module = "hbroker._native", frozen, get_all)]
pub struct SubscribeEvent {
    connection: u64,
    packet_id: u16,
    filters: Py<PyTuple>,
    identifier: u32,
}

#[pyclass(module = "hbroker._native", frozen, get_all)]
pub struct UnsubscribeEvent {
    connection: u64,
    packet_id: u16,
    filters: Py<PyTuple>,
}

#[pyclass(module = "hbroker._native", frozen, get_all)]
pub struct AuthEvent {
    connection: u64,
    reason: u8,
    method: String,
    data: Py<PyBytes>,
}

#[pyclass(module = "hbroker._native", frozen, get_all)]
pub struct ClosedEvent {
    connection: u64,
    cause: String,
    reason: Option<u8>,
    session_expiry_s: Option<u32>,
}

#[pyclass(module = "hbroker._native", frozen, get_all)]
pub struct SessionOverflowEvent {
    session: u64,
}

#[pymethods]
impl ConnectEvent {
    /// Without secrets.
    fn __repr__(&self) -> String {
        let Self { connection, listener, peer: (ip, port), version, client_id, .. } = self;
        format!(
            "ConnectEvent(connection={connection}, listener={listener}, peer={ip}:{port}, version={version}, client_id={client_id:?})"
        )
    }
}

#[pymethods]
impl ClosedEvent {
    fn __repr__(&self) -> String {
        let Self { connection, cause, reason, .. } = self;
        format!("ClosedEvent(connection={connection}, cause={cause:?}, reason={reason:?})")
    }
}

pub fn worker_event_out(py: Python<'_>, worker_event: WorkerEvent) -> PyResult<Py<PyAny>> {
    match worker_event {
        WorkerEvent::Connect(id, arrival) => connect_out(py, id, *arrival),
        WorkerEvent::Subscribe(id, subscribe) => subscribe_out(py, id, subscribe),
        WorkerEvent::Unsubscribe(id, Unsubscribe { packet_id, filters, .. }) => {
            let filters = PyTuple::new(py, filters)?.unbind();
            Ok(Py::new(py, UnsubscribeEvent { connection: id.0, packet_id, filters })?.into_any())
        }
        WorkerEvent::Auth(id, Auth { reason, method, data, .. }) => {
            let data = PyBytes::new(py, data.as_deref().unwrap_or_default()).unbind();
            Ok(Py::new(py, AuthEvent { connection: id.0, reason: reason.0, method, data })?.into_any())
        }
        WorkerEvent::Closed(id, closed) => {
            let event = ClosedEvent {
                connection: id.0,
                cause: cause_out(&closed).to_owned(),
                reason: (closed.cause == Cause::Client).then_some(closed.reason.0),
                session_expiry_s: closed.session_expiry,
            };
            Ok(Py::new(py, event)?.into_any())
        }
        WorkerEvent::Overflow(session) => Ok(Py::new(py, SessionOverflowEvent { session })?.into_any()),
    }
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

fn connect_out(py: Python<'_>, id: ConnectionId, arrival: Arrival) -> PyResult<Py<PyAny>> {
    let Arrival { listener, source, identity, connect } = arrival;
    let will = connect.will.map(|will| will_out(py, will)).transpose()?;
    let event = ConnectEvent {
        connection: id.0,
        listener,
        peer: address_out(source),
        version: connect.version as u8,
        is_bridge: connect.is_bridge,
        client_id: connect.client_id,
        clean_start: connect.clean_start,
        certificate_name: identity.unwrap_or_default(),
        username: connect.user,
        password: connect.password.map(|password| PyBytes::new(py, &password).unbind()),
        keep_alive_s: connect.keep_alive,
        will,
        session_expiry_s: if connect.version < Version::V5 { 0 } else { connect.session_expiry },
        wants_problem_information: connect.wants_problem_information,
        auth_method: connect.authentication_method,
        auth_data: PyBytes::new(py, connect.authentication_data.as_deref().unwrap_or_default()).unbind(),
    };
    Ok(Py::new(py, event)?.into_any())
}

fn will_out(py: Python<'_>, will: Will) -> PyResult<Py<WillMessage>> {
    let message = WillMessage {
        topic: will.topic,
        payload: PyBytes::new(py, &will.payload).unbind(),
        qos: will.qos,
        retain: will.retain,
        delay_s: will.delay_s,
        expiry_s: will.expiry_s,
        content_type: will.content_type.unwrap_or_default(),
        payload_format: will.is_text.map(u8::from),
        response_topic: will.response_topic.unwrap_or_default(),
        correlation_data: PyBytes::new(py, will.correlation_data.as_deref().unwrap_or_default()).unbind(),
        user_properties: PyTuple::new(py, will.user_properties)?.unbind(),
    };
    Py::new(py, message)
}

fn subscribe_out(py: Python<'_>, id: ConnectionId, subscribe: Subscribe) -> PyResult<Py<PyAny>> {
    let filters = subscribe.filters.into_iter().map(|filter| {
        let options = SubscribeOptions {
            qos: filter.qos,
            no_local: filter.no_local,
            retain_as_published: filter.retain_as_published,
            retain_handling: filter.retain_handling,
        };
        Ok((filter.filter, Py::new(py, options)?))
    });
    let filters = PyTuple::new(py, filters.collect::<PyResult<Vec<_>>>()?)?.unbind();
    let Subscribe { packet_id, identifier, .. } = subscribe;
    Ok(Py::new(py, SubscribeEvent { connection: id.0, packet_id, filters, identifier })?.into_any())
}
