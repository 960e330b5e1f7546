//! Whoever floods waits for himself.

use std::net::IpAddr;
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::engine::transport::event::*;

const HOST: [u8; 4] = [192, 0, 2, 1];

/// An event that tells the lane it is in, and its place there.
fn event(flow: u16, position: usize) -> Event {
    let packet = position.to_be_bytes().to_vec();
    Event::Control { link: None, source: (HOST, flow).into(), packet, inbound: true, rights: 0 }
}

fn sized(bytes: usize) -> Event {
    Event::Control { link: None, source: (HOST, 1).into(), packet: vec![0; bytes], inbound: true, rights: 0 }
}

fn what(event: &Event) -> (u16, usize) {
    match event {
        Event::Control { source, packet, .. } => {
            (source.port(), usize::from_be_bytes(packet.as_slice().try_into().expect("a place")))
        }
        other => panic!("{other:?}"),
    }
}

fn flow(number: u16) -> Flow {
    match number {
        0 => Flow::Own,
        1..8 => Flow::Session(u64::from(number)),
        _ => Flow::Outside(IpAddr::from([192, 0, 2, number as u8]).into()),
    }
}

#[test]
fn a_flow_waits_for_one_event_of_each_other_at_most() {
    let mut events = Events::new(100_000, 1);
    for flood in [1, 2, 9] {
        (0..1_000).for_each(|position| events.push(flow(flood), event(flood, position)));
    }
    let _ = events.take(10);
    events.push(flow(3), event(3, 0));
    events.push(flow(0), event(0, 0));
    let next: Vec<u16> = events.take(5).iter().map(|event| what(event).0).collect();
    assert!(next.contains(&3) && next.contains(&0), "{next:?}");
}

#[test]
fn everything_comes_once_and_each_flow_in_order_whatever_the_turns() {
    let mut random = SmallRng::seed_from_u64(1);
    let mut events = Events::new(500, 1);
    let (mut pushed, mut came) = ([0; 12], [0; 12]);
    let mut refused = 0;
    for _ in 0..20_000 {
        let number = random.random_range(0..12_u16).min(random.random_range(0..12));
        let at = usize::from(number);
        if random.random_bool(0.97) {
            if events.has_room(flow(number)) {
                events.push(flow(number), event(number, pushed[at]));
                pushed[at] += 1;
            } else {
                refused += 1;
            }
        } else {
            for event in events.take(random.random_range(0..60)) {
                let (number, position) = what(&event);
                assert_eq!(position, came[usize::from(number)], "lane {number}");
                came[usize::from(number)] += 1;
            }
        }
        assert_eq!(events.len(), pushed.iter().sum::<usize>() - came.iter().sum::<usize>());
        assert!(events.len() <= 500 + 7, "a session may have one more");
    }
    assert!(refused > 100, "{refused}");
    let left = events.take(usize::MAX).len();
    assert_eq!(pushed.iter().sum::<usize>(), came.iter().sum::<usize>() + left);
    assert!(events.is_empty() && events.others.is_empty() && events.ready.iter().all(VecDeque::is_empty));
    assert_eq!((events.bytes, events.own.bytes), (0, 0));
}

/// Has this lane hold as much as it may; how much came in.
fn flood(events: &mut Events, flow: Flow) -> usize {
    let before = events.len();
    while events.has_room(flow) {
        events.push(flow, sized(1));
    }
    events.len() - before
}

#[test]
fn many_floods_at_once_leave_room_for_others() {
    let mut events = Events::new(10_000, 1);
    let held: Vec<usize> = (0..200).map(|session| flood(&mut events, Flow::Session(session))).collect();
    assert!((900..1_100).contains(&held[0]), "one alone may hold much: {}", held[0]);
    assert!(held.iter().all(|&held| held > 0), "a session has one event at least: {held:?}");
    assert!(events.len() < 9_000, "{}", events.len());
    for host in 8..200 {
        let came = flood(&mut events, flow(host));
        assert!(host > 20 || came > 10, "{came} requests of host {host} came through");
    }
    assert!(events.is_full());
    assert!(!events.has_room(flow(201)), "there may be any number of hosts");
    assert!(events.has_room(Flow::Session(201)), "there are so many sessions and no more");
    // With time they share what there is, whoever came first.
    for _ in 0..1_000 {
        events.take(100);
        (0..200).for_each(|session| _ = flood(&mut events, Flow::Session(session)));
    }
    let held: Vec<usize> =
        (0..200).map(|session| events.others[&Flow::Session(session)].events.len()).collect();
    assert!(held.iter().all(|held| (20..600).contains(held)), "{held:?}");
}

