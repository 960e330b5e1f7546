//! A machine that sends back what comes, and clients for it.

use std::collections::VecDeque;
use std::net::UdpSocket;

use super::*;
use crate::endpoint::machine::TurnHook;
use crate::endpoint::socket;
use crate::sink::DatagramSink;

/// Sends back what comes, by way of the next worker where it is told to.
#[derive(Default)]
pub struct Echo {
    /// Who echoes for this one.
    pub detour: Option<u8>,
    pub outgoing: VecDeque<(SocketAddr, Vec<u8>)>,
    pub handoffs: VecDeque<(u8, (SocketAddr, Vec<u8>))>,
    pub handed: usize,
    pub output: usize,
    pub due: Option<Micros>,
    pub turns: usize,
    pub cpu: Vec<u64>,
    pub panics: bool,
    /// What somebody else does while it works.
    pub meanwhile: Option<Box<dyn FnOnce() + Send>>,
    pub turn_hook: Option<Arc<dyn TurnHook>>,
    /// What came, of one that sends nothing back.
    pub kept: Option<Vec<Vec<u8>>>,
}

impl Machine for Echo {
    type Handoff = (SocketAddr, Vec<u8>);

    fn handle_datagram(&mut self, _: Micros, source: SocketAddr, datagram: &[u8]) {
        assert!(!self.panics, "told to");
        if let Some(kept) = &mut self.kept {
            return kept.push(datagram.to_vec());
        }
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
            let start = sink.begin();
            sink.buffer().extend_from_slice(&datagram);
            sink.commit(&destination, start);
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

    fn turn_hook(&self) -> Option<Arc<dyn TurnHook>> {
        self.turn_hook.clone()
    }
}

/// CPU time of the calling thread; 0 where the system does not tell.
pub fn thread_cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|field| field.parse().ok()).unwrap_or(0)
}

pub fn start(machines: Vec<Echo>) -> Endpoint<Echo> {
    Endpoint::new(machines, LOCAL.parse().unwrap(), None).unwrap()
}

pub fn echoes(count: usize) -> Vec<Echo> {
    (0..count).map(|_| Echo::default()).collect()
}

pub fn std_client() -> UdpSocket {
    let client = UdpSocket::bind(LOCAL).unwrap();
    client.set_read_timeout(Some(SOON)).unwrap();
    client
}

pub fn counter(endpoint: &Endpoint<Echo>, name: &str) -> u64 {
    endpoint.counters().iter().find(|(n, _)| *n == name).unwrap().1
}

pub fn is_readable(endpoint: &Endpoint<Echo>) -> bool {
    assert_eq!(endpoint.fileno(), endpoint.endpoint_state.output.as_fd().as_raw_fd());
    socket::wait_readable(endpoint.endpoint_state.output.as_fd().as_raw_fd(), Duration::ZERO).unwrap()
}
