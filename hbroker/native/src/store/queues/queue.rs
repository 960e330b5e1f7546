//! One session's queue: which of its messages are settled, and where the others are in the log.
//!
//! ```text
//! parts    | appended queue (base 0) | appended queue (base 70) | its own |
//! blocks   | [ ][ ][ ][ ][ ]         | [ ][ ][ ]                | [ ][newest
//! spans    | segment 0      | segment 4096          | segment 8192        |
//! ```
//!
//! Most queues have one part. A queue that is appended to another one stays where it is, in the log and in the index:
//! it becomes a part, with numbers of its own, and what is to be added to these.

use std::collections::{BTreeMap, VecDeque};
use std::io;

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use smallvec::{SmallVec, smallvec};

use crate::link::receive::ranges::RangeSet;
use crate::store::index::Index;
use crate::store::queues::block::{self, Block, Entry};
use crate::store::queues::usage::{Usage, usage_of};
use crate::store::record::{put_varint, take_u64, take_varint};

/// Full blocks since the last checkpoint, by their id and their first number.
pub type Blocks = BTreeMap<(u64, u64), Vec<u8>>;

/// See the module.
#[derive(Debug)]
pub struct Queue {
    /// The position of its first message, or of the record by which another queue became its beginning.
    start: u64,
    /// The number after the newest message's.
    next: u64,
    /// All messages below this number are settled.
    head: u64,
    /// Settled numbers above that.
    settled: RangeSet,
    /// By number. New messages are in the last part.
    parts: SmallVec<[Part; 1]>,
    /// The newest entries of the last part.
    newest: Block,
    /// In which segments its messages are, by their numbers.
    spans: VecDeque<Span>,
}

/// The messages of a queue from one number up to the next part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The id of its blocks.
    pub id: u64,
    /// The name under which its messages are in the log; `None`: that of the queue.
    pub queue: Option<u64>,
    first: u64,
    /// In its blocks and in the log, its numbers are smaller by this.
    base: u64,
    /// All its blocks that begin below this number are gone from the index.
    pub cleared: u64,
}

/// The messages of a queue from `first` up to the next span are in this segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub segment: u64,
    first: u64,
    /// How many of them are not settled.
    pub live: u64,
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

/// A block of a part.
struct FoundBlock {
    base: u64,
    first: u64,
    bytes: Vec<u8>,
}

impl FoundBlock {
    /// The number of its first entry in the queue.
    fn first(&self) -> u64 {
        self.base + self.first
    }

    fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        block::entries(self.first, &self.bytes).map(|(number, position)| (self.base + number, position))
    }
}

impl Queue {
    /// `id`: for its blocks. `start`: the position of its first message.
    pub fn new(id: u64, start: u64) -> Self {
        Self {
            start,
            next: 1,
            head: 1,
            settled: RangeSet::default(),
            parts: smallvec![Part { id, queue: None, first: 1, base: 0, cleared: 0 }],
            newest: Block::default(),
            spans: VecDeque::new(),
        }
    }

    // Change

    /// Adds a message. False: it is there already.
    pub fn add(&mut self, (number, position): Entry, segment: u64, size: usize, blocks: &mut Blocks) -> bool {
        if number < self.next {
            return false;
        }
        if number > self.next {
            self.settled.insert_range(self.next, number - 1); // Those were lost with damaged records.
        }
        self.next = number + 1;
        self.newest.push((number - self.last_part().base, position));
        if self.newest.is_full() {
            self.end_block(blocks);
        }
        match self.spans.back_mut() {
            Some(span) if span.segment == segment => {
                span.live += 1;
                span.bytes += size as u64;
            }
            _ => self.spans.push_back(Span { segment, first: number, live: 1, bytes: size as u64 }),
        }
        self.advance();
        true
    }

    /// Settles messages. Returns how many were not settled before.
    pub fn settle(&mut self, first: u64, last: u64, usage: &mut BTreeMap<u64, Usage>) -> u64 {
        let (first, last) = (first.max(self.head), last.min(self.next - 1));
        if first > last {
            return 0;
        }
        let mut count = 0;
        for (from, to) in self.settled.missing(first, last) {
            count += to - from + 1;
            discount(&mut self.spans, usage, from, to);
        }
        self.settled.insert_range(first, last);
        self.advance();
        count
    }

