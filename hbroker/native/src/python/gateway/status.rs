//! The status of a connection, as a frozen class.

use pyo3::prelude::*;

use crate::mqtt::command::ConnectionStatus as Status;
use crate::python::{Address, address_out};

#[pyclass(module = "hbroker._native", frozen, get_all)]
pub struct ConnectionStatus {
    connection: u64,
    session: u64,
    listener: u32,
    peer: Address,
    client_id: String,
    messages_in: u64,
    messages_out: u64,
    bytes_in: u64,
    bytes_out: u64,
    queued: usize,
    queued_bytes: usize,
    in_flight: usize,
    dropped: u64,
}

#[pymethods]
impl ConnectionStatus {
    fn __repr__(&self) -> String {
        let Self { connection, client_id, queued, dropped, .. } = self;
        format!(
            "ConnectionStatus(connection={connection}, client_id={client_id:?}, queued={queued}, dropped={dropped})"
        )
    }
}

impl From<Status> for ConnectionStatus {
    fn from(status: Status) -> Self {
        let Status { connection, session, client_id, listener, source, load, traffic, .. } = status;
        Self {
            connection: connection.0,
            session,
            listener,
            peer: address_out(source),
            client_id: client_id.into(),
            messages_in: traffic.messages_in,
            messages_out: traffic.messages_out,
            bytes_in: traffic.bytes_in,
            bytes_out: traffic.bytes_out,
            queued: load.queued,
            queued_bytes: load.queued_bytes,
            in_flight: load.inflight,
            dropped: traffic.dropped,
        }
    }
}
