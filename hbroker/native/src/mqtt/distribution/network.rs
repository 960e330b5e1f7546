//! The network as the workers see it: it takes the messages of clients, and acknowledges network messages to
//! their owners.

use crate::mqtt::ack_guard::Ticket;
use crate::mqtt::codec::publish::Publish;
use crate::mqtt::codec::reason::Reason;

/// Access to the network. A worker calls `enter` at most once in an iteration. The call waits for the lock of
/// the client pool's worker.
pub trait Network: Send + Sync + 'static {
    type Guard<'a>: Guard
    where
        Self: 'a;

    fn enter(&self) -> Self::Guard<'_>;
}

/// Access to the network for one iteration. When the guard is dropped the messages are sent.
pub trait Guard {
    /// Publishes a message. Returns its sequence number, which the network's answer names (at `QoS` 0 there
    /// is no answer); `None`: there is no room.
    ///
    /// # Errors
    /// The message is refused permanently.
    fn publish(&mut self, message: &Outgoing<'_>) -> Result<Option<u64>, Reason>;

    /// Acknowledges these messages to their owners: all clients have acknowledged them, or never will.
    fn handled(&mut self, tickets: &[Ticket]);
}

/// A message of a client, and the options that its packet does not contain.
pub struct Outgoing<'a> {
    pub publish: &'a Publish<'a>,
    /// The origin of the client, for subscriptions with No Local; 0: there is none.
    pub origin: u64,
    /// The owner acknowledges the message as soon as it is queued, not when it is distributed.
    pub ack_queued: bool,
}
