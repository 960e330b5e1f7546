//! Queues received messages by source, and chooses which are handled next.
//!
//! This is fair queueing with a priority for sparse flows (RFC 8290 §4.1, §5.1). A flow is the messages from
//! one address.
//!
//! - A source that has sent little goes first: a look-up or a sensor's message does not wait behind a
//!   neighbour's messages. Such messages are a round of their own, so that the answers to them leave at once.
//! - The other sources get every second round at least, and share it equally, however much each sends.
//! - The messages of one source stay in order.
//! - If there is no more room, all flows are cut to one level, the newest messages first. So a source that
//!   sent most loses most.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use crate::shrink::shrink;

/// What a message weighs in addition to its bytes: about the cost of storing and handling it.
const OVERHEAD: usize = 768;
/// A source with at most this weight waiting has sent little.
const LITTLE: usize = 4 * 1024;
/// How much of a flow is handled when it is its turn: about as much as the kernel delivers at once.
const QUANTUM: usize = 64 * 1024;
/// The most weight that may wait: more than clients in a closed loop have in flight.
const MOST: usize = 16 * 1024 * 1024;
/// How much of it remains after a cut, so that there is room for a while.
const LEFT: usize = MOST / 8 * 7;

/// The waiting messages.
#[derive(Default)]
pub struct Flows {
    /// The flows that are in one of the two queues.
    flows: HashMap<SocketAddr, Flow>,
    /// Flows that had nothing waiting before.
    sparse: VecDeque<SocketAddr>,
    bulk: VecDeque<SocketAddr>,
    weight: usize,
    /// The last round contained only sources that sent little, while others waited.
    passed_over: bool,
}

#[derive(Default)]
struct Flow {
    /// Empty if all its messages were dropped.
    waiting: VecDeque<Arrived>,
    weight: usize,
    /// How much it may still take; below zero, how much it took beyond its share.
    credit: isize,
}

pub type Slot = Box<[u8]>;

/// A message: datagrams from one source, all of one length except the last, which may be shorter.
pub struct Arrived {
    pub slot: Slot,
    pub source: SocketAddr,
    pub length: usize,
    pub segment: usize,
}

impl Arrived {
    pub fn datagrams(&self) -> usize {
        self.length.div_ceil(self.segment)
    }

    fn weight(&self) -> usize {
        self.length + OVERHEAD
    }
}

impl Flows {
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Queues a message behind those of its source.
    pub fn push(&mut self, message: Arrived) {
        let flow = match self.flows.entry(message.source) {
            Entry::Occupied(flow) => flow.into_mut(),
            Entry::Vacant(place) => {
                self.sparse.push_back(message.source);
                place.insert(Flow::default())
            }
        };
        self.weight += message.weight();
        flow.weight += message.weight();
        flow.waiting.push_back(message);
    }

    /// Adds the next messages to `batch`, until they weigh `most`.
    pub fn take(&mut self, batch: &mut Vec<Arrived>, most: usize) {
        let mut taken = 0;
        while taken < most
            && let Some(source) = self.sparse.pop_front()
        {
            let sent_little = self.flows.get(&source).is_some_and(|flow| flow.weight <= LITTLE);
            if sent_little {
                taken += self.take_from(source, batch);
            } else {
                self.bulk.push_back(source);
            }
        }
        self.passed_over = taken > 0 && !self.bulk.is_empty() && !self.passed_over;
        while !self.passed_over
            && taken < most
            && let Some(source) = self.bulk.pop_front()
        {
            taken += self.take_from(source, batch);
        }
        shrink(&mut self.sparse);
        shrink(&mut self.bulk);
    }

    /// If more waits than `MOST`, moves the messages to drop into `shed`.
    pub fn shed(&mut self, shed: &mut Vec<Arrived>) {
        if self.weight <= MOST {
            return;
        }
        let level = level(self.flows.values().map(|flow| flow.weight).collect(), LEFT);
        for flow in self.flows.values_mut() {
            while flow.weight > level
                && self.weight > LEFT
                && let Some(message) = flow.waiting.pop_back()
            {
                self.weight -= message.weight();
                flow.weight -= message.weight();
                shed.push(message);
            }
        }
    }

    /// Takes a flow's share of messages. Returns their weight. If messages are left, the flow is queued again
    /// (deficit round robin).
    fn take_from(&mut self, source: SocketAddr, batch: &mut Vec<Arrived>) -> usize {
        let Some(flow) = self.flows.get_mut(&source) else {
            return 0;
        };
        let mut taken = 0;
        flow.credit += QUANTUM as isize;
        while flow.credit > 0
            && let Some(message) = flow.waiting.pop_front()
        {
            taken += message.weight();
            flow.credit -= message.weight() as isize;
            batch.push(message);
        }
        flow.weight -= taken;
        self.weight -= taken;
        if flow.waiting.is_empty() {
            self.flows.remove(&source);
        } else {
            self.bulk.push_back(source);
        }
        taken
    }
}

