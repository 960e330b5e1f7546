//! The window against a set of all that was seen.

use std::collections::HashSet;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;

#[test]
fn agrees_with_a_set_within_the_span() {
    let mut random = SmallRng::seed_from_u64(3);
    let (mut window, mut seen) = (DuplicateWindow::new(4, 1_000, 9), HashSet::new());
    let (mut newest, mut duplicates) = ([5_000_u64; 4], 0);
    for _ in 0..100_000 {
        let publisher = random.random_range(0..4_usize);
        let top = &mut newest[publisher];
        let sequence = random.random_range(*top - 980..*top + 20);
        *top = sequence.max(*top);
        let is_first = seen.insert((publisher, sequence));
        assert_eq!(window.has_seen(publisher as u64, sequence), !is_first);
        assert_eq!(window.first_seen(0, publisher as u64, sequence), is_first);
        duplicates += usize::from(!is_first);
    }
    assert!((10_000..90_000).contains(&duplicates));
}

#[test]
fn nothing_is_ever_new_twice_and_memory_stays_bounded() {
    let mut random = SmallRng::seed_from_u64(4);
    let (mut window, mut seen) = (DuplicateWindow::new(1, 256, 9), HashSet::new());
    for _ in 0..50_000 {
        let sequence = match random.random_range(0..4) {
            0 => random.random_range(0..2_000),
            1 => random.random(),
            2 => u64::MAX - random.random_range(0..1_000),
            _ => random.random::<u64>() >> random.random_range(0..64),
        };
        if window.first_seen(0, 1, sequence) {
            assert!(seen.insert(sequence));
        }
        assert!(window.windows[0].words.len() <= 5);
    }
    assert!(seen.len() > 100);
}

#[test]
fn a_number_that_was_overtaken_is_new() {
    let mut window = DuplicateWindow::new(1, 640, 9);
    for leap in (0..10).map(|step| 1_000_000 * step) {
        assert!(window.first_seen(0, 1, 5_000_000_000 + leap));
    }
    assert!(window.first_seen(0, 1, 1));
    assert!(!window.first_seen(0, 1, 1));
    assert!(window.first_seen(0, 1, 6_000_000_000));
    assert!(!window.first_seen(0, 1, 1), "it was forgotten, so it counts as seen");
    assert!(window.first_seen(0, 1, 4_000_000_000), "this one was not");
}

#[test]
fn what_was_taken_back_is_new_and_nothing_else() {
    let mut random = SmallRng::seed_from_u64(6);
    for begin in [1, 1, 1_000_000] {
        let mut window = DuplicateWindow::new(4, SPAN, 9);
        let mut seen: HashSet<u64> = (begin..begin + 1_000).collect();
        seen.iter().for_each(|&sequence| assert!(window.first_seen(0, 1, sequence)));
        for _ in 0..2_000 {
            let sequence = random.random_range(begin..begin + 1_100);
            if random.random_range(0..3) == 0 {
                window.take_back(0, 1, sequence);
                seen.remove(&sequence);
            } else {
                assert_eq!(window.first_seen(0, 1, sequence), seen.insert(sequence), "{sequence}");
            }
            assert_eq!(window.words, window.windows[0].words.len());
        }
        (begin..begin + 1_100).for_each(|n| assert_eq!(window.has_seen(1, n), seen.contains(&n), "{n}"));
    }
    let mut small = DuplicateWindow::new(4, 640, 9);
    (0..100).for_each(|step| assert!(small.first_seen(0, 1, 5_000 + 64 * step)));
    small.take_back(0, 1, 5_000);
    assert!(small.has_seen(1, 5_000), "it was forgotten: nobody knows what else was seen there");
    small.take_back(0, 2, 1);
    assert_eq!(small.publishers(), 1);
}

#[test]
fn many_liars_with_wide_gaps_share_one_budget() {
    let mut window = DuplicateWindow::new(100, 6_400, 9);
    for step in 0..30_000_u64 {
        assert!(window.first_seen(0, step % 100, step * 64));
        assert_eq!(window.first_seen(0, 7_777, 1), step == 0, "the busy publisher is remembered");
        let real: usize = window.windows.iter().map(|window| window.words.len()).sum();
        assert!(real == window.words && real <= 100 * MEAN_WORDS + 101);
    }
}

