//! For how long each verb holds the lock, with a million retained messages, while another thread publishes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};

use super::*;

const TOPICS: u64 = 1_000_000;

/// What this thread has worked: what others do meanwhile does not count.
fn worked() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The holds of one verb.
#[derive(Default)]
struct Holds(Vec<Duration>);

impl Holds {
    fn hold<R>(&mut self, store: &Mutex<RetainedStore>, act: impl FnOnce(&mut RetainedStore) -> R) -> R {
        let mut held = store.lock();
        let start = worked();
        let result = act(&mut held);
        let freed = held.take_freed();
        self.0.push(worked() - start);
        drop((held, freed));
        result
    }

    fn print(mut self, what: &str) {
        self.0.sort();
        let (longest, usual) = (self.0[self.0.len() - 1], self.0[self.0.len() / 2]);
        println!("{what:24} {:7} holds, half of them {usual:?}, the longest {longest:?}", self.0.len());
        assert!(longest < Duration::from_millis(1), "{what}");
    }
}

fn read_all(store: &Mutex<RetainedStore>, what: &str, wanted: Wanted<'_>) {
    let (mut holds, mut next, mut found) = (Holds::default(), Some(wanted.first()), 0);
    while let Some(place) = next {
        let batch = holds.hold(store, |store| store.read(wanted, u64::MAX, &place));
        found += batch.pieces.len();
        next = batch.rest;
    }
    holds.print(&format!("{what}: {found}"));
}

fn tidy_all(store: &Mutex<RetainedStore>, what: &str) {
    let mut holds = Holds::default();
    while holds.hold(store, RetainedStore::tidy) {}
    holds.print(what);
}

#[test]
#[ignore = "a measurement"]
fn retained_time() {
    let store = Arc::new(Mutex::new(RetainedStore::new(usize::MAX, 1)));
    let mut holds = Holds::default();
    for number in 0..TOPICS {
        let topic = match number % 2 {
            0 => format!("home/{}/{number}", number % 1_000),
            _ => format!("{number}/state"),
        };
        let expires = if number % 4 < 2 { 1_000 } else { Micros::MAX };
        let message = RetainedFragment { expires, ..whole(&topic, &[1; 100], number + 1) };
        holds.hold(&store, |store| store.offer(message));
    }
    holds.print("offer");
    let is_over = Arc::new(AtomicBool::new(false));
    let publisher = {
        let (store, is_over) = (Arc::clone(&store), Arc::clone(&is_over));
        std::thread::spawn(move || {
            let (mut holds, mut number) = (Holds::default(), TOPICS);
            while !is_over.load(Ordering::Relaxed) {
                number += 1;
                let topic = format!("other/{}", number % 100_000);
                holds.hold(&store, |store| store.offer(whole(&topic, &[1; 100], number)));
            }
            holds.print("offer, meanwhile");
        })
    };
    read_all(&store, "#", Wanted::Filter("#"));
    read_all(&store, "+/x/#", Wanted::Filter("+/x/#"));
    read_all(&store, "home/+/4712", Wanted::Filter("home/+/4712"));
    read_all(&store, "export", Wanted::Region("home".into()));
    store.lock().set_time(1_000);
    tidy_all(&store, "expiry of half");
    let mut holds = Holds::default();
    for (from, to) in ranges("home".into()) {
        holds.hold(&store, |store| store.drop_range(&from, to.as_deref()));
    }
    holds.print("drop");
    tidy_all(&store, "freeing of the rest");
    is_over.store(true, Ordering::Relaxed);
    publisher.join().expect("it ends");
    assert!(store.lock().len() <= 350_000);
}
