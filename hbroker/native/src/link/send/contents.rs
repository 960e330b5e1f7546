//! The contents of a datagram in flight, as far as they matter once it is acknowledged or lost.

use smallvec::SmallVec;

use crate::link::receive::pubacks::{Pubacks, Success};
use crate::link::send::delivery::Deliveries;

/// What a datagram carries that matters later. (Unreliable packets do not.)
#[derive(Debug)]
pub struct Contents {
    /// The highest number that it acknowledged; 0: none.
    pub acknowledged_through: u64,
    pub carried: SmallVec<[Carried; 2]>,
}

/// Packets of a datagram that are repeated until one that carries them is acknowledged.
#[derive(Debug, Clone, Copy)]
pub enum Carried {
    /// Reliable packets, by their first and last number.
    Deliveries(u64, u64),
    /// Successes in a PUBACK, by the first and last number of a run.
    Success(Success, u64, u64),
    /// A PUBACK for one failure.
    Refusal(u64),
}

impl Contents {
    /// Its datagram was acknowledged.
    pub fn settle(&self, deliveries: &mut Deliveries, pubacks: &mut Pubacks) {
        for &carried in &self.carried {
            match carried {
                Carried::Deliveries(first, last) => deliveries.on_acknowledged(first, last),
                Carried::Success(..) => {}
                Carried::Refusal(refusal) => pubacks.on_refusal_acknowledged(refusal),
            }
        }
    }

    /// The datagram `number`, which carried this, was lost.
    pub fn send_again(&self, number: u64, deliveries: &mut Deliveries, pubacks: &mut Pubacks) {
        for &carried in &self.carried {
            match carried {
                Carried::Deliveries(first, last) => deliveries.on_lost(first, last, number),
                Carried::Success(success, first, last) => pubacks.acknowledge(success, first, last),
                Carried::Refusal(refusal) => pubacks.refuse_again(refusal),
            }
        }
    }

    /// Its datagram may be lost: its contents are the best probe.
    pub fn probe(&self, deliveries: &mut Deliveries, pubacks: &mut Pubacks) {
        for &carried in &self.carried {
            match carried {
                Carried::Deliveries(first, last) => deliveries.probe(first, last),
                Carried::Success(success, first, last) => pubacks.acknowledge(success, first, last),
                Carried::Refusal(refusal) => pubacks.refuse_again(refusal),
            }
        }
    }
}
