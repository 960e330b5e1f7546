//! Messages of `QoS` 1 and 2 that an owner took over and did not yet acknowledge (§7.3).
//!
//! A message is distributed when each subscriber that it was queued for has acknowledged it, or its session has ended.
//! Every such copy holds one ticket of the message, and returns it once; the last one back releases the PUBACK.

use slab::Slab;

use crate::engine::ledger::Ticket;
use crate::link_id::LinkId;

/// Where a message came from: its PUBACK goes back there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub link: LinkId,
    pub delivery: u64,
}

struct Pending {
    origin: Origin,
    copies: u32,
}

/// The open messages of one worker.
pub struct Distribution {
    worker: u8,
    pending: Slab<Pending>,
}

impl Distribution {
    pub fn new(worker: u8) -> Self {
        Self {
            worker,
            pending: Slab::new(),
        }
    }

    /// Opens a message. Its copies are added with [`Self::add_copies`]; the caller holds one ticket itself until all are
    /// queued, so that it cannot complete half-way.
    pub fn open(&mut self, origin: Origin) -> Ticket {
        let key = self.pending.insert(Pending { origin, copies: 1 });
        Ticket {
            worker: self.worker,
            key: u32::try_from(key).expect("fewer than 2^32 messages fit in memory"),
        }
    }

    pub fn add_copies(&mut self, ticket: Ticket, copies: u32) {
        self.pending[ticket.key as usize].copies += copies;
    }

    /// Returns a ticket of this worker; gives the origin to acknowledge to with the last one.
    pub fn settle(&mut self, ticket: Ticket) -> Option<Origin> {
        debug_assert_eq!(ticket.worker, self.worker);
        let pending = &mut self.pending[ticket.key as usize];
        pending.copies -= 1;
        (pending.copies == 0).then(|| self.pending.remove(ticket.key as usize).origin)
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
        let origin = Origin {
            link: LinkId(7),
            delivery: 3,
        };
        let mut distribution = Distribution::new(0);
        let ticket = distribution.open(origin);
        distribution.add_copies(ticket, 2);
        assert_eq!(distribution.settle(ticket), None);
        assert_eq!(distribution.settle(ticket), None);
        assert_eq!(distribution.settle(ticket), Some(origin));
        assert_eq!(distribution.len(), 0);
    }
}
