//! The messages of a subtree outside of session queues, the duplicate windows of its publishers, and the
//! choices for its shared groups (§5.4). The source holds them from the end of the export until the target serves.
//! The target holds them until it serves: in memory, or, if they are large and there is a store, there (`spooled`).

use std::collections::HashMap;

use bytes::Bytes;

use crate::Micros;
use crate::engine::handover::spooled::Spooled;
use crate::engine::handover::stored_copies::StoredPart;
use crate::engine::sessions::message::QueuedMessage;
use crate::engine::sessions::queue::MessageList;
use crate::link_id::SessionKey;
use crate::store::mailbox::Mailbox;
use crate::store::record::Batch;
use crate::tables::groups::MOST_CHOICES;
use crate::tables::subscriber::Overflow;
use crate::topic;
use crate::wire::publish_of;
use crate::wire::{self, ChoiceRecord, GoneRecord, QueuedRecord, SeenRecord, TransferRecords, Transfers};

/// The queues of one subtree.
#[derive(Default)]
pub struct HeldQueues {
    pub queues: Vec<HeldQueue>,
    /// The index in `queues`, by a queue's name.
    positions: HashMap<u64, usize>,
    /// Serialised `SeenRecord`s.
    pub seen: Vec<Vec<u8>>,
    pub choices: Vec<ChoiceRecord>,
    bytes: usize,
    /// The bytes that were left in memory when queues last went to the store.
    unspooled: usize,
    /// What the store gets.
    records: Batch,
}

/// Queues with at least `LARGE` bytes in memory go to the store first. A queue with fewer than `SMALL` never does,
/// because a queue in the store costs memory, too.
const LARGE: usize = 64 << 10;
const SMALL: usize = 4 << 10;

impl HeldQueues {
    /// Takes the queue records of a serialised TRANSFER, as long as there are at most `most` bytes. Returns
    /// how many messages had no room, and how many records are invalid.
    pub fn take(&mut self, transfer: &[u8], most: usize) -> (usize, u64) {
        let Ok(records) = TransferRecords::parse(transfer) else {
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
        for record in records.choices {
            match ChoiceRecord::parse(record) {
                Ok(_) if self.choices.len() >= MOST_CHOICES => {}
                Ok(choice) => self.choices.push(choice),
                Err(_) => invalid += 1,
            }
        }
        (refused, invalid)
    }

    /// Adds what was taken out of sessions.
    pub fn add(&mut self, queues: Vec<HeldQueue>) {
        self.bytes += queues.iter().map(HeldQueue::bytes).sum::<usize>();
        self.queues.extend(queues);
    }

    /// If there are more than `most` bytes in memory, the large queues go to the store, or all that can. `name`: the
    /// next name for a queue there.
    pub fn spool(&mut self, most: usize, mut name: impl FnMut() -> u64) {
        for least in [LARGE.min(most), SMALL.min(most)] {
            if self.bytes <= self.unspooled + most {
                return;
            }
            for held_queue in self.queues.iter_mut().filter(|held_queue| held_queue.list.bytes >= least) {
                self.bytes -= held_queue.bytes();
                held_queue.spool(&mut name, &mut self.records);
                self.bytes += held_queue.bytes();
            }
        }
        self.unspooled = self.bytes;
    }

    /// Gives the store what it gets.
    pub fn submit(&mut self, mailbox: &Mailbox) {
        if !self.records.is_empty() {
            mailbox.submit(&mut self.records);
            self.records.shrink_to(0);
        }
    }

    /// Nothing of it is needed: what is in the store is dropped there.
    pub fn drop_spooled(&mut self) {
        for spooled in self.queues.iter_mut().filter_map(HeldQueue::take_spooled) {
            self.records.add_ended(spooled.queue);
        }
    }

    /// Gives the queues other names.
    pub fn rename(&mut self, mut name: impl FnMut() -> u64) {
        self.queues.iter_mut().for_each(|held_queue| held_queue.queue = name());
        self.positions.clear();
    }

    /// The cost of keeping the messages.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.seen.is_empty() && self.choices.is_empty()
    }

