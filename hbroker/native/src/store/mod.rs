//! The store of a node: the messages that wait for sessions, on disk.
//!
//! ```text
//! engines -- records --> Store --> log      every record, in order, with a check (record)
//!           (mailbox)      |------> queues   what waits for whom, as the log says
//!                          |          `----> retained   where the retained messages are
//!                          `------> index    the queues as they were at the last checkpoint
//! ```
//!
//! `log` writes to a `disk`. `merge` makes one store of two. `verify` reads a log that may be in use.
//!
//! A message is in the log once, however many sessions wait for it. What waits for a session is found by the
//! session's queue, and a segment of the log is removed when nothing waits in it. If little waits in it, it is
//! rewritten.
//!
//! What the log says is the truth. The index saves reading all of it at a restart: only the records since
//! the last checkpoint are read. A checkpoint is made only of what is synced in the log.
//!
//! A store uses no clock and no thread. `Disk` and `Index` are what it writes to.

#[cfg(test)]
mod churn;
pub mod disk;
pub mod index;
pub mod log;
pub mod mailbox;
pub mod merge;
pub mod queues;
pub mod record;
pub mod retained;
#[cfg(test)]
mod tests;
pub mod verify;

use std::collections::BTreeSet;
use std::io;

use crate::broken::Defect;
use crate::store::disk::Disk;
use crate::store::index::Index;
use crate::store::log::opening::Recovered;
use crate::store::log::segment::{self, Damage};
use crate::store::log::{Log, Rewriting, Unreadable};
use crate::store::queues::Queues;
use crate::store::queues::queue::QueueState;
use crate::store::record::{AppendedBody, Batch, Kind, MessageBody, Target};

/// A bounded log has about this number of segments; one with a low bound has fewer, of the smallest size.
const MOST_SEGMENTS: u64 = 16;
const SMALLEST_SEGMENT: u64 = 1 << 20;

/// So many segments are rewritten into one if each has less than one part in this number of the usual size.
const FEW: u64 = 8;

/// A log that is shorter than one part in this number of what makes a checkpoint due needs none.
const LITTLE: u64 = 64;

/// A store is compact if this percentage of each segment is needed.
const COMPACT: u64 = 90;

/// POSIX's number for a disk that cannot read what is there, on Linux and macOS.
const EIO: i32 = 5;

/// The bounds of a store.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The size of a segment of the log, in bytes.
    pub segment_bytes: u64,
    /// A checkpoint is made when the log has grown by this many bytes.
    pub checkpoint_bytes: u64,
    /// How many bytes of the log are rewritten in one step.
    pub step_bytes: usize,
    /// Whether a message counts as stored once it is synced, and not once it is written.
    pub syncs: bool,
    /// Segments are rewritten if less than this percentage of them is needed.
    pub most_needed: u64,
    /// With more bytes in the log, no message should be taken over that has to be stored.
    pub most_bytes: u64,
}

impl Settings {
    /// The settings for a log of at most `most_bytes` bytes. If that is little, segments are smaller, and checkpoints
    /// more frequent.
    pub fn within(most_bytes: u64) -> Self {
        let segment_bytes = (most_bytes / MOST_SEGMENTS).clamp(SMALLEST_SEGMENT, Self::DEFAULT.segment_bytes);
        Self { segment_bytes, checkpoint_bytes: segment_bytes, most_bytes, ..Self::DEFAULT }
    }

    pub const DEFAULT: Self = Self {
        segment_bytes: 64 << 20,
        checkpoint_bytes: 64 << 20,
        step_bytes: 1 << 20,
        syncs: true,
        most_needed: 50,
        most_bytes: u64::MAX,
    };
}

/// See the module.
pub struct Store<D, I> {
    settings: Settings,
    log: Log<D>,
    index: I,
    queues: Queues,
    checkpoint: u64,
    /// The segments of which nothing was needed at the last checkpoint.
    unneeded: Vec<u64>,
    /// The mark that was written last.
    marked: u64,
    rewriting: Option<Rewriting>,
    /// Segments with damage, which are not rewritten.
    damaged: BTreeSet<u64>,
    /// The damage that was found there.
    damage: Vec<Damage>,
    /// A sync failed that nobody waited for.
    failed: Option<io::Error>,
}

/// Why records could not be stored.
#[derive(Debug)]
pub enum Failure {
    /// The disk takes no more. The records are kept, and it can be tried again.
    Unwritten(io::Error),
    /// It is not known what is on the disk. The store must not be used any more.
    Fatal(io::Error),
}

