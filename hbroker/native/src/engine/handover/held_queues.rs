//! The messages of a subtree outside of session queues, and the duplicate windows of its publishers. The
//! source keeps what it gave away until the target serves. The target keeps what it was given until it serves
//! (§5.4).

use std::collections::HashMap;

use bytes::Bytes;

use crate::Micros;
use crate::engine::handover::moving::Moving;
use crate::engine::sessions::message::{QueuedMessage, publish_of};
use crate::tables::match_set::Overflow;
use crate::topic;
use crate::wire::{self, GoneRecord, QueuedRecord, SeenRecord, Transfers, Waiting};

/// The queues of one subtree.
#[derive(Default)]
pub struct HeldQueues {
    pub queues: Vec<Moving>,
    /// The index in `queues`, by a queue's name.
    positions: HashMap<u64, usize>,
    /// Serialised `SeenRecord`s.
    pub seen: Vec<Vec<u8>>,
    bytes: usize,
}

impl HeldQueues {
    /// Takes the queue records of a serialised TRANSFER, as long as there are at most `most` bytes. Returns
    /// how many messages had no room, and how many records are invalid.
    pub fn take(&mut self, transfer: &[u8], most: usize) -> (usize, u64) {
        let Ok(records) = Waiting::parse(transfer) else {
            return (0, 1);
        };
        let (mut refused, mut invalid) = (0, 0);
        for record in records.gone {
            match GoneRecord::parse(record) {
                Ok(gone) => self.settle(&gone),
                Err(_) => invalid += 1,
            }
        }
        for record in records.queued {
            match QueuedRecord::parse(record)
                .ok()
                .and_then(|record| Some((queued_message_of(&record)?, record)))
            {
                Some(_) if self.bytes >= most => refused += 1,
                Some((queued_message, record)) => {
                    invalid += u64::from(!self.push(record.queue, record.session, queued_message));
                }
                None => invalid += 1,
            }
        }
        for record in records.seen {
            match SeenRecord::parse(record) {
                Ok(_) => self.seen.push(record.to_vec()),
                Err(_) => invalid += 1,
            }
        }
        (refused, invalid)
    }

    /// Adds what was taken out of sessions.
    pub fn add(&mut self, queues: Vec<Moving>) {
        self.bytes += queues.iter().map(Moving::bytes).sum::<usize>();
        self.queues.extend(queues);
    }

    /// Gives the queues other names.
    pub fn rename(&mut self, mut name: impl FnMut() -> u64) {
        self.queues.iter_mut().for_each(|moving| moving.queue = name());
        self.positions.clear();
    }

    /// The cost of keeping the messages.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.seen.is_empty()
    }

    fn push(&mut self, queue: u64, session: u64, queued_message: QueuedMessage) -> bool {
        let position = self.positions.get(&queue).copied().filter(|_| queue > 0).unwrap_or_else(|| {
            self.queues.push(Moving::new(queue, session));
            self.positions.insert(queue, self.queues.len() - 1);
            self.queues.len() - 1
        });
        let moving = &mut self.queues[position];
        let before = moving.bytes();
        let is_taken = moving.session == session && moving.push(queued_message);
        self.bytes += moving.bytes() - before;
        is_taken
    }

    fn settle(&mut self, gone: &GoneRecord) {
        if let Some(&position) = self.positions.get(&gone.queue).filter(|_| gone.queue > 0) {
            let moving = &mut self.queues[position];
            self.bytes -= moving.bytes();
            moving.settle(gone);
            self.bytes += moving.bytes();
        }
    }
}

/// Adds a message of a session's queue to a transfer.
pub fn add_queued(out: &mut Transfers, (queue, session): (u64, u64), queued_message: &QueuedMessage) {
    out.add_queued(&QueuedRecord {
        session,
        publish: &wire::message_of(&queued_message.field),
        qos: queued_message.qos,
        meant_for: queued_message.meant_for,
        group: queued_message.group.as_deref().unwrap_or_default(),
        overflow: queued_message.overflow.on_wire(),
        launched: queued_message.expires == Micros::MAX,
        queue,
        number: queued_message.number,
    });
}

/// `None`: the record is invalid.
fn queued_message_of(record: &QueuedRecord<'_>) -> Option<QueuedMessage> {
    let field = Bytes::from(wire::field_of(record.publish));
    let publish = publish_of(&field).filter(|publish| {
        topic::topic_is_valid(publish.topic) && (1..=2).contains(&publish.qos) && record.qos > 0
    })?;
    let (qos, meant_for) = (record.qos.min(publish.qos), record.meant_for);
    let overflow = Overflow::from_wire(record.overflow);
    let group = (!record.group.is_empty()).then(|| record.group.into());
    let new = QueuedMessage::new(&publish, field.clone());
    let waits = QueuedMessage { qos, meant_for, overflow, group, number: record.number, ..new };
    Some(if record.launched { waits.launched() } else { waits })
}
