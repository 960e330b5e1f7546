//! The part of a session's queue that only the store has: its newest messages, behind those in memory. (Messages that
//! come back may be in front of those on the link, see below.)
//!
//! The queue of a session that does not count as connected keeps few messages in memory, if there is a store.
//! The others, which are stored, are its *backlog*. As long as there is a backlog, further messages are stored,
//! too, and become a part of it, whether the session counts as connected or not: so the order is kept. While
//! the session has a link, it reads the backlog in parts, as the subscriber takes the messages. The store
//! answers later, at the end of a turn.
//!
//! While a subtree stops being served, and moves, no message of the worker goes from memory to a backlog. Members of
//! shared groups keep their whole queues in memory, because their messages go to other members when they end.
//!
//! If the messages of a subtree come back that did not move after all (`take_back`), the backlog may begin before
//! messages that are on the link. It is read when these are acknowledged.

use crate::Micros;
use crate::engine::handover::copied::Copied;
use crate::engine::handover::spooled::Spooled;
use crate::engine::handover::stored_copies::StoredPart;
use crate::engine::handover::transfer::Exporting;
use crate::engine::metrics::counters::{Counters, Drop};
use crate::engine::sessions::message::QueuedMessage;
use crate::engine::sessions::queue::{Bounds, MessageList, SessionQueue};
use crate::engine::sessions::session::{BusyState, Session};
use crate::engine::sessions::settlement::PendingSettlement;
use crate::engine::sessions::storing::{self, Storing};
use crate::engine::transport::delivery_records::Ticket;
use crate::engine::transport::outbound::Outbound;
use crate::link::receive::ranges::RangeSet;
use crate::link_id::SessionKey;
use crate::store::mailbox::ReadRequest;
use crate::store::queue::QueueState;
use crate::store::{Messages, Stored};
use crate::tables::subscriber::Overflow;

/// The most bytes in memory of a queue that can have a backlog, with the cost of keeping the messages: of a
/// session without a link, and of one that is stalled. The second is more than is there after a part was read.
const MOST_BYTES: usize = 64 << 10;
const MOST_BYTES_WITH_LINK: usize = 512 << 10;
/// If a queue with a backlog has fewer bytes in memory, more is read.
const FEW_BYTES: usize = 64 << 10;
/// How many bytes of messages are read at once.
const READ_BYTES: usize = 128 << 10;
/// The same, if the queues of all sessions are large; and for a queue that has to be in memory as a whole.
const LEAST_READ_BYTES: usize = 4 << 10;
const READ_ALL_BYTES: usize = 4 << 20;

/// See the module.
#[derive(Debug)]
pub struct Backlog {
    /// The number of its first message in the stored queue. All later ones in the stored queue are in the
    /// backlog.
    next: u64,
    messages: u64,
    /// The bytes of these messages, with the cost of keeping them in memory. After messages were dropped
    /// unread, an estimate.
    bytes: usize,
    /// So many of its messages came with a subtree while the session counted as connected. They are as good as on its
    /// link, and do not count in the bounds of the queue.
    uncounted: u64,
    /// The number of its last message in the stored queue, and that message's overflow policy.
    newest: u64,
    overflow: Overflow,
    /// Messages on the link that are newer than the first one of the backlog.
    passed_over: RangeSet,
    /// Messages behind its first one that have moved to another owner.
    moved: RangeSet,
    /// The store was asked for the messages from the first number on, and has not answered. The last message
    /// that was stored at that time has the second number.
    requested: Option<(u64, u64)>,
    /// The answer to that request is not to be used.
    is_void: bool,
}

/// What a session knows of its stored queue, as in its `BusyState`.
struct Known<'a> {
    base: u64,
    moving: &'a RangeSet,
    launched: &'a RangeSet,
}

/// What came of an answer of the store.
#[derive(Debug, Default)]
struct Loaded {
    queued_messages: Vec<QueuedMessage>,
    /// Numbers in the stored queue of messages that are not valid.
    invalid: Vec<u64>,
    /// How many messages the store does not have any more.
    lost: u64,
    /// How many messages it had that were not expected.
    extra: u64,
}

impl Backlog {
    // Change

    /// The backlog of one message.
    fn of(only: &QueuedMessage) -> Self {
        Self { messages: 1, bytes: only.cost(), ..Self::empty(only.stored, only.stored, only.overflow) }
    }

