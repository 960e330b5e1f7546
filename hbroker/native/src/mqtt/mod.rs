//! The server side of MQTT 3.1, 3.1.1 and 5 in a gateway.
//!
//! ```text
//!          Python
//!  verbs     |  ^   events
//!            v  |
//!          gateway      routes messages and commands to workers; the clients of each worker; parked sessions
//!            |  ^
//!            |  |       distribution: messages to and from the client pool, and their acknowledgement
//!            v  |
//!          connection   one transport stream, with codec, aliases, access::rules and settings
//!            v
//!          session      what outlives the stream
//!          io           sockets, threads, TLS, WebSocket; knows nothing of MQTT
//!          metrics      counters, and metrics by topic
//! ```
//!
//! `codec`, `connection`, `session` and `distribution` are sans-IO.
//!
//! A [`Connection`](connection::Connection) is one transport stream. Its input is bytes and time. Its output
//! is bytes, which it appends to the iteration's buffer, events, and a deadline. It frames and checks
//! packets. It keeps the state that lives as long as the stream: version, keep alive, topic aliases, and the
//! receive maximum of both directions. Python decides on CONNECT, SUBSCRIBE, UNSUBSCRIBE and AUTH, and on
//! what becomes of a session when its stream ends; the connection hands these up as an
//! [`Event`](connection::event::Event). A PUBLISH goes to the network as a borrowed view. The network answers
//! with the [`Key`] that the view had.
//!
//! A [`Session`](session::Session) outlives the stream. It holds the messages that are queued for the client,
//! the messages in flight to it, and the packet ids of the `QoS` 2 messages that the client sent. An open
//! connection owns its session. When the connection closes, the session is taken out of it and parked, or
//! dropped.
//!
//! All recipients of a network message share one [`Message`](crate::mqtt::distribution::message::Message).
//! Each recipient whose acknowledgement the owner waits for (`QoS` 1 and 2) holds an
//! [`AckGuard`](distribution::ack_guard::AckGuard). When the last guard of a message is dropped, the
//! message's ticket is put into [`Releases`](distribution::ack_guard::Releases), once.
//!
//! A worker drives a connection by these calls:
//!
//! | when | call |
//! |---|---|
//! | a stream was accepted | `Connection::new` |
//! | bytes were read | `Connection::handle_bytes`; at most `Connection::read_limit` bytes, and none while `wants_bytes` is false |
//! | the stream ended | `Connection::handle_end` |
//! | `Connection::poll_timeout` is reached | `Connection::handle_timeout` |
//! | Python answers | `Connection::accept`, `refuse`, `acknowledge`, `challenge`, `disconnect` |
//! | the network answered a PUBLISH | `Connection::answer` (`Session::answer` if the session is parked) |
//! | the network has room again | `Connection::resume` |
//! | a message for the client arrived | `Connection::deliver` (`Session::deliver` if the session is parked) |
//! | the socket took the buffered bytes | `Connection::flush` |
//! | `Connection::is_closed` | write the remaining bytes, close the stream, `Connection::take_session` |

pub mod access;
mod aliases;
pub mod codec;
pub mod connection;
pub mod distribution;
pub mod gateway;
pub mod io;
mod metrics;
pub mod session;
pub mod settings;

/// Identifies a PUBLISH of `QoS` 1 or 2 that the network has to answer. It is unique within its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub u64);

/// What a worker lends to a connection for one call.
pub struct Turn<'a> {
    pub now: crate::Micros,
    /// The connection appends the bytes for its client here.
    pub out: &'a mut io::output::Output,
    /// The counters of the worker.
    pub counters: &'a mut metrics::counters::Counters,
    /// The metrics of the worker by topic; `None` if telemetry is off.
    pub load: Option<&'a mut crate::load::Load>,
}
