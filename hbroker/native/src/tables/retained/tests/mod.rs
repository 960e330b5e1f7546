//! The store against what it promises, part by part.

mod bounds;
mod reading;
mod restoring;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::topic;

fn whole<'a>(topic: &'a str, field: &'a [u8], sequence: u64) -> RetainedFragment<'a> {
    let expires = Micros::MAX;
    let payload_is_empty = field.is_empty();
    let (publisher, fragment, is_journaled) = (1, None, true);
    RetainedFragment { topic, field, payload_is_empty, publisher, sequence, expires, fragment, is_journaled }
}

fn fragment<'a>(topic: &'a str, field: &'a [u8], first: u64, index: u32, count: u32) -> RetainedFragment<'a> {
    let sequence = first + u64::from(index);
    RetainedFragment { fragment: Some((index, count)), ..whole(topic, field, sequence) }
}

fn found(store: &RetainedStore, filter: &str) -> Vec<(String, Vec<u8>)> {
    store.found(filter)
}

fn searched(store: &RetainedStore, wanted: Wanted<'_>) -> Vec<String> {
    let mut topics = Vec::new();
    for (topic, kept) in store.kept.walk("").filter(|(_, kept)| kept.expires > store.now) {
        let is_wanted = match wanted {
            Wanted::Filter(filter) => topic::matches(filter, topic),
            Wanted::Region(region) => region.holds(topic),
        };
        topics.extend(is_wanted.then(|| topic.to_owned()));
        assert!(kept.cost > 0);
    }
    topics
}

fn drop_within(store: &mut RetainedStore, region: Region<'_>) {
    store.drop_unfinished(region);
    for (from, to) in ranges(region) {
        let run = store.detach(&from, to.as_deref());
        store.discard(run);
    }
}

/// Frees all that waits for that.
fn tidy(store: &mut RetainedStore) {
    while store.tidy() {}
}

/// What is here costs, but for what is detached.
fn real_cost(store: &RetainedStore) -> usize {
    let bytes = |fragments: &BTreeMap<u32, Bytes>| {
        fragments.values().map(|fragment| fragment.len() + OVERHEAD).sum::<usize>()
    };
    let of_kept = |topic: &str, kept: &RetainedMessage| {
        let fragments = match &kept.fragments {
            Fragments::One(fragment) => fragment.len() + OVERHEAD,
            Fragments::Many(fragments) => bytes(fragments),
        };
        assert_eq!(kept.cost, cost_of_topic(topic, kept.expires) + fragments);
        kept.cost
    };
    let kept: usize = store.kept.walk("").map(|(topic, kept)| of_kept(topic, kept)).sum();
    let of_incomplete = |incomplete: &IncompleteMessage| {
        assert_eq!(incomplete.cost, cost_of(&incomplete.topic) + bytes(&incomplete.fragments));
        incomplete.cost
    };
    let dismantled: usize =
        store.dismantled.iter().map(|dismantled| dismantled.cost + bytes(&dismantled.fragments)).sum();
    kept + store.incomplete.iter().map(of_incomplete).sum::<usize>() + dismantled
}

#[test]
fn the_last_message_is_kept() {
    let mut store = RetainedStore::new(10_000, 1);
    assert_eq!(store.offer(whole("a", b"one", 1)), Offer::Kept);
    assert_eq!(store.offer(whole("a", b"two", 2)), Offer::Kept);
    assert_eq!(store.offer(whole("a", b"one", 1)), Offer::Ignored);
    assert_eq!(store.offer(RetainedFragment { publisher: 2, ..whole("a", b"three", 1) }), Offer::Kept);
    assert_eq!(found(&store, "a"), [("a".to_owned(), b"three".to_vec())]);
    assert_eq!(store.offer(whole("a", b"", 3)), Offer::Cleared);
    assert_eq!((store.len(), store.bytes()), (0, 0));
}

