//! The reliable packets that one end of a link receives (docs/protocol.md §3.3).
//!
//! Each is handed on once, and not before the one that it names as its predecessor; what comes too early is held. So
//! a loss holds back its own chain and no other. Numbers have no gaps, and a peer keeps no more than a window of them
//! unacknowledged, so the state of all that is not settled fits one queue of slots, indexed by number.

use std::collections::VecDeque;

use crate::link::delivery::WINDOW;

/// Bytes held for one link. More is refused, not acknowledged, and so comes again.
const HELD_BYTES: usize = 4 << 20;

/// What becomes of a reliable packet that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receipt {
    /// It is next: hand it on, then drain `next_released`.
    Deliver,
    /// It was copied, and comes out of `next_released` once the packet that it follows was handed on.
    Held,
    /// It was handed on, or is held.
    Duplicate,
    /// There is no room: its datagram must not be acknowledged.
    Refused,
}

/// Puts what arrived into the order of its chains.
#[derive(Debug, Default)]
pub struct Arrivals {
    /// Every number up to here was handed on.
    settled: u64,
    /// The slots of the numbers above.
    slots: VecDeque<Slot>,
    released: VecDeque<Box<[u8]>>,
    held_bytes: usize,
}

#[derive(Debug, Default)]
struct Slot {
    state: State,
    /// The head of the list of held packets that name this one as predecessor; 0: none.
    first_follower: u64,
    /// The next in the list that this packet is in.
    next_follower: u64,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Missing,
    Held(Box<[u8]>),
    HandedOn,
}

impl Arrivals {
    /// Every packet up to this one was handed on, and no other came.
    pub fn after(settled: u64) -> Self {
        Self { settled, ..Self::default() }
    }

    /// Takes in the packet `raw`. Refuses while released packets wait: those come first.
    pub fn receive(&mut self, delivery: u64, after: u64, raw: &[u8]) -> Receipt {
        if self.is_known(delivery) {
            return Receipt::Duplicate;
        }
        if delivery - self.settled > WINDOW || !self.released.is_empty() {
            return Receipt::Refused;
        }
        // A predecessor that is not an earlier packet breaks the protocol: it is taken for none.
        if after >= delivery || self.is_handed_on(after) {
            self.hand_on(delivery);
            return Receipt::Deliver;
        }
        if self.held_bytes + raw.len() > HELD_BYTES {
            return Receipt::Refused;
        }
        self.hold(delivery, after, raw);
        Receipt::Held
    }

    /// Whether this packet is next, and none behind it is here.
    pub fn is_next(&self, delivery: u64) -> bool {
        delivery == self.settled + 1 && self.slots.is_empty() && self.released.is_empty()
    }

    /// Takes in so many packets, the first of which `is_next`: they are handed on. (What each names as its predecessor was handed on, or
    /// is before it among these, or breaks the protocol.)
    pub fn receive_next(&mut self, count: u64) {
        debug_assert!(self.is_next(self.settled + 1));
        self.settled += count;
    }

    /// The packet that `next_released` would give.
    pub fn peek_released(&self) -> Option<&[u8]> {
        self.released.front().map(|raw| &**raw)
    }

    /// The next packet whose predecessor was handed on.
    pub fn next_released(&mut self) -> Option<Box<[u8]>> {
        let raw = self.released.pop_front()?;
        self.held_bytes -= raw.len();
        Some(raw)
    }

    /// The last packet that was handed on; None: there are others.
    pub fn at_rest(&self) -> Option<u64> {
        (self.slots.is_empty() && self.released.is_empty()).then_some(self.settled)
    }

    fn is_known(&self, delivery: u64) -> bool {
        delivery <= self.settled || !matches!(self.state(delivery), State::Missing)
    }

    fn is_handed_on(&self, delivery: u64) -> bool {
        delivery <= self.settled || matches!(self.state(delivery), State::HandedOn)
    }

    fn hold(&mut self, delivery: u64, after: u64, raw: &[u8]) {
        self.held_bytes += raw.len();
        let next_follower = std::mem::replace(&mut self.slot(after).first_follower, delivery);
        let slot = self.slot(delivery);
        slot.state = State::Held(raw.into());
        slot.next_follower = next_follower;
    }

