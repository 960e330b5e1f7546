//! When a subscriber that is connected counts as stalled, and when it does not any more (§7.3).

use super::{add_persistent, check, dropped, grant, status};
use crate::engine::sessions::bounds::Bounds;
use crate::engine::tests::flow::{Flood, read, with_node};
use crate::engine::tests::handover::export_queued;
use crate::engine::tests::network::{Faults, MILLISECOND, Network, SECOND, message};

#[test]
fn one_that_answers_a_few_of_many_holds_publishers_for_two_seconds_and_no_longer() {
    let (mut network, node) = Network::with_node(4, 1);
    let good = network.add_subscriber(node, "a/#", 1);
    let drip = add_persistent(&mut network, node, "a/#", 1, Bounds { messages: 0, bytes: 0 });
    grant(&mut network, drip, node, 1, 1 << 20);
    network.hosts[drip].reads = false;
    let mut flood = Flood::new(&mut network, 4, 1_000, 1);
    let mut longest = 0;
    for round in 0..1_200 {
        let before = flood.answered(&network);
        flood.send(&mut network, &message("a/b", b"x", 1));
        network.run(10 * MILLISECOND);
        longest = if flood.answered(&network) > before { 0 } else { longest + 10 };
        assert!(longest <= 2_600, "held for {longest} ms at {round}");
        if round % 180 == 179 {
            read(&mut network, drip, 1);
        }
        check(&network, node);
    }
    assert!(flood.answered(&network) > 2_000, "{}", flood.answered(&network));
    assert_eq!(network.hosts[good].read.len(), flood.answered(&network));
    let told = status(&network, node, drip);
    assert!(told.is_stalled && dropped(&told, "queue_full") == 0, "what it misses is queued");
}

#[test]
fn one_message_that_is_left_out_holds_publishers_for_two_seconds_and_no_longer() {
    let (mut network, node) = Network::with_node(5, 1);
    let picky = network.add_subscriber_with(node, "a/#", 1, |config| config.hold = true);
    let publisher = network.add_client();
    let left_out = network.publish(publisher, &message("a/b", b"x", 1));
    let id = network.hosts[publisher].publisher;
    let mut stalled_after = None;
    for step in 1..=40 {
        let sent: Vec<_> =
            (0..20).map(|_| (id, network.publish(publisher, &message("a/b", b"y", 1)))).collect();
        network.run(50 * MILLISECOND);
        network.hosts[picky].engines[0].handled(&sent);
        network.run(50 * MILLISECOND);
        if status(&network, node, picky).is_stalled {
            stalled_after.get_or_insert(step * 100);
        }
        let is_told = network.hosts[publisher].published.contains_key(&left_out);
        assert_eq!(is_told, stalled_after.is_some(), "after {step} tenths");
    }
    let stalled_after = stalled_after.expect("its oldest message was left out for four seconds");
    assert!((2_000..=2_600).contains(&stalled_after), "{stalled_after}");
    network.hosts[picky].engines[0].handled(&[(id, left_out)]);
    network.run(SECOND);
    assert!(!status(&network, node, picky).is_stalled, "it got on");
    network.run_until_drained();
}

/// A message that is among the oldest when another front is marked has its own two seconds, and not those of both.
#[test]
fn a_message_behind_one_that_is_answered_late_holds_publishers_no_longer() {
    let (mut network, node) = with_node(1, Faults::default(), 1);
    let subscriber = network.add_subscriber_with(node, "a/#", 1, |config| config.hold = true);
    let publisher = network.add_client();
    let id = network.hosts[publisher].publisher;
    let late = network.publish(publisher, &message("a/b", b"late", 1));
    network.run(400 * MILLISECOND);
    let (never, start) = (network.publish(publisher, &message("a/b", b"never", 1)), network.now);
    network.run(1_500 * MILLISECOND);
    network.hosts[subscriber].engines[0].handled(&[(id, late)]);
    while !network.hosts[publisher].published.contains_key(&never) && network.now < start + 20 * SECOND {
        network.run(50 * MILLISECOND);
    }
    let waited = (network.now - start) / MILLISECOND;
    assert!((2_000..=2_600).contains(&waited), "{waited} ms");
}

/// The oldest message is in the queue when the front is marked, for the subscriber takes nothing; then it takes all, and answers for all but that one.
#[test]
fn a_message_that_waited_when_progress_was_marked_may_not_be_left_out_either() {
    let (mut network, node) = with_node(6, Faults::default(), 1);
    let picky = network.add_subscriber_with(node, "a/#", 1, |config| config.hold = true);
    grant(&mut network, picky, node, 0, 1 << 20);
    network.run(50 * MILLISECOND);
    let publisher = network.add_client();
    let (start, id) = (network.now, network.hosts[publisher].publisher);
    let left_out = network.publish(publisher, &message("a/b", b"x", 1));
    let sent: Vec<_> = (0..30).map(|_| (id, network.publish(publisher, &message("a/b", b"y", 1)))).collect();
    network.run(1_500 * MILLISECOND);
    grant(&mut network, picky, node, 100, 1 << 20);
    network.run(50 * MILLISECOND);
    network.hosts[picky].engines[0].handled(&sent);
    while !network.hosts[publisher].published.contains_key(&left_out) && network.now < start + 20 * SECOND {
        network.run(50 * MILLISECOND);
    }
    let waited = (network.now - start) / MILLISECOND;
    assert!(waited <= 2_600, "{waited} ms");
}

