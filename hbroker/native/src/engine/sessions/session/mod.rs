//! One client's session at its owner (§6.4): its queue, what its link carries, and what became of all other
//! messages.
//!
//! A message is either *waiting*, in the queue, or *in flight*, on the link, until the subscriber's PUBACK.
//! The queue gives messages to the link in order, within the subscriber's credit (§7.7). If the link ends and
//! the session stays, the messages in flight go back to the head of the queue. If their subtree moves, they
//! move with it.
//!
//! During a handover `copying` copies the messages, and takes them out. `stored_queue` has what the store
//! knows of the messages.
//!
//! A message holds its publisher's PUBACK back by its ticket. A session that is offline or stalled holds no
//! ticket (§7.3): its messages are given to the store, if there is one, and the store holds the tickets until
//! it has them. As long as a session counts as connected, only its oldest messages are stored, from before.

pub mod copying;
mod stored_queue;

use crate::Micros;
use crate::broken::Defect;
use crate::engine::handover::held_queues::HeldQueue;
use crate::engine::handover::session_export::SessionExport;
use crate::engine::metrics::counters::Drop;
use crate::engine::sessions::bounds::Bounds;
use crate::engine::sessions::counters::SessionCounters;
use crate::engine::sessions::message::{QueuedBatch, QueuedMessage};
use crate::engine::sessions::progress::{MARK_SPAN, ProgressMarks};
use crate::engine::sessions::queue::SessionQueue;
use crate::engine::sessions::settlement::PendingSettlement;
use crate::engine::sessions::storing::Storing;
use crate::engine::transport::credit::Credit;
use crate::engine::transport::delivery_records::{DeliveryRecords, Tickets};
use crate::link::receive::ranges::RangeSet;
use crate::link_id::{LinkId, SessionKey};
use crate::prefix::Prefix;
use crate::shares::Share;
use crate::tables::groups::Fitness;
use crate::tables::subscriber::Overflow;
use crate::wire::GoneRecord as Gone;

/// The most that the owner gives to a link, whatever credit the subscriber grants (§9).
const MOST_MESSAGES: u32 = 65_536;
const MOST_BYTES: u64 = 64 << 20;
/// The most that is in flight to a session that uses more than half of its share (§9).
const LEAST_BYTES: usize = 64 << 10;
/// If the charge of a session changes by this, it is counted at once.
const STEP: usize = 16 << 10;

/// The memory that a session's queue is charged with, and the account that pays for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueCharge {
    /// The bytes in its queue, with the cost of keeping them.
    pub bytes: usize,
    /// Whether it counts as connected.
    pub is_ready: bool,
    /// The host of its client, or the last one.
    pub host: Option<Prefix>,
}

#[derive(Debug)]
pub struct Session {
    pub id: u64,
    /// `None`: it is offline.
    pub link: Option<LinkId>,
    /// Whether it outlives its link.
    pub persistent: bool,
    pub is_watched: bool,
    /// Whether it is or was in a shared group.
    pub is_member: bool,
    /// Its client asked for smaller bounds than the node's: then its queue keeps to them also while it is
    /// connected (§7.8).
    pub is_bounded: bool,
    pub queue: SessionQueue,
    pub session_counters: SessionCounters,
    /// It uses more than half of its share: little is in flight to it, and the rest is queued.
    pub is_capped: bool,
    key: SessionKey,
    /// As [`Self::host`].
    host: Option<Prefix>,
    is_stalled: bool,
    credit: Credit,
    /// The messages of the deliveries on its link.
    pub(super) in_flight: DeliveryRecords<QueuedBatch>,
    /// The number of the newest message of `QoS` 1 or 2 that it accepted.
    pub(super) newest: u64,
    /// How many tickets its queued messages and those in flight hold.
    tickets: usize,
    /// When the session stopped being idle. Until the first check after that: when it acknowledged last.
    waits_since: Micros,
    /// `None`: it is idle, none of its messages move, and it has no stored queue.
    pub(super) busy: Option<Box<BusyState>>,
    /// Messages of `QoS` 0 queued on the link. Those that the link still has are not delivered yet.
    copies: u64,
    /// The fitness that was last reported to the other workers.
    reported: Option<Fitness>,
}

