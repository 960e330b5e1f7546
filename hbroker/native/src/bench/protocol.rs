//! The client side of a protocol over a byte stream, sans-IO.

use std::fmt;

/// Receives the events of a connection.
pub trait Listener {
    /// A message was received.
    fn message(&mut self, payload: &[u8]);
    /// The broker answered a published message.
    fn answer(&mut self, is_success: bool);
}

/// What the broker did after which the client cannot continue.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault(pub String);

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Fault {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// The client side of a protocol, for one connection.
pub trait StreamProtocol: Send + 'static {
    /// Appends the first packets.
    fn greet(&mut self, out: &mut Vec<u8>);
    /// Whether the broker has accepted the connection and its subscription.
    fn is_ready(&self) -> bool;
    /// Handles the complete packets at the beginning of `input`, and returns their size in bytes. Answers are
    /// appended to `out`.
    ///
    /// # Errors
    /// The input is not a valid packet, or is a refusal.
    fn understand(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        listener: &mut impl Listener,
    ) -> Result<usize, Fault>;
    /// Appends a message to one of the topics; false: no more messages may be unanswered.
    fn publish(&mut self, out: &mut Vec<u8>, topic: usize, payload: &[u8]) -> bool;
}
