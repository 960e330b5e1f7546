//! The interface between a [`worker`](super::worker) and the protocol that runs on its connections.
//!
//! A worker works in iterations. In each it does the following:
//!
//! 1. It reads from all connections that have received bytes.
//! 2. It calls the protocol for all input. The protocol collects what it has for others (messages for the
//!    network, acknowledgements).
//! 3. The iteration ends, and the protocol hands on what it collected, all at once.
//! 4. The worker writes once to each connection that has output.

use crate::Micros;
use crate::mqtt::io::connection::Ending;
use crate::mqtt::io::connections::{ConnectionId, Connections, Opening};

/// The protocol of one worker.
pub trait Protocol: Send + 'static {
    /// The protocol's state of one connection.
    type Conversation: Send + 'static;
    /// A command from other threads.
    type Command: Send + 'static;
    /// One iteration. `'t`: the lifetime of the bytes that were read.
    type Turn<'t>: Turn<'t, Self::Conversation, Self::Command>
    where
        Self: 't;

    fn begin_turn(&mut self, now: Micros) -> Self::Turn<'_>;

    /// Whether the protocol takes new connections now. If not, they wait in the kernel.
    fn takes_connections(&self) -> bool {
        true
    }

    /// When an iteration is due even if nothing has happened.
    fn poll_timeout(&self) -> Option<Micros> {
        None
    }
}

/// One iteration of a worker.
pub trait Turn<'t, C, M> {
    /// A connection was accepted. From then on `connections` contains it.
    fn open(&mut self, id: ConnectionId, listener: u32) -> Opening<C>;
    fn handle_bytes(&mut self, connections: &mut Connections<C>, id: ConnectionId, bytes: &'t [u8]);
    fn handle_command(&mut self, connections: &mut Connections<C>, command: M);
    /// The deadline of the connection has passed.
    fn handle_timeout(&mut self, connections: &mut Connections<C>, id: ConnectionId);
    /// The listener of the connection has other TLS settings, which do not admit the client.
    fn handle_not_admitted(&mut self, connections: &mut Connections<C>, id: ConnectionId);
    /// The output of a connection was full and has room again.
    fn handle_drained(&mut self, connections: &mut Connections<C>, id: ConnectionId);
    /// The peer closed the connection, or it failed. (If the protocol closes a connection, there is no such
    /// call.)
    fn handle_close(
        &mut self,
        connections: &mut Connections<C>,
        id: ConnectionId,
        conversation: C,
        why: Ending,
    );
    /// The iteration is complete.
    fn end(self, connections: &mut Connections<C>);
}
