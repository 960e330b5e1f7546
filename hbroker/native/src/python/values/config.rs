//! The settings of an engine, as Python sets them.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::python::NativeError;
use crate::python::values::credentials::Credentials;
use crate::python::values::spans::{Span, span_out};
use crate::token::TokenKeys;
use crate::wire::SEAL_BYTES;
use crate::workspace::Workspace;

/// The largest payload that is allowed (§9).
const MOST_MESSAGE_BYTES: usize = 1 << 28;

#[pyclass(module = "hbroker._native", frozen)]
pub struct Config(pub crate::config::Config);

#[pymethods]
impl Config {
    #[new]
    #[pyo3(signature = (
        *, node, session, incarnation, token_keys, seed, max_links = 1_000_000, max_links_of_host = 1_000_000,
        link_queue_bytes = 16_777_216, max_message_bytes = 268_435_456, reassembly_bytes = 536_870_912,
        persistent = false, named = false, hold = false, receive_messages = 4_096, receive_bytes = 8_388_608,
        for_many = false, queue_messages = 10_000, queue_bytes = 16_777_216, spool_bytes = 4_194_304,
        telemetry = false, credentials = None, requires_tokens = false, workspace = "",
        workspace_rates = Vec::new(), traces = false,
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        node: bool,
        session: u64,
        incarnation: u64,
        token_keys: Vec<Vec<u8>>,
        seed: u64,
        max_links: usize,
        max_links_of_host: usize,
        link_queue_bytes: usize,
        max_message_bytes: usize,
        reassembly_bytes: usize,
        persistent: bool,
        named: bool,
        hold: bool,
        receive_messages: u32,
        receive_bytes: u64,
        for_many: bool,
        queue_messages: usize,
        queue_bytes: usize,
        spool_bytes: usize,
        telemetry: bool,
        credentials: Option<&Credentials>,
        requires_tokens: bool,
        workspace: &str,
        workspace_rates: Vec<(String, u32)>,
        traces: bool,
    ) -> PyResult<Self> {
        let key = |key: Vec<u8>| {
            <[u8; 16]>::try_from(key).map_err(|_| NativeError::new_err("a token key has 16 bytes"))
        };
        if session == 0 {
            return Err(NativeError::new_err("session 0 means: outside of any session"));
        }
        if max_message_bytes > MOST_MESSAGE_BYTES || max_message_bytes > reassembly_bytes {
            return Err(NativeError::new_err(
                "max_message_bytes is at most 268435456, and no more than reassembly_bytes",
            ));
        }
        Ok(Self(crate::config::Config {
            node,
            session,
            incarnation,
            token_keys: TokenKeys::new(token_keys.into_iter().map(key).collect::<PyResult<_>>()?),
            credentials: credentials.map(|credentials| credentials.0.clone()),
            requires_tokens,
            seed,
            max_links,
            max_links_of_host,
            max_datagram: 8_952 - SEAL_BYTES,
            link_queue_bytes,
            event_queue: 100_000,
            message_queue_bytes: 64 << 20,
            retained_bytes: 256 << 20,
            max_message_bytes,
            reassembly_bytes,
            persistent,
            named: named || persistent,
            hold,
            receive_messages,
            receive_bytes,
            workspace: Workspace::named(workspace),
            workspace_rates: (!workspace_rates.is_empty()).then(|| Arc::new(workspace_rates)),
            for_many,
            queue_messages,
            queue_bytes,
            queue_memory: 1 << 30,
            spool_bytes,
            out_of_order_bytes: 64 << 20,
            stranger_rate: 10_000,
            keep_alive: 2_000_000,
            idle_timeout: 15_000_000,
            telemetry,
            spans: traces.then(Arc::default),
        }))
    }

    #[getter]
    fn publisher(&self) -> u64 {
        self.0.publisher()
    }

    fn take_spans(&self) -> (Vec<Span>, u64) {
        let (spans, dropped) = self.0.spans.as_ref().map(|log| log.take()).unwrap_or_default();
        (spans.iter().map(span_out).collect(), dropped)
    }
}
