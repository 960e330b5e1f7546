//! `Endpoint`: a core with threads and sockets.

use std::os::fd::RawFd;
use std::path::PathBuf;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

use super::core::Core;
use super::{Address, NativeError, address_in, address_out, duration};
use crate::core;
use crate::python::values::config::Config;
use crate::python::values::credentials::Credentials;

#[pyclass(module = "hbroker._native", extends = Core, frozen)]
pub struct Endpoint;

#[pymethods]
impl Endpoint {
    #[new]
    #[pyo3(signature = (config, listen, workers = 1, inherited = Vec::new()))]
    fn new(
        py: Python<'_>,
        config: &Config,
        listen: Address,
        workers: u8,
        inherited: Vec<RawFd>,
    ) -> PyResult<PyClassInitializer<Self>> {
        if workers == 0 || (workers > 1 && !config.0.node) {
            return Err(NativeError::new_err("a client has one worker, a node one or more"));
        }
        let listen = address_in(&listen)?;
        let config = config.0.clone();
        let core = py
            .detach(|| core::Core::on_threads(config, listen, workers, &inherited))
            .map_err(PyOSError::new_err)?;
        Ok(PyClassInitializer::from(Core { core }).add_subclass(Self))
    }

    #[getter]
    fn address(self_: PyRef<'_, Self>) -> Address {
        address_out(endpoint(&self_).address())
    }

    #[getter]
    fn descriptors(self_: PyRef<'_, Self>) -> Vec<RawFd> {
        endpoint(&self_).descriptors().to_vec()
    }

    fn set_credentials(self_: PyRef<'_, Self>, credentials: &Credentials) -> PyResult<()> {
        credentials.replace_in(endpoint(&self_).associations())
    }

    #[getter]
    fn unix_offset_us(self_: PyRef<'_, Self>) -> u64 {
        endpoint(&self_).endpoint_state().clock.unix_offset()
    }

    fn fileno(self_: PyRef<'_, Self>) -> i32 {
        endpoint(&self_).fileno()
    }

    #[getter]
    fn fault(self_: PyRef<'_, Self>) -> Option<String> {
        endpoint(&self_).fault()
    }

    fn wait(self_: PyRef<'_, Self>, py: Python<'_>, timeout_s: f64) -> PyResult<bool> {
        let timeout = duration(timeout_s)?;
        let core = &self_.as_super().core;
        Ok(py.detach(|| core.endpoint().is_some_and(|endpoint| endpoint.wait(timeout))))
    }

    fn gather(self_: PyRef<'_, Self>, py: Python<'_>, gathers: bool) {
        let core = &self_.as_super().core;
        py.detach(|| core.endpoint().map(|endpoint| endpoint.gather(gathers)));
    }

    fn drain(self_: PyRef<'_, Self>, py: Python<'_>, timeout_s: f64) -> PyResult<bool> {
        let timeout = duration(timeout_s)?;
        let core = &self_.as_super().core;
        Ok(py.detach(|| core.endpoint().is_some_and(|endpoint| endpoint.drain(timeout))))
    }

    fn reset_peers(self_: PyRef<'_, Self>, py: Python<'_>) {
        let core = &self_.as_super().core;
        py.detach(|| core.endpoint().map(crate::endpoint::Endpoint::reset_peers));
    }

    fn shutdown(self_: PyRef<'_, Self>, py: Python<'_>) {
        let core = &self_.as_super().core;
        py.detach(|| {
            core.endpoint().map(crate::endpoint::Endpoint::shutdown);
            core.close_store();
        });
    }

    fn open_store(
        self_: PyRef<'_, Self>,
        py: Python<'_>,
        folder: PathBuf,
        syncs: bool,
        most_bytes: u64,
    ) -> PyResult<(Vec<String>, u64)> {
        let core = &self_.as_super().core;
        let found = py.detach(|| core.open_store(&folder, syncs, most_bytes)).map_err(PyOSError::new_err)?;
        Ok((found.damage.iter().map(ToString::to_string).collect(), found.cut))
    }

    fn run_store(self_: PyRef<'_, Self>, py: Python<'_>) -> PyResult<()> {
        let core = &self_.as_super().core;
        py.detach(|| core.run_store()).map_err(PyOSError::new_err)
    }
}

/// The threads of the core.
fn endpoint<'a>(self_: &'a PyRef<'_, Endpoint>) -> &'a crate::endpoint::Endpoint<crate::engine::Engine> {
    self_.as_super().core.endpoint().expect("an Endpoint is made with threads")
}
