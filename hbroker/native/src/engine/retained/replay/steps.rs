//! The steps of replays: what is sent, and whether there is room for more.

use bytes::Bytes;

use super::{Name, Replay, Request, StepResult};
use crate::Micros;
use crate::engine::metrics::counters::Drop;
use crate::engine::metrics::message_metrics::MessageMetrics;
use crate::engine::owner::forward::Forwarder;
use crate::engine::sessions::message::QueuedMessage;
use crate::engine::transport::outbound::Outbound;
use crate::link_id::SessionKey;
use crate::tables::retained::{Cursor, Wanted};
use crate::topic;
use crate::wire::{MeantFor, publish_of};

impl Forwarder {
    /// Sends a session what it requests: some of it now, the rest step by step. False: not all of it, because
    /// there are too many replays, of this session or in total.
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
        let result = self.advance(now, session, &mut replay, out);
        if result == StepResult::Done {
            return true;
        }
        let is_taken = self.replays.add(session, replay);
        if is_taken {
            self.go_on(now, session, result, out);
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
        let result = self.advance(now, session, &mut replay, out);
        if result != StepResult::Done && !self.replays.put_back(session, replay) {
            out.counters.drop(Drop::ReplaysFull);
        }
        self.go_on(now, session, result, out);
    }

    fn go_on(&mut self, now: Micros, session: SessionKey, result: StepResult, out: &mut Outbound) {
        match result {
            StepResult::Paused => out.await_room(session),
            StepResult::Done | StepResult::More => self.replays.resume(now, session),
        }
    }

    /// Takes one step of a replay.
    fn advance(
        &mut self,
        now: Micros,
        session: SessionKey,
        replay: &mut Replay,
        out: &mut Outbound,
    ) -> StepResult {
        if !out.has_room_for_retained(session, replay.qos, 0) {
            return StepResult::Paused;
        }
        let batch = {
            let mut retained = self.retained.lock();
            retained.set_time(now);
            retained.read(Wanted::Filter(&replay.wanted), replay.newest, &replay.cursor)
        };
        for piece in batch.pieces {
            // Every field was checked when it was received, so this cannot fail.
            let Some(publish) = publish_of(&piece.field) else {
                continue;
            };
            let qos = replay.qos.min(publish.qos);
            if !out.has_room_for_retained(session, qos, piece.field.len()) {
                replay.cursor =
                    Cursor { topic: publish.topic.into(), serial: piece.serial, fragments: piece.index };
                return StepResult::Paused;
            }
            send(now, session, &piece.field, qos, replay.name.1, out);
        }
        match batch.rest {
            Some(cursor) => {
                replay.cursor = cursor;
                StepResult::More
            }
            None => StepResult::Done,
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
