//! The queues of all sessions, as the records of the log say: which messages wait, and which segments of the
//! log are needed for them and for the retained messages.
//!
//! All of this is a function of the log, so a restart reads it from the index as it was at a checkpoint, and
//! adds the records since then. A queue in memory is small, however many messages wait: its entries are in
//! blocks, and all but the last block are in the index, or go there with the next checkpoint.
//!
//! ```text
//! Queues (this file) ──> queue   one session's queue ──> block   where its messages are in the log
//!       └──────────────────┴──> usage   how much of each segment is needed
//! ```

pub mod block;
pub mod queue;
pub mod usage;

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use crate::store::index::{Changes, Index};
use crate::store::queues::block::Entry;
use crate::store::queues::queue::{Blocks, Queue, QueueState};
use crate::store::queues::usage::{Usage, usage_of};
use crate::store::record::{
    self, AppendedBody, Kind, MessageBody, SettledBody, Target, put_varint, take_varint,
};
use crate::store::retained::RetainedPositions;

/// All queues.
#[derive(Default)]
pub struct Queues {
    by_session: HashMap<u64, Queue, FxBuildHasher>,
    pub retained: RetainedPositions,
    /// The id that was given last to blocks. No id is given twice, so the blocks of a queue that has ended are never
    /// taken for those of a later one of its session.
    last_id: u64,
    /// By the base of the segment. A segment that was rewritten stands for all that are in it.
    usage: BTreeMap<u64, Usage>,
    /// The sessions whose queues have changed since the last checkpoint.
    changed: BTreeSet<u64>,
    blocks: Blocks,
    /// The ids of blocks that are not needed since the last checkpoint, and where those in the index begin.
    ended: Vec<(u64, u64)>,
    /// By the name of a queue that is the end of a session's queue now: the session, and what is added to its numbers.
    appended: HashMap<u64, (u64, u64), FxBuildHasher>,
}

impl Queues {
    // Change

    /// Adds what a record says. It is at `position`, in the segment at `segment`.
    pub fn apply(&mut self, position: u64, segment: u64, kind: Kind, body: &[u8]) {
        match kind {
            Kind::Message => {
                if let Some(message) = MessageBody::parse(body) {
                    for target in message.targets() {
                        self.add(target.session, (target.number, position), segment, message.field.len());
                    }
                }
            }
            Kind::Settled | Kind::Moved => {
                if let Some(settled) = SettledBody::parse(body) {
                    for (first, last) in settled.ranges() {
                        self.settle(settled.session, first, last);
                    }
                }
            }
            Kind::Ended => _ = record::number_of(body).map(|session| self.end(session)),
            Kind::Appended => {
                if let Some(appended) = AppendedBody::parse(body) {
                    self.append(appended, position);
                }
            }
            Kind::Retained => {
                if let Some((number, _)) = record::retained_of(body) {
                    if let Some(before) = self.retained.add(number, position) {
                        let segment = usage_of(&self.usage, before);
                        self.usage.entry(segment).and_modify(|usage| usage.live -= 1);
                    }
                    let usage = self.usage.entry(segment).or_default();
                    usage.all += 1;
                    usage.live += 1;
                }
            }
            Kind::NotRetained => {
                let Self { retained, usage, .. } = self;
                for (first, last) in record::ranges_in(body) {
                    retained.remove(first, last, |position| {
                        let segment = usage_of(usage, position);
                        usage.entry(segment).and_modify(|usage| usage.live -= 1);
                    });
                }
            }
            Kind::Synced => {}
        }
    }

    /// Settles messages of a session's queue. Returns how many were not settled before.
    pub fn settle(&mut self, session: u64, first: u64, last: u64) -> u64 {
        let Self { by_session, usage, changed, .. } = self;
        let Some(queue) = by_session.get_mut(&session) else {
            return 0;
        };
        let count = queue.settle(first, last, usage);
        if count > 0 {
            changed.insert(session);
        }
        count
    }

    /// The segments from `first` up to `end` are one now.
    pub fn merge_segments(&mut self, first: u64, end: u64) {
        let others: Vec<u64> = self.usage.range(first + 1..end).map(|(segment, _)| *segment).collect();
        let mut usage = self.usage.get(&first).copied().unwrap_or_default();
        for other in others.iter().filter_map(|other| self.usage.remove(other)) {
            usage.live += other.live;
        }
        usage.all = usage.live;
        self.usage.insert(first, usage);
    }

