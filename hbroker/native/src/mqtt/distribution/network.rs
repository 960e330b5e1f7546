//! The network as the workers see it: where messages of clients go, and who is told that messages of the network are done with.

use crate::mqtt::ack_guard::Ticket;
use crate::mqtt::codec::publish::Publish;
use crate::mqtt::codec::reason::Reason;

/// The way to the network. One call of `enter` for each turn: it waits until the network's own thread lets it in.
pub trait Network: Send + Sync + 'static {
    type Guard<'a>: Guard
    where
        Self: 'a;

    fn enter(&self) -> Self::Guard<'_>;
}

/// A stay at the network. When it is dropped what was left there is sent.
pub trait Guard {
    /// Takes a message over: its sequence number, by which it is answered (at `QoS` 0 by nobody); `None`: there is no room.
    ///
    /// # Errors
    /// It is refused for good.
    fn publish(&mut self, message: &Outgoing<'_>) -> Result<Option<u64>, Reason>;

    /// The clients are done with these messages, or will not be: their owners are to be answered.
    fn handled(&mut self, tickets: &[Ticket]);
}

/// A client's message, and what is not in its packet.
pub struct Outgoing<'a> {
    pub publish: &'a Publish<'a>,
    /// Who published it, for those who do not want their own messages back; 0: it does not matter.
    pub origin: u64,
    /// An acknowledgement is wanted as soon as the message is queued, not when it is distributed.
    pub ack_queued: bool,
}
