//! Received messages that the application has not handled yet, with the deliveries to acknowledge once it has
//! (§7.3).
//!
//! They are found by their ids. A duplicate that arrives meanwhile over another link is acknowledged together
//! with the first, and not before: an application that is killed in between must get the message again.
//! (Messages of `QoS` 1 in a batch are not looked up; a duplicate of one is read and acknowledged
//! separately.)

use std::collections::HashMap;

use smallvec::SmallVec;

use crate::engine::fragmentation::reassembly::Receipt;
use crate::keyed_hash::KeyedHash;
use crate::link_id::LinkId;

/// A message's publisher and sequence number.
pub type MessageId = (u64, u64);

/// Consecutive deliveries of a link, to be acknowledged together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deliveries {
    pub link: LinkId,
    pub first: u64,
    pub last: u64,
}

impl From<Receipt> for Deliveries {
    fn from((link, delivery): Receipt) -> Self {
        Self { link, first: delivery, last: delivery }
    }
}

/// Most messages have one.
type Receipts = SmallVec<[Receipt; 1]>;

pub struct Unacknowledged {
    receipts: HashMap<MessageId, Receipts, KeyedHash>,
}

impl Unacknowledged {
    pub fn new(hasher: KeyedHash) -> Self {
        Self { receipts: HashMap::with_hasher(hasher) }
    }

    /// A message is for the application, which has to handle it before this delivery is acknowledged.
    pub fn hold(&mut self, id: MessageId, receipt: Receipt) {
        self.receipts.entry(id).or_default().push(receipt);
    }

    /// A message is received again. False: it is not waiting here.
    pub fn hold_again(&mut self, id: MessageId, receipt: Receipt) -> bool {
        self.receipts.get_mut(&id).is_some_and(|receipts| {
            receipts.push(receipt);
            true
        })
    }

    /// The application has handled a message. Returns the deliveries to acknowledge.
    pub fn take(&mut self, id: MessageId) -> Receipts {
        self.receipts.remove(&id).unwrap_or_default()
    }

    /// Forgets the receipts of a link that has ended: its deliveries are retransmitted under other numbers.
    pub fn forget_link(&mut self, link: LinkId) {
        for receipts in self.receipts.values_mut() {
            receipts.retain(|(from, _)| *from != link);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: LinkId = LinkId(1);
    const OTHER: LinkId = LinkId(2);

    #[test]
    fn every_delivery_of_a_message_is_acknowledged_when_it_is_handled() {
        let mut unacknowledged = Unacknowledged::new(KeyedHash::new(1));
        assert!(!unacknowledged.hold_again((7, 1), (LINK, 3)));
        unacknowledged.hold((7, 1), (LINK, 3));
        unacknowledged.hold((7, 2), (LINK, 4));
        assert!(unacknowledged.hold_again((7, 1), (OTHER, 1)));
        assert_eq!(unacknowledged.take((7, 1)).as_slice(), [(LINK, 3), (OTHER, 1)]);
        assert!(unacknowledged.take((7, 1)).is_empty());
        unacknowledged.forget_link(LINK);
        assert!(unacknowledged.hold_again((7, 2), (OTHER, 2)), "the application still has it");
        assert_eq!(unacknowledged.take((7, 2)).as_slice(), [(OTHER, 2)]);
    }
}
