//! The messages of a store in the order of its log.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender};

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use crate::link::receive::ranges::RangeSet;
use crate::store::Store;
use crate::store::disk::Disk;
use crate::store::index::Index;
use crate::store::merge::{Fields, Identity};
use crate::store::record::{Kind, MessageBody, SettledBody, Target};
use crate::store::segment::read_segment;

/// How a store has a message for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Waiting,
    /// It was delivered or discarded.
    Settled,
    /// It has moved, or it is unknown what became of it.
    Gone,
}

/// By session, the numbers that were delivered or discarded.
pub type Delivered = HashMap<u64, RangeSet, FxBuildHasher>;

/// The messages of one segment.
#[derive(Default)]
pub struct Chunk {
    bytes: Vec<u8>,
    pub heads: Vec<Head>,
    /// For each target of each message, one after the other.
    statuses: Vec<Status>,
}

/// A message in a chunk that waits for a session, or was settled.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    pub identity: Identity,
    /// Where the record's body is.
    start: u32,
    end: u32,
    /// Where its targets begin among those of the chunk, and how many they are.
    targets: u32,
    count: u32,
}

/// A message of a log.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    pub identity: Identity,
    pub body: &'a [u8],
    /// For each of its targets.
    pub statuses: &'a [Status],
}

impl Record<'_> {
    /// The message. It was parsed before.
    pub fn message(&self) -> MessageBody<'_> {
        MessageBody::parse(self.body).expect("it was valid")
    }
}

impl Chunk {
    /// Its memory.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub fn record(&self, head: &Head) -> Record<'_> {
        let &Head { identity, start, end, targets, count } = head;
        Record {
            identity,
            body: &self.bytes[start as usize..end as usize],
            statuses: &self.statuses[targets as usize..(targets + count) as usize],
        }
    }
}

/// The numbers that were delivered or discarded, as far as the log still says.
pub fn delivered_of<D: Disk, I: Index>(store: &Store<D, I>) -> io::Result<Delivered> {
    let mut delivered = Delivered::default();
    if store.states().all(|state| state.live + 1 == state.next) {
        return Ok(delivered);
    }
    store.each_record(|kind, body| {
        if let Some(settled) = SettledBody::parse(body).filter(|_| kind == Kind::Settled) {
            let numbers = delivered.entry(settled.session).or_insert_with(|| RangeSet::new(usize::MAX));
            settled.ranges().for_each(|(first, last)| numbers.insert_range(first, last));
        }
    })?;
    Ok(delivered)
}

/// How a store has a message for a session.
pub fn status_of<D: Disk, I: Index>(
    store: &Store<D, I>,
    delivered: &Delivered,
    target: &Target<'_>,
) -> Status {
    if store.queues.is_live(target.session, target.number) {
        Status::Waiting
    } else if delivered.get(&target.session).is_some_and(|numbers| numbers.contains(target.number)) {
        Status::Settled
    } else {
        Status::Gone
    }
}

/// Sends the messages of a store, segment by segment. `used`: memory that is not needed any more.
pub fn read_chunks<D: Disk, I: Index>(
    store: &Store<D, I>,
    delivered: &Delivered,
    fields: Fields,
    chunks: &SyncSender<io::Result<Chunk>>,
    used: &Receiver<Vec<u8>>,
) {
    for (base, ..) in store.log.segments() {
        let mut bytes = used.try_recv().unwrap_or_default();
        let is_read = store.log.read_segment(base, &mut bytes);
        let chunk = is_read.map(|()| chunk_of(store, delivered, fields, (base, bytes)));
        let has_failed = chunk.is_err();
        if chunks.send(chunk).is_err() || has_failed {
            return; // The writer has ended.
        }
    }
}

fn chunk_of<D: Disk, I: Index>(
    store: &Store<D, I>,
    delivered: &Delivered,
    fields: Fields,
    (base, bytes): (u64, Vec<u8>),
) -> Chunk {
    let (mut heads, mut statuses, begin) = (Vec::new(), Vec::new(), bytes.as_ptr() as usize);
    read_segment(&bytes, base, |kind, body| {
        let Some(message) = MessageBody::parse(body).filter(|_| kind == Kind::Message) else {
            return;
        };
        let targets = statuses.len();
        statuses.extend(message.targets().map(|target| status_of(store, delivered, &target)));
        if statuses[targets..].iter().all(|status| *status == Status::Gone) {
            return statuses.truncate(targets);
        }
        let start = (body.as_ptr() as usize - begin) as u32;
        heads.push(Head {
            identity: (fields.identity)(message.field).unwrap_or_default(),
            start,
            end: start + body.len() as u32,
            targets: targets as u32,
            count: (statuses.len() - targets) as u32,
        });
    });
    Chunk { bytes, heads, statuses }
}
