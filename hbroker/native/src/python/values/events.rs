//! The events of an engine, as frozen classes.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::engine::transport::event::{Event, Peer, SessionClaim};
use crate::python::{Address, address_out, debug_repr};

#[pyclass(module = "hbroker._native", frozen, get_all)]
#[derive(Debug)]
pub struct ControlEvent {
    link: Option<u64>,
    source: Address,
    packet: Py<PyBytes>,
    inbound: bool,
    rights: u64,
}

#[pyclass(module = "hbroker._native", frozen, get_all, new = "from_fields")]
#[derive(Debug)]
pub struct RightsRequestedEvent {
    association: u64,
    source: Address,
    token: Py<PyBytes>,
}

#[pyclass(module = "hbroker._native", frozen, get_all, new = "from_fields")]
#[derive(Debug)]
pub struct SessionClaimedEvent {
    session: u64,
    source: Address,
    rights: u64,
}

#[pyclass(module = "hbroker._native", frozen, get_all, new = "from_fields")]
#[derive(Debug)]
pub struct RightsChangedEvent {
    link: u64,
    session: u64,
    rights: u64,
}

#[pyclass(module = "hbroker._native", frozen, get_all)]
#[derive(Debug)]
pub struct LinkUpEvent {
    link: u64,
    address: Address,
    session: u64,
    inbound: bool,
    rights: u64,
}

#[pyclass(module = "hbroker._native", frozen, get_all, new = "from_fields")]
#[derive(Debug)]
pub struct LinkDownEvent {
    link: u64,
    address: Address,
    session: u64,
    inbound: bool,
    reason: String,
}

#[pyclass(module = "hbroker._native", frozen, get_all, new = "from_fields")]
#[derive(Debug)]
pub struct OverflowEvent {
    session: u64,
    link: Option<u64>,
}

#[pyclass(module = "hbroker._native", frozen, get_all, new = "from_fields")]
#[derive(Debug)]
pub struct UnresolvedEvent {
    topic: String,
    start: Option<Address>,
}

#[pyclass(module = "hbroker._native", frozen, get_all, new = "from_fields")]
#[derive(Debug)]
pub struct PublishedEvent {
    sequence: u64,
    topic: String,
    reason: i32,
    count: u64,
}

#[pymethods]
impl ControlEvent {
    #[new]
    #[pyo3(signature = (link, source, packet, inbound, rights = 0))]
    fn new(link: Option<u64>, source: Address, packet: Py<PyBytes>, inbound: bool, rights: u64) -> Self {
        Self { link, source, packet, inbound, rights }
    }

    fn __repr__(&self) -> String {
        format!("{self:?}")
    }
}

#[pymethods]
impl LinkUpEvent {
    #[new]
    #[pyo3(signature = (link, address, session, inbound, rights = 0))]
    fn new(link: u64, address: Address, session: u64, inbound: bool, rights: u64) -> Self {
        Self { link, address, session, inbound, rights }
    }

    fn __repr__(&self) -> String {
        format!("{self:?}")
    }
}

debug_repr!(RightsRequestedEvent, RightsChangedEvent, SessionClaimedEvent, LinkDownEvent);
debug_repr!(OverflowEvent, UnresolvedEvent, PublishedEvent);

/// Converts an event into its class.
pub fn event_out(py: Python<'_>, event: Event) -> PyResult<Py<PyAny>> {
    Ok(match event {
        Event::Control { link, source, packet, inbound, rights } => {
            let packet = PyBytes::new(py, &packet).unbind();
            let link = link.map(|link| link.0);
            let source = address_out(source);
            Py::new(py, ControlEvent { link, source, packet, inbound, rights })?.into_any()
        }
        Event::RightsRequested { association, source, token } => {
            let (source, token) = (address_out(source), PyBytes::new(py, &token).unbind());
            Py::new(py, RightsRequestedEvent { association, source, token })?.into_any()
        }
        Event::SessionClaimed(SessionClaim { session, source, rights }) => {
            Py::new(py, SessionClaimedEvent { session, source: address_out(source), rights })?.into_any()
        }
        Event::RightsChanged(Peer { link, session, rights, .. }) => {
            Py::new(py, RightsChangedEvent { link: link.0, session, rights })?.into_any()
        }
        Event::LinkUp(Peer { link, address, session, inbound, rights }) => {
            let (link, address) = (link.0, address_out(address));
            Py::new(py, LinkUpEvent { link, address, session, inbound, rights })?.into_any()
        }
        Event::LinkDown(Peer { link, address, session, inbound, .. }, reason) => {
            let (link, address, reason) = (link.0, address_out(address), reason.name().to_owned());
            Py::new(py, LinkDownEvent { link, address, session, inbound, reason })?.into_any()
        }
        Event::Overflow { session, link } => {
            Py::new(py, OverflowEvent { session, link: link.map(|link| link.0) })?.into_any()
        }
        Event::Unresolved { topic, start } => {
            let start = start.map(address_out);
            Py::new(py, UnresolvedEvent { topic: topic.into(), start })?.into_any()
        }
        Event::Published { first, count, topic, reason } => {
            let event = PublishedEvent { sequence: first, topic: String::from(&*topic), reason, count };
            Py::new(py, event)?.into_any()
        }
    })
}
