//! Messages that both logs have: their records become one.

use std::io;

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;

use crate::store::Store;
use crate::store::disk::Disk;
use crate::store::index::Index;
use crate::store::merge::chunk::{OwnedRecord, Record, Status};
use crate::store::merge::order::Order;
use crate::store::merge::reading::LogSummary;
use crate::store::merge::{FieldReaders, Writer};
use crate::store::record::Target;

/// Fewer targets are looked through one by one.
const FEW: usize = 16;

/// A session, and the listener or the shared subscription through which it gets a message.
type Key = (u64, (u8, u64));

/// Writes the messages of both logs.
pub struct Joiner<'a, D, I> {
    /// How many messages waited in both stores, and how many waited in one and were settled in the other.
    pub common: u64,
    pub settled: u64,
    stores: [&'a Store<D, I>; 2],
    summaries: [&'a LogSummary; 2],
    fields: FieldReaders,
    /// By publisher and sequence: messages that both logs have, and that were reached in one of them.
    reached: HashMap<(u64, u64), (usize, OwnedRecord), FxBuildHasher>,
}

/// The targets of one message in one log: for which sessions it was stored, and what became of it for each.
#[derive(Default)]
struct MessageTargets<'r> {
    all: SmallVec<[(Key, Status, &'r [u8]); 4]>,
    by_key: HashMap<Key, usize, FxBuildHasher>,
}

impl<'r> MessageTargets<'r> {
    /// Adds the target of a record. If an earlier record had the same target, the message waits if it waits according
    /// to one of the two; otherwise the later record counts.
    fn add(&mut self, key: Key, status: Status, options: &'r [u8]) {
        match self.find(&key) {
            Some(at) => {
                let known = &mut self.all[at];
                if known.1 != Status::Waiting {
                    (known.1, known.2) = (status, options);
                }
            }
            None => {
                self.all.push((key, status, options));
                if self.all.len() == FEW {
                    self.by_key = self.all.iter().enumerate().map(|(at, (key, ..))| (*key, at)).collect();
                } else if self.all.len() > FEW {
                    self.by_key.insert(key, self.all.len() - 1);
                }
            }
        }
    }

    fn find(&self, key: &Key) -> Option<usize> {
        if self.all.len() < FEW {
            self.all.iter().position(|(known, ..)| known == key)
        } else {
            self.by_key.get(key).copied()
        }
    }

    fn status(&self, key: &Key) -> Status {
        self.find(key).map_or(Status::Gone, |at| self.all[at].1)
    }
}

impl<'a, D: Disk, I: Index> Joiner<'a, D, I> {
    pub fn new(stores: [&'a Store<D, I>; 2], summaries: [&'a LogSummary; 2], fields: FieldReaders) -> Self {
        Self { common: 0, settled: 0, stores, summaries, fields, reached: HashMap::default() }
    }

    /// The first record of a message in a log. Writes the message, or, if the other log has it, too, and it was not
    /// reached there, holds it. `other`: what is left of the other log.
    ///
    /// # Errors
    /// The new store's disk fails.
    pub fn take(
        &mut self,
        side: usize,
        record: &Record<'_>,
        other: &Order,
        writer: &mut Writer<'_>,
    ) -> io::Result<()> {
        let identity = record.identity;
        let id = (identity.publisher, identity.sequence);
        let is_reached = !self.reached.is_empty() && self.reached.contains_key(&id);
        if let Some((other_side, held)) = self.reached.remove(&id).filter(|_| is_reached) {
            return self.write_both([(other_side, held.record()), (side, *record)], writer);
        }
        if other.has(&identity) {
            self.reached.insert(id, (side, OwnedRecord::new(record)));
            return Ok(());
        }
        self.write_one(side, record, writer)
    }

    fn write_one(&self, side: usize, record: &Record<'_>, writer: &mut Writer<'_>) -> io::Result<()> {
        let message = record.message();
        if self.summaries[side].has_later(&record.identity) {
            let targets = self.targets_of(side, record);
            let waiting = targets.all.iter().filter(|(_, status, _)| *status == Status::Waiting);
            return writer.add(&message, waiting.map(|(key, _, options)| (key.0, *options)));
        }
        let targets = message.targets().zip(record.statuses);
        let waiting = targets.filter(|(_, status)| **status == Status::Waiting);
        let of_session = |target| self.summaries[side].of_session(self.stores[side], &target);
        writer.add(&message, waiting.map(|(target, _)| (of_session(target).session, target.options)))
    }

    fn write_both(&mut self, records: [(usize, Record<'_>); 2], writer: &mut Writer<'_>) -> io::Result<()> {
        let [first, second] = [&records[0], &records[1]].map(|(side, record)| self.targets_of(*side, record));
        let (mut kept, mut common, mut settled) = (SmallVec::<[(u64, &[u8]); 4]>::new(), 0, 0);
        for (one, other, is_second) in [(&first, &second, false), (&second, &first, true)] {
            for (key, _, options) in one.all.iter().filter(|(_, status, _)| *status == Status::Waiting) {
                match other.status(key) {
                    Status::Settled => settled += 1,
                    Status::Waiting if is_second => common += 1,
                    _ => kept.push((key.0, options)),
                }
            }
        }
        writer.add(&records[0].1.message(), kept.into_iter())?;
        drop((first, second));
        self.common += common;
        self.settled += settled;
        Ok(())
    }

    /// The targets of a message in all its records in a log. `record`: the first one.
    fn targets_of<'r>(&'r self, side: usize, record: &Record<'r>) -> MessageTargets<'r> {
        let mut targets = MessageTargets::default();
        let (store, summary) = (self.stores[side], self.summaries[side]);
        let key = |target: &Target<'_>| (target.session, (self.fields.share)(target.options));
        for (target, status) in record.message().targets().zip(record.statuses) {
            targets.add(key(&summary.of_session(store, &target)), *status, target.options);
        }
        summary.later_targets(store, &record.identity, |status, target| {
            targets.add(key(target), status, target.options);
        });
        targets
    }

    /// Writes what is held, because a log has ended before it was reached there.
    ///
    /// # Errors
    /// The new store's disk fails.
    pub fn write_rest(&mut self, writer: &mut Writer<'_>) -> io::Result<()> {
        let rest = std::mem::take(&mut self.reached);
        rest.into_values().try_for_each(|(side, held)| self.write_one(side, &held.record(), writer))
    }
}
