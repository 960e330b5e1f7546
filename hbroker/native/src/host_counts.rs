//! Counts of items in total and by host, within bounds. Threads share the counts; they are asked when an item
//! begins or ends.

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::keyed_hash::KeyedHash;
use crate::prefix::Prefix;

/// The bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub all: usize,
    pub of_host: usize,
}

/// Which bound is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    All,
    Host,
}

/// See the module.
#[derive(Debug)]
pub struct HostCounts {
    counts: Mutex<Counts>,
}

#[derive(Debug)]
struct Counts {
    bounds: Bounds,
    all: usize,
    of_host: HashMap<Prefix, usize, KeyedHash>,
}

impl HostCounts {
    /// No items. `seed` is random and secret.
    pub fn new(bounds: Bounds, seed: u64) -> Self {
        let of_host = HashMap::with_hasher(KeyedHash::new(seed));
        Self { counts: Mutex::new(Counts { bounds, all: 0, of_host }) }
    }

    /// Adds an item of this host; `None`: the host is not known. `is_bounded`: the bound of the host applies.
    ///
    /// # Errors
    /// A bound is reached.
    pub fn enter(&self, host: Option<Prefix>, is_bounded: bool) -> Result<(), Full> {
        let mut counts = self.counts.lock();
        if counts.all >= counts.bounds.all {
            return Err(Full::All);
        }
        counts.add(host, is_bounded)?;
        counts.all += 1;
        Ok(())
    }

    /// An item has moved to another host. `is_bounded`: as for [`Self::enter`].
    ///
    /// # Errors
    /// The bound of the new host is reached. The item stays counted for the old one.
    pub fn move_to(&self, from: Option<Prefix>, to: Prefix, is_bounded: bool) -> Result<(), Full> {
        if from == Some(to) {
            return Ok(());
        }
        let mut counts = self.counts.lock();
        counts.add(Some(to), is_bounded)?;
        counts.remove(from);
        Ok(())
    }

    /// Removes an item of this host.
    pub fn leave(&self, host: Option<Prefix>) {
        let mut counts = self.counts.lock();
        counts.all -= 1;
        counts.remove(host);
    }

    /// Changes the bounds. Existing items stay, even if there are too many.
    pub fn set_bounds(&self, bounds: Bounds) {
        self.counts.lock().bounds = bounds;
    }

    /// The number of items.
    #[cfg(test)]
    pub fn all(&self) -> usize {
        self.counts.lock().all
    }

    /// The number of a host's items.
    #[cfg(test)]
    pub fn of(&self, host: Prefix) -> usize {
        self.counts.lock().of_host.get(&host).copied().unwrap_or(0)
    }
}

impl Counts {
    fn add(&mut self, host: Option<Prefix>, is_bounded: bool) -> Result<(), Full> {
        let Some(host) = host else { return Ok(()) };
        let count = self.of_host.entry(host).or_default();
        if *count < self.bounds.of_host || !is_bounded {
            *count += 1;
            return Ok(());
        }
        if *count == 0 {
            self.of_host.remove(&host);
        }
        Err(Full::Host)
    }

    fn remove(&mut self, host: Option<Prefix>) {
        if let Some(host) = host
            && let Some(count) = self.of_host.get_mut(&host)
        {
            *count -= 1;
            if *count == 0 {
                self.of_host.remove(&host);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn host(last: u8) -> Prefix {
        IpAddr::from([192, 0, 2, last]).into()
    }

    #[test]
    fn each_host_has_its_bound_and_all_together_theirs() {
        let counts = HostCounts::new(Bounds { all: 5, of_host: 2 }, 1);
        let enter = |last| counts.enter(Some(host(last)), true);
        assert_eq!([enter(1), enter(1), enter(1)], [Ok(()), Ok(()), Err(Full::Host)]);
        assert_eq!([enter(2), enter(2), enter(3), enter(4)], [Ok(()), Ok(()), Ok(()), Err(Full::All)]);
        assert_eq!(counts.enter(None, false), Err(Full::All));
        counts.leave(Some(host(1)));
        assert_eq!(counts.enter(Some(host(2)), false), Ok(()), "beyond its bound");
        counts.leave(Some(host(2)));
        assert_eq!([counts.enter(None, true), enter(1)], [Ok(()), Err(Full::All)]);
        assert_eq!((counts.all(), counts.of(host(1))), (5, 1));
        assert_eq!(counts.move_to(Some(host(1)), host(2), true), Err(Full::Host));
        assert_eq!(counts.move_to(Some(host(1)), host(3), true), Ok(()));
        assert_eq!((counts.of(host(1)), counts.of(host(3)), counts.all()), (0, 2, 5));
        [None, Some(host(2)), Some(host(2)), Some(host(3)), Some(host(3))]
            .into_iter()
            .for_each(|host| counts.leave(host));
        assert!(counts.all() == 0 && counts.counts.lock().of_host.is_empty(), "nothing is left of hosts");
    }
}
