//! The store under random work, on a disk that loses power, is full, flips bits, and fails.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::store::disk::Disk;
use crate::store::disk::fault::FaultDisk;
use crate::store::index::memory::MemoryIndex;
use crate::store::log::opening::Recovered;
use crate::store::log::segment;
use crate::store::record::{AppendedBody, Batch, Target};
use crate::store::{EIO, Failure, Settings, Store};

/// So small that a run has many segments and checkpoints.
const SETTINGS: Settings =
    Settings { segment_bytes: 4_096, checkpoint_bytes: 6_000, step_bytes: 700, ..Settings::DEFAULT };

/// Stands for the session of a retained message.
const RETAINED: u64 = u64::MAX;

const SESSIONS: u64 = 6;

/// What a queue has by the test's own account.
#[derive(Clone, Default)]
struct Queue {
    next: u64,
    waiting: BTreeMap<u64, Vec<u8>>,
}

/// A store, and what it must contain.
struct Bench {
    rng: SmallRng,
    disk: FaultDisk,
    index: MemoryIndex,
    store: Store<FaultDisk, MemoryIndex>,
    now: BTreeMap<u64, Queue>,
    /// What was in it at the last commit: what it must contain at least after a loss of power, but for what
    /// was settled since.
    committed: BTreeMap<u64, Queue>,
    /// What was taken in since the last commit: session, number, and message.
    since: BTreeSet<(u64, u64, Vec<u8>)>,
    /// The names of queues that may be appended to those of sessions, and how many names there were.
    incoming: Vec<u64>,
    names: u64,
    /// What was appended since the last commit.
    appended: Vec<AppendedBody>,
    messages: u64,
    /// The retained messages by number: now, and at the last commit.
    retained: BTreeMap<u64, Vec<u8>>,
    retained_before: BTreeMap<u64, Vec<u8>>,
}

impl Bench {
    fn new(seed: u64) -> Self {
        let (disk, index) = (FaultDisk::default(), MemoryIndex::default());
        let (store, recovered) = Store::open(disk.clone(), index.clone(), SETTINGS).unwrap();
        assert_eq!(recovered, Recovered::default());
        let rng = SmallRng::seed_from_u64(seed);
        let (now, committed) = (BTreeMap::new(), BTreeMap::new());
        let (retained, retained_before) = (BTreeMap::new(), BTreeMap::new());
        Self {
            rng,
            disk,
            index,
            store,
            now,
            committed,
            since: BTreeSet::new(),
            incoming: Vec::new(),
            names: 0,
            appended: Vec::new(),
            messages: 0,
            retained,
            retained_before,
        }
    }

    /// Takes random records in.
    fn work(&mut self) {
        let mut batch = Batch::default();
        for _ in 0..self.rng.random_range(1..12) {
            match self.rng.random_range(0..31) {
                0..10 => self.add_message(&mut batch),
                10..19 => self.settle(&mut batch),
                19..25 => self.retain(&mut batch),
                25..29 => self.retain_no_more(&mut batch),
                29 => self.append(&mut batch),
                _ => {
                    let session = self.any_queue();
                    if self.now.remove(&session).is_some() {
                        batch.add_ended(session);
                    }
                }
            }
        }
        self.store.apply(batch.bytes());
    }

    /// The queue of a session, or one that may be appended to one.
    fn any_queue(&mut self) -> u64 {
        let at = self.rng.random_range(0..SESSIONS as usize + 2);
        self.incoming.get(at).copied().unwrap_or(at as u64 % SESSIONS)
    }