/// A message that waits for a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its number in the session's queue.
    pub number: u64,
    pub expires: u64,
    /// How the session gets it, as [`record::Target`] says.
    pub options: Vec<u8>,
    pub field: Vec<u8>,
}

/// What was read of a queue.
#[derive(Debug, Default)]
pub struct Messages {
    pub messages: Vec<Stored>,
    /// Messages whose records are damaged: they are settled. Also those that the disk cannot read, which stay.
    pub damage: Vec<Damage>,
    /// All messages below this number were read or are settled.
    pub next: u64,
    /// There are no more.
    pub is_all: bool,
}

impl<D: Disk, I: Index> Store<D, I> {
    /// Opens the store on a disk, or makes it.
    ///
    /// # Errors
    /// The disk fails, the index is damaged, or it does not belong to this log.
    pub fn open(disk: D, index: I, settings: Settings) -> io::Result<(Self, Recovered)> {
        let checkpoint = index.position()?;
        let (mut log, mut damage) = Log::open(disk, settings.segment_bytes, checkpoint)?;
        let mut queues = Queues::load(&index)?;
        let segments: Vec<(u64, u64)> = log.segments().map(|(base, end, _)| (base, end)).collect();
        queues.fit_segments(&segments);
        let closed = segments.iter().filter(|(_, end)| *end <= checkpoint).map(|(base, _)| *base);
        let unneeded = closed.filter(|base| queues.usage_of(*base).live == 0).collect();
        let base_of = |position| {
            let at = segments.partition_point(|(base, _)| *base <= position).saturating_sub(1);
            segments.get(at).map_or(0, |(base, _)| *base)
        };
        let mut recovered = log.recover(checkpoint, |position, kind, body| {
            queues.apply(position, base_of(position), kind, body);
        })?;
        damage.append(&mut recovered.damage);
        damage.extend(log.skip_to(checkpoint)?);
        let mut store = Self {
            settings,
            marked: log.synced(),
            log,
            index,
            queues,
            checkpoint,
            unneeded,
            rewriting: None,
            damaged: BTreeSet::new(),
            damage: Vec::new(),
            failed: None,
        };
        let last = store.log.last_base();
        store.unneeded.retain(|base| *base != last);
        Ok((store, Recovered { damage, ..recovered }))
    }

    // Change

    /// Takes the records of a batch in. They are stored after [`Self::commit`].
    pub fn apply(&mut self, records: &[u8]) {
        let Self { log, queues, failed, .. } = self;
        if let Err(error) = log.roll() {
            *failed = Some(error);
        }
        let segment = log.last_base();
        log.append(records, |position, kind, body| queues.apply(position, segment, kind, body));
    }

    /// Writes everything that was taken in, and syncs it if the settings say so.
    ///
    /// # Errors
    /// The records are kept, if it was only impossible to write them.
    pub fn commit(&mut self) -> Result<(), Failure> {
        if let Some(error) = self.failed.take() {
            return Err(Failure::Fatal(error));
        }
        if self.log.synced() > self.marked {
            self.marked = self.log.synced();
            let mut batch = Batch::default();
            batch.add_synced(self.marked);
            self.apply(batch.bytes());
        }
        self.log.write().map_err(Failure::Unwritten)?;
        if self.settings.syncs && !Defect::SyncsNothing.is_present() {
            self.log.sync().map_err(Failure::Fatal)
        } else {
            Ok(())
        }
    }

    /// Whether [`Self::commit`] has nothing to do.
    pub fn is_committed(&self) -> bool {
        self.failed.is_none() && self.log.is_written() && (!self.settings.syncs || self.log.is_synced())
    }