#[test]
fn a_flow_is_bounded_in_bytes_and_the_engines_own_by_all_that_there_is() {
    let mut events = Events::new(usize::MAX, 1);
    let fill = |events: &mut Events, flow| {
        while events.has_room(flow) {
            events.push(flow, sized(64_000));
        }
    };
    fill(&mut events, flow(1));
    let share = MOST_EVENT_BYTES * (SHARE - 1) / SHARE / (SHARE + 1);
    assert!((share..share + 65_000).contains(&events.bytes), "{}", events.bytes);
    fill(&mut events, flow(9));
    fill(&mut events, flow(0));
    assert!(events.is_full() && !events.has_room(flow(1)) && !events.has_room(flow(9)));
    assert!(events.bytes < MOST_EVENT_BYTES + 65_000);
    events.take(3);
    assert!(!events.is_full());
}

#[test]
fn what_is_taken_at_once_is_bounded_in_bytes_and_never_nothing() {
    let mut events = Events::new(usize::MAX, 1);
    (0..100).for_each(|_| events.push(flow(1), sized(64_000)));
    events.push(flow(2), sized(3 * TAKEN_BYTES));
    let mut left = 101;
    while !events.is_empty() {
        let taken = events.take(usize::MAX);
        left -= taken.len();
        let but_the_last = taken.iter().rev().skip(1).map(Event::bytes).sum::<usize>();
        assert!(!taken.is_empty() && but_the_last < TAKEN_BYTES, "{but_the_last}");
    }
    assert_eq!((left, events.bytes), (0, 0));
}

#[test]
fn a_burst_that_is_over_holds_no_memory() {
    let mut events = Events::new(usize::MAX, 1);
    for number in 0..50_000 {
        events.push(Flow::Session(number % 5_000), sized(1));
        events.push(Flow::Own, sized(1));
    }
    while !events.take(usize::MAX).is_empty() {}
    assert!(events.is_empty() && events.others.is_empty());
    assert!(events.own.events.capacity() < 2_000 && events.ready.iter().all(|list| list.capacity() < 2_000));
}

