//! The settings and answers that Python passes, read from any object with these attributes.

use pyo3::prelude::*;

use crate::mqtt::access::rules::Rule as Line;
use crate::mqtt::codec::packets::Accept as Connack;
use crate::mqtt::command::Admitted;
use crate::mqtt::distribution::fanout::Options;
use crate::mqtt::gateway::origin_of;
use crate::mqtt::io::admission::Limits;
use crate::mqtt::io::listener::Settings;
use crate::mqtt::io::tls::{ClientCertificates, TlsSettings};
use crate::mqtt::io::transport::Layers;
use crate::mqtt::settings::{ListenerSettings as Mqtt, SessionSettings};
use crate::python::NativeError;

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
        connections = 1_000_000, connections_of_host = 1_000_000, connect_rate = 0, write_buffer = 1_048_576,
        handshake_bytes = 65_536, handshake_us = 10_000_000, maximum_packet = 268_435_460, receive_maximum = 1_000,
        topic_alias_maximum = 64, topic_aliases = 64, maximum_qos = 2, retain_available = true, rate = 0, rate_bytes = 0,
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
        write_buffer: usize,
        handshake_bytes: usize,
        handshake_us: u64,
        maximum_packet: usize,
        receive_maximum: u16,
        topic_alias_maximum: u16,
        topic_aliases: u16,
        maximum_qos: u8,
        retain_available: bool,
        rate: u32,
        rate_bytes: u64,
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
        let io = Settings { layers, limits, write_buffer };
        let mqtt = Mqtt {
            handshake_bytes,
            handshake_time: handshake_us,
            maximum_packet,
            receive_maximum,
            topic_alias_maximum,
            topic_aliases,
            maximum_qos,
            retain_available,
            rate,
            rate_bytes,
            output_bytes: write_buffer,
        };
        Ok(Self { io, mqtt })
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
    is_distributed: bool,
    assigned_client_id: Option<String>,
    server_keep_alive_s: Option<u16>,
    session_expiry_s: Option<u32>,
    response_information: Option<String>,
    auth_method: Option<String>,
    auth_data: Vec<u8>,
    user_properties: Vec<(String, String)>,
}

impl Accept {
    pub fn admit(self) -> Admitted {
        let has_method = self.auth_method.is_some();
        let accept = Connack {
            session_present: self.session_present,
            assigned_client_id: self.assigned_client_id,
            keep_alive: self.server_keep_alive_s,
            session_expiry: self.session_expiry_s,
            response_information: self.response_information,
            authentication_method: self.auth_method,
            authentication_data: has_method.then(|| self.auth_data.into()),
            text: String::new(),
            user_properties: self.user_properties,
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
            rate: Some(self.rate),
            origin: origin_of(&self.client_id),
            client_id: self.client_id.into(),
            // Python identifies clients in its access lists itself.
            user: "".into(),
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