    fn empty(next: u64, newest: u64, overflow: Overflow) -> Self {
        Self {
            next,
            messages: 0,
            bytes: 0,
            uncounted: 0,
            newest,
            overflow,
            passed_over: RangeSet::default(),
            moved: RangeSet::default(),
            requested: None,
            is_void: false,
        }
    }

    /// What an earlier run has stored.
    fn restored(state: QueueState) -> Self {
        let overhead = state.live as usize * size_of::<QueuedMessage>();
        Self {
            messages: state.live,
            bytes: state.bytes as usize + overhead,
            ..Self::empty(state.head, state.next - 1, Overflow::default())
        }
    }

    /// A queue was appended to the stored queue, with `base` added to its numbers.
    fn append_queue(before: Option<Self>, spooled: &Spooled, base: u64) -> Self {
        let backlog = before.unwrap_or_else(|| Self::empty(base + spooled.head(), 0, spooled.overflow()));
        Self {
            messages: backlog.messages + spooled.live(),
            bytes: backlog.bytes + spooled.bytes(),
            newest: base + spooled.last_live(),
            overflow: spooled.overflow(),
            ..backlog
        }
    }

    /// A message was stored behind all others.
    fn append(&mut self, queued_message: &QueuedMessage) {
        (self.newest, self.overflow) = (queued_message.stored, queued_message.overflow);
        self.messages += 1;
        self.bytes += queued_message.cost();
    }

    /// Takes in a message from memory.
    fn take_in(&mut self, queued_message: &QueuedMessage) {
        self.next = self.next.min(queued_message.stored);
        self.messages += 1;
        self.bytes += queued_message.cost();
    }

    /// Messages come back that did not move.
    fn take_back(&mut self, stored: &StoredPart) {
        let first = stored.numbers.lowest().map_or(self.next, |(first, _)| first);
        self.next = self.next.min(first);
        self.newest = self.newest.max(stored.numbers.highest().unwrap_or_default());
        self.messages += stored.numbers.count();
        self.bytes += stored.cost;
        self.passed_over.remove_all(&stored.numbers);
    }

    /// These messages have moved. What was read before has them still.
    fn leave_out(&mut self, moved: &RangeSet) {
        self.moved.insert_all(moved);
        self.is_void = self.requested.is_some();
    }

    /// So many messages were taken out, because they move. Returns how many of them were not expected here.
    fn leave(&mut self, count: u64, cost: usize) -> u64 {
        let extra = count.saturating_sub(self.messages);
        self.messages = self.messages.saturating_sub(count);
        self.bytes = if self.messages == 0 { 0 } else { self.bytes.saturating_sub(cost) };
        self.uncounted = self.uncounted.min(self.messages);
        extra
    }

    /// Leaves messages out at both ends that are not in the backlog: on the link, moved, or taken out (`moving`).
    fn trim(&mut self, moving: &RangeSet) {
        let others = [&self.passed_over, &self.moved, moving];
        let next = |number: u64| others.iter().fold(number, |number, set| set.next_missing(number));
        let previous = |number: u64| others.iter().fold(number, |number, set| set.previous_missing(number));
        let (mut first, mut last) = (self.next, self.newest);
        while next(first) > first {
            first = next(first);
        }
        while previous(last) < last {
            last = previous(last);
        }
        (self.next, self.newest) = (first, last);
    }

    /// Drops the first message without reading it. Returns its number in the stored queue.
    fn drop_first(&mut self) -> u64 {
        let dropped = self.next;
        self.take(self.bytes / self.messages.max(1) as usize);
        self.next += 1;
        dropped
    }

    /// Drops the last message without reading it. Returns its number in the stored queue.
    fn drop_last(&mut self) -> u64 {
        let dropped = self.newest;
        self.take(self.bytes / self.messages.max(1) as usize);
        self.newest -= 1;
        dropped
    }

