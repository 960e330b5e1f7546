//! Which worker is the home of which session.
//!
//! The kernel gives each source address to one worker's socket. A client whose address has changed may
//! therefore reach another worker than the home of its session; that worker looks here. A datagram that
//! reaches the home of its session needs no look-up here.
//!
//! The duplicate window of a publisher (§7.4) and its open messages stay with the worker that received the
//! messages. So a publisher at `QoS` 2 whose link has ended is remembered for a while. When the same run of
//! its client begins another link, that link gets the same home, whichever worker the kernel gives it to. The
//! home of a publisher that only uses `QoS` 0 and 1 is the worker that it reaches.

use std::collections::{BTreeMap, HashMap};

use parking_lot::RwLock;

use crate::keyed_hash::KeyedHash;

/// How many publishers without a link are remembered. The publisher whose link ended first is forgotten first.
const MOST_DEPARTED: usize = 65_536;

pub struct HomeWorkers {
    /// `None`: there is only one worker.
    homes: Option<RwLock<Homes>>,
}

struct Homes {
    workers: HashMap<u64, u8, KeyedHash>,
    /// By session.
    departed: HashMap<u64, DepartedPublisher, KeyedHash>,
    /// The sessions of `departed`, by the number of their departure.
    order: BTreeMap<u64, u64>,
    departures: u64,
}

/// A publisher whose link has ended.
struct DepartedPublisher {
    worker: u8,
    publisher: u64,
    number: u64,
}

impl HomeWorkers {
    pub fn new(seed: u64) -> Self {
        let hasher = KeyedHash::new(seed);
        Self {
            homes: Some(RwLock::new(Homes {
                workers: HashMap::with_hasher(hasher),
                departed: HashMap::with_hasher(hasher),
                order: BTreeMap::new(),
                departures: 0,
            })),
        }
    }

    /// For a single worker, which is the home of all sessions.
    pub fn single() -> Self {
        Self { homes: None }
    }

    /// Makes this worker the session's home, unless the session has one. Returns the home.
    pub fn claim(&self, session: u64, worker: u8) -> u8 {
        let Some(mut homes) = self.homes.as_ref().map(RwLock::write) else {
            return worker;
        };
        let home = *homes.workers.entry(session).or_insert(worker);
        if homes.departed.get(&session).is_some_and(|departed| departed.worker == home) {
            homes.forget_departure(session);
        }
        home
    }

    /// Forgets a session, if this worker is its home.
    pub fn remove(&self, session: u64, worker: u8) {
        if let Some(mut homes) = self.homes.as_ref().map(RwLock::write)
            && homes.workers.get(&session) == Some(&worker)
        {
            homes.workers.remove(&session);
        }
    }

    /// The link of a session has ended, and this worker keeps the duplicate window of its publisher, which has
    /// this id. Has to be called before the session is removed.
    pub fn note_departure(&self, session: u64, worker: u8, publisher: u64) {
        if let Some(mut homes) = self.homes.as_ref().map(RwLock::write) {
            homes.note_departure(session, worker, publisher);
        }
    }

    pub fn worker_of(&self, session: u64) -> Option<u8> {
        match &self.homes {
            Some(homes) => homes.read().workers.get(&session).copied(),
            None => Some(0),
        }
    }

    /// The home of a session whose client begins a link, if it has one. `is_publisher`: whether this is the
    /// id under which the client publishes.
    pub fn home_of(&self, session: u64, is_publisher: impl FnOnce(u64) -> bool) -> Option<u8> {
        let Some(homes) = self.homes.as_ref().map(RwLock::read) else {
            return Some(0);
        };
        let departed = || homes.departed.get(&session).filter(|departed| is_publisher(departed.publisher));
        homes.workers.get(&session).copied().or_else(|| departed().map(|departed| departed.worker))
    }

    /// The worker on which a session without a link is to be made.
    pub fn place_for(&self, session: u64) -> u8 {
        self.home_of(session, |_| true).unwrap_or(0)
    }
}

impl Homes {
    fn note_departure(&mut self, session: u64, worker: u8, publisher: u64) {
        self.forget_departure(session);
        self.departures += 1;
        let number = self.departures;
        self.departed.insert(session, DepartedPublisher { worker, publisher, number });
        self.order.insert(number, session);
        if self.departed.len() > MOST_DEPARTED
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.departed.remove(&oldest);
        }
    }

    fn forget_departure(&mut self, session: u64) {
        if let Some(departed) = self.departed.remove(&session) {
            self.order.remove(&departed.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_publisher_that_left_is_at_home_where_it_was() {
        let home_workers = HomeWorkers::new(1);
        assert_eq!(home_workers.claim(7, 1), 1);
        home_workers.note_departure(7, 1, 70);
        home_workers.remove(7, 1);
        assert_eq!(home_workers.home_of(7, |publisher| publisher == 70), Some(1));
        assert_eq!((home_workers.home_of(7, |_| false), home_workers.place_for(7)), (None, 1), "another run");
        assert_eq!((home_workers.worker_of(7), home_workers.place_for(8)), (None, 0));
        // The home of another run is the worker that it reaches, and its own leaving counts then.
        assert_eq!(home_workers.claim(7, 2), 2);
        assert_eq!(home_workers.home_of(7, |_| true), Some(2));
        home_workers.note_departure(7, 2, 71);
        home_workers.remove(7, 2);
        assert_eq!(home_workers.home_of(7, |publisher| publisher == 71), Some(2));
    }

    #[test]
    fn those_that_left_first_are_forgotten_first() {
        let home_workers = HomeWorkers::new(1);
        let most = MOST_DEPARTED as u64;
        (0..most).for_each(|session| home_workers.note_departure(session, 1, session));
        // A publisher that comes and goes again is counted once, as the last that left.
        (0..3).for_each(|_| home_workers.note_departure(0, 1, 0));
        assert_eq!((home_workers.place_for(0), home_workers.place_for(1)), (1, 1));
        home_workers.note_departure(most, 1, most);
        assert_eq!(
            (home_workers.place_for(0), home_workers.place_for(1), home_workers.place_for(2)),
            (1, 0, 1)
        );
        let homes = home_workers.homes.as_ref().expect("several workers").read();
        assert_eq!((homes.departed.len(), homes.order.len()), (MOST_DEPARTED, MOST_DEPARTED));
    }
}