/// The state of a session that is not idle, that is part of a handover, or that has a stored queue.
#[derive(Debug, Default)]
pub(super) struct BusyState {
    /// `None`: the session was not checked since it stopped being idle.
    progress_marks: Option<ProgressMarks>,
    /// The session's part of each export.
    pub(super) session_exports: Vec<SessionExport>,
    /// The charge that was counted last for [`Session::shared_bytes`]: its part of its host's share (§7.8).
    counted: Share<Prefix>,
    /// The number of the last message in its stored queue; 0: it has none.
    stored: u64,
    /// The number of a stored message in the session is this plus its number in the stored queue.
    pub(super) stored_base: u64,
    /// The numbers of messages that were taken out, because they move, and are still in the stored queue.
    pub(super) moving: RangeSet,
    /// The numbers in the stored queue of messages that were given to a link, here or at an earlier owner: they do not
    /// expire.
    pub(super) launched: RangeSet,
}

/// The messages of a subtree that moves, after they were taken out of a session.
#[derive(Debug)]
pub struct ExtractedQueue {
    /// The number of messages that were taken out.
    pub taken: u64,
    /// Which of the copies are void now.
    pub gone: Option<Gone>,
    pub held_queue: HeldQueue,
}

/// The status of a session.
#[derive(Clone, Debug)]
pub struct Status {
    pub session: u64,
    pub is_connected: bool,
    pub is_stalled: bool,
    /// Whether only the store has some of its queue.
    pub has_backlog: bool,
    pub session_counters: SessionCounters,
    /// Messages that are queued or in flight, and their bytes, with those that only the store has.
    pub queued: u64,
    pub queued_bytes: usize,
}

impl Session {
    pub fn new(id: u64, key: SessionKey, link: Option<LinkId>, bounds: Bounds) -> Self {
        Self {
            id,
            link,
            persistent: false,
            is_watched: false,
            is_member: false,
            is_bounded: false,
            reported: None,
            queue: SessionQueue::new(bounds),
            session_counters: SessionCounters::default(),
            is_capped: false,
            key,
            host: None,
            is_stalled: false,
            credit: Credit::default(),
            in_flight: DeliveryRecords::default(),
            newest: 0,
            tickets: 0,
            waits_since: 0,
            busy: None,
            copies: 0,
        }
    }

    // Change

    /// `count` messages are accepted for this session. They keep their tickets only if it counts as connected, and
    /// their publisher did not ask for an early PUBACK. `first` is the first of them, and gets its number.
    pub fn accept(&mut self, now: Micros, count: u32, first: &mut QueuedMessage) {
        first.number = self.newest + 1;
        self.newest += u64::from(count);
        self.session_counters.accepted += u64::from(count);
        let (is_early, ticket) = (first.ack_queued, &mut first.ticket);
        if self.is_idle() {
            self.begin(now);
        }
        debug_assert!(ticket.is_none() || !self.has_backlog(), "the store holds it");
        *ticket = ticket.filter(|_| self.is_ready() && !is_early);
        self.tickets += if ticket.is_some() { count as usize } else { 0 };
    }

    /// Messages of `QoS` 0 were accepted for the link.
    pub fn accept_copies(&mut self, count: u64) {
        self.session_counters.accepted += count;
        self.copies += count;
    }

    /// `count` messages that were just accepted go no further.
    pub fn refuse_copies(&mut self, why: Drop, count: u64) {
        self.copies -= count;
        self.session_counters.drop(why, count);
    }

    /// Messages were given to the link, from this delivery number on. They do not expire any more, because
    /// the subscriber may have them.
    pub fn launch(&mut self, first: u64, mut queued_batch: QueuedBatch) {
        let count = queued_batch.count;
        self.credit.open_all(count, queued_batch.queued_message.field.len());
        queued_batch.queued_message.expires = Micros::MAX;
        let stored = queued_batch.queued_message.stored;
        if stored > 0
            && let Some(busy) = &mut self.busy
        {
            busy.launched.insert_range(stored, queued_batch.queued_message.stored_at(count - 1));
        }
        let next = queued_batch.queued_message.number + u64::from(count);
        self.session_exports().for_each(|session_export| session_export.note_launched(next));
        self.in_flight.open_batch(first, count, queued_batch);
    }