/// The level to which the weights are cut so that their sum is at most `most`: the largest equal share
/// (max-min fairness).
fn level(mut weights: Vec<usize>, most: usize) -> usize {
    weights.sort_unstable();
    let mut left = most;
    for (weight, sharers) in weights.iter().zip((1..=weights.len()).rev()) {
        let share = left / sharers;
        if *weight > share {
            return share;
        }
        left -= weight;
    }
    usize::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(port: u16, length: usize) -> Arrived {
        Arrived { slot: Box::default(), source: ([127, 0, 0, 1], port).into(), length, segment: length }
    }

    fn flows(messages: impl IntoIterator<Item = (u16, usize)>) -> Flows {
        let mut flows = Flows::default();
        messages.into_iter().for_each(|(port, length)| flows.push(message(port, length)));
        flows
    }

    /// Whose turn it is: the ports, and the lengths.
    fn turn(flows: &mut Flows) -> Vec<(u16, usize)> {
        let mut batch = Vec::new();
        flows.take(&mut batch, 4 * QUANTUM);
        batch.iter().map(|message| (message.source.port(), message.length)).collect()
    }

    fn all(flows: &mut Flows) -> Vec<(u16, usize)> {
        std::iter::from_fn(|| (!flows.is_empty()).then(|| turn(flows))).flatten().collect()
    }

    #[test]
    fn who_sent_little_does_not_stand_behind_a_flood_and_does_not_stop_it() {
        let mut flows = flows((0..14).map(|_| (1, 60_000)).chain([(2, 100), (2, 200)]));
        assert_eq!(turn(&mut flows), [(2, 100), (2, 200)]);
        flows.push(message(3, 100));
        let expected = [vec![(3, 100)], vec![(1, 60_000); 5]].concat();
        assert_eq!(turn(&mut flows), expected, "the flood has every second turn");
        flows.push(message(3, 200));
        assert_eq!(turn(&mut flows), [(3, 200)]);
        assert_eq!(all(&mut flows), [(1, 60_000); 9]);
        assert_eq!((flows.weight, flows.sparse.len(), flows.bulk.len()), (0, 0, 0));
    }

    #[test]
    fn floods_share_alike_and_each_stays_in_order() {
        let floods = (0..1_000).map(|i| (1, 10_000 + i)).chain((0..100).map(|i| (2, 20_000 + i)));
        let mut flows = flows(floods);
        let (mut sums, mut last) = ([0, 0], [0, 0]);
        for (port, length) in (0..8).flat_map(|_| turn(&mut flows)).collect::<Vec<_>>() {
            let flood = usize::from(port) - 1;
            assert!(length > last[flood]);
            last[flood] = length;
            sums[flood] += length;
        }
        assert!(sums[0].abs_diff(sums[1]) < QUANTUM && sums[0] > 12 * QUANTUM, "{sums:?}");
    }

    #[test]
    fn who_sent_most_loses_most_and_who_sent_little_nothing() {
        let mut flows = flows((0..300).map(|_| (1, 60_000)).chain([(2, 100)]).chain((0..20).map(|i| (3, i))));
        let mut shed = Vec::new();
        flows.shed(&mut shed);
        assert!(shed.iter().all(|message| message.source.port() == 1));
        assert!(flows.weight <= LEFT && flows.weight > LEFT - 70_000);
        let left = all(&mut flows);
        assert_eq!(left.len() + shed.len(), 321);
        shed.clear();
        flows.shed(&mut shed);
        assert!(shed.is_empty());
    }

    #[test]
    fn strangers_without_number_leave_room_too_and_nothing_behind() {
        let mut flows = flows((1..60_000).map(|port| (port, usize::from(port) % 3)));
        let mut shed = Vec::new();
        flows.shed(&mut shed);
        assert!(flows.weight <= LEFT && flows.weight > LEFT - 1_000);
        flows.push(message(shed[0].source.port(), 7));
        let left = all(&mut flows);
        assert_eq!(left.len() + shed.len(), 60_000);
        assert_eq!((flows.weight, flows.sparse.len(), flows.bulk.len()), (0, 0, 0));
        assert!(flows.sparse.capacity() < 2_000 && flows.bulk.capacity() < 2_000);
    }

    #[test]
    fn messages_without_bytes_are_not_forgotten() {
        let mut flows = flows((0..100_000).map(|_| (1, 0)));
        let mut shed = Vec::new();
        flows.shed(&mut shed);
        assert!(!shed.is_empty());
        assert_eq!(all(&mut flows).len() + shed.len(), 100_000);
    }
}
