//! Two stores of one subtree become one: of a node that came back after another one had served its subtree, or of
//! the two sides of a partition.
//!
//! A message is known by its publisher and its sequence, whatever number it has in a queue. What waits for a session
//! in both stores waits for it once afterwards. What waits in one, and was delivered or discarded according to the
//! other, does not wait any more. (What has moved to another node is neither: `record::Kind::Moved`.)
//!
//! 1. Both logs are read for the sequences of each publisher (`order`).
//! 2. Both are read again, side by side, and written, by a thread of its own (`storing`). Each publisher's messages
//!    are written in the order of their sequences; apart from that, those that were published earlier come first. So
//!    a message that both logs have is reached in both at about the same time, and its two records become one
//!    (`joiner`).

mod chunk;
mod joiner;
mod order;
mod reading;
mod storing;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::mpsc::{channel, sync_channel};
use std::thread;

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use crate::store::Store;
use crate::store::disk::Disk;
use crate::store::index::Index;
use crate::store::log::segment::Damage;
use crate::store::record::{Batch, MessageBody, Target};

use chunk::Chunk;
use joiner::Joiner;
use order::MergeSide;
use reading::{LogSummary, read_chunks};
use storing::{Batches, store_batches};

/// Records are given to the new store when they have so many bytes.
const BATCH: usize = 1 << 20;
/// The targets of a message are divided into several records if they have more bytes.
const MOST_TARGET_BYTES: usize = 64 << 10;
/// After so many written messages the caller is told.
const PROGRESS: u64 = 1 << 18;

/// Who published a message, and when. Only the engine can read it in the field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub publisher: u64,
    pub sequence: u64,
    /// The sequence of the message's first fragment.
    pub first: u64,
    /// Microseconds since the Unix epoch.
    pub published_at: u64,
}

/// Functions by which the engine reads the fields that it has stored: a store does not know their format.
#[derive(Clone, Copy)]
pub struct FieldReaders {
    /// Who published a message; `None`: the field is not valid.
    pub identity: fn(&[u8]) -> Option<Identity>,
    /// The topic; `None`: the field is not valid.
    pub topic: fn(&[u8]) -> Option<&str>,
    /// The listener or the shared subscription through which a session gets a message: the kind, and an id.
    pub share: fn(&[u8]) -> (u8, u64),
}

/// What a merge has done.
#[derive(Debug, Default)]
pub struct Merged {
    /// How many messages wait now; one that waits for several sessions counts for each.
    pub waiting: u64,
    /// How many waited in both stores.
    pub common: u64,
    /// How many waited in one, and were settled in the other.
    pub settled: u64,
    /// How many are not in the order of their publisher, because there was no memory for it.
    pub disordered: u64,
    pub retained: u64,
    /// What was found damaged in the first, and in the second store.
    pub damage: [Vec<Damage>; 2],
}

/// Why a merge ended.
#[derive(Debug)]
pub enum MergeError {
    /// The numbers of all messages need more memory.
    Memory,
    Failed(io::Error),
}

