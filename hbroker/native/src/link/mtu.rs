//! The datagram size of a path: packetisation-layer path MTU discovery for datagrams (RFC 8899).
//!
//! Every path is assumed to carry 1,200 bytes (RFC 9000 §14). Once a link sends full datagrams, it probes
//! larger sizes with datagrams that contain only PING and padding. A probe that is acknowledged fits. A size
//! whose probe is lost three times does not fit, and this loss is no sign of congestion. The size of Ethernet
//! is probed first, which is right on most paths. The upper bound is probed next, which is right within a
//! host and with jumbo frames. If neither fits, the interval is halved. A path may later carry less, and
//! routers drop without a report. So if no datagram gets through, or larger datagrams are lost and none
//! arrives while smaller ones do, the link goes back to 1,200 bytes (a black hole, RFC 8899 §4.3) and
//! searches again later.

use crate::Micros;
use crate::wire::SEAL_BYTES;

/// The size that every path carries (RFC 9000 §14), also once the datagram is sealed.
pub const BASE: usize = 1_200;
/// The most bytes of a datagram that contains a single message, with the largest header: the size that IPv6
/// carries on every path (RFC 8200 §5), less the headers of IPv6 and UDP. Hardly any datagram has a header so
/// large that the seal makes it longer.
pub const LONE: usize = 1_232;
/// The size that Ethernet carries over IPv6, and IPv4, in a sealed datagram.
const ETHERNET: usize = 1_452 - SEAL_BYTES;
/// RFC 8899 §5.1.2, MAX_PROBES.
const MOST_TRIES: u32 = 3;
/// An interval is not halved any further if it is at most this number of bytes, or, above Ethernet's size, at
/// most an eighth of the size that fits.
const CLOSE_ENOUGH: usize = 16;
const CLOSE_ENOUGH_DIVISOR: usize = 8;
/// How many consecutive losses of larger datagrams make a black hole.
const MOST_SUSPICIONS: u32 = 6;
/// RFC 8899 §5.1.1, PMTU_RAISE_TIMER: after this time the path may carry more.
const RAISE_AFTER: Micros = 600_000_000;
/// How long the search waits after a black hole.
const CALM_AFTER_BLACK_HOLE: Micros = 60_000_000;

/// What is known of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathMtu {
    /// The largest size that was acknowledged, or the base.
    size: usize,
    most: usize,
    /// The smallest size that is known not to fit.
    refused: usize,
    /// Losses of the size that is being probed.
    tries: u32,
    is_trying: bool,
    /// Full datagrams arrive, so larger ones would be useful.
    is_wanted: bool,
    paused_until: Micros,
    suspicions: u32,
}

impl PathMtu {
    /// For a path of which nothing is known. Sizes above `most` are never probed.
    pub fn new(most: usize) -> Self {
        Self {
            size: BASE.min(most),
            most,
            refused: most + 1,
            tries: 0,
            is_trying: false,
            is_wanted: false,
            paused_until: 0,
            suspicions: 0,
        }
    }

    /// The largest datagram that the path is known to carry.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Whether nothing was learned of the path.
    pub fn is_new(&self) -> bool {
        *self == Self::new(self.most)
    }

    /// The size of the probe that is due.
    pub fn due(&self, now: Micros) -> Option<usize> {
        let is_due = self.is_wanted && !self.is_trying && now >= self.paused_until;
        is_due.then(|| self.candidate()).flatten()
    }

    /// A probe was sent.
    pub fn on_probe_sent(&mut self) {
        self.is_trying = true;
    }

    /// A probe of this size was acknowledged. (A probe over another path than the present one is ignored.)
    pub fn on_probe_acknowledged(&mut self, now: Micros, size: usize) {
        if !self.is_trying || self.candidate() != Some(size) {
            return;
        }
        self.size = size;
        self.tries = 0;
        if self.refused <= self.size {
            self.refused = self.most + 1;
        }
        self.end_probe(now);
    }

    /// A probe was lost.
    pub fn on_probe_lost(&mut self, now: Micros) {
        if !self.is_trying {
            return;
        }
        self.tries += 1;
        if self.tries >= MOST_TRIES
            && let Some(size) = self.candidate()
        {
            self.refused = size;
            self.tries = 0;
        }
        self.end_probe(now);
    }

    /// A datagram of this size, which was no probe, was acknowledged.
    pub fn on_acknowledged(&mut self, size: usize) {
        if size > BASE {
            self.suspicions = 0;
        }
        self.is_wanted |= size + BASE / 8 >= self.size;
    }

    /// Datagrams that were no probes were lost, the largest of them of this size. True: the path is a black
    /// hole for this size.
    pub fn on_lost(&mut self, now: Micros, largest: usize) -> bool {
        if largest <= BASE || self.size <= BASE {
            return false;
        }
        self.suspicions += 1;
        self.suspicions >= MOST_SUSPICIONS && self.fall_back(now)
    }

    /// Nothing was acknowledged for two probe timeouts. True: the size may be the reason.
    pub fn on_silence(&mut self, now: Micros) -> bool {
        self.size > BASE && self.fall_back(now)
    }