    /// Appends another queue, whose name is `name`, and whose message n is `base` + n from now on. `id`: for the blocks
    /// of what comes behind it.
    pub fn append(&mut self, mut other: Self, name: u64, base: u64, id: u64, blocks: &mut Blocks) {
        self.end_block(blocks);
        other.end_block(blocks);
        if base >= self.next {
            self.settled.insert_range(self.next, base);
        }
        if other.head > 1 {
            self.settled.insert_range(base + 1, base + other.head - 1);
        }
        let settled = other.settled.ascending();
        settled.for_each(|(first, last)| self.settled.insert_range(base + first, base + last));
        self.spans.extend(other.spans.iter().map(|span| Span { first: base + span.first, ..*span }));
        self.parts.extend(other.parts.iter().map(|part| Part {
            queue: Some(part.queue.unwrap_or(name)),
            first: base + part.first,
            base: base + part.base,
            ..*part
        }));
        self.next = base + other.next;
        self.parts.push(Part { id, queue: None, first: self.next, base: 0, cleared: 0 });
        self.advance();
    }

    /// Forgets and returns the parts in which all is settled.
    pub fn forget_parts(&mut self) -> SmallVec<[Part; 1]> {
        let last = self.parts.len() - 1;
        let count = self.parts.partition_point(|part| part.first <= self.head).saturating_sub(1);
        self.parts.drain(..count.min(last)).collect()
    }

    /// The range of blocks of its first part that the index need not keep any more: their id, the first, and the end.
    ///
    /// # Errors
    /// The index fails.
    pub fn blocks_to_clear(
        &self,
        blocks: &Blocks,
        index: &impl Index,
    ) -> io::Result<Option<(u64, u64, u64)>> {
        let at_head = if self.head == self.next { None } else { self.block_at(self.head, blocks, index)? };
        let Part { id, base, cleared, .. } = self.parts[0];
        let kept = at_head.map_or(self.head.saturating_sub(base), |block| block.first).max(cleared);
        Ok((cleared < kept).then_some((id, cleared, kept)))
    }

    /// Below these numbers, by id, blocks are gone from the index.
    pub fn cleared(&mut self, below: &HashMap<u64, u64, FxBuildHasher>) {
        let part = &mut self.parts[0];
        part.cleared = below.get(&part.id).map_or(part.cleared, |below| part.cleared.max(*below));
    }

    /// Begins a new block of the last part.
    fn end_block(&mut self, blocks: &mut Blocks) {
        if !self.newest.is_empty() {
            let full = std::mem::take(&mut self.newest);
            blocks.insert((self.last_part().id, full.first()), full.bytes().to_vec());
        }
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

    // Read

    pub fn state(&self, session: u64) -> QueueState {
        let (live, bytes) =
            self.spans.iter().fold((0, 0), |(live, bytes), span| (live + span.live, bytes + span.bytes));
        QueueState { session, head: self.head, next: self.next, live, bytes }
    }

    /// Whether a message waits that is in the log at `position`. A message of an earlier queue, which has ended, may
    /// have the same number.
    pub fn is_live(&self, number: u64, position: u64) -> bool {
        position >= self.start && number < self.next && !self.is_settled(number)
    }

    /// The number of the newest message.
    pub fn last(&self) -> u64 {
        self.next - 1
    }

    pub fn spans(&self) -> impl Iterator<Item = &Span> {
        self.spans.iter()
    }

    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter()
    }

    /// The names under which the log has messages of this queue, and what is added to their numbers there.
    pub fn names(&self) -> impl Iterator<Item = (u64, u64)> {
        self.parts.iter().filter_map(|part| Some((part.queue?, part.base)))
    }

    /// Under which name and number the log has a message; `None`: its own.
    pub fn name_of(&self, number: u64) -> Option<(u64, u64)> {
        let part = &self.parts[self.part_at(number)?];
        part.queue.map(|queue| (queue, number - part.base))
    }

    /// The next unsettled entries from a number on, in order; as many as are together in a block. Empty: there are
    /// none.
    ///
    /// # Errors
    /// The index fails.
    pub fn entries(&self, from: u64, blocks: &Blocks, index: &impl Index) -> io::Result<Vec<Entry>> {
        let mut from = from.max(self.head);
        while from < self.next {
            let block = match self.block_at(from, blocks, index)? {
                Some(block) => block,
                None => match self.block_after(from, blocks, index)? {
                    Some(block) => block,
                    None => break,
                },
            };
            let found: Vec<Entry> =
                block.entries().filter(|(number, _)| *number >= from && !self.is_settled(*number)).collect();
            if !found.is_empty() {
                return Ok(found);
            }
            let last = block.entries().last().map_or(block.first(), |(number, _)| number);
            // All of this block is settled, or below.
            from = match self.block_after(last.max(from), blocks, index)? {
                Some(block) => block.first(),
                None => break,
            };
        }
        Ok(Vec::new())
    }

