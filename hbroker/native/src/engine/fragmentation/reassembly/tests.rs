//! Reassembly: what is whole comes out, and neither liars nor bad luck take more memory, or longer, than the limits say.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use crate::engine::fragmentation::reassembly::*;

const LIMITS: Limits = Limits {
    message_bytes: 20_000,
    total_bytes: 50_000,
    withheld: 20,
    withheld_bytes: 6_000,
    messages: 20,
    patience: 1_000,
};

fn fragment(
    publisher: u64,
    first: u64,
    index: u32,
    count: u32,
    total: usize,
    bytes: &[u8],
) -> ReceivedFragment<'_> {
    ReceivedFragment { id: (publisher, first, None), index, count, total: total as u64, bytes, receipt: None }
}

/// One of a message that comes in order, at QoS 1 or 2.
fn firm(publisher: u64, first: u64, index: u32, bytes: &[u8], count: u32) -> ReceivedFragment<'_> {
    let total = bytes.len() * count as usize;
    let receipt = Some((LinkId(publisher), first * 1_000 + u64::from(index)));
    ReceivedFragment { receipt, ..fragment(publisher, first, index, count, total, bytes) }
}

fn sums_are_right(reassembler: &Reassembler) -> bool {
    let open = || reassembler.open.values();
    let withheld: Vec<usize> = open().flat_map(|open| &open.withheld).map(|(_, bytes)| *bytes).collect();
    let mut claims: BTreeMap<u64, u64> = BTreeMap::new();
    for (id, open) in reassembler.open.iter().filter(|(_, open)| open.is_claimed) {
        *claims.entry(id.0).or_default() += open.partial_message.total();
    }
    reassembler.bytes == open().map(|open| open.partial_message.cost()).sum::<usize>()
        && (reassembler.withheld, reassembler.withheld_bytes) == (withheld.len(), withheld.iter().sum())
        && withheld.len() <= reassembler.limits.withheld
        && reassembler.withheld_bytes <= reassembler.limits.withheld_bytes
        && reassembler
            .claims
            .iter()
            .map(|(&publisher, &claim)| (publisher, claim))
            .collect::<BTreeMap<_, _>>()
            == claims
}

#[test]
fn puts_together_what_comes_in_any_order_and_twice() {
    let mut random = SmallRng::seed_from_u64(5);
    let mut reassembler = Reassembler::new(LIMITS, 1);
    for round in 0..500 {
        let payload: Vec<u8> = (0..random.random_range(1..5_000)).map(|_| random.random()).collect();
        let chunks: Vec<&[u8]> =
            payload.chunks(random.random_range(1..2_000).max(payload.len() / 50)).collect();
        let mut order: Vec<usize> = (0..chunks.len()).collect();
        order.shuffle(&mut random);
        let (last, others) = order.split_last().expect("there is a part");
        let send = |reassembler: &mut Reassembler, index: usize| {
            let first = (u64::MAX - 10).wrapping_add(round * 1_000);
            reassembler.add(
                round,
                fragment(7, first, index as u32, chunks.len() as u32, payload.len(), chunks[index]),
            )
        };
        assert!(others.iter().all(|&index| send(&mut reassembler, index) == Added::Kept));
        assert!(others.iter().all(|&index| send(&mut reassembler, index) == Added::Duplicate));
        assert_eq!(send(&mut reassembler, *last), Added::Whole(payload.clone()));
        assert!(sums_are_right(&reassembler));
        assert_eq!((reassembler.len(), reassembler.bytes()), (0, 0));
    }
}

