//! Messages of `QoS` 1 and 2 that an owner took over and has not acknowledged yet (§7.3).
//!
//! A message is distributed once each subscriber that was connected has acknowledged it, has ended its
//! session, or counts as offline. Every such copy holds one ticket of the message and returns it once. When
//! the last ticket is returned, the owner sends the PUBACK.
//!
//! Messages that were taken over together (`delivery_batches`) share one record, with a position for each.
//! They have one topic, and followed one another over one link. At `QoS` 2 they also have one publisher and
//! consecutive sequence numbers. Each message is acknowledged separately.

use std::collections::BTreeMap;
use std::sync::Arc;

use slab::Slab;
use smallvec::SmallVec;

use crate::Micros;
use crate::engine::sessions::copy_blocks::CopyBlocks;
use crate::engine::sessions::message::{MessageOrigin, QueuedBatch, QueuedMessage};
use crate::engine::sessions::target::{Target, Targets};
use crate::engine::transport::delivery_records::{Origin, Ticket, TicketSpan};
use crate::engine::transport::outbound::{ByWorker, Handoff, Outbound};
use crate::load::spans::Traced;
use crate::topic::Region;
use crate::wire::{MessageId, PublishView};

/// Messages that were taken over together, until the last of them is distributed.
struct Pending {
    /// The origin of the first message; those of the others follow it. `None`: the publisher has been
    /// referred to another owner (§5.4).
    origin: Option<Origin>,
    /// Messages that were received again over another link: their positions, and their origins there.
    redirected: Vec<(u16, Origin)>,
    /// The id of the first message; those of the others follow it. `None`: the messages are of `QoS` 1.
    id: Option<MessageId>,
    /// The number of outstanding tickets of each message.
    copies: SmallVec<[u32; 8]>,
    /// The number of messages that are not distributed yet.
    open: u32,
    topic: Topic,
    /// If it is a single message that has spans.
    traced: Option<Arc<Traced>>,
}

/// Most topics fit in place.
type Topic = SmallVec<[u8; 36]>;

/// The open messages of one worker.
pub struct Distribution {
    worker: u8,
    pending: Slab<Pending>,
    open: usize,
    /// The records of `QoS` 2, by the id of their first message.
    by_id: BTreeMap<MessageId, u32>,
    /// Messages that have spans, and are distributed since these were read.
    pub traced_and_distributed: Vec<Arc<Traced>>,
    /// For the bytes of the messages that are queued.
    pub copy_blocks: CopyBlocks,
}

impl Distribution {
    pub fn new(worker: u8) -> Self {
        Self {
            worker,
            pending: Slab::new(),
            open: 0,
            by_id: BTreeMap::new(),
            traced_and_distributed: Vec::new(),
            copy_blocks: CopyBlocks::default(),
        }
    }

    /// Opens messages that followed one another. `origin` and `id` are those of the first; `id` is given for
    /// `QoS` 2. [`Self::distribute`] adds their copies. The caller holds one ticket of each itself until all
    /// copies are queued, so that no message can complete half-way.
    pub fn open(&mut self, origin: Origin, count: u16, id: Option<MessageId>, topic: &str) -> TicketSpan {
        let topic = SmallVec::from_slice(topic.as_bytes());
        let copies = SmallVec::from_elem(1, count.into());
        let (origin, redirected) = (Some(origin), Vec::new());
        let pending = Pending { origin, redirected, id, copies, open: count.into(), topic, traced: None };
        let key =
            u32::try_from(self.pending.insert(pending)).expect("fewer than 2^32 messages fit in memory");
        self.open += usize::from(count);
        self.by_id.extend(id.map(|id| (id, key)));
        TicketSpan { first: Ticket { worker: self.worker, position: 0, key }, count }
    }

    /// The message of this ticket has spans.
    pub fn trace(&mut self, ticket: Ticket, traced: Arc<Traced>) {
        self.pending[ticket.key as usize].traced = Some(traced);
    }

    /// An open message was received again, over another link: its PUBACK will go there. Returns false if the
    /// message is not open.
    pub fn redirect(&mut self, id: MessageId, origin: Origin) -> bool {
        let Some((first, &key)) = self.by_id.range(..=id).next_back().filter(|(first, _)| first.0 == id.0)
        else {
            return false;
        };
        let pending = &mut self.pending[key as usize];
        let position = usize::try_from(id.1 - first.1).unwrap_or(usize::MAX);
        let is_open = pending.copies.get(position).is_some_and(|copies| *copies > 0);
        if is_open {
            pending.redirected.retain(|(other, _)| usize::from(*other) != position);
            pending.redirected.push((position as u16, origin));
        }
        is_open
    }