#[test]
fn forgets_the_publisher_not_heard_of_lately() {
    let mut window = DuplicateWindow::new(100, 64, 9);
    for stranger in 0..100_000 {
        assert!(window.first_seen(0, stranger + 1_000, 1));
        assert_eq!(window.first_seen(0, 1, 1), stranger == 0, "the busy publisher is remembered");
    }
    assert_eq!((window.publishers(), window.slots.len()), (100, 100));
}

#[test]
fn a_run_without_gaps_costs_nothing() {
    let mut window = DuplicateWindow::new(1, 640, 9);
    for pair in 0..50_000 {
        assert!(window.first_seen(0, 1, 2 * pair + 2) && window.first_seen(0, 1, 2 * pair + 1));
    }
    assert!(window.windows[0].words.len() <= 1 && window.words == window.windows[0].words.len());
    assert!((1..=100_000).all(|sequence| !window.first_seen(0, 1, sequence)));
    assert!(window.first_seen(0, 1, 200_000));
}

/// Whether the window knows a number, without recording it.
fn knows(window: &DuplicateWindow, publisher: u64, sequence: u64) -> bool {
    let Some(&slot) = window.slots.get(&publisher) else {
        return false;
    };
    let Window { floor, words, .. } = &window.windows[slot];
    let bits = words.get(&(sequence / WORD_BITS)).copied().unwrap_or(0);
    sequence / WORD_BITS < *floor || bits & bit(sequence) != 0
}

#[test]
fn what_was_seen_and_is_not_open_stays_seen_elsewhere_and_nothing_else_becomes_so() {
    let mut random = SmallRng::seed_from_u64(5);
    let (mut reported, mut silent) = (0, 0);
    for round in 0..60 {
        let (mut here, mut there) = (DuplicateWindow::new(9, SPAN, 9), DuplicateWindow::new(9, SPAN, 9));
        let begin = if round % 3 == 0 { 1 } else { random.random_range(1..1_000_000) };
        let gap = [1, 1, 2, 7, 64, 200][round % 6];
        let (mut mine, mut theirs, mut open) = (HashSet::new(), HashSet::new(), HashSet::new());
        let most = begin + random.random_range(1..10_000);
        for sequence in (begin..most).step_by(gap) {
            match random.random_range(0..20) {
                0 => _ = there.first_seen(0, 1, sequence) && theirs.insert(sequence),
                1 => {}
                _ => {
                    here.first_seen(0, 1, sequence);
                    mine.insert(sequence);
                    if random.random_range(0..50) == 0 {
                        open.insert(sequence);
                    }
                }
            }
        }
        for seen in here.export(0, open.iter().map(|&sequence| (1, sequence))) {
            there.import(0, &seen);
        }
        for sequence in (begin.saturating_sub(100)..most + 100).filter(|sequence| *sequence > 0) {
            let expected =
                theirs.contains(&sequence) || (mine.contains(&sequence) && !open.contains(&sequence));
            assert_eq!(knows(&there, 1, sequence), expected, "{sequence} in round {round}");
            *(if expected { &mut reported } else { &mut silent }) += 1;
        }
    }
    assert!(reported > 10_000 && silent > 10_000, "{reported} {silent}");
}

#[test]
fn a_floor_below_which_numbers_were_forgotten_is_not_told() {
    let (mut here, mut there) = (DuplicateWindow::new(9, 640, 9), DuplicateWindow::new(9, 640, 9));
    (0..100).for_each(|step| assert!(here.first_seen(0, 1, 5_000 + 64 * step)));
    assert!(knows(&here, 1, 6), "it was forgotten, so it counts as seen");
    here.export(0, []).iter().for_each(|seen| there.import(0, seen));
    assert!(there.first_seen(0, 1, 6), "a message on another topic, which only this node had");
    assert!(!there.first_seen(0, 1, 5_000 + 64 * 99));
}

#[test]
fn a_publisher_is_told_for_as_long_as_something_of_it_may_come_again() {
    let mut window = DuplicateWindow::new(9, 640, 9);
    window.first_seen(10, 1, 1);
    window.first_seen(20, 2, 1);
    let publishers = |since| window.export(since, []).iter().map(|seen| seen.publisher).collect::<Vec<_>>();
    assert_eq!((publishers(0), publishers(11), publishers(21)), (vec![1, 2], vec![2], vec![]));
}
