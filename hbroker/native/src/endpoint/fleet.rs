//! What the workers of an endpoint have in common: a clock, the reader's signal, the order to stop, and word of their end.

use std::io;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Condvar, Mutex};

use crate::Micros;
use crate::endpoint::waker::OutputSignal;

/// A monotonic clock, the same for all workers of an endpoint: microseconds since the Unix epoch by the system's clock as it
/// was at the start, so that nodes agree on the age of tokens (§4.2) and epochs rise across restarts (§5.1).
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    started: Micros,
}

impl Clock {
    pub fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self {
            origin: Instant::now(),
            started: since_epoch.map_or(0, micros),
        }
    }

    pub fn now(&self) -> Micros {
        self.started + micros(self.origin.elapsed())
    }
}

fn micros(duration: Duration) -> Micros {
    Micros::try_from(duration.as_micros()).unwrap_or(Micros::MAX)
}

/// What the workers of an endpoint have in common.
pub struct Fleet {
    pub clock: Clock,
    pub output: OutputSignal,
    /// The workers are to end.
    pub stop: AtomicBool,
    state: Mutex<FleetState>,
    ended: Condvar,
}

struct FleetState {
    running: usize,
    fault: Option<String>,
}

impl Fleet {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            clock: Clock::start(),
            output: OutputSignal::new()?,
            stop: AtomicBool::new(false),
            state: Mutex::new(FleetState {
                running: 0,
                fault: None,
            }),
            ended: Condvar::new(),
        })
    }

    /// Why a worker ended that should not have. Output is signalled from then on, so that the reader looks.
    pub fn fault(&self) -> Option<String> {
        self.state.lock().fault.clone()
    }

    /// Waits until every worker has ended. False: the deadline came first.
    pub fn wait_ended(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        while state.running > 0 {
            if self.ended.wait_until(&mut state, deadline).timed_out() {
                return state.running == 0;
            }
        }
        true
    }

    /// Reports why a worker ended; the first report counts.
    pub fn fail(&self, fault: String) {
        let mut state = self.state.lock();
        if state.fault.is_none() {
            state.fault = Some(fault);
            self.output.light();
        }
    }

    /// One more worker is about to run; it counts itself out.
    pub fn begin_one(&self) {
        self.state.lock().running += 1;
    }

    /// A worker has ended, or could not be started.
    pub fn end_one(&self) {
        self.state.lock().running -= 1;
        self.ended.notify_all();
    }
}
