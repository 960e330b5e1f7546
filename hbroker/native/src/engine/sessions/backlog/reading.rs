//! When a worker's queues become backlogs, and when these are read.

use crate::Micros;
use crate::engine::handover::worker_export::WorkerExport;
use crate::engine::metrics::counters::Drop;
use crate::engine::sessions::message::QueuedMessage;
use crate::engine::sessions::session::Session;
use crate::engine::transport::outbound::Outbound;
use crate::link_id::SessionKey;
use crate::store::Messages;
use crate::store::mailbox::ReadRequest;
use crate::store::queues::queue::QueueState;
use crate::tables::subscriber::Overflow;

use super::Backlog;

/// The most bytes in memory of a queue that can have a backlog, with the cost of keeping the messages: of a
/// session without a link, and of one that is stalled. The second is more than is there after a part was read.
const MOST_BYTES: usize = 64 << 10;
const MOST_BYTES_WITH_LINK: usize = 512 << 10;
/// If a queue with a backlog has fewer bytes in memory, more is read.
const FEW_BYTES: usize = 64 << 10;
/// How many bytes of messages are read at once: usually, if the queues of all sessions together are large, and for a
/// member of a shared group, whose queue has to be in memory completely.
const READ_BYTES: usize = 128 << 10;
const LEAST_READ_BYTES: usize = 4 << 10;
const READ_ALL_BYTES: usize = 4 << 20;

impl Outbound {
    /// Offers a message to a session with a backlog. Returns whether the store took the ticket.
    pub(in crate::engine::sessions) fn offer_behind(
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
            (session.queue_charge(), queued_message.source.filter(|_| session.must_keep(&queued_message)));
        let has_room = session.make_room(now, &queued_message, pending, counters);
        if has_room && queued_message.group.is_some() {
            // It may come from another member, of a subtree that is not served any more.
            exports.iter_mut().for_each(|worker_export| worker_export.copy_up_to(key, queued_message.number));
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
        let after = session.queue_charge();
        sessions.update_queue_charge(before, after);
        self.throttle_source(now, key, source);
        self.refill(key);
        self.sessions.watch(now, key);
        has_room && ticket.is_some()
    }

    /// The newest messages of a session become its backlog, until few are in memory, if they are stored.
    pub fn spill(&mut self, key: SessionKey, most: usize) {
        let can_spill = !self.exports.iter().any(WorkerExport::is_ending);
        if let (Some(session), Some(storing)) = (self.sessions.get_mut(key), self.storing.as_deref_mut())
            && can_spill
            && !session.is_member
            && let most = most.min(if session.link.is_some() { MOST_BYTES_WITH_LINK } else { MOST_BYTES })
            && session.queue.bytes() > most
            && session.queue.newest().is_some_and(|newest| newest.stored > 0 && newest.ticket.is_none())
        {
            let before = session.queue_charge();
            session.store_all(storing); // A session with a backlog holds no PUBACK back.
            session.queue.spill(most);
            let after = session.queue_charge();
            self.sessions.update_queue_charge(before, after);
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
            storing.request(ReadRequest {
                key,
                session: id,
                from: backlog.next,
                bytes: most,
                for_export: None,
            });
        }
    }

    /// The store's answer to a request.
    pub fn load(&mut self, now: Micros, key: SessionKey, from: u64, answer: Messages) {
        let Self { sessions, counters, pending, .. } = self;
        let Some(session) = sessions.get_mut(key) else {
            return;
        };
        let before = session.queue_charge();
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
        let after = session.queue_charge();
        sessions.update_queue_charge(before, after);
        self.pump(now, key);
        self.update_charge_if_changed(key);
        self.sessions.watch(now, key);
    }

    /// The store's answer to a request of an export.
    pub fn take_read(&mut self, export: u64, request: u64, answer: Messages) {
        if let Some(worker_export) = self.exports.iter_mut().find(|worker_export| worker_export.id == export)
        {
            worker_export.take_answer(request, answer);
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
