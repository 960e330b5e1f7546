//! The state that the workers of an endpoint share: the clock, the reader's signal, the order to stop, and
//! how workers ended.

use std::io;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::endpoint::clock::Clock;
use crate::endpoint::waker::OutputSignal;

/// The state that the workers of an endpoint share.
pub struct EndpointState {
    pub clock: Clock,
    pub output: OutputSignal,
    /// The workers must end.
    pub stop: AtomicBool,
    state: Mutex<RunState>,
    ended: Condvar,
}

struct RunState {
    running: usize,
    fault: Option<String>,
}

impl EndpointState {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            clock: Clock::start(),
            output: OutputSignal::new()?,
            stop: AtomicBool::new(false),
            state: Mutex::new(RunState { running: 0, fault: None }),
            ended: Condvar::new(),
        })
    }

    /// Why a worker ended unexpectedly. From then on output is signalled, so that the reader looks.
    pub fn fault(&self) -> Option<String> {
        self.state.lock().fault.clone()
    }

    /// Waits until every worker has ended. False: the deadline has passed.
    pub fn wait_ended(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        while state.running > 0 {
            if self.ended.wait_until(&mut state, deadline).timed_out() {
                return state.running == 0;
            }
        }
        true
    }

    /// Reports why a worker ended. Only the first report is kept.
    pub fn fail(&self, fault: String) {
        let mut state = self.state.lock();
        if state.fault.is_none() {
            state.fault = Some(fault);
            self.output.light();
        }
    }

    /// Counts a worker that is about to run.
    pub fn begin_one(&self) {
        self.state.lock().running += 1;
    }

    /// A worker has ended, or could not be started.
    pub fn end_one(&self) {
        self.state.lock().running -= 1;
        self.ended.notify_all();
    }
}
