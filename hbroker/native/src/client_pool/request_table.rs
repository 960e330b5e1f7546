//! Which client an answer outside of sessions is for (§4.1, §6.1).
//!
//! All pool clients share one address, so the address of an answer does not name its client. The answer holds
//! the number of the request, which is random. The pool notes the number with its client when the request
//! leaves. CHALLENGE holds no number and concerns all requests to its source. It goes to each client that has
//! sent a request to this source since the last CHALLENGE, and to each only once. Otherwise, if many clients
//! asked one node at the same time, the cost would be the square of their number.
//!
//! An entry is forgotten after one to two periods. If `MOST` requests are noted within a period, the next
//! period begins at once. A repeated request is noted again.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use hashbrown::HashMap;

use crate::Micros;
use crate::keyed_hash::KeyedHash;
use crate::link_id::PoolClientId;

/// No client waits longer for an answer, or repeats a request after a longer time.
const PERIOD: Micros = 60_000_000;
/// The most requests that are noted in one period.
const MOST: usize = 65_536;

/// Which client sent which request, and to which addresses.
pub struct RequestTable {
    hasher: KeyedHash,
    young: NotedRequests,
    old: NotedRequests,
    since: Micros,
}

struct NotedRequests {
    requesters: HashMap<u64, PoolClientId, KeyedHash>,
    unproven: HashMap<SocketAddr, BTreeSet<PoolClientId>, KeyedHash>,
}

impl RequestTable {
    /// An empty table. It needs `hasher`, because requests of a stranger may have numbers that are not
    /// random.
    pub fn new(hasher: KeyedHash) -> Self {
        Self { hasher, young: NotedRequests::new(hasher), old: NotedRequests::new(hasher), since: 0 }
    }

    /// A client sends a request to this address.
    pub fn note(&mut self, now: Micros, request: u64, pool_client: PoolClientId, address: SocketAddr) {
        if now >= self.since.saturating_add(PERIOD) || self.young.requesters.len() >= MOST {
            self.old = std::mem::replace(&mut self.young, NotedRequests::new(self.hasher));
            self.since = now;
        }
        self.young.requesters.insert(request, pool_client);
        self.young.unproven.entry(address).or_default().insert(pool_client);
    }

    /// The client that sent this request.
    pub fn requester(&self, request: u64) -> Option<PoolClientId> {
        [&self.young, &self.old].into_iter().find_map(|notes| notes.requesters.get(&request)).copied()
    }

    /// Takes out the clients that a CHALLENGE from this address concerns.
    pub fn take_challenged(&mut self, source: SocketAddr) -> BTreeSet<PoolClientId> {
        let mut challenged = self.young.unproven.remove(&source).unwrap_or_default();
        challenged.extend(self.old.unproven.remove(&source).into_iter().flatten());
        challenged
    }
}

impl NotedRequests {
    fn new(hasher: KeyedHash) -> Self {
        Self { requesters: HashMap::with_hasher(hasher), unproven: HashMap::with_hasher(hasher) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: ([u8; 4], u16) = ([192, 0, 2, 1], 7_000);

    #[test]
    fn a_challenge_is_for_those_who_wrote_since_the_one_before() {
        let mut requests = RequestTable::new(KeyedHash::new(1));
        let other = ([192, 0, 2, 2], 7_000).into();
        for (request, pool_client, to) in
            [(1, 7, ROOT.into()), (2, 8, ROOT.into()), (3, 7, ROOT.into()), (4, 9, other)]
        {
            requests.note(0, request, PoolClientId(pool_client), to);
        }
        assert!(requests.take_challenged(ROOT.into()).into_iter().eq([PoolClientId(7), PoolClientId(8)]));
        assert!(requests.take_challenged(ROOT.into()).is_empty());
        requests.note(0, 2, PoolClientId(8), ROOT.into());
        assert!(requests.take_challenged(ROOT.into()).into_iter().eq([PoolClientId(8)]));
        assert_eq!(requests.requester(1), Some(PoolClientId(7)), "its answer may still come");
    }

    #[test]
    fn what_is_old_or_too_much_is_forgotten() {
        let mut requests = RequestTable::new(KeyedHash::new(2));
        for period in 0..3 {
            requests.note(period * PERIOD, period, PoolClientId(1), ROOT.into());
        }
        assert_eq!((0..3).filter_map(|request| requests.requester(request)).count(), 2);
        for request in 0..10 * MOST as u64 {
            requests.note(3 * PERIOD, request, PoolClientId(1), ROOT.into());
        }
        let noted = requests.young.requesters.len() + requests.old.requesters.len();
        assert!((MOST..=2 * MOST).contains(&noted), "{noted}");
    }
}
