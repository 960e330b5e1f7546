//! What waits for a client: bounded in messages and in bytes.
//!
//! Messages of `QoS` 0 wait apart: they wait for nothing but room in the output, never hold up others, and are the first to give way.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::mqtt::claim::Claim;
use crate::mqtt::counters::{Counters, Drop};
use crate::mqtt::message::{Message, Terms};
use crate::mqtt::settings::SessionSettings;
use crate::tables::match_set::Overflow;

/// A message for one client.
#[derive(Clone, Debug)]
pub struct Parcel {
    pub message: Arc<Message>,
    /// Its `QoS` is the one to send at.
    pub terms: Terms,
    pub claim: Option<Claim>,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    Kept,
    /// There was no room without another's end, or its own.
    Overflowed,
    /// There was no room, and the session is to end.
    Fatal,
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

    /// Puts a message behind those of its kind.
    pub fn push(&mut self, parcel: Parcel, settings: &SessionSettings, counters: &mut Counters) -> Pushed {
        let cost = parcel.message.cost();
        let is_certain = parcel.terms.qos > 0;
        let mut pushed = Pushed::Kept;
        while self.is_full(cost, settings) {
            pushed = Pushed::Overflowed;
            match settings.overflow {
                _ if is_certain && !self.loose.is_empty() => drop(self.pop_loose()),
                Overflow::EndSession if is_certain => return Pushed::Fatal,
                Overflow::DropOldest if is_certain => drop(self.pop()),
                Overflow::DropOldest if !self.loose.is_empty() => drop(self.pop_loose()),
                _ => {
                    counters.drop(Drop::QueueFull);
                    return pushed;
                }
            }
            counters.drop(Drop::QueueFull);
        }
        self.bytes += cost;
        if is_certain { &mut self.certain } else { &mut self.loose }.push_back(parcel);
        pushed
    }

    /// Drops what is of `QoS` 0; how many there were.
    pub fn drop_loose(&mut self) -> usize {
        let count = self.loose.len();
        while self.pop_loose().is_some() {}
        self.loose.shrink_to_fit();
        count
    }

    pub fn release_claims(&mut self) {
        self.certain.iter_mut().for_each(|parcel| parcel.claim = None);
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
