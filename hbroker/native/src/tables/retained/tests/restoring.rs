//! What the journal was told is what is there after a restart.

use std::sync::Arc;

use parking_lot::Mutex;

use super::*;

/// A journal in memory. What was not submitted is lost.
#[derive(Clone, Default)]
struct Memory {
    changes: Vec<Change>,
    submitted: Arc<Mutex<Vec<Change>>>,
}

#[derive(Clone)]
enum Change {
    Add(u64, Vec<u8>),
    Remove(u64, u64),
}

impl Journal for Memory {
    fn add(&mut self, number: u64, field: &[u8]) {
        self.changes.push(Change::Add(number, field.to_vec()));
    }

    fn remove(&mut self, first: u64, last: u64) {
        self.changes.push(Change::Remove(first, last));
    }

    fn submit(&mut self) {
        self.submitted.lock().append(&mut self.changes);
    }
}

/// What the disk has after these changes.
fn on_disk(changes: &[Change]) -> BTreeMap<u64, Vec<u8>> {
    let mut disk = BTreeMap::new();
    for change in changes {
        match change {
            Change::Add(number, field) => {
                assert!(disk.insert(*number, field.clone()).is_none(), "{number} is new");
            }
            Change::Remove(first, last) => disk.retain(|number, _| !(first..=last).contains(&number)),
        }
    }
    disk
}

/// A field that says what it is.
fn field(topic: &str, sequence: u64, expires: Micros, fragment: Option<(u32, u32)>) -> Vec<u8> {
    format!("{topic} {sequence} {expires} {} {}", fragment.map_or(0, |f| f.0), fragment.map_or(0, |f| f.1))
        .into()
}

/// The store of a run that begins with what is on disk.
fn restarted(
    disk: &BTreeMap<u64, Vec<u8>>,
    journal: &Memory,
    max_bytes: usize,
    now: Micros,
) -> RetainedStore {
    let mut store = RetainedStore::new(max_bytes, 2);
    store.set_journal(Box::new(journal.clone()));
    store.set_time(now);
    for (number, field) in disk {
        let text = String::from_utf8(field.clone()).unwrap();
        let parts: Vec<&str> = text.split(' ').collect();
        let of = |at: usize| parts[at].parse::<u64>().unwrap();
        let fragment = (of(4) > 0).then(|| (of(3) as u32, of(4) as u32));
        let piece = whole(parts[0], field, of(1));
        store.restore(*number, &RetainedFragment { expires: of(2), fragment, ..piece });
    }
    store.end_restoring(disk.keys().max().copied().unwrap_or(0));
    store
}

#[test]
fn a_restart_finds_what_was_retained() {
    for seed in 0..40 {
        let mut random = SmallRng::seed_from_u64(seed);
        let journal = Memory::default();
        let mut store = restarted(&BTreeMap::new(), &journal, 4_000, 0);
        for sequence in 1..1_500 {
            let topic = ["a", "a/b", "a/b/c", "b", "c/d"][random.random_range(0..5)];
            let expires = if random.random() { sequence + random.random_range(0..50) } else { Micros::MAX };
            let part = (random.random_range(0..4) == 0).then_some(((sequence % 3) as u32, 3));
            let bytes = field(topic, sequence, expires, part);
            let clears = part.is_none() && random.random_range(0..8) == 0;
            let offered = RetainedFragment { fragment: part, expires, ..whole(topic, &bytes, sequence) };
            store.set_time(sequence);
            store.offer(RetainedFragment { payload_is_empty: clears, ..offered });
            match random.random_range(0..60) {
                0 => {
                    let run = store.detach("a/", Some("a0"));
                    store.note_removed(&run.numbers());
                    store.discard(run);
                }
                1 => tidy(&mut store),
                2 => {
                    let disk = on_disk(&journal.submitted.lock());
                    let again = restarted(&disk, &journal, 4_000, sequence);
                    assert_eq!(found(&again, "#"), found(&store, "#"), "seed {seed}");
                    assert_eq!(again.bytes(), real_cost(&again));
                    store = again;
                }
                _ => {}
            }
        }
    }
}

#[test]
fn of_two_messages_of_a_topic_the_newer_is_restored() {
    let journal = Memory::default();
    let mut store = restarted(&BTreeMap::new(), &journal, 10_000, 0);
    for sequence in 1..=2 {
        store.offer(whole("a", &field("a", sequence, Micros::MAX, None), sequence));
    }
    let changes = journal.submitted.lock().clone();
    // The disk lost power between the second message and the end of the first.
    let torn = on_disk(&changes[..2]);
    assert_eq!(torn.len(), 2);
    let store = restarted(&torn, &journal, 10_000, 0);
    assert_eq!(found(&store, "#"), [("a".to_owned(), field("a", 2, Micros::MAX, None))]);
    let last = journal.submitted.lock().last().cloned();
    assert!(matches!(last, Some(Change::Remove(1, 1))));
}

#[test]
fn what_is_of_no_use_to_the_next_run_is_not_on_disk() {
    let journal = Memory::default();
    let mut store = restarted(&BTreeMap::new(), &journal, 10_000, 0);
    for sequence in 1..=2 {
        store.offer(RetainedFragment { is_journaled: false, ..whole("a", b"x", sequence) });
    }
    assert_eq!((store.len(), journal.submitted.lock().len()), (1, 0));
}

#[test]
fn a_large_message_of_which_a_part_is_missing_is_not_restored() {
    let journal = Memory::default();
    let mut store = restarted(&BTreeMap::new(), &journal, 10_000, 0);
    for index in 0..3 {
        let bytes = field("a", 10 + u64::from(index), Micros::MAX, Some((index, 3)));
        store.offer(fragment("a", &bytes, 10, index, 3));
    }
    let mut disk = on_disk(&journal.submitted.lock());
    assert_eq!(restarted(&disk, &journal, 10_000, 0).len(), 1);
    disk.remove(&2);
    let mut store = restarted(&disk, &journal, 10_000, 0);
    assert_eq!(store.len(), 0);
    assert_eq!(
        on_disk(&journal.submitted.lock()),
        BTreeMap::new(),
        "the rest of it is not retained any more"
    );
    assert_eq!(store.offer(whole("b", b"b 1 9 0 0", 1)), Offer::Kept);
    assert_eq!(on_disk(&journal.submitted.lock()).keys().copied().collect::<Vec<_>>(), [4]);
}
