//! What the log of a store says, message by message.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender};

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use crate::link::receive::ranges::RangeSet;
use crate::store::Store;
use crate::store::disk::Disk;
use crate::store::index::Index;
use crate::store::log::segment::{self, Damage, read_intact_segment, read_segment};
use crate::store::merge::chunk::{Chunk, Head, Status};
use crate::store::merge::order::Order;
use crate::store::merge::{FieldReaders, Identity};
use crate::store::record::{self, AppendedBody, Kind, MessageBody, SettledBody, Target};

/// About the memory that a target takes in [`LogSummary::later`], and what else is kept for its message.
const TARGET: usize = 64;
const MESSAGE: usize = 96;

/// The summary of a log, from a first pass through it: its messages, and what became of them.
#[derive(Default)]
pub struct LogSummary {
    pub order: Order,
    /// By publisher and sequence: the targets in the records of a message after its first one, with their positions.
    later: HashMap<(u64, u64), Vec<LaterTarget>, FxBuildHasher>,
    delivered: Delivered,
    pub damage: Vec<Damage>,
}

struct LaterTarget {
    session: u64,
    number: u64,
    position: u64,
    options: Box<[u8]>,
}

/// What was delivered or discarded.
#[derive(Default)]
struct Delivered {
    /// By session, the numbers. A session may have had several queues, one after the other, each with numbers from 1
    /// on: each is here with the position at which it ended.
    numbers: HashMap<u64, Vec<(u64, RangeSet)>, FxBuildHasher>,
    /// The queues that were appended to those of sessions, by name, with the positions at which that was.
    appended: HashMap<u64, (AppendedBody, u64), FxBuildHasher>,
}

impl Delivered {
    fn note(&mut self, position: u64, kind: Kind, body: &[u8]) {
        match kind {
            Kind::Settled => {
                if let Some(settled) = SettledBody::parse(body) {
                    let (_, numbers) = self.present(settled.session);
                    settled.ranges().for_each(|(first, last)| numbers.insert_range(first, last));
                }
            }
            Kind::Ended => {
                if let Some(session) = record::number_of(body) {
                    self.present(session).0 = position;
                }
            }
            Kind::Appended => {
                if let Some(appended) = AppendedBody::parse(body) {
                    self.appended.insert(appended.queue, (appended, position));
                }
            }
            _ => {}
        }
    }

    /// The queue of a session that has not ended.
    fn present(&mut self, session: u64) -> &mut (u64, RangeSet) {
        let queues = self.numbers.entry(session).or_default();
        if queues.last().is_none_or(|(end, _)| *end < u64::MAX) {
            queues.push((u64::MAX, RangeSet::default()));
        }
        queues.last_mut().expect("it was just pushed, if there was none")
    }

    fn has(&self, target: &Target<'_>, position: u64) -> bool {
        let was_appended = |(appended, then): &(AppendedBody, u64)| {
            self.has_number(appended.session, appended.base + target.number, *then)
        };
        self.has_number(target.session, target.number, position)
            || self.appended.get(&target.session).is_some_and(was_appended)
    }

    fn has_number(&self, session: u64, number: u64, position: u64) -> bool {
        let queues = self.numbers.get(&session).map_or(&[][..], Vec::as_slice);
        let at = queues.partition_point(|(end, _)| *end < position);
        queues.get(at).is_some_and(|(_, numbers)| numbers.contains(number))
    }
}

impl LogSummary {
    /// Reads the log of a store. `None`: what has to be kept takes more memory.
    pub fn of<D: Disk, I: Index>(
        store: &Store<D, I>,
        fields: FieldReaders,
        memory: usize,
    ) -> io::Result<Option<Self>> {
        let (mut summary, mut bytes) = (Self::default(), 0);
        let damage = store.each_record(|position, kind, body| {
            let Some(message) = MessageBody::parse(body).filter(|_| kind == Kind::Message) else {
                return summary.delivered.note(position, kind, body);
            };
            let identity = (fields.identity)(message.field).unwrap_or_default();
            if bytes + summary.order.bytes() > memory || !summary.order.add(&identity) {
                return;
            }
            let later = summary.later.entry((identity.publisher, identity.sequence)).or_default();
            bytes += if later.is_empty() { MESSAGE } else { 0 };
            for Target { session, number, options } in message.targets() {
                later.push(LaterTarget { session, number, position, options: options.into() });
                bytes += TARGET;
            }
        })?;
        summary.damage = damage;
        Ok((bytes + summary.order.bytes() <= memory).then_some(summary))
    }

