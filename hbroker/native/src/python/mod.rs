//! The native API for Python. Only this module names pyo3. `hbroker/_native.pyi` documents the API for
//! Python's readers.
//!
//! ```text
//! engine, endpoint, client_pool ──> core      every method of a core (virtual time, threads, in a pool)
//! gateway/      the MQTT server: its methods, settings, events, session states and status
//! bench         the load generator
//!    all of these ──> values/   what crosses to Python, or from it
//! stores        the stores of nodes that do not run
//! codec, records, topics                      for tests and tools
//! ```
//!
//! Plain values and frozen classes cross this boundary, in batches. The GIL is released during work. Rust
//! never calls Python.

mod bench;
mod client_pool;
mod codec;
mod core;
mod endpoint;
mod engine;
mod gateway;
mod records;
mod stores;
mod topics;
mod values;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

pyo3::create_exception!(
    _native,
    NativeError,
    pyo3::exceptions::PyException,
    "The caller erred: the text says how."
);

/// (ip, port), the ip as text.
type Address = (String, u16);
/// (subtree, node, address, epoch)
type CutTuple = (String, String, Address, u64);

fn address_in((ip, port): &Address) -> PyResult<SocketAddr> {
    let ip: IpAddr = ip.parse().map_err(|_| NativeError::new_err(format!("{ip:?} is not an IP address")))?;
    Ok(SocketAddr::new(ip, *port))
}

fn address_out(address: SocketAddr) -> Address {
    (address.ip().to_string(), address.port())
}

fn cut_in((subtree, node, address, epoch): CutTuple) -> PyResult<crate::tables::jurisdiction::Cut> {
    let address = address_in(&address)?;
    Ok(crate::tables::jurisdiction::Cut { subtree: subtree.into(), node: node.into(), address, epoch })
}

/// Gives classes a `__repr__` of all their fields.
macro_rules! debug_repr {
    ($($class:ident),+) => {
        $(#[pymethods]
        impl $class {
            fn __repr__(&self) -> String {
                format!("{self:?}")
            }
        })+
    };
}
use debug_repr;

/// Converts seconds.
fn duration(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|error| PyValueError::new_err(error.to_string()))
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    module.add("NativeError", module.py().get_type::<NativeError>())?;
    add_gateway(module)?;
    module.add_class::<values::config::Config>()?;
    module.add_class::<values::credentials::Credentials>()?;
    module.add_class::<engine::Engine>()?;
    module.add_class::<endpoint::Endpoint>()?;
    module.add_class::<client_pool::ClientPool>()?;
    module.add_class::<client_pool::PoolClient>()?;
    module.add_class::<bench::LoadGenerator>()?;
    module.add_class::<bench::LoadClient>()?;
    module.add_class::<bench::LoadClientPool>()?;
    module.add_class::<bench::LoadReport>()?;
    module.add_class::<values::events::ControlEvent>()?;
    module.add_class::<values::events::RightsRequestedEvent>()?;
    module.add_class::<values::events::RightsChangedEvent>()?;
    module.add_class::<values::events::SessionClaimedEvent>()?;
    module.add_class::<values::events::LinkUpEvent>()?;
    module.add_class::<values::events::LinkDownEvent>()?;
    module.add_class::<values::events::OverflowEvent>()?;
    module.add_class::<values::events::UnresolvedEvent>()?;
    module.add_class::<values::events::PublishedEvent>()?;
    module.add_class::<values::messages::Message>()?;
    module.add_class::<values::sessions::SessionStatus>()?;
    module.add_class::<values::load::Load>()?;
    module.add_class::<values::spans::Span>()?;
    module.add_class::<topics::SubscriptionTrie>()?;
    module.add_function(wrap_pyfunction!(topics::topic_is_valid, module)?)?;
    module.add_function(wrap_pyfunction!(topics::filter_is_valid, module)?)?;
    module.add_function(wrap_pyfunction!(topics::topic_matches, module)?)?;
    module.add_function(wrap_pyfunction!(topics::filter_touches, module)?)?;
    module.add_function(wrap_pyfunction!(codec::decode, module)?)?;
    module.add_function(wrap_pyfunction!(codec::encode, module)?)?;
    module.add_function(wrap_pyfunction!(records::decode_queued, module)?)?;
    module.add_function(wrap_pyfunction!(records::encode_queued, module)?)?;
    module.add_function(wrap_pyfunction!(records::decode_gone, module)?)?;
    module.add_function(wrap_pyfunction!(records::encode_gone, module)?)?;
    module.add_function(wrap_pyfunction!(records::decode_seen, module)?)?;
    module.add_function(wrap_pyfunction!(records::encode_seen, module)?)?;
    module.add_class::<stores::StoreDisk>()?;
    module.add_class::<stores::StoppedStore>()?;
    module.add_function(wrap_pyfunction!(stores::verify_store, module)?)?;
    module.add_function(wrap_pyfunction!(stores::merge_stores, module)?)
}

fn add_gateway(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<gateway::Gateway>()?;
    module.add_class::<gateway::Attempts>()?;
    module.add_class::<gateway::AttemptSource>()?;
    module.add_class::<gateway::ListenerSettings>()?;
    module.add_class::<gateway::SessionState>()?;
    module.add_class::<gateway::InFlight>()?;
    module.add_class::<gateway::ConnectionStatus>()
}
