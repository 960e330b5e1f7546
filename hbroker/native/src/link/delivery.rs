//! The reliable packets that one end of a link sends (docs/protocol.md §3.3).
//!
//! They are numbered from 1 without gaps. Each keeps its body until a datagram that carried it is acknowledged, and
//! each names the packet of its chain before it, unless the whole chain was acknowledged when it was queued: the receiver hands
//! it on after that one. (That the one before is acknowledged is not enough: it may be held behind one that is missing.) What is lost is sent again as a packet, in whatever datagram leaves next, never as the datagram that it was in.

use std::collections::VecDeque;

use bytes::Bytes;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::broken::Defect;
use crate::wire;

/// Deliveries that may be sent and not acknowledged, from the oldest (§9).
pub const WINDOW: u64 = 4_096;

/// Which earlier packet a reliable one follows (§3.3).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Chain {
    /// All packets but PUBLISH.
    #[default]
    Control,
    /// The messages of one publisher and topic, by a hash of both. (Two that collide are merely one chain.)
    Topic(u64),
    /// This delivery, whose outcome is not known yet to a sender who keeps the order of his messages himself; 0: none.
    After(u64),
}

/// What a packet costs beside its body.
const RECORD_BYTES: usize = size_of::<Delivery>();

/// The deliveries queued or sent, and not acknowledged.
#[derive(Debug, Default)]
pub struct Deliveries {
    /// How many numbers were acknowledged and forgotten: the number of the first record, less one.
    settled: u64,
    records: VecDeque<Delivery>,
    /// How many numbers were sent at least once.
    sent: u64,
    /// To be sent again, in the order in which it was noticed. Some may have been acknowledged since.
    again: VecDeque<u64>,
    /// The end of each chain that has a delivery outstanding, but for `current`.
    tails: HashMap<Chain, Tail>,
    /// The chain that grew twice in succession: it most often goes on.
    current: Chain,
    current_tail: Tail,
    bytes: usize,
    retransmits: u64,
}

#[derive(Debug, Default)]
struct Tail {
    /// The chain's last delivery.
    last: u64,
    /// How many of the chain are not acknowledged.
    outstanding: u32,
}

#[derive(Debug)]
struct Delivery {
    body_field: Bytes,
    chain: Chain,
    after: u64,
    retained_for: Option<u64>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    /// The newest datagram that carries it.
    InFlight(u64),
    /// In the queue `again`.
    Again,
    Acknowledged,
}

impl Deliveries {
    /// Numbers a packet. Its turn to be sent is the caller's to keep.
    pub fn push(&mut self, chain: Chain, body_field: Bytes, retained_for: Option<u64>) -> u64 {
        let number = self.settled + self.records.len() as u64 + 1;
        let after = match chain {
            _ if Defect::KeepsNoOrder.is_present() => 0,
            Chain::After(before) => before,
            Chain::Control | Chain::Topic(_) => {
                let tail = self.tail(chain);
                tail.outstanding += 1;
                std::mem::replace(&mut tail.last, number)
            }
        };
        self.bytes += body_field.len() + RECORD_BYTES;
        self.records.push_back(Delivery { body_field, chain, after, retained_for, state: State::Waiting });
        number
    }

    /// The next delivery to be sent again.
    pub fn next_again(&mut self) -> Option<u64> {
        while let Some(&number) = self.again.front() {
            if self.record(number).is_some_and(|delivery| delivery.state == State::Again) {
                return Some(number);
            }
            self.again.pop_front();
        }
        None
    }

    /// The next delivery that was never sent, if there is one and the window has room for it.
    pub fn next_fresh(&self) -> Option<u64> {
        let number = self.sent + 1;
        (self.sent - self.settled < WINDOW && self.record(number).is_some()).then_some(number)
    }

    /// The newest delivery that was ever sent.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// The size of a delivery as a packet of a datagram.
    pub fn encoded_len(&self, number: u64) -> usize {
        self.record(number).map_or(0, |delivery| {
            wire::packet_len(number, delivery.after, delivery.retained_for, delivery.body_field.len())
        })
    }

    /// Puts a delivery, which `next_again` or `next_fresh` gave, into a datagram.
    pub fn seal(&mut self, out: &mut Vec<u8>, number: u64, datagram: u64) {
        let Some(delivery) = self.record_mut(number) else {
            return;
        };
        wire::put_packet(out, number, delivery.after, delivery.retained_for, &delivery.body_field);
        delivery.state = State::InFlight(datagram);
        if number > self.sent {
            self.sent = number;
        } else {
            self.again.pop_front();
            self.retransmits += 1;
        }
    }

    /// A datagram that carried those from `first` to `last` was acknowledged.
    pub fn on_acknowledged(&mut self, first: u64, last: u64) {
        for number in first.max(self.settled + 1)..=last {
            let Some(delivery) = self.record_mut(number) else {
                break;
            };
            if delivery.state != State::Acknowledged {
                delivery.state = State::Acknowledged;
                let chain = delivery.chain;
                self.bytes -= std::mem::take(&mut delivery.body_field).len() + RECORD_BYTES;
                self.shorten(chain);
            }
        }
        while self.records.front().is_some_and(|delivery| delivery.state == State::Acknowledged) {
            self.records.pop_front();
            self.settled += 1;
        }
    }

