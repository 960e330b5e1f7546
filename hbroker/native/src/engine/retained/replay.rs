//! Retained messages on their way to a new subscription (§7.6).
//!
//! Who subscribes gets what was kept by then and is still kept when its turn comes. What is kept later it gets as any subscriber does. So
//! what is left to be sent is a place among the topics, however much that is: a *replay*. It goes on a step at a time, each bounded in
//! what it looks at and sends: the sessions take turns, and so do the replays of one. The first step is taken at once.
//!
//! A replay *pauses* where its session has no room: no link, no credit while something waits, or a link with much to send. It goes on when the
//! link was looked at and there is room. Nothing of it is queued meanwhile, but for a small part of what a queue takes (`has_room_for_retained`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use crate::Micros;
use crate::engine::metrics::counters::Drop;
use crate::engine::metrics::load::MessageMetrics;
use crate::engine::owner::forward::Forwarder;
use crate::engine::sessions::message::{QueuedMessage, publish_of};
use crate::engine::transport::outbound::Outbound;
use crate::link_id::SessionKey;
use crate::tables::retained::{Cursor, Wanted};
use crate::topic;
use crate::wire::MeantFor;

/// What keeping a replay costs beside its filter and the topic that it came to, about.
const OVERHEAD: usize = 384;
/// What the replays of one session may cost; and those of all sessions of a worker, of which one may have no more than this part of what is left.
const MOST_OF_ONE: usize = 1 << 20;
/// What they may come to cost as they go on, from topic to topic.
const MOST_ON_THE_WAY: usize = 4 * MOST_OF_ONE;
const MOST_OF_ALL: usize = 64 << 20;
const SHARE: usize = 8;
/// One replay of this cost each session may always have.
const ALWAYS: usize = 2_048;

/// What somebody asks to be sent of what is retained.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The filter of a subscription, at which `QoS`, and the listener for which it is; 0: all of them.
    pub filter: &'a str,
    pub qos: u8,
    pub listener: u64,
    /// Nothing else is asked for.
    pub subtree: &'a str,
    /// Nor what comes before this topic.
    pub first: &'a str,
}

impl<'a> Request<'a> {
    /// All that matches.
    pub fn of(filter: &'a str, qos: u8, listener: u64) -> Self {
        Self { filter, qos, listener, subtree: "", first: "" }
    }
}

/// What is left to be sent of what was retained, to one listener of a session.
#[derive(Debug)]
pub struct Replay {
    name: Name,
    /// What matches the filter in the subtree.
    wanted: Arc<str>,
    qos: u8,
    /// What was kept last when it began.
    newest: u64,
    cursor: Cursor,
}

/// By what it is known: filter, listener, subtree.
type Name = (Arc<str>, u64, Arc<str>);

/// How far a replay got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Done,
    /// More is left.
    PartialMessage,
    /// More is left, and there is no room.
    Paused,
}

/// The replays of a worker's sessions.
#[derive(Default)]
pub struct Replays {
    sessions: BTreeMap<SessionKey, OfSession>,
    /// The sessions whose replays go on, the next one first. One that has none any more is passed over.
    turns: VecDeque<SessionKey>,
    bytes: usize,
    /// Since when there is one that goes on.
    since: Micros,
}

/// The replays of one session, the one whose turn comes next first.
#[derive(Default)]
struct OfSession {
    replays: BTreeMap<u64, Replay>,
    names: BTreeMap<Name, u64>,
    last: u64,
    bytes: usize,
    has_turn: bool,
}

impl Replay {
    fn cost(&self) -> usize {
        let (filter, _, subtree) = &self.name;
        filter.len() + subtree.len() + self.wanted.len() + self.cursor.topic.len() + OVERHEAD
    }
}

impl Replays {
    /// When the next step is due; `Micros::MAX`: all pause.
    pub fn due(&self) -> Micros {
        if self.turns.is_empty() { Micros::MAX } else { self.since }
    }

