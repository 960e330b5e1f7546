//! Many datagrams at once, and what goes from worker to worker.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::endpoint::egress::Egress;
use crate::endpoint::socket::{self, Arrivals, Interest};
use crate::endpoint::traffic::Counters;
use crate::sink::DatagramSink;

/// A client that sends runs of datagrams as one, and takes them in likewise.
struct BatchClient {
    socket: Socket,
    egress: Egress,
    arrivals: Arrivals,
    counters: Counters,
}

impl BatchClient {
    fn new(options: Options) -> Self {
        let socket = Socket::bind(LOCAL.parse().unwrap(), options).unwrap();
        let egress = Egress::new(socket.segments());
        Self { socket, egress, arrivals: Arrivals::new(), counters: Counters::default() }
    }

    fn exchange(
        &mut self,
        event_fd: BorrowedFd<'_>,
        server: SocketAddr,
        datagrams: &[Vec<u8>],
    ) -> Vec<Vec<u8>> {
        for datagram in datagrams {
            let start = self.egress.begin();
            self.egress.buffer().extend_from_slice(datagram);
            self.egress.commit(&server, start);
        }
        let all = self.egress.flush(&self.counters, |b, m| self.socket.send(b, m, &self.counters)).unwrap();
        assert!(all);
        let mut back = Vec::new();
        let deadline = Instant::now() + SOON;
        while back.len() < datagrams.len() {
            assert!(Instant::now() < deadline, "{} of {} came back", back.len(), datagrams.len());
            self.socket.receive(&mut self.arrivals, &self.counters).unwrap();
            back.extend(self.arrivals.datagrams().map(|(_, d)| d.to_vec()));
            if back.len() < datagrams.len() {
                let interest = Interest { readable: true, writable: false };
                socket::wait(&self.socket, interest, event_fd, Some(SOON)).unwrap();
            }
        }
        back
    }
}

/// 8 clients, `rounds` runs of up to 64 datagrams each; every one comes back once and whole.
fn echo_many(workers: usize, detour: bool, options: Options, rounds: u64) -> Endpoint<Echo> {
    let machines = (0..workers)
        .map(|i| Echo { detour: detour.then_some(((i + 1) % workers) as u8), ..Echo::default() })
        .collect();
    let endpoint = Endpoint::with_options(machines, LOCAL.parse().unwrap(), None, options).unwrap();
    let server = endpoint.address();
    // Nobody writes to it, so the clients are woken by datagrams alone.
    let (quiet, _open) = UnixStream::pair().unwrap();
    thread::scope(|scope| {
        for client in 0..8u64 {
            let never = quiet.as_fd();
            scope.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(client);
                let mut socket = BatchClient::new(options);
                for round in 0..rounds {
                    let size = rng.random_range(16..1_400);
                    let mut sent: Vec<Vec<u8>> = (0..64u64)
                        .map(|i| {
                            let mut datagram = vec![client as u8; size];
                            datagram[..8].copy_from_slice(&(round * 64 + i).to_be_bytes());
                            datagram
                        })
                        .collect();
                    sent[63].truncate(rng.random_range(9..=size));
                    let mut back = socket.exchange(never, server, &sent);
                    back.sort();
                    assert!(back == sent, "client {client}, round {round}");
                }
            });
        }
    });
    // A datagram may come back before it is counted as sent; not before the threads have ended.
    endpoint.shutdown();
    endpoint
}

#[test]
fn many_datagrams_come_back_through_several_workers() {
    let endpoint = echo_many(3, false, Options::default(), 200);
    assert_eq!(counter(&endpoint, "socket.datagrams_in"), 8 * 200 * 64);
    assert_eq!(counter(&endpoint, "socket.datagrams_out"), 8 * 200 * 64);
    assert_eq!(counter(&endpoint, "socket.bytes_in"), counter(&endpoint, "socket.bytes_out"));
    assert!(counter(&endpoint, "socket.send_calls") * 16 < counter(&endpoint, "socket.datagrams_out"));
    let busy = (0..3).filter(|&w| endpoint.inspect(w, |m| m.turns) > 10).count();
    assert!(busy > 1, "one worker alone has all peers");
}

#[test]
fn the_same_without_segmentation() {
    let options = Options { segmentation: false, ..Options::default() };
    let endpoint = echo_many(2, false, options, 50);
    assert_eq!(counter(&endpoint, "socket.datagrams_out"), 8 * 50 * 64);
}

#[test]
fn handoffs_reach_the_other_worker() {
    let endpoint = echo_many(3, true, Options::default(), 50);
    let handed: usize = (0..3).map(|w| endpoint.inspect(w, |m| m.handed)).sum();
    assert_eq!(handed, 8 * 50 * 64);
}

#[test]
fn more_handoffs_than_a_mailbox_holds_arrive_all() {
    let endpoint = start(echoes(2));
    let nobody = std_client();
    let to = nobody.local_addr().unwrap();
    for worker in 0..2u8 {
        endpoint.with_machine(worker.into(), |machine, _| {
            machine.handoffs.extend((0..20_000).map(|_| (1 - worker, (to, vec![1]))));
        });
    }
    let deadline = Instant::now() + SOON;
    while (0..2).any(|w| endpoint.inspect(w, |m| m.handed) < 20_000) {
        assert!(Instant::now() < deadline, "handoffs are stuck");
        thread::yield_now();
    }
    assert!(endpoint.drain(SOON));
}
