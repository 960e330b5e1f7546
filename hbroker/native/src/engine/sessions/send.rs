//! Sends a message to a session: directly onto its link, if there is credit and the queue is empty; else into
//! its queue. From the queue it goes onto the link once the subscriber has acknowledged others (§7.7, §7.8).
//!
//! What is left to do afterwards is collected in [`PendingSettlement`].

use crate::Micros;
use crate::broken::Defect;
use crate::engine::handover::spooled::Spooled;
use crate::engine::handover::stored_copies::StoredPart;
use crate::engine::handover::worker_export::WorkerExport;
use crate::engine::metrics::counters::{Counters, Drop};
use crate::engine::metrics::message_metrics::MessageMetrics;
use crate::engine::sessions::bounds::Bounds;
use crate::engine::sessions::message::{QueuedBatch, QueuedMessage};
use crate::engine::sessions::queue::{Excess, MessageList};
use crate::engine::sessions::session::{ExtractedQueue, QueueCharge, Session};
use crate::engine::sessions::settlement::PendingSettlement;
use crate::engine::sessions::target::Target;
use crate::engine::transport::links::{Entry, LinkSlot};
use crate::engine::transport::outbound::Outbound;
use crate::link::{Chain, QueueFull, Queued};
use crate::link_id::{LinkId, SessionKey};
use crate::load::Load;
use crate::prefix::Prefix;
use crate::tables::groups::Fitness;
use crate::topic::Region;
use crate::wire::{MeantFor, PubAckView};

/// Retained messages may use only one part in this number of a session's queue.
const RETAINED_SHARE: usize = 16;

/// A session that has ended.
pub struct EndedSession {
    pub id: u64,
    /// `None`: it was offline.
    pub link: Option<LinkId>,
    /// The host of its client, as [`Session::host`] returns it.
    pub host: Option<Prefix>,
}

