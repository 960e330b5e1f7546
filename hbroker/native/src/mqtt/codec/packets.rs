//! The checked contents of the control packets that Python decides on: the packets of a client, and the
//! answers to them.

use bytes::Bytes;

use crate::mqtt::codec::reason::Reason;

/// The protocol of a connection, by its protocol level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Version {
    V31 = 3,
    V311 = 4,
    V5 = 5,
}

/// (name, value) pairs, in the order of the packet.
pub type UserProperties = Vec<(String, String)>;

/// CONNECT (MQTT 5 §3.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connect {
    pub version: Version,
    /// The client identifies itself as another broker's bridge, as mosquitto's bridge does. No MQTT 5 client
    /// does.
    pub is_bridge: bool,
    /// Empty: the server assigns one.
    pub client_id: String,
    pub clean_start: bool,
    /// In seconds; 0: none.
    pub keep_alive: u16,
    /// In seconds; `u32::MAX`: the session never expires. Before MQTT 5: 0 with clean session, else never.
    pub session_expiry: u32,
    pub user: Option<String>,
    pub password: Option<Bytes>,
    pub will: Option<Will>,
    pub receive_maximum: u16,
    /// In bytes; None: no limit.
    pub maximum_packet: Option<u32>,
    pub topic_alias_maximum: u16,
    pub wants_problem_information: bool,
    pub authentication_method: Option<String>,
    pub authentication_data: Option<Bytes>,
}

/// The will of a CONNECT (MQTT 5 §3.1.2.5, §3.1.3.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Will {
    pub topic: String,
    pub payload: Bytes,
    pub qos: u8,
    pub retain: bool,
    pub delay_s: u32,
    pub expiry_s: Option<u32>,
    pub is_text: Option<bool>,
    pub content_type: Option<String>,
    pub response_topic: Option<String>,
    pub correlation_data: Option<Bytes>,
    pub user_properties: UserProperties,
}

/// SUBSCRIBE (MQTT 5 §3.8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscribe {
    pub packet_id: u16,
    /// The subscription identifier; 0: none.
    pub identifier: u32,
    pub filters: Vec<Subscription>,
}

/// One filter of a SUBSCRIBE, with its options (MQTT 5 §3.8.3.1). Before MQTT 5 the options except `qos` have
/// the values that correspond to MQTT 3.1.1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    pub filter: String,
    pub qos: u8,
    pub no_local: bool,
    pub retain_as_published: bool,
    /// 0: send retained messages, 1: only if the subscription is new, 2: never.
    pub retain_handling: u8,
}

/// UNSUBSCRIBE (MQTT 5 §3.10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsubscribe {
    pub packet_id: u16,
    pub filters: Vec<String>,
}

/// AUTH (MQTT 5 §3.15), from a client or the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    pub reason: Reason,
    pub method: String,
    pub data: Option<Bytes>,
}

/// DISCONNECT of a client (MQTT 5 §3.14).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disconnect {
    pub reason: Reason,
    /// The new session expiry interval, in seconds; None: that of CONNECT stays.
    pub session_expiry: Option<u32>,
}

/// The contents of a successful CONNACK (MQTT 5 §3.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accept {
    pub session_present: bool,
    /// Set if the client's own client id was empty.
    pub assigned_client_id: Option<String>,
    /// In seconds, in place of the client's value; None: the client's value holds.
    pub keep_alive: Option<u16>,
    /// In seconds, in place of the client's value; None: the client's value holds.
    pub session_expiry: Option<u32>,
    pub authentication_method: Option<String>,
    /// The last data of an authentication by AUTH.
    pub authentication_data: Vec<u8>,
}

/// Why the server refuses a client or closes a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloseReason {
    pub reason: Reason,
    /// The reason string; empty: none.
    pub text: String,
    /// The server reference: another server to use; empty: none.
    pub server_reference: String,
}

impl From<Reason> for CloseReason {
    fn from(reason: Reason) -> Self {
        Self { reason, text: String::new(), server_reference: String::new() }
    }
}
