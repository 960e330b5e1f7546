//! Messages of `QoS` 1 and 2 that come many at once, and whose subscriber is another worker's.

use super::Apart;
use crate::engine::metrics::counters::Drop;
use crate::engine::tests::network::{MILLISECOND, SECOND, message};
use crate::engine::transport::outbound::Handoff;
use crate::load::topics::Traffic;
use crate::wire::PublishOut;

#[test]
fn they_go_to_it_as_one_and_each_is_acknowledged_for_itself() {
    for qos in 1..=2 {
        let mut apart = Apart::new(2, 4_096);
        apart.network.holds_handoffs = true;
        let sent = apart.publish(8, &message("t", &[7; 50], qos));
        let [handoff] = <[_; 1]>::try_from(apart.handed()).expect("one for all of them");
        assert!(matches!(&handoff, Handoff::Deliver { queued_batch, .. } if queued_batch.count == 8));
        apart.take(handoff);
        let (home, engines) = (apart.home(), &mut apart.network.hosts[apart.node].engines);
        let records = engines[home].out.sessions.iter().map(|session| session.records_in_flight());
        assert_eq!(records.collect::<Vec<_>>(), [1]);
        apart.network.holds_handoffs = false;
        apart.network.run(100 * MILLISECOND);
        assert_eq!(apart.network.sequences(apart.subscriber, "t"), sent, "QoS {qos}");
        assert!(apart.acknowledged().is_empty());
        let mut expected = Vec::new();
        for positions in [&[3, 4][..], &[0], &[7, 6], &[1, 2, 5]] {
            let handled: Vec<u64> = positions.iter().map(|&position: &usize| sent[position]).collect();
            apart.handle(&handled);
            expected.extend(handled);
            expected.sort_unstable();
            assert_eq!(apart.acknowledged(), expected, "QoS {qos}");
        }
        let counted = apart.network.counted(apart.node, "t").0;
        let expected = Traffic::of_small(9, 405, 9, 405);
        assert_eq!(counted, expected);
        apart.network.run_until_drained();
    }
}

#[test]
fn what_its_link_does_not_take_at_once_waits_in_order() {
    for qos in 1..=2 {
        let mut apart = Apart::new(2, 5);
        let sent = apart.publish(8, &message("t", &[7; 50], qos));
        assert_eq!(apart.network.sequences(apart.subscriber, "t"), sent[..5]);
        apart.handle(&sent[..5]);
        assert_eq!(apart.network.sequences(apart.subscriber, "t"), sent);
        apart.handle(&sent[5..]);
        assert_eq!(apart.acknowledged(), sent);
        apart.network.run_until_drained();
    }
}

#[test]
fn one_that_is_gone_when_they_come_holds_no_acknowledgement_back() {
    let mut apart = Apart::new(1, 4_096);
    apart.network.holds_handoffs = true;
    let sent = apart.publish(8, &message("t", &[7; 50], 1));
    let (now, home) = (apart.network.now, apart.home());
    let gone = apart.network.session(apart.subscriber, apart.node);
    apart.network.hosts[apart.node].engines[home].end_session(now, gone, Drop::SessionEnded);
    assert!(apart.acknowledged().is_empty());
    apart.network.holds_handoffs = false;
    apart.network.run(SECOND);
    assert_eq!(apart.acknowledged(), sent);
    assert!(apart.network.sequences(apart.subscriber, "t").is_empty());
}

#[test]
fn at_the_least_qos_and_for_a_publisher_that_does_not_wait_nothing_is_held_back() {
    for (wanted, ack_queued) in [(0, false), (1, true)] {
        let mut apart = Apart::new(wanted, 4_096);
        let sent = apart.publish(8, &PublishOut { ack_queued, ..message("t", &[7; 50], 1) });
        assert_eq!(apart.acknowledged(), sent);
        assert_eq!(apart.network.sequences(apart.subscriber, "t"), sent);
    }
}

#[test]
fn each_is_counted_and_timed_however_few_go_together() {
    // More than one fits into a piece of memory that they share, or just one does.
    for length in [50, 700] {
        let mut apart = Apart::new(1, 4_096);
        let sent = apart.publish(8, &message("t", &vec![7; length], 1));
        apart.handle(&sent);
        let (counted, timed) = apart.network.counted(apart.node, "t");
        let bytes = 5 + 8 * length as u64;
        let expected = Traffic::of_small(9, bytes, 9, bytes);
        assert_eq!((counted, timed), (expected, 9), "{length} bytes");
    }
}

#[test]
fn sessions_of_one_worker_get_them_each_at_its_own_qos() {
    let mut apart = Apart::new(1, 4_096);
    let more: Vec<usize> =
        (0..8).map(|number| apart.network.add_subscriber(apart.node, "t", number % 3)).collect();
    let sent = apart.publish(8, &message("t", &[7; 50], 2));
    assert!(apart.acknowledged().is_empty(), "one of them has not been handled");
    apart.handle(&sent);
    assert_eq!(apart.acknowledged(), sent);
    for subscriber in more {
        assert_eq!(apart.network.sequences(subscriber, "t"), sent);
    }
    apart.network.run_until_drained();
}
