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
const PART_BYTES: usize = 256 << 10;

/// Messages of a session's stored queue. Each has its number there.
struct Part {
    key: SessionKey,
    /// As in [`SessionReader`].
    base: u64,
    /// Those that were read have numbers from the first one on, below the second.
    first: u64,
    next: u64,
    queued_messages: VecDeque<QueuedMessage>,
}

/// What was read of one session's stored queue, and what was requested.
#[derive(Default)]
pub struct StoreReader {
    part: Option<Part>,
    requested: Option<Requested>,
}

/// What was requested and is not read yet.
#[derive(Clone, Copy)]
struct Requested {
    request: u64,
    key: SessionKey,
    base: u64,
    first: u64,
    /// The last number that the stored queue had then.
    last: u64,
}

/// The messages of a stored queue from a number on.
pub enum Read<'a> {
    /// Some of them. All below this number have been read.
    Part(&'a mut VecDeque<QueuedMessage>, u64),
    /// They were requested now, or before.
    Requested,
    Awaited,
}

/// Reads the stored queue of a session for an export.
pub struct SessionReader<'a> {
    pub export: u64,
    pub key: SessionKey,
    pub session: u64,
    /// The number of a message in the session is `base` plus its number in the stored queue. Each new stored queue of the
    /// session has another base.
    pub base: u64,
    /// The number, in the session, of the last message that is to be read. (Its number in the stored queue says nothing
    /// once another one has begun.)
    pub last: u64,
    pub reader: &'a mut StoreReader,
    /// The number of the last request of the export.
    pub last_request: &'a mut u64,
    pub storing: Option<&'a mut Storing>,
}

impl SessionReader<'_> {
    /// The messages from the number `from` in the stored queue on, which is not above the last one.
    pub fn read(&mut self, from: u64) -> Read<'_> {
        let Self { export, key, session, base, last, reader, last_request, storing } = self;
        let (key, base, last) = (*key, *base, *last);
        let StoreReader { part, requested } = &mut **reader;
        let is_of_it =
            |part: &Part| (part.key, part.base) == (key, base) && (part.first..part.next).contains(&from);
        part.take_if(|part| !is_of_it(part));
        if let Some(Part { queued_messages, next, .. }) = part {
            return Read::Part(queued_messages, *next);
        }
        if requested.is_some_and(|known| (known.key, known.base) == (key, base) && known.first <= from) {
            return Read::Awaited;
        }
        let Some(storing) = storing else {
            return Read::Awaited; // Only a node with a store has stored queues.
        };
        **last_request += 1;
        let last = last.saturating_sub(base);
        *requested = Some(Requested { request: **last_request, key, base, first: from, last });
        let for_export = Some((*export, **last_request));
        storing.request(ReadRequest { key, session: *session, from, bytes: PART_BYTES, for_export });
        Read::Requested
    }
}

impl StoreReader {
    /// Whether it waits for the answer to the request with this number.
    pub fn awaits(&self, request: u64) -> bool {
        self.requested.is_some_and(|requested| requested.request == request)
    }

    /// The store's answer to its request.
    pub fn take_answer(&mut self, answer: Messages) {
        let Some(Requested { key, base, first, last, .. }) = self.requested.take() else {
            return;
        };
        // At the end of the stored queue may be numbers that the store never got.
        let next = if answer.is_all { last + 1 } else { answer.next };
        let queued_messages = answer.messages.into_iter().filter_map(storing::restored).collect();
        self.part = Some(Part { key, base, first, next, queued_messages });
    }

    /// Forgets what was read.
    pub fn forget(&mut self) {
        (self.part, self.requested) = (None, None);
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
