//! Which link of which run of the peer a datagram is of (docs/protocol.md §2.2, §3.6).
//!
//! Every header contains an incarnation. The incarnations of one run's links are close together, those of two
//! runs are not. So an earlier link of the same run is recognised as past, and any other as a restart of the
//! peer.

use super::Arrival;
use crate::broken::Defect;

/// The incarnations of one run's links are at most this far apart; those of two runs are not.
const LINKS_OF_A_RUN: u64 = 1 << 32;

/// The peer's incarnation in a link, and in the previous one.
#[derive(Debug)]
pub struct Incarnations {
    peer: Option<u64>,
    past: Option<u64>,
}

impl Incarnations {
    /// `past`: the peer's incarnation in the previous link with it. A datagram with it is late.
    pub fn new(past: Option<u64>) -> Self {
        Self { peer: None, past }
    }

    /// For a link whose peer has this incarnation.
    pub fn of(peer: u64) -> Self {
        Self { peer: Some(peer), past: None }
    }

    /// Takes the incarnation of a datagram. `Past` or `Restarted`: the datagram is not of this link.
    pub fn check(&mut self, incarnation: u64) -> Option<Arrival> {
        if Defect::IgnoresIncarnation.is_present() {
            return None;
        }
        if self.is_past(incarnation) {
            return Some(Arrival::Past);
        }
        let is_another = *self.peer.get_or_insert(incarnation) != incarnation;
        is_another.then_some(Arrival::Restarted)
    }

    /// The peer's incarnation, once it has sent something.
    pub fn peer(&self) -> Option<u64> {
        self.peer
    }

    /// Whether another incarnation is a later link of the peer's same run, and not another run.
    pub fn is_continued_by(&self, incarnation: u64) -> bool {
        self.peer.is_some_and(|known| is_later_of_run(known, incarnation))
    }

    fn is_past(&self, incarnation: u64) -> bool {
        let is_before = |known| is_later_of_run(incarnation, known);
        match self.peer {
            Some(known) => is_before(known),
            None => self.past.is_some_and(|past| past == incarnation || is_before(past)),
        }
    }
}

/// Whether `later` is a later link of the same run as `earlier`.
fn is_later_of_run(earlier: u64, later: u64) -> bool {
    (1..LINKS_OF_A_RUN).contains(&later.wrapping_sub(earlier))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_link_of_the_run_is_past_and_any_other_a_restart() {
        for run in [1 << 40, u64::MAX - 5] {
            let mut incarnations = Incarnations::new(None);
            assert_eq!((incarnations.peer(), incarnations.is_continued_by(run)), (None, false));
            assert_eq!((incarnations.check(run), incarnations.peer()), (None, Some(run)));
            assert_eq!(incarnations.check(run), None);
            assert_eq!(incarnations.check(run.wrapping_sub(1)), Some(Arrival::Past));
            assert_eq!(incarnations.check(run.wrapping_add(9)), Some(Arrival::Restarted));
            assert_eq!(incarnations.check(run.wrapping_sub(LINKS_OF_A_RUN)), Some(Arrival::Restarted));
            assert_eq!(incarnations.peer(), Some(run), "what is refused changes nothing");
            assert!(incarnations.is_continued_by(run.wrapping_add(9)) && !incarnations.is_continued_by(run));
            assert!(!incarnations.is_continued_by(run.wrapping_add(LINKS_OF_A_RUN)));
        }
    }

    #[test]
    fn what_comes_late_from_the_link_before_does_not_begin_this_one() {
        let mut incarnations = Incarnations::new(Some(7));
        assert_eq!([6, 7].map(|late| incarnations.check(late)), [Some(Arrival::Past); 2]);
        assert_eq!((incarnations.check(8), incarnations.peer()), (None, Some(8)));
        assert_eq!(Incarnations::new(Some(7)).check(7 + LINKS_OF_A_RUN), None, "another run");
    }
}
