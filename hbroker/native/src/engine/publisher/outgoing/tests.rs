//! A publisher's order, turns, expiry and bounds, without links.

use crate::engine::fragmentation::fragments::{Split, Splitter};
use crate::engine::publisher::outgoing::*;
use crate::engine::transport::delivery_records::DeliveryRecords;
use crate::wire::PublishOut;

const HERE: ([u8; 4], u16) = ([10, 0, 0, 1], 1);
const THERE: ([u8; 4], u16) = ([10, 0, 0, 2], 1);

fn publisher() -> Publisher {
    Publisher::new(Zones::new(10, 1), 10_000, KeyedHash::new(1))
}

/// Settles the ticket of one message.
fn settle_one(publisher: &mut Publisher, ticket: Ticket) -> Fragment {
    publisher.settle(ticket, Positions::all(1)).remove(0)
}

/// A client's messages, numbered as they are made.
struct Messages(Splitter);

impl Messages {
    fn new() -> Self {
        Self(Splitter::new(1, 1_200))
    }

    fn make(&mut self, topic: &str, bytes: usize, qos: u8, expiry_s: Option<u32>) -> Outgoing {
        self.split(topic, bytes, qos, expiry_s).keep(|| vec![7; bytes].into())
    }

    fn split(&mut self, topic: &str, bytes: usize, qos: u8, expiry_s: Option<u32>) -> Split {
        let payload = vec![7; bytes];
        let message = PublishOut { topic, payload: &payload, qos, expiry_s, ..PublishOut::default() };
        self.0.split(topic.into(), &message).expect("the topic is short")
    }

    /// A message of 5,000 bytes waits, which are five parts.
    fn open(&mut self, publisher: &mut Publisher, topic: &str, expiry_s: Option<u32>) {
        let split = self.split(topic, 5_000, 1, expiry_s);
        let Split::LargeMessage(fragments) = &split else { panic!("it fits") };
        assert_eq!(fragments.count(), 5);
        publisher.open(fragments);
        let large = split.keep(|| vec![7; 5_000].into());
        assert_eq!(large.bytes(), 5_000);
        publisher.push(large);
    }

    fn single(&mut self) -> Fragment {
        match self.make("a", 100, 1, None) {
            Outgoing::Single(fragment) => fragment,
            Outgoing::LargeMessage(_) => panic!("100 bytes fit"),
        }
    }
}

#[test]
fn a_route_holds_until_a_zone_changes_or_ends_or_something_is_in_its_way() {
    let (mut publisher, mut messages) = (publisher(), Messages::new());
    let (here, there) = (HERE.into(), THERE.into());
    let unknown = publisher.route(0, "a");
    assert!(unknown.owner.is_none() && !publisher.is_valid_route(0, &unknown));
    publisher.zones.install("", &[], here, 1_000);
    let route = publisher.route(0, "a");
    assert_eq!((route.owner, route.is_last), (Some(here), true));
    assert!(
        publisher.is_valid_route(0, &route)
            && publisher.is_valid_route(999, &route)
            && !publisher.is_valid_route(1_000, &route)
    );

    let ticket = publisher.keep(here, messages.single(), 7);
    assert!(publisher.is_valid_route(0, &route), "it is in flight to the same owner");
    let fragment = settle_one(&mut publisher, ticket);
    publisher.give_back(fragment);
    assert!(!publisher.is_valid_route(0, &route), "it would overtake what waits");
    let fragment = publisher.take_first("a").expect("it waits");
    let _ticket = publisher.keep(there, fragment, 8);
    assert!(!publisher.is_valid_route(0, &route), "it would overtake what is in flight elsewhere");

    let other = publisher.route(0, "b");
    assert!(!other.is_last && publisher.is_valid_route(0, &other));
    publisher.zones.forget(Some(there));
    assert!(!publisher.is_valid_route(0, &other), "something may be known by now");
}

#[test]
fn nothing_overtakes_what_is_in_flight_elsewhere_or_may_come_back() {
    let (mut publisher, mut messages) = (publisher(), Messages::new());
    let (here, there) = (HERE.into(), THERE.into());
    publisher.zones.install("", &[], here, 1_000);
    let first = publisher.keep(here, messages.single(), 7);
    let second = publisher.keep(here, messages.single(), 8);
    assert_eq!((publisher.last("a"), publisher.last("b")), (8, 0));
    assert_eq!(publisher.route(0, "a").owner, Some(here));
    publisher.zones.install("", &[], there, 1_000);
    assert_eq!(publisher.route(0, "a").owner, None, "two are in flight to the old owner");
    let refused = settle_one(&mut publisher, first);
    publisher.give_back(refused);
    publisher.push(Outgoing::Single(messages.single()));
    assert_eq!(publisher.next(0, "a"), Next::AwaitInFlight, "the second may come back");
    publisher.zones.install("", &[], here, 1_000);
    assert_eq!(publisher.next(0, "a"), Next::AwaitInFlight, "the second would be overtaken by the first");
    let refused = settle_one(&mut publisher, second);
    publisher.give_back(refused);
    assert!(matches!(publisher.next(0, "a"), Next::Send { owner, qos: 1, .. } if owner == here));
    let order: Vec<u64> =
        std::iter::from_fn(|| publisher.take_first("a")).map(|fragment| fragment.sequence).collect();
    assert_eq!(order, [1, 2, 3]);
    assert!(publisher.is_drained() && publisher.budget.bytes == 0);
}

