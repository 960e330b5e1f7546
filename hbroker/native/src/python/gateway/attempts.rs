//! `Attempts`: the limits on password guesses, shared by Python and the workers.

use std::net::IpAddr;
use std::sync::Arc;

use pyo3::prelude::*;

use crate::mqtt::access::attempts;
use crate::mqtt::access::attempts::{Bounds, Bucket, Source};

/// Burst, interval (µs), and the reason string for clients.
type Limit = (u64, u64, String);

#[pyclass(module = "hbroker._native", frozen)]
pub struct Attempts(pub Arc<attempts::Attempts>);

#[pyclass(module = "hbroker._native", frozen, eq, hash)]
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct AttemptSource(Source);

#[pymethods]
impl AttemptSource {
    #[getter]
    fn address(&self) -> u64 {
        self.0.address
    }
}

#[pymethods]
impl Attempts {
    #[new]
    #[pyo3(signature = (seed, *, pair, address, name, asked, entries, known))]
    fn new(
        seed: u64,
        pair: Limit,
        address: Limit,
        name: Limit,
        asked: Limit,
        entries: usize,
        known: usize,
    ) -> Self {
        let bucket = |limit: &Limit| Bucket { burst: limit.0, interval: limit.1.max(1) };
        let bounds = Bounds {
            pair: bucket(&pair),
            address: bucket(&address),
            name: bucket(&name),
            asked: bucket(&asked),
            entries,
            known,
        };
        let texts = [pair.2, address.2, name.2, asked.2];
        Self(Arc::new(attempts::Attempts::new(seed, bounds, texts)))
    }

    fn source(&self, host: &str, name: Option<&str>) -> PyResult<AttemptSource> {
        let host: IpAddr = host.split('%').next().unwrap_or_default().parse()?;
        Ok(AttemptSource(self.0.source(host, name)))
    }

    fn take(&self, now: u64, source: &AttemptSource) -> Option<&str> {
        self.0.take(now, &source.0).map(|refused| self.0.texts[refused as usize].as_str())
    }

    fn give_back(&self, now: u64, source: &AttemptSource) {
        self.0.give_back(now, &source.0);
    }

    fn succeeded(&self, now: u64, source: &AttemptSource) {
        self.0.succeeded(now, &source.0);
    }

    fn asked(&self, now: u64, source: &AttemptSource) -> u64 {
        self.0.asked(now, &source.0)
    }

    fn remember(&self, name: &str, password: &[u8]) {
        self.0.remember(name, password);
    }

    fn set_full(&self, is_full: bool) {
        self.0.set_full(is_full);
    }

    fn refused(&self) -> Vec<(&str, u64)> {
        self.0.texts.iter().map(String::as_str).zip(self.0.refused()).collect()
    }

    fn sizes(&self) -> (usize, usize) {
        self.0.sizes()
    }
}
