//! The queues of all sessions, as the records of the log say: which messages wait, and which segments of the
//! log are needed for them and for the retained messages.
//!
//! All of this is a function of the log, so a restart reads it from the index as it was at a checkpoint, and
//! adds the records since then. A queue in memory is small, however many messages wait: its entries are in
//! blocks, and all but the last block are in the index, or go there with the next checkpoint.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use crate::link::receive::ranges::RangeSet;
use crate::store::block::{self, Block, Entry};
use crate::store::index::{Changes, Index};
use crate::store::record::{self, Kind, MessageBody, SettledBody, Target, put_varint, take_u64, take_varint};
use crate::store::retained::RetainedPositions;

/// All queues.
#[derive(Default)]
pub struct Queues {
    by_session: HashMap<u64, Queue, FxBuildHasher>,
    pub retained: RetainedPositions,
    /// The id that was given to the last new queue. No id is given twice, so the blocks of a queue that has
    /// ended are never taken for those of a later one of its session.
    last_id: u64,
    /// By the base of the segment. A segment that was rewritten stands for all that are in it.
    usage: BTreeMap<u64, Usage>,
    /// The sessions whose queues have changed since the last checkpoint.
    changed: BTreeSet<u64>,
    /// Full blocks since the last checkpoint, by the queue's id and their first number.
    blocks: BTreeMap<(u64, u64), Vec<u8>>,
    /// The ids of queues that have ended since the last checkpoint, and where their blocks in the index
    /// begin.
    ended: Vec<(u64, u64)>,
}

/// How much of a segment is needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// How many entries of queues its messages had, and how many are not settled. A retained message counts as
    /// one entry until it is not retained any more.
    pub all: u64,
    pub live: u64,
}

#[derive(Debug)]
struct Queue {
    id: u64,
    /// The position of its first message.
    start: u64,
    /// The number after the newest message's.
    next: u64,
    /// All messages below this number are settled.
    head: u64,
    /// Settled numbers above that.
    settled: RangeSet,
    /// The newest entries.
    newest: Block,
    /// In which segments its messages are, by their numbers.
    spans: VecDeque<Span>,
    /// All blocks that begin below this number are gone from the index.
    cleared: u64,
}

/// The messages of a queue from `first` up to the next span are in this segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    segment: u64,
    first: u64,
    /// How many of them are not settled.
    live: u64,
    /// The bytes of those; an estimate if some are settled.
    bytes: u64,
}

