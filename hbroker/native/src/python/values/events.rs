//! The events of an engine, as frozen classes.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::engine::transport::event::{Event, Peer};
use crate::python::{Address, address_out, debug_repr};

#[pyclass(module = "hbroker._native", frozen, get_all, new = "from_fields")]
#[derive(Debug)]
pub struct ControlEvent {
    link: Option<u64>,
    source: Address,
    packet: Py<PyBytes>,
    inbound: bool,
}

#[pyclass(module = "hbroker._native", frozen, get_all, new = "from_fields")]
#[derive(Debug)]
pub struct LinkUpEvent {
    link: u64,
    address: Address,
    session: u64,
    inbound: bool,
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

debug_repr!(ControlEvent, LinkUpEvent, LinkDownEvent, OverflowEvent, UnresolvedEvent, PublishedEvent);

/// Converts an event into its class.
pub fn event_out(py: Python<'_>, event: Event) -> PyResult<Py<PyAny>> {
    Ok(match event {
        Event::Control { link, source, packet, inbound } => {
            let packet = PyBytes::new(py, &packet).unbind();
            let link = link.map(|link| link.0);
            Py::new(py, ControlEvent { link, source: address_out(source), packet, inbound })?.into_any()
        }
        Event::LinkUp(Peer { link, address, session, inbound }) => {
            let (link, address) = (link.0, address_out(address));
            Py::new(py, LinkUpEvent { link, address, session, inbound })?.into_any()
        }
        Event::LinkDown(Peer { link, address, session, inbound }, reason) => {
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
