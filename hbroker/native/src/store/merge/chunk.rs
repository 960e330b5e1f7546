//! Messages of a log that were read, each with what became of it.

use smallvec::SmallVec;

use crate::store::merge::Identity;
use crate::store::record::MessageBody;

/// How a store has a message for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Waiting,
    /// It was delivered or discarded.
    Settled,
    /// It has moved, or it is unknown what became of it.
    Gone,
}

/// The messages of one segment.
#[derive(Default)]
pub struct Chunk {
    pub(super) bytes: Vec<u8>,
    pub heads: Vec<Head>,
    /// For each target of each message, one after the other.
    pub(super) statuses: Vec<Status>,
}

/// A message in a chunk.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    pub identity: Identity,
    /// Where the record's body is.
    pub(super) start: u32,
    pub(super) length: u32,
    /// Where its targets begin among those of the chunk, and how many they are.
    pub(super) targets: u32,
    pub(super) count: u32,
}

/// A message in a record of a log.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    pub identity: Identity,
    pub body: &'a [u8],
    /// For each of its targets.
    pub statuses: &'a [Status],
}

impl<'a> Record<'a> {
    /// The message. It was parsed before.
    pub fn message(&self) -> MessageBody<'a> {
        MessageBody::parse(self.body).expect("it was valid")
    }
}

/// A record that was taken out of its chunk.
pub struct OwnedRecord {
    identity: Identity,
    body: Vec<u8>,
    statuses: SmallVec<[Status; 16]>,
}

impl OwnedRecord {
    pub fn new(record: &Record<'_>) -> Self {
        Self { identity: record.identity, body: record.body.to_vec(), statuses: record.statuses.into() }
    }

    pub fn record(&self) -> Record<'_> {
        Record { identity: self.identity, body: &self.body, statuses: &self.statuses }
    }

    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.body.len() + self.statuses.len()
    }
}

impl Chunk {
    pub fn record(&self, head: &Head) -> Record<'_> {
        let targets = head.targets as usize;
        Record {
            identity: head.identity,
            body: &self.bytes[head.start as usize..head.start as usize + head.length as usize],
            statuses: &self.statuses[targets..targets + head.count as usize],
        }
    }

    /// Its memory.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}
