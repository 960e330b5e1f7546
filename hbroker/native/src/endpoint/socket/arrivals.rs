//! The received datagrams, and which of them are handled next.
//!
//! If little has arrived it is handled in order of arrival. If more is waiting, the socket is emptied first,
//! and the sources take turns ([`Flows`]), so that a flood delays only itself.

use std::net::SocketAddr;

use super::flows::{Arrived, Flows, Slot};
use super::{Control, no_name};

/// The most messages in one system call.
pub const WIDTH: usize = 32;
/// The size of the largest UDP message, GRO included.
pub const SLOT_BYTES: usize = 65_536;
/// The distance of slots is not a power of two, because then they would compete for the same cache lines.
const SLOT_STRIDE: usize = SLOT_BYTES + 33 * 64;
/// How many bytes are handled at once, so that they stay in the cache until then.
const BATCH_BYTES: usize = 256 * 1024;
const MIN_WIDTH: usize = 4;
/// At most this many bytes count as little.
const SOON_DONE: usize = 64 * 1024;
/// The most slots. When slots become short, waiting messages are copied into buffers of their size.
const MOST_SLOTS: usize = 2 * WIDTH;

/// The result of receiving.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Intake {
    pub datagrams: usize,
    /// More may be waiting: the call returned as much as it could, or was interrupted.
    pub may_wait: bool,
}

/// The received datagrams. Its memory is used again and again.
pub struct Arrivals {
    /// Empty slots. The last is used next.
    pub(super) free: Vec<Slot>,
    slots: usize,
    /// The messages of the last call, in order of arrival.
    fresh: Vec<Arrived>,
    flows: Flows,
    batch: Vec<Arrived>,
    /// How many messages the next call may return, so that they exceed `BATCH_BYTES` by little.
    width: usize,
    pub(super) names: Box<[libc::sockaddr_storage]>,
    pub(super) controls: Box<[Control]>,
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
            names: vec![no_name(); WIDTH].into_boxed_slice(),
            controls: vec![Control::EMPTY; WIDTH].into_boxed_slice(),
        }
    }

    /// The datagrams to handle now, with their sources. Those of each source are in order of arrival.
    pub fn datagrams(&mut self) -> impl Iterator<Item = (SocketAddr, &mut [u8])> {
        self.batch.iter_mut().flat_map(|message| {
            let Arrived { slot, source, length, segment } = message;
            let datagrams = slot[..*length].chunks_mut(*segment);
            datagrams.map(|datagram| (*source, datagram))
        })
    }

    /// The bytes of these datagrams.
    pub fn bytes(&self) -> usize {
        self.batch.iter().map(|message| message.length).sum()
    }

    /// Drops these datagrams.
    pub fn clear(&mut self) {
        let slots = self.batch.drain(..).rev().map(|message| message.slot);
        self.free.extend(slots.filter(|slot| slot.len() == SLOT_STRIDE));
    }

    /// Provides free slots for the next call. Returns how many it may fill.
    pub(super) fn prepare(&mut self) -> usize {
        while self.free.len() < self.width && self.slots < MOST_SLOTS {
            self.free.push(vec![0; SLOT_STRIDE].into_boxed_slice());
            self.slots += 1;
        }
        self.width.min(self.free.len())
    }

    /// Records that a message has filled the last free slot.
    pub(super) fn push(&mut self, source: SocketAddr, length: usize, segment: usize) {
        if let Some(slot) = self.free.pop() {
            self.fresh.push(Arrived { slot, source, length, segment: segment.max(1) });
        }
    }

    /// A call has ended: chooses how many messages the next may return. Returns the datagrams and bytes of
    /// this call.
    pub(super) fn adapt(&mut self) -> (usize, usize) {
        let bytes = self.fresh_bytes();
        if let Some(mean) = bytes.checked_div(self.fresh.len()) {
            self.width = (BATCH_BYTES / mean.max(1)).clamp(MIN_WIDTH, WIDTH);
        }
        (self.fresh.iter().map(Arrived::datagrams).sum(), bytes)
    }

    /// Everything that arrived is to be handled now. Returns how many datagrams that are.
    pub(super) fn take_fresh(&mut self) -> usize {
        self.batch.append(&mut self.fresh);
        self.batch.iter().map(Arrived::datagrams).sum()
    }

    /// Whether nothing was waiting before, and little has arrived.
    pub(super) fn are_soon_done(&self) -> bool {
        self.flows.is_empty() && self.fresh_bytes() <= SOON_DONE
    }

    /// Queues what arrived by source. Returns how many datagrams were dropped because there was no room.
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

    /// Takes the datagrams to handle now out of the queues.
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