#[test]
fn what_a_clearing_message_overtook_is_not_kept() {
    let mut store = RetainedStore::new(10_000, 1);
    assert_eq!(store.offer(RetainedFragment { expires: 100, ..whole("a", b"", 5) }), Offer::Cleared);
    assert_eq!(store.offer(whole("a", b"before", 4)), Offer::Ignored);
    assert_eq!(store.offer(fragment("a", b"before", 2, 1, 2)), Offer::Ignored);
    assert_eq!(store.offer(RetainedFragment { publisher: 2, ..whole("a", b"other", 4) }), Offer::Kept);
    assert_eq!(store.offer(whole("a", b"before", 4)), Offer::Ignored, "whoever published since");
    assert_eq!(store.offer(whole("a", b"after", 6)), Offer::Kept);
    store.set_time(100);
    store.offer(RetainedFragment { publisher: 2, ..whole("a", b"", 5) });
    assert_eq!(store.offer(whole("a", b"long after", 4)), Offer::Kept);
}

#[test]
fn a_large_message_replaces_when_it_is_whole() {
    let mut store = RetainedStore::new(10_000, 1);
    store.offer(whole("a", b"old", 1));
    assert_eq!(store.offer(fragment("a", b"C", 10, 2, 3)), Offer::Incomplete);
    assert_eq!(store.offer(fragment("a", b"A", 10, 0, 3)), Offer::Incomplete);
    assert_eq!(store.offer(fragment("a", b"A", 10, 0, 3)), Offer::Ignored);
    assert_eq!(store.offer(fragment("a", b"x", 10, 3, 3)), Offer::Ignored);
    assert_eq!(found(&store, "#"), [("a".to_owned(), b"old".to_vec())]);
    assert_eq!(store.offer(fragment("a", b"B", 10, 1, 3)), Offer::Kept);
    assert_eq!(found(&store, "#"), [("a".to_owned(), b"ABC".to_vec())]);
    assert_eq!(store.offer(fragment("a", b"late", 5, 0, 2)), Offer::Ignored);
    assert_eq!(store.offer(fragment("a", b"D", 20, 0, 2)), Offer::Incomplete);
    assert_eq!(store.offer(whole("a", b"new", 30)), Offer::Kept);
    assert!(store.incomplete.is_empty());
}

#[test]
fn what_the_first_fragments_of_a_large_message_overtook_does_not_end_it() {
    for before in [b"before".as_slice(), b""] {
        let mut store = RetainedStore::new(10_000, 1);
        assert_eq!(store.offer(fragment("a", b"A", 10, 0, 2)), Offer::Incomplete);
        store.offer(whole("a", before, 9));
        assert_eq!(store.offer(fragment("a", b"B", 10, 1, 2)), Offer::Kept);
        assert_eq!(found(&store, "#"), [("a".to_owned(), b"AB".to_vec())]);
    }
}

#[test]
fn what_waits_gives_way_and_what_is_kept_stays() {
    let mut store = RetainedStore::new(1_000, 1);
    assert_eq!(store.offer(fragment("w", &[0; 300], 1, 0, 2)), Offer::Incomplete);
    assert_eq!(store.offer(whole("a", &[0; 400], 9)), Offer::Kept);
    assert!(store.incomplete.is_empty());
    assert_eq!(store.offer(whole("b", &[0; 400], 10)), Offer::Refused);
    assert_eq!(store.offer(whole("a", &[0; 900], 11)), Offer::Refused);
    assert_eq!(store.offer(whole("a", &[1; 800], 12)), Offer::Kept);
    assert_eq!(found(&store, "a")[0].1, [1; 800]);
}

