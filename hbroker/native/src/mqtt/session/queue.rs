//! What waits for a client: bounded in messages and in bytes.
//!
//! A message that its owner holds for an answer is never dropped for want of room: the owner sends no more than its credit, and that bounds
//! them (§7.7). The bounds here are for all others: of `QoS` 0, and those that were answered in the client's stead (`Outgoing::stall`).
//!
//! Messages of `QoS` 0 wait apart: they wait for nothing but room in the output, never hold up others, and are the first to give way.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::Micros;
use crate::mqtt::claim::Claim;
use crate::mqtt::counters::{Counters, Drop};
use crate::mqtt::distribution::message::{Message, Terms};
use crate::mqtt::settings::SessionSettings;
use crate::tables::match_set::Overflow;

/// A message for one client.
#[derive(Clone, Debug)]
pub struct Parcel {
    pub message: Arc<Message>,
    /// Its `QoS` is the one to send at.
    pub terms: Terms,
    pub claim: Option<Claim>,
    /// When it came.
    pub since: Micros,
}

#[derive(Default)]
pub struct Queue {
    certain: VecDeque<Parcel>,
    loose: VecDeque<Parcel>,
    bytes: usize,
}

impl Queue {
    /// The next of `QoS` 1 or 2.
    pub fn pop(&mut self) -> Option<Parcel> {
        let parcel = self.certain.pop_front();
        self.gone(parcel)
    }

    /// The next of `QoS` 0.
    pub fn pop_loose(&mut self) -> Option<Parcel> {
        let parcel = self.loose.pop_front();
        self.gone(parcel)
    }

    /// Puts a message behind those of its kind. False: there was no room, and by its policy the session is to end.
    #[must_use]
    pub fn push(&mut self, parcel: Parcel, settings: &SessionSettings, counters: &mut Counters) -> bool {
        let cost = parcel.message.cost();
        let is_certain = parcel.terms.qos > 0;
        while self.is_full(cost, settings) {
            match settings.overflow {
                _ if is_certain && !self.loose.is_empty() => drop(self.pop_loose()),
                _ if parcel.claim.is_some() => break,
                Overflow::EndSession if is_certain => return false,
                Overflow::DropOldest if is_certain && self.may_drop_oldest() => drop(self.pop()),
                Overflow::DropOldest if !self.loose.is_empty() => drop(self.pop_loose()),
                _ => {
                    counters.drop(Drop::QueueFull);
                    return true;
                }
            }
            counters.drop(Drop::QueueFull);
        }
        self.bytes += cost;
        if is_certain { &mut self.certain } else { &mut self.loose }.push_back(parcel);
        true
    }

    /// Drops what is of `QoS` 0; how many there were.
    pub fn drop_loose(&mut self) -> usize {
        let count = self.loose.len();
        while self.pop_loose().is_some() {}
        self.loose.shrink_to_fit();
        count
    }

    /// What waits, to change, of `QoS` 1 and 2.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Parcel> {
        self.certain.iter_mut()
    }

    /// What waits of `QoS` 1 and 2, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Parcel> {
        self.certain.iter()
    }

    pub fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.certain.iter().filter_map(|parcel| parcel.claim.as_ref())
    }

    pub fn has_loose(&self) -> bool {
        !self.loose.is_empty()
    }

    pub fn is_empty(&self) -> bool {
        self.certain.is_empty()
    }

    pub fn len(&self) -> usize {
        self.certain.len() + self.loose.len()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Nobody waits for the answer to the oldest.
    fn may_drop_oldest(&self) -> bool {
        self.certain.front().is_some_and(|oldest| oldest.claim.is_none())
    }

    /// One message alone may be larger than the bound.
    fn is_full(&self, cost: usize, settings: &SessionSettings) -> bool {
        self.len() >= settings.queue_messages || (self.bytes > 0 && self.bytes + cost > settings.queue_bytes)
    }

    fn gone(&mut self, parcel: Option<Parcel>) -> Option<Parcel> {
        let parcel = parcel?;
        self.bytes -= parcel.message.cost();
        if self.certain.is_empty() && self.certain.capacity() > 64 {
            self.certain.shrink_to_fit();
        }
        Some(parcel)
    }
}
