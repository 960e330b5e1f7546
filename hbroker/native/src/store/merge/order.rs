//! In which order the messages of two logs are written: each publisher's by their sequences.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::mpsc::{Receiver, Sender};

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use crate::store::Store;
use crate::store::disk::Disk;
use crate::store::index::Index;
use crate::store::merge::joining::Held;
use crate::store::merge::reading::{Chunk, Delivered, Record, Status, status_of};
use crate::store::merge::{Copy, Fields, Identity};
use crate::store::record::{Kind, MessageBody, Target};
use crate::store::segment::Damage;

/// About the memory that a range, a publisher, and a message with several records take.
const RANGE: usize = 16;
const PUBLISHER: usize = 64;
const REPEATED: usize = 48;

/// The sequences of the messages of a log that were not reached yet, by publisher.
#[derive(Default)]
pub struct Order {
    publishers: HashMap<u64, VecDeque<(u64, u64)>, FxBuildHasher>,
    /// Messages that are in more than one record: how many more there are.
    repeated: HashMap<(u64, u64), u32, FxBuildHasher>,
    bytes: usize,
}

impl Order {
    // Change

    /// A record has this message. Returns whether an earlier one has it, too.
    fn add(&mut self, identity: &Identity) -> bool {
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
                    self.bytes += REPEATED;
                    *self.repeated.entry((publisher, sequence)).or_default() += 1;
                    return true;
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
        false
    }

    /// A record with this message was reached.
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

    /// Whether a record with this message was not reached yet.
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

/// One of the two logs.
pub struct Side {
    pub order: Order,
    chunks: Receiver<io::Result<Chunk>>,
    /// Takes memory back.
    used: Sender<Vec<u8>>,
    chunk: Chunk,
    /// The next message in the chunk.
    next: usize,
    /// By publisher, messages that wait for messages of the other log.
    deferred: HashMap<u64, VecDeque<Held>, FxBuildHasher>,
    deferred_bytes: usize,
}

impl Side {
    pub fn new((chunks, used): (Receiver<io::Result<Chunk>>, Sender<Vec<u8>>), order: Order) -> Self {
        let (chunk, deferred) = (Chunk::default(), HashMap::default());
        Self { order, chunks, used, chunk, next: 0, deferred, deferred_bytes: 0 }
    }

    // Change

    /// Who published the next message of the log; `None`: there is no other.
    ///
    /// # Errors
    /// The disk fails.
    pub fn head(&mut self) -> io::Result<Option<Identity>> {
        while self.next >= self.chunk.heads.len() {
            // Before the reader needs memory for another one. It may have ended.
            _ = self.used.send(std::mem::take(&mut self.chunk).into_bytes());
            self.next = 0;
            let Ok(chunk) = self.chunks.recv() else {
                return Ok(None);
            };
            self.chunk = chunk?;
        }
        Ok(Some(self.chunk.heads[self.next].identity))
    }

    /// Gives the next message to `take`. Returns who published it.
    pub fn take_head(
        &mut self,
        take: impl FnOnce(&Order, &Record<'_>) -> io::Result<()>,
    ) -> io::Result<Identity> {
        let record = self.chunk.record(&self.chunk.heads[self.next]);
        self.order.remove(&record.identity);
        take(&self.order, &record)?;
        self.next += 1;
        Ok(self.chunk.heads[self.next - 1].identity)
    }

    /// Puts the next message aside.
    pub fn defer_head(&mut self) {
        let record = self.chunk.record(&self.chunk.heads[self.next]);
        let held = Held::new(&record);
        self.deferred_bytes += held.bytes();
        self.deferred.entry(record.identity.publisher).or_default().push_back(held);
        self.next += 1;
    }

    /// A message of this publisher was taken in the other log: gives the deferred ones that waited for it to `take`.
    pub fn take_deferred(
        &mut self,
        taken: &Identity,
        other: &Order,
        mut take: impl FnMut(&Order, &Record<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.deferred.is_empty() {
            return Ok(());
        }
        let Self { order, deferred, deferred_bytes, .. } = self;
        let Some(waiting) = deferred.get_mut(&taken.publisher) else {
            return Ok(());
        };
        while waiting.front().is_some_and(|next| !other.has_before(&next.record().identity))
            && let Some(next) = waiting.pop_front()
        {
            *deferred_bytes -= next.bytes();
            order.remove(&next.record().identity);
            take(order, &next.record())?;
        }
        if waiting.is_empty() {
            deferred.remove(&taken.publisher);
        }
        Ok(())
    }

    /// Gives all deferred messages to `take`.
    pub fn take_all_deferred(
        &mut self,
        mut take: impl FnMut(&Order, &Record<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        self.deferred_bytes = 0;
        let deferred = std::mem::take(&mut self.deferred);
        deferred.into_iter().flat_map(|(_, waiting)| waiting).try_for_each(|next| {
            self.order.remove(&next.record().identity);
            take(&self.order, &next.record())
        })
    }

    // Read

    pub fn deferred_bytes(&self) -> usize {
        self.deferred_bytes
    }
}

type Found = (Order, HashSet<Copy, FxBuildHasher>, Vec<Damage>);

/// The sequences of all messages of a log that wait for a session, or were settled; and what was settled, as a record
/// says that is not the first of its message; and the damage. `None`: they take more memory.
pub fn order_of<D: Disk, I: Index>(
    store: &Store<D, I>,
    delivered: &Delivered,
    fields: Fields,
    memory: usize,
) -> io::Result<Option<Found>> {
    let (mut order, mut late) = (Order::default(), HashSet::default());
    let damage = store.each_record(|kind, body| {
        let Some(message) = MessageBody::parse(body).filter(|_| kind == Kind::Message) else {
            return;
        };
        let status = |target| status_of(store, delivered, &target);
        let is_needed = message.targets().any(|target| status(target) != Status::Gone);
        if !is_needed || order.bytes > memory {
            return;
        }
        let identity = (fields.identity)(message.field).unwrap_or_default();
        if order.add(&identity) {
            let settled = message.targets().filter(|target| status(*target) == Status::Settled);
            let Identity { publisher, sequence, .. } = identity;
            let copy =
                |target: Target<'_>| (target.session, (fields.share)(target.options), publisher, sequence);
            late.extend(settled.map(copy));
            order.bytes += REPEATED;
        }
    })?;
    Ok((order.bytes <= memory).then_some((order, late, damage)))
}
