//! What an export reads from the store (§5.4): messages of one session's stored queue at a time, in parts. The session
//! does not take them into its memory.

use std::collections::VecDeque;

use crate::engine::sessions::message::QueuedMessage;
use crate::engine::sessions::storing::{self, Storing};
use crate::link::receive::ranges::RangeSet;
use crate::link_id::SessionKey;
use crate::store::Messages;
use crate::store::mailbox::ReadRequest;

/// About how many bytes of messages are read at once.
const PART_BYTES: usize = 1 << 20;

/// Messages of a session's stored queue. Each has its number there.
struct Part {
    key: SessionKey,
    /// Those that were read have numbers from the first one on, below the second.
    first: u64,
    next: u64,
    queued_messages: VecDeque<QueuedMessage>,
}

/// See the module.
#[derive(Default)]
pub struct StoreReader {
    part: Option<Part>,
    /// The session, the first number, and the last one that its stored queue had when it was requested.
    requested: Option<(SessionKey, u64, u64)>,
}

/// The messages of a stored queue from a number on.
pub enum Read<'a> {
    /// Some of them. All below this number have been read.
    Part(&'a mut VecDeque<QueuedMessage>, u64),
    /// They were requested now, or before.
    Requested,
    Awaited,
}

/// The stored queue of a session, as an export reads it.
pub struct StoredQueue<'a> {
    pub export: u64,
    pub key: SessionKey,
    pub session: u64,
    /// The number of its last message that is to be read.
    pub last: u64,
    pub reader: &'a mut StoreReader,
    pub storing: Option<&'a mut Storing>,
}

impl StoredQueue<'_> {
    /// The messages from the number `from` on, which is not above the last one.
    pub fn read(&mut self, from: u64) -> Read<'_> {
        let Self { export, key, session, last, reader, storing } = self;
        let StoreReader { part, requested } = &mut **reader;
        part.take_if(|part| part.key != *key || !(part.first..part.next).contains(&from));
        if let Some(Part { queued_messages, next, .. }) = part {
            return Read::Part(queued_messages, *next);
        }
        if requested.is_some_and(|(requested, first, _)| requested == *key && first <= from) {
            return Read::Awaited;
        }
        let Some(storing) = storing else {
            return Read::Awaited; // Only a node with a store has stored queues.
        };
        *requested = Some((*key, from, *last));
        let (key, session, export) = (*key, *session, *export);
        storing.request(ReadRequest { key, session, from, bytes: PART_BYTES, export });
        Read::Requested
    }
}

impl StoreReader {
    /// The store's answer to a request for messages from the number `from` on.
    pub fn take_answer(&mut self, key: SessionKey, from: u64, answer: Messages) {
        let is_its = |(requested, first, _): &mut (SessionKey, u64, u64)| (*requested, *first) == (key, from);
        let Some((_, first, last)) = self.requested.take_if(is_its) else {
            return;
        };
        // At the end of the stored queue may be numbers that the store never got.
        let next = if answer.is_all { last + 1 } else { answer.next };
        let queued_messages = answer.messages.into_iter().filter_map(storing::restored).collect();
        self.part = Some(Part { key, first, next, queued_messages });
    }

    /// Forgets what was read.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

/// Messages that were taken out of a session, and are in its stored queue still.
#[derive(Debug)]
pub struct StoredPart {
    pub key: SessionKey,
    /// Their numbers there.
    pub numbers: RangeSet,
    /// About what they would cost in memory.
    pub cost: usize,
}

impl StoredPart {
    pub fn new(key: SessionKey) -> Self {
        Self { key, numbers: RangeSet::default(), cost: 0 }
    }

    pub fn add(&mut self, queued_message: &QueuedMessage) {
        self.numbers.insert(queued_message.stored);
        self.cost += queued_message.cost();
    }
}
