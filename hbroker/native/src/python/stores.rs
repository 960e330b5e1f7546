//! The stores of nodes that do not run, for the command `hbroker store`; and the disks of simulated nodes.

use std::path::PathBuf;

use parking_lot::Mutex;
use pyo3::exceptions::{PyMemoryError, PyOSError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::engine::sessions::storing::FIELD_READERS;
use crate::store::disk::Folder;
use crate::store::disk::fault::FaultDisk;
use crate::store::index::LsmIndex;
use crate::store::index::memory::MemoryIndex;
use crate::store::merge::{MergeError, Merged, merge};
use crate::store::record::{Batch, Target};
use crate::store::verify::{LogReport, SegmentReport, verify};
use crate::store::{Failure, Messages, Settings, Store};

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
type QueueSize = (u64, u64, u64);

/// A message of a queue: its number, when it expires in microseconds since the Unix epoch, how its session gets it,
/// and its field `publish`.
type StoredMessage<'py> = (u64, Option<u64>, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// Records are given to the store when they have so many bytes.
const BATCH: usize = 1 << 20;

/// The store of a node that does not run.
#[pyclass(module = "hbroker._native", frozen)]
pub struct StoppedStore {
    open: Mutex<Open>,
    damage: Vec<String>,
}

struct Open {
    store: Store<Folder, LsmIndex>,
    batch: Batch,
    /// The last numbers of queues, and the last number of a retained message, in a new store.
    numbers: std::collections::HashMap<u64, u64>,
    retained: u64,
}

#[pymethods]
impl StoppedStore {
    #[new]
    fn new(py: Python<'_>, folder: PathBuf) -> PyResult<Self> {
        let (store, recovered) = py.detach(|| {
            let disk = Folder::open(&folder.join("log"))?;
            let index = LsmIndex::open(&folder.join("index"))?;
            Store::open(disk, index, Settings { syncs: false, ..Settings::DEFAULT })
        })?;
        let damage = recovered.damage.iter().map(ToString::to_string).collect();
        let (batch, numbers) = (Batch::default(), std::collections::HashMap::new());
        Ok(Self { open: Mutex::new(Open { store, batch, numbers, retained: 0 }), damage })
    }

    /// The damage that was found when it was opened.
    #[getter]
    fn damage(&self) -> Vec<String> {
        self.damage.clone()
    }

    #[getter]
    fn log_bytes(&self) -> u64 {
        self.open.lock().store.bytes()
    }

    #[getter]
    fn retained(&self) -> usize {
        self.open.lock().store.retained()
    }

    fn queues(&self) -> Vec<QueueSize> {
        let open = self.open.lock();
        open.store.states().map(|state| (state.session, state.live, state.bytes)).collect()
    }

    fn read<'py>(
        &self,
        py: Python<'py>,
        session: u64,
        start: u64,
        size: usize,
    ) -> PyResult<(Vec<StoredMessage<'py>>, Option<u64>, Vec<String>)> {
        let Messages { messages, damage, next, is_all } =
            py.detach(|| self.open.lock().store.read(session, start, size))?;
        let message = |stored: crate::store::Stored| {
            let expires = Some(stored.expires).filter(|expires| *expires < u64::MAX);
            (stored.number, expires, PyBytes::new(py, &stored.options), PyBytes::new(py, &stored.field))
        };
        let messages = messages.into_iter().map(message).collect();
        let damage = damage.iter().map(ToString::to_string).collect();
        Ok((messages, (!is_all).then_some(next), damage))
    }

    fn each_retained(&self, take: Bound<'_, PyAny>) -> PyResult<Vec<String>> {
        let (py, mut result) = (take.py(), Ok(()));
        let damage = self.open.lock().store.each_retained(|field| {
            if result.is_ok() {
                result = take.call1((PyBytes::new(py, field),)).map(drop);
            }
        })?;
        result.map(|()| damage.iter().map(ToString::to_string).collect())
    }

    /// Adds a message behind the queue of a session.
    fn add(&self, session: u64, expires: Option<u64>, delivery: &[u8], message: &[u8]) -> PyResult<()> {
        let mut open = self.open.lock();
        let newest = open.store.state(session).map_or(0, |state| state.next - 1);
        let number = open.numbers.entry(session).or_insert(newest);
        *number += 1;
        let number = *number;
        open.batch.add_target(Target { session, number, options: delivery });
        open.batch.add_message(expires.unwrap_or(u64::MAX), message);
        open.store_if(BATCH)
    }

    /// Adds a retained message, or a fragment of one.
    fn add_retained(&self, message: &[u8]) -> PyResult<()> {
        let mut open = self.open.lock();
        open.retained = open.retained.max(open.store.newest_retained()) + 1;
        let number = open.retained;
        open.batch.add_retained(number, message);
        open.store_if(BATCH)
    }

    /// Stores what was added. It would survive a loss of power.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| {
            let mut open = self.open.lock();
            open.store_if(0)?;
            open.store.make_checkpoint().map_err(failed)
        })
    }

    fn compact(&self, py: Python<'_>, progress: Py<PyAny>) -> PyResult<()> {
        let mut result = Ok(());
        py.detach(|| self.open.lock().store.compact(&mut |bytes| report(&progress, bytes, &mut result)))
            .map_err(failed)?;
        result
    }
}