    /// This datagram, which carried it, was lost. (A newer one may carry it too.)
    pub fn on_lost(&mut self, number: u64, datagram: u64) {
        if let Some(delivery) = self.record_mut(number)
            && delivery.state == State::InFlight(datagram)
            && !Defect::SendsOnce.is_present()
        {
            delivery.state = State::Again;
            self.again.push_back(number);
        }
    }

    /// Sends it again, if it is unacknowledged, although no datagram was found lost.
    pub fn probe(&mut self, number: u64) {
        if let Some(delivery) = self.record_mut(number)
            && matches!(delivery.state, State::InFlight(_))
            && !Defect::SendsOnce.is_present()
        {
            delivery.state = State::Again;
            self.again.push_back(number);
        }
    }

    /// Bytes of the packets that are kept, and of their records.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How often a packet was sent again.
    pub fn retransmits(&self) -> u64 {
        self.retransmits
    }

    /// Whether all are acknowledged.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The end of a chain, which grows.
    fn tail(&mut self, chain: Chain) -> &mut Tail {
        let grows_again = self.records.back().is_some_and(|delivery| delivery.chain == chain);
        if chain != self.current {
            if !grows_again {
                return self.tails.entry(chain).or_default();
            }
            let tail = self.tails.remove(&chain).unwrap_or_default();
            let (before, before_tail) = (
                std::mem::replace(&mut self.current, chain),
                std::mem::replace(&mut self.current_tail, tail),
            );
            if before_tail.outstanding > 0 {
                self.tails.insert(before, before_tail);
            }
        }
        &mut self.current_tail
    }

    /// One more of a chain is acknowledged.
    fn shorten(&mut self, chain: Chain) {
        if matches!(chain, Chain::After(_)) {
            return;
        }
        if chain == self.current {
            self.current_tail.outstanding -= 1;
            if self.current_tail.outstanding == 0 {
                self.current_tail = Tail::default();
            }
        } else if let Entry::Occupied(mut tail) = self.tails.entry(chain) {
            tail.get_mut().outstanding -= 1;
            if tail.get().outstanding == 0 {
                tail.remove();
            }
        }
    }

    fn record(&self, number: u64) -> Option<&Delivery> {
        self.records.get(self.index(number)?)
    }

    fn record_mut(&mut self, number: u64) -> Option<&mut Delivery> {
        let index = self.index(number)?;
        self.records.get_mut(index)
    }

    fn index(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.settled + 1)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(chains: &[Chain]) -> Deliveries {
        let mut deliveries = Deliveries::default();
        for &chain in chains {
            deliveries.push(chain, Bytes::from_static(b"\x7a\x00"), None);
        }
        deliveries
    }

    fn send_fresh(deliveries: &mut Deliveries, datagram: u64) -> Option<u64> {
        let number = deliveries.next_fresh()?;
        let mut out = Vec::new();
        deliveries.seal(&mut out, number, datagram);
        Some(number)
    }

    #[test]
    fn each_follows_the_one_before_until_the_whole_chain_is_acknowledged() {
        let mut deliveries = with(&[Chain::Topic(7), Chain::Control, Chain::Topic(7), Chain::Control]);
        let after: Vec<_> = deliveries.records.iter().map(|delivery| delivery.after).collect();
        assert_eq!(after, [0, 0, 1, 2]);
        deliveries.on_acknowledged(3, 3);
        deliveries.push(Chain::Topic(7), Bytes::new(), None);
        assert_eq!(deliveries.records[4].after, 3, "3 may be held at the receiver: 1 is not acknowledged");
        deliveries.on_acknowledged(1, 1);
        deliveries.on_acknowledged(5, 5);
        assert!(deliveries.tails.is_empty() && deliveries.current_tail.outstanding == 2);
        deliveries.push(Chain::Topic(7), Bytes::new(), None);
        assert_eq!(deliveries.records.back().map(|delivery| delivery.after), Some(0));
    }

    #[test]
    fn the_window_counts_from_the_oldest_unacknowledged() {
        let mut deliveries = with(&vec![Chain::Control; 5_000]);
        while send_fresh(&mut deliveries, 1).is_some() {}
        assert_eq!(deliveries.sent, WINDOW);
        deliveries.on_acknowledged(2, 2);
        assert_eq!(deliveries.next_fresh(), None, "1 is still out");
        deliveries.on_acknowledged(1, 1);
        assert_eq!(deliveries.next_fresh(), Some(WINDOW + 1));
    }

    #[test]
    fn only_the_newest_carriers_loss_sends_again() {
        let mut deliveries = with(&[Chain::Control]);
        send_fresh(&mut deliveries, 10);
        deliveries.probe(1);
        assert_eq!(deliveries.next_again(), Some(1));
        deliveries.seal(&mut Vec::new(), 1, 11);
        deliveries.on_lost(1, 10);
        assert_eq!(deliveries.next_again(), None, "datagram 11 carries it still");
        deliveries.on_lost(1, 11);
        assert_eq!(deliveries.next_again(), Some(1));
        deliveries.on_acknowledged(1, 1);
        assert_eq!(deliveries.next_again(), None, "a late acknowledgement spares the repetition");
        assert!(deliveries.is_empty() && deliveries.bytes() == 0);
    }
}