    /// The newest entries, and under which id and first number the index has them; `None`: they are not needed.
    pub fn newest_block(&self) -> Option<((u64, u64), Vec<u8>)> {
        let is_needed = !self.newest.is_empty() && self.head < self.next;
        is_needed.then(|| ((self.last_part().id, self.newest.first()), self.newest.bytes().to_vec()))
    }

    /// `cleared`: below this number, the blocks of its first part will be gone from the index.
    pub fn row(&self, cleared: Option<u64>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in [self.start, self.next, self.head, self.parts.len() as u64] {
            put_varint(&mut bytes, number);
        }
        for (at, part) in self.parts.iter().enumerate() {
            let cleared = cleared.filter(|_| at == 0).unwrap_or(part.cleared);
            for number in [part.id, part.first, part.base, cleared, u64::from(part.queue.is_some())] {
                put_varint(&mut bytes, number);
            }
            part.queue.iter().for_each(|queue| put_varint(&mut bytes, *queue));
        }
        put_varint(&mut bytes, self.spans.len() as u64);
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

    /// `None`: the row is not valid.
    pub fn from_row(mut row: &[u8]) -> Option<Self> {
        let mut queue = Self::new(0, take_varint(&mut row)?);
        queue.next = take_varint(&mut row)?;
        queue.head = take_varint(&mut row)?;
        queue.parts.clear();
        for _ in 0..take_varint(&mut row)? {
            let (id, first, base, cleared) = (
                take_varint(&mut row)?,
                take_varint(&mut row)?,
                take_varint(&mut row)?,
                take_varint(&mut row)?,
            );
            let is_named = take_varint(&mut row)? > 0;
            let name = if is_named { Some(take_varint(&mut row)?) } else { None };
            queue.parts.push(Part { id, queue: name, first, base, cleared });
        }
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
        (!queue.parts.is_empty()).then_some(queue)
    }

    fn is_settled(&self, number: u64) -> bool {
        number < self.head || self.settled.contains(number)
    }

    fn last_part(&self) -> &Part {
        self.parts.last().expect("it has one part at least")
    }

    /// The index of the part with a number.
    fn part_at(&self, number: u64) -> Option<usize> {
        self.parts.partition_point(|part| part.first <= number).checked_sub(1)
    }

    /// The last block of a number's part that begins at or below the number.
    fn block_at(&self, number: u64, blocks: &Blocks, index: &impl Index) -> io::Result<Option<FoundBlock>> {
        let Some(at) = self.part_at(number) else {
            return Ok(None);
        };
        let Part { id, base, .. } = self.parts[at];
        let number = number - base;
        let found = |(first, bytes)| FoundBlock { base, first, bytes };
        if at + 1 == self.parts.len() && !self.newest.is_empty() && self.newest.first() <= number {
            return Ok(Some(found((self.newest.first(), self.newest.bytes().to_vec()))));
        }
        let new = blocks.range((id, 0)..=(id, number)).next_back();
        if let Some((&(_, first), bytes)) = new {
            return Ok(Some(found((first, bytes.clone())))); // Those in the index begin below.
        }
        Ok(index.block_at(id, number)?.map(found))
    }

    /// The first block that begins above a number.
    fn block_after(
        &self,
        number: u64,
        blocks: &Blocks,
        index: &impl Index,
    ) -> io::Result<Option<FoundBlock>> {
        for at in self.part_at(number).unwrap_or(0)..self.parts.len() {
            let base = self.parts[at].base;
            let found = self.block_after_in(at, number.saturating_sub(base), blocks, index)?;
            if let Some((first, bytes)) = found {
                return Ok(Some(FoundBlock { base, first, bytes }));
            }
        }
        Ok(None)
    }

    /// The first block of a part that begins above a number of the part. The index may have an earlier state of a
    /// block that is here.
    fn block_after_in(
        &self,
        at: usize,
        number: u64,
        blocks: &Blocks,
        index: &impl Index,
    ) -> io::Result<Option<(u64, Vec<u8>)>> {
        let id = self.parts[at].id;
        let is_last = at + 1 == self.parts.len();
        let newest = (is_last && !self.newest.is_empty() && self.newest.first() > number)
            .then(|| (self.newest.first(), self.newest.bytes().to_vec()));
        let new = blocks.range((id, number + 1)..=(id, u64::MAX)).next();
        let here = new.map(|(&(_, first), bytes)| (first, bytes.clone())).or(newest);
        let stored = index.block_after(id, number)?;
        let is_stored = |(first, _): &(u64, Vec<u8>)| here.as_ref().is_none_or(|(new, _)| first < new);
        Ok(stored.filter(is_stored).or(here))
    }
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
