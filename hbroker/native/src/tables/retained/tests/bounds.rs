//! However much is kept, no call does more than a bounded amount of work: nothing holds the lock for long.

use super::*;

const TOPICS: u64 = 100_000;

/// Messages on `home/<0..1000>/<number>`, half of which expire at 1,000.
fn full(count: u64, max_bytes: usize) -> RetainedStore {
    let mut store = RetainedStore::new(max_bytes, 1);
    for number in 0..count {
        let topic = format!("home/{}/{number}", number % 1_000);
        let expires = if number % 2 == 0 { 1_000 } else { Micros::MAX };
        let offer =
            store.offer(RetainedFragment { expires, ..whole(&topic, b"a field of some bytes", number + 1) });
        assert_eq!(offer, Offer::Kept);
    }
    store
}

/// Does something under the lock, of which this is the work.
fn holding<R>(
    store: &mut RetainedStore,
    what: &str,
    most: usize,
    act: impl FnOnce(&mut RetainedStore) -> R,
) -> R {
    let before = store.work();
    let result = act(store);
    let work = store.work() - before;
    drop(store.take_freed());
    assert!(work <= most, "{what}: {work}");
    result
}

/// Reads all that is wanted; how many pieces, and in how many holds.
fn read_all(store: &mut RetainedStore, wanted: Wanted<'_>) -> (usize, usize) {
    let (mut pieces, mut holds, mut next) = (0, 0, Some(wanted.first()));
    while let Some(place) = next {
        let batch = holding(store, "read", 700, |store| store.read(wanted, u64::MAX, &place));
        assert!(batch.pieces.len() <= MOST_FRAGMENTS);
        pieces += batch.pieces.len();
        holds += 1;
        next = batch.rest;
    }
    (pieces, holds)
}

#[test]
fn who_reads_holds_the_lock_for_a_part_at_a_time() {
    let mut store = full(TOPICS, usize::MAX);
    assert_eq!(read_all(&mut store, Wanted::Filter("#")).0 as u64, TOPICS);
    assert_eq!(read_all(&mut store, Wanted::Region("home".into())).0 as u64, TOPICS);
    // Each room is looked at, and not what is in it.
    let (pieces, holds) = read_all(&mut store, Wanted::Filter("home/+/4711/#"));
    assert!(pieces == 1 && holds < 200, "{holds}");
    assert!(read_all(&mut store, Wanted::Filter("+/nothing")).1 < 5);
    assert_eq!(read_all(&mut store, Wanted::Filter("home/7/7007")), (1, 1));
}

#[test]
fn what_expires_at_once_is_gone_at_once_and_removed_by_and_by() {
    let mut store = full(TOPICS, usize::MAX);
    let before = store.bytes();
    store.set_time(1_000);
    assert_eq!(read_all(&mut store, Wanted::Filter("#")).0 as u64, TOPICS / 2);
    let late = whole("home/0/0", b"of the same publisher, and older", 1);
    assert_eq!(holding(&mut store, "offer", 2_000, |store| store.offer(late)), Offer::Kept);
    let mut turns = 0;
    while holding(&mut store, "tidy", STEPS * 100, RetainedStore::tidy) {
        turns += 1;
    }
    assert!(turns > 600 && store.len() as u64 == TOPICS / 2 + 1 && store.bytes() < before / 2);
    assert_eq!((store.bytes(), store.expiries.len()), (real_cost(&store), 0));
}

#[test]
fn what_leaves_is_gone_at_once_and_freed_by_and_by() {
    let mut store = full(TOPICS, usize::MAX);
    store.offer(fragment("home/7/large", b"x", TOPICS * 2, 0, 2));
    let excluded = ["home/8".to_owned(), "home/9/9".to_owned()];
    let region = Region { subtree: "home", excluded: &excluded };
    let ranges = ranges(region);
    assert!(ranges.len() <= 8);
    holding(&mut store, "drop_unfinished", 10, |store| store.drop_unfinished(region));
    for (from, to) in ranges {
        holding(&mut store, "drop_run", 400, |store| {
            let run = store.detach(&from, to.as_deref());
            store.discard(run);
        });
    }
    assert_eq!(read_all(&mut store, Wanted::Filter("#")).0, 101);
    assert_eq!((store.len(), store.incomplete.len()), (101, 0));
    // The same topic again, before what was there is freed.
    assert_eq!(
        holding(&mut store, "offer", 2_000, |store| store.offer(whole("home/0/0", b"new", 1))),
        Offer::Kept
    );
    while holding(&mut store, "tidy", STEPS * 100, RetainedStore::tidy) {}
    assert_eq!((store.bytes(), store.len()), (real_cost(&store), 102));
    assert_eq!(store.expiries.len(), 100, "those of room 8");
}

