//! What came in, and whose turn it is to be worked through.
//!
//! What is soon done is worked through in order of arrival. Where much waits, the socket is emptied first, and those go first who sent
//! little: a look-up, or a sensor's message, does not stand behind what a neighbour has in flight. They have a turn of their own, so
//! that what follows from it leaves at once; the others have every second one at least. So a flood delays itself. (That is the idea
//! of fair queueing with a priority for sparse flows, RFC 8290 §5; flows are told apart by their source address.) Whoever has most
//! loses first when there is no more room.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

#[cfg(target_os = "linux")]
use super::linux;

/// Messages in one system call, at most.
pub const WIDTH: usize = 32;
/// No UDP message is longer, even one that GRO put together.
pub const SLOT_BYTES: usize = 65_536;
/// Slots are not a power of two apart, or they would compete for the same lines of the cache.
const SLOT_STRIDE: usize = SLOT_BYTES + 33 * 64;
/// What one turn takes, so that it stays in the cache until it is worked through.
const BATCH_BYTES: usize = 256 * 1024;
const MIN_WIDTH: usize = 4;
/// No more than this is soon done.
const SOON_DONE: usize = 64 * 1024;
/// Who has no more waiting sent little.
const LITTLE: usize = 4 * 1024;
/// Slots; what waits beyond that is copied, to take no more room than it has bytes.
const MOST_SLOTS: usize = 2 * WIDTH;
/// Messages that may wait, and bytes of them: about as much as a socket buffers, which counts what it needs beside them.
const MOST_WAITING: usize = 2_048;
const MOST_BYTES: usize = 4 * 1024 * 1024;

/// How a receive ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Intake {
    pub datagrams: usize,
    /// More may wait: it took as much as it may, or was stopped.
    pub may_wait: bool,
}

/// What came in. Made once, used again and again.
pub struct Arrivals {
    /// Slots that hold nothing; the last is used next.
    pub(super) free: Vec<Slot>,
    slots: usize,
    /// In order of arrival.
    waiting: VecDeque<Arrived>,
    bytes: usize,
    batch: Vec<Arrived>,
    /// The last batch left those out who sent much.
    passed_over: bool,
    /// How many messages the next call may take, so that `BATCH_BYTES` are not exceeded by much.
    width: usize,
    #[cfg(target_os = "linux")]
    pub(super) names: Box<[libc::sockaddr_storage]>,
    #[cfg(target_os = "linux")]
    pub(super) controls: Box<[linux::Control]>,
}

pub type Slot = Box<[u8]>;

/// A message: datagrams from one source, all of one length but for the last, which may be shorter.
struct Arrived {
    slot: Slot,
    source: SocketAddr,
    length: usize,
    segment: usize,
}

impl Arrived {
    fn datagrams(&self) -> usize {
        self.length.div_ceil(self.segment)
    }
}

impl Arrivals {
    pub fn new() -> Self {
        Self {
            free: Vec::new(),
            slots: 0,
            waiting: VecDeque::new(),
            bytes: 0,
            batch: Vec::with_capacity(WIDTH),
            passed_over: false,
            width: WIDTH,
            #[cfg(target_os = "linux")]
            names: vec![linux::no_name(); WIDTH].into_boxed_slice(),
            #[cfg(target_os = "linux")]
            controls: vec![linux::Control::EMPTY; WIDTH].into_boxed_slice(),
        }
    }

    /// The datagrams whose turn it is, in order of arrival of each source, each with its source.
    pub fn datagrams(&self) -> impl Iterator<Item = (SocketAddr, &[u8])> {
        self.batch.iter().flat_map(|message| {
            let datagrams = message.slot[..message.length].chunks(message.segment);
            datagrams.map(|datagram| (message.source, datagram))
        })
    }

    /// How many bytes they have together.
    pub fn bytes(&self) -> usize {
        self.batch.iter().map(|message| message.length).sum()
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        let slots = self.batch.drain(..).rev().map(|message| message.slot);
        self.free.extend(slots.filter(|slot| slot.len() == SLOT_STRIDE));
    }

