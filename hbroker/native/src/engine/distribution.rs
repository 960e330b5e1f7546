//! Messages of `QoS` 1 and 2 that an owner took over and did not yet acknowledge (§7.3).
//!
//! A message is distributed when each subscriber that it was queued for has acknowledged it, or its session has ended.
//! Every such copy holds one ticket of the message, and returns it once; the last one back releases the PUBACK.

use hashbrown::HashMap;
use slab::Slab;

use crate::engine::ledger::Ticket;
use crate::keyed::Keyed;
use crate::link_id::LinkId;

/// (publisher, sequence number): the id of a message.
pub type MessageId = (u64, u64);

/// Where a message came from: its PUBACK goes back there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub link: LinkId,
    pub delivery: u64,
}

struct Pending {
    origin: Origin,
    copies: u32,
    id: Option<MessageId>,
}

/// The open messages of one worker.
pub struct Distribution {
    worker: u8,
    pending: Slab<Pending>,
    /// The open messages of QoS 2.
    by_id: HashMap<MessageId, u32, Keyed>,
}

impl Distribution {
    pub fn new(worker: u8, hasher: Keyed) -> Self {
        Self { worker, pending: Slab::new(), by_id: HashMap::with_hasher(hasher) }
    }

    /// Opens a message, of QoS 2 with its id. Its copies are added with [`Self::add_copies`]; the caller holds one ticket itself
    /// until all are queued, so that it cannot complete half-way.
    pub fn open(&mut self, origin: Origin, id: Option<MessageId>) -> Ticket {
        let key = self.pending.insert(Pending { origin, copies: 1, id });
        let key = u32::try_from(key).expect("fewer than 2^32 messages fit in memory");
        self.by_id.extend(id.map(|id| (id, key)));
        Ticket { worker: self.worker, key }
    }

    /// A message came again, over another link: its PUBACK will go there. False: it is not open.
    pub fn redirect(&mut self, id: MessageId, origin: Origin) -> bool {
        let Some(&key) = self.by_id.get(&id) else {
            return false;
        };
        self.pending[key as usize].origin = origin;
        true
    }

    pub fn add_copies(&mut self, ticket: Ticket, copies: u32) {
        self.pending[ticket.key as usize].copies += copies;
    }

    /// Returns a ticket of this worker; gives the origin to acknowledge to with the last one.
    pub fn settle(&mut self, ticket: Ticket) -> Option<Origin> {
        debug_assert_eq!(ticket.worker, self.worker);
        let pending = &mut self.pending[ticket.key as usize];
        pending.copies -= 1;
        if pending.copies > 0 {
            return None;
        }
        let Pending { origin, id, .. } = self.pending.remove(ticket.key as usize);
        id.inspect(|id| _ = self.by_id.remove(id));
        Some(origin)
    }

    pub fn len(&self) -> usize {
        self.pending.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completes_with_the_last_ticket() {
        let origin = Origin { link: LinkId(7), delivery: 3 };
        let mut distribution = Distribution::new(0, Keyed::new(1));
        let ticket = distribution.open(Origin { link: LinkId(6), delivery: 9 }, Some((1, 2)));
        assert!(distribution.redirect((1, 2), origin) && !distribution.redirect((1, 3), origin));
        distribution.add_copies(ticket, 2);
        assert_eq!(distribution.settle(ticket), None);
        assert_eq!(distribution.settle(ticket), None);
        assert_eq!(distribution.settle(ticket), Some(origin));
        assert_eq!((distribution.len(), distribution.by_id.len()), (0, 0));
    }
}