    /// Adds what the store answered to the request for the messages from `from` on. `last`: the number of the
    /// last message that was stored for the session.
    fn load(&mut self, from: u64, answer: Messages, last: u64, known: &Known<'_>) -> Loaded {
        let mut loaded = Loaded::default();
        let first = self.next;
        let (requested, is_void) = (self.requested.take(), std::mem::take(&mut self.is_void));
        let is_of_use = |(requested, _): &(u64, u64)| *requested == from && from <= first && !is_void;
        let Some((_, last_then)) = requested.filter(is_of_use) else {
            return loaded; // Or older messages have gone to the backlog since the request.
        };
        // Some may have been dropped since the request.
        let is_in = |stored: &Stored| {
            stored.number >= first
                && !known.moving.contains(stored.number)
                && !self.passed_over.contains(stored.number)
        };
        let in_backlog: Vec<Stored> = answer.messages.into_iter().filter(is_in).collect();
        for stored in in_backlog {
            let stored_number = stored.number;
            self.uncounted = self.uncounted.saturating_sub(1);
            loaded.extra += u64::from(self.messages == 0);
            match storing::restored(stored) {
                Some(queued_message) => {
                    self.take(queued_message.cost());
                    loaded.queued_messages.push(queued_message.in_session(known.base, known.launched));
                }
                None => {
                    self.take(0);
                    loaded.invalid.push(stored_number);
                }
            }
        }
        // At the end of the stored queue may be numbers that the store never got.
        let next = if answer.is_all { answer.next.max(last_then + 1) } else { answer.next };
        self.next = self.next.max(next.min(last + 1));
        self.trim(known.moving);
        loaded.lost = self.messages.saturating_sub(last + 1 - self.next);
        (0..loaded.lost).for_each(|_| self.take(0));
        self.uncounted = self.uncounted.min(self.messages);
        loaded
    }

    fn take(&mut self, bytes: usize) {
        self.messages = self.messages.saturating_sub(1);
        self.bytes = if self.messages == 0 { 0 } else { self.bytes.saturating_sub(bytes) };
    }

    // Read

    /// The number of its first message in the stored queue.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Whether a message behind its first one is on the link.
    pub fn passes_over(&self, stored: u64) -> bool {
        self.passed_over.contains(stored)
    }

    /// The number of messages, and their bytes with the cost of keeping them in memory.
    pub fn size(&self) -> Bounds {
        Bounds { messages: self.messages as usize, bytes: self.bytes }
    }

    /// The same, of the messages that count in the bounds of the queue.
    pub fn counted_size(&self) -> Bounds {
        let counted = self.messages.saturating_sub(self.uncounted);
        let bytes = self.bytes as u128 * u128::from(counted) / u128::from(self.messages.max(1));
        Bounds { messages: counted as usize, bytes: bytes as usize }
    }

    /// So many messages come with a subtree.
    fn leave_uncounted(&mut self, is_ready: bool, count: u64) {
        self.uncounted += if is_ready { count } else { 0 };
    }

    /// All messages count in the bounds of the queue.
    pub fn count_all(&mut self) {
        self.uncounted = 0;
    }
}

impl SessionQueue {
    /// The newest messages become the backlog, until `most` bytes are left in memory. All of them are stored.
    fn spill(&mut self, most: usize) {
        while self.bytes() > most
            && let Some(newest) = self.newest()
            && newest.stored > 0
            && newest.ticket.is_none()
        {
            let Some(newest) = self.pop_newest() else { return };
            match self.backlog_mut() {
                Some(backlog) => backlog.take_in(&newest),
                none => *none = Some(Box::new(Backlog::of(&newest))),
            }
        }
    }

    /// These messages of the stored queue have moved to another owner.
    pub fn leave_out(&mut self, moved: &RangeSet) {
        self.backlog_mut().iter_mut().for_each(|backlog| backlog.leave_out(moved));
    }

    /// The link has ended of messages that the backlog passes over: they are a part of it now.
    pub fn restore_order(&mut self) {
        while let Some(first) = self.backlog().filter(|backlog| !backlog.passed_over.is_empty())
            && self.newest().is_some_and(|newest| newest.stored > first.next)
            && let Some(newest) = self.pop_newest()
        {
            self.backlog_mut().iter_mut().for_each(|backlog| backlog.take_in(&newest));
        }
        self.backlog_mut().iter_mut().for_each(|backlog| backlog.passed_over = RangeSet::default());
    }

    /// Drops the oldest message of all. A message from memory is returned, of another the number in the stored
    /// queue.
    fn drop_oldest(&mut self) -> Option<Result<QueuedMessage, u64>> {
        if let Some(queued_message) = self.pop() {
            return Some(Ok(queued_message));
        }
        let backlog = self.backlog_mut().as_mut().filter(|backlog| backlog.messages > 0)?;
        Some(Err(backlog.drop_first()))
    }
}

impl Session {
    /// Ends the backlog if the store has nothing more of it, and owes no answer.
    pub fn end_backlog_if_empty(&mut self) {
        self.trim_backlog();
        let last = self.last_stored();
        let is_over = |backlog: &mut Box<Backlog>| {
            backlog.messages == 0 && backlog.next > last && backlog.requested.is_none()
        };
        self.queue.backlog_mut().take_if(is_over);
    }