    /// Makes sure of free slots for the next call; returns how many it may fill. 0: there is no room.
    pub(super) fn prepare(&mut self) -> usize {
        let width = self.width.min(MOST_WAITING - self.waiting.len());
        while self.free.len() < width && self.slots < MOST_SLOTS {
            self.free.push(vec![0; SLOT_STRIDE].into_boxed_slice());
            self.slots += 1;
        }
        if self.free.len() < width {
            self.copy_waiting();
        }
        width
    }

    /// The last free slot was filled by a message.
    pub(super) fn push(&mut self, source: SocketAddr, length: usize, segment: usize) {
        if let Some(slot) = self.free.pop() {
            self.bytes += length;
            self.waiting.push_back(Arrived { slot, source, length, segment: segment.max(1) });
        }
    }

    /// So many messages came at once: chooses how many may the next time. Returns their datagrams and bytes.
    pub(super) fn adapt(&mut self, count: usize) -> (usize, usize) {
        let newest = || self.waiting.iter().rev().take(count);
        let bytes: usize = newest().map(|message| message.length).sum();
        let datagrams = newest().map(Arrived::datagrams).sum();
        if let Some(mean) = bytes.checked_div(count) {
            self.width = (BATCH_BYTES / mean.max(1)).clamp(MIN_WIDTH, WIDTH);
        }
        (datagrams, bytes)
    }

    /// Has those go that the most comes from, the newest first, until what waits is no more than may. Returns how many datagrams
    /// that were.
    pub(super) fn shed(&mut self) -> usize {
        let mut shed = 0;
        while self.bytes > MOST_BYTES {
            let fattest =
                self.by_source().into_iter().max_by_key(|&(_, bytes)| bytes).map(|(source, _)| source);
            let newest = self.waiting.iter().rposition(|message| Some(message.source) == fattest);
            let Some(message) = newest.and_then(|index| self.waiting.remove(index)) else {
                break;
            };
            self.bytes -= message.length;
            shed += message.datagrams();
            self.batch.push(message);
            self.clear();
        }
        shed
    }

    /// All that waits has its turn; returns how many datagrams that are.
    pub(super) fn take_all(&mut self) -> usize {
        self.bytes = 0;
        self.batch.extend(self.waiting.drain(..));
        self.batch.iter().map(Arrived::datagrams).sum()
    }

    /// Chooses whose turn it is.
    pub(super) fn choose(&mut self) -> Intake {
        if self.bytes <= SOON_DONE {
            self.passed_over = false;
            return Intake { datagrams: self.take_all(), may_wait: false };
        }
        let by_source = self.by_source();
        for message in std::mem::take(&mut self.waiting) {
            let sent_little = by_source.get(&message.source).is_some_and(|&bytes| bytes <= LITTLE);
            if sent_little { self.batch.push(message) } else { self.waiting.push_back(message) }
        }
        self.passed_over = !self.batch.is_empty() && !self.waiting.is_empty() && !self.passed_over;
        let mut taken: usize = self.batch.iter().map(|message| message.length).sum();
        while !self.passed_over
            && taken < BATCH_BYTES
            && let Some(message) = self.waiting.pop_front()
        {
            taken += message.length;
            self.batch.push(message);
        }
        self.bytes -= taken;
        Intake {
            datagrams: self.batch.iter().map(Arrived::datagrams).sum(),
            may_wait: !self.waiting.is_empty(),
        }
    }

    /// Frees the slots of those that wait.
    fn copy_waiting(&mut self) {
        for message in self.waiting.iter_mut().filter(|message| message.slot.len() == SLOT_STRIDE) {
            let copy = message.slot[..message.length].into();
            self.free.push(std::mem::replace(&mut message.slot, copy));
        }
    }

