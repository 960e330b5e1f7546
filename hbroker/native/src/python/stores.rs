//! The stores of nodes that do not run, for the command `hbroker store`; and the disks of simulated nodes.

use std::path::PathBuf;

use pyo3::prelude::*;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::store::disk::Folder;
use crate::store::fault_disk::FaultDisk;
use crate::store::index::LsmIndex;
use crate::store::memory_index::MemoryIndex;
use crate::store::verify::{LogReport, SegmentReport, verify};
use crate::store::{Settings, Store};

/// One segment: its file, its bytes, the number of its records and of its messages, and what is damaged: an
/// offset, and whether that was promised.
type Segment = (String, u64, u64, u64, Vec<(u64, bool)>);

/// What is in the segments of a store's log. Raises `OSError`.
#[pyfunction]
pub fn verify_store(py: Python<'_>, folder: PathBuf) -> PyResult<Vec<Segment>> {
    let LogReport { segments, promised } =
        py.detach(|| Folder::open(&folder.join("log")).and_then(|disk| verify(&disk)))?;
    let segment = |SegmentReport { file, bytes, records, messages, damage }| {
        let damage = damage.iter().map(|damage| (damage.offset, damage.from < promised)).collect();
        (file, bytes, records, messages, damage)
    };
    Ok(segments.into_iter().map(segment).collect())
}

/// The session, the number of waiting messages, and about how many bytes they have.
type Queue = (u64, u64, u64);

/// The queues in a store, and the number of retained messages and fragments. As when its node starts, a torn end
/// of the log is cut off. Raises `OSError`.
#[pyfunction]
pub fn stored_messages(py: Python<'_>, folder: PathBuf) -> PyResult<(Vec<Queue>, usize)> {
    let (states, retained) = py.detach(|| {
        let index = LsmIndex::open(&folder.join("index"))?;
        let (store, _) = Store::open(Folder::open(&folder.join("log"))?, index, Settings::default())?;
        std::io::Result::Ok((store.states().collect::<Vec<_>>(), store.retained()))
    })?;
    Ok((states.into_iter().map(|state| (state.session, state.live, state.bytes)).collect(), retained))
}

/// The disk of a simulated node, for the stores of all its runs.
#[pyclass(module = "hbroker._native", frozen)]
#[derive(Default)]
pub struct StoreDisk {
    pub disk: FaultDisk,
    pub index: MemoryIndex,
}

#[pymethods]
impl StoreDisk {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Of what was not synced, the seed says what is on the disk.
    fn lose_power(&self, seed: u64) {
        self.disk.lose_power(&mut SmallRng::seed_from_u64(seed));
    }

    /// From now on all files together may have this many bytes; `None`: as many as they like.
    fn set_space(&self, space: Option<usize>) {
        self.disk.set_space(space);
    }
}