#[test]
fn nothing_is_refused_for_which_freeing_all_makes_room() {
    // (Bytes that are kept, and how they come to wait.)
    for way in ["dropped", "expired", "unfinished", "large"] {
        let max_bytes = 10_000_000;
        let mut store = RetainedStore::new(max_bytes, 1);
        let mut number = 0;
        loop {
            number += 1;
            let topic = format!("a/{number}");
            let mortal = RetainedFragment { expires: 1_000, ..whole(&topic, &[1; 100], number) };
            let offer = match way {
                "expired" => store.offer(mortal),
                "large" if number % 2 == 0 => (0..20)
                    .map(|index| store.offer(fragment(&topic, &[1; 100], number << 8, index, 20)))
                    .last()
                    .expect("there are some"),
                "unfinished" if number > 200 => break,
                "unfinished" => (0..300)
                    .map(|index| store.offer(fragment(&topic, &[1; 100], number << 16, index, 1_000)))
                    .last()
                    .expect("there are some"),
                _ => store.offer(whole(&topic, &[1; 100], number)),
            };
            if offer == Offer::Refused || way == "unfinished" && store.incomplete.len() > 160 {
                break;
            }
        }
        assert!(store.bytes() > max_bytes - 1_000_000, "{way}: it is nearly full");
        if way != "unfinished" {
            match way {
                "expired" => store.set_time(1_000),
                _ => drop_within(&mut store, "a".into()),
            }
        }
        // Large ones, so that one offer needs the room of many.
        let field = vec![2; 60_000];
        for number in 0..160 {
            let topic = format!("b/{number}");
            let offer = holding(&mut store, way, 60_000, |store| store.offer(whole(&topic, &field, number)));
            assert_eq!(offer, Offer::Kept, "{way}: {number}");
            assert!(store.bytes() <= max_bytes);
        }
    }
}

#[test]
fn a_large_message_is_read_and_freed_fragment_by_fragment() {
    let mut store = RetainedStore::new(usize::MAX, 1);
    let fragments = 100_000;
    for index in 0..fragments {
        holding(&mut store, "offer", 1_000, |store| {
            store.offer(fragment("a/large", b"a part", 1, index, fragments))
        });
    }
    assert_eq!(read_all(&mut store, Wanted::Filter("a/+")).0, fragments as usize);
    assert_eq!(
        holding(&mut store, "replace", 1_000, |store| store.offer(whole("a/large", b"x", 1 << 40))),
        Offer::Kept
    );
    assert_eq!(found(&store, "#"), [("a/large".to_owned(), b"x".to_vec())]);
    while holding(&mut store, "tidy", STEPS * 2, RetainedStore::tidy) {}
    assert_eq!(store.bytes(), real_cost(&store));
    // One of which parts are missing gives way.
    for index in 1..fragments {
        store.offer(fragment("a/large", b"a part", 1 << 50, index, fragments));
    }
    holding(&mut store, "clear", 1_000, |store| store.offer(whole("a/large", b"", 1 << 60)));
    assert_eq!((store.incomplete.len(), found(&store, "#").len()), (0, 0));
    while holding(&mut store, "tidy", STEPS * 2, RetainedStore::tidy) {}
    assert_eq!(store.bytes(), 0);
}

#[test]
fn topics_that_were_cleared_are_forgotten_a_few_at_a_time() {
    let mut store = RetainedStore::new(usize::MAX, 1);
    for number in 0..20_000_u64 {
        let topic = number.to_string();
        let clears = RetainedFragment { expires: 1_000, ..whole(&topic, b"", number + 1) };
        holding(&mut store, "clear", 500, |store| store.offer(clears));
    }
    store.set_time(1_000);
    holding(&mut store, "offer", 500, |store| store.offer(whole("a", b"x", 1 << 40)));
    assert_eq!(store.offer(whole("19999", b"x", 1)), Offer::Kept, "that was long ago");
}
