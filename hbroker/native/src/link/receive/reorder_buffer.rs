//! The reliable packets that one end of a link receives (docs/protocol.md §3.3).
//!
//! Each is delivered once, and not before its predecessor. A packet that arrives out of order is buffered. So
//! a loss delays its own chain and no other. Numbers have no gaps, and a peer keeps at most a window of them
//! unacknowledged. So the state of all packets that are not settled fits one queue of slots, indexed by
//! number.

use std::collections::VecDeque;

use crate::link::send::delivery::WINDOW;
use crate::shrink::shrink;

/// The most bytes that are buffered for one link, with the cost of keeping them.
const BUFFERED_BYTES: usize = 4 << 20;

/// The cost of remembering whether one number was received.
const SLOT: usize = size_of::<Slot>();

/// The result for a received reliable packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiveOutcome {
    /// It is next: deliver it, then empty `next_released`.
    Deliver,
    /// It was copied, and `next_released` returns it once its predecessor was delivered.
    Buffered,
    /// It was delivered before, or is buffered.
    Duplicate,
    /// It may not arrive now: its datagram must not be acknowledged.
    Refused,
    /// It arrived out of order, and there is no room for it. As `Refused`.
    NoRoom,
}

/// Puts received packets into the order of their chains.
#[derive(Debug, Default)]
pub struct ReorderBuffer {
    /// Every number up to here was delivered.
    settled: u64,
    /// The slots of the numbers above.
    slots: VecDeque<Slot>,
    released: VecDeque<Box<[u8]>>,
    /// The bytes of the packets that are buffered or released.
    raw_bytes: usize,
}

#[derive(Debug, Default)]
struct Slot {
    state: State,
    /// The head of the list of buffered packets that name this one as predecessor; 0: none.
    first_follower: u64,
    /// The next packet in the list that this packet is in.
    next_follower: u64,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Missing,
    Buffered(Box<[u8]>),
    HandedOn,
}

impl ReorderBuffer {
    /// Every packet up to this one was delivered, and no other was received.
    pub fn after(settled: u64) -> Self {
        Self { settled, ..Self::default() }
    }

    /// Takes in the packet `raw`. Refuses while released packets wait, because those come first. `has_room`
    /// returns whether there is room for this number of bytes in addition to [`Self::buffered_bytes`]. A
    /// packet that others wait for needs no room.
    pub fn receive(
        &mut self,
        delivery: u64,
        after: u64,
        raw: &[u8],
        has_room: impl FnOnce(usize) -> bool,
    ) -> ReceiveOutcome {
        if self.is_known(delivery) {
            return ReceiveOutcome::Duplicate;
        }
        if delivery - self.settled > WINDOW || !self.released.is_empty() {
            return ReceiveOutcome::Refused;
        }
        if self.is_next(delivery) {
            self.settled = delivery;
            return ReceiveOutcome::Deliver;
        }
        // A predecessor that is not an earlier packet violates the protocol, and is ignored.
        let is_due = after >= delivery || self.is_handed_on(after);
        let need = self.slots_for(delivery) * SLOT + if is_due { 0 } else { raw.len() };
        if need > 0 && (self.buffered_bytes() + need > BUFFERED_BYTES || !has_room(need)) {
            return ReceiveOutcome::NoRoom;
        }
        if is_due {
            self.hand_on(delivery);
            return ReceiveOutcome::Deliver;
        }
        self.hold(delivery, after, raw);
        ReceiveOutcome::Buffered
    }

    /// The bytes of packets that arrived out of order, with the cost of remembering which numbers were
    /// received.
    pub fn buffered_bytes(&self) -> usize {
        self.raw_bytes + self.slots.len() * SLOT
    }

    /// Whether this packet is the next, and no later one has been received.
    pub fn is_next(&self, delivery: u64) -> bool {
        delivery == self.settled + 1 && self.slots.is_empty() && self.released.is_empty()
    }

    /// Delivers `count` packets, of which the first `is_next`. (The predecessor of each was delivered, or is
    /// one of them, or violates the protocol.)
    pub fn receive_next(&mut self, count: u64) {
        debug_assert!(self.is_next(self.settled + 1));
        self.settled += count;
    }

    /// The packet that `next_released` would return.
    pub fn peek_released(&self) -> Option<&[u8]> {
        self.released.front().map(|raw| &**raw)
    }

    /// The next packet whose predecessor was delivered.
    pub fn next_released(&mut self) -> Option<Box<[u8]>> {
        let raw = self.released.pop_front()?;
        self.raw_bytes -= raw.len();
        Some(raw)
    }

