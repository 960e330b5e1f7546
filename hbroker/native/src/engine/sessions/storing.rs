//! Messages on their way to the store (`crate::store`).
//!
//! A session that does not count as connected holds no publisher's PUBACK back; the store does it in its
//! place, until the message would survive a loss of power (§7.3). Within a turn the records gather in a batch.
//! A message is in it once, however many sessions wait for it. At the end of the turn the batch is submitted.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use crate::Micros;
use crate::broken::Defect;
use crate::engine::sessions::message::QueuedMessage;
use crate::engine::transport::delivery_records::{Ticket, Tickets};
use crate::link::receive::ranges::RangeSet;
use crate::store::mailbox::{Mailbox, ReadRequest};
use crate::store::merge::{FieldReaders, Identity};
use crate::store::record::{AppendedBody, Batch, Target};
use crate::store::{Messages, Stored};
use crate::tables::subscriber::Overflow;
use crate::wire::publish_of;
use crate::wire::{MeantFor, PublishId};

/// The targets of a message are divided into several records if they have more bytes than this.
const MOST_TARGET_BYTES: usize = 64 << 10;

/// The most messages in one record of settled messages.
const MOST_SETTLED: usize = 65_536;

/// The side of the store that an engine sees.
pub struct Storing {
    mailbox: Arc<Mailbox>,
    batch: Batch,
    /// The message whose targets are gathered.
    gathered: Option<(Bytes, Micros)>,
    /// The tickets of the messages in the batch.
    tickets: Tickets,
    /// The tickets of what was submitted and is not stored yet, each with the number of the submission.
    submitted: VecDeque<(u64, Tickets)>,
    /// What is to be read, and how many bytes were requested and not answered yet.
    requests: Vec<ReadRequest>,
    requested_bytes: usize,
    options: Vec<u8>,
    /// As [`Self::run_has_ended`].
    run_has_ended: bool,
}

impl Storing {
    pub fn new(mailbox: Arc<Mailbox>) -> Self {
        Self {
            mailbox,
            batch: Batch::default(),
            gathered: None,
            tickets: Tickets::default(),
            submitted: VecDeque::new(),
            requests: Vec::new(),
            requested_bytes: 0,
            options: Vec::new(),
            run_has_ended: false,
        }
    }

    // Change

    /// A message is to be stored for a session, under its number in the session's stored queue. `ticket`: it
    /// is returned when the message is stored.
    pub fn add(&mut self, session: u64, queued_message: &QueuedMessage, ticket: Option<Ticket>) {
        let QueuedMessage { field, expires, stored, .. } = queued_message;
        let is_same = |(gathered, until): &(Bytes, Micros)| {
            gathered.as_ptr() == field.as_ptr() && gathered.len() == field.len() && until == expires
        };
        let has_room = self.batch.target_bytes() < MOST_TARGET_BYTES;
        if !(has_room && self.gathered.as_ref().is_some_and(is_same)) {
            self.end_message();
            self.gathered = Some((field.clone(), *expires));
        }
        self.options.clear();
        put_options(&mut self.options, queued_message);
        self.batch.add_target(Target { session, number: *stored, options: &self.options });
        self.tickets.extend(ticket);
    }

    /// The store need not keep these messages any more, each with its session and its number there. Empties the
    /// lists. `moved`: those that wait at another node from now on.
    pub fn settle(&mut self, settled: &mut Vec<(u64, u64)>, moved: &mut Vec<(u64, u64)>) {
        self.add_ranges(settled, |batch, session, ranges| batch.add_settled(session, ranges));
        self.add_ranges(moved, |batch, session, ranges| batch.add_moved(session, ranges));
    }

    fn add_ranges(&mut self, numbers: &mut Vec<(u64, u64)>, add: fn(&mut Batch, u64, Vec<(u64, u64)>)) {
        if numbers.is_empty() {
            return;
        }
        self.end_message();
        numbers.sort_unstable();
        for of_session in numbers.chunk_by(|one, next| one.0 == next.0) {
            for some in of_session.chunks(MOST_SETTLED) {
                let runs = some.chunk_by(|one, next| one.1 + 1 == next.1);
                add(&mut self.batch, some[0].0, runs.map(|run| (run[0].1, run[run.len() - 1].1)).collect());
            }
        }
        numbers.clear();
    }

    /// Messages of a session, with these numbers in its stored queue, wait at another node from now on.
    pub fn moved(&mut self, session: u64, ranges: &RangeSet) {
        self.end_message();
        let ranges: Vec<(u64, u64)> = ranges.ascending().collect();
        ranges.chunks(MOST_SETTLED).for_each(|some| self.batch.add_moved(session, some.iter().copied()));
    }

    /// All queues were given to the store.
    pub fn end_run(&mut self) {
        self.run_has_ended = true;
    }

    /// A queue in the store, which no session has, becomes the end of a session's stored queue.
    pub fn append(&mut self, appended: AppendedBody) {
        self.end_message();
        self.batch.add_appended(appended);
    }

    /// A session has ended, and its stored queue with it. Another worker may begin it anew, so this is submitted
    /// at once.
    pub fn end(&mut self, session: u64) {
        self.end_message();
        self.batch.add_ended(session);
        self.submit();
    }

    /// Asks for messages of a session's stored queue.
    pub fn request(&mut self, request: ReadRequest) {
        self.requested_bytes += request.bytes;
        self.requests.push(request);
    }

