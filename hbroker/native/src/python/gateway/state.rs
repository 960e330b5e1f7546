//! What is kept of a session for another gateway, both ways.

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::mqtt::session::SessionState as State;

/// A message that its client has not finished with.
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
    next_packet_id: u16,
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
    #[pyo3(signature = (in_flight = Vec::new(), received = Vec::new(), next_packet_id = 1))]
    fn new(
        py: Python<'_>,
        in_flight: Vec<InFlightIn>,
        received: Vec<u16>,
        next_packet_id: u16,
    ) -> PyResult<Self> {
        let in_flight = in_flight.into_iter().map(InFlight::from);
        Self::of(py, in_flight.collect(), received, next_packet_id)
    }
}

impl SessionState {
    fn of(py: Python<'_>, in_flight: Vec<InFlight>, received: Vec<u16>, next: u16) -> PyResult<Self> {
        let in_flight = PyTuple::new(py, in_flight)?.unbind();
        Ok(Self { in_flight, received: PyTuple::new(py, received)?.unbind(), next_packet_id: next })
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
}

impl SessionStateIn {
    pub fn read(self) -> State {
        let mut state = State { received: self.received, ..State::default() };
        for known in self.in_flight {
            if known.is_received {
                state.owed.push(known.packet_id);
            } else {
                state.sent.push(((known.publisher, known.sequence), known.packet_id));
            }
        }
        state
    }
}

pub fn state_out(py: Python<'_>, state: State) -> PyResult<SessionState> {
    // A message comes again by itself; what its QoS was is known only of those that were received.
    let sent = state.sent.into_iter().map(|((publisher, sequence), packet_id)| InFlight {
        packet_id,
        publisher,
        sequence,
        qos: 1,
        is_received: false,
    });
    let owed = state.owed.into_iter().map(|packet_id| InFlight {
        packet_id,
        publisher: 0,
        sequence: 0,
        qos: 2,
        is_received: true,
    });
    SessionState::of(py, sent.chain(owed).collect(), state.received, 1)
}
