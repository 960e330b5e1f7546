//! The records of a handover that the core reads and writes itself, for the tests that compare them with
//! Python's protobuf.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::wire::{self, GoneRecord, MeantFor, QueuedRecord, SeenRecord};

/// `(session, publish, qos, (retained_for, shared_for), group, overflow, launched, (queue, number))`
type Queued<'py> = (u64, Bound<'py, PyBytes>, u8, (Option<u64>, u64), String, i32, bool, (u64, u64));
/// `(queue, below, [(first, last)], launched)`
type Gone = (u64, u64, Vec<(u64, u64)>, u64);
/// `(publisher, floor, [(index, bits)])`
type Seen = (u64, u64, Vec<(u64, u64)>);

/// The values of a serialised `QueuedRecord`; None if it is malformed.
#[pyfunction]
pub fn decode_queued<'py>(py: Python<'py>, record: &[u8]) -> Option<Queued<'py>> {
    let QueuedRecord { session, publish, qos, meant_for, group, overflow, launched, queue, number } =
        QueuedRecord::parse(record).ok()?;
    let meant_for = (meant_for.and_then(MeantFor::retained_for), meant_for.map_or(0, MeantFor::shared_for));
    Some((
        session,
        PyBytes::new(py, publish),
        qos,
        meant_for,
        group.to_owned(),
        overflow,
        launched,
        (queue, number),
    ))
}

/// A `QueuedRecord` with these values.
#[pyfunction]
pub fn encode_queued<'py>(py: Python<'py>, values: Queued<'py>) -> Bound<'py, PyBytes> {
    let (session, publish, qos, (retained_for, shared_for), group, overflow, launched, (queue, number)) =
        values;
    let (publish, meant_for) = (publish.as_bytes(), MeantFor::of(retained_for, shared_for));
    let group = &group;
    let record = QueuedRecord { session, publish, qos, meant_for, group, overflow, launched, queue, number };
    PyBytes::new(py, &wire::queued_record(&record))
}

/// The values of a serialised `GoneRecord`; None if it is malformed.
#[pyfunction]
pub fn decode_gone(record: &[u8]) -> Option<Gone> {
    let GoneRecord { queue, below, ranges, launched } = GoneRecord::parse(record).ok()?;
    Some((queue, below, ranges, launched))
}

/// A `GoneRecord` with these values. The runs must ascend.
#[pyfunction]
pub fn encode_gone(py: Python<'_>, values: Gone) -> Bound<'_, PyBytes> {
    let (queue, below, ranges, launched) = values;
    PyBytes::new(py, &wire::gone_record(&GoneRecord { queue, below, ranges, launched }))
}

/// The values of a serialised `SeenRecord`; None if it is malformed.
#[pyfunction]
pub fn decode_seen(record: &[u8]) -> Option<Seen> {
    let record = SeenRecord::parse(record).ok()?;
    Some((record.publisher, record.floor, record.words().collect()))
}

/// A `SeenRecord` with these values. The words must ascend from the floor on.
#[pyfunction]
pub fn encode_seen(py: Python<'_>, values: Seen) -> PyResult<Bound<'_, PyBytes>> {
    let (publisher, floor, words) = values;
    let indices = std::iter::once(floor).chain(words.iter().map(|(index, _)| *index));
    if !indices.is_sorted() {
        return Err(PyValueError::new_err("the words do not ascend from the floor"));
    }
    Ok(PyBytes::new(py, &wire::seen_record(publisher, floor, &words)))
}