#[test]
fn what_waits_goes_together_as_far_as_there_is_room_and_its_numbers_follow_one_another() {
    let (mut publisher, mut messages) = (publisher(), Messages::new());
    let room = |messages, bytes| Room { messages, bytes };
    let fields: Vec<Fragment> = (0..9).map(|_| messages.single()).collect();
    fields[..5].iter().for_each(|fragment| publisher.give_back(fragment.clone()));
    messages.single();
    for message in [messages.make("a", 9, 1, None), messages.make("a", 9, 1, None)] {
        publisher.push(message);
    }
    publisher.push(messages.make("a", 9, 1, Some(60)));
    for _ in 0..2 {
        publisher.push(messages.make("a", 9, 2, None));
    }
    messages.open(&mut publisher, "a", None);
    let one = fields[0].field.len();
    let mut take = |room| publisher.take_batch("a", room).map(|run| (run.sequence, run.count, run.field));
    let joined = |fragments: &[Fragment]| {
        fragments.iter().flat_map(|fragment| fragment.field.to_vec()).collect::<Vec<u8>>()
    };
    assert_eq!(take(room(2, 9_999)), Some((1, 2, joined(&fields[..2]).into())), "by number");
    assert_eq!(take(room(9, 3 * one - 1)), Some((3, 2, joined(&fields[2..4]).into())), "by bytes");
    assert_eq!(take(room(0, 0)), Some((5, 1, fields[4].field.clone())), "the first may go");
    let mut take_all = || take(room(99, 9_999)).map(|(sequence, count, _)| (sequence, count));
    assert_eq!(take_all(), Some((11, 2)), "a gap before, one that dies behind");
    let singles: Vec<_> = std::iter::from_fn(take_all).collect();
    assert_eq!(singles.iter().map(|(_, count)| count).sum::<u32>() as usize, singles.len());
    assert_eq!(singles[..4].iter().map(|(sequence, _)| *sequence).collect::<Vec<_>>(), [13, 14, 15, 16]);
    assert!(publisher.is_drained() && publisher.budget.bytes == 0);
}

#[test]
fn what_goes_together_fills_no_more_than_a_block() {
    let (mut publisher, mut messages) = (publisher(), Messages::new());
    (0..30).for_each(|_| publisher.push(Outgoing::Single(messages.single())));
    let room = Room { messages: 100, bytes: 100_000 };
    let runs: Vec<Fragment> = std::iter::from_fn(|| publisher.take_batch("a", room)).collect();
    assert!(runs.iter().all(|run| run.field.len() <= 1_200), "as what is gathered");
    assert!(runs.len() <= 6 && runs.iter().map(|run| run.count).sum::<u32>() == 30, "{}", runs.len());
    assert!(runs.iter().map(|run| run.sequence).is_sorted() && publisher.is_drained());
}

/// Several messages, as one part.
fn together(messages: &mut Messages, sizes: &[usize]) -> Fragment {
    let fragments: Vec<Fragment> = sizes
        .iter()
        .map(|&size| match messages.make("a", size, 1, None) {
            Outgoing::Single(fragment) => fragment,
            Outgoing::LargeMessage(_) => panic!("it fits"),
        })
        .collect();
    let field: Vec<u8> = fragments.iter().flat_map(|fragment| fragment.field.to_vec()).collect();
    Fragment { field: field.into(), count: sizes.len() as u32, ..fragments[0].clone() }
}

#[test]
fn messages_that_went_together_come_back_each_for_itself() {
    let (mut publisher, mut messages) = (publisher(), Messages::new());
    publisher.zones.install("", &[], HERE.into(), 1_000);
    let run = together(&mut messages, &[10, 0, 300, 20, 20, 20]);
    let whole = run.field.clone();
    let ticket = publisher.keep(HERE.into(), run, 7);
    assert_eq!((publisher.last("a"), publisher.in_flight()), (12, 6));
    let mut entry: DeliveryRecords<Ticket> = DeliveryRecords::default();
    entry.open_batch(7, 6, ticket);
    let mut settle = |publisher: &mut Publisher, first, last| -> Vec<Fragment> {
        let mut answered = Vec::new();
        entry.settle(first, last, |ticket, positions| answered.push((*ticket, positions)));
        answered.into_iter().flat_map(|(ticket, positions)| publisher.settle(ticket, positions)).collect()
    };
    let middle = settle(&mut publisher, 9, 10);
    assert_eq!(
        middle.iter().map(|fragment| (fragment.message, fragment.count)).collect::<Vec<_>>(),
        [(3, 2)]
    );
    let outer = settle(&mut publisher, 7, 11);
    let told: Vec<_> = outer.iter().map(|fragment| (fragment.sequence, fragment.count)).collect();
    assert_eq!((told, publisher.in_flight()), (vec![(1, 2), (5, 1)], 1));
    let in_order = [&outer[0], &middle[0], &outer[1]].map(|fragment| fragment.field.to_vec()).concat();
    assert!(whole.starts_with(&in_order));
    // Refused from the second on: the last is still out, and nothing passes it.
    publisher.give_back(outer[0].section(1, 1));
    publisher.give_back(middle[0].clone());
    assert_eq!((publisher.waiting(), publisher.next(0, "a")), (3, Next::AwaitInFlight));
    let last = settle(&mut publisher, 0, u64::MAX);
    assert_eq!((last.len(), publisher.in_flight()), (1, 0));
    publisher.give_back(last[0].clone());
    let back: Vec<_> = std::iter::from_fn(|| publisher.take_first("a"))
        .map(|fragment| (fragment.sequence, fragment.message, fragment.count))
        .collect();
    assert_eq!(back, [2, 3, 4, 6].map(|sequence| (sequence, sequence, 1)));
    assert!(publisher.is_drained() && publisher.budget.bytes == 0);
}

