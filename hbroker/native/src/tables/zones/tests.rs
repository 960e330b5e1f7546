//! Zones and cuts: what is found, what ends, and what is forgotten for room.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;

const FOREVER: Micros = Micros::MAX;

fn node(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

fn cut(subtree: &str, port: u16) -> Cut {
    Cut { subtree: subtree.into(), node: "n".into(), address: node(port), epoch: 1 }
}

#[test]
fn the_longest_known_subtree_decides() {
    let mut zones = Zones::new(100, 1);
    assert_eq!(zones.lookup("home/lamp", 0), Lookup::Unknown);
    zones.install("home", &[cut("home/kitchen", 2)], node(1), 50);
    zones.install("home/kitchen/oven", &[], node(3), 20);
    assert_eq!(zones.lookup("home/lamp", 0), Lookup::Owner(node(1)));
    assert_eq!(zones.lookup("home/kitchen/lamp", 0), Lookup::Below(node(2)));
    assert_eq!(zones.lookup("home/kitchen/oven/door", 19), Lookup::Owner(node(3)));
    assert_eq!(zones.lookup("home/kitchen/oven/door", 20), Lookup::Below(node(2)));
    assert_eq!(zones.lookup("home/kitchen/oven/door", 50), Lookup::Unknown);
    assert_eq!(zones.lookup("homes", 0), Lookup::Unknown);
}

#[test]
fn what_a_delegate_says_outlives_what_is_said_of_it() {
    let mut zones = Zones::new(100, 1);
    zones.install("a/b", &[], node(2), FOREVER);
    zones.install("a", &[cut("a/b", 2)], node(1), FOREVER);
    assert_eq!(zones.lookup("a/b/c", 0), Lookup::Owner(node(2)));
    zones.forget(Some(node(2)));
    assert_eq!(zones.lookup("a/b/c", 0), Lookup::Below(node(2)));
    zones.install("a/b", &[], node(2), FOREVER);
    zones.install("a", &[cut("a/b", 3)], node(1), FOREVER);
    assert_eq!(zones.lookup("a/b/c", 0), Lookup::Below(node(3)), "it moved");
    zones.install("a", &[], node(1), FOREVER);
    assert_eq!(zones.lookup("a/b/c", 0), Lookup::Owner(node(1)), "it was taken back");
    zones.forget(None);
    assert_eq!((zones.lookup("a", 0), zones.len()), (Lookup::Unknown, 0));
}

#[test]
fn a_refusal_corrects() {
    let mut zones = Zones::new(100, 1);
    zones.install("a", &[], node(1), FOREVER);
    zones.learn_cut(node(1), "a/b/c", &cut("a/b", 2), FOREVER);
    assert_eq!(zones.lookup("a/b/c", 0), Lookup::Below(node(2)));
    assert_eq!(zones.lookup("a/x", 0), Lookup::Owner(node(1)));
    zones.learn_cut(node(1), "a/x", &cut("", 0), FOREVER);
    assert_eq!(zones.lookup("a/x", 0), Lookup::Unknown);
}

#[test]
fn stays_bounded_and_never_believes_a_node_that_refused() {
    let mut random = SmallRng::seed_from_u64(1);
    let mut zones = Zones::new(12, 1);
    let paths =
        ["", "a", "a/b", "a/b/c", "a/c", "b", "b/a", "b//", "/", "ab", "c/d/e/f", "$s/a", "c", "c/d", "b/b"];
    let mut found = [0; 3];
    for now in 0..30_000 {
        let mut pick = || paths[random.random_range(0..paths.len())];
        let (path, below, topic) = (pick(), [pick(), pick()], [pick(), "/x"].concat());
        let expires = now + random.random_range(0..100);
        let (owner, other) = (node(random.random_range(0..5)), random.random_range(0..5));
        match random.random_range(0..10) {
            0..5 => zones.install(path, &below.map(|subtree| cut(subtree, other)), owner, expires),
            5..9 => {
                zones.learn_cut(owner, &topic, &cut(path, other), expires);
                let answer = zones.lookup(&topic, now);
                assert!(answer != Lookup::Owner(owner) || expires <= now, "{topic:?} {path:?}");
            }
            _ => zones.forget(Some(owner)),
        }
        assert!(zones.len() <= 12);
        found[match zones.lookup(&topic, now) {
            Lookup::Owner(_) => 0,
            Lookup::Below(_) => 1,
            Lookup::Unknown => 2,
        }] += 1;
    }
    assert!(found.iter().all(|count| *count > 1_000), "{found:?}");
}
