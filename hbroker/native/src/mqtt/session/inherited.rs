//! The messages that another gateway had sent to the client, until the network sends them again.
//!
//! The other gateway left them unacknowledged, so their owners send them to the next gateway that resumes the
//! session. A message that the client did not acknowledge is sent again with its packet id (MQTT 5 §4.4). A
//! message that the client has received (it sent PUBREC) is not sent again.

use std::collections::VecDeque;

use crate::mqtt::distribution::ack_guard::MessageId;

/// The id of a message that the network does not send again.
pub const NO_MESSAGE: MessageId = (0, 0);

/// Of either kind only the newest are remembered: as many as one owner may have in flight to a pool client.
const MOST: usize = 4_096;

/// How far the other gateway had delivered a message that the network sends again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlierDelivery {
    /// It was sent with this packet id.
    Sent(u16),
    /// The client has received it: it sent PUBREC.
    Received,
}

#[derive(Default)]
pub struct Inherited {
    sent: VecDeque<(MessageId, u16)>,
    received: VecDeque<MessageId>,
}

impl Inherited {
    /// `sent` and `received`: in the order in which they were sent.
    pub fn new(sent: Vec<(MessageId, u16)>, received: impl Iterator<Item = MessageId>) -> Self {
        let mut received: VecDeque<_> = received.filter(|message| *message != NO_MESSAGE).collect();
        let mut sent = VecDeque::from(sent);
        sent.drain(..sent.len().saturating_sub(MOST));
        received.drain(..received.len().saturating_sub(MOST));
        Self { sent, received }
    }

    /// How far a message had been delivered. It is not expected any more.
    pub fn take(&mut self, message: MessageId) -> Option<EarlierDelivery> {
        if let Some(index) = self.sent.iter().position(|(id, _)| *id == message) {
            return self.sent.remove(index).map(|(_, packet_id)| EarlierDelivery::Sent(packet_id));
        }
        let index = self.received.iter().position(|id| *id == message)?;
        self.received.remove(index).map(|_| EarlierDelivery::Received)
    }

    /// Whether this message is expected.
    pub fn has(&self, message: MessageId) -> bool {
        self.sent.iter().any(|(id, _)| *id == message) || self.was_received(message)
    }

    /// Whether this message is expected, and the client has received it.
    pub fn was_received(&self, message: MessageId) -> bool {
        self.received.contains(&message)
    }

    /// The messages to send again, with their packet ids, in order.
    pub fn sent(&self) -> impl ExactSizeIterator<Item = (MessageId, u16)> {
        self.sent.iter().copied()
    }

    /// The messages that the client has received.
    pub fn received(&self) -> impl Iterator<Item = MessageId> {
        self.received.iter().copied()
    }
}
