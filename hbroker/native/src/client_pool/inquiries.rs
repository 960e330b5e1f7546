//! Whose answers outside of sessions are (§4.1, §6.1).
//!
//! Members share one address, so such an answer does not say by itself which of them it is for. It holds the number of the
//! request, and those are random: who asked is noted when the request leaves. CHALLENGE holds none, and concerns all
//! that went to its source: it is for those who wrote there since the one before, once each, so that members who
//! ask one node at the same time do not cost the square of their number.
//!
//! What is noted is forgotten after one to two periods, or with half of what may be noted, whichever comes first. A request
//! that is repeated is noted again.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use hashbrown::HashMap;

use crate::Micros;
use crate::keyed_hash::Keyed;
use crate::link_id::MemberId;

/// Nobody waits longer for an answer, or repeats a request later.
const PERIOD: Micros = 60_000_000;
/// Requests noted in one period.
const MOST: usize = 65_536;

/// Who asked what, and whom.
pub struct Inquiries {
    keyed: Keyed,
    young: Notes,
    old: Notes,
    since: Micros,
}

struct Notes {
    askers: HashMap<u64, MemberId, Keyed>,
    unproven: HashMap<SocketAddr, BTreeSet<MemberId>, Keyed>,
}

impl Inquiries {
    /// Nobody has asked anything. `keyed`: requests' numbers are random, but who else sends some is a stranger.
    pub fn new(keyed: Keyed) -> Self {
        Self { keyed, young: Notes::new(keyed), old: Notes::new(keyed), since: 0 }
    }

    /// A member sends a request to this address.
    pub fn note(&mut self, now: Micros, request: u64, member: MemberId, address: SocketAddr) {
        if now >= self.since.saturating_add(PERIOD) || self.young.askers.len() >= MOST {
            self.old = std::mem::replace(&mut self.young, Notes::new(self.keyed));
            self.since = now;
        }
        self.young.askers.insert(request, member);
        self.young.unproven.entry(address).or_default().insert(member);
    }

    /// Who asked this.
    pub fn asker(&self, request: u64) -> Option<MemberId> {
        [&self.young, &self.old].into_iter().find_map(|notes| notes.askers.get(&request)).copied()
    }

    /// Takes out whom a CHALLENGE from this address concerns.
    pub fn take_challenged(&mut self, source: SocketAddr) -> BTreeSet<MemberId> {
        let mut challenged = self.young.unproven.remove(&source).unwrap_or_default();
        challenged.extend(self.old.unproven.remove(&source).into_iter().flatten());
        challenged
    }
}

impl Notes {
    fn new(keyed: Keyed) -> Self {
        Self { askers: HashMap::with_hasher(keyed), unproven: HashMap::with_hasher(keyed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: ([u8; 4], u16) = ([192, 0, 2, 1], 7_000);

    #[test]
    fn a_challenge_is_for_those_who_wrote_since_the_one_before() {
        let mut inquiries = Inquiries::new(Keyed::new(1));
        let other = ([192, 0, 2, 2], 7_000).into();
        for (request, member, to) in
            [(1, 7, ROOT.into()), (2, 8, ROOT.into()), (3, 7, ROOT.into()), (4, 9, other)]
        {
            inquiries.note(0, request, MemberId(member), to);
        }
        assert!(inquiries.take_challenged(ROOT.into()).into_iter().eq([MemberId(7), MemberId(8)]));
        assert!(inquiries.take_challenged(ROOT.into()).is_empty());
        inquiries.note(0, 2, MemberId(8), ROOT.into());
        assert!(inquiries.take_challenged(ROOT.into()).into_iter().eq([MemberId(8)]));
        assert_eq!(inquiries.asker(1), Some(MemberId(7)), "its answer may still come");
    }

    #[test]
    fn what_is_old_or_too_much_is_forgotten() {
        let mut inquiries = Inquiries::new(Keyed::new(2));
        for period in 0..3 {
            inquiries.note(period * PERIOD, period, MemberId(1), ROOT.into());
        }
        assert_eq!((0..3).filter_map(|request| inquiries.asker(request)).count(), 2);
        for request in 0..10 * MOST as u64 {
            inquiries.note(3 * PERIOD, request, MemberId(1), ROOT.into());
        }
        let noted = inquiries.young.askers.len() + inquiries.old.askers.len();
        assert!((MOST..=2 * MOST).contains(&noted), "{noted}");
    }
}
