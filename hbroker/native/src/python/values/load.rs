//! The metrics of an interval, as columns that need no further work.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::load::Report;
use crate::load::topics::{Columns, Traffic};

#[pyclass(module = "hbroker._native", frozen, get_all)]
pub struct Load {
    counters: BTreeMap<String, u64>,
    gauges: BTreeMap<&'static str, u64>,
    names: Py<PyBytes>,
    offsets: Py<PyBytes>,
    numbers: Vec<Py<PyBytes>>,
    rest: (u64, u64, u64, u64, u64, u64),
    bytes_in: u64,
    bytes_out: u64,
    whole_in: u64,
    whole_out: u64,
    latency: Vec<u64>,
    sampled: u32,
}

pub fn load_out(py: Python<'_>, report: Report) -> Load {
    let Report { counters, gauges, topics, total, latency, every } = report;
    let Columns { names, offsets, numbers, rest } = topics;
    let bytes = |column: Vec<u8>| PyBytes::new(py, &column).unbind();
    let Traffic { messages_in, bytes_in, messages_out, bytes_out, whole_in, whole_out } = rest;
    Load {
        counters,
        gauges,
        names: bytes(names.into_bytes()),
        offsets: bytes(offsets.into_iter().flat_map(u32::to_ne_bytes).collect()),
        numbers: numbers
            .into_iter()
            .map(|column| bytes(column.into_iter().flat_map(u64::to_ne_bytes).collect()))
            .collect(),
        rest: (messages_in, bytes_in, messages_out, bytes_out, whole_in, whole_out),
        bytes_in: total.bytes_in,
        bytes_out: total.bytes_out,
        whole_in: total.whole_in,
        whole_out: total.whole_out,
        latency,
        sampled: every,
    }
}