    /// Fits the usage to the segments that there are, each with its base and its end: segments may have been
    /// merged or removed since the last checkpoint.
    pub fn fit_segments(&mut self, segments: &[(u64, u64)]) {
        for &(base, end) in segments {
            if base < end && self.usage.range(base + 1..end).next().is_some() {
                self.merge_segments(base, end);
            }
        }
        self.usage.retain(|base, usage| usage.live > 0 || segments.iter().any(|(known, _)| known == base));
    }

    /// A segment was removed, which had no live entries.
    pub fn forget_segment(&mut self, segment: u64) {
        self.usage.remove(&segment);
    }

    /// Takes out what has changed since the last checkpoint. `position`: the end of the log.
    ///
    /// # Errors
    /// The index fails.
    pub fn checkpoint(&mut self, position: u64, index: &impl Index) -> io::Result<Changes> {
        let mut changes = Changes { position, ..Changes::default() };
        for &session in &self.changed {
            let Some(queue) = self.by_session.get_mut(&session) else {
                changes.rows.push((session, None));
                continue;
            };
            let not_needed = queue.forget_parts();
            not_needed
                .iter()
                .filter_map(|part| part.queue)
                .for_each(|queue| _ = self.appended.remove(&queue));
            self.ended.extend(not_needed.iter().map(|part| (part.id, part.cleared)));
            let to_clear = queue.blocks_to_clear(&self.blocks, index)?;
            changes.cleared.extend(to_clear);
            changes.blocks.extend(queue.newest_block());
            changes.rows.push((session, Some(queue.row(to_clear.map(|(.., below)| below)))));
        }
        changes.cleared.extend(self.ended.iter().map(|(id, from)| (*id, *from, u64::MAX)));
        // What is cleared may still be among the new blocks.
        let cleared: HashMap<u64, u64, FxBuildHasher> =
            changes.cleared.iter().map(|(id, _, below)| (*id, *below)).collect();
        for (&(id, first), bytes) in &self.blocks {
            if cleared.get(&id).is_none_or(|below| first >= *below) {
                changes.blocks.push(((id, first), bytes.clone()));
            }
        }
        changes.retained = self.retained.changes();
        changes.totals = self.totals();
        Ok(changes)
    }

    /// The index has the changes of the last checkpoint.
    pub fn checkpointed(&mut self, changes: &Changes) {
        let cleared: HashMap<u64, u64, FxBuildHasher> =
            changes.cleared.iter().map(|(id, _, below)| (*id, *below)).collect();
        for session in std::mem::take(&mut self.changed) {
            if let Some(queue) = self.by_session.get_mut(&session) {
                queue.cleared(&cleared);
            }
        }
        self.blocks.clear();
        self.ended.clear();
        self.retained.checkpointed();
    }

    // Read