    /// Makes a checkpoint if one is due, removes segments that are not needed, and rewrites those of which
    /// little is needed, in steps. True: there is more to do now.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub fn maintain(&mut self) -> Result<bool, Failure> {
        if self.remove_segment().map_err(Failure::Unwritten)? {
            return Ok(true);
        }
        let grown = self.log.end() - self.checkpoint;
        if grown + self.dead_bytes() >= self.settings.checkpoint_bytes {
            self.make_checkpoint()?;
            return Ok(true);
        }
        self.step_rewriting()
    }

    /// The damage that was found since the last call, other than by [`Self::read`].
    pub fn take_damage(&mut self) -> Vec<Damage> {
        std::mem::take(&mut self.damage)
    }

    /// The bytes of closed segments of which nothing is needed now, and something was at the last checkpoint.
    fn dead_bytes(&self) -> u64 {
        let last = self.log.last_base();
        let closed = self.log.segments().filter(|&(base, end, _)| base != last && end <= self.log.synced());
        let is_new = |base| self.queues.usage_of(base).live == 0 && !self.unneeded.contains(&base);
        closed.filter(|(base, ..)| is_new(*base)).map(|(_, _, bytes)| bytes).sum()
    }

    /// Makes a checkpoint.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub fn make_checkpoint(&mut self) -> Result<(), Failure> {
        self.log.write().map_err(Failure::Unwritten)?;
        self.log.sync().map_err(Failure::Fatal)?;
        let changes = self.queues.checkpoint(self.log.end(), &self.index).map_err(Failure::Fatal)?;
        let failed = |error| if is_full(&error) { Failure::Unwritten(error) } else { Failure::Fatal(error) };
        self.index.commit(&changes).map_err(failed)?;
        self.queues.checkpointed(&changes);
        self.checkpoint = changes.position;
        let last = self.log.last_base();
        let bases = self.log.segments().map(|(base, ..)| base).filter(|base| *base != last);
        self.unneeded = bases.filter(|base| self.queues.usage_of(*base).live == 0).collect();
        Ok(())
    }

    /// Removes what is not needed any more, also where little would be gained. `progress` is called with the bytes of
    /// the log so far, and returns whether to go on.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub fn compact(&mut self, progress: &mut dyn FnMut(u64) -> bool) -> Result<(), Failure> {
        self.settings.most_needed = COMPACT;
        self.commit()?;
        self.log.end_segment().map_err(Failure::Unwritten)?;
        self.make_checkpoint()?;
        while self.maintain()? && progress(self.log.bytes()) {}
        self.make_checkpoint()
    }

    /// Syncs everything, and makes a checkpoint, unless the next run reads what there is as fast without one.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub fn end(&mut self) -> Result<(), Failure> {
        if self.checkpoint == 0 && self.log.end() < self.settings.checkpoint_bytes / LITTLE {
            self.log.write().map_err(Failure::Unwritten)?;
            self.log.sync().map_err(Failure::Fatal)?;
            return self.commit(); // Its mark promises everything before it: what is missing there is damage.
        }
        self.make_checkpoint()
    }

    // Read

    /// The next messages of a session's queue, from a number on, in order; at least one, if there is one, and
    /// as many as take about `bytes` bytes of memory.
    ///
    /// # Errors
    /// The index fails, or the disk for another reason than that it cannot read what is there.
    pub fn read(&mut self, session: u64, from: u64, bytes: usize) -> io::Result<Messages> {
        let (mut read, mut size, mut next) = (Messages::default(), 0, from);
        loop {
            let entries = self.queues.entries(session, next, &self.index)?;
            if entries.is_empty() {
                // Without a queue, nothing is left of it.
                read.next = self.state(session).map_or(u64::MAX, |state| state.next.max(from));
                read.is_all = true;
                return Ok(read);
            }
            for (number, position) in entries {
                next = number + 1;
                let name = self.queues.in_log(session, number);
                let found = |kind, body: &[u8]| Some(Stored { number, ..stored(kind, body, name)? });
                let damage = match self.log.read(position, found) {
                    Ok(Some(message)) => {
                        size += size_of::<Stored>() + message.field.len();
                        read.messages.push(message);
                        None
                    }
                    Ok(None) => Some(self.log.damage_at(position)),
                    Err(Unreadable::Damaged(damage)) => Some(damage),
                    Err(Unreadable::Failed(error)) if error.raw_os_error() == Some(EIO) => {
                        read.damage.push(self.log.damage_at(position)); // A later run may be able to read it.
                        None
                    }
                    Err(Unreadable::Failed(error)) => return Err(error),
                };
                if let Some(damage) = damage {
                    read.damage.push(damage);
                    let mut batch = Batch::default();
                    batch.add_settled(session, [(number, number)]);
                    self.apply(batch.bytes());
                }
                if size >= bytes {
                    read.next = next;
                    return Ok(read);
                }
            }
        }
    }

    /// Calls `with` with the number and the field of each retained message and fragment, in the order of
    /// numbers. Returns what is damaged: such a message is not retained any more. One that the disk cannot read
    /// now stays.
    ///
    /// # Errors
    /// The disk fails for another reason than that it cannot read what is there.
    pub fn read_retained(&mut self, mut with: impl FnMut(u64, Vec<u8>)) -> io::Result<Vec<Damage>> {
        let (mut damage, mut batch) = (Vec::new(), Batch::default());
        for (number, position) in self.queues.retained.sorted() {
            let field = |kind, body: &[u8]| {
                let (known, field) = record::retained_of(body).filter(|_| kind == Kind::Retained)?;
                (known == number).then(|| field.to_vec())
            };
            match self.log.read(position, field) {
                Ok(Some(field)) => with(number, field),
                Err(Unreadable::Failed(error)) if error.raw_os_error() == Some(EIO) => {
                    damage.push(self.log.damage_at(position));
                }
                Err(Unreadable::Failed(error)) => return Err(error),
                found => {
                    damage.push(match found {
                        Err(Unreadable::Damaged(damage)) => damage,
                        _ => self.log.damage_at(position),
                    });
                    batch.add_not_retained([(number, number)]);
                }
            }
        }
        self.apply(batch.bytes());
        Ok(damage)
    }

    /// Calls `with` with each retained message and fragment, in the order of the log. Returns the damage of the log.
    ///
    /// # Errors
    /// The disk fails.
    pub fn each_retained(&self, mut with: impl FnMut(&[u8])) -> io::Result<Vec<Damage>> {
        if self.retained() == 0 {
            return Ok(Vec::new());
        }
        self.each_record(|_, kind, body| {
            if kind == Kind::Retained
                && let Some((number, field)) = record::retained_of(body)
                && self.queues.retained.contains(number)
            {
                with(field);
            }
        })
    }

    /// Calls `each` with the position, the kind and the body of each intact record, in the order of the log. Returns
    /// the damage.
    ///
    /// # Errors
    /// The disk fails.
    pub fn each_record(&self, mut each: impl FnMut(u64, Kind, &[u8])) -> io::Result<Vec<Damage>> {
        let (mut damage, mut bytes) = (Vec::new(), Vec::new());
        for (base, ..) in self.log.segments() {
            self.log.read_segment(base, &mut bytes)?;
            damage.extend(segment::read_segment(&bytes, base, &mut each).damage);
        }
        Ok(damage)
    }

    /// The highest number that a retained message or fragment is known to have had; 0: there was none.
    pub fn newest_retained(&self) -> u64 {
        self.queues.retained.newest()
    }

    /// How many retained messages and fragments there are.
    pub fn retained(&self) -> usize {
        self.queues.retained.len()
    }

    /// Calls `with` with the messages in the last `bytes` bytes of the log, whether they still wait or not.
    ///
    /// # Errors
    /// The disk fails.
    pub fn each_recent(&self, bytes: u64, mut with: impl FnMut(&MessageBody<'_>)) -> io::Result<()> {
        self.log.scan(self.log.end().saturating_sub(bytes), |kind, body| {
            if kind == Kind::Message
                && let Some(message) = MessageBody::parse(body)
            {
                with(&message);
            }
        })
    }

    /// A target of a message in the log as it is now: a queue may be the end of a session's queue (`Kind::Appended`).
    pub fn after_appending<'t>(&self, target: &Target<'t>) -> Target<'t> {
        self.queues.after_appending(target)
    }

    /// The states of all queues.
    pub fn states(&self) -> impl Iterator<Item = QueueState> + '_ {
        self.queues.states()
    }

    /// The state of a session's queue; `None`: it has none.
    pub fn state(&self, session: u64) -> Option<QueueState> {
        self.queues.state(session)
    }

    /// Whether the log has more bytes than it should.
    pub fn is_too_large(&self) -> bool {
        self.log.bytes() > self.settings.most_bytes
    }

    /// The bytes of all segments.
    pub fn bytes(&self) -> u64 {
        self.log.bytes()
    }

    /// Removes a segment of which nothing was needed at the last checkpoint. (What was settled since may not
    /// be synced, and wait again after a loss of power.)
    fn remove_segment(&mut self) -> io::Result<bool> {
        let is_rewritten = |base| self.rewriting.as_ref().is_some_and(|rewriting| rewriting.contains(base));
        let Some(at) = self.unneeded.iter().position(|base| !is_rewritten(*base)) else {
            return Ok(false);
        };
        let base = self.unneeded.swap_remove(at);
        self.log.remove(base)?;
        self.queues.forget_segment(base);
        Ok(true)
    }

    fn step_rewriting(&mut self) -> Result<bool, Failure> {
        if self.rewriting.is_none() {
            let Some((first, last)) = self.sparse_segments() else {
                return Ok(false);
            };
            self.rewriting = Some(self.log.begin_rewriting(first, last).map_err(Failure::Unwritten)?);
        }
        let Self { log, queues, rewriting, settings, .. } = self;
        let Some(current) = rewriting.as_mut() else {
            return Ok(false);
        };
        let mut batch = Batch::default();
        let keep = |position, kind, body: &[u8], out: &mut Vec<u8>| {
            keep(queues, &mut batch, (position, kind, body));
            out.append(&mut batch.take());
        };
        match log.rewrite(current, settings.step_bytes, keep) {
            Ok(false) => {}
            Ok(true) => self.end_rewriting()?,
            Err(unreadable) => {
                log.cancel_rewriting(current);
                let (first, end) = current.range();
                self.rewriting = None;
                match unreadable {
                    Unreadable::Damaged(damage) => {
                        // The position that a damaged record says may be wrong, so it is known by its file.
                        self.damaged.insert(segment::base_of(&damage.file).unwrap_or(first));
                        self.damage.push(damage);
                    }
                    Unreadable::Failed(error) if is_full(&error) => return Err(Failure::Unwritten(error)),
                    Unreadable::Failed(_) => self.damaged.extend(
                        self.log.segments().map(|(base, ..)| base).filter(|base| (first..end).contains(base)),
                    ),
                }
            }
        }
        Ok(true)
    }

    /// What the new segment does not have was settled; and that is in the index before the old segments are
    /// gone.
    fn end_rewriting(&mut self) -> Result<(), Failure> {
        self.make_checkpoint()?;
        if let Some(rewriting) = self.rewriting.take() {
            let (first, end) = rewriting.range();
            self.unneeded.retain(|base| !(first..end).contains(base));
            self.log.end_rewriting(rewriting).map_err(Failure::Fatal)?;
            self.queues.merge_segments(first, end);
            if self.queues.usage_of(first).live == 0 {
                self.unneeded.push(first);
            }
        }
        Ok(())
    }

    /// Adjacent segments that are worth while to be rewritten into one: much of them is not needed, or they are
    /// several small ones.
    fn sparse_segments(&self) -> Option<(u64, u64)> {
        let (last, most) = (self.log.last_base(), self.settings.segment_bytes);
        let is_sparse = |needed: u64, bytes: u64| 100 * needed < self.settings.most_needed * bytes;
        let mut found: Option<(u64, u64)> = None;
        let (mut count, mut bytes, mut needed) = (0, 0, 0);
        for (base, end, segment_bytes) in self.log.segments() {
            let usage = self.queues.usage_of(base);
            let live =
                (u128::from(segment_bytes) * u128::from(usage.live) / u128::from(usage.all.max(1))) as u64;
            let is_closed = base != last && end <= self.checkpoint && usage.live > 0;
            let is_small = is_sparse(live, segment_bytes) || segment_bytes < most / FEW;
            let is_closed = is_closed && !self.damaged.contains(&base);
            if is_closed && is_small && (found.is_none() || needed + live <= most) {
                found = Some((found.map_or(base, |(first, _)| first), base));
                (count, bytes, needed) = (count + 1, bytes + segment_bytes, needed + live);
            } else if found.is_some() && (is_sparse(needed, bytes) || count >= FEW) {
                break;
            } else {
                (found, count, bytes, needed) = (None, 0, 0, 0);
            }
        }
        found.filter(|_| is_sparse(needed, bytes) || count >= FEW)
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Adds what is to be kept of a record to a batch.
fn keep(queues: &Queues, batch: &mut Batch, (position, kind, body): (u64, Kind, &[u8])) {
    match kind {
        Kind::Retained => {
            if let Some((number, field)) = record::retained_of(body)
                && queues.retained.is_at(number, position)
            {
                batch.add_retained(number, field);
            }
        }
        // These tell numbers of the session's queues apart (`merge`).
        Kind::Ended => {
            if let Some(session) = record::number_of(body) {
                batch.add_ended(session);
            }
        }
        Kind::Appended => {
            if let Some(appended) = AppendedBody::parse(body) {
                batch.add_appended(appended);
            }
        }
        Kind::Message => {
            let Some(message) = MessageBody::parse(body) else { return };
            let live = message.targets().filter(|target| queues.is_live(target, position));
            live.for_each(|target| batch.add_target(target));
            if batch.target_bytes() > 0 {
                batch.add_message(message.expires, message.field);
            }
        }
        _ => {}
    }
}

/// The message for a queue with this name, under this number, in a record; `None`: the record has none.
fn stored(kind: Kind, body: &[u8], name: (u64, u64)) -> Option<Stored> {
    let message = MessageBody::parse(body).filter(|_| kind == Kind::Message)?;
    let target = message.targets().find(|target| (target.session, target.number) == name)?;
    let (options, field) = (target.options.to_vec(), message.field.to_vec());
    Some(Stored { number: target.number, expires: message.expires, options, field })
}
