//! The state of a session for another gateway, both ways.

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::mqtt::session::{SentState, SessionState as State};

/// A message that its client has not acknowledged finally.
#[pyclass(module = "hbroker._native", frozen, get_all, eq)]
#[derive(Clone, PartialEq, Eq)]
pub struct InFlight {
    packet_id: u16,
    publisher: u64,
    sequence: u64,
    qos: u8,
    is_received: bool,
}

#[pyclass(module = "hbroker._native", frozen, get_all)]
pub struct SessionState {
    in_flight: Py<PyTuple>,
    received: Py<PyTuple>,
    block: u8,
}

#[pymethods]
impl InFlight {
    #[new]
    #[pyo3(signature = (packet_id, publisher, sequence, qos, is_received = false))]
    fn new(packet_id: u16, publisher: u64, sequence: u64, qos: u8, is_received: bool) -> Self {
        Self { packet_id, publisher, sequence, qos, is_received }
    }
}

#[pymethods]
impl SessionState {
    #[new]
    #[pyo3(signature = (in_flight = Vec::new(), received = Vec::new(), block = 0))]
    fn new(py: Python<'_>, in_flight: Vec<InFlightIn>, received: Vec<u16>, block: u8) -> PyResult<Self> {
        let in_flight = in_flight.into_iter().map(InFlight::from);
        Self::of(py, in_flight.collect(), received, block)
    }
}

impl SessionState {
    fn of(py: Python<'_>, in_flight: Vec<InFlight>, received: Vec<u16>, block: u8) -> PyResult<Self> {
        let in_flight = PyTuple::new(py, in_flight)?.unbind();
        Ok(Self { in_flight, received: PyTuple::new(py, received)?.unbind(), block })
    }
}

/// Any object with the attributes of an `InFlight`.
#[derive(FromPyObject)]
pub struct InFlightIn {
    packet_id: u16,
    publisher: u64,
    sequence: u64,
    qos: u8,
    is_received: bool,
}

impl From<InFlightIn> for InFlight {
    fn from(known: InFlightIn) -> Self {
        let InFlightIn { packet_id, publisher, sequence, qos, is_received } = known;
        Self { packet_id, publisher, sequence, qos, is_received }
    }
}

/// Any object with the attributes of a `SessionState`.
#[derive(FromPyObject)]
pub struct SessionStateIn {
    in_flight: Vec<InFlightIn>,
    received: Vec<u16>,
    block: u8,
}

impl SessionStateIn {
    pub fn read(self) -> State {
        let mut outgoing = SentState { block: self.block, ..SentState::default() };
        for known in self.in_flight {
            let message = (known.publisher, known.sequence);
            match known.packet_id {
                0 => outgoing.had.push(message),
                packet_id if known.is_received => outgoing.awaiting_pubcomp.push((message, packet_id)),
                packet_id => outgoing.sent.push((message, packet_id)),
            }
        }
        State { outgoing, received: self.received }
    }
}

pub fn state_out(py: Python<'_>, state: State) -> PyResult<SessionState> {
    let SentState { sent, awaiting_pubcomp, had, block } = state.outgoing;
    let in_flight = |((publisher, sequence), packet_id), qos, is_received| InFlight {
        packet_id,
        publisher,
        sequence,
        qos,
        is_received,
    };
    // The QoS is known only of messages that the client has received. The network sends the others again by
    // itself.
    let sent = sent.into_iter().map(|it| in_flight(it, 1, false));
    let awaiting_pubcomp = awaiting_pubcomp.into_iter().map(|it| in_flight(it, 2, true));
    let had = had.into_iter().map(|message| in_flight((message, 0), 2, true));
    SessionState::of(py, sent.chain(awaiting_pubcomp).chain(had).collect(), state.received, block)
}
