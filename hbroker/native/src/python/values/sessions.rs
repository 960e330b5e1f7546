//! The status of a session, as a frozen class.

use std::collections::BTreeMap;

use pyo3::prelude::*;

use crate::engine::sessions::session::Status;
use crate::python::debug_repr;

#[pyclass(module = "hbroker._native", frozen, get_all)]
#[derive(Debug)]
pub struct SessionStatus {
    session: u64,
    connected: bool,
    stalled: bool,
    has_backlog: bool,
    accepted: u64,
    delivered: u64,
    expired: u64,
    queued: u64,
    queued_bytes: usize,
    dropped: BTreeMap<&'static str, u64>,
}

debug_repr!(SessionStatus);

impl From<Status> for SessionStatus {
    fn from(status: Status) -> Self {
        let Status { session, is_connected, is_stalled, has_backlog, session_counters, queued, queued_bytes } =
            status;
        Self {
            session,
            connected: is_connected,
            stalled: is_stalled,
            has_backlog,
            accepted: session_counters.accepted,
            delivered: session_counters.delivered,
            expired: session_counters.expired,
            queued,
            queued_bytes,
            dropped: session_counters.dropped().collect(),
        }
    }
}
