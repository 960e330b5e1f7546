//! What carries datagrams from host to host, and time on.

use std::cmp::Reverse;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rand::Rng;

use super::Network;
use crate::Micros;
use crate::core::Datagrams;
use crate::engine::Engine;

/// What the network does to a datagram.
#[derive(Clone, Copy, Default)]
pub struct Faults {
    pub loss: f64,
    pub duplication: f64,
    pub jitter: Micros,
}

impl Faults {
    pub const HEAVY: Self = Self { loss: 0.2, duplication: 0.1, jitter: 3_000 };
}

/// When a datagram arrives, its number, the host that it goes to, its source, and itself.
pub type OnItsWay = (Micros, u64, usize, SocketAddr, Vec<u8>);

/// A client says that it is another publisher, in so many of each hundred messages.
#[derive(Clone, Copy)]
pub struct Forgery {
    pub own: u64,
    pub other: u64,
    pub percent: u32,
}

impl Network {
    /// Lets time pass until something happens, but no later than `until`.
    pub(super) fn step(&mut self, until: Micros) {
        self.settle();
        if self.carried.is_multiple_of(16) {
            self.audit();
        }
        let arrival = self.on_its_way.peek().map(|Reverse((at, ..))| *at);
        let due = self.engines().filter_map(Engine::poll_timeout).min();
        self.now = arrival.into_iter().chain(due).min().unwrap_or(until).clamp(self.now, until);
        while let Some(Reverse((at, ..))) = self.on_its_way.peek()
            && *at <= self.now
            && let Some(Reverse((_, _, host, source, datagram))) = self.on_its_way.pop()
        {
            let start = self.timed.filter(|&timed| timed == host).map(|_| Instant::now());
            let host = &mut self.hosts[host];
            // As the kernel does: the source decides which worker's socket gets it.
            let worker = usize::from(source.port()) % host.engines.len();
            host.engines[worker].handle_datagram(self.now, source, &datagram);
            self.spent += start.map_or(Duration::ZERO, |start| start.elapsed());
        }
        for host in &mut self.hosts {
            host.engines.iter_mut().for_each(|engine| engine.handle_timeout(self.now));
        }
    }

    fn forge(&mut self, forgery: &Forgery, datagram: &mut [u8]) {
        let (own, other) = (forgery.own.to_le_bytes(), forgery.other.to_le_bytes());
        for at in 0..datagram.len().saturating_sub(own.len() - 1) {
            let id = &mut datagram[at..at + own.len()];
            if id == own && self.rng.random_ratio(forgery.percent, 100) {
                id.copy_from_slice(&other);
            }
        }
    }

    /// Puts on its way what a host has to send.
    pub(super) fn transmit(&mut self, index: usize) {
        let source = self.hosts[index].address;
        let mut out = Datagrams::default();
        let start = self.timed.filter(|&timed| timed == index).map(|_| Instant::now());
        for engine in &mut self.hosts[index].engines {
            engine.poll_transmit(self.now, &mut out);
            engine.note_departure(|| self.now);
        }
        self.spent += start.map_or(Duration::ZERO, |start| start.elapsed());
        for (destination, mut datagram) in out.sent {
            if let Some((_, forgery)) = self.forgery.filter(|(host, _)| *host == index) {
                self.forge(&forgery, &mut datagram);
            }
            assert!(datagram.len() <= self.hosts[index].engines[0].config.max_datagram);
            let Some(to) = self.hosts.iter().position(|host| host.address == destination) else {
                continue;
            };
            let is_cut =
                self.parted.is_some_and(|(one, other)| [(one, other), (other, one)].contains(&(index, to)));
            if is_cut || self.rng.random_bool(self.faults.loss) {
                continue;
            }
            for _ in 0..1 + u8::from(self.rng.random_bool(self.faults.duplication)) {
                let arrives = self.now + 500 + self.rng.random_range(0..=self.faults.jitter);
                self.carried += 1;
                self.on_its_way.push(Reverse((arrives, self.carried, to, source, datagram.clone())));
            }
        }
    }
}