    fn push(&mut self, queue: u64, session: u64, queued_message: QueuedMessage) -> bool {
        let position = self.positions.get(&queue).copied().filter(|_| queue > 0).unwrap_or_else(|| {
            self.queues.push(HeldQueue::new(queue, session));
            self.positions.insert(queue, self.queues.len() - 1);
            self.queues.len() - 1
        });
        let held_queue = &mut self.queues[position];
        let before = held_queue.bytes();
        let is_taken = held_queue.session == session && held_queue.push(queued_message);
        self.bytes += held_queue.bytes() - before;
        is_taken
    }

    fn settle(&mut self, gone: &GoneRecord) {
        if let Some(&position) = self.positions.get(&gone.queue).filter(|_| gone.queue > 0) {
            let held_queue = &mut self.queues[position];
            self.bytes -= held_queue.bytes();
            held_queue.settle(gone, &mut self.records);
            self.bytes += held_queue.bytes();
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

/// It is not worth while to close fewer holes than this.
const FEW_HOLES: usize = 1_024;

/// The messages of one session's queue while they move from the source to the target. They are in no session
/// meanwhile.
#[derive(Debug, Default)]
pub struct HeldQueue {
    /// The queue's name at the source; 0: it is a single message, which was in no queue.
    pub queue: u64,
    pub session: u64,
    /// At the source: the session from which the messages were taken. Its stored queue keeps those that are stored.
    taken_from: Option<SessionKey>,
    /// At the source: copied messages that are only in the session's stored queue. They come before those in the list.
    stored: Option<StoredPart>,
    /// At the target: messages that are only in the store. They come before those in the list.
    spooled: Option<Spooled>,
    /// Ascending by number. A message without a field is a hole: it is gone.
    list: MessageList,
    holes: usize,
    /// All messages below this number were given to their session's link.
    launched: u64,
    /// The number of messages, from the beginning of the list, that were copied while the source still served.
    copied: usize,
}

impl HeldQueue {
    pub fn new(queue: u64, session: u64) -> Self {
        Self { queue, session, ..Self::default() }
    }

    /// The messages of a session: those that are in its stored queue, and the later ones, of which the first `copied`
    /// were copied before.
    pub fn of_session(session: u64, stored: StoredPart, list: MessageList, copied: usize) -> Self {
        let key = stored.key;
        let stored = Some(stored).filter(|stored| !stored.numbers.is_empty());
        Self { list, copied, taken_from: Some(key), stored, ..Self::new(key.0, session) }
    }

    // Change

    /// Adds a message. False: a message with its number or a higher one is there already.
    pub fn push(&mut self, queued_message: QueuedMessage) -> bool {
        let spooled = self.spooled.as_ref().map(Spooled::last_at_source);
        let last = self.list.queued_messages.back().map(|last| last.number).or(spooled);
        let is_next = self.queue == 0 || last.is_none_or(|last| last < queued_message.number);
        if is_next {
            self.list.push(queued_message);
        }
        is_next
    }

    /// The messages in memory go to the store, unless they are of a shared group, or in no queue.
    fn spool(&mut self, name: &mut impl FnMut() -> u64, records: &mut Batch) {
        let is_of_group = |queued_message: &QueuedMessage| queued_message.group.is_some();
        if self.queue == 0 || self.list.queued_messages.iter().any(is_of_group) {
            return;
        }
        self.holes = 0;
        let queued_messages = std::mem::take(&mut self.list).queued_messages;
        let spooled = self.spooled.get_or_insert_with(|| Spooled::new(name()));
        let messages = queued_messages.iter().filter(|queued_message| !queued_message.is_hole());
        messages.for_each(|queued_message| spooled.add(queued_message, records));
    }

    /// Takes out what is in the store.
    pub fn take_spooled(&mut self) -> Option<Spooled> {
        self.spooled.take()
    }

    /// Removes the messages that are gone. `records`: what the store gets.
    pub fn settle(&mut self, gone: &GoneRecord, records: &mut Batch) {
        if let Some(spooled) = &mut self.spooled {
            spooled.settle(gone, records);
            if spooled.live() == 0 {
                records.add_ended(spooled.queue);
                self.spooled = None;
            }
        }
        while let Some(first) = self.list.queued_messages.front()
            && (first.number < gone.below || first.is_hole())
        {
            let is_hole = first.is_hole();
            self.holes -= usize::from(is_hole);
            self.list.pop();
        }
        for &(first, last) in &gone.ranges {
            let start =
                self.list.queued_messages.partition_point(|queued_message| queued_message.number < first);
            let inside = self
                .list
                .queued_messages
                .range_mut(start..)
                .take_while(|queued_message| queued_message.number <= last);
            for queued_message in inside.filter(|queued_message| !queued_message.is_hole()) {
                self.list.bytes -= queued_message.cost();
                queued_message.field = Bytes::new();
                self.list.bytes += queued_message.cost();
                self.holes += 1;
            }
        }
        if self.holes > self.list.queued_messages.len() / 2 + FEW_HOLES {
            self.close_holes();
        }
        let start =
            self.list.queued_messages.partition_point(|queued_message| queued_message.number < self.launched);
        let launched = self
            .list
            .queued_messages
            .range_mut(start..)
            .take_while(|queued_message| queued_message.number < gone.launched);
        launched.for_each(|queued_message| queued_message.expires = Micros::MAX);
        self.launched = self.launched.max(gone.launched);
    }

    /// Takes out what is in the stored queue of the session from which it was taken.
    pub fn take_stored(&mut self) -> Option<StoredPart> {
        self.stored.take()
    }

    /// All messages that are in the stored queue of the session from which they were taken.
    pub fn into_stored(mut self) -> Option<StoredPart> {
        let key = self.taken_from?;
        let mut stored = self.stored.take().unwrap_or_else(|| StoredPart::new(key));
        self.list.take_stored(&mut stored);
        Some(stored).filter(|stored| !stored.numbers.is_empty())
    }

    /// The remaining messages for a session. If they were not taken from it, they are not stored for it.
    pub fn into_list_for(mut self, key: SessionKey) -> MessageList {
        if self.taken_from != Some(key) {
            self.list.queued_messages.iter_mut().for_each(|queued_message| queued_message.stored = 0);
        }
        self.into_list()
    }

    /// The remaining messages.
    pub fn into_list(mut self) -> MessageList {
        self.close_holes();
        self.list
    }

    // Read

    pub fn len(&self) -> usize {
        let spooled = self.spooled.as_ref().map_or(0, Spooled::live);
        let stored = self.stored.as_ref().map_or(0, |stored| stored.numbers.count());
        self.list.queued_messages.len() - self.holes + (spooled + stored) as usize
    }

    /// Messages before those in the list, which are in the stored queue of the session from which they were taken.
    pub fn stored(&self) -> Option<&StoredPart> {
        self.stored.as_ref()
    }

    /// The memory that they take.
    pub fn bytes(&self) -> usize {
        self.list.bytes + self.spooled.as_ref().map_or(0, Spooled::cost)
    }

    /// The remaining messages in memory from a position on.
    pub fn left_from(&self, position: usize) -> impl Iterator<Item = &QueuedMessage> {
        self.list
            .queued_messages
            .range(position.min(self.list.queued_messages.len())..)
            .filter(|queued_message| !queued_message.is_hole())
    }

    /// The messages that were not copied before they were taken out.
    pub fn uncopied(&self) -> impl Iterator<Item = &QueuedMessage> {
        self.left_from(self.copied)
    }

    /// Adds these messages to a transfer.
    pub fn send<'a>(&self, queued_messages: impl Iterator<Item = &'a QueuedMessage>, out: &mut Transfers) {
        queued_messages
            .for_each(|queued_message| add_queued(out, (self.queue, self.session), queued_message));
    }

    fn close_holes(&mut self) {
        if self.holes > 0 {
            let list = &mut self.list;
            list.bytes -= list
                .queued_messages
                .iter()
                .filter(|queued_message| queued_message.is_hole())
                .map(QueuedMessage::cost)
                .sum::<usize>();
            list.queued_messages.retain(|queued_message| !queued_message.is_hole());
            self.holes = 0;
        }
    }
}

impl QueuedMessage {
    fn is_hole(&self) -> bool {
        self.field.is_empty()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use crate::wire::{PublishOut, put_publish_field};

    pub fn queued_message(number: u64) -> QueuedMessage {
        let mut field = Vec::new();
        put_publish_field(&mut field, &PublishOut { topic: "a", qos: 1, ..PublishOut::default() });
        let publish = publish_of(&field).expect("it was just written");
        QueuedMessage { number, ..QueuedMessage::new(&publish, field.clone().into()) }
    }

    #[test]
    fn what_is_gone_is_left_out_whatever_the_order() {
        for seed in 0..50 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let (mut held_queue, mut left, mut next) = (HeldQueue::new(1, 2), BTreeSet::new(), 1);
            for _ in 0..100 {
                for _ in 0..rng.random_range(0..80) {
                    next += rng.random_range(1..3);
                    assert!(held_queue.push(queued_message(next)) && !held_queue.push(queued_message(next)));
                    left.insert(next);
                }
                let mut gone = GoneRecord { queue: 1, ..GoneRecord::default() };
                gone.below = rng.random_range(0..next).saturating_sub(400);
                let mut first = gone.below;
                for _ in 0..rng.random_range(0..5) {
                    first += rng.random_range(1..100);
                    gone.ranges.push((first, first + rng.random_range(0..40)));
                    first += 40;
                }
                held_queue.settle(&gone, &mut Batch::default());
                let is_gone = |number: &u64| {
                    *number < gone.below || gone.ranges.iter().any(|run| (run.0..=run.1).contains(number))
                };
                left.retain(|number| !is_gone(number));
                assert_eq!(held_queue.len(), left.len(), "seed {seed}");
                assert!(
                    held_queue
                        .left_from(0)
                        .map(|queued_message| queued_message.number)
                        .eq(left.iter().copied())
                );
            }
            let list = held_queue.into_list();
            assert_eq!(list.bytes, list.queued_messages.iter().map(QueuedMessage::cost).sum::<usize>());
            assert!(list.queued_messages.iter().map(|queued_message| queued_message.number).eq(left));
        }
    }

    #[test]
    fn what_was_given_to_the_link_since_does_not_expire() {
        let mut held_queue = HeldQueue::new(1, 2);
        (1..=5)
            .for_each(|number| _ = held_queue.push(QueuedMessage { expires: 9, ..queued_message(number) }));
        held_queue.settle(
            &GoneRecord { queue: 1, below: 2, ranges: vec![(3, 3)], launched: 4 },
            &mut Batch::default(),
        );
        held_queue.settle(
            &GoneRecord { queue: 1, below: 2, launched: 3, ..GoneRecord::default() },
            &mut Batch::default(),
        );
        let left: Vec<_> = held_queue
            .left_from(0)
            .map(|queued_message| (queued_message.number, queued_message.expires))
            .collect();
        assert_eq!(left, [(2, Micros::MAX), (4, 9), (5, 9)]);
        held_queue.settle(&GoneRecord::all(1), &mut Batch::default());
        assert_eq!((held_queue.len(), held_queue.bytes()), (0, 0));
        assert!(held_queue.push(queued_message(1)), "its numbers begin again");
    }
}
