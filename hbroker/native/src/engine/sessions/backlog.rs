//! The part of a session's queue that only the store has: its newest messages, behind those in memory.
//!
//! The queue of a session that does not count as connected keeps few messages in memory, if there is a store.
//! The others, which are stored, are its *backlog*. As long as there is a backlog, further messages are stored,
//! too, and become a part of it, whether the session counts as connected or not: so the order is kept. While
//! the session has a link, it reads the backlog in parts, as the subscriber takes the messages. The store
//! answers later, at the end of a turn.
//!
//! Two kinds of sessions keep their whole queues in memory: members of shared groups, because their messages
//! go to other members when they end, and all sessions while a subtree is being moved.

use crate::Micros;
use crate::engine::handover::spooled::Spooled;
use crate::engine::metrics::counters::{Counters, Drop};
use crate::engine::sessions::message::QueuedMessage;
use crate::engine::sessions::queue::{Bounds, MessageList, SessionQueue};
use crate::engine::sessions::session::Session;
use crate::engine::sessions::settlement::PendingSettlement;
use crate::engine::sessions::storing::{self, Storing};
use crate::engine::transport::delivery_records::Ticket;
use crate::engine::transport::outbound::Outbound;
use crate::link_id::SessionKey;
use crate::store::Messages;
use crate::store::queue::QueueState;
use crate::tables::match_set::Overflow;

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
    /// The number that the first message gets in the order of the session's messages.
    number: u64,
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
    /// The store was asked for the messages from the first number on, and has not answered. The last message
    /// that was stored at that time has the second number.
    requested: Option<(u64, u64)>,
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
        Self {
            next: only.stored,
            number: only.number,
            messages: 1,
            bytes: only.cost(),
            uncounted: 0,
            newest: only.stored,
            overflow: only.overflow,
            requested: None,
        }
    }

    /// What an earlier run has stored. `number`: that of its first message.
    fn restored(state: QueueState, number: u64) -> Self {
        let overhead = state.live as usize * size_of::<QueuedMessage>();
        Self {
            next: state.head,
            number,
            messages: state.live,
            bytes: state.bytes as usize + overhead,
            uncounted: 0,
            newest: state.next - 1,
            overflow: Overflow::default(),
            requested: None,
        }
    }

    /// A queue was appended to the stored queue, with `base` added to its numbers. `number`: as in [`Self::restored`],
    /// if there was no backlog.
    fn append_queue(before: Option<Self>, spooled: &Spooled, base: u64, number: u64) -> Self {
        let backlog = before.unwrap_or(Self {
            next: base + spooled.head(),
            number,
            messages: 0,
            bytes: 0,
            uncounted: 0,
            newest: 0,
            overflow: spooled.overflow(),
            requested: None,
        });
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

    /// Takes in a message from memory that is older than all of it.
    fn prepend(&mut self, queued_message: &QueuedMessage) {
        (self.next, self.number) = (queued_message.stored, queued_message.number);
        self.messages += 1;
        self.bytes += queued_message.cost();
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
        self.bytes -= self.bytes / self.messages.max(1) as usize;
        self.messages = self.messages.saturating_sub(1);
        self.newest -= 1;
        dropped
    }

    /// Adds what the store answered to the request for the messages from `from` on. `last`: the number of the
    /// last message that was stored for the session. `launched`: messages with these numbers were given to a
    /// link, and do not expire any more.
    fn load(&mut self, from: u64, answer: Messages, last: u64, launched: &[(u64, u64)]) -> Loaded {
        let mut loaded = Loaded::default();
        let first = self.next;
        let requested = self.requested.take();
        let Some((_, last_then)) = requested.filter(|(requested, _)| *requested == from && from <= first)
        else {
            return loaded; // Older messages have gone to the backlog since the request.
        };
        // Some may have been dropped since the request.
        for stored in answer.messages.into_iter().filter(|stored| stored.number >= first) {
            let (number, stored_number) = (self.number, stored.number);
            self.uncounted = self.uncounted.saturating_sub(1);
            loaded.extra += u64::from(self.messages == 0);
            match storing::restored(stored) {
                Some(queued_message) => {
                    self.take(queued_message.cost());
                    let is_launched = launched.iter().any(|run| (run.0..=run.1).contains(&stored_number));
                    let expires = if is_launched { Micros::MAX } else { queued_message.expires };
                    loaded.queued_messages.push(QueuedMessage { number, expires, ..queued_message });
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
        loaded.lost = self.messages.saturating_sub(last + 1 - self.next);
        (0..loaded.lost).for_each(|_| self.take(0));
        self.uncounted = self.uncounted.min(self.messages);
        loaded
    }

    fn take(&mut self, bytes: usize) {
        self.number += 1;
        self.messages = self.messages.saturating_sub(1);
        self.bytes = if self.messages == 0 { 0 } else { self.bytes.saturating_sub(bytes) };
    }

    // Read

    /// The number of its first message in the order of the session's messages.
    pub fn number(&self) -> u64 {
        self.number
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
            && self.backlog().is_none_or(|backlog| newest.stored < backlog.next)
        {
            let Some(newest) = self.pop_newest() else { return };
            match self.backlog_mut() {
                Some(backlog) => backlog.prepend(&newest),
                none => *none = Some(Box::new(Backlog::of(&newest))),
            }
        }
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
    /// Whether only the store has one of its messages up to this number in the stored queue.
    pub fn is_unread_up_to(&self, last: u64) -> bool {
        self.queue.backlog().is_some_and(|backlog| backlog.next <= last)
    }

    /// Ends the backlog if the store has nothing more of it, and owes no answer.
    pub fn end_backlog_if_empty(&mut self) {
        let last = self.last_stored();
        let is_over = |backlog: &mut Box<Backlog>| {
            backlog.messages == 0 && backlog.next > last && backlog.requested.is_none()
        };
        self.queue.backlog_mut().take_if(is_over);
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
        while !keeps
            && self.queue.is_over(limit)
            && let Some(backlog) = self.queue.backlog_mut()
        {
            match backlog.overflow {
                Overflow::DropOldest if limit.messages > 0 => {
                    if !self.drop_oldest(pending) {
                        return false;
                    }
                    counters.drop(Drop::QueueFull);
                }
                policy if backlog.messages > 0 && backlog.newest >= backlog.next => {
                    let dropped = backlog.drop_last();
                    self.session_counters.drop(Drop::QueueFull, 1);
                    counters.drop(Drop::QueueFull);
                    pending.settled.push((self.id, dropped));
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
        match self.queue.drop_oldest() {
            Some(Ok(queued_message)) => self.drop(Drop::QueueFull, &queued_message, pending),
            Some(Err(stored)) => {
                self.session_counters.drop(Drop::QueueFull, 1);
                pending.settled.push((self.id, stored));
            }
            None => return false,
        }
        true
    }

    /// Stores a message behind all others. `ticket`: it is returned when the message is stored.
    fn store_behind(
        &mut self,
        storing: &mut Storing,
        mut queued_message: QueuedMessage,
        ticket: Option<Ticket>,
    ) {
        queued_message.stored = self.next_stored();
        storing.add(self.id, &queued_message, ticket);
        self.queue.backlog_mut().iter_mut().for_each(|backlog| backlog.append(&queued_message));
    }

    /// Takes over messages that this node's store got while they moved here.
    pub fn take_in_spooled(&mut self, now: Micros, spooled: &Spooled, storing: &mut Storing) {
        if self.is_idle() {
            self.begin(now);
        }
        let base = self.append_stored(spooled, storing);
        let number = self.session_counters.accepted + 1;
        self.session_counters.accepted += spooled.live();
        let before = self.queue.backlog_mut().take().map(|backlog| *backlog);
        let mut backlog = Backlog::append_queue(before, spooled, base, number);
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
        for queued_message in list.queued_messages {
            if queued_message.stored > 0 {
                self.forget_moved(1);
                pending.forget_moved(self.id, &queued_message);
            }
            self.store_behind(storing, queued_message, None);
        }
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
        let Self { sessions, counters, pending, storing, .. } = self;
        let (Some(session), Some(storing)) = (sessions.get_mut(key), storing.as_deref_mut()) else {
            return false;
        };
        let ticket = queued_message.ticket.take();
        session.accept(now, 1, &mut queued_message);
        let (before, source) =
            (session.waiting(), queued_message.source.filter(|_| session.keeps(&queued_message)));
        let has_room = session.make_room(now, &queued_message, pending, counters);
        if has_room {
            session.store_behind(storing, queued_message, ticket);
        } else {
            if queued_message.overflow == Overflow::EndSession {
                pending.overflowed.push(key);
            }
            session.drop(Drop::QueueFull, &queued_message, pending);
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
        let can_spill = self.storing.is_some() && self.exports.is_empty();
        if let Some(session) = self.sessions.get_mut(key)
            && can_spill
            && session.can_spill()
            && let most = most.min(if session.link.is_some() { MOST_BYTES_WITH_LINK } else { MOST_BYTES })
            && session.queue.bytes() > most
        {
            let before = session.waiting();
            session.queue.spill(most);
            let after = session.waiting();
            self.sessions.recount(before, after);
        }
    }

    /// No subtree is being moved any more: spills what was in memory only for that.
    pub fn spill_all(&mut self) {
        if self.storing.is_some() && self.exports.is_empty() {
            let keys: Vec<SessionKey> =
                self.sessions.iter().filter(|session| session.can_spill()).map(Session::key).collect();
            keys.into_iter().for_each(|key| self.spill(key, MOST_BYTES));
        }
    }

    /// Asks the store for the first messages of a session's backlog, if they are needed now.
    pub fn refill(&mut self, key: SessionKey) {
        let Self { sessions, storing, exports, .. } = self;
        let Some(storing) = storing.as_deref_mut() else {
            return;
        };
        let has_room = sessions.has_room_for(storing.requested_bytes());
        let Some(session) = sessions.get_mut(key) else {
            return;
        };
        let needs_all = !exports.is_empty() || session.is_member;
        // Little is read for each session if their queues together are large.
        let (few, most) = match has_room {
            _ if needs_all => (usize::MAX, READ_ALL_BYTES),
            true => (FEW_BYTES, READ_BYTES),
            false => (1, LEAST_READ_BYTES),
        };
        let is_due = needs_all || session.link.is_some() && session.queue.bytes() < few;
        let (id, last) = (session.id, session.last_stored());
        if is_due
            && let Some(backlog) = session.queue.backlog_mut()
            && backlog.requested.is_none()
        {
            backlog.requested = Some((backlog.next, last));
            storing.request(key, id, backlog.next, most);
        }
    }

    /// The store's answer to a request.
    pub fn load(&mut self, now: Micros, key: SessionKey, from: u64, answer: Messages) {
        let Self { sessions, counters, pending, .. } = self;
        let Some(session) = sessions.get_mut(key) else {
            return;
        };
        let (before, last, launched) = (session.waiting(), session.last_stored(), session.stored_launched());
        let Some(backlog) = session.queue.backlog_mut() else {
            return;
        };
        let loaded = backlog.load(from, answer, last, &launched);
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

    /// An earlier run has stored these messages for a session, whose queue is empty.
    pub fn restore(&mut self, now: Micros, key: SessionKey, state: QueueState) {
        if let Some(session) = self.sessions.get_mut(key) {
            let number = session.session_counters.accepted + 1;
            session.session_counters.accepted += state.live;
            session.resume_stored(state.next - 1);
            *session.queue.backlog_mut() = Some(Box::new(Backlog::restored(state, number)));
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