impl Open {
    fn store_if(&mut self, bytes: usize) -> PyResult<()> {
        if self.batch.bytes().len() < bytes {
            return Ok(());
        }
        self.store.apply(self.batch.bytes());
        self.batch.clear();
        self.store.commit().map_err(failed)?;
        while self.store.maintain().map_err(failed)? {}
        Ok(())
    }
}

/// What a merge has done: how many messages wait, how many of them in both, how many were settled in one, how many
/// are out of order; how many are retained; and the damage that was found in either store.
type Report = (u64, u64, u64, u64, u64, [Vec<String>; 2]);

/// Writes what waits in two stores to a third.
#[pyfunction]
pub fn merge_stores(
    py: Python<'_>,
    first: Py<StoppedStore>,
    second: Py<StoppedStore>,
    into: Py<StoppedStore>,
    memory: usize,
    progress: Py<PyAny>,
) -> PyResult<Report> {
    let (first, second, into) = (first.get(), second.get(), into.get());
    let mut result = Ok(());
    let merged = py.detach(|| {
        let (first, second, mut into) = (first.open.lock(), second.open.lock(), into.open.lock());
        let stores = [&first.store, &second.store];
        merge(stores, &mut into.store, FIELD_READERS, memory, &mut |count| {
            report(&progress, count, &mut result)
        })
    });
    result?;
    let Merged { waiting, common, settled, disordered, retained, damage } =
        merged.map_err(|error| match error {
            MergeError::Memory => PyMemoryError::new_err("the numbers of the messages need more memory"),
            MergeError::Failed(error) => error.into(),
        })?;
    let damage = damage.map(|damage| damage.iter().map(ToString::to_string).collect());
    Ok((waiting, common, settled, disordered, retained, damage))
}

/// Tells Python how far something is. If that raises, `result` has it, and it is not to go on.
fn report(progress: &Py<PyAny>, value: u64, result: &mut PyResult<()>) -> bool {
    if result.is_ok() {
        *result = Python::attach(|py| {
            py.check_signals()?;
            progress.call1(py, (value,)).map(drop)
        });
    }
    result.is_ok()
}

fn failed(failure: Failure) -> PyErr {
    let (Failure::Unwritten(error) | Failure::Fatal(error)) = failure;
    PyOSError::new_err(error)
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

    /// Flips a bit that was synced. Returns whether there is one.
    fn flip(&self, seed: u64) -> bool {
        self.disk.flip(&mut SmallRng::seed_from_u64(seed)).is_some()
    }

    /// All syncs fail from now on, or until power is lost; or none does.
    fn fail_to_sync(&self, fails: bool) {
        self.disk.fail_to_sync(fails);
    }

    /// From now on all files together may have this many bytes; `None`: as many as they like.
    fn set_space(&self, space: Option<usize>) {
        self.disk.set_space(space);
    }
}
