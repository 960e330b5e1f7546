//! Messages that both logs have.

use std::collections::HashSet;
use std::io;

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use crate::store::disk::Disk;
use crate::store::index::Index;
use crate::store::merge::order::Order;
use crate::store::merge::reading::{Record, Status};
use crate::store::merge::{Copy, Fields, Identity, Writer};

/// What both logs have of messages that were reached in one of them at least.
pub struct Joining {
    /// How many messages waited in both stores, and how many waited in one and were settled in the other.
    pub common: u64,
    pub settled: u64,
    fields: Fields,
    /// By publisher and sequence.
    common_messages: HashMap<(u64, u64), CommonMessage, FxBuildHasher>,
    /// For each log: what was settled, as a record says that is not the first of its message.
    late: [HashSet<Copy, FxBuildHasher>; 2],
}

/// A message that both logs have.
#[derive(Default)]
struct CommonMessage {
    /// In which logs it was reached.
    reached: [bool; 2],
    /// Its records, as long as it was reached in one log only, each with its log.
    held: Vec<(usize, Held)>,
    /// The sessions, each with the shared subscription, for which it was written.
    written: HashSet<(u64, u64), FxBuildHasher>,
    /// For each log: those for which it was settled there.
    settled: [HashSet<(u64, u64), FxBuildHasher>; 2],
}

/// A record that was taken out of its chunk.
pub struct Held {
    identity: Identity,
    body: Vec<u8>,
    statuses: Vec<Status>,
}

impl Held {
    pub fn new(record: &Record<'_>) -> Self {
        Self { identity: record.identity, body: record.body.to_vec(), statuses: record.statuses.to_vec() }
    }

    pub fn record(&self) -> Record<'_> {
        Record { identity: self.identity, body: &self.body, statuses: &self.statuses }
    }

    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.body.len() + self.statuses.len()
    }
}

impl Joining {
    pub fn new(fields: Fields, late: [HashSet<Copy, FxBuildHasher>; 2]) -> Self {
        Self { common: 0, settled: 0, fields, common_messages: HashMap::default(), late }
    }

    /// The next record of a log. Writes its message, or, if the other log has the message, too, and it was not
    /// reached there, holds it. `own`, `other`: what is left of both logs.
    ///
    /// # Errors
    /// The new store's disk fails.
    pub fn take<D: Disk, I: Index>(
        &mut self,
        side: usize,
        record: &Record<'_>,
        own: &Order,
        other: &Order,
        writer: &mut Writer<'_, D, I>,
    ) -> io::Result<()> {
        let identity = record.identity;
        let id = (identity.publisher, identity.sequence);
        let is_known = !self.common_messages.is_empty() && self.common_messages.contains_key(&id);
        if !is_known && !other.has(&identity) {
            if record.statuses.contains(&Status::Waiting) {
                let (message, mut at) = (record.message(), record.statuses.iter());
                return writer.add(&message, |_, _| at.next() == Some(&Status::Waiting));
            }
            return Ok(());
        }
        let Self { common, settled, fields, common_messages, late } = self;
        let joined = common_messages.entry(id).or_default();
        joined.reached[side] = true;
        joined.note_settled(side, record, *fields);
        if joined.reached != [true, true] {
            joined.held.push((side, Held::new(record)));
            return Ok(());
        }
        let held = std::mem::take(&mut joined.held);
        let all = held.iter().map(|(side, held)| (*side, held.record())).chain([(side, *record)]);
        for (side, each) in all {
            let counts = joined.write(side, &each, *fields, late, writer)?;
            *common += counts.0;
            *settled += counts.1;
        }
        if !own.has(&identity) && !other.has(&identity) {
            common_messages.remove(&id);
        }
        Ok(())
    }

    /// Writes what is held, because a log has ended before it was reached there.
    ///
    /// # Errors
    /// The new store's disk fails.
    pub fn write_rest<D: Disk, I: Index>(&mut self, writer: &mut Writer<'_, D, I>) -> io::Result<()> {
        for (_, mut joined) in std::mem::take(&mut self.common_messages) {
            for (side, held) in std::mem::take(&mut joined.held) {
                joined.write(side, &held.record(), self.fields, &self.late, writer)?;
            }
        }
        Ok(())
    }
}

impl CommonMessage {
    fn note_settled(&mut self, side: usize, record: &Record<'_>, fields: Fields) {
        if record.statuses.contains(&Status::Settled) {
            let targets = record.message();
            let settled =
                targets.targets().zip(record.statuses).filter(|(_, status)| **status == Status::Settled);
            let keys = settled.map(|(target, _)| (target.session, (fields.share)(target.options)));
            self.settled[side].extend(keys);
        }
    }

    /// Writes a record of a log for those sessions that do not have the message. Returns how many have it, and for
    /// how many the other log has settled it.
    fn write<D: Disk, I: Index>(
        &mut self,
        side: usize,
        record: &Record<'_>,
        fields: Fields,
        late: &[HashSet<Copy, FxBuildHasher>; 2],
        writer: &mut Writer<'_, D, I>,
    ) -> io::Result<(u64, u64)> {
        let Identity { publisher, sequence, .. } = record.identity;
        let (mut common, mut settled) = (0, 0);
        let (written, gone, late) = (&mut self.written, &self.settled[1 - side], &late[1 - side]);
        writer.add(&record.message(), |at, target| {
            if record.statuses[at] != Status::Waiting {
                return false;
            }
            let share = (fields.share)(target.options);
            let key = (target.session, share);
            if gone.contains(&key) || late.contains(&(target.session, share, publisher, sequence)) {
                settled += 1;
                return false;
            }
            let is_new = written.insert(key);
            common += u64::from(!is_new);
            is_new
        })?;
        Ok((common, settled))
    }
}
