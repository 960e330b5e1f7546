//! Messages of `QoS` 1 and 2 that an owner took over and did not yet acknowledge (§7.3).
//!
//! A message is distributed when each subscriber that was connected has acknowledged it, or its session has ended, or counts as away.
//! Every such copy holds one ticket of the message, and returns it once; the last one back releases the PUBACK.

use bytes::Bytes;
use hashbrown::HashMap;
use slab::Slab;
use smallvec::SmallVec;

use crate::Micros;
use crate::engine::ledger::Ticket;
use crate::engine::load::Docket;
use crate::engine::outlet::{Handoff, Outlet, Target, Targets};
use crate::engine::parcel::Parcel;
use crate::keyed::Keyed;
use crate::link_id::LinkId;
use crate::topic;
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
    /// `None`: its publisher was told to send it elsewhere (§5.4).
    origin: Option<Origin>,
    copies: u32,
    id: Option<MessageId>,
    topic: Topic,
}

/// Most fit in place.
type Topic = SmallVec<[u8; 36]>;

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
    pub fn open(&mut self, origin: Origin, id: Option<MessageId>, topic: &str) -> Ticket {
        let topic = SmallVec::from_slice(topic.as_bytes());
        let key = self.pending.insert(Pending { origin: Some(origin), copies: 1, id, topic });
        let key = u32::try_from(key).expect("fewer than 2^32 messages fit in memory");
        self.by_id.extend(id.map(|id| (id, key)));
        Ticket { worker: self.worker, key }
    }

    /// A message came again, over another link: its PUBACK will go there. False: it is not open.
    pub fn redirect(&mut self, id: MessageId, origin: Origin) -> bool {
        let Some(&key) = self.by_id.get(&id) else {
            return false;
        };
        self.pending[key as usize].origin = Some(origin);
        true
    }

    /// Offers a message to its targets, and hands it to the other workers for theirs. Each copy that takes the ticket, if one is
    /// given, holds it.
    pub fn distribute(
        &mut self,
        now: Micros,
        publish: &PublishView<'_>,
        targets: impl Iterator<Item = Target>,
        docket: &Docket,
        ticket: Option<Ticket>,
        out: &mut Outlet,
    ) {
        let field = publish.field();
        // One allocation serves all copies that are kept, and is made only if there is one. The last takes it without counting
        // itself: of a message for one subscriber nothing is counted.
        let mut made: Option<Parcel> = None;
        let make = || Parcel {
            ticket,
            docket: docket.clone(),
            ..Parcel::new(publish, Bytes::copy_from_slice(&field))
        };
        let mut last = None;
        let mut remote: SmallVec<[(u8, Targets); 4]> = SmallVec::new();
        for mut target in targets {
            target.qos = target.qos.min(publish.qos);
            let worker = target.session.worker();
            if worker != self.worker {
                match remote.iter_mut().find(|(other, _)| *other == worker) {
                    Some((_, targets)) => targets.push(target),
                    None => remote.push((worker, SmallVec::from_iter([target]))),
                }
            } else if target.qos == 0 {
                out.offer_copy(target.session, &field, None, docket);
            } else if let Some(target) = last.replace(target) {
                let parcel = made.get_or_insert_with(make).clone();
                self.keep(now, parcel, target, out);
            }
        }
        // Not moved where there are none, as most often.
        for (worker, targets) in remote.drain(..) {
            if let Some(ticket) = ticket {
                let kept = targets.iter().filter(|target| target.qos > 0).count();
                self.add_copies(ticket, u32::try_from(kept).unwrap_or(u32::MAX));
            }
            let parcel = made.get_or_insert_with(make).clone();
            out.handoffs.push_back((worker, Handoff::Deliver { parcel, targets }));
        }
        if let Some(target) = last {
            let parcel = made.unwrap_or_else(make);
            self.keep(now, parcel, target, out);
        }
    }

    /// Messages at and below a subtree of which the PUBACK is owed.
    pub fn open_below(&self, subtree: &str) -> usize {
        self.pending.iter().filter(|(_, pending)| pending.is_owed_below(subtree)).count()
    }

    /// The ids of the open messages of QoS 2.
    pub fn open_ids(&self) -> impl Iterator<Item = MessageId> {
        self.by_id.keys().copied()
    }

    /// Forgets the messages at and below a subtree: their publishers are to send them elsewhere. Gives where each came from, its id at QoS
    /// 2, and its topic.
    pub fn take_below(&mut self, subtree: &str) -> Vec<(Origin, Option<MessageId>, Box<str>)> {
        let mut taken = Vec::new();
        for (_, pending) in self.pending.iter_mut().filter(|(_, pending)| pending.is_owed_below(subtree)) {
            // Its tickets are still out; the last one ends it.
            let id = pending.id.take().inspect(|id| _ = self.by_id.remove(id));
            taken.extend(pending.origin.take().map(|origin| (origin, id, pending.topic().into())));
        }
        taken
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
        origin
    }

    pub fn len(&self) -> usize {
        self.pending.len()
    }

    fn keep(&mut self, now: Micros, parcel: Parcel, target: Target, out: &mut Outlet) {
        let ticket = parcel.ticket;
        if out.offer(now, target.session, parcel.addressed(target))
            && let Some(ticket) = ticket
        {
            self.add_copies(ticket, 1);
        }
    }

    fn add_copies(&mut self, ticket: Ticket, copies: u32) {
        self.pending[ticket.key as usize].copies += copies;
    }
}

impl Pending {
    fn topic(&self) -> &str {
        str::from_utf8(&self.topic).expect("it was a string when it came")
    }

    fn is_owed_below(&self, subtree: &str) -> bool {
        self.origin.is_some() && topic::is_within(self.topic(), subtree)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completes_with_the_last_ticket() {
        let origin = Origin { link: LinkId(7), delivery: 3 };
        let mut distribution = Distribution::new(0, Keyed::new(1));
        let ticket = distribution.open(Origin { link: LinkId(6), delivery: 9 }, Some((1, 2)), "a");
        assert!(distribution.redirect((1, 2), origin) && !distribution.redirect((1, 3), origin));
        distribution.add_copies(ticket, 2);
        assert_eq!(distribution.settle(ticket), None);
        assert_eq!(distribution.settle(ticket), None);
        assert_eq!(distribution.settle(ticket), Some(origin));
        assert_eq!((distribution.len(), distribution.by_id.len()), (0, 0));
    }

    #[test]
    fn what_is_taken_ends_without_an_acknowledgement() {
        let mut distribution = Distribution::new(0, Keyed::new(1));
        let origin = |delivery| Origin { link: LinkId(6), delivery };
        let below = distribution.open(origin(1), Some((1, 1)), "a/b/c");
        let beside = distribution.open(origin(2), Some((1, 2)), "a/bc");
        distribution.add_copies(below, 1);
        assert_eq!((distribution.open_below("a/b"), distribution.open_below("")), (1, 2));
        let taken = distribution.take_below("a/b");
        assert_eq!(taken, [(origin(1), Some((1, 1)), "a/b/c".into())]);
        assert_eq!((distribution.open_below(""), distribution.take_below("a/b").len()), (1, 0));
        assert!(!distribution.redirect((1, 1), origin(3)));
        assert_eq!(distribution.open_ids().collect::<Vec<_>>(), [(1, 2)]);
        assert_eq!((distribution.settle(below), distribution.settle(below)), (None, None));
        assert_eq!((distribution.settle(beside), distribution.len()), (Some(origin(2)), 0));
    }
}