    /// How the store has a message for a session, according to one of its records.
    pub fn status<D: Disk, I: Index>(
        &self,
        store: &Store<D, I>,
        target: &Target<'_>,
        position: u64,
    ) -> Status {
        let now = store.after_appending(target);
        // The record that says so may be gone.
        let was_settled =
            || now.session != target.session && self.delivered.has_number(now.session, now.number, u64::MAX);
        if store.queues.is_live(target, position) {
            Status::Waiting
        } else if self.delivered.has(target, position) || was_settled() {
            Status::Settled
        } else {
            Status::Gone
        }
    }

    /// A target in the log, with the session whose queue it is in now.
    pub fn of_session<'t, D: Disk, I: Index>(&self, store: &Store<D, I>, target: &Target<'t>) -> Target<'t> {
        let now = store.after_appending(target);
        match self.delivered.appended.get(&now.session) {
            Some((appended, _)) => {
                Target { session: appended.session, number: appended.base + now.number, options: now.options }
            }
            None => now,
        }
    }

    /// Whether a message has more than one record.
    pub fn has_later(&self, identity: &Identity) -> bool {
        !self.later.is_empty() && self.later.contains_key(&(identity.publisher, identity.sequence))
    }

    /// Calls `with` with all targets of a message in the records after its first one.
    pub fn later_targets<'k, D: Disk, I: Index>(
        &'k self,
        store: &Store<D, I>,
        identity: &Identity,
        mut with: impl FnMut(Status, &Target<'k>),
    ) {
        if self.later.is_empty() {
            return;
        }
        for later in self.later.get(&(identity.publisher, identity.sequence)).into_iter().flatten() {
            let &LaterTarget { session, number, position, ref options } = later;
            let target = Target { session, number, options };
            with(self.status(store, &target, position), &self.of_session(store, &target));
        }
    }
}

/// Sends the messages of a store, segment by segment. `used`: memory that is not needed any more.
pub fn read_chunks<D: Disk, I: Index>(
    store: &Store<D, I>,
    summary: &LogSummary,
    fields: FieldReaders,
    chunks: &SyncSender<io::Result<Chunk>>,
    used: &Receiver<Vec<u8>>,
) {
    for (base, ..) in store.log.segments() {
        let mut bytes = used.try_recv().unwrap_or_default();
        let is_read = store.log.read_segment(base, &mut bytes).and_then(|()| check_length(&bytes));
        let chunk = is_read.map(|()| chunk_of(store, summary, fields, (base, bytes)));
        let has_failed = chunk.is_err();
        if chunks.send(chunk).is_err() || has_failed {
            return; // The writer has ended.
        }
    }
}

/// Offsets in a segment are kept in 32 bits. A segment is much shorter than that.
fn check_length(bytes: &[u8]) -> io::Result<()> {
    u32::try_from(bytes.len())
        .map(drop)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a segment has 4 GiB"))
}

fn chunk_of<D: Disk, I: Index>(
    store: &Store<D, I>,
    summary: &LogSummary,
    fields: FieldReaders,
    (base, bytes): (u64, Vec<u8>),
) -> Chunk {
    let (mut heads, mut statuses, begin) = (Vec::new(), Vec::new(), bytes.as_ptr() as usize);
    let each = |position, kind, body: &[u8]| {
        if let Some(message) = MessageBody::parse(body).filter(|_| kind == Kind::Message) {
            let targets = statuses.len();
            statuses.extend(message.targets().map(|target| summary.status(store, &target, position)));
            heads.push(Head {
                identity: (fields.identity)(message.field).unwrap_or_default(),
                start: (body.as_ptr() as usize - begin) as u32,
                length: body.len() as u32,
                targets: targets as u32,
                count: (statuses.len() - targets) as u32,
            });
        }
    };
    if summary.damage.iter().any(|damage| segment::base_of(&damage.file) == Some(base)) {
        read_segment(&bytes, base, each);
    } else {
        read_intact_segment(&bytes, base, each);
    }
    Chunk { bytes, heads, statuses }
}
