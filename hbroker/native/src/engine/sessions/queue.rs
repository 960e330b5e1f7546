//! What waits for a session: messages that its link does not take now, or that it has no link for (§7.8).
//!
//! A queue in the order in which the messages came, with an end in number and in bytes. What is dead gives way first; then it goes
//! by the overflow policy of the subscription that the newest message matched.

use std::collections::VecDeque;

use crate::Micros;
use crate::engine::sessions::message::Parcel;
use crate::shrink::shrink;
use crate::tables::match_set::Overflow;

/// What keeping one message costs beside its bytes.
const OVERHEAD: usize = size_of::<Parcel>();

/// How much may wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    pub messages: usize,
    pub bytes: usize,
}

/// What gave way to the bounds.
#[derive(Debug)]
pub enum Excess {
    Dropped(Parcel),
    /// A message, and the session is to end.
    End(Parcel),
}

/// Messages in order, apart from a queue.
#[derive(Debug)]
pub struct Lot {
    pub parcels: VecDeque<Parcel>,
    /// What they cost.
    pub bytes: usize,
    /// None of them expires before.
    pub next_expiry: Micros,
}

#[derive(Debug)]
pub struct SessionQueue {
    parcels: VecDeque<Parcel>,
    bytes: usize,
    bounds: Bounds,
    /// Nothing in it expires before.
    next_expiry: Micros,
}

impl SessionQueue {
    pub fn new(bounds: Bounds) -> Self {
        Self { parcels: VecDeque::new(), bytes: 0, bounds, next_expiry: Micros::MAX }
    }

    pub fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    /// How much may be in it: its bounds, or what it may have beyond them, but at most so many bytes.
    pub fn limit(&self, beyond: Bounds, most: usize) -> Bounds {
        let Bounds { messages, bytes } = self.bounds;
        Bounds { messages: messages.max(beyond.messages), bytes: bytes.max(beyond.bytes).min(most) }
    }

    /// How much is in it.
    pub fn size(&self) -> Bounds {
        Bounds { messages: self.parcels.len(), bytes: self.bytes }
    }

    /// Puts a message last. There may be too much in it then: call [`Self::next_excess`] until there is not.
    pub fn push(&mut self, parcel: Parcel) {
        self.count(&parcel);
        self.parcels.push_back(parcel);
    }

    /// Puts many messages last. There may be too much in it then: call [`Self::next_excess`] until there is not.
    pub fn append(&mut self, mut lot: Lot) {
        self.bytes += lot.bytes;
        self.next_expiry = self.next_expiry.min(lot.next_expiry);
        if self.parcels.is_empty() {
            self.parcels = lot.parcels;
        } else {
            self.parcels.append(&mut lot.parcels);
        }
    }

    /// Takes all that is in it, at once.
    pub fn take_all(&mut self) -> Lot {
        let parcels = std::mem::take(&mut self.parcels);
        Lot { parcels, bytes: std::mem::take(&mut self.bytes), next_expiry: self.next_expiry }
    }

    /// Takes out those that are meant, in order.
    pub fn extract_lot(&mut self, is_meant: impl FnMut(&Parcel) -> bool) -> Lot {
        let mut lot = Lot::default();
        self.extract(is_meant).into_iter().for_each(|parcel| lot.push(parcel));
        lot
    }

    /// Puts messages first, in their order. There may be too much in it then: call [`Self::next_excess`] until there is not.
    pub fn put_back(&mut self, parcels: impl DoubleEndedIterator<Item = Parcel>) {
        for parcel in parcels.rev() {
            self.count(&parcel);
            self.parcels.push_front(parcel);
        }
    }

    pub fn front(&self) -> Option<&Parcel> {
        self.parcels.front()
    }

    /// The message behind so many older ones.
    pub fn nth(&self, before: usize) -> Option<&Parcel> {
        self.parcels.get(before)
    }

    pub fn pop(&mut self) -> Option<Parcel> {
        let parcel = self.parcels.pop_front();
        self.discount(parcel)
    }

    /// Whether there is more in it.
    pub fn is_over(&self, limit: Bounds) -> bool {
        self.parcels.len() > limit.messages || self.bytes > limit.bytes
    }

    /// Takes out what outlived its expiry. The whole queue is searched, but only when something in it can have died since the search
    /// before.
    pub fn take_dead(&mut self, now: Micros) -> Vec<Parcel> {
        if now < self.next_expiry {
            return Vec::new();
        }
        let dead = self.extract(|parcel| parcel.expires <= now);
        self.next_expiry = self.parcels.iter().map(|parcel| parcel.expires).min().unwrap_or(Micros::MAX);
        dead
    }

