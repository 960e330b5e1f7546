//! The calls and events from a connection upwards.

use crate::mqtt::Key;
use crate::mqtt::codec::packets::{Auth, Connect, Subscribe, Unsubscribe};
use crate::mqtt::codec::publish::Publish;
use crate::mqtt::codec::reason::Reason;

/// The layer above a connection: the network for messages, Python for everything else.
pub trait UpperLayer {
    /// A message from the client. If it has a key (`QoS` 1 and 2) and the network takes the message, the
    /// network answers once with this key.
    fn publish(&mut self, publish: &Publish<'_>, key: Option<Key>) -> PublishOutcome;
    /// An event for Python to decide on.
    fn event(&mut self, event: Event);
}

/// The network's answer to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishOutcome {
    Accepted,
    /// Refused, permanently.
    Refused(Reason),
    /// There is no room: the connection offers the message again after `resume`, and reads nothing until
    /// then.
    Later,
}

/// An event for Python to decide on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Python answers with `accept`, `refuse` or `challenge`.
    Connect(Box<Connect>),
    /// Python answers with `suback`.
    Subscribe(Subscribe),
    /// Python answers with `unsuback`.
    Unsubscribe(Unsubscribe),
    /// Python answers with `challenge`, `accept` or `refuse` before the client is accepted, then with
    /// `challenge` or `disconnect`.
    Auth(Auth),
    /// The connection is closed. This is the last event.
    Closed(Closed),
}

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    pub cause: Cause,
    /// The reason code of the client's DISCONNECT, or the one that the server sent or would have sent.
    pub reason: Reason,
    /// The session expiry interval of the client's DISCONNECT, in seconds; None: that of CONNECT stays.
    pub session_expiry: Option<u32>,
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The client sent DISCONNECT: reason 0 discards the will (MQTT 5 §3.14.4).
    Client,
    /// The stream ended without DISCONNECT.
    Lost,
    /// The client sent nothing for one and a half times the keep alive (MQTT 5 §3.1.2.10), or no CONNECT in
    /// time.
    Silent,
    /// The client broke the protocol.
    Error,
    /// `refuse` or `disconnect` was called.
    Server,
}
