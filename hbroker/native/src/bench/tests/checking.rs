//! Faults that are put into a stream of numbers are each seen, and nothing else is.

use std::collections::BTreeSet;

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use crate::bench::checker::{Arrival, Reception};
use crate::bench::payload::{HEADER, Stamp, Template};

#[test]
fn a_gap_is_filled_once() {
    let mut reception = Reception::default();
    let arrivals = [0, 1, 5, 3, 3, 5, 2, 4, 0, 6].map(|number| reception.note(number));
    use Arrival::{Again, InOrder, Late};
    assert_eq!(arrivals, [InOrder, InOrder, InOrder, Late, Again, Again, Late, Late, Again, InOrder]);
    assert_eq!(reception.received(), 7);
}

/// Against a set of all that came.
#[test]
fn any_sequence_is_judged_as_by_one_who_remembers_all() {
    for seed in 0..300 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (mut reception, mut seen, mut highest) = (Reception::default(), BTreeSet::new(), None);
        for number in faulty(&mut rng) {
            let expected = if !seen.insert(number) {
                Arrival::Again
            } else if highest > Some(number) {
                Arrival::Late
            } else {
                Arrival::InOrder
            };
            highest = highest.max(Some(number));
            assert_eq!(reception.note(number), expected, "seed {seed}, number {number}");
        }
        assert_eq!(reception.received(), seen.len() as u64, "seed {seed}");
    }
}

/// What nobody can remember counts as a fault, never as delivered.
#[test]
fn more_gaps_than_are_remembered_never_hide_a_loss() {
    let mut reception = Reception::default();
    let odd = (0..20_000).map(|number| 2 * number + 1);
    let came = odd.clone().filter(|&number| reception.note(number) == Arrival::InOrder).count();
    assert_eq!(came, 20_000);
    for number in odd.clone() {
        assert_ne!(reception.note(number), Arrival::InOrder);
    }
    assert_eq!(reception.received(), 20_000);
    let late = odd.filter(|&number| reception.note(number - 1) == Arrival::Late).count() as u64;
    assert_eq!(late, 20_000);
    assert!(reception.received() < 40_000, "the oldest gaps were forgotten");
}

#[test]
fn a_payload_says_what_it_is_or_that_it_is_damaged() {
    for bytes in [0, HEADER, 17, 64, 5_000] {
        let mut template = Template::new(bytes);
        let stamp = Stamp { due: 123_456_789, stream: 70_000, number: (1 << 40) - 1 };
        let payload = template.stamped(stamp).to_vec();
        assert_eq!(payload.len(), bytes.max(HEADER));
        assert_eq!(template.read(&payload), Some(stamp));
        assert_eq!(template.read(&payload[..payload.len() - 1]), None);
        assert_eq!(template.read(&[&payload[..], &[0]].concat()), None);
        for position in HEADER..payload.len() {
            let mut damaged = payload.clone();
            damaged[position] ^= 1;
            assert_eq!(template.read(&damaged), None);
        }
    }
}

/// Numbers from 0 on, some lost, some doubled, some moved.
fn faulty(rng: &mut SmallRng) -> Vec<u64> {
    let mut numbers = Vec::new();
    for number in 0..rng.random_range(1..400) {
        let copies = if rng.random_bool(0.8) { 1 } else { rng.random_range(0..3) };
        numbers.extend(std::iter::repeat_n(number, copies));
    }
    for chunk in numbers.chunks_mut(17) {
        if rng.random_bool(0.3) {
            chunk.shuffle(rng);
        }
    }
    numbers
}