#[test]
fn agrees_with_a_search_through_all_topics() {
    let mut random = SmallRng::seed_from_u64(1);
    let mut store = RetainedStore::new(4_000, 1);
    let topics = ["a", "a/b", "a/b/c", "a!", "a0", "a/", "/", "/a", "ab/c", "$s/a", "b/x/c", "b/y/c"];
    let filters = ["#", "a", "a/#", "a/+", "+", "+/#", "/+", "/#", "b/+/c", "$s/#", "a/b/c/#", "none"];
    let (mut refused, mut matched) = (0, 0);
    for sequence in 1..20_000 {
        let topic = topics[random.random_range(0..topics.len())];
        let field = vec![7; random.random_range(0..300)];
        let expires = if random.random() { sequence + random.random_range(0..50) } else { Micros::MAX };
        let offered = match random.random_range(0..4) {
            0 => fragment(topic, &field, sequence - sequence % 3, (sequence % 3) as u32, 3),
            _ => whole(topic, &field, sequence),
        };
        let offer = store.offer(RetainedFragment { expires, ..offered });
        store.set_time(sequence);
        if random.random_range(0..3) == 0 {
            tidy(&mut store);
            assert!(store.kept.walk("").all(|(_, kept)| kept.expires > sequence));
        }
        let mortals = store.kept.walk("").filter(|(_, kept)| kept.expires < Micros::MAX);
        let clock: BTreeMap<_, _> =
            mortals.map(|(topic, kept)| ((kept.expires, kept.serial), Box::from(topic))).collect();
        assert!(!store.detached.is_empty() || clock == store.expiries);
        refused += usize::from(offer == Offer::Refused);
        if random.random_range(0..50) == 0 {
            drop_within(&mut store, "a".into());
            assert!(!store.kept.walk("").any(|(topic, _)| topic::is_within(topic, "a")));
        }
        assert!(store.bytes() <= 4_000 && store.incomplete.len() <= MAX_INCOMPLETE);
        assert!(!store.detached.is_empty() || store.bytes() == real_cost(&store));
        let filter = filters[random.random_range(0..filters.len())];
        let mut got: Vec<String> = found(&store, filter).into_iter().map(|(topic, _)| topic).collect();
        got.sort();
        assert_eq!(got, searched(&store, Wanted::Filter(filter)), "{filter:?}");
        matched += got.len();
    }
    assert!(refused > 100 && matched > 10_000, "{refused} {matched}");
}

#[test]
fn what_is_no_part_of_a_region_stays() {
    let mut store = RetainedStore::new(10_000, 1);
    for topic in ["a", "a/b", "a/b/c", "a/bc", "d"] {
        assert_eq!(store.offer(whole(topic, b"x", 1)), Offer::Kept);
    }
    assert_eq!(store.offer(fragment("a/b/large", b"x", 2, 0, 2)), Offer::Incomplete);
    let excluded = ["a/b".to_owned()];
    let region = Region { subtree: "a", excluded: &excluded };
    let within = |region| {
        let wanted = Wanted::Region(region);
        let batch = store.read(wanted, u64::MAX, &wanted.first());
        assert_eq!(batch.rest, None);
        (batch.pieces.len(), searched(&store, wanted))
    };
    assert_eq!(within(region), (2, vec!["a".to_owned(), "a/bc".to_owned()]));
    assert_eq!(within("a/b".into()), (2, vec!["a/b".to_owned(), "a/b/c".to_owned()]));
    drop_within(&mut store, region);
    assert_eq!(
        store.offer(fragment("a/b/large", b"x", 2, 1, 2)),
        Offer::Kept,
        "its first part is still there"
    );
    assert_eq!(searched(&store, Wanted::Filter("#")), ["a/b", "a/b/c", "a/b/large", "d"]);
    tidy(&mut store);
    assert_eq!(store.bytes(), real_cost(&store));
}

#[test]
fn a_dead_message_is_neither_found_nor_charged() {
    let mut store = RetainedStore::new(10_000, 1);
    let mortal = |topic, sequence, expires| RetainedFragment { expires, ..whole(topic, b"x", sequence) };
    store.offer(mortal("a", 1, 100));
    store.offer(mortal("b", 2, 200));
    store.offer(mortal("b", 3, Micros::MAX));
    store.offer(mortal("c", 4, Micros::MAX));
    store.offer(mortal("c", 5, 50));
    let topics =
        |store: &RetainedStore| found(store, "#").into_iter().map(|(topic, _)| topic).collect::<Vec<_>>();
    store.set_time(49);
    assert_eq!(topics(&store), ["a", "b", "c"]);
    store.set_time(100);
    assert_eq!((topics(&store), store.len()), (vec!["b".to_owned()], 3), "though they are there");
    store.set_time(1_000);
    assert_eq!(topics(&store), ["b"], "it was replaced by one that does not expire");
    assert!(!store.tidy());
    assert_eq!(store.len(), 1);
    assert_eq!(
        (store.offer(whole("b", b"", 6)), store.bytes(), store.expiries.len()),
        (Offer::Cleared, 0, 0)
    );
}