    /// The queues at the last checkpoint.
    ///
    /// # Errors
    /// The index fails, or is not valid.
    pub fn load(index: &impl Index) -> io::Result<Self> {
        let mut queues = Self::default();
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, "the index of the store is not valid");
        let totals = index.totals()?;
        let mut rest = &totals[..];
        if !rest.is_empty() {
            queues.last_id = take_varint(&mut rest).ok_or_else(invalid)?;
        }
        while !rest.is_empty() {
            let mut next = || take_varint(&mut rest);
            let (Some(segment), Some(all)) = (next(), next()) else {
                return Err(invalid());
            };
            queues.usage.insert(segment, Usage { all, live: 0 });
        }
        index.rows(&mut |session, row| {
            let queue = Queue::from_row(row).ok_or_else(invalid)?;
            for span in queue.spans() {
                let segment = usage_of(&queues.usage, span.segment);
                queues.usage.entry(segment).or_default().live += span.live;
            }
            queues.appended.extend(queue.names().map(|(name, base)| (name, (session, base))));
            queues.by_session.insert(session, queue);
            Ok(())
        })?;
        index.retained(&mut |number, position| {
            queues.retained.restore(number, position);
            let segment = usage_of(&queues.usage, position);
            queues.usage.entry(segment).or_default().live += 1;
        })?;
        Ok(queues)
    }

    /// The next unsettled entries of a session's queue from a number on, in order; as many as are together in
    /// a block. Empty: there are none.
    ///
    /// # Errors
    /// The index fails.
    pub fn entries(&self, session: u64, from: u64, index: &impl Index) -> io::Result<Vec<Entry>> {
        self.by_session.get(&session).map_or(Ok(Vec::new()), |queue| queue.entries(from, &self.blocks, index))
    }

    /// Whether a message still waits for a session. `position`: of the message's record. One of an earlier queue of
    /// the session, which has ended, may have the same number.
    pub fn is_live(&self, target: &Target<'_>, position: u64) -> bool {
        let now = self.after_appending(target);
        let start = if now.session == target.session { position } else { u64::MAX };
        self.by_session.get(&now.session).is_some_and(|queue| queue.is_live(now.number, start))
    }

    /// A target in the log as it is now: its queue may be the end of a session's queue.
    pub fn after_appending<'t>(&self, target: &Target<'t>) -> Target<'t> {
        match self.appended.get(&target.session) {
            Some((session, base)) => {
                Target { session: *session, number: base + target.number, options: target.options }
            }
            None => *target,
        }
    }

    /// Under which name and number the log has a message of a session's queue.
    pub fn in_log(&self, session: u64, number: u64) -> (u64, u64) {
        let name = self.by_session.get(&session).and_then(|queue| queue.name_of(number));
        name.unwrap_or((session, number))
    }

    /// The state of a session's queue; `None`: it has none.
    pub fn state(&self, session: u64) -> Option<QueueState> {
        self.by_session.get(&session).map(|queue| queue.state(session))
    }

    /// The states of all queues.
    pub fn states(&self) -> impl Iterator<Item = QueueState> + '_ {
        self.by_session.iter().map(|(session, queue)| queue.state(*session))
    }

    /// How much of each segment is needed.
    #[cfg(test)]
    pub fn usage(&self) -> impl Iterator<Item = (u64, Usage)> + '_ {
        self.usage.iter().map(|(segment, usage)| (*segment, *usage))
    }

    /// How much of the segment at `base` is needed.
    pub fn usage_of(&self, base: u64) -> Usage {
        self.usage.get(&base).copied().unwrap_or_default()
    }

    /// Each segment's live entries, and those of the queues' own accounts.
    #[cfg(test)]
    pub fn audit(&self) {
        let mut live: BTreeMap<u64, u64> = BTreeMap::new();
        for queue in self.by_session.values() {
            for span in queue.spans() {
                *live.entry(usage_of(&self.usage, span.segment)).or_default() += span.live;
            }
        }
        for (_, position) in self.retained.sorted() {
            *live.entry(usage_of(&self.usage, position)).or_default() += 1;
        }
        for (segment, usage) in &self.usage {
            assert_eq!(usage.live, live.remove(segment).unwrap_or(0), "segment {segment}");
        }
        assert!(live.values().all(|live| *live == 0));
    }

    fn add(&mut self, session: u64, (number, position): Entry, segment: u64, size: usize) {
        if number == 1 && self.by_session.contains_key(&session) {
            self.end(session); // The record that says so was damaged.
        }
        let Self { by_session, last_id, usage, changed, blocks, .. } = self;
        let queue = by_session.entry(session).or_insert_with(|| Queue::new(next_id(last_id), position));
        if queue.add((number, position), segment, size, blocks) {
            changed.insert(session);
            let usage = usage.entry(segment).or_default();
            usage.all += 1;
            usage.live += 1;
        }
    }

    fn end(&mut self, session: u64) {
        if let Some(queue) = self.by_session.remove(&session) {
            self.changed.insert(session);
            self.discard(&queue);
        }
    }

    /// Nothing of a queue is needed any more.
    fn discard(&mut self, queue: &Queue) {
        self.ended.extend(queue.parts().map(|part| (part.id, part.cleared)));
        queue.names().for_each(|(name, _)| _ = self.appended.remove(&name));
        for span in queue.spans() {
            let segment = usage_of(&self.usage, span.segment);
            self.usage.entry(segment).and_modify(|usage| usage.live -= span.live);
        }
    }

    fn append(&mut self, appended: AppendedBody, position: u64) {
        let AppendedBody { session, queue: name, base } = appended;
        let Some(other) = self.by_session.remove(&name).filter(|_| name != session) else {
            return;
        };
        if self.by_session.get(&session).is_some_and(|queue| base < queue.last()) {
            self.end(session); // As in `add`.
        }
        let Self { by_session, last_id, changed, blocks, .. } = self;
        changed.extend([name, session]);
        let queue = by_session.entry(session).or_insert_with(|| Queue::new(next_id(last_id), position));
        queue.append(other, name, base, next_id(last_id), blocks);
        let names = queue.names().map(|(name, base)| (name, (session, base)));
        self.appended.extend(names);
    }

    fn totals(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, self.last_id);
        for (&segment, usage) in &self.usage {
            put_varint(&mut bytes, segment);
            put_varint(&mut bytes, usage.all);
        }
        bytes
    }
}

fn next_id(last: &mut u64) -> u64 {
    *last += 1;
    *last
}
