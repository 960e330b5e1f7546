//! What a server runs on its connections, as `worker` sees it.
//!
//! A worker works in turns. In each it reads what has come on all its connections, has the protocol work through it, and then
//! writes once to each connection that has something to say. What a turn gathers (messages for the network, acknowledgements)
//! goes on when it ends, in one go.

use crate::Micros;
use crate::mqtt::io::connection::Ending;
use crate::mqtt::io::connections::{ConnectionId, Connections};

/// One worker's protocol.
pub trait Protocol: Send + 'static {
    /// What it keeps of one connection.
    type Conversation: Send + 'static;
    /// What other threads have for it.
    type Command: Send + 'static;
    /// A turn. `'t`: as long as that what was read stays where it is.
    type Turn<'t>: Turn<'t, Self::Conversation, Self::Command>
    where
        Self: 't;

    fn begin_turn(&mut self, now: Micros) -> Self::Turn<'_>;

    /// Whether it can have more connections now. Until then they wait in the kernel.
    fn takes_connections(&self) -> bool {
        true
    }

    /// When a turn is due, whether or not anything has happened.
    fn poll_timeout(&self) -> Option<Micros> {
        None
    }
}

/// A connection's beginning.
pub struct Opening<C> {
    pub conversation: C,
    /// When `handle_timeout` is due.
    pub deadline: Option<Micros>,
    /// Bytes that it takes at once, at most.
    pub read_limit: usize,
}

/// One turn of a worker.
pub trait Turn<'t, C, M> {
    /// A connection is there. What else is known of it can be read from `connections` from then on.
    fn open(&mut self, id: ConnectionId, listener: u32) -> Opening<C>;
    fn handle_bytes(&mut self, connections: &mut Connections<C>, id: ConnectionId, bytes: &'t [u8]);
    fn handle_command(&mut self, connections: &mut Connections<C>, command: M);
    /// The deadline of the connection is over.
    fn handle_timeout(&mut self, connections: &mut Connections<C>, id: ConnectionId);
    /// A connection that had no room has room again.
    fn handle_drained(&mut self, connections: &mut Connections<C>, id: ConnectionId);
    /// The peer ended the connection, or it failed. (One that the protocol closes has no such call.)
    fn handle_close(
        &mut self,
        connections: &mut Connections<C>,
        id: ConnectionId,
        conversation: C,
        why: Ending,
    );
    /// Everything of this turn is told.
    fn end(self, connections: &mut Connections<C>);
}
