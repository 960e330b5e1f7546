//! `LoadGenerator` and `LoadMember`: a native load (`crate::bench`), and its clients' controls.

use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

use super::config::Config;
use super::core::{Core, duration};
use super::{Address, NativeError, address_in, address_out};
use crate::bench::io::crew::Generator;
use crate::bench::io::member::{LoadEndpoint, Seat, time_look_ups};
use crate::bench::io::port::Part;
use crate::bench::io::tcp::Connection;
use crate::bench::load::Plan;
use crate::bench::mqtt::{Mqtt, Version};
use crate::bench::nats::Nats;
use crate::bench::speech::Speech;

/// The largest payload of a load.
const MOST_PAYLOAD: usize = 16 << 20;
const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

#[pyclass(module = "hbroker._native", frozen, get_all)]
pub struct LoadReport {
    sent: u64,
    delivered: u64,
    lost: u64,
    duplicated: u64,
    disordered: u64,
    damaged: u64,
    acknowledged: u64,
    refused: u64,
    stalls: u64,
    latency_ns: Option<Vec<u64>>,
    lateness_ns: Option<Vec<u64>>,
}

#[pyclass(module = "hbroker._native", frozen)]
pub struct LoadGenerator(Generator);

#[pymethods]
impl LoadGenerator {
    #[new]
    #[pyo3(signature = (*, publishers, subscribers, payload, qos, window = None, rate = None))]
    fn new(
        publishers: usize,
        subscribers: Vec<(usize, usize)>,
        payload: usize,
        qos: u8,
        window: Option<u64>,
        rate: Option<f64>,
    ) -> PyResult<Self> {
        let hears = |(first, count): (usize, usize)| first..first.saturating_add(count);
        let subscribers: Vec<_> = subscribers.into_iter().map(hears).collect();
        let is_valid = (1..1 << 24).contains(&publishers)
            && subscribers.iter().all(|heard| !heard.is_empty() && heard.end <= publishers)
            && payload <= MOST_PAYLOAD
            && qos <= 2
            && window != Some(0)
            && rate.is_none_or(|rate| rate > 0.0 && rate.is_finite());
        if !is_valid {
            return Err(NativeError::new_err("no load can be so"));
        }
        let plan = Plan { publishers, subscribers, payload, qos, window, rate };
        Generator::new(plan).map(Self).map_err(PyOSError::new_err)
    }

    #[pyo3(signature = (config, listen, *, topic = "", publishes = None, subscribes = None))]
    fn add_member(
        &self,
        py: Python<'_>,
        config: &Config,
        listen: Address,
        topic: &str,
        publishes: Option<usize>,
        subscribes: Option<usize>,
    ) -> PyResult<Py<LoadMember>> {
        if config.0.node {
            return Err(NativeError::new_err("a load has clients for members"));
        }
        let part = self.part(publishes, subscribes)?;
        let listen = address_in(&listen)?;
        let (seat, core, endpoint) = Seat::open(config.0.clone(), listen, self.0.shared.clone(), part, topic)
            .map_err(PyOSError::new_err)?;
        self.0.add(Box::new(seat));
        let core = Core { core };
        Py::new(py, PyClassInitializer::from(core).add_subclass(LoadMember(endpoint)))
    }

    #[pyo3(signature = (protocol, address, *, name, topic, publishes = None, subscribes = None, timeout_s = 10.0))]
    #[allow(clippy::too_many_arguments)]
    fn add_connection(
        &self,
        py: Python<'_>,
        protocol: &str,
        address: Address,
        name: String,
        topic: &str,
        publishes: Option<usize>,
        subscribes: Option<usize>,
        timeout_s: f64,
    ) -> PyResult<()> {
        let part = self.part(publishes, subscribes)?;
        let address = address_in(&address)?;
        let timeout = duration(timeout_s)?;
        let (out, into) = (publishes.map(|_| topic), subscribes.map(|_| topic));
        if topic.len() > usize::from(u16::MAX) || name.len() > usize::from(u16::MAX) {
            return Err(NativeError::new_err("a name is too long"));
        }
        let qos = self.0.shared.load.lock().plan().qos;
        let mqtt = |version| Mqtt::new(version, qos, name, out, into);
        py.detach(|| match protocol {
            "mqtt" => self.open(address, mqtt(Version::V311), part, timeout),
            "mqtt5" => self.open(address, mqtt(Version::V5), part, timeout),
            "nats" => self.open(address, Nats::new(out, into), part, timeout),
            _ => Err(NativeError::new_err(format!("{protocol:?} is no protocol of a load"))),
        })
    }

    fn start(&self, py: Python<'_>) {
        py.detach(|| self.0.start());
    }

    fn forget_times(&self, py: Python<'_>) {
        py.detach(|| self.0.shared.load.lock().forget_times());
    }

    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.0.shared.load.lock().stop());
    }

    fn report(&self, py: Python<'_>) -> LoadReport {
        py.detach(|| {
            let load = self.0.shared.load.lock();
            let counts = load.counts();
            LoadReport {
                sent: counts.sent,
                delivered: counts.delivered,
                lost: counts.lost,
                duplicated: counts.duplicated,
                disordered: counts.disordered,
                damaged: counts.damaged,
                acknowledged: counts.acknowledged,
                refused: counts.refused,
                stalls: counts.stalls,
                latency_ns: quantiles(load.latency()),
                lateness_ns: quantiles(load.lateness()),
            }
        })
    }

    #[getter]
    fn fault(&self) -> Option<String> {
        self.0.fault()
    }

    fn shutdown(&self, py: Python<'_>) {
        py.detach(|| self.0.shutdown());
    }
}

impl LoadGenerator {
    fn part(&self, publishes: Option<usize>, subscribes: Option<usize>) -> PyResult<Part> {
        let load = self.0.shared.load.lock();
        let plan = load.plan();
        if publishes.is_some_and(|number| number >= plan.publishers)
            || subscribes.is_some_and(|number| number >= plan.subscribers.len())
        {
            return Err(NativeError::new_err("the load has no such publisher or subscriber"));
        }
        Ok(Part { publishes, subscribes })
    }

    fn open(
        &self,
        address: std::net::SocketAddr,
        speech: impl Speech,
        part: Part,
        timeout: Duration,
    ) -> PyResult<()> {
        let connection = Connection::open(address, speech, part, timeout).map_err(PyOSError::new_err)?;
        self.0.add(Box::new(connection));
        Ok(())
    }
}

#[pyclass(module = "hbroker._native", extends = Core, frozen)]
pub struct LoadMember(Arc<LoadEndpoint>);

#[pymethods]
impl LoadMember {
    #[getter]
    fn address(&self) -> Address {
        address_out(self.0.address())
    }

    fn fileno(&self) -> i32 {
        self.0.fileno()
    }

    fn time_look_ups(&self, py: Python<'_>, topics: Vec<String>, rounds: u32) -> u64 {
        let took = py.detach(|| time_look_ups(&self.0, &topics, rounds));
        u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
    }

    fn drain(&self, py: Python<'_>, timeout_s: f64) -> PyResult<bool> {
        let timeout = duration(timeout_s)?;
        Ok(py.detach(|| self.0.drain(timeout)))
    }
}

fn quantiles(times: &Histogram<u64>) -> Option<Vec<u64>> {
    (!times.is_empty()).then(|| QUANTILES.iter().map(|&quantile| times.value_at_quantile(quantile)).collect())
}
