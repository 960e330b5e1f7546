//! What one bulk sender gets through a path that loses at random, beside what theory allows it.
//!
//! Mathis, Semke, Mahdavi, Ott, "The macroscopic behavior of the TCP congestion avoidance algorithm" (1997): a window that one loss in
//! 1/p datagrams cuts is sqrt(3 / 2p) datagrams on average. RFC 9438 §4.3 chooses CUBIC's growth on short paths to be the same.

use super::pipe::address;
use super::*;

const MESSAGE: usize = 1_000;
const BACKLOG: usize = 200_000;

/// Datagrams that get through in each round trip, and the longest time without one. Reliable ones are answered by a PUBACK
/// each, which takes acknowledgements along; unreliable ones depend on when the receiver acknowledges by itself.
fn bulk(seed: u64, is_reliable: bool, loss: f64, round_trip: Micros, time: Micros) -> (f64, Micros) {
    let mut pair = Pair::new(seed, Faults { loss, delay: round_trip / 2, ..Faults::default() });
    let (mut id, mut gap, mut progress_at) = (0, 0, 0);
    while pair.now < time {
        while pair.links[0].queued_bytes() < BACKLOG {
            if is_reliable {
                pair.queue_reliable(0, Chain::Topic(id % 16), id, MESSAGE);
            } else {
                pair.links[0].queue_unreliable(&body(id, MESSAGE), None).unwrap();
            }
            id += 1;
        }
        let before = pair.received[1].len();
        pair.step_once(time);
        if pair.received[1].len() > before {
            gap = gap.max(pair.now - progress_at);
            progress_at = pair.now;
        }
    }
    (pair.received[1].len() as f64 * round_trip as f64 / time as f64, gap.max(time - progress_at))
}

/// Sends for a while as much as goes: so many bytes wait.
fn flood(pair: &mut Pair, send_queue: usize, time: Micros) {
    let until = pair.now + time;
    while pair.now < until {
        while pair.links[0].queued_bytes() < send_queue {
            pair.links[0].queue_unreliable(&body(0, MESSAGE), None).unwrap();
        }
        pair.step_once(until);
    }
}

fn theory(loss: f64) -> f64 {
    (1.5 / loss).sqrt()
}

#[test]
fn a_path_that_loses_a_twentieth_is_used_nearly_as_theory_allows() {
    for (is_reliable, loss, round_trip, time, least) in [
        (false, 0.01, 5_000, 4 * SECOND, 0.8),
        (false, 0.05, 1_000, 4 * SECOND, 0.6),
        (true, 0.05, 1_000, 4 * SECOND, 0.6),
        (true, 0.05, 20_000, 20 * SECOND, 0.75),
    ] {
        let ranges: Vec<_> = (0..3).map(|seed| bulk(seed, is_reliable, loss, round_trip, time)).collect();
        let rate = ranges.iter().map(|(rate, _)| rate).sum::<f64>() / ranges.len() as f64;
        let most = theory(loss);
        assert!((least * most..1.5 * most).contains(&rate), "{loss}, {round_trip}: {rate} of {most}");
        let gap = ranges.iter().map(|&(_, gap)| gap).max();
        assert!(gap < Some(500 * MILLISECOND), "{loss}, {round_trip}: nothing for {gap:?}");
    }
}

#[test]
fn a_path_that_loses_a_third_is_slow_and_neither_stalls_nor_is_flooded() {
    for loss in [0.2, 0.3] {
        for seed in 0..2 {
            let (rate, gap) = bulk(seed, true, loss, 5_000, 5 * SECOND);
            assert!(rate > 0.1 * theory(loss), "seed {seed}, {loss}: {rate}");
            assert!(gap < 4 * SECOND, "seed {seed}, {loss}: nothing for {gap}");
        }
    }
}

#[test]
fn a_window_that_is_always_full_does_not_hide_what_the_path_carries() {
    let mut pair = Pair::new(1, Faults { delay: MILLISECOND, ..Faults::default() });
    pair.links[0] = Link::new(
        LinkConfig { max_datagram: 8_952, ..config(1, Role::Initiator) },
        address(1),
        vec![9; 21],
        0,
    );
    pair.largest_allowed = 8_952;
    for _ in 0..10 {
        (0..3).for_each(|id| pair.links[1].queue_unreliable(&body(id, 100), None).unwrap());
        flood(&mut pair, 3 << 20, MILLISECOND);
        assert!(pair.links[0].unsent_bytes() > 1 << 20, "something always waits");
    }
    assert_eq!(pair.links[0].mtu.size(), 8_952);
    for tried in [1_423, 8_952] {
        let (_, _, datagram) = pair.log.iter().find(|(_, _, datagram)| datagram.len() == tried).unwrap();
        let header = wire::DatagramView::parse(datagram).unwrap().header;
        assert!(header.ack.is_none(), "what it acknowledged would be lost with it");
    }
}

#[test]
fn who_leaves_its_window_half_empty_is_acknowledged_seldom() {
    let mut pair = Pair::new(1, Faults { delay: MILLISECOND, ..Faults::default() });
    flood(&mut pair, BACKLOG, 300 * MILLISECOND);
    pair.run_until_idle(pair.now + SECOND);
    assert!(pair.links[0].recovery.window() > 200_000);
    pair.log.clear();
    for id in 0..120 {
        pair.links[0].queue_unreliable(&body(id, MESSAGE), None).unwrap();
        pair.run_until(pair.now + MILLISECOND / 20);
    }
    pair.run_until_idle(pair.now + SECOND);
    let acknowledgements = pair.log.iter().filter(|(_, to, _)| *to == 0).count();
    assert!((2..=4).contains(&acknowledgements), "{acknowledgements} for 120 datagrams");
}

#[test]
fn a_window_of_deliveries_that_fills_is_acknowledged_as_usual() {
    let mut pair = Pair::new(1, Faults { delay: MILLISECOND, ..Faults::default() });
    flood(&mut pair, BACKLOG, 300 * MILLISECOND);
    pair.run_until_idle(pair.now + SECOND);
    pair.log.clear();
    let packets: Vec<_> = (0..4_096).map(|id| (id, 1)).collect();
    pair.queue_batch(0, Chain::Control, &packets);
    pair.transmit(0);
    assert!(pair.links[0].recovery.in_flight() < pair.links[0].recovery.window() / 2);
    let mut unacknowledged = 0;
    for (_, _, datagram) in &pair.log {
        let view = wire::DatagramView::parse(datagram).unwrap();
        assert_eq!(view.header.ack_every > 0, unacknowledged < 2_048, "{unacknowledged} unacknowledged");
        unacknowledged += view.packets().iter().filter(|packet| packet.delivery > 0).count();
    }
    assert_eq!(unacknowledged, 4_096, "the congestion window has room for all of them");
}
