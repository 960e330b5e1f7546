//! The state of a session for another gateway, both ways.

use pyo3::prelude::*;

use crate::mqtt::session::{SentState, SessionState as State};

/// A message that its client has not acknowledged finally.
#[pyclass(module = "hbroker._native", frozen, get_all, eq, new = "from_fields")]
#[derive(Clone, PartialEq, Eq, FromPyObject)]
pub struct InFlight {
    packet_id: u16,
    publisher: u64,
    sequence: u64,
    qos: u8,
    is_received: bool,
}

/// Read from any object with these attributes.
#[pyclass(module = "hbroker._native", frozen, get_all, new = "from_fields")]
#[derive(Clone, FromPyObject)]
pub struct SessionState {
    in_flight: Vec<InFlight>,
    received: Vec<u16>,
    block: u8,
}

impl From<SessionState> for State {
    fn from(state: SessionState) -> Self {
        let mut outgoing = SentState { block: state.block, ..SentState::default() };
        for sent in state.in_flight {
            let message = (sent.publisher, sent.sequence);
            match sent.packet_id {
                0 => outgoing.completed.push(message),
                packet_id if sent.is_received => outgoing.awaiting_pubcomp.push((message, packet_id)),
                packet_id => outgoing.sent.push((message, packet_id)),
            }
        }
        Self { outgoing, received: state.received }
    }
}

impl From<State> for SessionState {
    fn from(state: State) -> Self {
        let SentState { sent, awaiting_pubcomp, completed, block } = state.outgoing;
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
        let completed = completed.into_iter().map(|message| in_flight((message, 0), 2, true));
        let in_flight = sent.chain(awaiting_pubcomp).chain(completed).collect();
        Self { in_flight, received: state.received, block }
    }
}
