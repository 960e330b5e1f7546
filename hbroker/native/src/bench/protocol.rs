//! A client's side of a protocol over a stream of bytes, sans-IO.

use std::fmt;

/// What comes out of a connection for the load.
pub trait Listener {
    /// A message came.
    fn message(&mut self, payload: &[u8]);
    /// The broker answered for a message that was published.
    fn answer(&mut self, is_success: bool);
}

/// What a broker said that a client cannot go on after.
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

/// What one connection says and understands.
pub trait StreamProtocol: Send + 'static {
    /// What is said first.
    fn greet(&mut self, out: &mut Vec<u8>);
    /// The broker has let it in, and has its subscription.
    fn is_ready(&self) -> bool;
    /// Takes whole packets off the front; returns how many bytes they were. Answers are added to `out`.
    ///
    /// # Errors
    /// What came is no such packet, or is a refusal.
    fn understand(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        listener: &mut impl Listener,
    ) -> Result<usize, Fault>;
    /// Adds a message to one of the topics that it was made with; false: there is no room for one more without an answer.
    fn publish(&mut self, out: &mut Vec<u8>, topic: usize, payload: &[u8]) -> bool;
}