    fn by_source(&self) -> HashMap<SocketAddr, usize> {
        let mut bytes = HashMap::new();
        self.waiting.iter().for_each(|message| *bytes.entry(message.source).or_default() += message.length);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    fn come(arrivals: &mut Arrivals, port: u16, length: usize) {
        assert!(arrivals.prepare() > 0);
        arrivals.push(from(port), length, length);
    }

    /// Whose turn it is: the ports, one behind the other.
    fn turn(arrivals: &mut Arrivals) -> (Vec<u16>, bool) {
        arrivals.clear();
        let Intake { datagrams, may_wait } = arrivals.choose();
        let ports: Vec<_> = arrivals.datagrams().map(|(source, _)| source.port()).collect();
        assert_eq!(ports.len(), datagrams);
        (ports, may_wait)
    }

    #[test]
    fn what_is_soon_done_is_worked_through_as_it_came() {
        let mut arrivals = Arrivals::new();
        for port in [1, 2, 1, 3] {
            come(&mut arrivals, port, 15_000);
        }
        assert_eq!(turn(&mut arrivals), (vec![1, 2, 1, 3], false));
        assert_eq!(turn(&mut arrivals), (vec![], false));
    }

    #[test]
    fn who_sent_little_does_not_stand_behind_a_flood_and_does_not_stop_it() {
        let mut arrivals = Arrivals::new();
        (0..12).for_each(|_| come(&mut arrivals, 1, 60_000));
        come(&mut arrivals, 2, 100);
        come(&mut arrivals, 2, 200);
        assert_eq!(turn(&mut arrivals), (vec![2, 2], true));
        come(&mut arrivals, 3, 100);
        assert_eq!(turn(&mut arrivals), (vec![3, 1, 1, 1, 1, 1], true), "the flood has every second turn");
        assert_eq!(turn(&mut arrivals), (vec![1; 5], true));
        assert_eq!(turn(&mut arrivals), (vec![1; 2], false));
    }

    #[test]
    fn those_of_whom_most_waits_lose_first() {
        let mut arrivals = Arrivals::new();
        come(&mut arrivals, 2, 100);
        (0..70).for_each(|_| come(&mut arrivals, 1, 60_000));
        come(&mut arrivals, 3, 60_000);
        assert_eq!(arrivals.shed(), 2, "of 4,260,100 bytes 65,796 are too many");
        let mut left = Vec::new();
        loop {
            let (ports, may_wait) = turn(&mut arrivals);
            left.extend(ports);
            if !may_wait {
                break;
            }
        }
        assert_eq!([1, 2, 3].map(|port| left.iter().filter(|&&one| one == port).count()), [68, 1, 1]);
        assert_eq!(arrivals.shed(), 0);
    }

    #[test]
    fn what_waits_is_whole_wherever_it_waits() {
        let mut arrivals = Arrivals::new();
        for number in 0..300u16 {
            assert!(arrivals.prepare() > 0);
            let slot = arrivals.free.last_mut().unwrap();
            slot[..2_000].copy_from_slice(&[number.to_be_bytes(); 1_000].concat());
            arrivals.push(from(1), 2_000, 1_500);
        }
        assert!(arrivals.slots <= MOST_SLOTS);
        let mut came = Vec::new();
        while came.len() < 600 {
            let Intake { datagrams, .. } = arrivals.choose();
            assert!(datagrams > 0);
            came.extend(arrivals.datagrams().map(|(_, datagram)| datagram.to_vec()));
            arrivals.clear();
        }
        for (number, pair) in (0..300u16).zip(came.chunks(2)) {
            assert!(
                pair.concat() == [number.to_be_bytes(); 1_000].concat() && pair[0].len() == 1_500,
                "{number}"
            );
        }
        assert!(arrivals.free.len() <= MOST_SLOTS);
    }

    #[test]
    fn there_is_an_end_to_the_room() {
        let mut arrivals = Arrivals::new();
        let mut came = 0;
        while arrivals.prepare() > 0 {
            arrivals.push(from(1), 1, 1);
            came += 1;
        }
        assert_eq!(came, MOST_WAITING);
        assert_eq!(turn(&mut arrivals).0.len(), MOST_WAITING);
        assert_eq!(arrivals.prepare(), WIDTH);
    }
}
