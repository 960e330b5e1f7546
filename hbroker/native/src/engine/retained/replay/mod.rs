//! The retained messages that a new subscription still gets (§7.6).
//!
//! A new subscriber gets the messages that are retained when it subscribes and are still retained when their
//! turn comes. It gets later ones as any subscriber does. So the state of the transmission is a position
//! among the topics, however many messages follow: a *replay*. It continues in steps; each step is bounded in
//! what it reads and sends. The sessions take turns, and so do the replays of one session. The first step is
//! taken at once.
//!
//! A replay *pauses* if its session has no room: no link, no credit while messages wait, or a link with many
//! queued bytes. It continues once its link has built datagrams and there is room. Meanwhile its messages are
//! not queued, except for a small part of the session's queue (`has_room_for_retained`).

mod steps;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::Micros;
use crate::link_id::SessionKey;
use crate::tables::retained::Cursor;
use crate::topic;

/// The approximate cost of a replay, without its filter and its current topic.
const OVERHEAD: usize = 384;
/// The bound for the replays of one session. All replays of a worker together have the bound `MOST_OF_ALL`;
/// of what is left of it, one session may have one part in `SHARE`.
const MOST_OF_ONE: usize = 1 << 20;
/// The bound for the replays of one session as they advance from topic to topic.
const MOST_ON_THE_WAY: usize = 4 * MOST_OF_ONE;
const MOST_OF_ALL: usize = 64 << 20;
const SHARE: usize = 8;
/// Each session may always have replays of this cost.
const ALWAYS: usize = 2_048;

/// A request for retained messages.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The filter of a subscription, its `QoS`, and the listener for which it is made; 0: all listeners.
    pub filter: &'a str,
    pub qos: u8,
    pub listener: u64,
    /// Only the messages of this subtree are requested.
    pub subtree: &'a str,
    /// Topics before this one are not requested.
    pub first: &'a str,
}

/// The rest of the retained messages for one listener of a session.
#[derive(Debug)]
pub struct Replay {
    name: Name,
    /// The filter for what matches in the subtree.
    wanted: Arc<str>,
    qos: u8,
    /// The newest retained message when the replay began.
    newest: u64,
    cursor: Cursor,
}

/// The key of a replay: filter, listener, subtree.
type Name = (Arc<str>, u64, Arc<str>);

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepResult {
    Done,
    /// More messages are left.
    More,
    /// More messages are left, and there is no room.
    Paused,
}

/// The replays of a worker's sessions.
#[derive(Default)]
pub struct Replays {
    sessions: BTreeMap<SessionKey, SessionReplays>,
    /// The sessions whose replays can continue, the next one first. A session that has no replays any more is
    /// skipped.
    turns: VecDeque<SessionKey>,
    bytes: usize,
    /// Since when a replay can continue.
    since: Micros,
}

/// The replays of one session, the next one first.
#[derive(Default)]
struct SessionReplays {
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
    /// When the next step is due; `Micros::MAX`: all replays pause.
    pub fn due(&self) -> Micros {
        if self.turns.is_empty() { Micros::MAX } else { self.since }
    }

    /// The replays of a session may continue.
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

    /// Forgets the replays of a filter for one listener, which requests all of it again. `None`: for all
    /// listeners, because the filter was unsubscribed.
    pub fn forget(&mut self, session: SessionKey, filter: &str, listener: Option<u64>) {
        let next = |known: &SessionReplays| {
            let from: Name = (filter.into(), listener.unwrap_or(0), "".into());
            let (name, _) = known.names.range(from..).next()?;
            let is_one = *name.0 == *filter && listener.is_none_or(|listener| name.1 == listener);
            is_one.then(|| name.clone())
        };
        while let Some(name) = self.sessions.get(&session).and_then(next) {
            self.forget_one(session, &name);
        }
    }

    /// Forgets the replays of a session that has ended.
    pub fn forget_session(&mut self, session: SessionKey) {
        self.bytes -= self.sessions.remove(&session).map_or(0, |known| known.bytes);
    }

    /// Requests for the messages of a subtree that are still to be sent, by session.
    pub fn within<'a>(&'a self, subtree: &'a str) -> impl Iterator<Item = (SessionKey, Request<'a>)> {
        let of_session = |(&session, known): (&SessionKey, &'a SessionReplays)| {
            known.replays.values().map(move |replay| (session, replay))
        };
        let all = self.sessions.iter().flat_map(of_session);
        let touching = all.filter(|(_, replay)| topic::filter_touches(&replay.wanted, subtree));
        touching.map(|(session, replay)| {
            let ((filter, listener, _), first) = (&replay.name, &*replay.cursor.topic);
            (session, Request { filter, qos: replay.qos, listener: *listener, subtree, first })
        })
    }

    /// The number of replays.
    pub fn len(&self) -> usize {
        self.sessions.values().map(|known| known.replays.len()).sum()
    }

    /// Adds a replay after those of its session. False: there are too many.
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

    /// Puts a replay back that has taken a step, after those of its session. False: it has reached long
    /// topics, and costs too much.
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

    /// Takes out the replay whose turn it is in a session.
    fn take_first(&mut self, session: SessionKey) -> Option<Replay> {
        let known = self.sessions.get(&session)?;
        let name = known.replays.values().next()?.name.clone();
        self.forget_one(session, &name)
    }

    /// Takes one replay out.
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

#[cfg(test)]
mod tests;