    fn append(&mut self, batch: &mut Batch) {
        if !self.incoming.is_empty() && self.rng.random_bool(0.7) {
            let queue = self.incoming.remove(0);
            let session = self.rng.random_range(0..SESSIONS);
            let other = self.now.remove(&queue).unwrap_or_default();
            let next = self.now.get(&session).map_or(1, |queue| queue.next);
            let base = next - 1 + self.rng.random_range(0..2);
            batch.add_appended(AppendedBody { session, queue, base });
            self.appended.push(AppendedBody { session, queue, base });
            if other.next > 0 {
                let own = self.now.entry(session).or_default();
                own.next = base + other.next;
                for (number, field) in other.waiting {
                    self.since.insert((session, base + number, field.clone()));
                    own.waiting.insert(base + number, field);
                }
            }
        } else if self.incoming.len() < 2 {
            self.names += 1;
            self.incoming.push(100 + self.names);
        }
    }

    fn add_message(&mut self, batch: &mut Batch) {
        self.messages += 1;
        let length = self.rng.random_range(0..300);
        let field = [self.messages.to_le_bytes().to_vec(), vec![self.messages as u8; length]].concat();
        for _ in 0..self.rng.random_range(1..4) {
            let session = self.any_queue();
            let queue = self.now.entry(session).or_insert_with(|| Queue { next: 1, ..Queue::default() });
            if queue.waiting.last_key_value().is_none_or(|(_, newest)| *newest != field) {
                batch.add_target(Target { session, number: queue.next, options: &[1] });
                self.since.insert((session, queue.next, field.clone()));
                queue.waiting.insert(queue.next, field.clone());
                queue.next += 1;
            }
        }
        if batch.target_bytes() > 0 {
            batch.add_message(u64::MAX, &field);
        }
    }

    fn settle(&mut self, batch: &mut Batch) {
        let session = self.any_queue();
        let Some(queue) = self.now.get_mut(&session) else {
            return;
        };
        let most = self.rng.random_range(0..8);
        let numbers: Vec<u64> = match self.rng.random_range(0..10) {
            0..7 => queue.waiting.keys().take(most).copied().collect(),
            7..9 => queue.waiting.keys().filter(|_| self.rng.random_bool(0.1)).copied().collect(),
            _ => queue.waiting.keys().rev().take(1).copied().collect(),
        };
        numbers.iter().for_each(|number| _ = queue.waiting.remove(number));
        if !numbers.is_empty() {
            batch.add_settled(session, numbers.into_iter().map(|number| (number, number)));
        }
    }

    fn retain(&mut self, batch: &mut Batch) {
        self.messages += 1;
        let field = vec![self.messages as u8; self.rng.random_range(0..300)];
        batch.add_retained(self.messages, &field);
        self.since.insert((RETAINED, self.messages, field.clone()));
        self.retained.insert(self.messages, field);
    }

    fn retain_no_more(&mut self, batch: &mut Batch) {
        let numbers: Vec<u64> = match self.rng.random_range(0..10) {
            0..8 => self.retained.keys().filter(|_| self.rng.random_bool(0.2)).copied().collect(),
            8 => self.retained.keys().copied().collect(),
            _ => self.retained.keys().take(1).copied().collect(),
        };
        let ranges: Vec<(u64, u64)> = match (numbers.first(), numbers.last()) {
            (Some(first), Some(last)) if self.rng.random_bool(0.3) => vec![(*first, *last)],
            _ => numbers.into_iter().map(|number| (number, number)).collect(),
        };
        self.retained.retain(|number, _| ranges.iter().all(|(first, last)| number < first || number > last));
        batch.add_not_retained(ranges);
    }

    fn commit(&mut self) {
        self.store.commit().unwrap();
        self.committed();
    }

    fn committed(&mut self) {
        self.committed.clone_from(&self.now);
        self.retained_before.clone_from(&self.retained);
        self.since.clear();
        self.appended.clear();
    }

    /// The queues of sessions, and those that may be appended to them.
    fn queues(&self) -> Vec<u64> {
        (0..SESSIONS).chain(self.incoming.iter().copied()).collect()
    }

    fn maintain(&mut self) {
        while self.store.maintain().unwrap() && self.rng.random_bool(0.9) {}
    }

