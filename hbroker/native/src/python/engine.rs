//! `Engine`: a core in virtual time.

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::core::Core;
use super::stores::StoreDisk;
use super::{Address, address_in, address_out};
use crate::core::{self, Datagrams};
use crate::python::values::config::Config;
use crate::store::Settings;

/// So small that a simulated node has many segments and checkpoints.
const SETTINGS: Settings = Settings {
    segment_bytes: 16 << 10,
    checkpoint_bytes: 20 << 10,
    step_bytes: 4 << 10,
    ..Settings::DEFAULT
};

#[pyclass(module = "hbroker._native", extends = Core, frozen)]
pub struct Engine;

#[pymethods]
impl Engine {
    #[new]
    fn new(config: &Config) -> PyClassInitializer<Self> {
        let core = core::Core::in_virtual_time(config.0.clone());
        PyClassInitializer::from(Core { core }).add_subclass(Self)
    }

    fn handle_datagram(self_: PyRef<'_, Self>, now: u64, source: Address, datagram: &[u8]) -> PyResult<()> {
        let (source, mut datagram) = (address_in(&source)?, datagram.to_vec());
        self_.as_super().core.at(Some(now), |sealed, now| sealed.handle_datagram(now, source, &mut datagram));
        Ok(())
    }

    fn handle_timeout(self_: PyRef<'_, Self>, now: u64) {
        self_.as_super().core.at(Some(now), |sealed, now| sealed.handle_timeout(now));
    }

    fn poll_transmit<'py>(self_: PyRef<'py, Self>, py: Python<'py>) -> Vec<(Address, Bound<'py, PyBytes>)> {
        let mut datagrams = Datagrams::default();
        self_.as_super().core.at(None, |sealed, now| {
            sealed.machine.end_turn(now);
            sealed.poll_transmit(now, &mut datagrams);
            sealed.machine.note_departure(|| now);
        });
        let out = |(address, bytes): (_, Vec<u8>)| (address_out(address), PyBytes::new(py, &bytes));
        datagrams.sent.into_iter().map(out).collect()
    }

    fn poll_timeout(self_: PyRef<'_, Self>) -> Option<u64> {
        self_.as_super().core.at(None, |sealed, _| sealed.poll_timeout()).flatten()
    }

    fn open_store(self_: PyRef<'_, Self>, disk: &StoreDisk) -> PyResult<(Vec<String>, u64)> {
        let (disk, index) = (disk.disk.clone(), disk.index.clone());
        let found = self_.as_super().core.open_store_on(disk, index, SETTINGS).map_err(PyOSError::new_err)?;
        Ok((found.damage.iter().map(ToString::to_string).collect(), found.cut))
    }

    fn run_store(self_: PyRef<'_, Self>) -> PyResult<()> {
        self_.as_super().core.run_store().map_err(PyOSError::new_err)
    }

    fn turn_store(self_: PyRef<'_, Self>) {
        self_.as_super().core.turn_store();
    }

    fn awaits_store(self_: PyRef<'_, Self>) -> bool {
        self_.as_super().core.awaits_store()
    }

    fn owns(self_: PyRef<'_, Self>, now: u64, topic: &str) -> bool {
        self_.as_super().core.at(None, |sealed, _| sealed.machine.owns(now, topic)).unwrap_or(false)
    }
}
