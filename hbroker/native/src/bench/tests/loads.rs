//! Windows, rates and counts, in a time that the test makes.

use crate::bench::Nanos;
use crate::bench::load::{Counts, Load, Plan};

const SECOND: Nanos = 1_000_000_000;

fn plan(publishers: usize, subscribers: &[(usize, usize)]) -> Plan {
    let subscribers = subscribers.iter().map(|&(first, count)| first..first + count).collect();
    Plan { publishers, subscribers, payload: 64, qos: 0, window: Some(100), rate: None }
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
    load.look(SECOND + SECOND / 10);
    assert_eq!(load.may_send(0, 2 * SECOND), 0);
    load.look(2 * SECOND);
    assert_eq!(load.may_send(0, 2 * SECOND), 100);
    let counts = load.counts();
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
    load.note_answer(true);
    load.note_answer(false);
    let expected = Counts {
        sent: 5,
        delivered: 3,
        lost: 2,
        duplicated: 1,
        disordered: 1,
        damaged: 4,
        acknowledged: 1,
        refused: 1,
        stalls: 0,
    };
    assert_eq!(load.counts(), expected);
}

#[test]
fn a_paced_load_is_due_at_equal_distances_however_late_it_leaves() {
    let mut load = Load::new(Plan { window: None, rate: Some(1_000.0), ..plan(2, &[(0, 2)]) });
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
    assert!(about(load.latency().max(), 9_500_000), "{}", load.latency().max());
    assert!(about(load.lateness().max(), 9_500_000), "{}", load.lateness().max());
    load.forget_times();
    assert!(load.latency().is_empty() && load.lateness().is_empty());
}

#[test]
fn an_open_loop_has_no_limit_and_no_stalls() {
    let mut load = Load::new(Plan { window: None, ..plan(1, &[(0, 1)]) });
    load.start(0);
    (0..1_000).for_each(|_| drop(send(&mut load, 0, 0)));
    load.look(9 * SECOND);
    assert_eq!((load.may_send(0, 9 * SECOND), load.counts().stalls), (u64::MAX, 0));
}