    fn fall_back(&mut self, now: Micros) -> bool {
        *self = Self { paused_until: now + CALM_AFTER_BLACK_HOLE, ..Self::new(self.most) };
        true
    }

    fn candidate(&self) -> Option<usize> {
        let usual = ETHERNET.min(self.most);
        if self.size < usual && usual < self.refused {
            return Some(usual);
        }
        if self.refused > self.most {
            return (self.size < self.most).then_some(self.most);
        }
        let close = if self.size < ETHERNET { CLOSE_ENOUGH } else { self.size / CLOSE_ENOUGH_DIVISOR };
        (self.refused - self.size > close).then_some(usize::midpoint(self.size, self.refused))
    }

    fn end_probe(&mut self, now: Micros) {
        self.is_trying = false;
        if self.candidate().is_none() {
            self.refused = self.most + 1;
            self.is_wanted = false;
            self.paused_until = now + RAISE_AFTER;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Probes a path that carries `carried` bytes until no more is due; returns the sizes of the probes.
    fn search(mtu: &mut PathMtu, now: Micros, carried: usize) -> Vec<usize> {
        let mut tried = Vec::new();
        mtu.on_acknowledged(mtu.size());
        while let Some(size) = mtu.due(now) {
            tried.push(size);
            mtu.on_probe_sent();
            assert_eq!(mtu.due(now), None, "one at a time");
            if size <= carried {
                mtu.on_probe_acknowledged(now, size);
            } else {
                mtu.on_probe_lost(now);
            }
        }
        tried
    }

    #[test]
    fn one_probe_finds_the_upper_bound() {
        let mut mtu = PathMtu::new(ETHERNET);
        assert_eq!(mtu.due(0), None, "not before full datagrams are sent");
        assert_eq!(search(&mut mtu, 0, ETHERNET), [ETHERNET]);
        assert_eq!(mtu.size(), ETHERNET);
    }

    #[test]
    fn jumbo_frames_take_two_probes() {
        let mut mtu = PathMtu::new(8_952);
        assert_eq!(search(&mut mtu, 0, 8_952), [ETHERNET, 8_952]);
    }

    #[test]
    fn halving_finds_what_lies_between() {
        let mut mtu = PathMtu::new(ETHERNET);
        let tried = search(&mut mtu, 0, 1_372);
        assert_eq!(
            tried,
            [ETHERNET, ETHERNET, ETHERNET, 1_311, 1_367, 1_395, 1_395, 1_395, 1_381, 1_381, 1_381]
        );
        assert_eq!(mtu.size(), 1_367);
    }

    #[test]
    fn every_path_is_found_nearly() {
        for most in [576, 1_200, ETHERNET, 9_000, 65_507] {
            for carried in (1_200..=most.max(1_200)).step_by(37) {
                let mut mtu = PathMtu::new(most);
                let tries = search(&mut mtu, 0, carried).len();
                let missed = carried.min(most) - mtu.size();
                let close = if carried <= ETHERNET { CLOSE_ENOUGH } else { carried / CLOSE_ENOUGH_DIVISOR };
                assert!(missed <= close && tries <= 45, "{carried} of {most}: {} in {tries}", mtu.size());
            }
        }
    }

    #[test]
    fn an_answer_from_the_path_before_says_nothing() {
        let mut mtu = PathMtu::new(ETHERNET);
        mtu.on_acknowledged(1_200);
        mtu.on_probe_acknowledged(0, ETHERNET);
        assert_eq!((mtu.size(), mtu.due(0)), (1_200, Some(ETHERNET)));
    }

    #[test]
    fn a_better_path_is_found_after_ten_minutes() {
        let mut mtu = PathMtu::new(ETHERNET);
        search(&mut mtu, 0, 1_300);
        assert!(search(&mut mtu, RAISE_AFTER - 1, ETHERNET).is_empty());
        assert_eq!(search(&mut mtu, RAISE_AFTER, ETHERNET), [ETHERNET]);
    }

    #[test]
    fn a_black_hole_is_left_and_looked_at_again_later() {
        let found = || {
            let mut mtu = PathMtu::new(ETHERNET);
            search(&mut mtu, 0, ETHERNET);
            mtu
        };
        let mut mtu = found();
        assert!((1..MOST_SUSPICIONS).all(|_| !mtu.on_lost(1, ETHERNET)));
        mtu.on_acknowledged(ETHERNET);
        assert!(!mtu.on_lost(1, ETHERNET), "a large one arrived");
        mtu.on_acknowledged(100);
        assert!((2..MOST_SUSPICIONS).all(|_| !mtu.on_lost(1, ETHERNET)));
        assert!(mtu.on_lost(1, ETHERNET) && mtu.size() == BASE);
        assert!(search(&mut mtu, CALM_AFTER_BLACK_HOLE, ETHERNET).is_empty());
        assert_eq!(search(&mut mtu, 1 + CALM_AFTER_BLACK_HOLE, ETHERNET), [ETHERNET]);
        let mut mtu = found();
        assert!(mtu.on_silence(1) && mtu.size() == BASE && !mtu.on_silence(2));
    }
}