#[test]
fn answers_to_messages_that_follow_one_another_are_one_event() {
    let mut events = Events::new(500, 1);
    let (here, there): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
    let mut push = |first, count, topic: &Arc<str>, reason| {
        events.push(Flow::Own, Event::Published { first, count, topic: topic.clone(), reason });
    };
    for (first, count) in [(1, 1), (2, 3), (5, 1)] {
        push(first, count, &here, 0);
    }
    push(7, 1, &here, 0);
    push(8, 1, &here, 9);
    push(9, 1, &there, 9);
    push(9, 2, &there, 9);
    let told: Vec<_> = events
        .take(10)
        .into_iter()
        .map(|event| match event {
            Event::Published { first, count, topic, reason } => (first, count, topic.to_string(), reason),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [(1, 5, "a", 0), (7, 1, "a", 0), (8, 1, "a", 9), (9, 1, "b", 9), (9, 2, "b", 9)];
    assert!(
        told.iter().map(|(first, count, topic, reason)| (*first, *count, &**topic, *reason)).eq(expected)
    );
    assert_eq!((events.len(), events.bytes), (0, 0));
}

fn order(host: u8) -> Flow {
    Flow::Order(IpAddr::from([192, 0, 2, host]).into())
}

/// How many events are taken until one of this lane comes.
fn waits(events: &mut Events, number: u16) -> usize {
    (1..).find(|_| events.take(1).iter().any(|event| what(event).0 == number)).expect("it comes")
}

#[test]
fn nodes_and_orders_wait_for_no_flood_of_clients_however_many_they_are() {
    let mut events = Events::new(100_000, 1);
    for session in 1_000..60_000 {
        events.push(Flow::Session(session), event(60_000, 0));
    }
    events.prioritise(1);
    for (flow, number) in [(Flow::Session(1), 1), (Flow::Own, 2), (order(3), 3), (Flow::Session(4), 4)] {
        match number {
            4 => events.push_join(flow, event(number, 0)),
            _ => events.push(flow, event(number, 0)),
        }
        assert!(waits(&mut events, number) <= 3, "{flow:?}");
    }
    events.deprioritise(1);
    events.push(Flow::Session(1), event(1, 1));
    assert!(waits(&mut events, 1) > 50_000, "its link is gone: it is a client");
}

#[test]
fn clients_have_their_turns_whatever_nodes_send() {
    let mut events = Events::new(100_000, 1);
    for number in 0..1_000 {
        events.push(Flow::Own, event(9, number));
        events.push(order(1), event(8, number));
    }
    events.push(Flow::Session(7), event(7, 0));
    assert!(waits(&mut events, 7) <= 3);
}

#[test]
fn a_session_that_asks_to_join_goes_on_in_order() {
    let mut events = Events::new(100_000, 1);
    (0..3).for_each(|position| events.push(Flow::Session(1), event(1, position)));
    events.push_join(Flow::Session(1), event(1, 3));
    events.prioritise(1);
    events.push(Flow::Session(1), event(1, 4));
    (10..90).for_each(|session| events.push(Flow::Session(session), event(2, 0)));
    let taken: Vec<_> = events.take(15).iter().map(what).filter(|(number, _)| *number == 1).collect();
    assert_eq!(taken, (0..5).map(|position| (1, position)).collect::<Vec<_>>());
    assert_eq!(events.take(usize::MAX).len(), 70);
    assert!(events.is_empty() && events.others.is_empty());
}

#[test]
fn no_flood_takes_the_room_of_orders_and_theirs_is_bounded() {
    let mut events = Events::new(1_000, 1);
    (8..250).for_each(|host| _ = flood(&mut events, flow(host)));
    assert!(events.is_full() && events.has_room(order(1)));
    assert_eq!(flood(&mut events, order(1)), ORDERS_EACH);
    (2..250).for_each(|host| _ = flood(&mut events, order(host)));
    assert_eq!(events.orders, MOST_ORDERS);
    while !events.take(100).is_empty() {}
    assert_eq!(events.orders, 0);
}

/// A lane that becomes of another class still stands in the line of the one before: there it waits for its next turn as of that class.
#[test]
fn a_flow_takes_one_turn_in_a_round_whatever_it_was_before() {
    let mut events = Events::new(100_000, 1);
    // Others wait, so that the line of clients is long.
    for session in 100..200 {
        (0..50).for_each(|position| events.push(Flow::Session(session), event(session as u16, position)));
    }
    // A client's request, and a JOIN (of no worth) behind it: both are taken as of the class of requests.
    for _ in 0..40 {
        events.push(flow(7), event(7, 0));
        events.push_join(flow(7), event(7, 1));
        while !events.others[&flow(7)].events.is_empty() {
            events.take(1);
        }
    }
    (0..5_000).for_each(|position| events.push(flow(7), event(7, position)));
    let _ = events.take(300);
    let next = events.take(300);
    let own = next.iter().filter(|event| what(event).0 == 7).count();
    assert!(own <= 4, "one of a hundred sessions got {own} of 300 turns");
}

#[test]
fn a_flow_stands_in_each_line_once_at_most_and_is_forgotten_when_in_none() {
    let mut random = SmallRng::seed_from_u64(2);
    let mut events = Events::new(10_000, 1);
    for _ in 0..20_000 {
        let session = random.random_range(1..20_u64);
        let of_session = event(session as u16, 0);
        match random.random_range(0..8) {
            0 => events.push_join(Flow::Session(session), of_session),
            1 => events.prioritise(session),
            2 => events.deprioritise(session),
            3 => _ = events.take(random.random_range(0..12)),
            4 => events.push(Flow::Own, event(0, 0)),
            _ => events.push(Flow::Session(session), of_session),
        }
        let flows =
            events.others.iter().map(|(flow, queue)| (*flow, queue)).chain([(Flow::Own, &events.own)]);
        for (flow, queue) in flows {
            let entries_of =
                |class: usize| events.ready[class].iter().filter(|other| **other == flow).count();
            assert_eq!([0, 1, 2].map(entries_of), queue.is_listed.map(usize::from), "{flow:?}");
            assert!(queue.events.is_empty() || queue.is_listed[queue.class as usize], "{flow:?}");
            assert!(flow == Flow::Own || queue.is_listed.contains(&true), "{flow:?}");
        }
    }
    while !events.take(100).is_empty() {}
    assert!(events.is_empty() && events.others.is_empty() && events.ready.iter().all(VecDeque::is_empty));
}
