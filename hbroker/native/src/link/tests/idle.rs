//! A link at rest: nobody can tell, and it takes little.

use super::*;
use crate::link::idle::IdleLink;

/// What both ends sent while one of them was busy now and then, and how often the second one rested.
fn sent(seed: u64, rests: bool) -> (Vec<(Micros, usize, Vec<u8>)>, usize) {
    let faults = Faults {
        loss: f64::from(u32::try_from(seed % 4).unwrap()) / 20.0,
        duplication: 0.02,
        delay: 300 + 2_000 * (seed % 30),
        jitter: 200 * (seed % 7),
    };
    let mut pair = Pair::new(seed, faults);
    pair.rests = rests.then_some(0);
    for round in 0..8 {
        let (end, count) = (pair.rng.random_range(0..2), pair.rng.random_range(0..200));
        queue(&mut pair, end, count / (1 + 9 * (round % 2)), 1_000 * round);
        let pause = pair.rng.random_range(0..8 * SECOND);
        pair.run_until(pair.now + pause);
    }
    (std::mem::take(&mut pair.log), pair.rests.unwrap_or(0))
}

#[test]
fn nobody_can_tell_that_it_was_idle() {
    for seed in 0..100 {
        let (plain, resting) = (sent(seed, false), sent(seed, true));
        assert!(plain.0 == resting.0, "seed {seed}");
        assert!(resting.1 > 3, "seed {seed}: {} times", resting.1);
    }
}

#[test]
fn it_takes_a_fifth_of_what_it_takes_awake() {
    assert!(size_of::<IdleLink>() <= 224, "{}", size_of::<IdleLink>());
    assert!(5 * size_of::<IdleLink>() <= size_of::<Link>(), "{}", size_of::<Link>());
}

#[test]
fn only_an_acceptor_becomes_idle_and_only_with_nothing_left_to_do() {
    let mut pair = Pair::new(1, Faults { delay: 1_000, ..Faults::default() });
    pair.queue_reliable(0, Chain::Control, 1, 10);
    pair.queue_reliable(1, Chain::Control, 2, 10);
    assert!(pair.links[1].idle_state().is_none());
    pair.run_until_idle(SECOND);
    assert!(pair.links[0].idle_state().is_none() && pair.links[1].idle_state().is_some());
    pair.links[1].acknowledge(1, 1, Success::Done);
    assert!(pair.links[1].idle_state().is_none());
    pair.run_until_idle(2 * SECOND);
    pair.links[1].refuse(Bytes::from_static(b"no")).unwrap();
    assert!(pair.links[1].idle_state().is_none());
}
