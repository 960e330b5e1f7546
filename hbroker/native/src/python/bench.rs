//! `LoadGenerator`, `LoadClient` and `LoadClientPool`: a native load (`crate::bench`), and the controls of
//! its clients.

use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

use super::core::Core;
use super::{Address, NativeError, address_in, address_out, duration};
use crate::bench::io::client::{ClientPort, LoadEndpoint, time_look_ups};
use crate::bench::io::driver::Generator;
use crate::bench::io::pool::{PoolPort, SubscriberMap};
use crate::bench::io::port::LoadRole;
use crate::bench::io::tcp::Connection;
use crate::bench::io::tls::Trust;
use crate::bench::load::{Counts, Plan, Times};
use crate::bench::mqtt::Mqtt;
use crate::bench::nats::Nats;
use crate::bench::pace::Group;
use crate::bench::protocol::StreamProtocol;
use crate::client_pool::messages::Mailbox;
use crate::link_id::PoolClientId;
use crate::mqtt::codec::packets::Version;
use crate::python::client_pool::ClientPool;
use crate::python::values::config::Config;

/// The largest payload of a load.
const MOST_PAYLOAD: usize = 16 << 20;
/// The limit for the publishers, and for the state that the subscribers have for each topic, in all.
const MOST_STREAMS: usize = 1 << 24;
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
    groups: Vec<Py<LoadReport>>,
}

impl LoadReport {
    fn of(counts: &Counts, times: &Times, groups: Vec<Py<Self>>) -> Self {
        Self {
            sent: counts.sent,
            delivered: counts.delivered,
            lost: counts.lost,
            duplicated: counts.duplicated,
            disordered: counts.disordered,
            damaged: counts.damaged,
            acknowledged: counts.acknowledged,
            refused: counts.refused,
            stalls: counts.stalls,
            latency_ns: quantiles(&times.latency),
            lateness_ns: quantiles(&times.lateness),
            groups,
        }
    }
}

#[pyclass(module = "hbroker._native", frozen)]
pub struct LoadGenerator {
    generator: Generator,
    trust: Option<Trust>,
}

#[pymethods]
impl LoadGenerator {
    #[new]
    #[pyo3(signature = (*, groups, subscribers, payload, qos, topics = 1, polls = false, tls = None))]
    fn new(
        groups: Vec<(usize, Option<u64>, Option<f64>)>,
        subscribers: Vec<(usize, usize)>,
        payload: usize,
        qos: u8,
        topics: u64,
        polls: bool,
        tls: Option<(Vec<u8>, String)>,
    ) -> PyResult<Self> {
        let group = |(publishers, window, rate)| Group { publishers, window, rate };
        let hears = |(first, count): (usize, usize)| first..first.saturating_add(count);
        let groups = groups.into_iter().map(group).collect();
        let subscribers = subscribers.into_iter().map(hears).collect();
        let plan = Plan { groups, subscribers, topics, payload, qos, polls };
        if !can_be(&plan) {
            return Err(NativeError::new_err("no load can be so"));
        }
        let trust = tls.map(|(authorities, host)| Trust::new(&authorities, &host)).transpose();
        let trust = trust.map_err(|error| PyOSError::new_err(format!("TLS: {error}")))?;
        let generator = Generator::new(plan).map_err(PyOSError::new_err)?;
        Ok(Self { generator, trust })
    }

    #[pyo3(signature = (config, listen, *, topics = vec![], publishes = None, subscribes = None))]
    fn add_client(
        &self,
        py: Python<'_>,
        config: &Config,
        listen: Address,
        topics: Vec<String>,
        publishes: Option<usize>,
        subscribes: Option<usize>,
    ) -> PyResult<Py<LoadClient>> {
        if config.0.node {
            return Err(NativeError::new_err("a load takes client configurations"));
        }
        let role = self.role(publishes, subscribes, &topics)?;
        let listen = address_in(&listen)?;
        let shared = self.generator.shared.clone();
        let (slot, endpoint) =
            ClientPort::open(config.0.clone(), listen, shared, role, topics).map_err(PyOSError::new_err)?;
        self.generator.add(Box::new(slot));
        let core = Core { core: crate::core::Core::of_load(&config.0, Arc::clone(&endpoint)) };
        Py::new(py, PyClassInitializer::from(core).add_subclass(LoadClient(endpoint)))
    }

    fn add_client_pool(
        &self,
        py: Python<'_>,
        config: &Config,
        listen: Address,
    ) -> PyResult<Py<LoadClientPool>> {
        if config.0.node {
            return Err(NativeError::new_err("a load takes client configurations"));
        }
        let shared = self.generator.shared.clone();
        let (crowd, core, subscriber_map) =
            PoolPort::open(config.0.clone(), address_in(&listen)?, shared).map_err(PyOSError::new_err)?;
        self.generator.add(Box::new(crowd));
        // Messages go to the load, and never into this mailbox.
        let client_pool = ClientPool { core, mailbox: Mailbox::new(0) };
        let subscribers = self.generator.shared.load.lock().plan().subscribers.len();
        Py::new(
            py,
            PyClassInitializer::from(client_pool)
                .add_subclass(LoadClientPool { subscriber_map, subscribers }),
        )
    }

