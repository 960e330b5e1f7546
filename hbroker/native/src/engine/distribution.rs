//! Messages of `QoS` 1 and 2 that an owner took over and did not yet acknowledge (§7.3).
//!
//! A message is distributed when each subscriber that it was queued for has acknowledged it, or its session has ended.
//! Every such copy holds one ticket of the message, and returns it once; the last one back releases the PUBACK.

use bytes::Bytes;
use hashbrown::HashMap;
use slab::Slab;
use smallvec::SmallVec;

use crate::engine::ledger::Ticket;
use crate::engine::outlet::{Handoff, Outlet, Targets};
use crate::engine::parts::chain_of;
use crate::keyed::Keyed;
use crate::link_id::{LinkId, SessionKey};
use crate::tables::match_set::Subscriber;
use crate::wire::PublishView;

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

    /// Opens a message, of QoS 2 with its id. Its copies are added by [`Self::distribute`]; the caller holds one ticket itself
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

    /// Queues a message for its subscribers, and hands it to the other workers for theirs. Each copy that is kept holds the
    /// ticket, if one is given.
    pub fn distribute<'a>(
        &mut self,
        publish: &PublishView<'_>,
        subscribers: impl Iterator<Item = &'a Subscriber>,
        ticket: Option<Ticket>,
        out: &mut Outlet,
    ) {
        // Only reliable packets have an order to keep.
        let chain = if publish.qos > 0 { chain_of(publish.publisher, publish.topic.as_bytes()) } else { 0 };
        let field = publish.field();
        // One allocation serves all copies that are kept, and is made only if there is one. The last takes it without counting
        // itself: of a message for one subscriber nothing is counted.
        let mut shared: Option<Bytes> = None;
        let mut share = || shared.get_or_insert_with(|| Bytes::copy_from_slice(&field)).clone();
        let mut last = None;
        let mut remote: SmallVec<[(u8, Targets); 4]> = SmallVec::new();
        for &Subscriber { session, qos, .. } in subscribers {
            let qos = qos.min(publish.qos);
            if session.worker() != self.worker {
                match remote.iter_mut().find(|(worker, _)| *worker == session.worker()) {
                    Some((_, targets)) => targets.push((session, qos)),
                    None => remote.push((session.worker(), SmallVec::from_elem((session, qos), 1))),
                }
            } else if qos == 0 {
                out.offer_copy(session, &field, false);
            } else if let Some(session) = last.replace(session) {
                self.keep(session, share(), chain, ticket, out);
            }
        }
        for (worker, targets) in remote {
            if let Some(ticket) = ticket {
                let kept = targets.iter().filter(|(_, qos)| *qos > 0).count();
                self.add_copies(ticket, u32::try_from(kept).unwrap_or(u32::MAX));
            }
            out.handoffs.push_back((worker, Handoff::Deliver { field: share(), chain, targets, ticket }));
        }
        if let Some(session) = last {
            let field = shared.unwrap_or_else(|| Bytes::copy_from_slice(&field));
            self.keep(session, field, chain, ticket, out);
        }
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

    fn keep(
        &mut self,
        session: SessionKey,
        field: Bytes,
        chain: u64,
        ticket: Option<Ticket>,
        out: &mut Outlet,
    ) {
        if out.offer_shared(session, field, chain, false, ticket)
            && let Some(ticket) = ticket
        {
            self.add_copies(ticket, 1);
        }
    }

    fn add_copies(&mut self, ticket: Ticket, copies: u32) {
        self.pending[ticket.key as usize].copies += copies;
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