    /// The last packet that was delivered. `None`: others have been received.
    pub fn idle_state(&self) -> Option<u64> {
        (self.slots.is_empty() && self.released.is_empty()).then_some(self.settled)
    }

    fn is_known(&self, delivery: u64) -> bool {
        delivery <= self.settled || !matches!(self.state(delivery), State::Missing)
    }

    fn is_handed_on(&self, delivery: u64) -> bool {
        delivery <= self.settled || matches!(self.state(delivery), State::HandedOn)
    }

    fn hold(&mut self, delivery: u64, after: u64, raw: &[u8]) {
        self.raw_bytes += raw.len();
        let next_follower = std::mem::replace(&mut self.slot(after).first_follower, delivery);
        let slot = self.slot(delivery);
        slot.state = State::Buffered(raw.into());
        slot.next_follower = next_follower;
    }

    /// Marks a packet as delivered, and releases all that follow it, directly or not.
    fn hand_on(&mut self, delivery: u64) {
        self.slot(delivery).state = State::HandedOn;
        let mut handed_on = vec![delivery];
        while let Some(predecessor) = handed_on.pop() {
            let mut next = self.slot(predecessor).first_follower;
            while next != 0 {
                let slot = self.slot(next);
                if let State::Buffered(raw) = std::mem::replace(&mut slot.state, State::HandedOn) {
                    handed_on.push(next);
                    next = slot.next_follower;
                    self.released.push_back(raw);
                }
            }
        }
        while self.slots.front().is_some_and(|slot| matches!(slot.state, State::HandedOn)) {
            self.slots.pop_front();
            self.settled += 1;
        }
        shrink(&mut self.slots);
    }

    /// How many more slots there are once this packet has one.
    fn slots_for(&self, delivery: u64) -> usize {
        (self.index(delivery) + 1).saturating_sub(self.slots.len())
    }

    fn state(&self, delivery: u64) -> &State {
        self.slots.get(self.index(delivery)).map_or(&State::Missing, |slot| &slot.state)
    }

