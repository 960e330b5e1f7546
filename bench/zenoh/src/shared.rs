//! The state of the load, which several threads use: Zenoh's threads, which deliver received messages, and
//! one thread that publishes for all publishers.
//!
//! The publishing thread holds no lock during `put`: `put` may block until the router takes more, and
//! receiving must go on in the meantime.

use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::bench::Nanos;
use crate::bench::load::{Counts, Load, Plan, Times};

/// The maximum number of messages of one publisher in a batch.
const BATCH: u64 = 128;
/// The longest wait before the publishing thread checks again whether the load has stalled.
const GLANCE: Duration = Duration::from_millis(50);

/// A load that several threads use.
pub struct Shared {
    began: Instant,
    state: Mutex<State>,
    room: Condvar,
}

struct State {
    load: Load,
    is_waiting: bool,
    is_over: bool,
}

/// Messages to publish: the publisher's number and the payload of each.
pub type Batch = Vec<(usize, Vec<u8>)>;

impl Shared {
    pub fn new(plan: Plan) -> Self {
        let state = State { load: Load::new(plan), is_waiting: false, is_over: false };
        Self { began: Instant::now(), state: Mutex::new(state), room: Condvar::new() }
    }

    /// Publishers may send from now on.
    pub fn start(&self) {
        let mut state = self.lock();
        state.load.start(self.now());
        self.wake(&mut state);
    }

    /// Discards the times measured so far.
    pub fn forget_times(&self) {
        self.lock().load.forget_times();
    }

    /// Ends the publishing. Messages that are under way still count when they arrive.
    pub fn stop(&self) {
        let mut state = self.lock();
        state.load.stop();
        state.is_over = true;
        self.wake(&mut state);
    }

    /// The counts of all publishers up to now.
    pub fn counts(&self) -> Counts {
        self.lock().load.counts().iter().sum()
    }

    /// The latency of the messages, and how late they were published, in ns.
    pub fn times(&self) -> Times {
        Times::merged(self.lock().load.times())
    }

    /// Counts a message that a subscriber to these publishers received.
    pub fn receive(&self, subscriber: usize, publishers: Range<usize>, payload: &[u8]) {
        let now = self.now();
        let mut state = self.lock();
        state.load.note_received(subscriber, payload, now);
        if state.is_waiting && publishers.into_iter().any(|one| state.load.may_send(one, now) > 0) {
            self.wake(&mut state);
        }
    }

    /// Waits until messages may be sent, adds them to `batch`, and counts them as sent. False: the load has
    /// ended.
    pub fn next_batch(&self, batch: &mut Batch) -> bool {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return false;
            }
            let now = self.now();
            state.load.look(now);
            take_due(&mut state.load, now, batch);
            if !batch.is_empty() {
                return true;
            }
            let pause =
                state.load.next_due().map_or(GLANCE, |due| Duration::from_nanos(due.saturating_sub(now)));
            state.is_waiting = true;
            let waited = self.room.wait_timeout(state, pause.min(GLANCE));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.is_waiting = false;
        }
    }

    fn wake(&self, state: &mut State) {
        if state.is_waiting {
            state.is_waiting = false;
            self.room.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Nanos {
        self.began.elapsed().as_nanos() as Nanos
    }
}

fn take_due(load: &mut Load, now: Nanos, batch: &mut Batch) {
    for stream in 0..load.plan().publishers() {
        for _ in 0..load.may_send(stream, now).min(BATCH) {
            batch.push((stream, load.next_payload(stream, now).to_vec()));
            load.note_sent(stream, now);
        }
    }
}