    fn trim_backlog(&mut self) {
        let Self { queue, busy, .. } = self;
        if let (Some(backlog), Some(busy)) = (queue.backlog_mut(), busy) {
            backlog.trim(&busy.moving);
        }
    }

    /// So many messages of its backlog were taken out, because they move.
    pub(super) fn leave_backlog(&mut self, count: u64, cost: usize) {
        let extra = self.queue.backlog_mut().as_mut().map_or(0, |backlog| backlog.leave(count, cost));
        self.session_counters.accepted += extra;
        self.end_backlog_if_empty();
    }

    /// Takes messages back that were to move, and are in its stored queue still. They are older than all that it gets
    /// from now on; those in memory that are newer become a part of the backlog, too.
    pub fn take_back(&mut self, now: Micros, stored: StoredPart, storing: &mut Storing) {
        let Some((first, _)) = stored.numbers.lowest() else { return };
        self.begin(now);
        self.store_all(storing);
        let (is_ready, count) = (self.is_ready(), stored.numbers.count());
        let Self { queue, in_flight, busy, session_counters, .. } = self;
        let busy = busy.get_or_insert_default();
        busy.moving.remove_all(&stored.numbers);
        busy.copied.iter_mut().for_each(Copied::begin_again);
        session_counters.accepted += count;
        while queue.newest().is_some_and(|newest| newest.stored > first)
            && let Some(newest) = queue.pop_newest()
        {
            let backlog = queue
                .backlog_mut()
                .get_or_insert_with(|| Box::new(Backlog::empty(u64::MAX, 0, newest.overflow)));
            backlog.take_in(&newest);
            backlog.newest = backlog.newest.max(newest.stored);
        }
        let backlog = queue
            .backlog_mut()
            .get_or_insert_with(|| Box::new(Backlog::empty(first, 0, Overflow::default())));
        backlog.take_back(&stored);
        backlog.leave_uncounted(is_ready, count);
        for (sent, open) in in_flight.iter() {
            for (position, count) in open.runs() {
                let (from, last) = (
                    sent.queued_message.stored_at(position),
                    sent.queued_message.stored_at(position + count - 1),
                );
                if last > first {
                    backlog.passed_over.insert_range(from, last);
                }
            }
        }
        self.trim_backlog();
    }

    /// Whether its backlog may be read: it has to be behind all that is on the link.
    fn may_read(&mut self) -> bool {
        let is_on_link = self.in_flight.len() > 0;
        self.queue.backlog_mut().as_mut().is_some_and(|backlog| {
            if !is_on_link {
                backlog.passed_over = RangeSet::default();
            }
            backlog.passed_over.is_empty()
        })
    }

    /// Drops messages of a queue with a backlog that is too large, as the policy of its newest message says.
    /// Returns whether the session has to end.
    pub fn cut_backlog(
        &mut self,
        limit: Bounds,
        pending: &mut PendingSettlement,
        counters: &mut Counters,
    ) -> bool {
        let keeps = self.is_ready() && !self.is_bounded;
        while !keeps && self.queue.is_over(limit) {
            self.trim_backlog();
            let Some(backlog) = self.queue.backlog_mut() else { break };
            match backlog.overflow {
                Overflow::DropOldest if limit.messages > 0 => {
                    if !self.drop_oldest(pending) {
                        return false;
                    }
                    counters.drop(Drop::QueueFull);
                }
                policy if backlog.messages > 0 && backlog.newest >= backlog.next => {
                    let dropped = backlog.drop_last();
                    self.drop_unread(dropped, pending);
                    counters.drop(Drop::QueueFull);
                    if policy == Overflow::EndSession {
                        return true;
                    }
                }
                _ => return false,
            }
        }
        false
    }

    /// A message was accepted, and is to be stored behind all others. False: there is no room for it.
    fn make_room(
        &mut self,
        now: Micros,
        queued_message: &QueuedMessage,
        pending: &mut PendingSettlement,
        counters: &mut Counters,
    ) -> bool {
        let (cost, limit) = (queued_message.cost(), self.queue.limit(self.beyond(), usize::MAX));
        if self.keeps(queued_message) || !self.queue.is_over_with(cost, limit) {
            return true;
        }
        for dead in self.queue.take_dead(now) {
            self.expire(&dead, pending);
        }
        let fits = cost <= limit.bytes && limit.messages > 0;
        if queued_message.overflow == Overflow::DropOldest && fits {
            while self.queue.is_over_with(cost, limit) && self.drop_oldest(pending) {
                counters.drop(Drop::QueueFull);
            }
        }
        !self.queue.is_over_with(cost, limit)
    }