#[test]
fn stays_within_its_limits_whatever_a_liar_sends() {
    let mut random = SmallRng::seed_from_u64(6);
    let limits = Limits { total_bytes: 24_000, ..LIMITS };
    let mut reassembler = Reassembler::new(limits, 1);
    let bytes = [0; 30_000];
    let (mut whole, mut withheld, mut released) = (0, 0, 0);
    for now in 0..60_000 {
        let choose = |random: &mut SmallRng, from: &[u64]| from[random.random_range(0..from.len())];
        let lie = ReceivedFragment {
            id: (
                random.random_range(0..5),
                random.random_range(0..60),
                random.random_bool(0.1).then_some(MeantFor::Listener(7)),
            ),
            index: random.random_range(0..4),
            count: choose(&mut random, &[0, 1, 2, 3, u64::from(u32::MAX)]) as u32,
            total: choose(&mut random, &[0, 10, 20, 6_000, 20_000, 20_001, u64::MAX]),
            bytes: &bytes[..choose(&mut random, &[0, 10, 10, 3_000, 30_000]) as usize],
            receipt: random.random_bool(0.5).then(|| (LinkId(random.random_range(0..3)), now)),
        };
        match reassembler.add(now, lie) {
            Added::Whole(payload) => {
                assert_eq!(payload.len() as u64, lie.total);
                whole += 1;
            }
            Added::Withheld => withheld += 1,
            _ => {}
        }
        released += reassembler.take_released().len();
        if random.random_bool(0.001) {
            let before = reassembler.open.values().map(|open| open.withheld.len()).sum::<usize>();
            reassembler.forget_link(LinkId(0));
            let after = reassembler.open.values().map(|open| open.withheld.len()).sum::<usize>();
            withheld -= before - after;
        }
        assert!(reassembler.bytes() <= limits.total_bytes + limits.withheld_bytes);
        assert!(reassembler.len() <= LIMITS.messages && sums_are_right(&reassembler));
        let capacity: usize = reassembler.open.values().map(|open| open.partial_message.capacity()).sum();
        assert!(capacity <= 2 * reassembler.bytes(), "what was claimed takes no memory");
    }
    assert!(whole > 100 && reassembler.abandoned() > 100 && withheld > 100, "{whole} {withheld}");
    // Those that were held back get their turn before their patience counts.
    for step in 1..=LIMITS.messages as Micros {
        reassembler.expire(1_000_000 * step);
        released += reassembler.take_released().len();
    }
    assert_eq!((reassembler.len(), reassembler.bytes()), (0, 0));
    assert_eq!(released, withheld, "each receipt is given back once");
}

#[test]
fn messages_in_doubt_give_way_in_order_of_age_and_firm_ones_do_not() {
    let mut reassembler = Reassembler::new(Limits { messages: 3, ..LIMITS }, 1);
    assert_eq!(reassembler.add(0, firm(9, 1, 0, b"a", 2)), Added::Kept);
    for (now, first) in [(0, 100), (1, 200), (2, 300)] {
        assert_eq!(reassembler.add(now, fragment(1, first, 0, 2, 2, b"a")), Added::Kept);
    }
    assert_eq!(reassembler.abandoned(), 1);
    assert_eq!(reassembler.add(3, fragment(1, 200, 1, 2, 2, b"b")), Added::Whole(b"ab".to_vec()));
    assert_eq!(reassembler.add(3, fragment(1, 300, 1, 2, 2, b"b")), Added::Whole(b"ab".to_vec()));
    assert_eq!(reassembler.add(3, fragment(1, 100, 1, 2, 2, b"b")), Added::Kept, "its first was given up");
    assert_eq!(reassembler.add(3, firm(9, 1, 1, b"b", 2)), Added::Whole(b"ab".to_vec()));
    for first in 400..403 {
        assert_eq!(reassembler.add(4, firm(9, first, 0, b"a", 2)), Added::Kept);
    }
    assert_eq!(reassembler.add(4, firm(9, 500, 0, b"a", 2)), Added::GivenUp, "too many at once");
}

#[test]
fn two_totals_for_one_message_do_not_mix() {
    let mut reassembler = Reassembler::new(LIMITS, 1);
    assert_eq!(reassembler.add(0, firm(1, 5, 0, b"ab", 2)), Added::Kept);
    assert_eq!(reassembler.add(0, fragment(1, 5, 1, 2, 3, b"c")), Added::Invalid);
    assert_eq!(reassembler.add(0, fragment(1, 5, 1, 3, 4, b"c")), Added::Invalid);
    assert_eq!(reassembler.add(0, fragment(1, 5, 2, 2, 4, b"c")), Added::Invalid, "beyond its count");
    assert_eq!(reassembler.add(0, firm(1, 5, 1, b"cd", 2)), Added::Whole(b"abcd".to_vec()));
    assert_eq!(reassembler.add(0, fragment(1, 6, 0, 2, 3, b"ab")), Added::Kept);
    assert_eq!(reassembler.add(0, fragment(1, 6, 1, 2, 3, b"cd")), Added::Invalid, "more than its total");
    assert_eq!(reassembler.add(0, fragment(1, 7, 0, 2, 4, b"ab")), Added::Kept);
    assert_eq!(reassembler.add(0, fragment(1, 7, 1, 2, 4, b"c")), Added::Invalid, "less than its total");
    assert_eq!((reassembler.len(), reassembler.abandoned()), (0, 2));
}

