//! The settings and answers that Python passes, read from any object with these attributes.

use pyo3::prelude::*;

use crate::mqtt::access::rules::Rule as Line;
use crate::mqtt::codec::packets::Accept as Connack;
use crate::mqtt::distribution::fanout::Options;
use crate::mqtt::gateway::command::Admitted;
use crate::mqtt::gateway::origin_of;
use crate::mqtt::io::admission::Limits;
use crate::mqtt::io::listener::Settings;
use crate::mqtt::io::transport::Layers;
use crate::mqtt::io::transport::tls::{ClientCertificates, TlsSettings};
use crate::mqtt::settings::{ListenerSettings as Mqtt, SessionSettings};
use crate::python::NativeError;
use crate::workspace::Workspace;

/// See `ListenerSettings` in the stub.
#[pyclass(module = "hbroker._native", name = "ListenerSettings", frozen)]
pub struct ListenerSettings {
    pub io: Settings,
    pub mqtt: Mqtt,
}

#[pymethods]
impl ListenerSettings {
    #[new]
    #[pyo3(signature = (
        *, certificates = Vec::new(), key = Vec::new(), client_authorities = Vec::new(), client_certificates = "none",
        websocket = false, websocket_path = "", proxy_protocol = false,
        connections = 1_000_000, connections_of_host = 1_000_000, connect_rate = 0, maximum_packet = 268_435_460,
        receive_maximum = 1_000, rate = 0,
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        certificates: Vec<u8>,
        key: Vec<u8>,
        client_authorities: Vec<u8>,
        client_certificates: &str,
        websocket: bool,
        websocket_path: &str,
        proxy_protocol: bool,
        connections: usize,
        connections_of_host: usize,
        connect_rate: u32,
        maximum_packet: usize,
        receive_maximum: u16,
        rate: u32,
    ) -> PyResult<Self> {
        let client_certificates = match client_certificates {
            "none" => ClientCertificates::None,
            "optional" => ClientCertificates::Optional,
            "required" => ClientCertificates::Required,
            other => return Err(NativeError::new_err(format!("client certificates: {other:?} is no mode"))),
        };
        let is_secure = !certificates.is_empty() || !key.is_empty();
        let tls = TlsSettings { certificates, key, client_authorities, client_certificates };
        let tls = is_secure.then(|| tls.build()).transpose().map_err(|bad| NativeError::new_err(bad.0))?;
        let websocket = websocket.then(|| websocket_path.into());
        let layers = Layers { proxy_protocol, tls, websocket };
        // Behind a load balancer all clients have its address until the PROXY header has arrived.
        let of_host = if proxy_protocol { usize::MAX } else { connections_of_host };
        let limits = Limits { connections, of_host, connect_rate };
        let mqtt = Mqtt { maximum_packet, receive_maximum, rate, ..Mqtt::default() };
        Ok(Self { io: Settings { layers, limits }, mqtt })
    }
}

#[derive(FromPyObject)]
pub struct Accept {
    pub session: u64,
    client_id: String,
    session_present: bool,
    pub acl: u32,
    in_flight: u16,
    queue_messages: usize,
    queue_bytes: usize,
    rate: u32,
    workspace: String,
    is_distributed: bool,
    assigned_client_id: Option<String>,
    server_keep_alive_s: Option<u16>,
    session_expiry_s: Option<u32>,
    auth_method: Option<String>,
    auth_data: Vec<u8>,
}

impl Accept {
    pub fn admit(self) -> Admitted {
        let accept = Connack {
            session_present: self.session_present,
            assigned_client_id: self.assigned_client_id,
            keep_alive: self.server_keep_alive_s,
            session_expiry: self.session_expiry_s,
            authentication_method: self.auth_method,
            authentication_data: self.auth_data,
        };
        let settings = SessionSettings {
            inflight: self.in_flight,
            queue_messages: self.queue_messages,
            queue_bytes: self.queue_bytes,
            ..SessionSettings::default()
        };
        Admitted {
            accept,
            session: self.session,
            settings,
            rate: self.rate,
            workspace: Workspace::named(&self.workspace),
            origin: origin_of(&self.client_id),
            access: None,
            ack_queued: !self.is_distributed,
        }
    }
}

#[derive(FromPyObject)]
pub struct ListenOptions {
    qos: u8,
    no_local: bool,
    retain_as_published: bool,
}

impl ListenOptions {
    pub fn with(self, identifier: u32) -> Options {
        let Self { qos, no_local, retain_as_published } = self;
        Options { qos, no_local, retain_as_published, identifier }
    }
}

#[derive(FromPyObject)]
pub struct Rule {
    filter: String,
    is_allowed: bool,
    for_read: bool,
    for_write: bool,
}

pub fn rules_in(rules: Vec<Rule>) -> Vec<Line> {
    let line = |rule: Rule| Line {
        allow: rule.is_allowed,
        read: rule.for_read,
        write: rule.for_write,
        filter: rule.filter,
    };
    rules.into_iter().map(line).collect()
}