#[test]
fn a_message_that_failed_in_one_fragment_leaves_none_behind() {
    let (mut publisher, mut messages) = (publisher(), Messages::new());
    messages.open(&mut publisher, "a", None);
    publisher.push(Outgoing::Single(messages.single()));
    let [first, second] = [0; 2].map(|_| publisher.take_first("a").expect("there are five parts"));
    let tickets = [publisher.keep(HERE.into(), first, 1), publisher.keep(HERE.into(), second, 2)];
    let failed = settle_one(&mut publisher, tickets[0]);
    assert!(publisher.abandon(&failed));
    assert_eq!(publisher.waiting(), 1, "the next message waits on");
    let refused = settle_one(&mut publisher, tickets[1]);
    assert!(!publisher.abandon(&refused) && !publisher.completes(&refused));
    publisher.give_back(refused);
    let next = publisher.take_first("a").expect("the next message");
    assert_eq!((next.sequence, publisher.waiting(), publisher.budget.bytes), (6, 0, 0));
}

#[test]
fn a_message_larger_than_all_that_may_wait_waits_beside_it() {
    let (mut publisher, mut messages) = (publisher(), Messages::new());
    assert!(publisher.may_wait(1_000_000));
    publisher.push(messages.make("a", 1_000_000, 0, None));
    assert!(!publisher.may_wait(10_001) && publisher.may_wait(10_000));
    publisher.push(messages.make("b", 9_000, 0, None));
    assert!(publisher.may_wait(1_000) && !publisher.may_wait(1_001));
    while publisher.take_first("a").is_some() {}
    assert!(publisher.may_wait(1_000_000) && !publisher.is_waiting("a"));
}

#[test]
fn what_waits_dies_in_time_and_what_was_begun_does_not() {
    let (mut publisher, mut messages) = (publisher(), Messages::new());
    for expiry in [Some(3), None, Some(1), Some(2)] {
        publisher.push(messages.make("a", 10, 2, expiry));
    }
    messages.open(&mut publisher, "b", Some(1));
    messages.open(&mut publisher, "c", Some(1));
    let begun = publisher.take_first("b").expect("its first part");
    assert_eq!((publisher.next_expiry(), publisher.expire(999_999)), (Some(1_000_000), vec![]));
    let expired: Vec<u64> = publisher.expire(2_000_000).into_iter().map(|ended| ended.message).collect();
    assert_eq!(expired, [3, 10, 4], "in the order of their expiry");
    assert_eq!(publisher.next_expiry(), Some(3_000_000));
    let first = publisher.take_first("a").expect("two are left");
    assert_eq!((first.sequence, publisher.next_expiry()), (1, None));
    publisher.give_back(first);
    assert_eq!(publisher.expire(3_000_000)[0].message, 1, "it came back, and waits again");
    assert_eq!(publisher.take_first("a").map(|fragment| fragment.sequence), Some(2));
    assert_eq!(std::iter::from_fn(|| publisher.take_first("b")).count() as u32, begun.fragments - 1);
    assert!(publisher.is_drained() && publisher.budget.bytes == 0 && publisher.fragments_out.len() == 1);
}

#[test]
fn topics_take_turns_and_leave_no_turn_behind() {
    let (mut publisher, mut messages) = (publisher(), Messages::new());
    for topic in ["a", "b", "c"] {
        publisher.push(messages.make(topic, 10, 1, Some(1)));
        publisher.block(HERE.into(), &topic.into());
    }
    publisher.block(THERE.into(), &"c".into());
    assert_eq!(publisher.unblock(HERE.into()).as_deref(), Some("a"));
    publisher.block(HERE.into(), &"a".into());
    assert!(!publisher.is_blocked("a") && publisher.is_waiting("a"));
    assert_eq!(publisher.unblock(HERE.into()).as_deref(), Some("b"));
    assert!(publisher.is_blocked("b"));
    assert_eq!(publisher.expire(1_000_000).len(), 3);
    assert!(publisher.blocked.is_empty() && publisher.unblock(HERE.into()).is_none());
}
