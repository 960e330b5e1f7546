//! Stores with messages in common become one: nothing is lost, nothing is doubled, and the order is kept.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::store::disk::fault::FaultDisk;
use crate::store::index::memory::MemoryIndex;
use crate::store::record::AppendedBody;
use crate::store::{QueueState, Settings};

const SETTINGS: Settings =
    Settings { segment_bytes: 4_096, checkpoint_bytes: 6_000, step_bytes: 700, ..Settings::DEFAULT };
const FIELD_READERS: FieldReaders =
    FieldReaders { identity, topic: |_| Some("t"), share: |options| (options[0], 0) };
const SESSIONS: u64 = 5;

type Tested = Store<FaultDisk, MemoryIndex>;
/// A session, and a message by its publisher and sequence.
type Copy = (u64, (u64, u64));

fn identity(field: &[u8]) -> Option<Identity> {
    let number = |at: usize| u64::from_le_bytes(field[8 * at..8 * at + 8].try_into().unwrap());
    Some(Identity { publisher: number(0), sequence: number(1), first: number(1), published_at: number(2) })
}

fn field_of((publisher, sequence): (u64, u64)) -> Vec<u8> {
    [publisher, sequence, 1_000 * sequence + publisher]
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect()
}

type Incoming = (u64, u64, Vec<(u64, u64)>);

/// A store, and by the test's own account what waits there, and what was settled.
struct Bench {
    store: Tested,
    waiting: BTreeMap<Copy, u64>,
    settled: BTreeSet<Copy>,
    next: BTreeMap<u64, u64>,
    /// A queue that will be appended to a session's: its name, the session, and what it has.
    incoming: Option<Incoming>,
    names: u64,
}

impl Bench {
    fn new() -> Self {
        let store = Store::open(FaultDisk::default(), MemoryIndex::default(), SETTINGS).unwrap().0;
        let (waiting, settled, next) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Self { store, waiting, settled, next, incoming: None, names: 0 }
    }

    fn add(&mut self, id: (u64, u64), sessions: &[u64]) {
        let mut batch = Batch::default();
        for &session in sessions {
            if let Some((name, _, ids)) = self.incoming.as_mut().filter(|incoming| incoming.1 == session)
                && id.1.is_multiple_of(2)
            {
                ids.push(id);
                batch.add_target(Target { session: *name, number: ids.len() as u64, options: &[0] });
                continue;
            }
            let number = self.next.entry(session).or_default();
            *number += 1;
            batch.add_target(Target { session, number: *number, options: &[0] });
            self.waiting.insert((session, id), *number);
        }
        batch.add_message(u64::MAX, &field_of(id));
        self.store.apply(batch.bytes());
    }

    /// `moves`: the message moves to another node.
    fn settle(&mut self, copy: Copy, moves: bool) {
        let number = self.waiting.remove(&copy).unwrap();
        let mut batch = Batch::default();
        match moves {
            true => batch.add_moved(copy.0, [(number, number)]),
            false => batch.add_settled(copy.0, [(number, number)]),
        }
        self.store.apply(batch.bytes());
        if !moves {
            self.settled.insert(copy);
        }
    }

    /// A message is stored once more, for one session alone, as when the session goes offline, or gets it back from
    /// another node.
    fn store_again(&mut self, copy: Copy) {
        let before = self.waiting[&copy];
        let incoming = self.incoming.take();
        self.add(copy.1, &[copy.0]);
        self.incoming = incoming;
        let mut batch = Batch::default();
        batch.add_moved(copy.0, [(before, before)]);
        self.store.apply(batch.bytes());
    }

    /// Messages for a session come in a queue of their own, until `append`.
    fn begin_incoming(&mut self, session: u64) {
        self.names += 1;
        self.incoming = Some((1_000 + self.names, session, Vec::new()));
    }

    fn append(&mut self) {
        if let Some((queue, session, ids)) = self.incoming.take().filter(|(.., ids)| !ids.is_empty()) {
            let next = self.next.entry(session).or_default();
            let mut batch = Batch::default();
            batch.add_appended(AppendedBody { session, queue, base: *next });
            self.store.apply(batch.bytes());
            for id in ids {
                *next += 1;
                self.waiting.insert((session, id), *next);
            }
        }
    }

    /// Whether a publisher's messages are in the order of their sequences in a session's queue. (One that was stored
    /// again alone is not.)
    fn is_sorted(&self, session: u64, publisher: u64) -> bool {
        let of_both = self.waiting.iter().filter(|(copy, _)| copy.0 == session && copy.1.0 == publisher);
        let numbers: Vec<u64> = of_both.map(|(_, number)| *number).collect();
        numbers.is_sorted()
    }