    /// The subscriber acknowledged the deliveries from `first` to `last`: takes their tickets back.
    pub fn answer(&mut self, now: Micros, first: u64, last: u64, pending: &mut PendingSettlement) {
        let Self { id, in_flight, credit, tickets, busy, .. } = self;
        let mut answered = 0;
        in_flight.settle(first, last, |queued_batch, positions| {
            answered += u64::from(positions.len());
            credit.settle(positions.len(), queued_batch.bytes(positions));
            for session_export in busy.iter_mut().flat_map(|busy| &mut busy.session_exports) {
                queued_batch
                    .numbers(positions)
                    .for_each(|(first, last)| session_export.note_gone(first, last));
            }
            let first = &queued_batch.queued_message;
            if first.ticket.is_some() {
                *tickets -= positions.len() as usize;
                pending.tickets.extend(queued_batch.tickets(positions));
            }
            if first.stored > 0 {
                let numbers = positions.runs().flat_map(|(position, count)| position..position + count);
                pending.settled.extend(numbers.map(|position| (*id, first.stored_at(position))));
            }
        });
        if answered == 0 {
            return;
        }
        if self.is_stalled && Defect::ForgetsLateAnswers.is_present() {
            return;
        }
        self.session_counters.delivered += answered;
        if self.progress_marks().is_none() || Defect::TakesAnyAnswer.is_present() {
            self.begin(now);
        }
        if self.is_stalled {
            self.recover(now);
        }
    }

    /// Checks the progress of the session. Returns whether it has to be stalled: it counts as connected, but is
    /// too slow.
    pub fn check_progress(&mut self, now: Micros) -> bool {
        if self.is_stalled {
            self.recover(now);
            return false;
        }
        if self.is_idle() {
            return false;
        }
        let since = if self.progress_marks().is_none() { self.waits_since } else { now };
        self.pass_marks();
        self.mark_head(since);
        self.is_ready() && self.is_overdue(now)
    }

    /// A queued message is dropped for this reason. Its ticket is returned.
    pub fn drop(&mut self, why: Drop, queued_message: &QueuedMessage, pending: &mut PendingSettlement) {
        self.session_counters.drop(why, 1);
        self.forget(queued_message.number);
        self.release(queued_message, pending);
    }

    /// Messages that no link takes are dropped for this reason.
    pub fn drop_all(&mut self, why: Drop, queued_batch: QueuedBatch, pending: &mut PendingSettlement) {
        let all = queued_batch.positions();
        queued_batch
            .into_queued_messages(all)
            .iter()
            .for_each(|queued_message| self.drop(why, queued_message, pending));
    }

    /// A queued message has expired.
    pub fn expire(&mut self, queued_message: &QueuedMessage, pending: &mut PendingSettlement) {
        self.session_counters.expired += 1;
        self.forget(queued_message.number);
        self.release(queued_message, pending);
    }

    /// The message that it accepted last finds no room. The next one gets its number, so that a full queue leaves no
    /// holes in the stored queue.
    pub fn refuse_newest(&mut self, queued_message: &QueuedMessage) {
        debug_assert_eq!((queued_message.number, queued_message.stored), (self.newest, 0));
        debug_assert_eq!(queued_message.ticket, None);
        self.session_counters.drop(Drop::QueueFull, 1);
        self.newest -= 1;
    }

    /// A message that had expired before it arrived here is counted.
    pub fn count_expired(&mut self) {
        self.session_counters.accepted += 1;
        self.session_counters.expired += 1;
    }

    /// Counts as offline from now on, until it acknowledges: its messages are stored, or their tickets are
    /// returned.
    pub fn stall(&mut self, pending: &mut PendingSettlement, storing: Option<&mut Storing>) {
        let was_ready = self.is_ready();
        self.is_stalled = true;
        self.queue.count_all();
        match storing {
            Some(storing) if was_ready => self.store_all(storing),
            Some(_) => {} // All of it is stored.
            None => self.release_all(&mut pending.tickets),
        }
    }

    /// The subscriber sends its credit.
    pub fn grant(&mut self, messages: u32, bytes: u64) {
        self.credit.grant(messages.min(MOST_MESSAGES), bytes.min(MOST_BYTES));
    }

    /// The session gets a link to this host, whose peer has granted this credit.
    pub fn attach(&mut self, now: Micros, link: LinkId, host: Prefix, (messages, bytes): (u32, u64)) {
        (self.link, self.host) = (Some(link), Some(host));
        self.begin(now);
        self.is_stalled = false;
        self.grant(messages, bytes);
    }