    /// The accounts of queues and segments agree, and every segment that is needed is there.
    fn audit(&self) {
        self.store.queues.audit();
        let bases: Vec<u64> = self.store.log.segments().map(|(base, ..)| base).collect();
        for (base, usage) in self.store.queues.usage() {
            assert!(usage.live == 0 || bases.contains(&base), "segment {base} is gone");
        }
    }

    /// Opens the store again, after a loss of power or not. What the store has then is what counts.
    fn reopen(&mut self, loses_power: bool) -> Recovered {
        if loses_power {
            self.disk.lose_power(&mut self.rng);
        }
        let (store, recovered) = Store::open(self.disk.clone(), self.index.clone(), SETTINGS).unwrap();
        self.store = store;
        recovered
    }

    /// What a session's queue has.
    fn read(&mut self, session: u64) -> BTreeMap<u64, Vec<u8>> {
        let (mut found, mut from) = (BTreeMap::new(), 0);
        loop {
            let bytes = self.rng.random_range(1..3_000);
            let read = self.store.read(session, from, bytes).unwrap();
            assert!(read.damage.is_empty(), "{:?}", read.damage);
            for message in read.messages {
                assert_eq!(message.options, [1]);
                assert!(message.number >= from && found.insert(message.number, message.field).is_none());
            }
            if read.is_all {
                return found;
            }
            from = read.next;
        }
    }

    /// The retained messages.
    fn read_retained(&mut self) -> BTreeMap<u64, Vec<u8>> {
        let (mut found, mut last) = (BTreeMap::new(), 0);
        let damage = self.store.read_retained(|number, field| {
            assert!(number > last, "in the order of numbers");
            last = number;
            found.insert(number, field);
        });
        assert!(damage.unwrap().is_empty());
        assert_eq!(self.store.retained(), found.len());
        found
    }

    /// Everything is there that is to be there, and nothing else.
    fn check(&mut self) {
        assert_eq!(self.read_retained(), self.retained);
        for session in self.queues() {
            let found = self.read(session);
            let queue = self.now.get(&session).cloned().unwrap_or_default();
            assert_eq!(found, queue.waiting, "session {session}");
            let state = self.store.state(session).map(|state| (state.next, state.live));
            let expected = self.now.get(&session).map(|queue| (queue.next, queue.waiting.len() as u64));
            assert_eq!(state.filter(|_| expected.is_some()), expected);
        }
    }

    /// After a loss of power: what was committed and not settled since is there; what is there was taken in.
    fn check_after_loss(&mut self) {
        let found = self.read_retained();
        for (number, field) in &self.retained_before {
            if self.retained.contains_key(number) {
                assert_eq!(found.get(number), Some(field), "retained message {number} was committed");
            }
        }
        for (number, field) in &found {
            let is_new = self.since.contains(&(RETAINED, *number, field.clone()));
            assert!(is_new || self.retained_before.get(number) == Some(field), "{number} is unknown");
        }
        self.retained = found;
        for AppendedBody { session, queue, base } in std::mem::take(&mut self.appended) {
            let committed = self.committed.get(&queue).cloned().unwrap_or_default();
            let found = [self.read(queue), self.read(session)];
            for (number, field) in committed.waiting {
                let waits = |queue: &Queue| queue.waiting.get(&(base + number)) == Some(&field);
                if self.now.get(&session).is_some_and(waits) {
                    let was_appended = found[1].get(&(base + number)) == Some(&field);
                    let is_found = found[0].get(&number) == Some(&field) || was_appended;
                    assert!(is_found, "queue {queue}: {number} was committed");
                }
            }
        }
        self.incoming = self.store.states().map(|state| state.session).filter(|name| *name > 100).collect();
        for session in self.queues() {
            let found = self.read(session);
            let committed = self.committed.get(&session).cloned().unwrap_or_default();
            let now = self.now.get(&session).cloned().unwrap_or_default();
            for (number, field) in &committed.waiting {
                if now.waiting.get(number) == Some(field) {
                    assert_eq!(found.get(number), Some(field), "session {session}: {number} was committed");
                }
            }
            for (number, field) in &found {
                let is_new = self.since.contains(&(session, *number, field.clone()));
                let is_known = is_new || committed.waiting.get(number) == Some(field);
                assert!(is_known, "session {session}: {number} is unknown, or its end was committed");
            }
            match self.store.state(session) {
                Some(state) => _ = self.now.insert(session, Queue { next: state.next, waiting: found }),
                None => _ = self.now.remove(&session),
            }
        }
        self.committed();
    }
}

