//! What a connection tells those above it.

use crate::mqtt::Key;
use crate::mqtt::codec::packets::{Auth, Connect, Subscribe, Unsubscribe};
use crate::mqtt::codec::publish::Publish;
use crate::mqtt::codec::reason::Reason;

/// Those above a connection: the network for messages, Python for the rest.
pub trait Upper {
    /// A client's message. Where it has a key (`QoS` 1 and 2) the network answers by it, once, if it takes the message.
    fn publish(&mut self, publish: &Publish<'_>, key: Option<Key>) -> Taken;
    /// Something to decide on.
    fn event(&mut self, event: Event);
}

/// What the network says to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    Yes,
    /// No, for good.
    Refused(Reason),
    /// There is no room: the connection offers it again after `resume`, and reads nothing until then.
    Later,
}

/// What is for Python to decide on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// To be answered with `accept`, `refuse` or `challenge`.
    Connect(Box<Connect>),
    /// To be answered with `suback`.
    Subscribe(Subscribe),
    /// To be answered with `unsuback`.
    Unsubscribe(Unsubscribe),
    /// To be answered with `challenge`, `accept` or `refuse` before the connection is open, then with `challenge` or `disconnect`.
    Auth(Auth),
    /// The connection is over. The last event.
    Closed(Closed),
}

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    pub cause: Cause,
    /// That of the client's DISCONNECT, or what the server told or would have told.
    pub reason: Reason,
    /// What the client's DISCONNECT asked for, in seconds; None: that of CONNECT stays.
    pub session_expiry: Option<u32>,
}

/// Who or what ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// DISCONNECT came: reason 0 discards the will (MQTT 5 §3.14.4).
    Client,
    /// The stream ended without DISCONNECT.
    Lost,
    /// Nothing came for one and a half times the keep alive (MQTT 5 §3.1.2.10), or no CONNECT within its time.
    Silent,
    /// The client broke the protocol.
    Error,
    /// `refuse` or `disconnect` was called.
    Server,
}
