//! In which order the messages of two logs are written: each publisher's by their sequences.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::mpsc::{Receiver, Sender};

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use crate::store::merge::Identity;
use crate::store::merge::chunk::{Chunk, OwnedRecord, Record};

/// About the memory that a range, and a publisher, take.
const RANGE: usize = 16;
const PUBLISHER: usize = 64;

/// The sequences of the messages of a log that were not reached yet, by publisher.
#[derive(Default)]
pub struct Order {
    publishers: HashMap<u64, VecDeque<(u64, u64)>, FxBuildHasher>,
    bytes: usize,
}

impl Order {
    // Change

    /// The log has this message. Returns whether that was known.
    pub fn add(&mut self, identity: &Identity) -> bool {
        let &Identity { publisher, sequence, .. } = identity;
        if publisher == 0 {
            return false;
        }
        let ranges = self.publishers.entry(publisher).or_insert_with(|| {
            self.bytes += PUBLISHER;
            VecDeque::new()
        });
        match ranges.back_mut() {
            Some(newest) if sequence == newest.1 + 1 => newest.1 = sequence,
            Some(newest) if sequence <= newest.1 => {
                let at = ranges.partition_point(|range| range.1 < sequence);
                if ranges[at].0 <= sequence {
                    return true;
                }
                self.bytes += RANGE;
                ranges.insert(at, (sequence, sequence));
            }
            _ => {
                self.bytes += RANGE;
                ranges.push_back((sequence, sequence));
            }
        }
        false
    }

    /// This message is reached.
    fn remove(&mut self, identity: &Identity) {
        let &Identity { publisher, sequence, .. } = identity;
        let Some(ranges) = self.publishers.get_mut(&publisher) else {
            return;
        };
        let at = ranges.partition_point(|range| range.1 < sequence);
        let Some(range) = ranges.get_mut(at).filter(|range| range.0 <= sequence) else {
            return;
        };
        match *range {
            (first, last) if first == last => _ = ranges.remove(at),
            (first, _) if first == sequence => range.0 += 1,
            (_, last) if last == sequence => range.1 -= 1,
            (first, _) => {
                range.0 = sequence + 1;
                ranges.insert(at, (first, sequence - 1));
            }
        }
        if ranges.is_empty() {
            self.publishers.remove(&publisher);
        }
    }

    // Read

    /// About the memory that it takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the log has this message, and it was not reached yet.
    pub fn has(&self, identity: &Identity) -> bool {
        let Some(ranges) = self.publishers.get(&identity.publisher) else {
            return false;
        };
        let at = ranges.partition_point(|range| range.1 < identity.sequence);
        ranges.get(at).is_some_and(|range| range.0 <= identity.sequence)
    }

    /// Whether an earlier message of the same publisher was not reached yet.
    pub fn has_before(&self, identity: &Identity) -> bool {
        let first = self.publishers.get(&identity.publisher).and_then(VecDeque::front);
        first.is_some_and(|(first, _)| *first < identity.sequence)
    }
}

/// One of the two logs: its next message, and its messages that wait for messages of the other log.
pub struct MergeSide {
    pub order: Order,
    chunks: Receiver<io::Result<Chunk>>,
    /// Takes memory back.
    used: Sender<Vec<u8>>,
    chunk: Chunk,
    /// The next message in the chunk.
    next: usize,
    /// By publisher, messages that wait for messages of the other log.
    deferred: HashMap<u64, VecDeque<OwnedRecord>, FxBuildHasher>,
    /// Their publishers and sequences.
    deferred_ids: HashSet<(u64, u64), FxBuildHasher>,
    deferred_bytes: usize,
}

impl MergeSide {
    pub fn new((chunks, used): (Receiver<io::Result<Chunk>>, Sender<Vec<u8>>), order: Order) -> Self {
        let (chunk, deferred, deferred_ids) = (Chunk::default(), HashMap::default(), HashSet::default());
        Self { order, chunks, used, chunk, next: 0, deferred, deferred_ids, deferred_bytes: 0 }
    }

    // Change

    /// Who published the next message of the log; `None`: there is no other.
    ///
    /// # Errors
    /// The disk fails.
    pub fn head(&mut self) -> io::Result<Option<Identity>> {
        loop {
            if let Some(head) = self.chunk.heads.get(self.next) {
                if self.is_first(&head.identity) {
                    return Ok(Some(head.identity));
                }
                self.next += 1;
                continue;
            }
            // Before the reader needs memory for another one. It may have ended.
            _ = self.used.send(std::mem::take(&mut self.chunk).into_bytes());
            self.next = 0;
            let Ok(chunk) = self.chunks.recv() else {
                return Ok(None);
            };
            self.chunk = chunk?;
        }
    }

    /// Whether a record is the first one of its message. (`reading::LogSummary` has the targets of the later ones.)
    fn is_first(&self, identity: &Identity) -> bool {
        let id = (identity.publisher, identity.sequence);
        let is_deferred = !self.deferred_ids.is_empty() && self.deferred_ids.contains(&id);
        identity.publisher == 0 || self.order.has(identity) && !is_deferred
    }

    /// Gives the next message to `take`. Returns who published it.
    pub fn take_head(&mut self, take: impl FnOnce(&Record<'_>) -> io::Result<()>) -> io::Result<Identity> {
        let record = self.chunk.record(&self.chunk.heads[self.next]);
        self.order.remove(&record.identity);
        take(&record)?;
        self.next += 1;
        Ok(self.chunk.heads[self.next - 1].identity)
    }

    /// Puts the next message aside.
    pub fn defer_head(&mut self) {
        let record = self.chunk.record(&self.chunk.heads[self.next]);
        let held = OwnedRecord::new(&record);
        self.deferred_bytes += held.bytes();
        self.deferred_ids.insert((record.identity.publisher, record.identity.sequence));
        self.deferred.entry(record.identity.publisher).or_default().push_back(held);
        self.next += 1;
    }

    /// A message of this publisher was taken in the other log: gives the deferred ones that waited for it to `take`.
    pub fn take_deferred(
        &mut self,
        taken: &Identity,
        other: &Order,
        mut take: impl FnMut(&Record<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.deferred.is_empty() {
            return Ok(());
        }
        let Self { order, deferred, deferred_ids, deferred_bytes, .. } = self;
        let Some(waiting) = deferred.get_mut(&taken.publisher) else {
            return Ok(());
        };
        while waiting.front().is_some_and(|next| !other.has_before(&next.record().identity))
            && let Some(next) = waiting.pop_front()
        {
            *deferred_bytes -= next.bytes();
            let identity = next.record().identity;
            deferred_ids.remove(&(identity.publisher, identity.sequence));
            order.remove(&identity);
            take(&next.record())?;
        }
        if waiting.is_empty() {
            deferred.remove(&taken.publisher);
        }
        Ok(())
    }

    /// Gives all deferred messages to `take`.
    pub fn take_all_deferred(
        &mut self,
        mut take: impl FnMut(&Record<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        self.deferred_bytes = 0;
        let deferred = std::mem::take(&mut self.deferred);
        deferred.into_iter().flat_map(|(_, waiting)| waiting).try_for_each(|next| {
            self.order.remove(&next.record().identity);
            take(&next.record())
        })
    }

    // Read

    pub fn deferred_bytes(&self) -> usize {
        self.deferred_bytes
    }
}
