//! `ClientPool` and `PoolClient`: many clients behind one socket. The base class `Core` has the methods of a
//! `PoolClient`.

use std::collections::BTreeMap;
use std::sync::Arc;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

use super::core::Core;
use super::{Address, NativeError, address_in, address_out, duration};
use crate::client_pool::Identity;
use crate::client_pool::core::ClientPoolCore;
use crate::client_pool::messages::Mailbox;
use crate::core;
use crate::link_id::PoolClientId;
use crate::python::values::config::Config;
use crate::python::values::credentials::Credentials;
use crate::python::values::events::event_out;
use crate::python::values::messages::Message;

#[pyclass(module = "hbroker._native", frozen, subclass)]
pub struct ClientPool {
    pub(super) core: Arc<ClientPoolCore>,
    pub(super) mailbox: Mailbox,
}

#[pymethods]
impl ClientPool {
    #[new]
    fn new(py: Python<'_>, config: &Config, listen: Address) -> PyResult<Self> {
        if config.0.node {
            return Err(NativeError::new_err("a client pool takes a client configuration"));
        }
        let listen = address_in(&listen)?;
        let config = config.0.clone();
        let mailbox = Mailbox::new(config.message_queue_bytes);
        let sink = Box::new(mailbox.clone());
        let core = py.detach(|| ClientPoolCore::on_thread(config, listen, sink));
        let core = core.map_err(PyOSError::new_err)?;
        Ok(Self { core: Arc::new(core), mailbox })
    }

    fn set_credentials(&self, credentials: &Credentials) -> PyResult<()> {
        credentials.replace_in(self.core.endpoint().associations())
    }

    #[pyo3(signature = (session, *, persistent, incarnation))]
    fn open_pool_client(
        &self,
        py: Python<'_>,
        session: u64,
        persistent: bool,
        incarnation: u64,
    ) -> PyResult<u64> {
        if session == 0 {
            return Err(NativeError::new_err("session 0 means: outside of any session"));
        }
        let identity = Identity { session, persistent, incarnation };
        let opened = py.detach(|| self.core.with(|pool, _| pool.open_pool_client(identity)));
        opened
            .map(|id| id.0)
            .ok_or_else(|| NativeError::new_err("another client of the pool has this session"))
    }

    fn member(&self, py: Python<'_>, number: u64) -> PyResult<Py<PoolClient>> {
        let core = core::Core::of_pool_client(Arc::clone(&self.core), PoolClientId(number));
        Py::new(py, PyClassInitializer::from(Core { core }).add_subclass(PoolClient))
    }

    fn close_pool_client(&self, py: Python<'_>, number: u64) {
        py.detach(|| self.core.with(|pool, now| pool.close_pool_client(now, PoolClientId(number))));
    }

    #[pyo3(signature = (limit = 1024))]
    fn poll_pool_events(&self, py: Python<'_>, limit: usize) -> PyResult<Vec<(u64, Py<PyAny>)>> {
        let events = py.detach(|| self.core.with(|pool, now| pool.take_events(now, limit)));
        events.into_iter().map(|(id, event)| Ok((id.0, event_out(py, event)?))).collect()
    }

    #[pyo3(signature = (limit = 1024))]
    fn poll_pool_messages(&self, py: Python<'_>, limit: usize) -> Vec<(u64, Message)> {
        let messages = py.detach(|| {
            let messages = self.mailbox.read(limit);
            // The mailbox has room again, or no output any more.
            self.core.with(|_, _| {});
            messages
        });
        let workspace = self.core.workspace();
        messages.into_iter().map(|(id, message)| (id.0, Message::new(py, message, workspace))).collect()
    }

    fn handled(&self, py: Python<'_>, messages: Vec<(u64, (u64, u64))>) {
        let messages: Vec<_> =
            messages.into_iter().map(|(id, message)| (PoolClientId(id), message)).collect();
        py.detach(|| self.core.handled(&messages));
    }

    fn counters(&self, py: Python<'_>) -> BTreeMap<String, u64> {
        py.detach(|| self.core.counters())
    }

    #[getter]
    fn address(&self) -> Address {
        address_out(self.core.endpoint().address())
    }

    #[getter]
    fn fault(&self) -> Option<String> {
        self.core.endpoint().fault()
    }

    fn fileno(&self) -> i32 {
        self.core.endpoint().fileno()
    }

    fn wait(&self, py: Python<'_>, timeout_s: f64) -> PyResult<bool> {
        let timeout = duration(timeout_s)?;
        Ok(py.detach(|| self.core.endpoint().wait(timeout)))
    }

    fn gather(&self, py: Python<'_>, gathers: bool) {
        py.detach(|| self.core.endpoint().gather(gathers));
    }

    fn drain(&self, py: Python<'_>, timeout_s: f64) -> PyResult<bool> {
        let timeout = duration(timeout_s)?;
        Ok(py.detach(|| self.core.endpoint().drain(timeout)))
    }

    fn shutdown(&self, py: Python<'_>) {
        py.detach(|| self.core.endpoint().shutdown());
    }
}

#[pyclass(module = "hbroker._native", extends = Core, frozen)]
pub struct PoolClient;
