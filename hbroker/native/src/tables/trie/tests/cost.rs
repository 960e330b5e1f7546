//! What a look-up costs at most: one node for each level and shape, the levels at which a filter has `+`.
//!
//! `cargo test --release -p hbroker-native look_up_time -- --ignored --nocapture`

use std::collections::BTreeSet;
use std::time::Instant;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::super::*;

/// Which of a filter's levels are `+`, a bit for each.
fn filter_of(shape: u32, levels: u32, end: &str) -> String {
    let names: Vec<&str> = (0..levels).map(|at| if shape >> at & 1 == 1 { "+" } else { "a" }).collect();
    format!("{}/{end}", names.join("/"))
}

/// As nodes take them (§9): all that are ordinary, and so many others.
fn shapes(levels: u32, others: usize) -> Vec<u32> {
    let (ordinary, odd): (Vec<u32>, Vec<u32>) =
        (0..1 << levels).partition(|shape: &u32| shape.count_ones() <= 2);
    ordinary.into_iter().chain(odd.into_iter().take(others)).collect()
}

#[test]
fn a_look_up_follows_at_most_one_filter_of_each_shape() {
    let mut random = SmallRng::seed_from_u64(1);
    let mut found = MatchSet::default();
    let mut followed = 0;
    for _ in 0..200 {
        let mut trie = SubscriptionTrie::new(7);
        let (levels, mut used) = (random.random_range(1..=8), BTreeSet::new());
        for session in 0..random.random_range(1..200) {
            let shape = random.random_range(0..1 << levels);
            used.insert(shape);
            let end = ["#", "a", "b", "c/d", "+"][random.random_range(0..4)];
            trie.insert(&filter_of(shape, levels, end), "", Subscriber::new(SessionKey(session), 0));
        }
        for end in ["a", "b", "c/d", "e/f/g"] {
            let topic = format!("{}/{end}", vec!["a"; levels as usize].join("/"));
            trie.collect_matches(&topic, &mut found);
            let most = used.len() * (topic.split('/').count() + 1);
            assert!(found.visited <= most, "{} of {most}", found.visited);
            followed += found.visited;
        }
    }
    assert!(followed > 10_000, "{followed}");
}

/// Filters of all shapes that a node takes, of which none matches, and of which all do.
#[test]
#[ignore = "a measurement"]
fn look_up_time() {
    let mut found = MatchSet::default();
    for (levels, others) in [(4, 256), (8, 256), (12, 256), (16, 256), (16, usize::MAX)] {
        for end in ["nothing", "#"] {
            let mut trie = SubscriptionTrie::new(1);
            let shapes = shapes(levels, others);
            for &shape in &shapes {
                trie.insert(&filter_of(shape, levels, end), "", Subscriber::new(SessionKey(1), 0));
            }
            let topics: Vec<String> =
                (0..50).map(|n| format!("{}/{n}", vec!["a"; levels as usize].join("/"))).collect();
            let start = Instant::now();
            topics.iter().for_each(|topic| trie.collect_matches(topic, &mut found));
            let each = start.elapsed() / topics.len() as u32;
            println!(
                "{levels} levels, {} shapes, /{end}: {} match, {} nodes, {each:?} for each look-up",
                shapes.len(),
                found.subscriptions(),
                found.visited
            );
        }
    }
}
