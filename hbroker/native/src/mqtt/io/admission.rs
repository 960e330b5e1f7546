//! How many connections a listener has, and how fast new ones come.
//!
//! One that is over a limit is let in for as long as it takes to tell it so (MQTT names a code for each case), and those that are
//! being told are few: beyond that a connection is closed without a word, and what comes faster waits in the kernel.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::Micros;
use crate::engine::rate::RateLimit;

/// Connections that are being told of their refusal, at once.
const REFUSING: usize = 256;

/// What a listener takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub connections: usize,
    /// New ones a second; 0: any number.
    pub connect_rate: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 1_000_000, connect_rate: 0 }
    }
}

/// Whether a connection may stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    Welcome,
    /// There are as many as may be.
    Full,
    /// They come faster than they may.
    TooFast,
}

/// Where the connections of a listener are counted.
#[derive(Debug)]
pub struct Gate {
    open: AtomicUsize,
    refusing: AtomicUsize,
    limits: Mutex<(Limits, RateLimit)>,
}

impl Gate {
    pub fn new(limits: Limits) -> Self {
        Self { open: AtomicUsize::new(0), refusing: AtomicUsize::new(0), limits: Mutex::new(metered(limits)) }
    }

    /// Whoever is inside stays, also where there are now too many.
    pub fn set_limits(&self, limits: Limits) {
        *self.limits.lock() = metered(limits);
    }

    /// Connections that were welcome, and are there.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Counts a connection in; `None`: it is to be closed without a word.
    pub fn admit(self: &Arc<Self>, now: Micros) -> Option<Pass> {
        // Until it is counted nobody else is judged, or two would have the last place.
        let (limits, rate) = &mut *self.limits.lock();
        let admission = self.judge(*limits, rate, now);
        let (count, most) = match admission {
            Admission::Welcome => (&self.open, usize::MAX),
            Admission::Full | Admission::TooFast => (&self.refusing, REFUSING),
        };
        if count.fetch_add(1, Ordering::Relaxed) >= most {
            count.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Pass { gate: Arc::clone(self), admission })
    }

    fn judge(&self, limits: Limits, rate: &mut RateLimit, now: Micros) -> Admission {
        if self.open() >= limits.connections {
            Admission::Full
        } else if limits.connect_rate > 0 && !rate.take(now) {
            Admission::TooFast
        } else {
            Admission::Welcome
        }
    }
}

/// A second's worth may come at once.
fn metered(limits: Limits) -> (Limits, RateLimit) {
    (limits, RateLimit::new(limits.connect_rate, limits.connect_rate))
}

/// Counts its connection out when it is dropped.
#[derive(Debug)]
pub struct Pass {
    gate: Arc<Gate>,
    admission: Admission,
}

impl Pass {
    pub fn admission(&self) -> Admission {
        self.admission
    }

    pub fn is_welcome(&self) -> bool {
        self.admission == Admission::Welcome
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let count = match self.admission {
            Admission::Welcome => &self.gate.open,
            Admission::Full | Admission::TooFast => &self.gate.refusing,
        };
        count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_house_tells_a_few_and_then_nobody() {
        let gate = Arc::new(Gate::new(Limits { connections: 3, connect_rate: 0 }));
        let mut inside: Vec<Pass> = (0..3).map(|_| gate.admit(0).unwrap()).collect();
        assert!(inside.iter().all(|pass| pass.admission() == Admission::Welcome));
        let told: Vec<Pass> = (0..10_000).map_while(|_| gate.admit(0)).collect();
        assert_eq!(told.len(), REFUSING);
        assert!(told.iter().all(|pass| pass.admission() == Admission::Full));
        assert_eq!(gate.open(), 3);
        drop(told);
        inside.pop();
        assert_eq!(gate.admit(0).unwrap().admission(), Admission::Welcome);
    }

    #[test]
    fn a_rate_is_kept_and_changed() {
        let gate = Arc::new(Gate::new(Limits { connections: 100, connect_rate: 2 }));
        let admitted = |now| gate.admit(now).unwrap().admission();
        assert_eq!([admitted(0), admitted(0), admitted(0)][2], Admission::TooFast);
        assert_eq!(admitted(500_000), Admission::Welcome);
        gate.set_limits(Limits { connections: 100, connect_rate: 0 });
        assert!((0..50).all(|_| admitted(500_000) == Admission::Welcome));
    }
}