    /// Drops the oldest message, because the queue is full. False: there is none.
    pub fn drop_oldest(&mut self, pending: &mut PendingSettlement) -> bool {
        self.trim_backlog();
        match self.queue.drop_oldest() {
            Some(Ok(queued_message)) => self.drop(Drop::QueueFull, &queued_message, pending),
            Some(Err(stored)) => self.drop_unread(stored, pending),
            None => return false,
        }
        true
    }

    /// A message that only the store has is dropped, because the queue is full.
    fn drop_unread(&mut self, stored: u64, pending: &mut PendingSettlement) {
        self.session_counters.drop(Drop::QueueFull, 1);
        self.forget(self.number_of_stored(stored));
        pending.settled.push((self.id, stored));
    }

    /// Stores a message behind all others. `ticket`: it is returned when the message is stored.
    fn store_behind(
        &mut self,
        storing: &mut Storing,
        mut queued_message: QueuedMessage,
        ticket: Option<Ticket>,
    ) {
        queued_message.stored = self.number_to_store(queued_message.number);
        storing.add(self.id, &queued_message, ticket);
        self.queue.backlog_mut().iter_mut().for_each(|backlog| backlog.append(&queued_message));
    }

    /// Takes over messages that this node's store got while they moved here.
    pub fn take_in_spooled(&mut self, now: Micros, spooled: &Spooled, storing: &mut Storing) {
        if self.is_idle() {
            self.begin(now);
        }
        let base = self.append_stored(spooled, storing);
        self.session_counters.accepted += spooled.live();
        let before = self.queue.backlog_mut().take().map(|backlog| *backlog);
        let mut backlog = Backlog::append_queue(before, spooled, base);
        backlog.leave_uncounted(self.is_ready(), spooled.live());
        *self.queue.backlog_mut() = Some(Box::new(backlog));
    }

    /// As [`Self::take_in`], if it has a backlog.
    pub(super) fn take_in_behind(
        &mut self,
        list: MessageList,
        storing: &mut Storing,
        pending: &mut PendingSettlement,
    ) {
        let count = list.queued_messages.len() as u64;
        self.session_counters.accepted += count;
        let is_ready = self.is_ready();
        self.queue.backlog_mut().iter_mut().for_each(|backlog| backlog.leave_uncounted(is_ready, count));
        for mut queued_message in list.queued_messages {
            if queued_message.stored > 0 {
                self.renumber_moved(queued_message.stored);
                pending.forget_moved(self.id, &queued_message);
            }
            self.newest += 1;
            queued_message.number = self.newest;
            self.store_behind(storing, queued_message, None);
        }
    }
}

impl Session {
    /// As [`Outbound::load`]. `None`: it has no backlog.
    fn load(&mut self, from: u64, answer: Messages) -> Option<Loaded> {
        let last = self.last_stored();
        let Self { queue, busy, .. } = self;
        let BusyState { stored_base, moving, launched, .. } = &**busy.get_or_insert_default();
        let known = Known { base: *stored_base, moving, launched };
        Some(queue.backlog_mut().as_mut()?.load(from, answer, last, &known))
    }
}

impl Outbound {
    /// Offers a message to a session with a backlog. Returns whether the store took the ticket.
    pub(super) fn offer_behind(
        &mut self,
        now: Micros,
        key: SessionKey,
        mut queued_message: QueuedMessage,
    ) -> bool {
        let Self { sessions, counters, pending, storing, exports, .. } = self;
        let (Some(session), Some(storing)) = (sessions.get_mut(key), storing.as_deref_mut()) else {
            return false;
        };
        let ticket = queued_message.ticket.take();
        session.accept(now, 1, &mut queued_message);
        let (before, source) =
            (session.waiting(), queued_message.source.filter(|_| session.keeps(&queued_message)));
        let has_room = session.make_room(now, &queued_message, pending, counters);
        if has_room && queued_message.group.is_some() {
            // It may come from another member, of a subtree that is not served any more.
            exports.iter_mut().for_each(|exporting| exporting.copy_up_to(key, queued_message.number));
        }
        if has_room {
            session.store_behind(storing, queued_message, ticket);
        } else {
            if queued_message.overflow == Overflow::EndSession {
                pending.overflowed.push(key);
            }
            session.refuse_newest(&queued_message);
            counters.drop(Drop::QueueFull);
        }
        session.end_backlog_if_empty();
        let after = session.waiting();
        sessions.recount(before, after);
        self.hold_source(now, key, source);
        self.refill(key);
        self.sessions.watch(now, key);
        has_room && ticket.is_some()
    }

