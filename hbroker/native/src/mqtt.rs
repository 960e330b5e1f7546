//! The server side of MQTT 3.1, 3.1.1 and 5, sans-IO (DESIGN §6).
//!
//! A [`Connection`](connection::Connection) is one transport stream: bytes and time come in; bytes (appended to the turn's buffer), events and a deadline
//! come out. It frames and checks packets, and keeps what lives as long as the stream: version, keep alive, topic aliases, the
//! receive maximum of both ways. What it cannot decide (CONNECT, SUBSCRIBE, UNSUBSCRIBE, AUTH, and what becomes of a session when
//! its stream ends) goes up as an [`Event`](event::Event). A PUBLISH goes to the network as a borrowed view; the network's answer comes back by
//! the [`Key`] that the view had.
//!
//! A [`Session`](session::Session) is what outlives the stream: the messages that wait for the client, those it was sent and has not
//! acknowledged, and the packet ids of `QoS` 2 that it used. An open connection owns its session; when it closes, the session is
//! taken out of it and parked, or dropped.
//!
//! A [`Message`](crate::mqtt::distribution::message::Message) of the network is shared by all its recipients. Each that owes the network an answer (`QoS` 1 and 2) holds a
//! [`Claim`](claim::Claim); when the last one is dropped the message's ticket is in [`Releases`](claim::Releases), once.
//!
//! How a worker drives it:
//!
//! | when | call |
//! |---|---|
//! | a stream was accepted | `Connection::new` |
//! | bytes were read | `Connection::handle_bytes`; no more than `Connection::read_limit`, and none while `wants_bytes` is false |
//! | the stream ended | `Connection::handle_end` |
//! | `Connection::poll_timeout` has come | `Connection::handle_timeout` |
//! | Python answers | `Connection::accept`, `refuse`, `suback`, `unsuback`, `challenge`, `disconnect` |
//! | the network took a message, or refused it | `Connection::answer` (`Session::answer` where it is parked) |
//! | the network has room again | `Connection::resume` |
//! | a message has come | `Connection::deliver` (`Session::deliver`) |
//! | the socket took what was in the buffer | `Connection::flush` |
//! | `Connection::is_closed` | write what is left, close the stream, `Connection::take_session` |

pub mod access;
pub mod ack_guard;
mod aliases;
mod client;
pub mod clients;
pub mod codec;
pub mod command;
pub mod connection;
pub mod counters;
pub mod dispatcher;
pub mod distribution;
pub mod event;
pub mod gateway;
pub mod io;
mod metrics;
pub mod session;
pub mod settings;
mod throttle;
mod unfinished;
pub mod worker_event;

/// Names a PUBLISH of `QoS` 1 or 2 that the network is to answer; unique within its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub u64);

/// One go of a worker at one connection: what it has in hand.
pub struct Turn<'a> {
    pub now: crate::Micros,
    /// What goes to the client is appended here.
    pub out: &'a mut io::output::Output,
    /// The worker's.
    pub counters: &'a mut counters::Counters,
    /// The worker's too; `None`: nobody asks what passes by topic.
    pub load: Option<&'a mut crate::load::Load>,
}