/// It answers nothing of its own subscription, but joins and leaves a shared group again and again, whose messages it leaves unanswered, too.
#[test]
fn one_that_leaves_a_group_now_and_then_does_not_set_its_clock_back() {
    let (mut network, node) = with_node(1, Faults::default(), 1);
    let silent = network.add_idle_subscriber(node, "a/#", 1);
    let second = network.add_member(node, "g/t", "g", 1);
    let (victim, helper) = (network.add_client(), network.add_client());
    network.listen_in(silent, 2, ("g", "g/t"), 1);
    network.publish(victim, &message("a/b", b"x", 1));
    let (key, start) = (network.session(silent, node), network.now);
    while network.hosts[victim].published.is_empty() && network.now < start + 20 * SECOND {
        network.subscribe_in(silent, node, "g/t", "g", 1, false);
        network.publish_times(helper, 16, &message("g/t", b"y", 1));
        network.run(400 * MILLISECOND);
        let now = network.now;
        assert!(network.hosts[node].engines[0].unsubscribe(now, "g/t", "g", key));
        network.run(200 * MILLISECOND);
    }
    assert!(!network.hosts[second].read.is_empty());
    let waited = (network.now - start) / MILLISECOND;
    assert!(waited <= 3_000, "{waited} ms");
}

/// One pause of three seconds, and then it answers eight thousand messages a second, which is less than its publishers could send.
#[test]
fn one_that_paused_is_waited_for_again_when_it_goes_on_though_its_queue_is_full() {
    let (mut network, node) = with_node(8, Faults::default(), 1);
    let subscriber = network.add_idle_subscriber(node, "a/#", 1);
    grant(&mut network, subscriber, node, 64, 1 << 20);
    let mut flood = Flood::new(&mut network, 8, usize::MAX, 20);
    let mut lost = 0;
    for round in 0..1_600 {
        flood.send(&mut network, &message("a/b", b"x", 1));
        network.run(5 * MILLISECOND);
        if round > 600 {
            network.take_messages(subscriber, 40);
        }
        if round == 1_200 {
            lost = dropped(&status(&network, node, subscriber), "queue_full");
        }
    }
    let told = status(&network, node, subscriber);
    assert!(!told.is_stalled && lost > 0, "{told:?}");
    assert_eq!(dropped(&told, "queue_full"), lost, "nothing more");
}

#[test]
fn a_handover_of_what_a_session_has_nothing_of_does_not_set_its_clock_back() {
    let (mut network, node) = Network::with_node(6, 1);
    let silent = network.add_idle_subscriber(node, "a/#", 1);
    let publisher = network.add_client();
    network.publish(publisher, &message("a/b", b"x", 1));
    for _ in 0..26 {
        network.run(100 * MILLISECOND);
        let now = network.now;
        assert!(export_queued(&mut network.hosts[node].engines[0], now, "c").is_empty());
    }
    assert!(status(&network, node, silent).is_stalled);
}

#[test]
fn one_that_answers_steadily_is_waited_for_and_does_not_stall() {
    for (each, pause) in [(1, 20), (1, 1), (16, 1_000)] {
        let (mut network, node) = with_node(6, Faults::default(), 1);
        let subscriber = network.add_idle_subscriber(node, "a/#", 1);
        let mut flood = Flood::new(&mut network, 3, 10_000, 400);
        let start = network.now;
        while network.now < start + 12 * SECOND {
            flood.send(&mut network, &message("a/b", b"x", 1));
            network.run(pause * MILLISECOND);
            read(&mut network, subscriber, each);
            assert!(!status(&network, node, subscriber).is_stalled, "{each} each {pause} ms");
        }
        let told = status(&network, node, subscriber);
        assert_eq!(dropped(&told, "queue_full"), 0);
        assert!(flood.answered(&network) as u64 <= told.session_counters.delivered);
    }
}

#[test]
fn a_stalled_one_that_catches_up_counts_as_connected_again_and_once() {
    let (mut network, node) = Network::with_node(7, 1);
    let slow = network.add_idle_subscriber(node, "a/#", 1);
    let mut flood = Flood::new(&mut network, 2, 500, 10);
    let mut changes = 0;
    let mut was_stalled = false;
    for round in 0..800 {
        flood.send(&mut network, &message("a/b", b"x", 1));
        network.run(10 * MILLISECOND);
        if round > 300 {
            read(&mut network, slow, 10);
        }
        let is_stalled = status(&network, node, slow).is_stalled;
        changes += usize::from(is_stalled != was_stalled);
        was_stalled = is_stalled;
    }
    assert_eq!((changes, was_stalled), (2, false));
    network.read_all(slow);
    flood.assert_all_answered(&network);
    assert_eq!(status(&network, node, slow).session_counters.delivered, 1_000);
}
