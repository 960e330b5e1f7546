//! The messages of a store in the order of its log.

use std::io;
use std::sync::mpsc::SyncSender;

use crate::store::Store;
use crate::store::disk::Disk;
use crate::store::index::Index;
use crate::store::merge::decisions::Bits;
use crate::store::merge::{Fields, Identity};
use crate::store::record::{Kind, MessageBody};
use crate::store::segment::read_segment;

/// The messages of one segment.
#[derive(Default)]
pub struct Chunk {
    pub bytes: Vec<u8>,
    pub heads: Vec<Head>,
    /// For each target of each message, one after the other: whether it is kept.
    pub kept: Bits,
}

/// A message in a chunk that still has a target.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    pub identity: Identity,
    /// Where the record's body is.
    start: u32,
    end: u32,
    /// Where its targets begin among those of the chunk.
    pub targets: u32,
}

impl Chunk {
    /// A message. It was parsed before.
    pub fn message(&self, head: &Head) -> MessageBody<'_> {
        let body = &self.bytes[head.start as usize..head.end as usize];
        MessageBody::parse(body).expect("it was valid")
    }

    /// The body of a message's record.
    pub fn body(&self, head: &Head) -> &[u8] {
        &self.bytes[head.start as usize..head.end as usize]
    }
}

/// Sends the messages of a store that are still needed, segment by segment.
pub fn read_chunks<D: Disk, I: Index>(
    store: &Store<D, I>,
    dropped: &Bits,
    fields: Fields,
    chunks: &SyncSender<io::Result<Chunk>>,
) {
    let mut live = 0;
    for (base, ..) in store.log.segments() {
        let chunk = store
            .log
            .read_whole(base)
            .map(|bytes| chunk_of(store, dropped, fields, (base, bytes), &mut live));
        let has_failed = chunk.is_err();
        if chunks.send(chunk).is_err() || has_failed {
            return; // The writer has ended.
        }
    }
}

fn chunk_of<D: Disk, I: Index>(
    store: &Store<D, I>,
    dropped: &Bits,
    fields: Fields,
    (base, bytes): (u64, Vec<u8>),
    live: &mut u64,
) -> Chunk {
    let (mut heads, mut kept, begin) = (Vec::new(), Bits::default(), bytes.as_ptr() as usize);
    read_segment(&bytes, base, |kind, body| {
        let Some(message) = MessageBody::parse(body).filter(|_| kind == Kind::Message) else {
            return;
        };
        let (targets, mut is_needed) = (kept.len() as u32, false);
        for target in message.targets() {
            let is_live = store.queues.is_live(target.session, target.number);
            let is_kept = is_live && !dropped.has(*live);
            *live += u64::from(is_live);
            kept.push(is_kept);
            is_needed |= is_kept;
        }
        if is_needed {
            let start = (body.as_ptr() as usize - begin) as u32;
            let identity = (fields.identity)(message.field).unwrap_or_default();
            heads.push(Head { identity, start, end: start + body.len() as u32, targets });
        }
    });
    Chunk { bytes, heads, kept }
}