#[test]
fn nothing_that_was_committed_is_lost_with_power() {
    for seed in 0..60 {
        let mut bench = Bench::new(seed);
        for step in 0..400 {
            bench.work();
            if bench.rng.random_bool(0.5) {
                bench.commit();
            }
            if bench.rng.random_bool(0.3) {
                bench.maintain();
            }
            bench.audit();
            match bench.rng.random_range(0..40) {
                0 => {
                    let recovered = bench.reopen(true);
                    assert!(recovered.damage.is_empty(), "seed {seed}, step {step}: {recovered:?}");
                    let damage = bench.store.each_record(|_, _, _| {}).unwrap();
                    assert!(damage.is_empty(), "seed {seed}, step {step}: {damage:?}");
                    bench.check_after_loss();
                }
                3 => {
                    let mut steps = 0..1_000;
                    bench.store.compact(&mut |_| steps.next().is_some()).unwrap();
                    assert!(!steps.is_empty(), "seed {seed}: it does not come to an end");
                    bench.committed();
                }
                1 => {
                    bench.commit();
                    bench.check();
                    assert_eq!(bench.reopen(false), Recovered::default());
                    bench.check();
                }
                2 => bench.check(),
                _ => {}
            }
            bench.audit();
        }
    }
}

#[test]
fn space_is_given_back() {
    for seed in 0..4 {
        let mut bench = Bench::new(seed);
        for _ in 0..1_000 {
            bench.work();
            bench.commit();
            let mut steps = 0;
            while bench.store.maintain().unwrap() {
                steps += 1;
                assert!(steps < 100, "it does not come to an end");
            }
        }
        bench.check();
        let waiting = bench.now.values().flat_map(|queue| queue.waiting.values());
        let live: usize = waiting.chain(bench.retained.values()).map(Vec::len).sum();
        let bytes = bench.store.bytes() as usize;
        let slack = (SETTINGS.segment_bytes + SETTINGS.checkpoint_bytes) as usize;
        assert!(bytes <= 3 * live + 3 * slack, "seed {seed}: {bytes} bytes for {live}");
        let (_, blocks) = bench.index.size();
        assert!(blocks <= 40, "{blocks} blocks");
    }
}

#[test]
fn a_compacted_log_is_not_opened_without_its_index() {
    let mut refused = 0;
    for seed in 0..100 {
        let mut bench = Bench::new(seed);
        for _ in 0..50 {
            bench.work();
            bench.commit();
            if bench.rng.random_bool(0.2) {
                bench.maintain();
            }
            let is_compacted = bench.store.log.lacks_records_above(0).unwrap();
            let index = MemoryIndex::default();
            match Store::open(bench.disk.clone(), index.clone(), SETTINGS) {
                Ok((store, recovered)) => {
                    assert!(!is_compacted && recovered.damage.is_empty(), "seed {seed}");
                    (bench.store, bench.index) = (store, index);
                    bench.check();
                }
                Err(error) => {
                    assert!(is_compacted && error.kind() == io::ErrorKind::NotFound, "seed {seed}: {error}");
                    refused += 1;
                    assert_eq!(bench.reopen(false), Recovered::default());
                }
            }
        }
    }
    assert!(refused > 500, "{refused}");
}

