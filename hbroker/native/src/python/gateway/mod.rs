//! `Gateway`: an MQTT server in front of a client pool. The base class `ClientPool` has the methods of the
//! pool.
//!
//! ```text
//! Gateway (this file)   its methods ──> crate::mqtt::gateway
//!   settings   listener settings, Accept, access rules, read from Python objects
//!   events     what MQTT clients ask, for Python
//!   state      the state of a session for another gateway, both ways
//!   attempts   the limits on password guesses
//! ```

mod attempts;
mod events;
mod settings;
mod state;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

pub use self::attempts::{AttemptSource, Attempts};
pub use self::state::{InFlight, SessionState};
pub use crate::python::gateway::settings::ListenerSettings;

use self::events::{EventOut, worker_event_out};
use super::{Address, NativeError, address_in, address_out, duration};
use crate::client_pool::messages::Mailbox;
use crate::mqtt::codec::frame::kind;
use crate::mqtt::codec::packets::{Auth, CloseReason};
use crate::mqtt::codec::reason::Reason;
use crate::mqtt::gateway;
use crate::mqtt::gateway::command::{self, Command, Traffic};
use crate::mqtt::io::MOST_WORKERS;
use crate::mqtt::io::connections::ConnectionId;
use crate::python::client_pool::ClientPool;
use crate::python::gateway::settings::{Accept, ListenOptions, Rule, rules_in};
use crate::python::values::config::Config;
use crate::python::values::load::{Load, load_out};

#[pyclass(module = "hbroker._native", extends = ClientPool, frozen)]
pub struct Gateway {
    gateway: gateway::Gateway,
}

/// The status of a connection.
#[pyclass(module = "hbroker._native", frozen, get_all)]
pub struct ConnectionStatus {
    connection: u64,
    messages_in: u64,
    messages_out: u64,
    queued: usize,
    dropped: u64,
}

#[pymethods]
impl Gateway {
    #[new]
    #[pyo3(signature = (config, listen, workers = 0, unfinished_bytes = 536_870_912))]
    fn new(
        py: Python<'_>,
        config: &Config,
        listen: Address,
        workers: usize,
        unfinished_bytes: usize,
    ) -> PyResult<PyClassInitializer<Self>> {
        if workers > MOST_WORKERS || config.0.node {
            return Err(NativeError::new_err(format!(
                "a gateway has {MOST_WORKERS} workers at most, and a client configuration"
            )));
        }
        let listen = address_in(&listen)?;
        let config = config.0.clone();
        let mailbox = Mailbox::new(config.message_queue_bytes);
        let workers =
            if workers > 0 { workers } else { thread::available_parallelism().map_or(1, usize::from) };
        let start = || gateway::Gateway::start(config, listen, workers, &mailbox, unfinished_bytes);
        let gateway = py.detach(start).map_err(PyOSError::new_err)?;
        let client_pool = ClientPool { core: Arc::clone(gateway.client_pool()), mailbox };
        Ok(PyClassInitializer::from(client_pool).add_subclass(Self { gateway }))
    }

    // Listeners

    fn open_listener(
        &self,
        py: Python<'_>,
        number: u32,
        address: Address,
        settings: &ListenerSettings,
    ) -> PyResult<Address> {
        let address = address_in(&address)?;
        let (io, mqtt) = (settings.io.clone(), settings.mqtt.clone());
        let opened = py.detach(|| self.gateway.listen(number, address, io, mqtt));
        opened.map(address_out).map_err(PyOSError::new_err)
    }

    fn set_listener(&self, py: Python<'_>, number: u32, settings: &ListenerSettings) -> PyResult<()> {
        let (io, mqtt) = (settings.io.clone(), settings.mqtt.clone());
        if py.detach(|| self.gateway.set_listener(number, io, mqtt)) {
            return Ok(());
        }
        Err(NativeError::new_err(format!("there is no listener {number}")))
    }

    // Connections

