//! What came in, and what of it is to be worked through next.
//!
//! What is soon done is worked through in order of arrival. Where more waits, the socket is emptied first, and all have turns
//! ([`Flows`]), so that a flood delays itself.

use std::net::SocketAddr;

use super::flows::Flows;
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
/// Slots; what waits where these are short is copied, to take no more room than it has bytes.
const MOST_SLOTS: usize = 2 * WIDTH;

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
    /// What the last call brought, in order of arrival.
    fresh: Vec<Arrived>,
    flows: Flows,
    batch: Vec<Arrived>,
    /// How many messages the next call may take, so that `BATCH_BYTES` are not exceeded by much.
    width: usize,
    #[cfg(target_os = "linux")]
    pub(super) names: Box<[libc::sockaddr_storage]>,
    #[cfg(target_os = "linux")]
    pub(super) controls: Box<[linux::Control]>,
}

pub type Slot = Box<[u8]>;

/// A message: datagrams from one source, all of one length but for the last, which may be shorter.
pub struct Arrived {
    pub slot: Slot,
    pub source: SocketAddr,
    pub length: usize,
    pub segment: usize,
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
            fresh: Vec::with_capacity(WIDTH),
            flows: Flows::default(),
            batch: Vec::with_capacity(WIDTH),
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

    /// Makes sure of free slots for the next call; returns how many it may fill.
    pub(super) fn prepare(&mut self) -> usize {
        while self.free.len() < self.width && self.slots < MOST_SLOTS {
            self.free.push(vec![0; SLOT_STRIDE].into_boxed_slice());
            self.slots += 1;
        }
        self.width.min(self.free.len())
    }

    /// The last free slot was filled by a message.
    pub(super) fn push(&mut self, source: SocketAddr, length: usize, segment: usize) {
        if let Some(slot) = self.free.pop() {
            self.fresh.push(Arrived { slot, source, length, segment: segment.max(1) });
        }
    }

    /// A call has ended: chooses how many messages the next may take. Returns the datagrams that it brought, and their bytes.
    pub(super) fn adapt(&mut self) -> (usize, usize) {
        let bytes = self.fresh_bytes();
        if let Some(mean) = bytes.checked_div(self.fresh.len()) {
            self.width = (BATCH_BYTES / mean.max(1)).clamp(MIN_WIDTH, WIDTH);
        }
        (self.fresh.iter().map(Arrived::datagrams).sum(), bytes)
    }

    /// What came is all to be worked through now; returns how many datagrams that are.
    pub(super) fn take_fresh(&mut self) -> usize {
        self.batch.append(&mut self.fresh);
        self.batch.iter().map(Arrived::datagrams).sum()
    }

    /// Nothing waits but what came just now, and it is soon done.
    pub(super) fn are_soon_done(&self) -> bool {
        self.flows.is_empty() && self.fresh_bytes() <= SOON_DONE
    }

    /// What came waits for its turn. Returns how many datagrams there was no room for.
    pub(super) fn queue_fresh(&mut self) -> usize {
        let mut fresh = std::mem::take(&mut self.fresh);
        for mut message in fresh.drain(..) {
            if self.free.len() + (MOST_SLOTS - self.slots) < WIDTH {
                let copy = message.slot[..message.length].into();
                self.free.push(std::mem::replace(&mut message.slot, copy));
            }
            self.flows.push(message);
        }
        self.fresh = fresh; // Its memory serves the next call.
        self.flows.shed(&mut self.batch);
        let shed = self.batch.iter().map(Arrived::datagrams).sum();
        self.clear();
        shed
    }

    /// Takes those whose turn it is.
    pub(super) fn take_turn(&mut self) -> Intake {
        self.flows.take(&mut self.batch, BATCH_BYTES);
        Intake {
            datagrams: self.batch.iter().map(Arrived::datagrams).sum(),
            may_wait: !self.flows.is_empty(),
        }
    }

    fn fresh_bytes(&self) -> usize {
        self.fresh.iter().map(|message| message.length).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_whole_wherever_it_waits() {
        let mut arrivals = Arrivals::new();
        for number in 0..300u16 {
            assert_eq!(arrivals.prepare(), WIDTH, "there is always room for a call");
            let slot = arrivals.free.last_mut().unwrap();
            slot[..2_000].copy_from_slice(&[number.to_be_bytes(); 1_000].concat());
            arrivals.push(([127, 0, 0, 1], 1).into(), 2_000, 1_500);
            assert_eq!(arrivals.queue_fresh(), 0);
        }
        assert!(arrivals.slots <= MOST_SLOTS);
        let mut came = Vec::new();
        while came.len() < 600 {
            let Intake { datagrams, .. } = arrivals.take_turn();
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
        assert!(arrivals.free.len() == arrivals.slots && arrivals.slots <= MOST_SLOTS);
    }

    #[test]
    fn what_there_is_no_room_for_gives_its_slot_back() {
        let mut arrivals = Arrivals::new();
        let mut shed = 0;
        for _ in 0..2_000 {
            assert_eq!(arrivals.prepare(), WIDTH);
            arrivals.push(([127, 0, 0, 1], 1).into(), 60_000, 1_500);
            shed += arrivals.queue_fresh();
        }
        let mut left = 0;
        while !arrivals.flows.is_empty() {
            left += arrivals.take_turn().datagrams;
            arrivals.clear();
        }
        assert_eq!(shed + left, 2_000 * 40);
        assert!((200 * 40..300 * 40).contains(&left), "{left}");
        assert_eq!(arrivals.free.len(), arrivals.slots);
    }

    #[test]
    fn what_is_soon_done_is_worked_through_as_it_came() {
        let mut arrivals = Arrivals::new();
        arrivals.prepare();
        for port in [1, 2, 1, 3] {
            arrivals.push(([127, 0, 0, 1], port).into(), 15_000, 15_000);
        }
        assert!(arrivals.are_soon_done());
        assert_eq!(arrivals.take_fresh(), 4);
        let ports: Vec<_> = arrivals.datagrams().map(|(source, _)| source.port()).collect();
        assert_eq!(ports, [1, 2, 1, 3]);
    }
}