/// Publishers that send firm messages of 36 parts of 500 bytes each, all at once; how many of them came whole, and how
/// many were given up.
fn race(publishers: usize, credit: usize, limits: Limits, seed: u64) -> (u64, u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut reassembler = Reassembler::new(limits, 1);
    let bytes = [5; 500];
    let mut next = vec![0_u32; publishers];
    // All come from one owner, which stops at its credit.
    let mut unanswered = BTreeSet::new();
    let mut whole = 0;
    let mut now = 0;
    while next.iter().any(|&next| next < 36) {
        now += 1;
        assert!(now < 100_000 && unanswered.len() < credit, "all wait for one another");
        let publisher = random.random_range(0..publishers);
        if next[publisher] == 36 {
            continue;
        }
        let sent = firm(publisher as u64, 1, next[publisher], &bytes, 36);
        next[publisher] += 1;
        match reassembler.add(now / 1_000, sent) {
            Added::Whole(_) => whole += 1,
            Added::Withheld => _ = unanswered.insert(sent.receipt.expect("it has one")),
            _ => {}
        }
        for receipt in reassembler.take_released() {
            assert!(unanswered.remove(&receipt));
        }
        let capacity = limits.total_bytes + limits.withheld_bytes;
        assert!(reassembler.bytes() <= capacity && sums_are_right(&reassembler));
    }
    assert!(reassembler.open.values().all(|open| !open.is_firm()), "all firm ones came to their end");
    (whole, reassembler.abandoned())
}

#[test]
fn messages_that_have_no_room_beside_each_other_wait_and_none_waits_for_ever() {
    for seed in 0..20 {
        assert_eq!(race(2, 41, LIMITS, seed), (2, 0), "there is room for two");
        let patient = Limits { withheld: 200, withheld_bytes: 200_000, ..LIMITS };
        let (whole, given_up) = race(6, 401, patient, seed);
        assert_eq!((whole, given_up), (6, 0), "with enough credit all come in the end");
        let (whole, given_up) = race(6, 41, LIMITS, seed);
        assert!(whole >= 2 && given_up > 0, "seed {seed}: the credit ends, so some give way: {whole}");
    }
}

#[test]
fn who_was_held_back_does_not_age_and_goes_on_when_there_is_room() {
    let mut reassembler = Reassembler::new(Limits { total_bytes: 24_900, ..LIMITS }, 1);
    let bytes = [3; 1_000];
    assert_eq!(reassembler.add(0, firm(1, 1, 0, &bytes, 12)), Added::Kept);
    for index in 0..4 {
        assert_eq!(
            reassembler.add(0, firm(2, 1, index, &bytes, 12)),
            Added::Kept,
            "4,900 for all but the oldest"
        );
    }
    assert_eq!(reassembler.add(0, firm(2, 1, 4, &bytes, 12)), Added::Withheld);
    assert!((1..11).all(|index| reassembler.add(900, firm(1, 1, index, &bytes, 12)) == Added::Kept));
    reassembler.expire(1_500);
    assert_eq!((reassembler.len(), reassembler.take_released()), (2, vec![]));
    assert_eq!(reassembler.add(1_600, firm(1, 1, 11, &bytes, 12)), Added::Whole(vec![3; 12_000]));
    assert_eq!(reassembler.take_released(), [(LinkId(2), 1_004)]);
    assert_eq!(reassembler.add(1_600, firm(2, 1, 5, &bytes, 12)), Added::Kept);
    reassembler.expire(5_000);
    assert_eq!((reassembler.len(), reassembler.abandoned()), (0, 1));
}

#[test]
fn who_begins_more_than_an_honest_publisher_keeps_is_in_doubt() {
    let mut reassembler = Reassembler::new(LIMITS, 1);
    let bytes = [3; 1_000];
    assert_eq!(reassembler.add(0, firm(1, 1, 0, &bytes, 20)), Added::Kept);
    assert_eq!(reassembler.add(0, firm(1, 50, 0, &bytes, 2)), Added::Kept, "an eighth beside the largest");
    assert_eq!(reassembler.add(0, firm(1, 60, 0, &bytes, 2)), Added::Kept);
    let firm_ones = reassembler.open.values().filter(|open| open.is_firm()).count();
    assert_eq!((firm_ones, reassembler.len()), (2, 3));
}
