//! A session whose messages move to another owner (§5.4): they are copied while it is served, and taken out
//! of it afterwards.

use std::collections::{BTreeSet, VecDeque};

use crate::Micros;
use crate::engine::handover::copied::{Copied, Step};
use crate::engine::handover::held_queues::Moving;
use crate::engine::metrics::counters::Drop;
use crate::engine::sessions::message::{QueuedBatch, QueuedMessage};
use crate::engine::sessions::queue::MessageList;
use crate::engine::sessions::session::{Left, Session};
use crate::engine::sessions::settlement::PendingSettlement;
use crate::engine::sessions::storing::Storing;
use crate::topic::Region;

impl Session {
    /// Copies its messages of a region, in steps. True: only messages with a ticket are left. Those are the
    /// newest, and no message after the first of them is copied.
    pub fn copy(&mut self, export: u64, region: Region<'_>, step: &mut Step) -> bool {
        let is_known = self.busy.iter().any(|busy| busy.copied.iter().any(|copied| copied.is_of(export)));
        if !is_known && self.is_idle() {
            return true;
        }
        let oldest = self.oldest();
        let Self { id, key, queue, in_flight, session_counters, busy, .. } = self;
        let copied = Copied::among(&mut busy.get_or_insert_default().copied, export);
        step.gone.extend(copied.take_gone(key.0, oldest));
        let next = copied.next();
        let is_waited_for =
            |sent: &QueuedBatch| sent.queued_message.number >= next && sent.queued_message.ticket.is_some();
        if next > session_counters.accepted
            || in_flight.iter().next().is_some_and(|(sent, _)| is_waited_for(sent))
        {
            return true;
        }
        let newer = in_flight
            .iter()
            .rev()
            .take_while(|(sent, _)| sent.queued_message.number + u64::from(sent.count) > next);
        let newer: Vec<_> = newer.collect();
        let sent = newer.into_iter().rev().flat_map(|(sent, open)| sent.clone().into_queued_messages(open));
        let sent = sent.filter(|queued_message| queued_message.number >= next);
        let mut offer = |queued_message: &QueuedMessage| {
            if queued_message.ticket.is_some() || step.is_full() {
                return false;
            }
            let is_its = queued_message.is_of(region);
            copied.pass(queued_message.number, is_its);
            step.examined(is_its.then_some((key.0, *id, queued_message)));
            true
        };
        let is_over = sent.into_iter().all(|queued_message| offer(&queued_message))
            && queue.beginning_with(next).all(offer);
        is_over || !step.is_full()
    }

    /// The region has changed: the copies so far are void.
    pub fn copy_anew(&mut self, export: u64) {
        self.copied().filter(|copied| copied.is_of(export)).for_each(Copied::begin_again);
    }

    /// The exports for which messages were copied.
    pub fn exports(&self) -> impl Iterator<Item = u64> {
        let copied = self.busy.iter().flat_map(|busy| &busy.copied);
        copied.filter(|copied| copied.has_some()).map(Copied::export)
    }

    /// The subtree does not move after all.
    pub fn stop_copying(&mut self, export: u64) {
        if let Some(busy) = &mut self.busy {
            busy.copied.retain(|copied| !copied.is_of(export));
        }
    }

    /// Takes its messages of a region out, in order, with their tickets: those in flight, then the queued
    /// ones. If all queued messages are of the region, this costs only the messages that were not copied yet.
    /// A message with a ticket is dropped, because its publisher gets a refusal and sends it to the next
    /// owner. It moves all the same if a later message of its topic moves, so that the order is kept.
    pub fn leave(
        &mut self,
        export: u64,
        region: Region<'_>,
        pending: &mut PendingSettlement,
    ) -> Option<Left> {
        if self.is_idle() && self.busy.is_none() {
            return None;
        }
        let oldest = self.oldest();
        let mut copied = Copied::take_from(&mut self.busy.get_or_insert_default().copied, export);
        let gone = copied.take_gone(self.key.0, oldest);
        let sent = self.in_flight.extract(|sent| sent.queued_message.is_of(region));
        let sent = sent.into_iter().flat_map(|(sent, open)| sent.into_queued_messages(open));
        let sent: Vec<QueuedMessage> = sent.collect();
        sent.iter().for_each(|queued_message| self.credit.settle(1, queued_message.field.len()));
        let is_whole = !copied.has_others()
            && self.queue.beginning_with(copied.next()).all(|queued_message| queued_message.is_of(region));
        let mut list = if is_whole {
            self.queue.take_all()
        } else {
            self.queue.extract_list(|queued_message| queued_message.is_of(region))
        };
        sent.into_iter().rev().for_each(|queued_message| list.push_first(queued_message));
        let (taken, behind) = (list.queued_messages.len(), list.split_off(copied.next()));
        let copies = list.queued_messages.len();
        self.tickets -= behind.iter().filter(|queued_message| queued_message.ticket.is_some()).count();
        pending.tickets.extend(behind.iter().filter_map(|queued_message| queued_message.ticket));
        let (kept, dropped) = with_those_before(behind);
        dropped.iter().for_each(|queued_message| pending.forget_moved(self.id, queued_message));
        kept.into_iter()
            .for_each(|queued_message| list.push(QueuedMessage { ticket: None, ..queued_message }));
        let stored = list.queued_messages.iter().filter(|queued_message| queued_message.stored > 0).count();
        self.busy.get_or_insert_default().moving += stored as u64;
        self.session_counters.drop(Drop::Moved, taken as u64);
        if self.is_idle() {
            self.shrink();
        }
        Some(Left { taken, gone, moving: Moving::of_session(self.key, self.id, list, copies) })
    }

    /// Takes over messages that were queued for it at another owner. The store gets those that it does not
    /// have.
    pub fn take_in(
        &mut self,
        now: Micros,
        mut list: MessageList,
        storing: Option<&mut Storing>,
        pending: &mut PendingSettlement,
    ) {
        if self.is_idle() {
            self.begin(now);
        }
        let next = self.session_counters.accepted + 1;
        (next..)
            .zip(&mut list.queued_messages)
            .for_each(|(number, queued_message)| queued_message.number = number);
        self.session_counters.accepted += list.queued_messages.len() as u64;
        if let Some(storing) = storing {
            self.store_others(storing); // The numbers in the stored queue are in the order of the queue.
            for queued_message in &mut list.queued_messages {
                if queued_message.stored > 0 {
                    self.forget_moved(1); // It comes back.
                    pending.forget_moved(self.id, queued_message);
                }
                queued_message.stored = self.next_stored();
                storing.add(self.id, queued_message, None);
            }
        }
        self.queue.append(list);
    }
}

/// The messages without a ticket, and those of the same topic before the last one without; and all others.
fn with_those_before(moving: VecDeque<QueuedMessage>) -> (Vec<QueuedMessage>, Vec<QueuedMessage>) {
    let mut topics = BTreeSet::new();
    let is_kept = |queued_message: &QueuedMessage| {
        if queued_message.ticket.is_none() {
            topics.insert(queued_message.chain);
        }
        topics.contains(&queued_message.chain)
    };
    let (mut kept, others): (Vec<_>, Vec<_>) = moving.into_iter().rev().partition(is_kept);
    kept.reverse();
    (kept, others)
}
