//! What became of each message for a session (§7.8).

use crate::engine::metrics::counters::Drop;

/// Why a message for a session went no further.
const REASONS: [Drop; 7] = [
    Drop::QueueFull,
    Drop::Offline,
    Drop::SessionEnded,
    Drop::SessionExpired,
    Drop::Moved,
    Drop::Regrouped,
    Drop::Damaged,
];

/// At any time, `accepted` is the sum of delivered, expired, dropped and still queued messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionCounters {
    pub accepted: u64,
    pub delivered: u64,
    pub expired: u64,
    /// `None`: none was dropped, as in most sessions.
    dropped: Option<Box<[u64; REASONS.len()]>>,
}

impl SessionCounters {
    pub fn drop(&mut self, why: Drop, count: u64) {
        if count > 0 {
            self.dropped.get_or_insert_default()[Self::position_of(why)] += count;
        }
    }

    /// How many messages were dropped for this reason.
    pub fn dropped_as(&self, why: Drop) -> u64 {
        self.dropped.as_ref().map_or(0, |dropped| dropped[Self::position_of(why)])
    }

    /// How many messages were dropped, by the reason's name, without those that are zero.
    pub fn dropped(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let counts = self.dropped.iter().flat_map(|dropped| dropped.iter().copied());
        REASONS.iter().zip(counts).filter(|(_, count)| *count > 0).map(|(why, count)| (why.name(), count))
    }

    /// How many messages were accepted and are neither delivered, nor expired, nor dropped.
    pub fn open(&self) -> u64 {
        let dropped: u64 = self.dropped.as_ref().map_or(0, |dropped| dropped.iter().sum());
        self.accepted - self.delivered - self.expired - dropped
    }

    fn position_of(why: Drop) -> usize {
        let at = REASONS.iter().position(|&reason| reason == why);
        debug_assert!(at.is_some(), "{why:?} is no reason of a session");
        at.unwrap_or_default()
    }
}

impl std::ops::AddAssign for SessionCounters {
    fn add_assign(&mut self, other: Self) {
        self.accepted += other.accepted;
        self.delivered += other.delivered;
        self.expired += other.expired;
        if let Some(dropped) = other.dropped {
            let sums = self.dropped.get_or_insert_default();
            sums.iter_mut().zip(*dropped).for_each(|(sum, count)| *sum += count);
        }
    }
}
