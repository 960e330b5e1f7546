//! Limits how many connections a listener has, and how fast new ones may come.
//!
//! A connection over a limit is kept only until the client has received a refusal, because MQTT has a reason
//! code for each limit. Only a few connections are in this state at once; beyond that a connection is closed
//! without an answer. Connections that arrive faster than they are accepted wait in the kernel.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::Micros;
use crate::engine::transport::token_bucket::RateLimit;
use crate::host_counts::{Bounds, Full, HostCounts};
use crate::prefix::Prefix;

/// How many connections may wait for their refusal at once.
const REFUSING: usize = 256;

/// The limits of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub connections: usize,
    /// The limit for one host.
    pub of_host: usize,
    /// New connections a second; 0: any number.
    pub connect_rate: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 1_000_000, of_host: 1_000_000, connect_rate: 0 }
    }
}

/// Whether a connection is within the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    Welcome,
    /// The listener has reached its limit.
    Full,
    /// The host has reached its limit.
    HostFull,
    /// New connections arrive faster than the limit.
    TooFast,
}

/// Counts the connections of a listener.
#[derive(Debug)]
pub struct ConnectionLimiter {
    open: HostCounts,
    refusing: AtomicUsize,
    limits: Mutex<(Limits, RateLimit)>,
}

impl ConnectionLimiter {
    pub fn new(limits: Limits) -> Self {
        Self {
            open: HostCounts::new(bounds(limits), RandomState::new().build_hasher().finish()),
            refusing: AtomicUsize::new(0),
            limits: Mutex::new(metered(limits)),
        }
    }

    /// Sets the limits. Open connections stay, even if they are more than the new limits allow.
    pub fn set_limits(&self, limits: Limits) {
        *self.limits.lock() = metered(limits);
        self.open.set_bounds(bounds(limits));
    }

    /// How many connections are admitted and open.
    #[cfg(test)]
    pub fn open(&self) -> usize {
        self.open.all()
    }

    /// Admits a connection from this address, or admits it to be refused; `None`: it must be closed without
    /// an answer.
    pub fn admit(self: &Arc<Self>, now: Micros, client: IpAddr) -> Option<ConnectionPermit> {
        let host = client.into();
        let admission = self.judge(now, host);
        if admission != Admission::Welcome && self.refusing.fetch_add(1, Ordering::Relaxed) >= REFUSING {
            self.refusing.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(ConnectionPermit { limiter: Arc::clone(self), admission, host })
    }

    /// Checks the limits, and counts the connection if it is within them.
    fn judge(&self, now: Micros, host: Prefix) -> Admission {
        match self.open.enter(Some(host), true) {
            Err(Full::All) => return Admission::Full,
            Err(Full::Host) => return Admission::HostFull,
            Ok(()) => {}
        }
        let (limits, rate) = &mut *self.limits.lock();
        if limits.connect_rate == 0 || rate.take(now) {
            return Admission::Welcome;
        }
        self.open.leave(Some(host));
        Admission::TooFast
    }
}

fn bounds(limits: Limits) -> Bounds {
    Bounds { all: limits.connections, of_host: limits.of_host }
}

/// The bursts of the rate limit are those of one second.
fn metered(limits: Limits) -> (Limits, RateLimit) {
    (limits, RateLimit::new(limits.connect_rate, limits.connect_rate))
}

/// Counts its connection as closed when it is dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    limiter: Arc<ConnectionLimiter>,
    admission: Admission,
    host: Prefix,
}

impl ConnectionPermit {
    pub fn admission(&self) -> Admission {
        self.admission
    }

    pub fn is_welcome(&self) -> bool {
        self.admission == Admission::Welcome
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        if self.is_welcome() {
            self.limiter.open.leave(Some(self.host));
        } else {
            self.limiter.refusing.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn limits(connections: usize, of_host: usize, connect_rate: u32) -> Limits {
        Limits { connections, of_host, connect_rate }
    }

    #[test]
    fn a_host_has_its_bound_and_others_are_welcome() {
        let limiter = Arc::new(ConnectionLimiter::new(limits(4, 2, 0)));
        let admit = |last| limiter.admit(0, [192, 0, 2, last].into()).unwrap();
        let mut inside = vec![admit(1), admit(1), admit(2)];
        assert_eq!(admit(1).admission(), Admission::HostFull);
        inside.push(admit(3));
        assert_eq!(admit(1).admission(), Admission::Full);
        inside.remove(0);
        inside.push(admit(1));
        assert!(inside.iter().all(ConnectionPermit::is_welcome) && limiter.open() == 4);
        limiter.set_limits(limits(10, 1, 0));
        assert_eq!((admit(2).admission(), admit(4).admission()), (Admission::HostFull, Admission::Welcome));
        drop(inside);
        assert_eq!(limiter.open(), 0);
    }

    #[test]
    fn a_rate_is_kept_and_changed() {
        let limiter = Arc::new(ConnectionLimiter::new(limits(100, 100, 2)));
        let admitted = |now| limiter.admit(now, CLIENT).unwrap().admission();
        assert_eq!([admitted(0), admitted(0), admitted(0)][2], Admission::TooFast);
        assert_eq!(admitted(500_000), Admission::Welcome);
        limiter.set_limits(limits(100, 100, 0));
        assert!((0..50).all(|_| admitted(500_000) == Admission::Welcome));
    }
}
