//! What another gateway had sent to the client, until the network brings it again.
//!
//! That gateway left it unanswered, so its owner sends it to whoever speaks for the session next. A message that the client did not
//! acknowledge goes again under its packet id (MQTT 5 §4.4). One that the client has, since PUBREC, goes no more.

use std::collections::VecDeque;

use crate::mqtt::ack_guard::MessageId;

/// Names none: of a message that does not come again.
pub const NO_MESSAGE: MessageId = (0, 0);

/// Of either kind the newest are remembered, as many as one owner has in flight to a member.
const MOST: usize = 4_096;

/// What is known of a message that comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It was sent under this packet id.
    Sent(u16),
    /// The client has it.
    Had,
}

#[derive(Default)]
pub struct Inherited {
    sent: VecDeque<(MessageId, u16)>,
    had: VecDeque<MessageId>,
}

impl Inherited {
    /// Each in the order in which they were sent.
    pub fn new(sent: Vec<(MessageId, u16)>, had: impl Iterator<Item = MessageId>) -> Self {
        let mut had: VecDeque<_> = had.filter(|message| *message != NO_MESSAGE).collect();
        let mut sent = VecDeque::from(sent);
        sent.drain(..sent.len().saturating_sub(MOST));
        had.drain(..had.len().saturating_sub(MOST));
        Self { sent, had }
    }

    /// What is known of a message; it is expected no more.
    pub fn take(&mut self, message: MessageId) -> Option<Known> {
        if let Some(index) = self.sent.iter().position(|(id, _)| *id == message) {
            return self.sent.remove(index).map(|(_, packet_id)| Known::Sent(packet_id));
        }
        let index = self.had.iter().position(|id| *id == message)?;
        self.had.remove(index).map(|_| Known::Had)
    }

    /// Whether this message is expected.
    pub fn has(&self, message: MessageId) -> bool {
        self.sent.iter().any(|(id, _)| *id == message) || self.had(message)
    }

    /// Whether this message is expected, and its client has it.
    pub fn had(&self, message: MessageId) -> bool {
        self.had.contains(&message)
    }

    /// What is to be sent again, in order.
    pub fn sent(&self) -> impl Iterator<Item = (MessageId, u16)> {
        self.sent.iter().copied()
    }

    /// What the client has.
    pub fn all_had(&self) -> impl Iterator<Item = MessageId> {
        self.had.iter().copied()
    }
}
