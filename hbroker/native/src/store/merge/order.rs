//! In which order the messages of two logs are written: each publisher's by their sequences.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::Receiver;

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use crate::store::disk::Disk;
use crate::store::index::Index;
use crate::store::merge::decisions::Bits;
use crate::store::merge::reading::{Chunk, Head};
use crate::store::merge::{Identity, Writer};
use crate::store::record::MessageBody;

/// About the memory that a range, a publisher, and a message with several records take.
const RANGE: usize = 16;
const PUBLISHER: usize = 64;
const REPEATED: usize = 48;
/// About the memory that a deferred message takes besides its own bytes.
const DEFERRED: usize = 128;

/// The sequences of the messages of a log that are not written yet, by publisher.
#[derive(Default)]
pub struct Order {
    publishers: HashMap<u64, VecDeque<(u64, u64)>, FxBuildHasher>,
    /// Messages that are in more than one record: how many more there are.
    repeated: HashMap<(u64, u64), u32, FxBuildHasher>,
    bytes: usize,
}

impl Order {
    // Change

    /// A record has this message.
    pub fn add(&mut self, identity: &Identity) {
        let &Identity { publisher, sequence, .. } = identity;
        if publisher == 0 {
            return;
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
                    self.bytes += REPEATED;
                    *self.repeated.entry((publisher, sequence)).or_default() += 1;
                } else {
                    self.bytes += RANGE;
                    ranges.insert(at, (sequence, sequence));
                }
            }
            _ => {
                self.bytes += RANGE;
                ranges.push_back((sequence, sequence));
            }
        }
    }

    /// A record with this message is written.
    fn remove(&mut self, identity: &Identity) {
        let &Identity { publisher, sequence, .. } = identity;
        if !self.repeated.is_empty()
            && let Some(more) = self.repeated.get_mut(&(publisher, sequence))
        {
            *more -= 1;
            if *more == 0 {
                self.repeated.remove(&(publisher, sequence));
            }
            return;
        }
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
            (first, last) => {
                range.0 = sequence + 1;
                ranges.insert(at, (first, sequence - 1));
                debug_assert!(sequence < last);
            }
        }
        if ranges.is_empty() {
            self.publishers.remove(&publisher);
        }
    }

    // Read

    /// Whether an earlier message of the same publisher is not written yet.
    pub fn has_before(&self, identity: &Identity) -> bool {
        let first = self.publishers.get(&identity.publisher).and_then(VecDeque::front);
        first.is_some_and(|(first, _)| *first < identity.sequence)
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// One of the two logs.
pub struct Side {
    pub order: Order,
    chunks: Receiver<io::Result<Chunk>>,
    chunk: Chunk,
    /// The next message in the chunk.
    next: usize,
    /// By publisher, messages that wait for messages of the other log.
    deferred: HashMap<u64, VecDeque<Deferred>, FxBuildHasher>,
    deferred_bytes: usize,
}

/// A message that was taken out of its chunk.
struct Deferred {
    identity: Identity,
    body: Vec<u8>,
    kept: Bits,
}

impl Side {
    pub fn new(chunks: Receiver<io::Result<Chunk>>, order: Order) -> Self {
        let (chunk, deferred) = (Chunk::default(), HashMap::default());
        Self { order, chunks, chunk, next: 0, deferred, deferred_bytes: 0 }
    }

    // Change

    /// The next message of the log; `None`: there is no other.
    ///
    /// # Errors
    /// The disk fails.
    pub fn head(&mut self) -> io::Result<Option<Head>> {
        while self.next >= self.chunk.heads.len() {
            let Ok(chunk) = self.chunks.recv() else {
                return Ok(None);
            };
            (self.chunk, self.next) = (chunk?, 0);
        }
        Ok(Some(self.chunk.heads[self.next]))
    }

    /// Writes the next message. Returns who published it.
    ///
    /// # Errors
    /// The new store's disk fails.
    pub fn write_head<D: Disk, I: Index>(&mut self, writer: &mut Writer<'_, D, I>) -> io::Result<Identity> {
        let head = self.chunk.heads[self.next];
        let (kept, first) = (&self.chunk.kept, u64::from(head.targets));
        writer.add(&self.chunk.message(&head), |at, _| kept.has(first + at as u64))?;
        self.next += 1;
        self.order.remove(&head.identity);
        Ok(head.identity)
    }

    /// Puts the next message aside.
    pub fn defer_head(&mut self) {
        let head = self.chunk.heads[self.next];
        let mut kept = Bits::default();
        let count = self.chunk.message(&head).targets().count();
        (0..count).for_each(|at| kept.push(self.chunk.kept.has(u64::from(head.targets) + at as u64)));
        let deferred = Deferred { identity: head.identity, body: self.chunk.body(&head).to_vec(), kept };
        self.deferred_bytes += deferred.bytes();
        self.deferred.entry(head.identity.publisher).or_default().push_back(deferred);
        self.next += 1;
    }

    /// The other log's message of this publisher was written: writes the deferred ones that waited for it.
    ///
    /// # Errors
    /// The new store's disk fails.
    pub fn write_deferred<D: Disk, I: Index>(
        &mut self,
        written: &Identity,
        other: &Order,
        writer: &mut Writer<'_, D, I>,
    ) -> io::Result<()> {
        if self.deferred.is_empty() {
            return Ok(());
        }
        let Self { order, deferred, deferred_bytes, .. } = self;
        let Some(waiting) = deferred.get_mut(&written.publisher) else {
            return Ok(());
        };
        while let Some(next) = waiting.pop_front_if(|next| !other.has_before(&next.identity)) {
            *deferred_bytes -= next.bytes();
            next.write(writer)?;
            order.remove(&next.identity);
        }
        if waiting.is_empty() {
            deferred.remove(&written.publisher);
        }
        Ok(())
    }

    /// Writes all deferred messages.
    ///
    /// # Errors
    /// The new store's disk fails.
    pub fn write_all_deferred<D: Disk, I: Index>(&mut self, writer: &mut Writer<'_, D, I>) -> io::Result<()> {
        self.deferred_bytes = 0;
        self.deferred.drain().flat_map(|(_, waiting)| waiting).try_for_each(|next| next.write(writer))
    }

    // Read

    pub fn deferred_bytes(&self) -> usize {
        self.deferred_bytes
    }
}

impl Deferred {
    fn bytes(&self) -> usize {
        DEFERRED + self.body.len()
    }

    fn write<D: Disk, I: Index>(&self, writer: &mut Writer<'_, D, I>) -> io::Result<()> {
        let message = MessageBody::parse(&self.body).expect("it was valid");
        writer.add(&message, |at, _| self.kept.has(at as u64))
    }
}