impl Outbound {
    /// Offers a session a message at `QoS` 0.
    pub fn offer_copy(
        &mut self,
        key: SessionKey,
        field: &[u8],
        meant_for: Option<MeantFor>,
        message_metrics: &MessageMetrics,
    ) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        session.accept_copies(1);
        let entry = session.link.and_then(|link| self.links.get_mut(link));
        let refused = match entry {
            None => Some(Drop::Offline),
            Some(entry) => {
                let queued = entry.link.queue_unreliable(field, meant_for);
                if queued.is_ok() {
                    let packet = entry.link.last_unreliable();
                    message_metrics.copies_leave(&mut self.load, 1, field, &mut entry.timed, packet);
                }
                queued.err().map(|QueueFull| Drop::QueueFull)
            }
        };
        match refused {
            Some(why) => {
                session.refuse_copies(why, 1);
                self.counters.drop(why);
            }
            None => {
                self.counters.messages_out += 1;
                session.link.into_iter().for_each(|link| self.links.mark_dirty(link));
            }
        }
    }

    /// Offers a session a message at `QoS` 1 or 2. Returns whether the session, or the store, took the ticket,
    /// which is then returned once.
    pub fn offer(&mut self, now: Micros, key: SessionKey, mut queued_message: QueuedMessage) -> bool {
        let Self { links, sessions, counters, load, pending, storing, .. } = self;
        let Some(session) = sessions.get_mut(key) else {
            counters.drop(Drop::SessionEnded);
            return false;
        };
        if session.has_backlog() {
            return self.offer_behind(now, key, queued_message);
        }
        let ticket = queued_message.ticket;
        session.accept(now, 1, &mut queued_message);
        let mut holds_ticket = queued_message.ticket.is_some();
        let has_to_be_stored = !session.is_ready() || queued_message.was_stored;
        if let Some(storing) = storing.as_deref_mut().filter(|_| has_to_be_stored) {
            if session.is_ready() {
                session.store_others(storing); // The numbers in the stored queue are in the order of the queue.
            }
            queued_message.stored = session.number_to_store(queued_message.number);
            // A connected session that gets a message of another one keeps the ticket itself.
            storing.add(session.id, &queued_message, ticket.filter(|_| !holds_ticket));
            holds_ticket = ticket.is_some();
        }
        let is_watched = session.is_watched;
        let bytes = queued_message.field.len();
        if session.queue.is_empty()
            && session.has_credit(bytes)
            && let Some(link) = session.link
            && let Some(entry) = links.get_mut(link).filter(|entry| entry.link.has_room(bytes))
        {
            give(session, entry, queued_message.into(), (counters, load), pending);
            links.mark_dirty(link);
        } else {
            let (before, kept_size) = (session.queue_charge(), session.kept_size());
            let source = queued_message.source.filter(|_| session.must_keep(&queued_message));
            session.queue.push(queued_message);
            self.enforce_bounds(now, key, before, kept_size);
            self.throttle_source(now, key, source);
        }
        if !is_watched {
            self.sessions.watch(now, key);
        }
        self.update_charge_if_changed(key);
        holds_ticket
    }

    /// Offers a session several messages at once. Returns whether the session took their tickets. `None`: its
    /// link does not take all of them now, and they have to be offered one by one.
    pub fn offer_all(&mut self, now: Micros, queued_batch: &QueuedBatch, target: &Target) -> Option<bool> {
        let Self { links, sessions, counters, load, pending, storing, stored_before, .. } = self;
        let &QueuedBatch { ref queued_message, count, ref timed } = queued_batch;
        let Some(session) = sessions.get_mut(target.session) else {
            counters.drop_many(Drop::SessionEnded, count.into());
            return Some(false);
        };
        let bytes = queued_message.field.len();
        let takes_all = session.queue.is_empty() && session.has_credit_for(count, bytes);
        let takes_all = takes_all && (session.is_ready() || storing.is_none());
        let takes_all = takes_all && (queued_message.qos < 2 || stored_before.is_none());
        let link = session.link.filter(|_| takes_all)?;
        let entry = links.get_mut(link).filter(|entry| entry.link.has_room_for_all(bytes))?;
        let mut queued_message = queued_message.clone().addressed(target.clone());
        session.accept(now, count, &mut queued_message);
        let (holds_ticket, is_watched) = (queued_message.ticket.is_some(), session.is_watched);
        let given = QueuedBatch { queued_message, count, timed: timed.clone() };
        give(session, entry, given, (counters, load), pending);
        links.mark_dirty(link);
        if !is_watched {
            sessions.watch(now, target.session);
        }
        self.update_charge_if_changed(target.session);
        Some(holds_ticket)
    }

    /// Whether a session takes a retained message of this size now. Apart from what its link takes at once,
    /// retained messages may use only a small part of its queue (§7.6).
    pub fn has_room_for_retained(&self, key: SessionKey, qos: u8, bytes: usize) -> bool {
        let Some(session) = self.sessions.get(key).filter(|session| session.is_ready()) else {
            return false;
        };
        // An idle link has nothing queued.
        let link = session.link.and_then(|link| self.links.get(link)).and_then(LinkSlot::link);
        if qos == 0 {
            return link.is_none_or(|link| link.has_room_for_copy(bytes));
        }
        let goes_at_once = session.queue.is_empty()
            && session.has_credit(bytes)
            && link.is_none_or(|link| link.has_room(bytes));
        goes_at_once
            || !session.queue.is_fuller_than(RETAINED_SHARE) && !self.sessions.is_fuller_than(2, session)
    }

    /// The session's replays continue when its link has built datagrams, or when the session gets another
    /// link.
    pub fn await_room(&mut self, key: SessionKey) {
        let link = self.sessions.get(key).and_then(|session| session.link);
        if let Some(entry) = link.and_then(|link| self.links.get_mut(link)) {
            entry.awaits_room = true;
        }
    }

    /// A message for a session had expired before it arrived here.
    pub fn count_expired(&mut self, key: SessionKey) {
        if let Some(session) = self.sessions.get_mut(key) {
            session.count_expired();
        }
    }

    /// Handles a subscriber's PUBACK.
    pub fn answer(&mut self, now: Micros, key: SessionKey, puback: &PubAckView<'_>) {
        if let Some(session) = self.sessions.get_mut(key) {
            let before = session.queue_charge();
            for (first, last) in puback.ranges() {
                session.answer(now, first, last, &mut self.pending);
            }
            let after = session.queue_charge();
            self.sessions.update_queue_charge(before, after);
        }
        self.update_charge_if_changed(key);
        self.pump(now, key);
    }

    /// The subscriber of a session sends its credit (§7.7).
    pub fn grant(&mut self, now: Micros, key: SessionKey, messages: u32, bytes: u64) {
        if let Some(session) = self.sessions.get_mut(key) {
            session.grant(messages, bytes);
        }
        self.pump(now, key);
    }

    /// A session gets a link.
    pub fn attach(&mut self, now: Micros, key: SessionKey, link: LinkId) {
        if let (Some(session), Some(entry)) = (self.sessions.get_mut(key), self.links.get_mut(link)) {
            let before = session.queue_charge();
            session.attach(now, link, entry.link.peer().ip().into(), entry.credit.granted());
            self.claims.note(session.id, entry.rights.key());
            entry.subscriber = Some(key);
            let after = session.queue_charge();
            self.sessions.update_queue_charge(before, after);
        }
        self.pump(now, key);
        self.update_charge(key);
        self.sessions.watch(now, key);
        self.report_fitness(key);
    }

    /// A session's link to this host has ended, with `unsent` unsent messages of `QoS` 0. The session stays.
    pub fn park(&mut self, now: Micros, key: SessionKey, unsent: usize, host: Prefix) {
        if let Some(session) = self.sessions.get_mut(key) {
            let before = session.queue_charge();
            session.park(unsent as u64, host, &mut self.pending, self.storing.as_deref_mut());
            let kept_size = session.kept_size();
            self.enforce_bounds(now, key, before, kept_size);
            self.update_charge(key);
            self.release_publishers(key);
        }
    }

    /// Ends a session. Returns what is left of it, except for its messages.
    pub fn end(&mut self, key: SessionKey, unsent: usize, why: Drop) -> Option<EndedSession> {
        let mut session = self.sessions.remove(key)?;
        self.claims.forget(session.id);
        self.update_charge(key);
        self.release_publishers(key);
        self.member_fitness
            .iter()
            .filter(|_| session.is_member)
            .for_each(|member_fitness| member_fitness.forget(key));
        for export in session.exports() {
            let worker_export = self.exports.iter_mut().filter(|worker_export| worker_export.id == export);
            worker_export.for_each(|worker_export| worker_export.ended.push(key.0));
        }
        let before = session.session_counters.dropped_as(why);
        let orphans = session.end(unsent as u64, why, &mut self.pending);
        // `dropped_as` includes copies of `QoS` 0 that are counted only now, so the difference is used.
        self.counters.drop_many(why, session.session_counters.dropped_as(why) - before);
        self.counters.drop_many(Drop::Regrouped, orphans.len() as u64);
        self.pending.orphans.extend(orphans);
        if let Some(storing) = self.storing.as_deref_mut().filter(|_| session.has_stored()) {
            storing.settle(&mut self.pending.settled, &mut self.pending.moved);
            storing.end(session.id);
        }
        let ended = EndedSession { id: session.id, link: session.link, host: session.host() };
        self.sessions.close(session.session_counters);
        Some(ended)
    }

    /// Takes the messages of a region out of all sessions.
    pub fn extract_region(&mut self, export: u64, region: Region<'_>) -> Vec<ExtractedQueue> {
        let Self { sessions, counters, pending, .. } = self;
        let (mut all, mut position) = (Vec::new(), 0);
        while let Some(session) = sessions.at_position(position) {
            position += 1;
            let Some(session) = session else { continue };
            let before = session.queue_charge();
            if let Some(extracted) = session.extract_region(export, region, pending) {
                let after = session.queue_charge();
                sessions.update_queue_charge(before, after);
                counters.drop_many(Drop::Moved, extracted.taken);
                all.push(extracted);
            }
        }
        all
    }

    /// Gives a session the messages that were queued for it at another owner, or come back: those that the store has
    /// already, and the later ones. Returns how many had no room. `None`: there is no such session.
    pub fn take_in(
        &mut self,
        now: Micros,
        key: SessionKey,
        (spooled, stored): (Option<&Spooled>, Option<StoredPart>),
        list: MessageList,
    ) -> Option<u64> {
        let dropped = self.dropped(key);
        let session = self.sessions.get_mut(key)?;
        let (before, kept_size) = (session.queue_charge(), session.kept_size());
        if let (Some(storing), Some(spooled)) = (self.storing.as_deref_mut(), spooled) {
            session.take_in_spooled(now, spooled, storing);
        }
        if let (Some(storing), Some(stored)) = (self.storing.as_deref_mut(), stored) {
            session.take_back(now, stored, storing);
            self.exports.iter_mut().for_each(WorkerExport::forget_read);
        }
        match self.storing.as_deref_mut() {
            Some(storing) if session.has_backlog() => {
                session.take_in_behind(list, storing, &mut self.pending);
            }
            storing => session.take_in(now, list, storing, &mut self.pending),
        }
        if session.has_backlog() {
            let last = session.last_number_in_store();
            self.exports.iter_mut().for_each(|worker_export| worker_export.copy_up_to(key, last));
        }
        let after = session.queue_charge();
        self.sessions.update_queue_charge(before, after);
        self.pump(now, key); // What its link takes is not bounded.
        let before = self.sessions.get(key)?.queue_charge();
        self.enforce_bounds(now, key, before, kept_size);
        self.sessions.watch(now, key);
        Some(self.dropped(key) - dropped)
    }

    /// Takes messages out of a session that go elsewhere, as [`Session::take`] does.
    pub fn take(
        &mut self,
        key: SessionKey,
        why: Drop,
        is_meant: impl FnMut(&QueuedMessage) -> bool,
    ) -> Vec<QueuedMessage> {
        let Some(session) = self.sessions.get_mut(key) else {
            return Vec::new();
        };
        let before = session.queue_charge();
        let taken = session.take(why, &mut self.pending, is_meant);
        let after = session.queue_charge();
        self.sessions.update_queue_charge(before, after);
        self.counters.drop_many(why, taken.len() as u64);
        taken
    }

    /// Checks the sessions with unacknowledged messages: a session that has made no progress for too long is
    /// stalled. Returns the bytes that are queued for the sessions that count as connected.
    pub fn check_sessions(&mut self, now: Micros) -> usize {
        let mut waiting_bytes = 0;
        for key in self.sessions.take_watched() {
            self.pump(now, key);
            let Some(session) = self.sessions.get_mut(key) else {
                continue;
            };
            let before = session.queue_charge();
            if session.check_progress(now) {
                session.stall(&mut self.pending, self.storing.as_deref_mut());
            }
            let (is_idle, is_connected) = (session.is_idle(), session.link.is_some());
            let kept_size = session.kept_size();
            self.enforce_bounds(now, key, before, kept_size);
            self.update_charge(key);
            if let Some(session) = self.sessions.get_mut(key).filter(|_| is_idle) {
                if session.end_stored()
                    && let Some(storing) = &mut self.storing
                {
                    storing.settle(&mut self.pending.settled, &mut self.pending.moved);
                    storing.end(session.id);
                }
                session.shrink();
            }
            self.release_unless_congested(key);
            if !is_idle && is_connected {
                self.sessions.watch(now, key);
            }
            waiting_bytes +=
                self.sessions.get(key).filter(|session| session.is_ready()).map_or(0, Session::queued_bytes);
        }
        waiting_bytes
    }

    /// Changes the bounds of a session's queue. `is_client_limit`: its client asked for less than the bounds
    /// of this node.
    pub fn set_bounds(&mut self, now: Micros, key: SessionKey, bounds: Bounds, is_client_limit: bool) {
        if let Some(session) = self.sessions.get_mut(key) {
            session.queue.set_bounds(bounds);
            session.is_bounded = is_client_limit;
            let (before, kept_size) = (session.queue_charge(), session.kept_size());
            self.enforce_bounds(now, key, before, kept_size);
        }
    }

    /// A session is in a shared group from now on: all workers have to know its fitness.
    pub fn make_member(&mut self, key: SessionKey) {
        if let Some(session) = self.sessions.get_mut(key) {
            session.is_member = true;
            self.refill(key);
            self.report_fitness(key);
        }
    }

    /// How many messages for a session were dropped.
    pub fn dropped(&self, key: SessionKey) -> u64 {
        self.sessions
            .get(key)
            .map_or(0, |session| session.session_counters.dropped().map(|(_, count)| count).sum())
    }

    /// The session id of a shared group's member, and its fitness; `None`: the session has ended.
    pub fn fitness_of(&self, key: SessionKey) -> Option<(u64, Fitness)> {
        match self.sessions.get(key) {
            Some(session) => Some((session.id, session.fitness())),
            None => self.member_fitness.as_ref()?.of(key),
        }
    }

    fn report_fitness(&mut self, key: SessionKey) {
        if let Some(member_fitness) = &self.member_fitness
            && let Some(session) = self.sessions.get_mut(key)
            && let Some(fitness) = session.changed_fitness()
        {
            member_fitness.report(key, session.id, fitness);
        }
    }

    /// Gives queued messages to the session's link, as many as it takes.
    pub(super) fn pump(&mut self, now: Micros, key: SessionKey) {
        let Self { links, sessions, counters, load, pending, .. } = self;
        let Some(session) = sessions.get_mut(key).filter(|session| !session.queue.is_empty()) else {
            return;
        };
        let before = session.queue_charge();
        while let Some(first) = session.queue.front() {
            let (bytes, is_expired) = (first.field.len(), first.expires <= now);
            if is_expired && !Defect::SendsTheDead.is_present() {
                if let Some(expired) = session.queue.pop() {
                    session.expire(&expired, pending);
                }
                continue;
            }
            let entry = session.link.and_then(|link| links.get_mut(link));
            let Some(entry) = entry.filter(|entry| session.has_credit(bytes) && entry.link.has_room(bytes))
            else {
                break;
            };
            if let Some(queued_message) = session.queue.pop() {
                give(session, entry, queued_message.into(), (counters, load), pending);
            }
        }
        let (link, after) = (session.link, session.queue_charge());
        sessions.update_queue_charge(before, after);
        link.into_iter().for_each(|link| links.mark_dirty(link));
        self.refill(key);
        self.release_unless_congested(key);
        self.report_fitness(key);
    }

    /// Keeps a queue within its bounds, or within `kept_size` if that is more; `before` is its charge
    /// before. If the session acknowledges, a message that its publisher relies on is not dropped
    /// ([`Session::must_keep`]): its publisher is held back instead (§7.8).
    fn enforce_bounds(&mut self, now: Micros, key: SessionKey, before: QueueCharge, kept_size: Bounds) {
        let Self { sessions, counters, pending, storing, .. } = self;
        let Some(current) = sessions.get(key).map(Session::queue_charge) else {
            return;
        };
        let share = sessions.most_bytes(before, current);
        let has_more_than =
            |parts| sessions.get(key).is_some_and(|session| sessions.is_fuller_than(parts, session));
        let (has_all, has_half) = (has_more_than(1), has_more_than(2));
        let Some(session) = sessions.get_mut(key) else {
            return;
        };
        let most = match storing {
            Some(_) if session.is_kept_on_disk() => usize::MAX,
            // As in `most_bytes`, the messages that it has already stay.
            _ if has_all && before.is_ready && current.is_ready => share.min(before.bytes),
            _ => share,
        };
        let limit = session.queue.limit(kept_size, most);
        if session.queue.is_over(limit) {
            for expired in session.queue.take_expired(now) {
                session.expire(&expired, pending);
            }
            while !session.has_backlog()
                && session.queue.is_over(limit)
                && let Some(newest) = session.queue.newest()
            {
                // A retained message has no publisher that could be throttled.
                let is_retained = matches!(newest.meant_for, Some(MeantFor::Listener(_)));
                let excess = match session.must_keep(newest) && !Defect::DropsWhatWaits.is_present() {
                    true if is_retained && has_half => session.queue.pop_newest().map(Excess::Dropped),
                    true => break,
                    false => session.queue.next_excess(limit),
                };
                let Some(excess) = excess else { break };
                let queued_message = match excess {
                    Excess::Dropped(queued_message) => queued_message,
                    Excess::End(queued_message) => {
                        pending.overflowed.push(key);
                        queued_message
                    }
                };
                session.drop(Drop::QueueFull, &queued_message, pending);
                counters.drop(Drop::QueueFull);
                if session.is_bounded || Defect::DropsWhatWaits.is_present() {
                    // §7.3: a subscriber that chose to lose messages throttles no publisher.
                    session.stall(pending, storing.as_deref_mut());
                }
            }
        }
        if session.cut_backlog(limit, pending, counters) {
            pending.overflowed.push(key);
        }
        session.end_backlog_if_empty();
        let after = session.queue_charge();
        sessions.update_queue_charge(before, after);
        self.spill(key, share);
        self.report_fitness(key);
    }

    /// If the session is congested, throttles the link over which its newest message came (`source`; `None`: the
    /// session may drop that message). If the queues of all sessions are too large, all sessions are checked
    /// soon.
    pub(super) fn throttle_source(&mut self, now: Micros, key: SessionKey, source: Option<LinkId>) {
        if self.sessions.is_full() {
            self.sessions.check_by(now);
        }
        let Some(session) = self.sessions.get(key) else {
            return;
        };
        if let Some(source) = source
            && (session.queue.is_fuller_than(2) || self.sessions.is_fuller_than(2, session))
            && !Defect::DropsWhatWaits.is_present()
        {
            self.pending.throttle_changes.extend(self.throttled_links.add(key, source));
        }
    }

    /// Releases the publishers' links that a session throttles, unless the session is still congested.
    fn release_unless_congested(&mut self, key: SessionKey) {
        let is_congested = |session: &Session| {
            session.is_ready()
                && (session.queue.is_fuller_than(4) || self.sessions.is_fuller_than(4, session))
        };
        if !self.throttled_links.is_empty() && !self.sessions.get(key).is_some_and(is_congested) {
            self.release_publishers(key);
        }
    }

    /// Releases the publishers' links that a session throttles.
    fn release_publishers(&mut self, key: SessionKey) {
        if !self.throttled_links.is_empty() {
            self.pending.throttle_changes.extend(self.throttled_links.release(key));
        }
    }
}

/// Gives messages to the session's link, which has room for them.
fn give(
    session: &mut Session,
    entry: &mut Entry,
    queued_batch: QueuedBatch,
    (counters, load): (&mut Counters, &mut Option<Box<Load>>),
    pending: &mut PendingSettlement,
) {
    let QueuedBatch { queued_message, count, timed } = &queued_batch;
    let (chain, fields) = (Chain::Topic(queued_message.chain), queued_message.field.clone());
    let Ok(first) = entry.link.queue_batch(chain, fields, *count, queued_message.meant_for) else {
        // No datagram can carry it.
        counters.drop_many(Drop::QueueFull, u64::from(*count));
        return session.drop_all(Drop::QueueFull, queued_batch, pending);
    };
    counters.messages_out += u64::from(*count);
    queued_message.message_metrics.copies_leave(
        load,
        *count,
        &queued_message.field,
        &mut entry.timed,
        Queued::Reliable(first),
    );
    for (position, sample) in timed {
        entry.timed.add(Queued::Reliable(first + u64::from(*position)), sample);
    }
    session.launch(first, queued_batch);
}
