//! The datagrams in flight: a record of each numbered one, until it is acknowledged or lost.
//!
//! Numbers are consecutive, so the records are one queue, indexed by number. A record that ended out of order
//! leaves a gap until all before it have ended. The contents in a record are the caller's.

use std::collections::VecDeque;
use std::ops::Range;

use crate::Micros;

/// The datagrams in flight in one direction of a link.
#[derive(Debug)]
pub struct Flight<C> {
    /// Numbers up to here are acknowledged or lost: the first record's number, less one.
    settled: u64,
    records: VecDeque<Option<Sent<C>>>,
    outstanding: usize,
    /// Without probes of the datagram size.
    bytes: usize,
}

/// A datagram in flight.
#[derive(Debug)]
pub struct Sent<C> {
    pub at: Micros,
    pub size: usize,
    /// It probes whether the path carries its size: its loss is no sign of congestion (RFC 9000 §14.4).
    pub tries_size: bool,
    pub contents: C,
}

impl<C> Sent<C> {
    /// The bytes that it takes of the congestion window. A probe of the datagram size is sent outside of the
    /// window (RFC 8899 §3), and takes nothing of it. Otherwise a large probe would stop a link with a small
    /// window until the probe is found lost.
    pub fn weight(&self) -> usize {
        if self.tries_size { 0 } else { self.size }
    }
}

impl<C> Default for Flight<C> {
    fn default() -> Self {
        Self { settled: 0, records: VecDeque::new(), outstanding: 0, bytes: 0 }
    }
}

impl<C> Flight<C> {
    /// Datagrams up to this one were sent, and none is in flight.
    pub fn after(settled: u64) -> Self {
        Self { settled, ..Self::default() }
    }

    /// Records the datagram `next_number`.
    pub fn begin(&mut self, sent: Sent<C>) {
        self.outstanding += 1;
        self.bytes += sent.weight();
        self.records.push_back(Some(sent));
    }

    /// Ends a datagram's flight. `None`: it is not in flight. Call `forget_ended` after the last one of a
    /// batch.
    pub fn end(&mut self, number: u64) -> Option<Sent<C>> {
        let index = self.index(number)?;
        let sent = self.records.get_mut(index)?.take()?;
        self.outstanding -= 1;
        self.bytes -= sent.weight();
        Some(sent)
    }

    /// The same, for a caller that has seen the record: it is not moved.
    pub fn discard(&mut self, number: u64) {
        if let Some(record) = self.index(number).and_then(|index| self.records.get_mut(index))
            && let Some(sent) = record
        {
            self.outstanding -= 1;
            self.bytes -= sent.weight();
            *record = None;
        }
    }

    /// Removes the records before the oldest datagram in flight.
    pub fn forget_ended(&mut self) {
        while let Some(None) = self.records.front() {
            self.records.pop_front();
            self.settled += 1;
        }
    }

    /// The record of a datagram in flight.
    pub fn get(&self, number: u64) -> Option<&Sent<C>> {
        self.records.get(self.index(number)?)?.as_ref()
    }

    /// The contents of the oldest datagrams in flight.
    pub fn oldest(&self, count: usize) -> impl Iterator<Item = &C> {
        self.records.iter().flatten().take(count).map(|sent| &sent.contents)
    }

    /// The numbers that have records: none before is in flight, none after was sent.
    pub fn numbers(&self) -> Range<u64> {
        self.settled + 1..self.settled + 1 + self.records.len() as u64
    }

    /// The only record. `None`: there is none, or there are more.
    pub fn only(&self) -> Option<&Sent<C>> {
        match self.records.len() {
            1 => self.records.front()?.as_ref(),
            _ => None,
        }
    }

    /// The number of records: of datagrams in flight, and of ended ones between them.
    pub fn records(&self) -> usize {
        self.records.len()
    }

    /// How many datagrams are in flight.
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// The bytes in flight, without probes of the datagram size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn index(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.settled + 1)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight_of(count: u64) -> Flight<u64> {
        let mut flight = Flight::default();
        for number in 1..=count {
            let size = usize::try_from(number).unwrap();
            flight.begin(Sent { at: 0, size, tries_size: false, contents: number });
        }
        flight
    }

    #[test]
    fn what_ended_out_of_order_is_kept_until_all_before_it_ended() {
        let mut flight = flight_of(4);
        for (number, numbers) in [(2, 1..5), (1, 3..5), (4, 3..5), (3, 5..5)] {
            assert_eq!(flight.end(number).map(|sent| sent.contents), Some(number));
            flight.forget_ended();
            assert_eq!(flight.numbers(), numbers);
        }
        assert_eq!((flight.records(), flight.outstanding(), flight.bytes()), (0, 0, 0));
    }

    #[test]
    fn a_flight_ends_once() {
        let mut flight = flight_of(3);
        for number in [0, 4, u64::MAX] {
            assert!(flight.end(number).is_none() && flight.get(number).is_none(), "{number} was never sent");
        }
        assert!(flight.end(2).is_some() && flight.end(2).is_none() && flight.get(2).is_none());
        assert_eq!((flight.records(), flight.outstanding(), flight.bytes()), (3, 2, 1 + 3));
        assert_eq!(flight.oldest(2).copied().collect::<Vec<_>>(), [1, 3]);
    }
}