    /// A session's replays may go on.
    pub fn resume(&mut self, now: Micros, session: SessionKey) {
        if let Some(known) = self.sessions.get_mut(&session)
            && !std::mem::replace(&mut known.has_turn, true)
        {
            if self.turns.is_empty() {
                self.since = now;
            }
            self.turns.push_back(session);
        }
    }

    /// Forgets those of a filter for one listener, which asks for all of it; `None`: for all of them, since it was unsubscribed.
    pub fn forget(&mut self, session: SessionKey, filter: &str, listener: Option<u64>) {
        let next = |known: &OfSession| {
            let from: Name = (filter.into(), listener.unwrap_or(0), "".into());
            let (name, _) = known.names.range(from..).next()?;
            let is_one = *name.0 == *filter && listener.is_none_or(|listener| name.1 == listener);
            is_one.then(|| name.clone())
        };
        while let Some(name) = self.sessions.get(&session).and_then(next) {
            self.forget_one(session, &name);
        }
    }

    /// Forgets those of a session, which has ended.
    pub fn forget_session(&mut self, session: SessionKey) {
        self.bytes -= self.sessions.remove(&session).map_or(0, |known| known.bytes);
    }

    /// What is left to be asked for of a subtree, by session.
    pub fn within<'a>(&'a self, subtree: &'a str) -> impl Iterator<Item = (SessionKey, Request<'a>)> {
        let of_session = |(&session, known): (&SessionKey, &'a OfSession)| {
            known.replays.values().map(move |replay| (session, replay))
        };
        let all = self.sessions.iter().flat_map(of_session);
        let touching = all.filter(|(_, replay)| topic::filter_touches(&replay.wanted, subtree));
        touching.map(|(session, replay)| {
            let ((filter, listener, _), first) = (&replay.name, &*replay.cursor.topic);
            (session, Request { filter, qos: replay.qos, listener: *listener, subtree, first })
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sessions.values().map(|known| known.replays.len()).sum()
    }

    /// Adds one, behind those of its session. False: there are too many.
    fn add(&mut self, session: SessionKey, replay: Replay) -> bool {
        let cost = replay.cost();
        let used = self.sessions.get(&session).map_or(0, |known| known.bytes);
        let share = MOST_OF_ALL.saturating_sub(self.bytes) / SHARE;
        let is_taken = used + cost <= MOST_OF_ONE.min(share) || used + cost <= ALWAYS;
        if is_taken {
            self.put(session, replay);
        }
        is_taken
    }

    /// Puts one back that has taken a step, behind those of its session. False: it has come to long topics, and costs too much.
    fn put_back(&mut self, session: SessionKey, replay: Replay) -> bool {
        let used = self.sessions.get(&session).map_or(0, |known| known.bytes);
        let is_taken = used + replay.cost() <= MOST_ON_THE_WAY;
        if is_taken {
            self.put(session, replay);
        }
        is_taken
    }

    fn put(&mut self, session: SessionKey, replay: Replay) {
        let cost = replay.cost();
        let known = self.sessions.entry(session).or_default();
        known.last += 1;
        known.names.insert(replay.name.clone(), known.last);
        known.replays.insert(known.last, replay);
        known.bytes += cost;
        self.bytes += cost;
    }

    /// The session whose turn it is.
    fn next(&mut self) -> Option<SessionKey> {
        while let Some(session) = self.turns.pop_front() {
            if let Some(known) = self.sessions.get_mut(&session) {
                known.has_turn = false;
                return Some(session);
            }
        }
        None
    }

    /// Takes out the replay of a session whose turn it is.
    fn take_first(&mut self, session: SessionKey) -> Option<Replay> {
        let known = self.sessions.get(&session)?;
        let name = known.replays.values().next()?.name.clone();
        self.forget_one(session, &name)
    }

    /// Takes one out.
    fn forget_one(&mut self, session: SessionKey, name: &Name) -> Option<Replay> {
        let known = self.sessions.get_mut(&session)?;
        let replay = known.replays.remove(&known.names.remove(name)?)?;
        known.bytes -= replay.cost();
        self.bytes -= replay.cost();
        if known.replays.is_empty() {
            self.sessions.remove(&session);
        }
        Some(replay)
    }
}

impl Forwarder {
    /// Sends a session what it asks for: some of it now, the rest by and by. False: not all of it, for the session, or all together, have too
    /// many replays.
    pub fn replay(
        &mut self,
        now: Micros,
        session: SessionKey,
        request: Request<'_>,
        out: &mut Outbound,
    ) -> bool {
        if out.sessions.get(session).is_none() {
            return true;
        }
        let Request { filter, qos, listener, subtree, first } = request;
        let name: Name = (filter.into(), listener, subtree.into());
        match subtree {
            "" => self.replays.forget(session, filter, Some(listener)),
            _ => _ = self.replays.forget_one(session, &name),
        }
        let wanted = topic::filter_within(filter, subtree);
        let mut cursor = Wanted::Filter(&wanted).first();
        if *cursor.topic < *first {
            cursor.topic = first.into();
        }
        let newest = self.retained.lock().newest();
        let mut replay = Replay { name, wanted: wanted.into(), qos, newest, cursor };
        let progress = self.advance(now, session, &mut replay, out);
        if progress == Progress::Done {
            return true;
        }
        let is_taken = self.replays.add(session, replay);
        if is_taken {
            self.go_on(now, session, progress, out);
        } else {
            out.counters.drop(Drop::ReplaysFull);
        }
        is_taken
    }

    /// Takes one step of one session's replays.
    pub fn step_replays(&mut self, now: Micros, out: &mut Outbound) {
        let Some(session) = self.replays.next() else {
            return;
        };
        let Some(mut replay) = self.replays.take_first(session) else {
            return;
        };
        let progress = self.advance(now, session, &mut replay, out);
        if progress != Progress::Done && !self.replays.put_back(session, replay) {
            out.counters.drop(Drop::ReplaysFull);
        }
        self.go_on(now, session, progress, out);
    }

    fn go_on(&mut self, now: Micros, session: SessionKey, progress: Progress, out: &mut Outbound) {
        match progress {
            Progress::Paused => out.await_room(session),
            Progress::Done | Progress::PartialMessage => self.replays.resume(now, session),
        }
    }

    /// Takes one step of a replay.
    fn advance(
        &mut self,
        now: Micros,
        session: SessionKey,
        replay: &mut Replay,
        out: &mut Outbound,
    ) -> Progress {
        if !out.has_room_for_retained(session, replay.qos, 0) {
            return Progress::Paused;
        }
        let batch = {
            let mut retained = self.retained.lock();
            retained.set_time(now);
            retained.read(Wanted::Filter(&replay.wanted), replay.newest, &replay.cursor)
        };
        for piece in batch.pieces {
            // A field was checked when it came in; what does not parse any more cannot have been stored.
            let Some(publish) = publish_of(&piece.field) else {
                continue;
            };
            let qos = replay.qos.min(publish.qos);
            if !out.has_room_for_retained(session, qos, piece.field.len()) {
                replay.cursor =
                    Cursor { topic: publish.topic.into(), serial: piece.serial, fragments: piece.index };
                return Progress::Paused;
            }
            send(now, session, &piece.field, qos, replay.name.1, out);
        }
        match batch.rest {
            Some(cursor) => {
                replay.cursor = cursor;
                Progress::PartialMessage
            }
            None => Progress::Done,
        }
    }
}

fn send(now: Micros, session: SessionKey, field: &Bytes, qos: u8, listener: u64, out: &mut Outbound) {
    let Some(publish) = publish_of(field) else {
        return;
    };
    let meant_for = Some(MeantFor::Listener(listener));
    if qos == 0 {
        out.offer_copy(session, field, meant_for, &MessageMetrics::of(&publish));
    } else {
        let queued_message = QueuedMessage::new(&publish, field.clone());
        out.offer(now, session, QueuedMessage { qos, meant_for, ..queued_message });
    }
}

#[cfg(test)]
mod tests;