    /// Its link to this host has ended, with `unsent` unsent messages of `QoS` 0, and the session waits for
    /// another link. The messages in flight will be sent again, before all others.
    pub fn park(
        &mut self,
        unsent: u64,
        host: Prefix,
        pending: &mut PendingSettlement,
        storing: Option<&mut Storing>,
    ) {
        (self.link, self.host) = (None, Some(host));
        self.is_stalled = false;
        self.queue.count_all();
        self.credit = Credit::default();
        match storing {
            Some(storing) => self.store_all(storing),
            None => self.release_all(&mut pending.tickets),
        }
        self.settle_copies(unsent, Drop::Offline);
        let sent = self.in_flight.take_all();
        self.queue.put_back(sent.flat_map(|(queued_batch, open)| queued_batch.into_queued_messages(open)));
        self.queue.restore_order();
    }

    /// The session ends. All remaining messages are dropped, except for those of shared groups, which go to
    /// other members.
    pub fn end(&mut self, unsent: u64, why: Drop, pending: &mut PendingSettlement) -> Vec<QueuedMessage> {
        self.settle_copies(unsent, why);
        let backlog = self.queue.backlog_mut().take().map_or(0, |backlog| backlog.size().messages);
        self.session_counters.drop(why, backlog as u64);
        let waiting = std::iter::from_fn(|| self.queue.pop());
        let mut orphans = Vec::new();
        let sent = self.in_flight.take_all();
        let sent = sent.flat_map(|(queued_batch, open)| queued_batch.into_queued_messages(open));
        for queued_message in sent.chain(waiting) {
            self.tickets -= usize::from(queued_message.ticket.is_some());
            if queued_message.group.is_some() {
                self.session_counters.drop(Drop::Regrouped, 1);
                orphans.push(queued_message.for_another());
            } else {
                self.session_counters.drop(why, 1);
                pending.tickets.extend(queued_message.ticket);
            }
        }
        debug_assert_eq!(self.tickets, 0);
        orphans
    }

    /// Takes messages out that go elsewhere, in order, with their tickets: those in flight, then the queued
    /// ones. They are not stored for this session any more.
    pub fn take(
        &mut self,
        why: Drop,
        pending: &mut PendingSettlement,
        mut is_meant: impl FnMut(&QueuedMessage) -> bool,
    ) -> Vec<QueuedMessage> {
        // The messages of a batch in flight are selected together: they have one topic and one group.
        let sent = self.in_flight.extract(|queued_batch| is_meant(&queued_batch.queued_message));
        let queued_messages =
            sent.into_iter().flat_map(|(queued_batch, open)| queued_batch.into_queued_messages(open));
        let mut taken: Vec<QueuedMessage> = queued_messages.collect();
        taken.iter().for_each(|queued_message| self.credit.settle(1, queued_message.field.len()));
        taken.extend(self.queue.extract(is_meant));
        self.session_counters.drop(why, taken.len() as u64);
        self.tickets -= taken.iter().filter(|queued_message| queued_message.ticket.is_some()).count();
        for queued_message in &taken {
            self.forget(queued_message.number);
            pending.forget(self.id, queued_message);
        }
        taken.into_iter().map(QueuedMessage::for_another).collect()
    }

    /// The session is idle: frees the memory that it needed before.
    pub fn shrink(&mut self) {
        self.busy
            .take_if(|busy| busy.session_exports.is_empty() && busy.counted.bytes() == 0 && busy.stored == 0);
        self.forget_progress_marks();
        self.in_flight.shrink();
        self.queue.shrink();
    }

    /// Its fitness, if that has changed and has to be reported to the other workers.
    pub fn changed_fitness(&mut self) -> Option<Fitness> {
        let fitness = self.fitness();
        (self.is_member && self.reported.replace(fitness) != Some(fitness)).then_some(fitness)
    }

    // Read

    /// How fit it is to take the next message of a shared group.
    pub fn fitness(&self) -> Fitness {
        match self.link {
            None => Fitness::Offline,
            Some(_) if !self.is_stalled && self.queue.is_empty() && self.has_credit(0) => Fitness::Ready,
            Some(_) => Fitness::Connected,
        }
    }

    pub fn key(&self) -> SessionKey {
        self.key
    }

    /// The host of its client when its last link came up or ended; `None`: it had no link here.
    pub fn host(&self) -> Option<Prefix> {
        self.host
    }

    /// Whether it counts as connected: it has a link, and acknowledges.
    pub fn is_ready(&self) -> bool {
        self.link.is_some() && !self.is_stalled
    }

