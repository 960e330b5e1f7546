//! The events of an engine, as frozen classes.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::{Address, address_out};
use crate::engine::transport::event::{DownReason, Event, Peer};

#[pyclass(module = "hbroker._native", frozen, get_all)]
pub struct ControlEvent {
    link: Option<u64>,
    source: Address,
    packet: Py<PyBytes>,
    inbound: bool,
}

#[pyclass(module = "hbroker._native", frozen, get_all)]
pub struct LinkUpEvent {
    link: u64,
    address: Address,
    session: u64,
    inbound: bool,
}

#[pyclass(module = "hbroker._native", frozen, get_all)]
pub struct LinkDownEvent {
    link: u64,
    address: Address,
    session: u64,
    inbound: bool,
    reason: String,
}

#[pyclass(module = "hbroker._native", frozen, get_all)]
pub struct OverflowEvent {
    session: u64,
    link: Option<u64>,
}

#[pyclass(module = "hbroker._native", frozen, get_all)]
pub struct UnresolvedEvent {
    topic: String,
    start: Option<Address>,
}

#[pyclass(module = "hbroker._native", frozen, get_all)]
pub struct PublishedEvent {
    sequence: u64,
    topic: String,
    reason: i32,
    count: u64,
}

#[pymethods]
impl ControlEvent {
    #[new]
    fn new(link: Option<u64>, source: Address, packet: Py<PyBytes>, inbound: bool) -> Self {
        Self { link, source, packet, inbound }
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let (ip, port) = &self.source;
        let bytes = self.packet.bind(py).as_any().len().unwrap_or(0);
        format!(
            "ControlEvent(link={:?}, source={ip}:{port}, {bytes} bytes, inbound={})",
            self.link, self.inbound
        )
    }
}

#[pymethods]
impl LinkUpEvent {
    #[new]
    fn new(link: u64, address: Address, session: u64, inbound: bool) -> Self {
        Self { link, address, session, inbound }
    }

    fn __repr__(&self) -> String {
        let (ip, port) = &self.address;
        format!("LinkUpEvent(link={}, address={ip}:{port}, inbound={})", self.link, self.inbound)
    }
}

#[pymethods]
impl LinkDownEvent {
    #[new]
    fn new(link: u64, address: Address, session: u64, inbound: bool, reason: String) -> Self {
        Self { link, address, session, inbound, reason }
    }

    fn __repr__(&self) -> String {
        let (ip, port) = &self.address;
        format!(
            "LinkDownEvent(link={}, address={ip}:{port}, inbound={}, reason={})",
            self.link, self.inbound, self.reason
        )
    }
}

#[pymethods]
impl OverflowEvent {
    #[new]
    fn new(session: u64, link: Option<u64>) -> Self {
        Self { session, link }
    }

    fn __repr__(&self) -> String {
        format!("OverflowEvent(session={}, link={:?})", self.session, self.link)
    }
}

#[pymethods]
impl UnresolvedEvent {
    #[new]
    fn new(topic: String, start: Option<Address>) -> Self {
        Self { topic, start }
    }

    fn __repr__(&self) -> String {
        format!("UnresolvedEvent(topic={:?}, start={:?})", self.topic, self.start)
    }
}

#[pymethods]
impl PublishedEvent {
    #[new]
    #[pyo3(signature = (sequence, topic, reason, count=1))]
    fn new(sequence: u64, topic: String, reason: i32, count: u64) -> Self {
        Self { sequence, topic, reason, count }
    }

    fn __repr__(&self) -> String {
        let Self { sequence, topic, reason, count } = self;
        format!("PublishedEvent(sequence={sequence}, topic={topic:?}, reason={reason}, count={count})")
    }
}

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
        Event::LinkDown(peer, reason) => Py::new(py, down(peer, reason))?.into_any(),
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

fn down(peer: Peer, reason: DownReason) -> LinkDownEvent {
    LinkDownEvent {
        link: peer.link.0,
        address: address_out(peer.address),
        session: peer.session,
        inbound: peer.inbound,
        reason: reason.name().to_owned(),
    }
}
