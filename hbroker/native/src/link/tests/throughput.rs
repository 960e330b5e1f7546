//! What one bulk sender gets through a path that loses at random, beside what theory allows it.
//!
//! Mathis, Semke, Mahdavi, Ott, "The macroscopic behavior of the TCP congestion avoidance algorithm" (1997): a window that one loss in
//! 1/p datagrams cuts is sqrt(3 / 2p) datagrams on average. RFC 9438 §4.3 chooses CUBIC's growth on short paths to be the same.

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
        let runs: Vec<_> = (0..3).map(|seed| bulk(seed, is_reliable, loss, round_trip, time)).collect();
        let rate = runs.iter().map(|(rate, _)| rate).sum::<f64>() / runs.len() as f64;
        let most = theory(loss);
        assert!((least * most..1.5 * most).contains(&rate), "{loss}, {round_trip}: {rate} of {most}");
        let gap = runs.iter().map(|&(_, gap)| gap).max();
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