    #[pyo3(signature = (protocol, address, *, name, topics = vec![], filter = None, publishes = None, subscribes = None, timeout_s = 10.0))]
    #[allow(clippy::too_many_arguments)]
    fn add_connection(
        &self,
        py: Python<'_>,
        protocol: &str,
        address: Address,
        name: String,
        topics: Vec<String>,
        filter: Option<String>,
        publishes: Option<usize>,
        subscribes: Option<usize>,
        timeout_s: f64,
    ) -> PyResult<()> {
        let role = self.role(publishes, subscribes, &topics)?;
        let address = address_in(&address)?;
        let timeout = duration(timeout_s)?;
        if topics.iter().chain(&filter).chain([&name]).any(|text| text.len() > usize::from(u16::MAX)) {
            return Err(NativeError::new_err("a name is too long"));
        }
        let qos = self.generator.shared.load.lock().plan().qos;
        let filter = filter.as_deref();
        let mqtt = |version| Mqtt::new(version, qos, name, &topics, filter);
        py.detach(|| match protocol {
            "mqtt" => self.open(address, mqtt(Version::V311), role, timeout),
            "mqtt5" => self.open(address, mqtt(Version::V5), role, timeout),
            "nats" => self.open(address, Nats::new(&topics, filter), role, timeout),
            _ => Err(NativeError::new_err(format!("{protocol:?} is no protocol of a load"))),
        })
    }

    fn start(&self, py: Python<'_>) {
        py.detach(|| self.generator.start());
    }

    fn forget_times(&self, py: Python<'_>) {
        py.detach(|| self.generator.shared.load.lock().forget_times());
    }

    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.generator.shared.load.lock().stop());
    }

    fn report(&self, py: Python<'_>) -> PyResult<LoadReport> {
        let (counts, times) = py.detach(|| {
            let load = self.generator.shared.load.lock();
            (load.counts(), load.times().cloned().collect::<Vec<_>>())
        });
        let group = |(counts, times)| Py::new(py, LoadReport::of(counts, times, Vec::new()));
        let groups = counts.iter().zip(&times).map(group).collect::<PyResult<_>>()?;
        Ok(LoadReport::of(&counts.iter().sum(), &Times::merged(&times), groups))
    }

    #[getter]
    fn fault(&self) -> Option<String> {
        self.generator.fault()
    }

    fn shutdown(&self, py: Python<'_>) {
        py.detach(|| self.generator.shutdown());
    }
}

impl LoadGenerator {
    fn role(
        &self,
        publishes: Option<usize>,
        subscribes: Option<usize>,
        topics: &[String],
    ) -> PyResult<LoadRole> {
        let load = self.generator.shared.load.lock();
        let plan = load.plan();
        if publishes.is_some_and(|number| number >= plan.publishers() || topics.len() as u64 != plan.topics)
            || subscribes.is_some_and(|number| number >= plan.subscribers.len())
        {
            return Err(NativeError::new_err("the load has no such publisher or subscriber"));
        }
        Ok(LoadRole { publishes, subscribes })
    }

    fn open(
        &self,
        address: std::net::SocketAddr,
        speech: impl StreamProtocol,
        role: LoadRole,
        timeout: Duration,
    ) -> PyResult<()> {
        let connection = Connection::open(address, self.trust.as_ref(), speech, role, timeout);
        self.generator.add(Box::new(connection.map_err(PyOSError::new_err)?));
        Ok(())
    }
}

#[pyclass(module = "hbroker._native", extends = Core, frozen)]
pub struct LoadClient(Arc<LoadEndpoint>);

#[pymethods]
impl LoadClient {
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

#[pyclass(module = "hbroker._native", extends = ClientPool, frozen)]
pub struct LoadClientPool {
    subscriber_map: SubscriberMap,
    subscribers: usize,
}

#[pymethods]
impl LoadClientPool {
    fn enter(&self, member: u64, subscriber: usize) -> PyResult<()> {
        if subscriber >= self.subscribers {
            return Err(NativeError::new_err("the load has no such subscriber"));
        }
        self.subscriber_map.enter(PoolClientId(member), subscriber);
        Ok(())
    }
}

fn can_be(plan: &Plan) -> bool {
    let is_paced = |group: &Group| {
        group.window != Some(0) && group.rate.is_none_or(|rate| rate > 0.0 && rate.is_finite())
    };
    let publishers = plan.groups.iter().try_fold(0_usize, |sum, group| sum.checked_add(group.publishers));
    let publishers = publishers.unwrap_or(usize::MAX);
    let streams: Option<usize> =
        plan.subscribers.iter().try_fold(0, |sum: usize, heard| sum.checked_add(heard.len()));
    let most = MOST_STREAMS as u64;
    (1..=MOST_STREAMS).contains(&publishers)
        && plan.groups.iter().all(|group| group.publishers > 0 && is_paced(group))
        && plan.subscribers.iter().all(|heard| !heard.is_empty() && heard.end <= publishers)
        && (1..=most).contains(&plan.topics)
        && streams.is_some_and(|count| (count as u64).checked_mul(plan.topics).is_some_and(|all| all <= most))
        && plan.payload <= MOST_PAYLOAD
        && plan.qos <= 2
}

fn quantiles(times: &Histogram<u64>) -> Option<Vec<u64>> {
    (!times.is_empty()).then(|| QUANTILES.iter().map(|&quantile| times.value_at_quantile(quantile)).collect())
}
