//! Windows, rates and counts, in a time that the test makes.

use crate::bench::Nanos;
use crate::bench::load::{Counts, Load, Plan, Times};
use crate::bench::pace::Group;

const SECOND: Nanos = 1_000_000_000;

fn plan(publishers: usize, subscribers: &[(usize, usize)]) -> Plan {
    let subscribers = subscribers.iter().map(|&(first, count)| first..first + count).collect();
    let groups = vec![Group { publishers, window: Some(100), rate: None }];
    Plan { groups, subscribers, topics: 1, payload: 64, qos: 0, polls: false }
}

/// One group, at this pace.
fn paced(window: Option<u64>, rate: Option<f64>, plan: Plan) -> Plan {
    Plan { groups: vec![Group { window, rate, ..plan.groups[0] }], ..plan }
}

/// Looks as the thread does, every 50 ms, until this time.
fn look(load: &mut Load, from: Nanos, to: Nanos) {
    (from..=to).step_by(50_000_000).for_each(|now| load.look(now));
    load.look(to);
}

fn counts(load: &Load) -> Counts {
    load.counts().iter().sum()
}

fn times(load: &Load) -> Times {
    Times::merged(load.times())
}

/// Sends one message of a publisher.
fn send(load: &mut Load, stream: usize, now: Nanos) -> Vec<u8> {
    let payload = load.next_payload(stream, now).to_vec();
    load.note_sent(stream, now);
    payload
}

#[test]
fn nothing_is_sent_before_it_starts_or_once_it_has_stopped() {
    let mut load = Load::new(plan(1, &[(0, 1)]));
    assert_eq!(load.may_send(0, 5), 0);
    load.start(5);
    assert_eq!(load.may_send(0, 5), 100);
    load.stop();
    assert_eq!((load.may_send(0, 5), load.next_due()), (0, None));
}

#[test]
fn a_window_opens_when_all_subscribers_have_the_messages_and_a_quarter_is_free() {
    let mut load = Load::new(plan(1, &[(0, 1), (0, 1)]));
    load.start(0);
    let sent: Vec<_> = (0..100).map(|_| send(&mut load, 0, 0)).collect();
    assert_eq!(load.may_send(0, 0), 0);
    sent.iter().for_each(|payload| load.note_received(0, payload, 0));
    sent[..24].iter().for_each(|payload| load.note_received(1, payload, 0));
    assert_eq!(load.may_send(0, 0), 62, "half of the copies, and twelve messages' share of the rest");
    let mut load = Load::new(plan(1, &[(0, 1)]));
    load.start(0);
    let sent: Vec<_> = (0..100).map(|_| send(&mut load, 0, 0)).collect();
    sent[..24].iter().for_each(|payload| load.note_received(0, payload, 0));
    assert_eq!(load.may_send(0, 0), 0, "less than a quarter");
    load.note_received(0, &sent[24], 0);
    assert_eq!(load.may_send(0, 0), 25);
}

#[test]
fn what_is_lost_does_not_narrow_the_window_and_what_stalls_is_written_off() {
    let mut load = Load::new(plan(1, &[(0, 1)]));
    load.start(0);
    let sent: Vec<_> = (0..100).map(|_| send(&mut load, 0, 0)).collect();
    load.note_received(0, &sent[99], SECOND);
    assert_eq!(load.may_send(0, SECOND), 100);
    (0..100).for_each(|_| drop(send(&mut load, 0, SECOND)));
    look(&mut load, 0, SECOND + SECOND / 5);
    assert_eq!(load.may_send(0, 2 * SECOND), 0);
    look(&mut load, SECOND + SECOND / 5, SECOND + SECOND / 4);
    assert_eq!(load.may_send(0, 2 * SECOND), 0, "a hundred copies have a moment more");
    look(&mut load, SECOND + SECOND / 4, SECOND + SECOND / 4 + 100_000);
    assert_eq!(load.may_send(0, 2 * SECOND), 100);
    let counts = counts(&load);
    assert_eq!((counts.sent, counts.delivered, counts.lost, counts.stalls), (200, 1, 199, 1));
}