    /// A session has received all, and its queue ends: the next one begins with number 1.
    fn end_empty_queues(&mut self) {
        for session in 0..SESSIONS {
            if self.next.contains_key(&session) && !self.waiting.keys().any(|copy| copy.0 == session) {
                let mut batch = Batch::default();
                batch.add_ended(session);
                self.store.apply(batch.bytes());
                self.next.remove(&session);
            }
        }
    }

    fn commit(&mut self) {
        self.store.commit().unwrap();
        while self.store.maintain().unwrap() {}
    }
}

/// Two stores that have some of each publisher's messages. Each publisher's messages are in the order of their
/// sequences; the publishers take turns at random.
fn benches(rng: &mut SmallRng) -> [Bench; 2] {
    let mut benches = [Bench::new(), Bench::new()];
    for bench in &mut benches {
        let mut next: Vec<u64> = (0..3).map(|_| rng.random_range(1..100)).collect();
        for _ in 0..rng.random_range(0..200) {
            let publisher = rng.random_range(0..3);
            for _ in 0..rng.random_range(1..10) {
                next[publisher] += u64::from(rng.random_range(1..20_u32) == 1) * 10 + 1;
                // Whoever publishes it, and whichever store has it, the same sessions wait for a message.
                let id = (publisher as u64 + 1, next[publisher]);
                let sessions: Vec<u64> =
                    (0..SESSIONS).filter(|session| !(id.1 / 5 + session).is_multiple_of(3)).collect();
                bench.add(id, &sessions);
            }
            if rng.random_bool(0.1) && !bench.waiting.is_empty() {
                for _ in 0..rng.random_range(1..20) {
                    let at = rng.random_range(0..bench.waiting.len());
                    let copy = bench.waiting.keys().nth(at).copied();
                    copy.into_iter().for_each(|copy| match rng.random_range(0..10) {
                        0 => bench.store_again(copy),
                        choice => bench.settle(copy, choice < 4),
                    });
                    if bench.waiting.is_empty() {
                        break;
                    }
                }
                if rng.random_bool(0.3) {
                    let session = rng.random_range(0..SESSIONS);
                    let all: Vec<Copy> =
                        bench.waiting.keys().copied().filter(|copy| copy.0 == session).collect();
                    all.into_iter().for_each(|copy| bench.settle(copy, false));
                }
                bench.end_empty_queues();
            }
            match rng.random_range(0..20) {
                0 if bench.incoming.is_none() => bench.begin_incoming(rng.random_range(0..SESSIONS)),
                1 | 2 => bench.append(),
                _ => {}
            }
            bench.commit();
        }
    }
    benches
}

fn read(store: &mut Tested, session: u64) -> Vec<(u64, u64)> {
    let read = store.read(session, 0, usize::MAX).unwrap();
    assert!(read.is_all && read.damage.is_empty());
    let identities = read.messages.iter().map(|stored| identity(&stored.field).unwrap());
    identities.map(|identity| (identity.publisher, identity.sequence)).collect()
}

fn merged(benches: &[Bench; 2], memory: usize) -> Result<(Tested, Merged), MergeError> {
    let mut into = Store::open(FaultDisk::default(), MemoryIndex::default(), SETTINGS).unwrap().0;
    let report =
        merge([&benches[0].store, &benches[1].store], &mut into, FIELD_READERS, memory, &mut |_| true)?;
    Ok((into, report))
}

#[test]
fn what_waits_in_either_store_waits_once_and_in_order() {
    let (mut common, mut settled, mut sorted) = (0, 0, 0);
    for seed in 0..300 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let benches = benches(&mut rng);
        let (mut store, report) = merged(&benches, 1 << 20).unwrap();
        let [first, second] = &benches;
        for session in 0..SESSIONS {
            let found = read(&mut store, session);
            let distinct: BTreeSet<(u64, u64)> = found.iter().copied().collect();
            assert_eq!(found.len(), distinct.len(), "seed {seed}: doubled");
            let of_session = |copy: &&Copy| copy.0 == session;
            for (one, other) in [(first, second), (second, first)] {
                for copy in one.waiting.keys().filter(of_session) {
                    // Rewriting a segment forgets what was settled there.
                    let is_settled = other.settled.contains(copy) && !other.waiting.contains_key(copy);
                    assert!(is_settled || distinct.contains(&copy.1), "seed {seed}: {copy:?} is lost");
                }
            }
            let is_known = |id: &(u64, u64)| {
                first.waiting.contains_key(&(session, *id)) || second.waiting.contains_key(&(session, *id))
            };
            assert!(distinct.iter().all(is_known), "seed {seed}");
            for publisher in 1..=3 {
                let sequences: Vec<u64> =
                    found.iter().filter(|id| id.0 == publisher).map(|id| id.1).collect();
                let was_sorted =
                    report.disordered == 0 && benches.iter().all(|bench| bench.is_sorted(session, publisher));
                assert!(
                    !was_sorted || sequences.is_sorted(),
                    "seed {seed}, session {session}: {sequences:?}"
                );
                sorted += u64::from(was_sorted && !sequences.is_empty());
            }
        }
        assert_eq!(report.waiting, store.states().map(|state: QueueState| state.live).sum::<u64>());
        common += report.common;
        settled += report.settled;
        store.queues.audit();
    }
    assert!(common > 10_000 && settled > 500, "{common} in common, {settled} settled");
    assert!(sorted > 1_000, "{sorted}");
}

