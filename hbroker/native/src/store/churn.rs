//! Measurements of stores through which many more messages pass than they ever have at one time: whether they give their
//! space back, how much they write for that, and whether the head of a queue is read as fast as that of a new one:
//! `cargo test --release -p hbroker-native churn -- --ignored --nocapture`

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::store::disk::Folder;
use crate::store::index::LsmIndex;
use crate::store::record::{Batch, Target};
use crate::store::{Settings, Store};

const SESSIONS: u64 = 1_000;
const MESSAGES: u64 = 100_000_000;
const SETTLED: u64 = 10_000_000;
/// As long as a message of 64 bytes with its topic and its publisher.
const FIELD: [u8; 110] = [7; 110];
/// After so many messages the store is looked at.
const INTERVAL: u64 = 5_000_000;
/// After so many messages one session comes back.
const RETURN: u64 = 2_000;
/// So much is given to the store at once.
const BATCH: usize = 1 << 20;
/// How much is read at once.
const READ: usize = 128 << 10;

/// A session that is away.
#[derive(Clone, Copy, Default)]
struct Away {
    /// The number of the last message in its queue.
    last: u64,
    /// All messages up to this number are settled.
    settled: u64,
}

fn bytes_in(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| match entry.metadata().unwrap() {
            data if data.is_dir() => bytes_in(&entry.path()),
            data => data.len(),
        })
        .sum()
}

/// What this process has written so far, with all that was only written to the system's memory.
fn written() -> u64 {
    let counters = fs::read_to_string("/proc/self/io").unwrap();
    let line = counters.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap();
    line.parse().unwrap()
}

/// Sessions come back for all that waits, for a part of it, or end. Some stay away for long.
#[test]
#[ignore = "a measurement: minutes, and gigabytes of disk"]
fn a_store_is_at_most_three_times_what_waits() {
    let folder = new_folder("churn");
    let mut store = open(&folder);
    let mut rng = SmallRng::seed_from_u64(1);
    let mut away = vec![Away::default(); SESSIONS as usize];
    let (mut batch, before, mut worst) = (Batch::default(), written(), 0.0f64);
    for count in 1..=MESSAGES {
        let session = rng.random_range(0..SESSIONS);
        let Away { last, .. } = &mut away[session as usize];
        *last += 1;
        batch.add_target(Target { session, number: *last, options: &[1] });
        batch.add_message(u64::MAX, &FIELD);
        if count % RETURN == 0 {
            // One session in twenty is seldom back.
            let back = rng.random_range(
                0..SESSIONS / 20 * 19 + u64::from(count % (50 * RETURN) == 0) * (SESSIONS / 20),
            );
            come_back(&mut store, &mut batch, &mut rng, back, &mut away[back as usize]);
        }
        if batch.bytes().len() >= BATCH {
            flush(&mut store, &mut batch);
        }
        if count % INTERVAL == 0 {
            let live: u64 = store.states().map(|state| state.live).sum();
            // A record has the field, 9 bytes before it, and 21 of its own.
            let (needed, bytes) = (live * (FIELD.len() as u64 + 30), bytes_in(&folder));
            let (ratio, amplification) = (
                bytes as f64 / needed as f64,
                (written() - before) as f64 / (count * (FIELD.len() as u64 + 30)) as f64,
            );
            println!(
                "{count} messages, {live} wait: {bytes} bytes on disk, {ratio:.2} of what waits; {amplification:.2} bytes written for each"
            );
            worst = worst.max(ratio);
        }
    }
    drop(store);
    fs::remove_dir_all(&folder).unwrap();
    assert!(worst <= 3.0, "{worst:.2}");
}

/// One session has received ten million messages, the other none.
#[test]
#[ignore = "a measurement: half a minute, and two gigabytes of disk"]
fn a_head_behind_ten_million_settled_messages_is_read_as_fast_as_that_of_a_new_queue() {
    let folder = new_folder("heads");
    let mut store = open(&folder);
    let mut batch = Batch::default();
    // The third pushes the blocks of both out of the memory of the index.
    for (session, count) in [(1, SETTLED + 1_000), (2, 1_000), (3, SETTLED / 2)] {
        for number in 1..=count {
            batch.add_target(Target { session, number, options: &[1] });
            batch.add_message(u64::MAX, &FIELD);
            if batch.bytes().len() >= BATCH {
                flush(&mut store, &mut batch);
            }
        }
    }
    for first in (1..=SETTLED).step_by(1_000) {
        batch.add_settled(1, [(first, first + 999)]);
        flush(&mut store, &mut batch);
    }
    store.make_checkpoint().unwrap();
    drop(store);
    // As the first read after a start, and as a later one.
    let (mut first, mut later) = ([const { Vec::new() }; 3], [const { Vec::new() }; 3]);
    for round in 0..42 {
        let mut store = open(&folder);
        for turn in 0..20 {
            for at in (0..3).map(|at| (at + round) % 3) {
                let session = at as u64 + 1;
                let head = store.state(session).unwrap().head;
                let began = Instant::now();
                let read = store.read(session, head, 1).unwrap();
                if turn == 0 { &mut first[at] } else { &mut later[at] }.push(began.elapsed());
                assert_eq!(read.messages[0].number, if session == 1 { SETTLED + 1 } else { 1 });
            }
        }
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64() * 1e6
    };
    let [first, later] = [first.each_mut().map(median), later.each_mut().map(median)];
    println!(
        "the head behind {SETTLED} settled messages, of a short new queue, of a long new queue: \
         {first:.0?} us after a start, {later:.1?} us later"
    );
    fs::remove_dir_all(&folder).unwrap();
    assert!(later[0] <= 1.2 * later[2] && first[0] <= 1.2 * first[2], "{first:.1?} us, {later:.1?} us");
}

fn new_folder(name: &str) -> PathBuf {
    let folder = std::env::var_os("CARGO_TARGET_TMPDIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = folder.join(format!("hbroker-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn open(folder: &Path) -> Store<Folder, LsmIndex> {
    let (disk, index) = (Folder::open(&folder.join("log")), LsmIndex::open(&folder.join("index")));
    let settings = Settings { syncs: false, ..Settings::DEFAULT };
    Store::open(disk.unwrap(), index.unwrap(), settings).unwrap().0
}

fn flush(store: &mut Store<Folder, LsmIndex>, batch: &mut Batch) {
    store.apply(batch.bytes());
    batch.clear();
    store.commit().unwrap();
    while store.maintain().unwrap() {}
}

/// A session reads its queue, and has received it, or a part of it.
fn come_back(
    store: &mut Store<Folder, LsmIndex>,
    batch: &mut Batch,
    rng: &mut SmallRng,
    session: u64,
    away: &mut Away,
) {
    flush(store, batch);
    let last = if rng.random_bool(0.8) { away.last } else { (away.settled + away.last) / 2 };
    let mut from = away.settled + 1;
    while from <= last {
        let read = store.read(session, from, READ).unwrap();
        assert!(read.damage.is_empty() && read.messages.first().is_none_or(|first| first.number == from));
        from = read.next;
    }
    if last == away.last && rng.random_bool(0.5) {
        batch.add_ended(session);
        *away = Away::default();
    } else if away.settled < last {
        batch.add_settled(session, [(away.settled + 1, last)]);
        away.settled = last;
    }
}