    /// Marks a packet as handed on, and releases all that followed it, directly or not.
    fn hand_on(&mut self, delivery: u64) {
        if delivery == self.settled + 1 && self.slots.is_empty() {
            self.settled = delivery;
            return;
        }
        self.slot(delivery).state = State::HandedOn;
        let mut handed_on = vec![delivery];
        while let Some(predecessor) = handed_on.pop() {
            let mut next = self.slot(predecessor).first_follower;
            while next != 0 {
                let slot = self.slot(next);
                if let State::Held(raw) = std::mem::replace(&mut slot.state, State::HandedOn) {
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
    use super::*;

    fn released(arrivals: &mut Arrivals) -> Vec<u8> {
        std::iter::from_fn(|| arrivals.next_released()).map(|raw| raw[0]).collect()
    }

    #[test]
    fn a_chain_waits_for_its_predecessor_and_another_does_not() {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.receive(3, 1, b"c"), Receipt::Held);
        assert_eq!(arrivals.receive(4, 3, b"d"), Receipt::Held);
        assert_eq!(arrivals.receive(2, 0, b"b"), Receipt::Deliver);
        assert_eq!(released(&mut arrivals), b"");
        assert_eq!(arrivals.receive(3, 1, b"c"), Receipt::Duplicate);
        assert_eq!(arrivals.receive(2, 0, b"b"), Receipt::Duplicate);
        assert_eq!(arrivals.receive(1, 0, b"a"), Receipt::Deliver);
        assert_eq!(released(&mut arrivals), b"cd");
        assert_eq!((arrivals.settled, arrivals.slots.len(), arrivals.held_bytes), (4, 0, 0));
        assert_eq!(arrivals.receive(4, 3, b"d"), Receipt::Duplicate);
    }

    #[test]
    fn a_hostile_peer_finds_bounds() {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.receive(WINDOW + 1, 0, b"x"), Receipt::Refused);
        assert_eq!(arrivals.receive(u64::MAX, u64::MAX, b"x"), Receipt::Refused);
        assert_eq!(arrivals.receive(WINDOW, WINDOW, b"x"), Receipt::Deliver, "follows itself");
        assert_eq!(arrivals.receive(2, 3, b"x"), Receipt::Deliver, "follows a later one");
        let large = vec![0; 60_000];
        let mut held = 0;
        while arrivals.receive(3 + held, 1, &large) == Receipt::Held {
            held += 1;
        }
        assert!(held as usize * large.len() <= HELD_BYTES && held > 50);
        assert_eq!(arrivals.receive(1, 0, &large), Receipt::Deliver, "what releases others is never refused");
        assert_eq!(std::iter::from_fn(|| arrivals.next_released()).count() as u64, held);
        assert_eq!(arrivals.held_bytes, 0);
    }

    #[test]
    fn a_run_is_next_where_nothing_is_missing_and_nothing_waits() {
        let mut arrivals = Arrivals::default();
        assert!(arrivals.is_next(1) && !arrivals.is_next(2) && !arrivals.is_next(0));
        arrivals.receive_next(5);
        assert_eq!(arrivals.receive(5, 4, b"e"), Receipt::Duplicate);
        assert_eq!(arrivals.receive(7, 6, b"g"), Receipt::Held);
        assert!(!arrivals.is_next(6), "what waits for it is to be released");
        assert_eq!(arrivals.receive(6, 5, b"f"), Receipt::Deliver);
        assert!(!arrivals.is_next(8), "what was released comes first");
        assert_eq!(released(&mut arrivals), b"g");
        assert!(arrivals.is_next(8));
        arrivals.receive_next(1);
        assert_eq!((arrivals.settled, arrivals.receive(9, 8, b"i")), (8, Receipt::Deliver));
    }

    #[test]
    fn what_was_released_comes_before_what_arrives() {
        let mut arrivals = Arrivals::default();
        arrivals.receive(2, 1, b"b");
        arrivals.receive(1, 0, b"a");
        assert_eq!(arrivals.receive(3, 2, b"c"), Receipt::Refused, "b is not handed on yet");
        assert_eq!(released(&mut arrivals), b"b");
        assert_eq!(arrivals.receive(3, 2, b"c"), Receipt::Deliver);
    }
}