    /// Takes what the store has read for this worker.
    pub fn take_answers(&mut self, worker: u8) -> Vec<(ReadRequest, Messages)> {
        let answers = if self.requested_bytes > 0 { self.mailbox.take_answers(worker) } else { Vec::new() };
        self.requested_bytes -= answers.iter().map(|(request, _)| request.bytes).sum::<usize>();
        answers
    }

    /// The tickets that are returned when the batch is stored.
    pub fn tickets(&mut self) -> &mut Tickets {
        &mut self.tickets
    }

    /// Submits what has gathered, and what is to be read afterwards.
    pub fn submit(&mut self) {
        self.end_message();
        if !self.batch.is_empty() || !self.tickets.is_empty() {
            let number = self.mailbox.submit(&mut self.batch);
            if !self.tickets.is_empty() {
                self.submitted.push_back((number, std::mem::take(&mut self.tickets)));
            }
        }
        if !self.requests.is_empty() {
            self.mailbox.request(&mut self.requests);
        }
    }

    /// Returns the tickets of what is stored now.
    pub fn return_tickets(&mut self, returned: &mut Tickets) {
        let stored = match self.submitted.is_empty() {
            true => 0,
            false if Defect::AcknowledgesUnstored.is_present() => u64::MAX,
            false => self.mailbox.stored(),
        };
        while self.submitted.front().is_some_and(|(number, _)| *number <= stored)
            && let Some((_, mut tickets)) = self.submitted.pop_front()
        {
            returned.extend(tickets.drain());
        }
    }

    // Read

    /// All queues were given to the store: this run ends. Then sessions that go offline give it nothing more, because
    /// what they have left is older than what it got.
    pub fn run_has_ended(&self) -> bool {
        self.run_has_ended
    }

    /// Whether no message should be taken over that has to be stored.
    pub fn is_full(&self) -> bool {
        self.mailbox.is_full()
    }

    /// The bytes that were requested, and are not here yet.
    pub fn requested_bytes(&self) -> usize {
        self.requested_bytes
    }

    /// Whether nothing waits for the store.
    pub fn is_drained(&self) -> bool {
        self.batch.is_empty()
            && self.gathered.is_none()
            && self.submitted.is_empty()
            && self.requested_bytes == 0
    }

    fn end_message(&mut self) {
        if let Some((field, expires)) = self.gathered.take() {
            self.batch.add_message(expires, &field);
        }
    }
}

/// The functions by which a merge of stores reads the fields and options that are stored.
pub const FIELD_READERS: FieldReaders =
    FieldReaders { identity: identity_of, topic: topic_of, share: share_of };

fn identity_of(field: &[u8]) -> Option<Identity> {
    let PublishId { publisher, sequence, published_at_us, fragment } = PublishId::of(field).ok()?;
    let first = sequence.saturating_sub(fragment.map_or(0, u64::from));
    Some(Identity { publisher, sequence, first, published_at: published_at_us })
}

/// The kind and the id of the listener, or of the shared subscription, through which a session gets a message.
fn share_of(options: &[u8]) -> (u8, u64) {
    let kind = options.first().map_or(0, |first| first >> 4);
    (kind, options.get(1..9).and_then(|id| id.first_chunk()).map_or(0, |id| u64::from_le_bytes(*id)))
}

fn topic_of(field: &[u8]) -> Option<&str> {
    publish_of(field).map(|publish| publish.topic)
}

/// How a session gets a message, as bytes: `QoS` and overflow policy; the listener or the shared subscription;
/// the shared group.
pub fn put_options(out: &mut Vec<u8>, queued_message: &QueuedMessage) {
    let QueuedMessage { qos, overflow, meant_for, group, .. } = queued_message;
    let (kind, id) = match meant_for {
        None => (0, 0),
        Some(MeantFor::Listener(id)) => (1, *id),
        Some(MeantFor::Shared(id)) => (2, *id),
    };
    out.push(qos | (*overflow as u8) << 2 | kind << 4);
    if kind > 0 {
        out.extend_from_slice(&id.to_le_bytes());
        out.extend_from_slice(group.as_deref().unwrap_or_default().as_bytes());
    }
}

/// The id of the shared subscription through which a session gets a message; 0: none.
pub fn shared_of(options: &[u8]) -> u64 {
    match options.split_first() {
        Some((first, rest)) if first >> 4 == 2 => rest.first_chunk().map_or(0, |id| u64::from_le_bytes(*id)),
        _ => 0,
    }
}

/// A message of a session's stored queue. `None`: it is not valid.
pub fn restored(stored: Stored) -> Option<QueuedMessage> {
    let Stored { number, expires, options, field } = stored;
    let field = Bytes::from(field);
    let publish = publish_of(&field)?;
    let (&first, rest) = options.split_first()?;
    let (meant_for, group) = match (first >> 4, rest.split_first_chunk()) {
        (0, _) => (None, None),
        (1, Some((id, _))) => (Some(MeantFor::Listener(u64::from_le_bytes(*id))), None),
        (2, Some((id, group))) => {
            let group = str::from_utf8(group).ok().filter(|group| !group.is_empty());
            (Some(MeantFor::Shared(u64::from_le_bytes(*id))), group.map(Into::into))
        }
        _ => return None,
    };
    let (qos, overflow) = (first & 3, Overflow::from_wire(i32::from(first >> 2 & 3)));
    let new = QueuedMessage::new(&publish, field.clone());
    Some(QueuedMessage { qos, overflow, meant_for, group, expires, stored: number, ..new })
}