#[test]
fn every_fault_is_counted_under_its_name() {
    let mut load = Load::new(plan(3, &[(0, 2), (2, 1)]));
    load.start(0);
    let of_0: Vec<_> = (0..4).map(|_| send(&mut load, 0, 0)).collect();
    let of_2 = send(&mut load, 2, 0);
    for payload in [&of_0[0], &of_0[2], &of_0[1], &of_0[1]] {
        load.note_received(0, payload, 1);
    }
    load.note_received(0, &of_2, 1);
    load.note_received(0, &of_0[3][1..], 1);
    load.note_received(0, b"", 1);
    // One that was never sent.
    let unsent = load.next_payload(1, 1).to_vec();
    load.note_received(0, &unsent, 1);
    load.note_answers(0, 3, true);
    load.note_answers(2, 1, false);
    let expected = Counts {
        sent: 5,
        delivered: 3,
        lost: 2,
        duplicated: 1,
        disordered: 1,
        damaged: 4,
        acknowledged: 3,
        refused: 1,
        stalls: 0,
    };
    assert_eq!(counts(&load), expected);
}

#[test]
fn a_paced_load_is_due_at_equal_distances_however_late_it_leaves() {
    let mut load = Load::new(paced(None, Some(1_000.0), plan(2, &[(0, 2)])));
    load.start(SECOND);
    assert_eq!((load.may_send(0, SECOND), load.may_send(1, SECOND)), (1, 0));
    assert_eq!(load.next_due(), Some(SECOND));
    send(&mut load, 0, SECOND);
    assert_eq!(load.next_due(), Some(SECOND + 1_000_000));
    let late = SECOND + 10_500_000;
    assert_eq!((load.may_send(0, late), load.may_send(1, late)), (5, 5));
    let payload = send(&mut load, 1, late);
    load.note_received(0, &payload, late);
    let about = |nanos: u64, expected: u64| nanos.abs_diff(expected) * 500 < expected;
    let Times { latency, lateness } = times(&load);
    assert!(about(latency.max(), 9_500_000), "{}", latency.max());
    assert!(about(lateness.max(), 9_500_000), "{}", lateness.max());
    load.forget_times();
    assert!(times(&load).latency.is_empty() && times(&load).lateness.is_empty());
}

#[test]
fn those_are_prompt_that_keep_to_a_rate_beside_others_that_do_not() {
    let sparse = Group { publishers: 1, window: None, rate: Some(10.0) };
    let neighbours = Group { publishers: 2, window: Some(100), rate: None };
    let prompt = |groups: Vec<Group>| {
        let load = Load::new(Plan { groups, ..plan(3, &[(0, 1), (1, 2)]) });
        let publishers = (0..3).map(|stream| load.is_prompt(Some(stream), None));
        let subscribers = (0..2).map(|subscriber| load.is_prompt(None, Some(subscriber)));
        publishers.chain(subscribers).collect::<Vec<_>>()
    };
    assert_eq!(prompt(vec![sparse, neighbours]), [true, false, false, true, false]);
    let paced = Group { rate: Some(10.0), ..neighbours };
    assert_eq!(prompt(vec![sparse, paced]), [false; 5], "all keep to a rate");
    assert_eq!(prompt(vec![neighbours, Group { publishers: 1, ..neighbours }]), [false; 5], "none does");
}

#[test]
fn an_open_loop_has_no_limit_and_no_stalls() {
    let mut load = Load::new(paced(None, None, plan(1, &[(0, 1)])));
    load.start(0);
    (0..1_000).for_each(|_| drop(send(&mut load, 0, 0)));
    look(&mut load, 0, 9 * SECOND);
    assert_eq!((load.may_send(0, 9 * SECOND), counts(&load).stalls), (u64::MAX, 0));
}

#[test]
fn a_message_that_overtakes_another_of_its_topic_is_out_of_order_and_one_of_another_topic_is_not() {
    let mut load = Load::new(Plan { topics: 3, ..plan(1, &[(0, 1)]) });
    load.start(0);
    let mut topics = Vec::new();
    let mut sent = Vec::new();
    for _ in 0..7 {
        topics.push(load.next_topic(0));
        sent.push(send(&mut load, 0, 0));
    }
    assert_eq!(topics, [0, 1, 2, 0, 1, 2, 0]);
    // 3 comes before 1 and 2, which are of other topics.
    for number in [0, 3, 2, 1, 6, 3, 4, 1] {
        load.note_received(0, &sent[number], 1);
    }
    let found = counts(&load);
    assert_eq!((found.delivered, found.disordered, found.duplicated, found.lost), (6, 0, 2, 1));
    let mut load = Load::new(Plan { topics: 3, ..plan(1, &[(0, 1)]) });
    load.start(0);
    let sent: Vec<_> = (0..7).map(|_| send(&mut load, 0, 0)).collect();
    [6, 3, 0].iter().for_each(|&number| load.note_received(0, &sent[number], 1));
    assert_eq!((counts(&load).disordered, counts(&load).delivered), (2, 3));
}