#[test]
fn a_compacted_log_with_a_damaged_header_is_not_opened_without_its_index() {
    let mut refused = 0;
    for seed in 0..40 {
        let mut bench = Bench::new(seed);
        while !bench.store.log.lacks_records_above(0).unwrap() || bench.store.log.segments().count() < 3 {
            bench.work();
            bench.commit();
            bench.maintain();
        }
        let count = bench.store.log.segments().count();
        let base = bench.store.log.segments().nth(seed as usize % count).unwrap().0;
        bench.disk.write(&segment::name_of(base), 3, b"?").unwrap();
        bench.reopen(false);
        let opened = Store::open(bench.disk.clone(), MemoryIndex::default(), SETTINGS);
        refused += usize::from(opened.is_err());
        let names: Vec<String> = bench.disk.list().unwrap().into_iter().map(|(name, _)| name).collect();
        assert!(opened.is_err(), "seed {seed}: {names:?}");
    }
    assert_eq!(refused, 40);
}

#[test]
fn a_log_without_a_checkpoint_is_opened_although_headers_are_damaged() {
    for damaged in 0..3 {
        let mut bench = Bench::new(1);
        while bench.store.log.segments().count() < 4 {
            bench.work();
            bench.commit();
        }
        let base = bench.store.log.segments().nth(damaged).unwrap().0;
        bench.disk.write(&segment::name_of(base), 3, b"?").unwrap();
        assert!(!bench.reopen(false).damage.is_empty());
        bench.work();
        bench.commit();
        assert!(!bench.reopen(false).damage.is_empty(), "the second run reports it, too");
    }
}

#[test]
fn a_full_disk_loses_nothing_and_recovers() {
    for seed in 0..30 {
        let mut bench = Bench::new(seed);
        let mut failures = 0;
        for _ in 0..200 {
            bench.work();
            let space = bench.store.bytes() as usize + bench.rng.random_range(0..1_500);
            bench.disk.set_space(bench.rng.random_bool(0.3).then_some(space));
            match bench.store.commit() {
                Ok(()) => bench.committed(),
                Err(Failure::Unwritten(_)) => failures += 1,
                Err(Failure::Fatal(error)) => panic!("{error}"),
            }
            if bench.rng.random_bool(0.2) {
                bench.check(); // Also what is not written yet can be read.
            }
            if bench.rng.random_bool(0.05) {
                bench.disk.set_space(None);
                let recovered = bench.reopen(true);
                assert!(recovered.damage.is_empty(), "seed {seed}: {recovered:?}");
                bench.check_after_loss();
            }
        }
        bench.disk.set_space(None);
        bench.commit();
        bench.check();
        assert!(failures > 10, "{failures}");
    }
}

#[test]
fn a_failed_sync_is_fatal() {
    let mut bench = Bench::new(1);
    bench.work();
    bench.disk.fail_to_sync(true);
    assert!(matches!(bench.store.commit(), Err(Failure::Fatal(_))));
    assert!(bench.reopen(true).damage.is_empty());
    assert_eq!(bench.store.states().count(), 0);
}

#[test]
fn what_a_failed_sync_has_left_is_written_again() {
    for seed in 0..50 {
        let mut bench = Bench::new(seed);
        bench.work();
        bench.commit();
        bench.disk.fail_to_sync(true);
        bench.work();
        assert!(matches!(bench.store.commit(), Err(Failure::Fatal(_))));
        bench.disk.fail_to_sync(false);
        // The process starts again, and finds in the memory of the system what is on no disk.
        assert!(bench.reopen(false).damage.is_empty());
        bench.commit();
        bench.work();
        bench.commit();
        assert!(bench.reopen(true).damage.is_empty(), "seed {seed}");
        bench.check();
    }
}