    /// Offers a message to its targets, and hands it to the other workers for theirs. If there is a ticket,
    /// each copy that is queued at `QoS` 1 or 2 holds it.
    pub fn distribute(
        &mut self,
        now: Micros,
        publish: &PublishView<'_>,
        targets: impl Iterator<Item = Target>,
        message_origin: &MessageOrigin,
        out: &mut Outbound,
    ) {
        let field = publish.field();
        // All queued copies share one copy of the bytes, which is made for the first of them.
        let mut made: Option<QueuedMessage> = None;
        let make = |copy_blocks: &mut CopyBlocks| QueuedMessage {
            source: message_origin.source,
            ticket: message_origin.ticket,
            message_metrics: message_origin.message_metrics.clone(),
            ..QueuedMessage::new(publish, copy_blocks.copy(&field))
        };
        let mut last = None;
        let (mut remote, mut copies) = (ByWorker::new(), ByWorker::new());
        for mut target in targets {
            target.qos = target.qos.min(publish.qos);
            let worker = target.session.worker();
            if worker != self.worker {
                let is_copy = target.qos == 0 && target.group.is_none() && publish.expiry_s.is_none();
                if is_copy {
                    copies.add(worker, target.session);
                } else {
                    remote.add(worker, target);
                }
            } else if target.qos == 0 {
                out.offer_copy(target.session, &field, target.meant_for(), &message_origin.message_metrics);
            } else if let Some(target) = last.replace(target) {
                let queued_message = made.get_or_insert_with(|| make(&mut self.copy_blocks)).clone();
                self.keep(now, queued_message, target, out);
            }
        }
        for (worker, sessions) in copies.drain() {
            out.copies_for(worker, &sessions, field.len()).add_one(&field, &message_origin.message_metrics);
        }
        for (worker, targets) in remote.drain() {
            let queued_message = made.get_or_insert_with(|| make(&mut self.copy_blocks)).clone();
            self.hand_over(worker, queued_message.into(), targets, out);
        }
        if let Some(target) = last {
            let queued_message = made.unwrap_or_else(|| make(&mut self.copy_blocks));
            self.keep(now, queued_message, target, out);
        }
    }

    /// The number of messages of a region that have not been acknowledged.
    pub fn open_within(&self, region: Region<'_>) -> usize {
        let unacknowledged =
            self.pending.iter().filter(|(_, pending)| pending.is_unacknowledged_within(region));
        unacknowledged.map(|(_, pending)| pending.open as usize).sum()
    }

    /// The ids of the open messages of `QoS` 2.
    pub fn open_ids(&self) -> impl Iterator<Item = MessageId> {
        let records = self.by_id.values().map(|&key| &self.pending[key as usize]);
        records.flat_map(|pending| pending.open().filter_map(|position| pending.id_at(position)))
    }

    /// Forgets the messages of a region, because their publishers have to send them to another owner. Returns
    /// for each its origin, its id at `QoS` 2, and its topic.
    pub fn take_within(&mut self, region: Region<'_>) -> Vec<(Origin, Option<MessageId>, Box<str>)> {
        let mut taken = Vec::new();
        for (_, pending) in
            self.pending.iter_mut().filter(|(_, pending)| pending.is_unacknowledged_within(region))
        {
            let open = pending
                .open()
                .filter_map(|position| Some((pending.origin_at(position)?, pending.id_at(position))));
            taken.extend(open.map(|(origin, id)| (origin, id, pending.topic().into())));
            // Their tickets are still outstanding; the last one ends the record.
            pending.origin = None;
            pending.id.take().inspect(|id| _ = self.by_id.remove(id));
        }
        taken
    }

    /// Returns tickets of this worker. The result is how many of them were not outstanding. `done` is called
    /// for each run of messages that are distributed now, with the origin of the first and their number.
    pub fn settle(
        &mut self,
        TicketSpan { first, count }: TicketSpan,
        mut done: impl FnMut(Origin, u64),
    ) -> u64 {
        debug_assert_eq!(first.worker, self.worker);
        let Self { pending, open, by_id, traced_and_distributed, .. } = self;
        let key = first.key as usize;
        let Some(record) = pending.get_mut(key) else {
            return count.into();
        };
        let (start, mut run, mut unknown) = (usize::from(first.position), 0, 0);
        let end = start + usize::from(count);
        for position in start..end {
            let copies = record.copies.get_mut(position).filter(|copies| **copies > 0);
            let left = copies.map(|copies| {
                *copies -= 1;
                *copies
            });
            unknown += u64::from(left.is_none());
            if left == Some(0) {
                run += 1;
            } else if run > 0 {
                record.tell(position - run, run, &mut done);
                *open -= std::mem::take(&mut run);
            }
        }
        record.tell(end - run, run, &mut done);
        *open -= run;
        if record.open == 0 {
            record.id.inspect(|id| _ = by_id.remove(id));
            traced_and_distributed.extend(pending.remove(key).traced);
        }
        unknown
    }

