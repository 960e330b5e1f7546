//! The pipe between two links, and what stands for an engine at each end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::schema::reason;
use crate::sink::DatagramSink;
use crate::wire::{Body, DatagramView, PublishOut};

const MAX_DATAGRAM: usize = 1_200;

/// What the pipe does to datagrams. Times are in microseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    pub loss: f64,
    pub duplication: f64,
    pub delay: Micros,
    pub jitter: Micros,
}

/// When a datagram arrives, its serial number, at which end, and its bytes.
type OnItsWay = (Micros, u64, usize, Vec<u8>);

/// Two links, the initiator first.
pub struct Pair {
    pub now: Micros,
    pub rng: SmallRng,
    pub faults: Faults,
    pub links: [Link; 2],
    /// The chain and id of each reliable packet queued at each end, in order.
    pub queued: [Vec<(Chain, u64)>; 2],
    /// The ids handed on at each end, in order.
    pub received: [Vec<u64>; 2],
    /// The deliveries of each end for which a PUBACK came.
    pub pubacks: [Vec<u64>; 2],
    pub refused: [Vec<u64>; 2],
    pub datagrams: usize,
    pub tokens_seen: usize,
    /// So many of the next datagrams are lost.
    pub lose_next: usize,
    /// The second end can keep no reliable packet.
    pub inbox_is_full: bool,
    pub largest_allowed: usize,
    /// How often the second end rested, which it does whenever it can; None: it never does.
    pub rests: Option<usize>,
    /// What was sent: when, to which end, and its bytes.
    pub log: Vec<(Micros, usize, Vec<u8>)>,
    in_pipe: BinaryHeap<Reverse<OnItsWay>>,
    serial: u64,
}

#[derive(Default)]
struct Sink {
    bytes: Vec<u8>,
    starts: Vec<usize>,
}

impl Sink {
    fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        let ends = self.starts.iter().skip(1).copied();
        let ends = ends.chain([self.bytes.len()]);
        self.starts.iter().zip(ends).map(|(&start, end)| &self.bytes[start..end])
    }
}

impl DatagramSink for Sink {
    fn begin(&mut self) -> usize {
        self.bytes.len()
    }

    fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    fn commit(&mut self, _destination: &SocketAddr, start: usize) {
        self.starts.push(start);
    }
}

pub fn address(end: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7_700 + u16::try_from(end).unwrap()))
}

pub fn config(incarnation: u64, role: Role) -> LinkConfig {
    LinkConfig {
        session: 7,
        incarnation,
        past: None,
        first_number: 1,
        max_datagram: MAX_DATAGRAM,
        queue_bytes: 4 << 20,
        keep_alive: 2 * SECOND,
        idle_timeout: 15 * SECOND,
        role,
    }
}

/// The sizes of the datagrams that a link sends now.
pub fn built(link: &mut Link, now: Micros) -> Vec<usize> {
    let mut sink = Sink::default();
    link.poll_transmit(now, &mut sink);
    sink.datagrams().map(<[u8]>::len).collect()
}

/// A PUBLISH that is told apart by its id.
pub fn body(id: u64, payload: usize) -> Vec<u8> {
    let mut field = Vec::new();
    let payload = vec![0; payload];
    wire::put_publish_field(
        &mut field,
        &PublishOut { topic: "t", payload: &payload, sequence: id, ..PublishOut::default() },
    );
    field
}