impl From<io::Error> for MergeError {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// Writes what waits and what is retained in two stores to a third, which is empty. `memory`: about so many bytes
/// may be used for the sequences of messages, and for messages that wait for others. `progress` is called with the
/// number of messages written so far, and returns whether to go on.
///
/// # Errors
/// A disk fails, or the memory is too small.
pub fn merge<D: Disk + Send + Sync, I: Index + Send + Sync>(
    stores: [&Store<D, I>; 2],
    into: &mut Store<D, I>,
    fields: FieldReaders,
    memory: usize,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Merged, MergeError> {
    let summary = |at: usize| LogSummary::of(stores[at], fields, memory / 2);
    let [Some(mut first), Some(mut second)] = both(|| summary(0), || summary(1))? else {
        return Err(MergeError::Memory);
    };
    let orders = [&mut first, &mut second].map(|summary| std::mem::take(&mut summary.order));
    let summaries = [&first, &second];
    let mut joiner = Joiner::new(stores, summaries, fields);
    let (waiting, disordered, retained) = thread::scope(|scope| {
        let (batches, input) = Batches::new();
        let storing = scope.spawn(move || store_batches(into, input));
        let mut writer =
            Writer { batches, batch: Batch::default(), numbers: HashMap::default(), written: 0, progress };
        let chunks = [0, 1].map(|at: usize| {
            let (sender, receiver) = sync_channel::<io::Result<Chunk>>(0);
            let (used_sender, used) = channel();
            scope.spawn(move || read_chunks(stores[at], summaries[at], fields, &sender, &used));
            (receiver, used_sender)
        });
        let ([first, second], [first_order, second_order]) = (chunks, orders);
        let sides = [MergeSide::new(first, first_order), MergeSide::new(second, second_order)];
        let write = || {
            let disordered = write_in_order(sides, &mut joiner, &mut writer, memory)?;
            let retained = writer.write_retained(stores, fields)?;
            writer.flush()?;
            Ok((writer.written, disordered, retained))
        };
        let written = write();
        drop(writer);
        let stored = storing.join().unwrap_or_else(|_| Err(io::Error::other("a thread has ended")));
        stored.and(written)
    })?;
    let Joiner { common, settled, .. } = joiner;
    let damage = [first.damage, second.damage];
    Ok(Merged { waiting, common, settled, disordered, retained, damage })
}

/// Does two things side by side.
fn both<R: Send>(
    first: impl FnOnce() -> io::Result<R> + Send,
    second: impl FnOnce() -> io::Result<R> + Send,
) -> io::Result<[R; 2]> {
    thread::scope(|scope| {
        let other = scope.spawn(second);
        let first = first();
        let second = other.join().unwrap_or_else(|_| Err(io::Error::other("a thread has ended")));
        Ok([first?, second?])
    })
}

/// Writes all messages. Returns how many are not in the order of their publisher.
fn write_in_order<D: Disk, I: Index>(
    mut sides: [MergeSide; 2],
    joiner: &mut Joiner<'_, D, I>,
    writer: &mut Writer<'_>,
    memory: usize,
) -> io::Result<u64> {
    let mut disordered = 0;
    loop {
        let heads = [sides[0].head()?, sides[1].head()?];
        let earlier = match heads {
            [None, None] => break,
            [Some(_), None] => 0,
            [None, Some(_)] => 1,
            [Some(first), Some(second)] => usize::from(second.published_at < first.published_at),
        };
        let may_go = |at: usize| heads[at].is_some_and(|head| !sides[1 - at].order.has_before(&head));
        let next = match ([earlier, 1 - earlier].into_iter().find(|at| may_go(*at)), heads) {
            (Some(at), _) => at,
            // Each of both heads waits for messages that are further on in the other log.
            (None, [_, Some(_)]) if sides[1].deferred_bytes() < memory => {
                sides[1].defer_head();
                continue;
            }
            (None, [first, _]) => {
                disordered += 1;
                usize::from(first.is_none())
            }
        };
        let [first, second] = &mut sides;
        if next == 0 {
            let identity = first.take_head(|record| joiner.take(0, record, &second.order, writer))?;
            let other = &first.order;
            second.take_deferred(&identity, other, |record| joiner.take(1, record, other, writer))?;
        } else {
            second.take_head(|record| joiner.take(1, record, &first.order, writer))?;
        }
    }
    let [first, second] = &mut sides;
    second.take_all_deferred(|record| joiner.take(1, record, &first.order, writer))?;
    joiner.write_rest(writer)?;
    Ok(disordered)
}

/// What goes to the new store.
struct Writer<'a> {
    batches: Batches,
    batch: Batch,
    /// The last number of each session's queue.
    numbers: HashMap<u64, u64, FxBuildHasher>,
    written: u64,
    progress: &'a mut dyn FnMut(u64) -> bool,
}

impl Writer<'_> {
    /// Adds a message for these sessions, each with how it gets the message.
    fn add<'t>(
        &mut self,
        message: &MessageBody<'_>,
        targets: impl Iterator<Item = (u64, &'t [u8])>,
    ) -> io::Result<()> {
        let before = self.written / PROGRESS;
        for (session, options) in targets {
            let number = self.numbers.entry(session).or_default();
            *number += 1;
            self.batch.add_target(Target { session, number: *number, options });
            self.written += 1;
            if self.batch.target_bytes() > MOST_TARGET_BYTES {
                self.batch.add_message(message.expires, message.field);
            }
        }
        if self.batch.target_bytes() > 0 {
            self.batch.add_message(message.expires, message.field);
        }
        if self.written / PROGRESS > before && !(self.progress)(self.written) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if self.batch.bytes().len() >= BATCH { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.batches.send(&mut self.batch)
    }

    /// Writes the retained messages: of each topic the one that was published last. Returns how many messages and
    /// fragments they are.
    fn write_retained<D: Disk, I: Index>(
        &mut self,
        stores: [&Store<D, I>; 2],
        fields: FieldReaders,
    ) -> io::Result<u64> {
        let mut newest: HashMap<Vec<u8>, Identity, FxBuildHasher> = HashMap::default();
        let is_same =
            |one: &Identity, other: &Identity| (one.publisher, one.first) == (other.publisher, other.first);
        for store in stores {
            store.each_retained(|field| {
                if let (Some(identity), Some(topic)) = ((fields.identity)(field), (fields.topic)(field)) {
                    let known = newest.entry(topic.as_bytes().to_vec()).or_insert(identity);
                    if known.published_at < identity.published_at {
                        *known = identity;
                    }
                }
            })?;
        }
        let mut number = 0;
        let mut written: HashMap<(u64, u64), (), FxBuildHasher> = HashMap::default();
        for store in stores {
            let mut failed = Ok(());
            store.each_retained(|field| {
                if let (Some(identity), Some(topic)) = ((fields.identity)(field), (fields.topic)(field))
                    && newest.get(topic.as_bytes()).is_some_and(|known| is_same(known, &identity))
                    && written.insert((identity.publisher, identity.sequence), ()).is_none()
                    && failed.is_ok()
                {
                    number += 1;
                    self.batch.add_retained(number, field);
                    if self.batch.bytes().len() >= BATCH {
                        failed = self.flush();
                    }
                }
            })?;
            failed?;
        }
        Ok(number)
    }
}