    /// Whether it gets such a message even if its queue is full (§7.8): it acknowledges, and neither the
    /// session nor the subscription chose to lose messages.
    pub fn must_keep(&self, queued_message: &QueuedMessage) -> bool {
        self.is_ready() && !self.is_bounded && queued_message.overflow == Overflow::DropOldest
    }

    /// The size that its queue may keep although its bounds are smaller. A session keeps the messages that it got
    /// while it counted as connected, unless its client asked for smaller bounds.
    pub fn kept_size(&self) -> Bounds {
        if self.is_bounded { Bounds::default() } else { self.queue.counted_size() }
    }

    /// The charge for its queue.
    pub fn queue_charge(&self) -> QueueCharge {
        QueueCharge { bytes: self.queue.bytes(), is_ready: self.is_ready(), host: self.host }
    }

    /// Whether no message is queued or in flight.
    pub fn is_idle(&self) -> bool {
        self.in_flight.len() == 0 && self.queue.is_empty()
    }

    /// Whether the subscriber takes another message of this size now, and the session's share has room for
    /// it.
    pub fn has_credit(&self, bytes: usize) -> bool {
        let open = self.credit.open_bytes();
        self.credit.has_room_for(1, bytes) && (!self.is_capped || open == 0 || open + bytes <= LEAST_BYTES)
    }

    /// Whether it takes `messages` messages of `bytes` in total, as [`Self::has_credit`] does for one.
    pub fn has_credit_for(&self, messages: u32, bytes: usize) -> bool {
        self.credit.has_room_for(messages, bytes) && !self.is_capped
    }

    /// How many of the selected messages are in flight without a ticket: no publisher waits for their PUBACK.
    pub fn unticketed_in_flight(&self, is_meant: impl Fn(&QueuedMessage) -> bool) -> usize {
        let pending = self
            .in_flight
            .iter()
            .filter(|(sent, _)| sent.queued_message.ticket.is_none() && is_meant(&sent.queued_message));
        pending.map(|(_, open)| open.len() as usize).sum()
    }

    /// What is charged to its share: the bytes in flight, and the queued ones while it counts as connected.
    pub fn shared_bytes(&self) -> usize {
        if self.is_ready() { self.queued_bytes() } else { self.credit.open_bytes() }
    }

    /// The charge that was counted last.
    pub fn counted_bytes(&self) -> usize {
        self.busy.as_ref().map_or(0, |busy| busy.counted.bytes())
    }

    /// The host whose share was charged.
    pub fn counted_for(&self) -> Option<Prefix> {
        self.busy.as_ref().and_then(|busy| busy.counted.holder()).or(self.host)
    }

    /// The record of its charge.
    pub fn counted_mut(&mut self) -> &mut Share<Prefix> {
        &mut self.busy.get_or_insert_default().counted
    }

    /// Whether the charge has changed by at least a step since it was counted.
    pub fn is_miscounted(&self) -> bool {
        self.shared_bytes().abs_diff(self.counted_bytes()) >= STEP
    }

    /// The bytes in memory that are queued or in flight.
    pub fn queued_bytes(&self) -> usize {
        self.queue.bytes() + self.credit.open_bytes()
    }

    #[cfg(test)]
    pub fn credit_used(&self) -> (u32, usize) {
        (self.in_flight.len() as u32, self.credit.open_bytes())
    }

    #[cfg(test)]
    pub fn records_in_flight(&self) -> usize {
        self.in_flight.entries()
    }

    #[cfg(test)]
    pub fn tickets(&self) -> usize {
        self.tickets
    }

    /// The counters while the link has `unsent` unsent messages of `QoS` 0, and the number of messages that
    /// are still here.
    pub fn balance(&self, unsent: u64) -> (SessionCounters, u64) {
        let unsent = unsent.min(self.copies);
        let mut session_counters = self.session_counters.clone();
        session_counters.delivered += self.copies - unsent;
        let queued = unsent + (self.queue.size().messages + self.in_flight.len()) as u64;
        debug_assert_eq!(session_counters.open(), queued, "{session_counters:?}");
        (session_counters, queued)
    }

    /// The status while the link has `unsent` unsent messages of `QoS` 0.
    pub fn status(&self, unsent: u64) -> Status {
        let (session_counters, queued) = self.balance(unsent);
        Status {
            session: self.id,
            is_connected: self.link.is_some(),
            is_stalled: self.is_stalled,
            has_backlog: self.has_backlog(),
            session_counters,
            queued,
            queued_bytes: self.queue.size().bytes + self.credit.open_bytes(),
        }
    }