/// The state of one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueState {
    pub session: u64,
    /// All messages below this number are settled.
    pub head: u64,
    /// The number after the newest message's.
    pub next: u64,
    /// How many messages are not settled.
    pub live: u64,
    /// About how many bytes these have.
    pub bytes: u64,
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
        let (first, last) = (first.max(queue.head), last.min(queue.next - 1));
        if first > last {
            return 0;
        }
        changed.insert(session);
        let mut count = 0;
        for (from, to) in queue.settled.missing(first, last) {
            count += to - from + 1;
            discount(&mut queue.spans, usage, from, to);
        }
        queue.settled.insert_range(first, last);
        queue.advance();
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
            let kept = queue.first_needed(&self.blocks, index)?;
            if kept > queue.cleared {
                changes.cleared.push((queue.id, queue.cleared, kept));
                queue.cleared = kept;
            }
            if !queue.newest.is_empty() && queue.head < queue.next {
                changes.blocks.push(((queue.id, queue.newest.first()), queue.newest.bytes().to_vec()));
            }
            changes.rows.push((session, Some(queue.row())));
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
    pub fn checkpointed(&mut self) {
        self.changed.clear();
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
            for span in &queue.spans {
                let segment = usage_of(&queues.usage, span.segment);
                queues.usage.entry(segment).or_default().live += span.live;
            }
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
        let Some(queue) = self.by_session.get(&session) else {
            return Ok(Vec::new());
        };
        let mut from = from.max(queue.head);
        while from < queue.next {
            let (first, bytes) = match queue.block_at(from, &self.blocks, index)? {
                Some(block) => block,
                None => match queue.block_after(from, &self.blocks, index)? {
                    Some(block) => block,
                    None => break,
                },
            };
            let all = block::entries(first, &bytes);
            let found: Vec<Entry> =
                all.filter(|(number, _)| *number >= from && !queue.is_settled(*number)).collect();
            if !found.is_empty() {
                return Ok(found);
            }
            let last = block::entries(first, &bytes).last().map_or(first, |(number, _)| number);
            // All of this block is settled, or below.
            from = match queue.block_after(last.max(from), &self.blocks, index)? {
                Some((next, _)) => next,
                None => break,
            };
        }
        Ok(Vec::new())
    }

    /// Whether a message still waits for a session. `position`: of the message's record. One of an earlier queue of
    /// the session, which has ended, may have the same number.
    pub fn is_live(&self, target: &Target<'_>, position: u64) -> bool {
        let &Target { session, number, .. } = target;
        self.by_session
            .get(&session)
            .is_some_and(|queue| position >= queue.start && number < queue.next && !queue.is_settled(number))
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
            for span in &queue.spans {
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
        let Self { by_session, last_id, usage, changed, blocks, .. } = self;
        let queue = by_session.entry(session).or_insert_with(|| {
            *last_id += 1;
            Queue::new(*last_id, position)
        });
        if number < queue.next {
            return; // It is there already.
        }
        changed.insert(session);
        if number > queue.next {
            queue.settled.insert_range(queue.next, number - 1); // Those were lost with damaged records.
        }
        queue.next = number + 1;
        queue.newest.push((number, position));
        if queue.newest.is_full() {
            let full = std::mem::take(&mut queue.newest);
            blocks.insert((queue.id, full.first()), full.bytes().to_vec());
        }
        match queue.spans.back_mut() {
            Some(span) if span.segment == segment => {
                span.live += 1;
                span.bytes += size as u64;
            }
            _ => queue.spans.push_back(Span { segment, first: number, live: 1, bytes: size as u64 }),
        }
        let usage = usage.entry(segment).or_default();
        usage.all += 1;
        usage.live += 1;
        queue.advance();
    }

    fn end(&mut self, session: u64) {
        if let Some(queue) = self.by_session.remove(&session) {
            self.changed.insert(session);
            self.ended.push((queue.id, queue.cleared));
            for span in &queue.spans {
                let segment = usage_of(&self.usage, span.segment);
                self.usage.entry(segment).and_modify(|usage| usage.live -= span.live);
            }
        }
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

/// The segment that has a position. One of its records must have had an entry.
fn usage_of(usage: &BTreeMap<u64, Usage>, position: u64) -> u64 {
    usage.range(..=position).next_back().map_or(position, |(base, _)| *base)
}

/// The messages from one number to another are settled.
fn discount(spans: &mut VecDeque<Span>, usage: &mut BTreeMap<u64, Usage>, from: u64, to: u64) {
    let start = spans.partition_point(|span| span.first <= from).saturating_sub(1);
    for at in start..spans.len() {
        let next = spans.get(at + 1).map_or(u64::MAX, |span| span.first);
        let span = &mut spans[at];
        if span.first > to {
            break;
        }
        let (first, last) = (from.max(span.first), to.min(next - 1));
        if first <= last {
            let count = last - first + 1;
            span.bytes -= (u128::from(span.bytes) * u128::from(count) / u128::from(span.live)) as u64;
            span.live -= count;
            let segment = usage_of(usage, span.segment);
            usage.entry(segment).and_modify(|usage| usage.live -= count);
        }
    }
}

impl Queue {
    fn new(id: u64, start: u64) -> Self {
        Self {
            id,
            start,
            next: 1,
            head: 1,
            settled: RangeSet::new(usize::MAX),
            newest: Block::default(),
            spans: VecDeque::new(),
            cleared: 0,
        }
    }

    fn state(&self, session: u64) -> QueueState {
        let (live, bytes) =
            self.spans.iter().fold((0, 0), |(live, bytes), span| (live + span.live, bytes + span.bytes));
        QueueState { session, head: self.head, next: self.next, live, bytes }
    }

    fn is_settled(&self, number: u64) -> bool {
        number < self.head || self.settled.contains(number)
    }

    /// Moves the head over what is settled.
    fn advance(&mut self) {
        if let Some((first, last)) = self.settled.lowest()
            && first <= self.head
        {
            self.head = self.head.max(last + 1);
            self.settled.forget_below(self.head);
        }
        while self.spans.front().is_some_and(|span| span.live == 0)
            && self.spans.get(1).map_or(self.next, |span| span.first) <= self.head
        {
            self.spans.pop_front();
        }
        if self.head == self.next {
            self.newest = Block::default();
        }
    }

    /// The number at which the first block begins that has an unsettled message.
    fn first_needed(&self, blocks: &BTreeMap<(u64, u64), Vec<u8>>, index: &impl Index) -> io::Result<u64> {
        if self.head == self.next {
            return Ok(self.next);
        }
        let at_head = self.block_at(self.head, blocks, index)?;
        Ok(at_head.map_or(self.head, |(first, _)| first))
    }

    /// The last block that begins at or below a number.
    fn block_at(
        &self,
        number: u64,
        blocks: &BTreeMap<(u64, u64), Vec<u8>>,
        index: &impl Index,
    ) -> io::Result<Option<(u64, Vec<u8>)>> {
        if !self.newest.is_empty() && self.newest.first() <= number {
            return Ok(Some((self.newest.first(), self.newest.bytes().to_vec())));
        }
        let new = blocks.range((self.id, 0)..=(self.id, number)).next_back();
        if let Some((&(_, first), bytes)) = new {
            return Ok(Some((first, bytes.clone()))); // Those in the index begin below.
        }
        index.block_at(self.id, number)
    }

    /// The first block that begins above a number. The index may have an earlier state of a block that is here.
    fn block_after(
        &self,
        number: u64,
        blocks: &BTreeMap<(u64, u64), Vec<u8>>,
        index: &impl Index,
    ) -> io::Result<Option<(u64, Vec<u8>)>> {
        let newest = (!self.newest.is_empty() && self.newest.first() > number)
            .then(|| (self.newest.first(), self.newest.bytes().to_vec()));
        let new = blocks.range((self.id, number + 1)..=(self.id, u64::MAX)).next();
        let here = new.map(|(&(_, first), bytes)| (first, bytes.clone())).or(newest);
        let stored = index.block_after(self.id, number)?;
        let is_stored = |(first, _): &(u64, Vec<u8>)| here.as_ref().is_none_or(|(new, _)| first < new);
        Ok(stored.filter(is_stored).or(here))
    }

    fn row(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in [self.id, self.start, self.next, self.head, self.cleared, self.spans.len() as u64] {
            put_varint(&mut bytes, number);
        }
        for span in &self.spans {
            [span.segment, span.first, span.live, span.bytes]
                .into_iter()
                .for_each(|number| put_varint(&mut bytes, number));
        }
        for (first, last) in self.settled.descending() {
            bytes.extend_from_slice(&first.to_le_bytes());
            bytes.extend_from_slice(&last.to_le_bytes());
        }
        bytes
    }

    fn from_row(mut row: &[u8]) -> Option<Self> {
        let mut queue = Self::new(take_varint(&mut row)?, take_varint(&mut row)?);
        queue.next = take_varint(&mut row)?;
        queue.head = take_varint(&mut row)?;
        queue.cleared = take_varint(&mut row)?;
        for _ in 0..take_varint(&mut row)? {
            let segment = take_varint(&mut row)?;
            let (first, live, bytes) =
                (take_varint(&mut row)?, take_varint(&mut row)?, take_varint(&mut row)?);
            queue.spans.push_back(Span { segment, first, live, bytes });
        }
        let mut ranges = Vec::new();
        while !row.is_empty() {
            ranges.push((take_u64(&mut row)?, take_u64(&mut row)?));
        }
        ranges.into_iter().rev().for_each(|(first, last)| queue.settled.insert_range(first, last));
        Some(queue)
    }
}
