//! The queue against a plain list.

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::engine::metrics::message_metrics::MessageMetrics;
use crate::engine::sessions::queue::*;

/// `number` is its content; what it costs depends on `length`.
fn queued_message(number: u64, length: usize, overflow: Overflow, expires: Micros) -> QueuedMessage {
    let mut field = number.to_be_bytes().to_vec();
    field.resize(length.max(8), 0);
    let field = Bytes::from(field);
    QueuedMessage {
        field,
        chain: 0,
        qos: 1,
        meant_for: None,
        overflow,
        group: None,
        source: None,
        ticket: None,
        message_metrics: MessageMetrics::default(),
        expires,
        number: 0,
        stored: 0,
        was_stored: false,
        ack_queued: false,
    }
}

fn number(queued_message: &QueuedMessage) -> u64 {
    u64::from_be_bytes(queued_message.field[..8].try_into().expect("eight bytes"))
}

fn numbers(queue: &mut SessionQueue) -> Vec<u64> {
    queue.iter_mut().map(|queued_message| number(queued_message)).collect()
}

/// What is left after too much was in a plain list; true: the session is to end.
fn fit(list: &mut Vec<QueuedMessage>, bounds: Bounds, most: usize, now: Micros) -> bool {
    let bytes = |list: &[QueuedMessage]| list.iter().map(QueuedMessage::cost).sum::<usize>();
    let is_over =
        |list: &[QueuedMessage]| list.len() > bounds.messages || bytes(list) > bounds.bytes.min(most);
    if is_over(list) {
        list.retain(|queued_message| queued_message.expires > now);
    }
    let mut ends = false;
    while is_over(list) {
        let newest = list.last().expect("more than nothing");
        ends |= newest.overflow == Overflow::EndSession;
        let is_small = newest.cost() <= bounds.bytes.min(most);
        if newest.overflow == Overflow::DropOldest && is_small {
            list.remove(0);
        } else {
            list.pop();
        }
    }
    ends
}

#[test]
fn gives_way_as_its_policies_say_and_stays_within_its_bounds() {
    let mut random = SmallRng::seed_from_u64(1);
    let (mut dropped, mut expired, mut ended) = (0, 0, 0);
    for _ in 0..200 {
        let bounds = Bounds { messages: random.random_range(1..20), bytes: random.random_range(200..4_000) };
        let (mut queue, mut list) = (SessionQueue::new(bounds), Vec::new());
        for now in 0..200 {
            let policy = Overflow::from_wire(random.random_range(0..3) * i32::from(random.random_bool(0.3)));
            let expires =
                if random.random_bool(0.3) { now + random.random_range(1..40) } else { Micros::MAX };
            match random.random_range(0..10) {
                0..6 => {
                    let new = queued_message(now, random.random_range(8..600), policy, expires);
                    list.push(new.clone());
                    queue.push(new);
                }
                6..8 => {
                    let popped = queue.pop().map(|queued_message| number(&queued_message));
                    let expected = (!list.is_empty()).then(|| number(&list.remove(0)));
                    assert_eq!(popped, expected);
                }
                8 => {
                    let back: Vec<QueuedMessage> = (0..3)
                        .map(|index| queued_message(1_000 * now + index, 50, policy, Micros::MAX))
                        .collect();
                    list.splice(0..0, back.iter().cloned());
                    queue.put_back(back.into_iter());
                }
                _ => {
                    let taken = queue.extract(|queued_message| number(queued_message).is_multiple_of(3));
                    assert!(taken.is_sorted_by_key(|queued_message| {
                        list.iter().position(|each| number(each) == number(queued_message))
                    }));
                    list.retain(|queued_message| !number(queued_message).is_multiple_of(3));
                }
            }
            let most = if random.random_bool(0.1) { random.random_range(0..2_000) } else { usize::MAX };
            let ends = fit(&mut list, bounds, most, now);
            let mut has_ended = false;
            let limit = queue.limit(Bounds::default(), most);
            if queue.is_over(limit) {
                expired += queue.take_expired(now).len();
                while let Some(excess) = queue.next_excess(limit) {
                    dropped += 1;
                    has_ended |= matches!(excess, Excess::End(_));
                }
            }
            ended += usize::from(has_ended);
            assert_eq!(has_ended, ends);
            assert_eq!(numbers(&mut queue), list.iter().map(number).collect::<Vec<_>>());
            assert_eq!(queue.bytes(), list.iter().map(QueuedMessage::cost).sum::<usize>());
            assert!(queue.loaded() <= bounds.messages && queue.bytes() <= bounds.bytes.min(most));
        }
    }
    assert!(dropped > 1_000 && expired > 300 && ended > 100, "{dropped} {expired} {ended}");
}

#[test]
fn expired_messages_are_searched_for_only_when_one_can_have_expired() {
    let bounds = Bounds { messages: 10, bytes: usize::MAX };
    let mut queue = SessionQueue::new(bounds);
    (0..8).for_each(|index| queue.push(queued_message(index, 8, Overflow::DropOldest, 100 + index % 2)));
    assert!(queue.take_expired(99).is_empty());
    assert_eq!(queue.take_expired(100).len(), 4);
    assert_eq!((queue.next_expiry, queue.loaded()), (101, 4));
    assert_eq!(queue.take_expired(101).len(), 4);
    assert_eq!((queue.next_expiry, queue.bytes()), (Micros::MAX, 0));
}

#[test]
fn an_idle_one_has_given_back_what_a_burst_took() {
    let mut queue = SessionQueue::new(Bounds { messages: 10_000, bytes: 1 << 30 });
    for number in 0..5_000 {
        queue.push(queued_message(number, 8, Overflow::DropOldest, Micros::MAX));
    }
    while queue.pop().is_some() {}
    assert!(queue.queued_messages.capacity() > 0, "it may be wanted again soon");
    queue.shrink();
    assert_eq!(queue.queued_messages.capacity(), 0);
}