    /// A stalled session counts as connected again when it passes a mark in time. If its client chose the
    /// bounds of its queue, the queue also has to be at most half full; otherwise the session would be
    /// stalled again with the next message.
    fn recover(&mut self, now: Micros) {
        let (has_passed, is_overdue) = (self.pass_marks(), self.is_overdue(now));
        if self.is_idle() || has_passed && !(self.is_bounded && self.queue.is_fuller_than(2)) {
            self.is_stalled = false;
        }
        if has_passed || is_overdue || self.progress_marks().is_none() {
            self.progress_marks_mut().into_iter().for_each(ProgressMarks::clear);
            self.mark_head(now);
        }
    }

    /// From now on messages wait for acknowledgement.
    pub(super) fn begin(&mut self, now: Micros) {
        self.waits_since = now;
        self.forget_progress_marks();
    }

    /// Marks the head of the queue.
    fn mark_head(&mut self, marked_at: Micros) {
        let count = MARK_SPAN.min(self.in_flight.len() + self.queue.loaded());
        if let Some(through) = count.checked_sub(1).and_then(|newest| self.number_of(newest)) {
            self.busy.get_or_insert_default().progress_marks.get_or_insert_default().mark(marked_at, through);
        }
    }

    /// Removes the marks that are passed. Returns whether no mark is left.
    fn pass_marks(&mut self) -> bool {
        let oldest = self.number_of(0).unwrap_or(u64::MAX);
        self.progress_marks_mut().is_some_and(|progress_marks| progress_marks.pass(oldest))
    }

    /// The number of the message after `before` older ones.
    fn number_of(&self, before: usize) -> Option<u64> {
        match before.checked_sub(self.in_flight.len()) {
            None => self
                .in_flight
                .nth(before)
                .map(|(sent, position)| sent.queued_message.number + u64::from(position)),
            Some(before) => self.queue.nth(before).map(|queued_message| queued_message.number),
        }
    }

    /// The marks, if the session was checked since it stopped being idle.
    fn progress_marks(&self) -> Option<&ProgressMarks> {
        self.busy.as_ref()?.progress_marks.as_ref()
    }

    fn progress_marks_mut(&mut self) -> Option<&mut ProgressMarks> {
        self.busy.as_mut()?.progress_marks.as_mut()
    }

    fn forget_progress_marks(&mut self) {
        if let Some(busy) = &mut self.busy {
            busy.progress_marks = None;
        }
    }

    fn session_exports(&mut self) -> impl Iterator<Item = &mut SessionExport> {
        self.busy.iter_mut().flat_map(|busy| &mut busy.session_exports)
    }

    /// The session does not have this message any more.
    pub(super) fn forget(&mut self, number: u64) {
        self.session_exports().for_each(|session_export| session_export.note_gone(number, number));
    }

    /// The number of its oldest message, or of the next one that it gets.
    fn oldest(&self) -> u64 {
        let oldest = self.number_of(0).into_iter().chain(self.first_unread()).min();
        oldest.unwrap_or(self.newest + 1)
    }

    fn is_overdue(&self, now: Micros) -> bool {
        self.progress_marks().is_some_and(|progress_marks| progress_marks.is_overdue(now))
    }

    fn settle_copies(&mut self, unsent: u64, why: Drop) {
        let copies = std::mem::take(&mut self.copies);
        let unsent = unsent.min(copies);
        self.session_counters.delivered += copies - unsent;
        self.session_counters.drop(why, unsent);
    }

    fn release(&mut self, queued_message: &QueuedMessage, pending: &mut PendingSettlement) {
        self.tickets -= usize::from(queued_message.ticket.is_some());
        pending.release(self.id, queued_message);
    }

    /// Takes the tickets of all messages, from the newest on, where most of them are, until no message has one.
    fn release_all(&mut self, released: &mut Tickets) {
        let waiting = self.queue.iter_mut().rev().filter_map(|queued_message| queued_message.ticket.take());
        released.extend(waiting.take(self.tickets).inspect(|_| self.tickets -= 1));
        let mut sent = self.in_flight.iter_mut().rev();
        while self.tickets > 0
            && let Some((queued_batch, open)) = sent.next()
        {
            if queued_batch.queued_message.ticket.is_some() {
                self.tickets -= open.len() as usize;
                released.extend(queued_batch.tickets(open));
                queued_batch.queued_message.ticket = None;
            }
        }
        debug_assert_eq!(self.tickets, 0);
    }
}