impl Pair {
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self {
            now: 0,
            rng: SmallRng::seed_from_u64(seed),
            faults,
            links: [
                Link::new(config(1, Role::Initiator), address(1), vec![9; 21], 0),
                Link::new(config(2, Role::Acceptor), address(0), Vec::new(), 0),
            ],
            queued: Default::default(),
            received: Default::default(),
            pubacks: Default::default(),
            refused: Default::default(),
            datagrams: 0,
            tokens_seen: 0,
            lose_next: 0,
            inbox_is_full: false,
            largest_allowed: MAX_DATAGRAM,
            rests: None,
            log: Vec::new(),
            in_pipe: BinaryHeap::new(),
            serial: 0,
        }
    }

    pub fn queue_reliable(&mut self, end: usize, chain: Chain, id: u64, payload: usize) {
        self.links[end].queue_reliable(chain, body(id, payload).into(), None).unwrap();
        self.queued[end].push((chain, id));
    }

    /// Queues packets together, of these ids and payloads.
    pub fn queue_batch(&mut self, end: usize, chain: Chain, packets: &[(u64, usize)]) {
        let bodies: Vec<_> = packets.iter().map(|&(id, payload)| body(id, payload)).collect();
        let count = u32::try_from(packets.len()).unwrap();
        self.links[end].queue_batch(chain, bodies.concat().into(), count, None).unwrap();
        self.queued[end].extend(packets.iter().map(|&(id, _)| (chain, id)));
    }

    /// Runs until nothing is outstanding and nothing is on its way.
    pub fn run_until_idle(&mut self, limit: Micros) {
        loop {
            (0..2).for_each(|end| self.transmit(end));
            let is_idle = self.in_pipe.is_empty()
                && self.links.iter().all(|link| {
                    link.is_drained() && link.recovery.in_flight() == 0 && !link.acks.is_pending()
                });
            if is_idle {
                return;
            }
            assert!(self.now < limit, "not quiet by {limit}: {:?}", self.links.each_ref().map(Link::stats));
            self.step(limit);
        }
    }

    pub fn run_until(&mut self, until: Micros) {
        while self.now < until {
            self.step_once(until);
        }
    }

    /// Sends what is due, and goes on to what comes next.
    pub fn step_once(&mut self, until: Micros) {
        (0..2).for_each(|end| self.transmit(end));
        self.step(until);
    }

    /// Seals what is due at one end, and gives it to the pipe. There is no acceptor before something came to it.
    pub fn transmit(&mut self, end: usize) {
        let mut sink = Sink::default();
        let link = &mut self.links[end];
        if link.config.role == Role::Acceptor && link.peer_incarnation().is_none() {
            return;
        }
        let (is_probing, before) = (link.probes > 0, link.recovery.in_flight());
        link.poll_transmit(self.now, &mut sink);
        let (in_flight, window) = (link.recovery.in_flight(), link.recovery.window());
        assert!(
            is_probing || in_flight == before || in_flight <= window.max(self.largest_allowed),
            "{in_flight} in flight, more than the window of {window}"
        );
        for datagram in sink.datagrams() {
            assert!(datagram.len() <= self.largest_allowed, "{} bytes", datagram.len());
            self.carry(1 - end, datagram);
        }
        if end == 1 {
            self.rest();
        }
    }

    /// Has the second end rest and wake, if it may rest and can.
    fn rest(&mut self) {
        let Some(count) = &mut self.rests else {
            return;
        };
        if let Some(mut idle_state) = self.links[1].idle_state() {
            *count += 1;
            let config =
                LinkConfig { max_datagram: self.links[1].config.max_datagram, ..config(0, Role::Initiator) };
            assert_eq!(self.links[1].poll_timeout(), Some(idle_state.deadline(&config)));
            self.links[1] = idle_state.wake(7, &config);
        }
    }

    fn carry(&mut self, to: usize, datagram: &[u8]) {
        self.datagrams += 1;
        self.log.push((self.now, to, datagram.to_vec()));
        if self.lose_next > 0 {
            self.lose_next -= 1;
            return;
        }
        if self.rng.random_bool(self.faults.loss) {
            return;
        }
        let copies = 1 + usize::from(self.rng.random_bool(self.faults.duplication));
        for _ in 0..copies {
            let at = self.now + self.faults.delay + self.rng.random_range(0..=self.faults.jitter);
            self.serial += 1;
            self.in_pipe.push(Reverse((at, self.serial, to, datagram.to_vec())));
        }
    }

    /// Goes on to the next arrival or deadline.
    fn step(&mut self, limit: Micros) {
        let arrival = self.in_pipe.peek().map(|Reverse((at, ..))| *at);
        let deadlines = self.links.iter().filter_map(Link::poll_timeout);
        self.now = arrival.into_iter().chain(deadlines).min().unwrap_or(limit).min(limit);
        while self.in_pipe.peek().is_some_and(|Reverse((at, ..))| *at <= self.now) {
            let Some(Reverse((_, _, to, datagram))) = self.in_pipe.pop() else {
                break;
            };
            self.handle_datagram(to, &datagram);
        }
        for link in &mut self.links {
            link.handle_timeout(self.now);
            let next = link.poll_timeout();
            assert!(next.is_none_or(|next| next > self.now), "no progress at {}: {next:?}", self.now);
        }
    }

    fn handle_datagram(&mut self, end: usize, bytes: &[u8]) {
        let datagram = DatagramView::parse(bytes).expect("links write valid datagrams");
        let header = &datagram.header;
        self.tokens_seen += usize::from(!header.token.is_empty());
        match self.links[end].handle_header(self.now, header, address(1 - end)) {
            Arrival::Fresh => {}
            Arrival::Duplicate => return,
            // What acknowledges the first datagrams is lost, or behind it.
            Arrival::Past if !self.links[end].is_established() => return,
            other => panic!("{other:?}"),
        }
        let mut kept = true;
        for packet in datagram.packets().iter() {
            if packet.delivery == 0 {
                self.handle_unreliable(end, &packet.body);
            } else if self.inbox_is_full && end == 1 {
                kept = false;
            } else {
                match self.links[end].receive(packet.delivery, packet.after, packet.raw, |_| true) {
                    ReceiveOutcome::Deliver => self.hand_on(end, packet.delivery, &packet.body),
                    ReceiveOutcome::Refused | ReceiveOutcome::NoRoom => kept = false,
                    ReceiveOutcome::Buffered | ReceiveOutcome::Duplicate => {}
                }
                self.drain_released(end);
            }
        }
        self.links[end].finish_datagram(self.now, header.number, bytes.len(), datagram.has_packets(), kept);
    }

    fn drain_released(&mut self, end: usize) {
        while let Some(raw) = self.links[end].next_released() {
            let mut wrapped = Vec::new();
            wire::put_packet(&mut wrapped, 0, 0, None, &raw);
            let view = DatagramView::parse(&wrapped).expect("it was part of a valid datagram");
            let packet = view.packets().iter().next().expect("it has one");
            self.hand_on(end, packet.delivery, &packet.body);
        }
    }

    fn hand_on(&mut self, end: usize, delivery: u64, body: &Body<'_>) {
        let Body::Publish(publish) = body else { panic!("only PUBLISH is sent as a delivery") };
        self.received[end].push(publish.sequence);
        let success = if delivery.is_multiple_of(3) { Success::Unmatched } else { Success::Done };
        self.links[end].acknowledge(delivery, delivery, success);
    }

    fn handle_unreliable(&mut self, end: usize, body: &Body<'_>) {
        match body {
            Body::Publish(publish) => self.received[end].push(publish.sequence),
            Body::Ping { sent_at_us } => self.links[end].answer_ping(*sent_at_us),
            Body::PubAck(puback) => {
                let deliveries = puback.ranges().flat_map(|(first, last)| first..=last);
                let is_success = matches!(puback.reason, reason::SUCCESS | reason::NO_MATCHING_SUBSCRIBERS);
                for delivery in deliveries {
                    if is_success {
                        assert_eq!(puback.reason == reason::SUCCESS, !delivery.is_multiple_of(3));
                    }
                    let log = if is_success { &mut self.pubacks } else { &mut self.refused };
                    log[end].push(delivery);
                }
            }
            _ => {}
        }
    }
}