    /// What must give way next, where there is too much.
    pub fn next_excess(&mut self, limit: Bounds) -> Option<Excess> {
        if !self.is_over(limit) {
            return None;
        }
        let newest = self.parcels.back()?;
        // All of the queue would not make room for one that is larger.
        let fits = newest.cost() <= limit.bytes && limit.messages > 0;
        let dropped = match newest.overflow {
            Overflow::EndSession => return self.pop_newest().map(Excess::End),
            Overflow::DropOldest if fits => self.pop(),
            Overflow::DropOldest | Overflow::DropNewest => self.pop_newest(),
        };
        dropped.map(Excess::Dropped)
    }

    /// Gives back the memory that it does not need now.
    pub fn rest(&mut self) {
        self.parcels.shrink_to_fit();
    }

    /// Takes out those that are meant, in order.
    pub fn extract(&mut self, mut is_meant: impl FnMut(&Parcel) -> bool) -> Vec<Parcel> {
        let (taken, left): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.parcels).into_iter().partition(|parcel| is_meant(parcel));
        self.parcels = left;
        taken.into_iter().inspect(|parcel| self.bytes -= parcel.cost()).collect()
    }

    /// What waits, to change, oldest first.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut Parcel> {
        self.parcels.iter_mut()
    }

    /// Whether more than half as much waits as its bounds say.
    pub fn is_half_full(&self) -> bool {
        self.is_fuller_than(2)
    }

    /// Whether more than a quarter as much waits as its bounds say.
    pub fn is_quarter_full(&self) -> bool {
        self.is_fuller_than(4)
    }

    /// What is in it from this number on, oldest first.
    pub fn beginning_with(&self, number: u64) -> impl Iterator<Item = &Parcel> {
        self.parcels.range(self.parcels.partition_point(|parcel| parcel.number < number)..)
    }

    /// What came last.
    pub fn newest(&self) -> Option<&Parcel> {
        self.parcels.back()
    }

    pub fn is_empty(&self) -> bool {
        self.parcels.is_empty()
    }

    pub fn len(&self) -> usize {
        self.parcels.len()
    }

    /// Bytes that wait, and what keeping them costs.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes out what came last.
    pub fn pop_newest(&mut self) -> Option<Parcel> {
        let parcel = self.parcels.pop_back();
        self.discount(parcel)
    }

    fn count(&mut self, parcel: &Parcel) {
        self.bytes += parcel.cost();
        self.next_expiry = self.next_expiry.min(parcel.expires);
    }

    fn discount(&mut self, parcel: Option<Parcel>) -> Option<Parcel> {
        self.bytes -= parcel.as_ref().map_or(0, Parcel::cost);
        shrink(&mut self.parcels);
        parcel
    }

    /// Whether more than this part of its bounds waits.
    pub fn is_fuller_than(&self, parts: usize) -> bool {
        parts * self.parcels.len() > self.bounds.messages || parts * self.bytes > self.bounds.bytes
    }
}

impl Default for Lot {
    fn default() -> Self {
        Self { parcels: VecDeque::new(), bytes: 0, next_expiry: Micros::MAX }
    }
}

impl Lot {
    /// Puts a message last.
    pub fn push(&mut self, parcel: Parcel) {
        self.bytes += parcel.cost();
        self.next_expiry = self.next_expiry.min(parcel.expires);
        self.parcels.push_back(parcel);
    }

    /// Puts a message first.
    pub fn push_first(&mut self, parcel: Parcel) {
        self.bytes += parcel.cost();
        self.next_expiry = self.next_expiry.min(parcel.expires);
        self.parcels.push_front(parcel);
    }

    /// Takes out the first.
    pub fn pop(&mut self) -> Option<Parcel> {
        let parcel = self.parcels.pop_front()?;
        self.bytes -= parcel.cost();
        Some(parcel)
    }

    /// Takes out what it has from this number on.
    pub fn split_off(&mut self, number: u64) -> VecDeque<Parcel> {
        let behind = self.parcels.split_off(self.parcels.partition_point(|parcel| parcel.number < number));
        self.bytes -= behind.iter().map(Parcel::cost).sum::<usize>();
        behind
    }
}

impl Parcel {
    /// What it counts for in a bounded queue.
    pub fn cost(&self) -> usize {
        self.field.len() + OVERHEAD
    }
}

#[cfg(test)]
mod tests;