/// After an orderly end everything was promised but for the mark that says so.
#[test]
fn after_an_orderly_end_a_flipped_bit_is_no_torn_end() {
    let mut mark = Batch::default();
    mark.add_synced(1);
    for seed in 0..100 {
        let mut bench = Bench::new(seed);
        let open =
            |bench: &Bench| Store::open(bench.disk.clone(), bench.index.clone(), Settings::DEFAULT).unwrap();
        bench.store = open(&bench).0;
        bench.work();
        bench.commit();
        bench.store.end().unwrap();
        assert_eq!(bench.store.checkpoint, 0, "it has little");
        bench.disk.flip(&mut bench.rng).unwrap();
        let (_, Recovered { damage, cut }) = open(&bench);
        let is_mark = damage.is_empty() && cut == mark.bytes().len() as u64;
        assert!(cut == 0 || is_mark, "seed {seed}: {cut} bytes are cut off, {damage:?}");
    }
}

#[test]
fn flipped_bits_are_reported_and_never_served() {
    let (mut reports, mut served) = (0, 0);
    for seed in 0..200 {
        let mut bench = Bench::new(seed);
        for _ in 0..60 {
            bench.work();
            bench.commit();
            if bench.rng.random_bool(0.2) {
                bench.maintain();
            }
        }
        bench.disk.flip(&mut bench.rng).unwrap();
        let Recovered { damage, cut } = bench.reopen(false);
        let mut damage: BTreeSet<u64> = damage.iter().map(|damage| damage.from).collect();
        let read = bench.store.read_retained(|number, field| {
            served += 1;
            assert!(bench.retained.get(&number).is_none_or(|known| *known == field), "seed {seed}");
        });
        damage.extend(read.unwrap().iter().map(|damage| damage.from));
        for session in bench.queues() {
            let (mut from, before) = (0, bench.now.get(&session).cloned().unwrap_or_default());
            loop {
                let read = bench.store.read(session, from, 500).unwrap();
                damage.extend(read.damage.iter().map(|damage| damage.from));
                served += read.messages.len();
                for message in read.messages {
                    let expected = before.waiting.get(&message.number);
                    // A flipped bit may have hit the record by which it was settled, or by which its queue ended.
                    let may_be_old = cut > 0;
                    assert!(
                        may_be_old || expected.is_none_or(|field| *field == message.field),
                        "seed {seed}"
                    );
                }
                if read.is_all {
                    break;
                }
                from = read.next;
            }
        }
        reports += damage.len();
        bench.work();
        bench.store.commit().unwrap();
        let steps = (0..1_000).take_while(|_| bench.store.maintain().unwrap()).count();
        assert!(steps < 1_000, "seed {seed}: a damaged segment is rewritten again and again");
    }
    assert!(reports > 50 && served > 2_000, "{reports} reports, {served} messages");
}

#[test]
fn messages_that_the_disk_cannot_read_now_are_there_when_it_can() {
    let disk = FaultDisk::default();
    let open = || Store::open(disk.clone(), MemoryIndex::default(), Settings::DEFAULT).unwrap().0;
    let mut store = open();
    for number in 1..=3 {
        let mut batch = Batch::default();
        batch.add_target(Target { session: 7, number, options: &[1] });
        batch.add_message(u64::MAX, b"field");
        store.apply(batch.bytes());
    }
    let mut batch = Batch::default();
    batch.add_retained(1, b"kept");
    store.apply(batch.bytes());
    store.commit().unwrap();
    let mut store = open();
    let too_many_files = 24; // EMFILE
    disk.set_read_error(Some(too_many_files));
    assert!(store.read(7, 0, 1_000).is_err());
    disk.set_read_error(Some(EIO));
    let unread = store.read(7, 0, 1_000).unwrap();
    assert_eq!((unread.messages.len(), unread.damage.len(), unread.next, unread.is_all), (0, 3, 4, true));
    assert_eq!(store.read_retained(|_, _| panic!("it cannot be read")).unwrap().len(), 1);
    disk.set_read_error(None);
    assert_eq!(store.read(7, 0, 1_000).unwrap().messages.len(), 3);
    let mut found = Vec::new();
    assert!(store.read_retained(|number, field| found.push((number, field))).unwrap().is_empty());
    assert_eq!(found, [(1, b"kept".to_vec())]);
}