    /// The newest messages of a session become its backlog, until few are in memory, if they are stored.
    pub fn spill(&mut self, key: SessionKey, most: usize) {
        let can_spill = self.storing.is_some() && !self.exports.iter().any(Exporting::is_ending);
        if let Some(session) = self.sessions.get_mut(key)
            && can_spill
            && !session.is_member
            && let most = most.min(if session.link.is_some() { MOST_BYTES_WITH_LINK } else { MOST_BYTES })
            && session.queue.bytes() > most
        {
            let before = session.waiting();
            session.queue.spill(most);
            let after = session.waiting();
            self.sessions.recount(before, after);
        }
    }

    /// No subtree is about to be taken out any more: spills what was in memory only for that.
    pub fn spill_all(&mut self) {
        if self.storing.is_some() {
            let keys: Vec<SessionKey> = self.sessions.iter().map(Session::key).collect();
            keys.into_iter().for_each(|key| self.spill(key, MOST_BYTES));
        }
    }

    /// Asks the store for the first messages of a session's backlog, if they are needed now.
    pub fn refill(&mut self, key: SessionKey) {
        let Self { sessions, storing, .. } = self;
        let Some(storing) = storing.as_deref_mut() else {
            return;
        };
        let has_room = sessions.has_room_for(storing.requested_bytes());
        let Some(session) = sessions.get_mut(key) else {
            return;
        };
        let needs_all = session.is_member;
        // Little is read for each session if their queues together are large.
        let (few, most) = match has_room {
            _ if needs_all => (usize::MAX, READ_ALL_BYTES),
            true => (FEW_BYTES, READ_BYTES),
            false => (1, LEAST_READ_BYTES),
        };
        let is_due = needs_all || session.link.is_some() && session.queue.bytes() < few;
        let (id, last) = (session.id, session.last_stored());
        if is_due
            && session.may_read()
            && let Some(backlog) = session.queue.backlog_mut()
            && backlog.requested.is_none()
        {
            backlog.requested = Some((backlog.next, last));
            storing.request(ReadRequest { key, session: id, from: backlog.next, bytes: most, copying: None });
        }
    }

    /// The store's answer to a request.
    pub fn load(&mut self, now: Micros, key: SessionKey, from: u64, answer: Messages) {
        let Self { sessions, counters, pending, .. } = self;
        let Some(session) = sessions.get_mut(key) else {
            return;
        };
        let before = session.waiting();
        let Some(loaded) = session.load(from, answer) else {
            return;
        };
        session.end_backlog_if_empty();
        session.session_counters.accepted += loaded.extra;
        let damaged = loaded.lost + loaded.invalid.len() as u64;
        session.session_counters.drop(Drop::Damaged, damaged);
        counters.drop_many(Drop::Damaged, damaged);
        pending.settled.extend(loaded.invalid.into_iter().map(|number| (session.id, number)));
        loaded.queued_messages.into_iter().for_each(|queued_message| session.queue.push(queued_message));
        let after = session.waiting();
        sessions.recount(before, after);
        self.pump(now, key);
        self.weigh_if_changed(key);
        self.sessions.watch(now, key);
    }

    /// The store's answer to a request of an export.
    pub fn take_read(&mut self, export: u64, request: u64, answer: Messages) {
        if let Some(exporting) = self.exports.iter_mut().find(|exporting| exporting.id == export) {
            exporting.take_answer(request, answer);
        }
    }

    /// An earlier run has stored these messages for a session, whose queue is empty.
    pub fn restore(&mut self, now: Micros, key: SessionKey, state: QueueState) {
        if let Some(session) = self.sessions.get_mut(key) {
            session.session_counters.accepted += state.live;
            session.resume_stored(state.next - 1);
            *session.queue.backlog_mut() = Some(Box::new(Backlog::restored(state)));
            session.end_backlog_if_empty();
        }
        self.sessions.watch(now, key);
    }

    /// The messages of a session's backlog from this number on are being read, without a request. `None`: it
    /// has no backlog.
    pub fn begin_to_load(&mut self, key: SessionKey) -> Option<u64> {
        let session = self.sessions.get_mut(key)?;
        let last = session.last_stored();
        let backlog = session.queue.backlog_mut().as_mut()?;
        backlog.requested = Some((backlog.next, last));
        Some(backlog.next)
    }
}
