//! Messages of one session that move from owner to owner, and are in no queue meanwhile (§5.4). The source
//! keeps what it gave away until the target serves. The target keeps what it was sent until it serves.

use bytes::Bytes;

use crate::Micros;
use crate::engine::handover::held_queues::add_queued;
use crate::engine::sessions::message::QueuedMessage;
use crate::engine::sessions::queue::MessageList;
use crate::wire::{GoneRecord as Gone, Transfers};

/// It is not worth while to close fewer holes than this.
const FEW_HOLES: usize = 1_024;

/// The messages of one queue that move.
#[derive(Debug, Default)]
pub struct Moving {
    /// The queue's name at the source; 0: it is a single message, which was in no queue.
    pub queue: u64,
    pub session: u64,
    /// Ascending by number. A message without a field is a hole: it is gone.
    list: MessageList,
    holes: usize,
    /// All messages below this number were given to their session's link.
    launched: u64,
    /// How many messages at the beginning were copied before.
    copied: usize,
}

impl Moving {
    pub fn new(queue: u64, session: u64) -> Self {
        Self { queue, session, ..Self::default() }
    }

    /// The messages of a session, of which the first `copied` were copied before.
    pub fn of_session(queue: u64, session: u64, list: MessageList, copied: usize) -> Self {
        Self { list, copied, ..Self::new(queue, session) }
    }

    // Change

    /// Adds a message. False: a message with its number or a higher one is there already.
    pub fn push(&mut self, queued_message: QueuedMessage) -> bool {
        let is_next = self
            .list
            .queued_messages
            .back()
            .is_none_or(|last| self.queue == 0 || last.number < queued_message.number);
        if is_next {
            self.list.push(queued_message);
        }
        is_next
    }

    /// Removes the messages that are gone.
    pub fn settle(&mut self, gone: &Gone) {
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

    /// The remaining messages.
    pub fn into_list(mut self) -> MessageList {
        self.close_holes();
        self.list
    }

    // Read

    pub fn len(&self) -> usize {
        self.list.queued_messages.len() - self.holes
    }

    /// The cost of keeping them.
    pub fn bytes(&self) -> usize {
        self.list.bytes
    }

    /// The remaining messages from a position on.
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
mod tests {
    use std::collections::BTreeSet;

    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;
    use crate::wire::{PublishOut, put_publish_field};

    fn queued_message(number: u64) -> QueuedMessage {
        let mut field = Vec::new();
        put_publish_field(&mut field, &PublishOut { topic: "a", qos: 1, ..PublishOut::default() });
        let publish = crate::engine::sessions::message::publish_of(&field).expect("it was just written");
        QueuedMessage { number, ..QueuedMessage::new(&publish, field.clone().into()) }
    }

    #[test]
    fn what_is_gone_is_left_out_whatever_the_order() {
        for seed in 0..50 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let (mut moving, mut left, mut next) = (Moving::new(1, 2), BTreeSet::new(), 1);
            for _ in 0..100 {
                for _ in 0..rng.random_range(0..80) {
                    next += rng.random_range(1..3);
                    assert!(moving.push(queued_message(next)) && !moving.push(queued_message(next)));
                    left.insert(next);
                }
                let mut gone = Gone { queue: 1, ..Gone::default() };
                gone.below = rng.random_range(0..next).saturating_sub(400);
                let mut first = gone.below;
                for _ in 0..rng.random_range(0..5) {
                    first += rng.random_range(1..100);
                    gone.ranges.push((first, first + rng.random_range(0..40)));
                    first += 40;
                }
                moving.settle(&gone);
                let is_gone = |number: &u64| {
                    *number < gone.below || gone.ranges.iter().any(|run| (run.0..=run.1).contains(number))
                };
                left.retain(|number| !is_gone(number));
                assert_eq!(moving.len(), left.len(), "seed {seed}");
                assert!(
                    moving.left_from(0).map(|queued_message| queued_message.number).eq(left.iter().copied())
                );
            }
            let list = moving.into_list();
            assert_eq!(list.bytes, list.queued_messages.iter().map(QueuedMessage::cost).sum::<usize>());
            assert!(list.queued_messages.iter().map(|queued_message| queued_message.number).eq(left));
        }
    }

    #[test]
    fn what_was_given_to_the_link_since_does_not_expire() {
        let mut moving = Moving::new(1, 2);
        (1..=5).for_each(|number| _ = moving.push(QueuedMessage { expires: 9, ..queued_message(number) }));
        moving.settle(&Gone { queue: 1, below: 2, ranges: vec![(3, 3)], launched: 4 });
        moving.settle(&Gone { queue: 1, below: 2, launched: 3, ..Gone::default() });
        let left: Vec<_> = moving
            .left_from(0)
            .map(|queued_message| (queued_message.number, queued_message.expires))
            .collect();
        assert_eq!(left, [(2, Micros::MAX), (4, 9), (5, 9)]);
        moving.settle(&Gone::all(1));
        assert_eq!((moving.len(), moving.bytes()), (0, 0));
        assert!(moving.push(queued_message(1)), "its numbers begin again");
    }
}