#[test]
fn what_is_lost_of_many_topics_does_not_narrow_the_window() {
    let mut load = Load::new(Plan { topics: 10_000, ..plan(1, &[(0, 1)]) });
    load.start(0);
    let sent: Vec<_> = (0..100).map(|_| send(&mut load, 0, 0)).collect();
    load.note_received(0, &sent[99], SECOND);
    assert_eq!(load.may_send(0, SECOND), 100, "the topics of the others come again only after ten thousand");
}

/// A sparse publisher beside one that goes as fast as it may.
#[test]
fn groups_have_paces_counts_and_stalls_of_their_own() {
    let sparse = Group { publishers: 1, window: Some(10), rate: Some(10.0) };
    let full = Group { publishers: 2, window: Some(4), rate: None };
    let subscribers = vec![0..1, 1..2, 2..3];
    let plan = Plan { groups: vec![sparse, full], subscribers, topics: 1, payload: 64, qos: 1, polls: false };
    let mut load = Load::new(plan);
    load.start(0);
    assert_eq!([0, 1, 2].map(|stream| load.may_send(stream, 0)), [1, 4, 4]);
    let first = send(&mut load, 0, 0);
    assert_eq!((load.may_send(0, 0), load.next_due()), (0, Some(SECOND / 10)));
    let fast: Vec<_> = (0..8).map(|number| send(&mut load, 1 + number % 2, 0)).collect();
    load.note_answers(0, 1, true);
    load.note_answers(2, 1, false);
    load.note_received(0, &first, 5_000_000);
    load.note_received(1, &fast[0], 1_000);
    load.note_received(1, &fast[0], 1_000);
    // It comes to the wrong one.
    load.note_received(0, &fast[1], 1_000);
    // The sparse one is heard of all the time, and yet the others' windows open again.
    look(&mut load, 0, SECOND / 5);
    let second = send(&mut load, 0, SECOND / 5);
    load.note_received(0, &second, SECOND / 5);
    look(&mut load, SECOND / 5, SECOND * 3 / 10);
    assert_eq!([1, 2].map(|stream| load.may_send(stream, SECOND)), [1, 0], "not all are full");
    (0..1).for_each(|_| drop(send(&mut load, 1, SECOND)));
    look(&mut load, SECOND * 3 / 10, SECOND);
    assert_eq!([1, 2].map(|stream| load.may_send(stream, SECOND)), [4, 4]);
    let [of_sparse, of_full] = &load.counts()[..] else { panic!("two groups") };
    let expected = Counts { sent: 2, delivered: 2, damaged: 1, acknowledged: 1, ..Counts::default() };
    assert_eq!(*of_sparse, expected);
    let expected =
        Counts { sent: 9, delivered: 1, lost: 8, duplicated: 1, refused: 1, stalls: 1, ..Counts::default() };
    assert_eq!(*of_full, expected);
    let times: Vec<_> = load.times().collect();
    assert_eq!((times[0].latency.len(), times[1].latency.len()), (2, 1));
    assert_eq!((times[0].lateness.len(), times[1].lateness.len()), (2, 0));
}

#[test]
fn a_load_that_was_delayed_itself_takes_what_it_has_not_seen_yet_for_no_stall() {
    let mut load = Load::new(plan(1, &[(0, 1)]));
    load.start(0);
    (0..100).for_each(|_| drop(send(&mut load, 0, 0)));
    look(&mut load, 0, SECOND / 5);
    load.look(5 * SECOND);
    assert_eq!(counts(&load).stalls, 0, "200 ms of silence, and nobody who listened");
    look(&mut load, 5 * SECOND, 5 * SECOND + SECOND / 20 + 100_000);
    assert_eq!(counts(&load).stalls, 1);
}
