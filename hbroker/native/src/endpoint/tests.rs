//! Real sockets on the loopback interface.

use std::collections::VecDeque;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::endpoint::egress::Egress;
use crate::endpoint::socket::{self, Arrivals, Interest};
use crate::endpoint::traffic::Counters;
use crate::endpoint::worker::{Errand, Step};
use crate::sink::DatagramSink;

const LOCAL: &str = "127.0.0.1:0";
const SOON: Duration = Duration::from_secs(20);

/// Sends back what comes, by way of the next worker where it is told to.
#[derive(Default)]
struct Echo {
    /// Who echoes for this one.
    detour: Option<u8>,
    outgoing: VecDeque<(SocketAddr, Vec<u8>)>,
    handoffs: VecDeque<(u8, (SocketAddr, Vec<u8>))>,
    handed: usize,
    output: usize,
    due: Option<Micros>,
    turns: usize,
    cpu: Vec<u64>,
    panics: bool,
    /// What somebody else does while it works.
    meanwhile: Option<Box<dyn FnOnce() + Send>>,
    errand: Option<Arc<Reporter>>,
}

impl Machine for Echo {
    type Handoff = (SocketAddr, Vec<u8>);

    fn handle_datagram(&mut self, _: Micros, source: SocketAddr, datagram: &[u8]) {
        assert!(!self.panics, "told to");
        match self.detour {
            Some(next) => self.handoffs.push_back((next, (source, datagram.to_vec()))),
            None => self.outgoing.push_back((source, datagram.to_vec())),
        }
    }

    fn handle_timeout(&mut self, _: Micros) {
        self.due = None;
        self.output += 1;
        self.cpu.push(thread_cpu_ns());
        if let Some(act) = self.meanwhile.take() {
            act();
        }
    }

    fn handle_handoff(&mut self, _: Micros, handoff: Self::Handoff) {
        self.handed += 1;
        self.outgoing.push_back(handoff);
    }

    fn poll_transmit(&mut self, _: Micros, sink: &mut impl DatagramSink) {
        self.turns += 1;
        while !sink.is_full() {
            let Some((destination, datagram)) = self.outgoing.pop_front() else {
                break;
            };
            let start = sink.buffer().len();
            sink.buffer().extend_from_slice(&datagram);
            sink.commit(destination, start);
        }
    }

    fn poll_handoff(&mut self) -> Option<(u8, Self::Handoff)> {
        self.handoffs.pop_front()
    }

    fn has_handoff(&self) -> bool {
        !self.handoffs.is_empty()
    }

    fn poll_timeout(&self) -> Option<Micros> {
        self.due
    }

    fn has_output(&self) -> bool {
        self.output > 0
    }

    fn is_drained(&self) -> bool {
        self.outgoing.is_empty() && self.handoffs.is_empty()
    }

    fn errand(&self) -> Option<Arc<dyn Errand>> {
        self.errand.clone().map(|errand| errand as _)
    }
}

/// CPU time of the calling thread; 0 where the system does not tell.
fn thread_cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|field| field.parse().ok()).unwrap_or(0)
}

fn start(machines: Vec<Echo>) -> Endpoint<Echo> {
    Endpoint::new(machines, LOCAL.parse().unwrap()).unwrap()
}

fn echoes(count: usize) -> Vec<Echo> {
    (0..count).map(|_| Echo::default()).collect()
}

fn std_client() -> UdpSocket {
    let client = UdpSocket::bind(LOCAL).unwrap();
    client.set_read_timeout(Some(SOON)).unwrap();
    client
}

fn counter(endpoint: &Endpoint<Echo>, name: &str) -> u64 {
    endpoint.counters().iter().find(|(n, _)| *n == name).unwrap().1
}

