//! Timers: one deadline for each connection. Most deadlines are moved long before they are due.
//!
//! Every packet moves a keep alive deadline. So the deadline is a field of its connection, and the heap
//! contains one entry for the connection that is never later than the deadline. To move a deadline later
//! changes the field only. If an entry comes up before its deadline, it is put back.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::Micros;

/// The deadline of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Timer {
    /// When it is due; `Micros::MAX`: never.
    due: Micros,
    /// The time of its entry in the heap; `Micros::MAX`: there is none.
    entered: Micros,
}

impl Default for Timer {
    fn default() -> Self {
        Self { due: Micros::MAX, entered: Micros::MAX }
    }
}

/// Finds the timer of a key.
pub trait TimerOf<K> {
    /// `None`: the connection no longer exists.
    fn timer_of(&mut self, key: K) -> Option<&mut Timer>;
}

/// The deadlines of many keys.
#[derive(Debug)]
pub struct Timers<K: Ord> {
    heap: BinaryHeap<Reverse<(Micros, K)>>,
}

impl<K: Ord + Copy> Timers<K> {
    pub fn new() -> Self {
        Self { heap: BinaryHeap::new() }
    }

    /// Sets a deadline, earlier or later than the last one. `None`: no deadline.
    pub fn set(&mut self, key: K, timer: &mut Timer, due: Option<Micros>) {
        timer.due = due.unwrap_or(Micros::MAX);
        if timer.due < timer.entered {
            timer.entered = timer.due;
            self.heap.push(Reverse((timer.due, key)));
        }
    }

    /// When to call `pop` next, at the latest.
    pub fn next(&self) -> Option<Micros> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// The next key whose deadline has passed.
    pub fn pop(&mut self, now: Micros, timers: &mut impl TimerOf<K>) -> Option<K> {
        while let Some(&Reverse((at, key))) = self.heap.peek().filter(|Reverse((at, _))| *at <= now) {
            self.heap.pop();
            let Some(timer) = timers.timer_of(key).filter(|timer| timer.entered == at) else {
                continue;
            };
            timer.entered = Micros::MAX;
            if timer.due <= now {
                timer.due = Micros::MAX;
                return Some(key);
            }
            if timer.due < Micros::MAX {
                timer.entered = timer.due;
                self.heap.push(Reverse((timer.due, key)));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    impl TimerOf<u32> for BTreeMap<u32, Timer> {
        fn timer_of(&mut self, key: u32) -> Option<&mut Timer> {
            self.get_mut(&key)
        }
    }

    #[test]
    fn each_deadline_is_told_once_and_on_time() {
        for seed in 0..50 {
            let mut random = SmallRng::seed_from_u64(seed);
            let mut timers = Timers::new();
            let mut of_key: BTreeMap<u32, Timer> = BTreeMap::new();
            let mut model: BTreeMap<u32, Micros> = BTreeMap::new();
            for now in 0..2_000 {
                let key = random.random_range(0..20);
                match random.random_range(0..10) {
                    0 => {
                        of_key.remove(&key);
                        model.remove(&key);
                    }
                    1 => {
                        timers.set(key, of_key.entry(key).or_default(), None);
                        model.remove(&key);
                    }
                    _ => {
                        let due = now + random.random_range(1..100);
                        timers.set(key, of_key.entry(key).or_default(), Some(due));
                        model.insert(key, due);
                    }
                }
                let mut due_keys = Vec::new();
                while let Some(key) = timers.pop(now, &mut of_key) {
                    due_keys.push(key);
                }
                let mut due: Vec<u32> =
                    model.iter().filter(|(_, at)| **at <= now).map(|(key, _)| *key).collect();
                model.retain(|_, at| *at > now);
                due_keys.sort_unstable();
                due.sort_unstable();
                assert_eq!(due_keys, due, "seed {seed} at {now}");
            }
        }
    }

    #[test]
    fn a_deadline_that_is_put_off_costs_no_entry() {
        let (mut timers, mut timer) = (Timers::new(), Timer::default());
        for now in 0..10_000 {
            timers.set(1, &mut timer, Some(now + 100));
        }
        assert_eq!(timers.heap.len(), 1);
    }
}
