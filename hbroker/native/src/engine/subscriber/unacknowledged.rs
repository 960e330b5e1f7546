//! The messages that came and that the application has not taken over: what to acknowledge once it has (§7.3).
//!
//! They are known by their ids. One that comes again meanwhile, over another link, is acknowledged with the first and not before: an
//! application that is killed in between must get it once more. (Those of `QoS` 1 that stay together until they are read are not looked up:
//! one of them that comes again is read and acknowledged again.)

use std::collections::HashMap;

use smallvec::SmallVec;

use crate::engine::fragmentation::reassembly::Receipt;
use crate::keyed_hash::KeyedHash;
use crate::link_id::LinkId;

/// A message's publisher and sequence number.
pub type MessageId = (u64, u64);

/// Deliveries over a link that follow one another, to be acknowledged together.
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

/// Most have one.
type Receipts = SmallVec<[Receipt; 1]>;

pub struct Unacknowledged {
    receipts: HashMap<MessageId, Receipts, KeyedHash>,
}

impl Unacknowledged {
    pub fn new(hasher: KeyedHash) -> Self {
        Self { receipts: HashMap::with_hasher(hasher) }
    }

    /// A message is for the application, which answers for this delivery.
    pub fn hold(&mut self, id: MessageId, receipt: Receipt) {
        self.receipts.entry(id).or_default().push(receipt);
    }

    /// A message comes again. False: it is not held.
    pub fn hold_again(&mut self, id: MessageId, receipt: Receipt) -> bool {
        self.receipts.get_mut(&id).is_some_and(|receipts| {
            receipts.push(receipt);
            true
        })
    }

    /// The application has taken a message over; what to acknowledge.
    pub fn take(&mut self, id: MessageId) -> Receipts {
        self.receipts.remove(&id).unwrap_or_default()
    }

    /// Forgets the receipts of a link that is gone: its deliveries come again under other numbers.
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