    /// The number of open messages.
    pub fn len(&self) -> usize {
        self.open
    }

    /// Offers a message to a session at `QoS` 1 or 2.
    pub fn keep(&mut self, now: Micros, queued_message: QueuedMessage, target: Target, out: &mut Outbound) {
        let ticket = queued_message.ticket;
        if !out.was_stored_before(target.session, target.shared, &queued_message.field)
            && out.offer(now, target.session, queued_message.addressed(target))
            && let Some(ticket) = ticket
        {
            self.add_copies(ticket.into(), 1);
        }
    }

    /// Hands messages to another worker, which offers them to its sessions. Each copy at `QoS` 1 or 2 holds
    /// the ticket.
    pub fn hand_over(&mut self, worker: u8, queued_batch: QueuedBatch, targets: Targets, out: &mut Outbound) {
        let kept = targets.iter().filter(|target| target.qos > 0).count();
        for span in queued_batch.tickets(queued_batch.positions()) {
            self.add_copies(span, u32::try_from(kept).unwrap_or(u32::MAX));
        }
        out.handoffs.push_back((worker, Handoff::Deliver { queued_batch, targets }));
    }

    /// Adds `more` outstanding tickets to each of these messages.
    pub fn add_copies(&mut self, TicketSpan { first, count }: TicketSpan, more: u32) {
        let (start, count) = (usize::from(first.position), usize::from(count));
        let copies = &mut self.pending[first.key as usize].copies;
        copies[start..start + count].iter_mut().for_each(|copies| *copies += more);
    }
}

impl Pending {
    fn topic(&self) -> &str {
        str::from_utf8(&self.topic).expect("it was a string when it came")
    }

    /// The positions of the open messages.
    fn open(&self) -> impl Iterator<Item = u16> {
        (0..).zip(&self.copies).filter(|(_, copies)| **copies > 0).map(|(position, _)| position)
    }

    fn origin_at(&self, position: u16) -> Option<Origin> {
        let redirected = self.redirected.iter().find(|(other, _)| *other == position);
        self.origin.map(|first| redirected.map_or(first.after(position.into()), |&(_, origin)| origin))
    }

    fn id_at(&self, position: u16) -> Option<MessageId> {
        self.id.map(|(publisher, first)| (publisher, first + u64::from(position)))
    }

    /// `count` messages from `first` on are distributed: reports them to `done`, those with consecutive
    /// origins in one call.
    fn tell(&mut self, first: usize, count: usize, done: &mut impl FnMut(Origin, u64)) {
        self.open -= count as u32;
        match self.origin {
            Some(origin) if self.redirected.is_empty() && count > 0 => {
                done(origin.after(first as u64), count as u64);
            }
            _ => {
                let positions = first as u16..(first + count) as u16;
                positions.filter_map(|position| self.origin_at(position)).for_each(|origin| done(origin, 1));
            }
        }
    }