#[test]
fn little_memory_needs_more_parts_and_gives_the_same() {
    let mut refused = 0;
    for seed in 0..50 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let benches = benches(&mut rng);
        let (mut whole, _) = merged(&benches, 1 << 20).unwrap();
        match merged(&benches, 12_000) {
            Ok((mut store, report)) => {
                assert_eq!(report.waiting, whole.states().map(|state: QueueState| state.live).sum::<u64>());
                for session in 0..SESSIONS {
                    let [few, all] = [read(&mut store, session), read(&mut whole, session)];
                    assert_eq!(few.iter().collect::<BTreeSet<_>>(), all.iter().collect::<BTreeSet<_>>());
                    assert!(report.disordered > 0 || few == all);
                }
            }
            Err(MergeError::Memory) => refused += 1,
            Err(error) => panic!("{error:?}"),
        }
    }
    assert!(refused < 40, "{refused}");
}

#[test]
fn of_each_topic_the_newest_retained_message_stays_with_all_its_fragments() {
    let mut stores = [Bench::new(), Bench::new()];
    let fields = FieldReaders {
        identity: |field| Some(Identity { first: u64::from(field[24]), ..identity(field)? }),
        topic: |field| str::from_utf8(&field[25..]).ok(),
        ..FIELD_READERS
    };
    let retained = |id, first: u8, topic: &str| [&field_of(id)[..], &[first], topic.as_bytes()].concat();
    let mut number = 0;
    let mut retain = |bench: &mut Bench, field: &[u8]| {
        let mut batch = Batch::default();
        number += 1;
        batch.add_retained(number, field);
        bench.store.apply(batch.bytes());
        bench.commit();
    };
    let old = retained((1, 5), 5, "a");
    let new = [retained((2, 8), 8, "a"), retained((2, 9), 8, "a")];
    let only = retained((3, 1), 1, "b");
    retain(&mut stores[0], &old);
    new.iter().for_each(|field| retain(&mut stores[1], field));
    new.iter().for_each(|field| retain(&mut stores[0], field));
    retain(&mut stores[0], &only);
    let mut into = Store::open(FaultDisk::default(), MemoryIndex::default(), SETTINGS).unwrap().0;
    let report =
        merge([&stores[0].store, &stores[1].store], &mut into, fields, 1 << 20, &mut |_| true).unwrap();
    let mut found = BTreeSet::new();
    into.each_retained(|field| assert!(found.insert(field.to_vec()))).unwrap();
    assert_eq!(found, new.into_iter().chain([only]).collect());
    assert_eq!(report.retained, 3);
}

#[test]
fn messages_that_wait_for_each_other_are_put_aside() {
    // Neither log can be read to its end first: p5 waits for p4 behind q2, and q2 for q1 behind p5.
    let [mut first, mut second] = [Bench::new(), Bench::new()];
    [(1, 5), (2, 1)].into_iter().for_each(|id| first.add(id, &[7]));
    [(2, 2), (1, 4)].into_iter().for_each(|id| second.add(id, &[7]));
    [&mut first, &mut second].into_iter().for_each(Bench::commit);
    let (mut store, report) = merged(&[first, second], 1 << 20).unwrap();
    let found = read(&mut store, 7);
    let at = |id| found.iter().position(|found| *found == id).unwrap();
    assert!(at((1, 4)) < at((1, 5)) && at((2, 1)) < at((2, 2)));
    assert_eq!((found.len(), report.disordered), (4, 0));
}

#[test]
fn a_message_that_was_stored_again_far_behind_holds_nothing_up() {
    let mut stores = [Bench::new(), Bench::new()];
    for bench in &mut stores {
        (1..=2_000).for_each(|sequence| bench.add((1, sequence), &[7]));
        (1..=3).for_each(|sequence| bench.add((1, sequence), &[8]));
        bench.commit();
    }
    stores[0].add((1, 3_000), &[8]);
    stores[0].commit();
    let (mut store, report) = merged(&stores, 20_000).unwrap();
    assert_eq!((report.disordered, report.common), (0, 2_003));
    assert_eq!(read(&mut store, 8), [(1, 1), (1, 2), (1, 3), (1, 3_000)]);
    assert_eq!(read(&mut store, 7).len(), 2_000);
}