fn is_readable(endpoint: &Endpoint<Echo>) -> bool {
    assert_eq!(endpoint.fileno(), endpoint.fleet.output.as_fd().as_raw_fd());
    socket::wait_readable(endpoint.fleet.output.as_fd().as_raw_fd(), Duration::ZERO).unwrap()
}

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

    fn exchange(&mut self, bell: BorrowedFd<'_>, server: SocketAddr, datagrams: &[Vec<u8>]) -> Vec<Vec<u8>> {
        for datagram in datagrams {
            let start = self.egress.buffer().len();
            self.egress.buffer().extend_from_slice(datagram);
            self.egress.commit(server, start);
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
                socket::wait(&self.socket, interest, bell, Some(SOON)).unwrap();
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
    let endpoint = Endpoint::with_options(machines, LOCAL.parse().unwrap(), options).unwrap();
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
    if cfg!(target_os = "linux") {
        assert!(counter(&endpoint, "socket.send_calls") * 16 < counter(&endpoint, "socket.datagrams_out"));
        let busy = (0..3).filter(|&w| endpoint.inspect(w, |m| m.turns) > 10).count();
        assert!(busy > 1, "one worker alone has all peers");
    }
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

#[test]
fn no_wake_up_is_lost() {
    for seed in 0..4 {
        let endpoint = start(echoes(2));
        thread::scope(|scope| {
            for caller in 0..3u64 {
                let endpoint = &endpoint;
                scope.spawn(move || publish_and_wait(endpoint, seed * 10 + caller));
            }
        });
    }
}

/// One datagram after the other, each after a pause that sometimes lets the worker fall asleep, sometimes just not.
fn publish_and_wait(endpoint: &Endpoint<Echo>, seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let client = std_client();
    let to = client.local_addr().unwrap();
    let mut buffer = [0; 16];
    for number in 0..3_000u64 {
        (0..rng.random_range(0..2_000)).for_each(|_| std::hint::spin_loop());
        let worker = rng.random_range(0..2);
        endpoint.with_machine(worker, |m, _| m.outgoing.push_back((to, number.to_be_bytes().to_vec())));
        let length = client.recv(&mut buffer).unwrap_or_else(|_| panic!("seed {seed}: {number} never left"));
        assert_eq!(buffer[..length], number.to_be_bytes());
    }
}

#[test]
fn a_new_deadline_gets_the_worker_up_in_time() {
    let endpoint = start(echoes(1));
    for _ in 0..300 {
        endpoint.with_machine(0, |machine, now| machine.due = Some(now + 500));
        assert!(endpoint.wait(SOON));
        assert_eq!(endpoint.with_machine(0, |machine, _| std::mem::take(&mut machine.output)), 1);
    }
}

#[test]
fn the_descriptor_is_readable_exactly_while_there_is_output() {
    let endpoint = start(echoes(3));
    assert!(!endpoint.wait(Duration::ZERO));
    endpoint.with_machine(0, |machine, _| machine.output = 1);
    assert!(is_readable(&endpoint));
    endpoint.with_machine(1, |machine, _| machine.output = 1);
    endpoint.with_machine(0, |machine, _| machine.output = 0);
    assert!(is_readable(&endpoint) && endpoint.wait(Duration::ZERO));
    endpoint.with_machine(1, |machine, _| machine.output = 0);
    assert!(!is_readable(&endpoint) && !endpoint.wait(Duration::ZERO));
    endpoint.with_machine(2, |machine, _| machine.output = 2);
    assert!(is_readable(&endpoint) && endpoint.wait(Duration::ZERO));
}

#[test]
fn an_idle_worker_uses_no_time() {
    let endpoint = start(echoes(1));
    endpoint.with_machine(0, |machine, now| machine.due = Some(now));
    assert!(endpoint.wait(SOON));
    let before = endpoint.with_machine(0, |machine, now| {
        machine.output = 0;
        machine.due = Some(now + 300_000);
        machine.turns
    });
    assert!(endpoint.wait(SOON));
    let (turns, cpu) = endpoint.inspect(0, |machine| (machine.turns - before, machine.cpu.clone()));
    assert!(turns <= 4, "{turns} turns with nothing to do");
    assert!(cpu[1] - cpu[0] < 5_000_000, "{} ns of CPU in 300 ms", cpu[1] - cpu[0]);
}

#[test]
fn a_worker_that_had_much_holds_off_before_it_listens_again() {
    let endpoint = start(echoes(1));
    let (client, mut buffer) = (std_client(), [0; 8_192]);
    for (size, holds_off) in [(1_000, false), (4_096, cfg!(target_os = "linux"))] {
        for _ in 0..200 {
            client.send_to(&vec![7; size], endpoint.address()).unwrap();
            assert_eq!(client.recv(&mut buffer).unwrap(), size);
            let waker = &endpoint.stations[0].waker;
            let deadline = Instant::now() + SOON;
            while !waker.is_sleeping() {
                assert!(Instant::now() < deadline, "it does not sleep");
                thread::yield_now();
            }
        }
        assert_eq!(counter(&endpoint, "socket.hold_offs") > 0, holds_off, "{size}");
    }
}

#[test]
fn who_takes_one_datagram_in_asks_the_kernel_once_for_it() {
    let endpoint = start(echoes(1));
    let client = std_client();
    client.connect(endpoint.address()).unwrap();
    let before = counter(&endpoint, "socket.receive_calls");
    let asleep = |station: &Station<Echo>| station.waker.is_sleeping();
    for _ in 0..200 {
        client.send(b"hello").unwrap();
        assert_eq!(client.recv(&mut [0; 16]).unwrap(), 5);
        let deadline = Instant::now() + SOON;
        while !asleep(&endpoint.stations[0]) {
            assert!(Instant::now() < deadline);
            thread::yield_now();
        }
    }
    let calls = counter(&endpoint, "socket.receive_calls") - before;
    assert!((200..=210).contains(&calls), "{calls} calls for 200 datagrams that came one by one");
}

#[test]
fn shutdown_ends_the_threads_and_frees_the_port() {
    for workers in [1, 3] {
        let endpoint = start(echoes(workers));
        let client = std_client();
        let to = client.local_addr().unwrap();
        endpoint.with_machine(0, |machine, _| machine.outgoing.push_back((to, vec![1])));
        endpoint.shutdown();
        assert!(endpoint.fleet.wait_ended(Instant::now()));
        assert!(client.recv(&mut [0; 8]).is_ok(), "what was queued has left");
        UdpSocket::bind(endpoint.address()).expect("the port is free");
        endpoint.shutdown();
        assert_eq!(endpoint.fault(), None);
        endpoint.with_machine(0, |machine, _| machine.outgoing.push_back((to, vec![1])));
        assert!(!endpoint.drain(SOON), "nobody is there to send");
    }
}

#[test]
fn an_address_in_use_is_refused_to_one_and_to_many() {
    let endpoint = start(echoes(2));
    for workers in [1, 2] {
        let error = Endpoint::new(echoes(workers), endpoint.address()).err().expect("it is in use");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}

#[test]
fn closed_ports_and_oversize_do_not_hurt_the_others() {
    let endpoint = start(echoes(1));
    let closed = std_client().local_addr().unwrap();
    let client = std_client();
    let open = client.local_addr().unwrap();
    for _ in 0..200 {
        endpoint.with_machine(0, |machine, _| {
            machine.outgoing.push_back((closed, vec![1; 100]));
            machine.outgoing.push_back((SocketAddr::new(closed.ip(), 0), vec![1; 100]));
            machine.outgoing.push_back((SocketAddr::new(closed.ip(), 0), vec![1; 100]));
            machine.outgoing.push_back((closed, vec![1; 70_000]));
            machine.outgoing.push_back((open, vec![2; 100]));
        });
        assert_eq!(client.recv(&mut [0; 200]).unwrap(), 100);
    }
    assert_eq!(counter(&endpoint, "drop.send_too_large"), 200);
    // Nobody has port 0; systems differ in how they say so.
    assert_eq!(counter(&endpoint, "drop.send_refused") + counter(&endpoint, "drop.send_unreachable"), 400);
    client.send_to(b"still there?", endpoint.address()).unwrap();
    assert_eq!(client.recv(&mut [0; 200]).unwrap(), 12);
    assert_eq!(endpoint.fault(), None);
}

#[test]
fn drain_waits_for_the_last_datagram() {
    let endpoint = start(echoes(2));
    let client = std_client();
    let to = client.local_addr().unwrap();
    for round in 0..200 {
        endpoint.with_machine(round % 2, |machine, _| {
            machine.outgoing.extend((0..100).map(|_| (to, vec![3; 20])));
        });
        assert!(endpoint.drain(SOON));
        client.set_nonblocking(true).unwrap();
        assert_eq!((0..100).filter(|_| client.recv(&mut [0; 32]).is_ok()).count(), 100);
    }
}

#[test]
fn a_worker_that_panics_is_reported_and_the_other_goes_on() {
    let endpoint = start(echoes(2));
    endpoint.with_machine(0, |machine, _| machine.panics = true);
    let clients: Vec<_> = (0..32).map(|_| std_client()).collect();
    for client in &clients {
        client.send_to(b"boo", endpoint.address()).unwrap();
    }
    assert!(endpoint.wait(SOON), "none of 32 peers came to worker 0");
    assert_eq!(endpoint.fault().as_deref(), Some("worker 0: panicked"));
    for client in &clients {
        client.send_to(b"hello", endpoint.address()).unwrap();
        let mut buffer = [0; 8];
        while client.recv(&mut buffer).unwrap() != 5 {}
    }
    endpoint.shutdown();
    assert!(endpoint.fleet.wait_ended(Instant::now()));
}

#[test]
fn ipv6_works_too() {
    let Ok(endpoint) = Endpoint::new(echoes(2), "[::1]:0".parse().unwrap()) else {
        return;
    };
    let client = UdpSocket::bind("[::1]:0").unwrap();
    client.set_read_timeout(Some(SOON)).unwrap();
    client.send_to(b"hello", endpoint.address()).unwrap();
    let (length, source) = client.recv_from(&mut [0; 16]).unwrap();
    assert_eq!((length, source), (5, endpoint.address()));
}

#[test]
#[cfg(target_os = "linux")]
fn what_the_kernel_drops_is_counted() {
    let options = Options { buffer_bytes: 1, ..Options::default() };
    let endpoint = Endpoint::with_options(echoes(1), LOCAL.parse().unwrap(), options).unwrap();
    let client = std_client();
    // The machine is held while they come, so the worker cannot keep up.
    endpoint.inspect(0, |_| {
        (0..1_000).for_each(|_| assert!(client.send_to(&[1; 64], endpoint.address()).is_ok()));
    });
    // The count comes with the next datagram that finds room.
    client.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let deadline = Instant::now() + SOON;
    let mut sent = 1_000;
    let mut back = 0;
    while back != 5 {
        assert!(Instant::now() < deadline);
        client.send_to(b"count", endpoint.address()).unwrap();
        sent += 1;
        back = std::iter::from_fn(|| client.recv(&mut [0; 100]).ok()).find(|&n| n == 5).unwrap_or(0);
    }
    let dropped = counter(&endpoint, "drop.receive_overflow");
    assert!(dropped > 0);
    // A second count may still be on its way.
    assert!((1_001..=sent).contains(&(counter(&endpoint, "socket.datagrams_in") + dropped)));
}

#[test]
fn a_worker_without_a_thread_does_what_is_due_step_by_step_and_says_when_the_next_is() {
    let (endpoint, mut worker) = Endpoint::without_thread(Echo::default(), LOCAL.parse().unwrap()).unwrap();
    let mut arrivals = Arrivals::new();
    let mut step = |worker: &mut Worker<Echo>| worker.step(&mut arrivals).unwrap();
    // Which of the two is readable: the socket, and the bell.
    let news = |worker: &Worker<Echo>, timeout| {
        let (socket, bell) = worker.descriptors();
        [socket, bell].map(|one| socket::wait_readable(one.as_raw_fd(), timeout).unwrap())
    };
    assert_eq!(step(&mut worker), Step { again: false, due: None });
    assert_eq!(news(&worker, Duration::ZERO), [false, false]);

    let client = std_client();
    client.connect(endpoint.address()).unwrap();
    client.send(b"hello").unwrap();
    assert!(socket::wait_readable(worker.descriptors().0.as_raw_fd(), SOON).unwrap());
    assert_eq!(step(&mut worker), Step { again: false, due: None }, "it took all that waited");
    assert_eq!(client.recv(&mut [0; 16]).unwrap(), 5);
    (0..40).for_each(|_| assert!(client.send(b"many").is_ok()));
    if cfg!(target_os = "linux") {
        assert!(step(&mut worker).again, "who took as many as it may looks again before it sleeps");
    }
    while step(&mut worker).again {}
    (0..40).for_each(|_| assert_eq!(client.recv(&mut [0; 16]).unwrap(), 4));

    // A caller's deadline is sooner than none: the worker is rung out of its sleep between steps.
    endpoint.with_machine(0, |machine, now| machine.due = Some(now + 60_000_000));
    assert_eq!(news(&worker, Duration::ZERO), [false, true]);
    let Step { again, due } = step(&mut worker);
    assert!(!again && due.is_some_and(|due| due > Duration::from_secs(50) && due <= Duration::from_secs(60)));
    assert_eq!(news(&worker, Duration::ZERO), [false, false], "it has heard the bell");
    // One that comes no sooner does not ring.
    endpoint.with_machine(0, |machine, now| machine.due = Some(now + 90_000_000));
    assert_eq!(news(&worker, Duration::ZERO), [false, false]);

    endpoint.with_machine(0, |machine, now| machine.due = Some(now));
    assert!(news(&worker, Duration::ZERO)[1]);
    assert_eq!(step(&mut worker), Step { again: false, due: None }, "it was due");
    assert_eq!(endpoint.inspect(0, |machine| machine.output), 1);

    // Somebody has work for it while it is at work.
    let station = worker.station();
    endpoint.with_machine(0, |machine, now| {
        machine.due = Some(now);
        machine.meanwhile = Some(Box::new(move || station.wake()));
    });
    assert!(step(&mut worker).again);
    assert_eq!(step(&mut worker), Step { again: false, due: None });
    drop(worker);
}

/// Says who runs it, and looks at the machine while it does.
struct Reporter {
    station: Mutex<Option<Arc<Station<Echo>>>>,
    said: mpsc::Sender<(bool, usize)>,
}

impl Errand for Reporter {
    fn run(&self, is_worker: bool) {
        let turns = self.station.lock().as_ref().map(|station| station.inspect(|echo| echo.turns));
        if let Some(turns) = turns {
            let _ = self.said.send((is_worker, turns));
        }
    }
}

#[test]
fn an_errand_is_run_after_each_turn_with_the_machine_free() {
    let (said, heard) = mpsc::channel();
    let errand = Arc::new(Reporter { station: Mutex::new(None), said });
    let endpoint = start(vec![Echo { errand: Some(Arc::clone(&errand)), ..Echo::default() }]);
    *errand.station.lock() = Some(Arc::clone(&endpoint.stations[0]));
    endpoint.with_machine(0, |_, _| {});
    let by_caller = |(is_worker, _): &(bool, usize)| !is_worker;
    assert!(std::iter::from_fn(|| heard.recv_timeout(SOON).ok()).any(|said| by_caller(&said)));
    let client = std_client();
    client.send_to(b"x", endpoint.address()).unwrap();
    client.recv(&mut [0; 8]).unwrap();
    assert!(
        std::iter::from_fn(|| heard.recv_timeout(SOON).ok()).any(|(is_worker, turns)| is_worker && turns > 0)
    );
    *errand.station.lock() = None;
}