    fn is_unacknowledged_within(&self, region: Region<'_>) -> bool {
        self.origin.is_some() && region.holds(self.topic())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link_id::LinkId;

    const fn origin(delivery: u64) -> Origin {
        Origin { link: LinkId(6), delivery }
    }

    fn settled(distribution: &mut Distribution, tickets: TicketSpan) -> Vec<(Origin, u64)> {
        let mut done = Vec::new();
        distribution.settle(tickets, |origin, count| done.push((origin, count)));
        done
    }

    #[test]
    fn completes_with_the_last_ticket() {
        let elsewhere = Origin { link: LinkId(7), delivery: 3 };
        let mut distribution = Distribution::new(0);
        let tickets = distribution.open(origin(9), 1, Some((1, 2)), "a");
        assert!(distribution.redirect((1, 2), elsewhere) && !distribution.redirect((1, 3), elsewhere));
        distribution.add_copies(tickets, 2);
        assert_eq!(settled(&mut distribution, tickets), []);
        assert_eq!(settled(&mut distribution, tickets), []);
        assert_eq!(settled(&mut distribution, tickets), [(elsewhere, 1)]);
        assert_eq!((distribution.len(), distribution.by_id.len()), (0, 0));
    }

    #[test]
    fn each_of_a_batch_completes_for_itself_and_together_where_they_can() {
        let mut distribution = Distribution::new(0);
        let all = distribution.open(origin(40), 6, None, "a/b");
        let of = |position, count| all.part(position, count);
        distribution.add_copies(of(2, 1), 1);
        distribution.add_copies(of(4, 1), 1);
        assert_eq!((distribution.len(), distribution.open_within("a".into())), (6, 6));
        assert_eq!(settled(&mut distribution, all), [(origin(40), 2), (origin(43), 1), (origin(45), 1)]);
        assert_eq!((distribution.len(), distribution.open_within("a".into())), (2, 2));
        assert_eq!(settled(&mut distribution, of(4, 1)), [(origin(44), 1)]);
        let taken = distribution.take_within("a".into());
        assert_eq!(taken, [(origin(42), None, "a/b".into())], "those that were acknowledged are not refused");
        assert_eq!((settled(&mut distribution, of(2, 1)), distribution.len()), (vec![], 0));
        assert!(distribution.pending.is_empty());
    }

    #[test]
    fn one_of_a_batch_that_came_again_is_acknowledged_where_it_came_last() {
        let elsewhere = |delivery| Origin { link: LinkId(7), delivery };
        let mut distribution = Distribution::new(0);
        let all = distribution.open(origin(40), 4, Some((1, 60)), "a");
        let of = |position, count| all.part(position, count);
        assert_eq!(distribution.open_ids().collect::<Vec<_>>(), [(1, 60), (1, 61), (1, 62), (1, 63)]);
        assert!(distribution.redirect((1, 61), elsewhere(4)) && distribution.redirect((1, 61), elsewhere(5)));
        for unknown in [(1, 59), (1, 64), (0, 61), (2, 61)] {
            assert!(!distribution.redirect(unknown, elsewhere(6)), "{unknown:?}");
        }
        distribution.add_copies(of(0, 3), 1);
        assert_eq!(settled(&mut distribution, all), [(origin(43), 1)]);
        assert!(!distribution.redirect((1, 63), elsewhere(6)), "it was acknowledged");
        let expected = [(origin(40), 1), (elsewhere(5), 1)];
        assert_eq!(settled(&mut distribution, of(0, 2)), expected);
        let taken = distribution.take_within("a".into());
        assert_eq!(taken, [(origin(42), Some((1, 62)), "a".into())]);
        assert!(!distribution.redirect((1, 62), elsewhere(6)), "it was refused");
        assert_eq!((settled(&mut distribution, of(2, 1)), distribution.len()), (vec![], 0));
        assert!(distribution.pending.is_empty() && distribution.by_id.is_empty());
    }

    #[test]
    fn what_is_taken_ends_without_an_acknowledgement() {
        let mut distribution = Distribution::new(0);
        let below = distribution.open(origin(1), 1, Some((1, 1)), "a/b/c");
        let beside = distribution.open(origin(2), 1, Some((1, 2)), "a/bc");
        distribution.add_copies(below, 1);
        assert_eq!((distribution.open_within("a/b".into()), distribution.open_within("".into())), (1, 2));
        let taken = distribution.take_within("a/b".into());
        assert_eq!(taken, [(origin(1), Some((1, 1)), "a/b/c".into())]);
        assert_eq!(
            (distribution.open_within("".into()), distribution.take_within("a/b".into()).len()),
            (1, 0)
        );
        assert!(!distribution.redirect((1, 1), origin(3)));
        assert_eq!(distribution.open_ids().collect::<Vec<_>>(), [(1, 2)]);
        assert_eq!((settled(&mut distribution, below), settled(&mut distribution, below)), (vec![], vec![]));
        assert_eq!((settled(&mut distribution, beside), distribution.len()), (vec![(origin(2), 1)], 0));
    }

    #[test]
    fn tickets_that_are_not_out_change_nothing_and_are_counted() {
        let mut distribution = Distribution::new(0);
        let all = distribution.open(origin(40), 3, None, "a");
        let settle = |distribution: &mut Distribution, tickets| {
            let mut done = Vec::new();
            let unknown = distribution.settle(tickets, |origin, count| done.push((origin, count)));
            (unknown, done)
        };
        assert_eq!(settle(&mut distribution, all.part(1, 1)), (0, vec![(origin(41), 1)]));
        let beyond = TicketSpan { first: all.first, count: 5 };
        assert_eq!(settle(&mut distribution, beyond), (3, vec![(origin(40), 1), (origin(42), 1)]));
        assert_eq!(settle(&mut distribution, all), (3, vec![]), "its record is gone");
        assert_eq!((distribution.len(), distribution.pending.is_empty()), (0, true));
    }
}