    #[pyo3(signature = (limit = 1024))]
    fn poll_mqtt<'py>(&self, py: Python<'py>, limit: usize) -> PyResult<Vec<EventOut<'py>>> {
        let events = py.detach(|| self.gateway.dispatcher.worker_events.take(limit));
        events.into_iter().map(|event| worker_event_out(py, event)).collect()
    }

    fn accept(&self, py: Python<'_>, connection: u64, accept: Accept) {
        let acl = accept.acl;
        py.detach(|| self.gateway.accept(ConnectionId(connection), accept.admit(), Some(acl)));
    }

    #[pyo3(signature = (connection, code, *, text = "", server_reference = None))]
    fn refuse(
        &self,
        py: Python<'_>,
        connection: u64,
        code: u8,
        text: &str,
        server_reference: Option<String>,
    ) {
        let close_reason = Box::new(close_reason(code, text, server_reference));
        self.post(py, connection, |id| Command::Refuse(id, close_reason));
    }

    fn auth(&self, py: Python<'_>, connection: u64, reason: u8, method: String, data: Vec<u8>) {
        let auth = Auth { reason: Reason(reason), method, data: Some(data.into()) };
        self.post(py, connection, |id| Command::Challenge(id, Box::new(auth)));
    }

    #[pyo3(signature = (connection, code, *, text = "", server_reference = None))]
    fn disconnect(
        &self,
        py: Python<'_>,
        connection: u64,
        code: u8,
        text: &str,
        server_reference: Option<String>,
    ) {
        let close_reason = Box::new(close_reason(code, text, server_reference));
        self.post(py, connection, |id| Command::Disconnect(id, close_reason));
    }

    #[pyo3(signature = (connection, packet_id, codes, text = ""))]
    fn suback(&self, py: Python<'_>, connection: u64, packet_id: u16, codes: Vec<u8>, text: &str) {
        py.detach(|| {
            self.gateway.suback(ConnectionId(connection), packet_id, reasons(codes), text.to_owned());
        });
    }

    #[pyo3(signature = (connection, packet_id, codes, text = ""))]
    fn unsuback(&self, py: Python<'_>, connection: u64, packet_id: u16, codes: Vec<u8>, text: &str) {
        let text = text.to_owned();
        self.post(py, connection, |id| {
            Command::Acknowledge(id, kind::UNSUBACK, packet_id, reasons(codes), text)
        });
    }

    // Sessions

    fn open_session(&self, py: Python<'_>, state: SessionState) -> u64 {
        py.detach(|| self.gateway.open_session(state.into()))
    }

    #[pyo3(signature = (session, *, is_over = false))]
    fn export_session(&self, py: Python<'_>, session: u64, is_over: bool) -> PyResult<SessionState> {
        let state = py.detach(|| self.gateway.export_session(session, is_over));
        let none = || NativeError::new_err(format!("session {session} is not here, or has a connection"));
        state.map(SessionState::from).ok_or_else(none)
    }

    // Listeners of sessions

    #[pyo3(signature = (listener, session, filter, options, identifier, *, packet_id))]
    #[allow(clippy::too_many_arguments)]
    fn attach_listener(
        &self,
        py: Python<'_>,
        listener: u64,
        session: u64,
        filter: &str,
        options: ListenOptions,
        identifier: u32,
        packet_id: Option<u16>,
    ) -> PyResult<()> {
        if !crate::topic::filter_is_valid(filter) {
            return Err(NativeError::new_err(format!("{filter:?} is not a topic filter")));
        }
        let options = options.with(identifier);
        py.detach(|| self.gateway.dispatcher.attach(listener, session, options, packet_id));
        Ok(())
    }

    fn detach_listener(&self, py: Python<'_>, listener: u64) {
        py.detach(|| self.gateway.dispatcher.detach(listener));
    }

    #[pyo3(signature = (listener, topic, payload, *, qos = 0, retained = false))]
    fn deliver(&self, py: Python<'_>, listener: u64, topic: &str, payload: Vec<u8>, qos: u8, retained: bool) {
        py.detach(|| self.gateway.deliver(listener, topic, payload.into(), qos, retained));
    }

    // Policy

    fn install_acl(&self, py: Python<'_>, acl: u32, rules: Vec<Rule>) {
        py.detach(|| self.gateway.install_access(acl, rules_in(rules)));
    }

    fn assign_acl(&self, py: Python<'_>, connection: u64, acl: u32) -> PyResult<()> {
        if py.detach(|| self.gateway.assign_access(ConnectionId(connection), acl)) {
            return Ok(());
        }
        Err(NativeError::new_err(format!("there is no access list {acl}")))
    }

    fn forget_acl(&self, py: Python<'_>, acl: u32) {
        py.detach(|| self.gateway.dispatcher.forget_access(acl));
    }

    fn refuse_guesses(&self, py: Python<'_>, attempts: Option<&Attempts>) {
        let attempts = attempts.map(|attempts| Arc::clone(&attempts.0));
        py.detach(|| self.gateway.refuse_guesses(attempts));
    }

    // Reading

    fn connections(&self, py: Python<'_>, most: usize) -> Vec<ConnectionStatus> {
        let connections = py.detach(|| self.gateway.connections(most));
        let status = |command::ConnectionStatus { connection, traffic, queued }| {
            let Traffic { messages_in, messages_out, dropped } = traffic;
            ConnectionStatus { connection: connection.0, messages_in, messages_out, queued, dropped }
        };
        connections.into_iter().map(status).collect()
    }

    fn gateway_counters(&self, py: Python<'_>) -> BTreeMap<String, u64> {
        py.detach(|| self.gateway.counters())
    }

    fn take_load(&self, py: Python<'_>) -> Option<Load> {
        py.detach(|| self.gateway.take_load()).map(|report| load_out(py, report))
    }

    #[getter]
    fn fault(&self) -> Option<String> {
        self.gateway.fault()
    }

    #[pyo3(signature = (grace_s = 0.0))]
    fn shutdown(&self, py: Python<'_>, grace_s: f64) -> PyResult<()> {
        let grace = duration(grace_s)?;
        py.detach(|| self.gateway.shutdown(grace));
        Ok(())
    }
}

impl Gateway {
    fn post(&self, py: Python<'_>, connection: u64, command: impl FnOnce(ConnectionId) -> Command + Send) {
        let id = ConnectionId(connection);
        py.detach(|| self.gateway.post(id, command(id)));
    }
}

fn close_reason(code: u8, text: &str, server_reference: Option<String>) -> CloseReason {
    CloseReason {
        reason: Reason(code),
        text: text.to_owned(),
        server_reference: server_reference.unwrap_or_default(),
    }
}

fn reasons(codes: Vec<u8>) -> Vec<Reason> {
    codes.into_iter().map(Reason).collect()
}
