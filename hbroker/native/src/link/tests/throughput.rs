//! What one bulk sender gets through a path that loses at random, beside what theory allows it.
//!
//! Mathis, Semke, Mahdavi, Ott, "The macroscopic behavior of the TCP congestion avoidance algorithm" (1997): a window that one loss in
//! 1/p datagrams cuts is sqrt(3 / 2p) datagrams on average. RFC 9438 §4.3 chooses CUBIC's growth on short paths to be the same.

use super::*;

const MESSAGE: usize = 1_000;
const BACKLOG: usize = 200_000;

/// Datagrams that get through in each round trip, and the longest time without one.
fn bulk(seed: u64, loss: f64, round_trip: Micros, time: Micros) -> (f64, Micros) {
    let mut pair = Pair::new(seed, Faults { loss, delay: round_trip / 2, ..Faults::default() });
    let (mut id, mut gap, mut progress_at) = (0, 0, 0);
    while pair.now < time {
        while pair.links[0].queued_bytes() < BACKLOG {
            pair.queue_reliable(0, Chain::Topic(id % 16), id, MESSAGE);
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

#[test]
fn report() {
    for loss in [0.0005, 0.01, 0.05, 0.1, 0.2, 0.3] {
        for round_trip in [1_000, 20_000] {
            let (rate, gap) = bulk(1, loss, round_trip, 10 * SECOND);
            println!("{loss} {round_trip}: {rate:.2} of {:.2}, gap {gap}", (1.5 / loss).sqrt());
        }
    }
}