    /// The slot of a number above `settled` and within the window.
    fn slot(&mut self, delivery: u64) -> &mut Slot {
        let index = self.index(delivery);
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, Slot::default);
        }
        &mut self.slots[index]
    }

    fn index(&self, delivery: u64) -> usize {
        usize::try_from(delivery - self.settled - 1).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    impl ReorderBuffer {
        /// Takes in a packet, with room for all.
        fn take(&mut self, delivery: u64, after: u64, raw: &[u8]) -> ReceiveOutcome {
            self.receive(delivery, after, raw, |_| true)
        }
    }

    fn released(arrivals: &mut ReorderBuffer) -> Vec<u8> {
        std::iter::from_fn(|| arrivals.next_released()).map(|raw| raw[0]).collect()
    }

    #[test]
    fn a_chain_waits_for_its_predecessor_and_another_does_not() {
        let mut arrivals = ReorderBuffer::default();
        assert_eq!(arrivals.take(3, 1, b"c"), ReceiveOutcome::Buffered);
        assert_eq!(arrivals.take(4, 3, b"d"), ReceiveOutcome::Buffered);
        assert_eq!(arrivals.take(2, 0, b"b"), ReceiveOutcome::Deliver);
        assert_eq!(released(&mut arrivals), b"");
        assert_eq!(arrivals.take(3, 1, b"c"), ReceiveOutcome::Duplicate);
        assert_eq!(arrivals.take(2, 0, b"b"), ReceiveOutcome::Duplicate);
        assert_eq!(arrivals.take(1, 0, b"a"), ReceiveOutcome::Deliver);
        assert_eq!(released(&mut arrivals), b"cd");
        assert_eq!((arrivals.settled, arrivals.slots.len(), arrivals.buffered_bytes()), (4, 0, 0));
        assert_eq!(arrivals.take(4, 3, b"d"), ReceiveOutcome::Duplicate);
    }

    #[test]
    fn a_hostile_peer_finds_bounds() {
        let mut arrivals = ReorderBuffer::default();
        assert_eq!(arrivals.take(WINDOW + 1, 0, b"x"), ReceiveOutcome::Refused);
        assert_eq!(arrivals.take(u64::MAX, u64::MAX, b"x"), ReceiveOutcome::Refused);
        assert_eq!(arrivals.take(WINDOW, WINDOW, b"x"), ReceiveOutcome::Deliver, "follows itself");
        assert_eq!(arrivals.take(2, 3, b"x"), ReceiveOutcome::Deliver, "follows a later one");
        let large = vec![0; 60_000];
        let mut held = 0;
        while arrivals.take(3 + held, 1, &large) == ReceiveOutcome::Buffered {
            held += 1;
        }
        assert!(arrivals.buffered_bytes() <= BUFFERED_BYTES && held > 50);
        assert_eq!(
            arrivals.take(1, 0, &large),
            ReceiveOutcome::Deliver,
            "what releases others is never refused"
        );
        assert_eq!(std::iter::from_fn(|| arrivals.next_released()).count() as u64, held);
        assert_eq!(arrivals.raw_bytes, 0);
    }

    #[test]
    fn a_run_is_next_where_nothing_is_missing_and_nothing_waits() {
        let mut arrivals = ReorderBuffer::default();
        assert!(arrivals.is_next(1) && !arrivals.is_next(2) && !arrivals.is_next(0));
        arrivals.receive_next(5);
        assert_eq!(arrivals.take(5, 4, b"e"), ReceiveOutcome::Duplicate);
        assert_eq!(arrivals.take(7, 6, b"g"), ReceiveOutcome::Buffered);
        assert!(!arrivals.is_next(6), "what waits for it is to be released");
        assert_eq!(arrivals.take(6, 5, b"f"), ReceiveOutcome::Deliver);
        assert!(!arrivals.is_next(8), "what was released comes first");
        assert_eq!(released(&mut arrivals), b"g");
        assert!(arrivals.is_next(8));
        arrivals.receive_next(1);
        assert_eq!((arrivals.settled, arrivals.take(9, 8, b"i")), (8, ReceiveOutcome::Deliver));
    }

    #[test]
    fn where_there_is_no_room_what_is_due_comes_all_the_same_and_all_in_the_end() {
        for seed in 0..200 {
            let mut random = SmallRng::seed_from_u64(seed);
            let after: Vec<u64> = (0..200).map(|number| random.random_range(0..=number)).collect();
            let (mut arrivals, mut handed_on, mut refused) = (ReorderBuffer::default(), vec![0], 0);
            let room = random.random_range(0..40 * SLOT);
            while handed_on.len() <= after.len() {
                let delivery = random.random_range(1..=after.len() as u64);
                let held = arrivals.buffered_bytes();
                let has_room = |more| held + more <= room;
                let predecessor = after[delivery as usize - 1];
                match arrivals.receive(delivery, predecessor, &[delivery as u8], has_room) {
                    ReceiveOutcome::Deliver => handed_on.push(delivery),
                    ReceiveOutcome::NoRoom => refused += 1,
                    ReceiveOutcome::Buffered | ReceiveOutcome::Duplicate => {}
                    ReceiveOutcome::Refused => unreachable!("all is released"),
                }
                assert!(arrivals.buffered_bytes() <= room, "seed {seed}");
                let numbers = |raw: Box<[u8]>| u64::from(raw[0]);
                handed_on.extend(std::iter::from_fn(|| arrivals.next_released()).map(numbers));
            }
            let place = |number| handed_on.iter().position(|&other| other == number);
            assert!((1..).zip(&after).all(|(number, &before)| place(before) < place(number)), "seed {seed}");
            assert!(refused > 0 || room > 0, "seed {seed}");
            assert_eq!((arrivals.settled, arrivals.buffered_bytes()), (200, 0), "seed {seed}");
        }
    }

    #[test]
    fn numbers_far_ahead_cost_room_though_nothing_of_them_is_held() {
        let mut arrivals = ReorderBuffer::default();
        let mut asked = 0;
        let refuse = |need| {
            asked = need;
            false
        };
        assert_eq!(arrivals.receive(WINDOW, 0, b"x", refuse), ReceiveOutcome::NoRoom);
        assert_eq!((asked, arrivals.buffered_bytes()), (WINDOW as usize * SLOT, 0));
        assert_eq!(arrivals.take(WINDOW, 0, b"x"), ReceiveOutcome::Deliver);
        assert_eq!(arrivals.buffered_bytes(), WINDOW as usize * SLOT);
        let nothing = |_| unreachable!("it needs no room");
        assert_eq!(arrivals.receive(1, 0, b"a", nothing), ReceiveOutcome::Deliver, "others wait for it");
    }

    #[test]
    fn what_was_released_comes_before_what_arrives() {
        let mut arrivals = ReorderBuffer::default();
        arrivals.take(2, 1, b"b");
        arrivals.take(1, 0, b"a");
        assert_eq!(arrivals.take(3, 2, b"c"), ReceiveOutcome::Refused, "b is not handed on yet");
        assert_eq!(released(&mut arrivals), b"b");
        assert_eq!(arrivals.take(3, 2, b"c"), ReceiveOutcome::Deliver);
    }
}
