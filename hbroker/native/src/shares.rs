//! How a memory is divided among its holders: dynamic thresholds (Choudhury and Hahne, "Dynamic queue length
//! thresholds", 1998).
//!
//! A holder may not have more than it leaves free. So a single holder has at most a half. If *n* holders come
//! together and want all of the memory, each has 1/(n + 1). If they come one after the other, each has half
//! of what the earlier ones have left. Some memory stays free for the next holder, and the holder with the
//! most is refused first. Memory is never taken away from one holder for another.
//!
//! A holder may have several shares ([`Share`]). They divide what the holder may have in the same way: no
//! share has more than all of them leave of it.

use std::hash::Hash;

use hashbrown::HashMap;

use crate::keyed_hash::KeyedHash;

/// A memory, and what each holder has of it.
pub struct Shares<K> {
    total: usize,
    used: usize,
    held: HashMap<K, usize, KeyedHash>,
}

/// What one share of a holder has. If the share gets another holder, its bytes count for the holder that it
/// had when it got the first of them.
#[derive(Debug)]
pub struct Share<K> {
    bytes: usize,
    /// `None`: it is empty.
    holder: Option<K>,
}

impl<K> Default for Share<K> {
    fn default() -> Self {
        Self { bytes: 0, holder: None }
    }
}

impl<K> Share<K> {
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn holder(&self) -> Option<K>
    where
        K: Copy,
    {
        self.holder
    }
}

impl<K: Copy + Eq + Hash> Shares<K> {
    /// A memory of `total` bytes, all free.
    pub fn new(total: usize, hasher: KeyedHash) -> Self {
        Self { total, used: 0, held: HashMap::with_hasher(hasher) }
    }

    /// Whether a holder may have `more` bytes in addition to what it has.
    pub fn fits(&self, holder: K, more: usize) -> bool {
        // Including these bytes it has no more than is free then.
        2 * more + self.held(holder) <= self.total.saturating_sub(self.used)
    }

    /// The most bytes that a holder's share may have, which has `own` bytes now. `None`: it is the holder's
    /// only share.
    pub fn most_of_share(&self, holder: Option<K>, own: usize) -> usize {
        let elsewhere = holder.map_or(0, |holder| self.held(holder).saturating_sub(own));
        let free = (self.total + own).saturating_sub(self.used);
        // Including these bytes it has no more than the holder leaves of what it may have, which is as much
        // as is free then.
        free.saturating_sub(elsewhere) / 3
    }

    /// A holder gets `bytes` more. `None`: a holder that is not distinguished from others.
    pub fn add(&mut self, holder: Option<K>, bytes: usize) {
        self.used += bytes;
        if let Some(holder) = holder.filter(|_| bytes > 0) {
            *self.held.entry(holder).or_default() += bytes;
        }
    }

    /// A holder has `bytes` less. `None`: a holder that is not distinguished from others.
    pub fn remove(&mut self, holder: Option<K>, bytes: usize) {
        self.used -= bytes;
        if let Some(holder) = holder.filter(|_| bytes > 0)
            && let Some(held) = self.held.get_mut(&holder)
        {
            *held -= bytes;
            if *held == 0 {
                self.held.remove(&holder);
            }
        }
    }

    /// Whether a share of this holder may have `more` bytes in addition.
    pub fn fits_in(&self, share: &Share<K>, holder: K, more: usize) -> bool {
        self.fits(share.holder.unwrap_or(holder), more)
    }

    /// Whether `own` bytes are more than one part in `parts` of what a holder's share may have; `counted` of
    /// them are counted already.
    pub fn is_fuller_than(&self, parts: usize, holder: K, counted: usize, own: usize) -> bool {
        // While most of the memory is free, no holder has to be looked up: a share may have at least a third
        // of what is free beyond the sum of all.
        3 * parts * own + 2 * self.used > self.total
            && parts * own > self.most_of_share(Some(holder), counted)
    }

    /// A share of this holder has `bytes` now.
    pub fn set(&mut self, share: &mut Share<K>, holder: K, bytes: usize) {
        let holder = share.holder.unwrap_or(holder);
        self.remove(share.holder, share.bytes);
        self.add(Some(holder), bytes);
        *share = Share { bytes, holder: (bytes > 0).then_some(holder) };
    }

    /// A share is given up.
    pub fn free(&mut self, share: Share<K>) {
        self.remove(share.holder, share.bytes);
    }

    /// The bytes that all holders have.
    pub fn used(&self) -> usize {
        self.used
    }

    /// The bytes that a holder has.
    pub fn held(&self, holder: K) -> usize {
        self.held.get(&holder).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    const TOTAL: usize = 1 << 20;

    fn shares() -> Shares<u32> {
        Shares::new(TOTAL, KeyedHash::new(1))
    }

    /// Lets these holders take as much as they may, in turns.
    fn fill(shares: &mut Shares<u32>, holders: std::ops::Range<u32>) {
        let mut takes = true;
        while takes {
            takes = false;
            for holder in holders.clone() {
                if shares.fits(holder, 16) {
                    shares.add(Some(holder), 16);
                    takes = true;
                }
            }
        }
    }

    #[test]
    fn those_who_take_all_they_may_leave_as_much_as_each_has() {
        for count in [1, 2, 7, 100] {
            let mut shares = shares();
            fill(&mut shares, 0..count);
            let (free, equal) = (TOTAL - shares.used(), TOTAL / (count as usize + 1));
            assert!(free >= equal, "{count}: {free} are free");
            (0..count).for_each(|holder| assert!(shares.held(holder).abs_diff(equal) <= 32 * count as usize));
            assert!(shares.fits(count, equal / 2), "{count}: one more gets half of that at once");
        }
    }

    #[test]
    fn each_that_comes_later_gets_half_of_what_is_left() {
        let mut shares = shares();
        for holder in 0..10 {
            let free = TOTAL - shares.used();
            fill(&mut shares, holder..holder + 1);
            assert!(shares.held(holder).abs_diff(free / 2) <= 16);
        }
        shares.remove(Some(0), shares.held(0));
        assert!(!shares.fits(0, TOTAL / 2) && shares.fits(0, TOTAL / 4));
    }

    #[test]
    fn no_holder_takes_what_others_hold_and_all_together_never_have_more_than_there_is() {
        for seed in 0..100 {
            let mut random = SmallRng::seed_from_u64(seed);
            let mut shares = shares();
            let mut plain = [0; 20];
            for _ in 0..2_000 {
                let holder = random.random_range(0..plain.len());
                let bytes = random.random_range(0..TOTAL / 8);
                let key = Some(holder as u32);
                if random.random_bool(0.6) {
                    let free = TOTAL - shares.used();
                    let fits = shares.fits(holder as u32, bytes);
                    assert_eq!(fits, plain[holder] + 2 * bytes <= free, "seed {seed}");
                    // If a holder is refused, one that has less, or takes less, may still get some.
                    if fits {
                        shares.add(key, bytes);
                        plain[holder] += bytes;
                    } else {
                        let poorest = (0..plain.len()).min_by_key(|&other| plain[other]).unwrap_or(0);
                        assert!(shares.fits(poorest as u32, free.saturating_sub(plain[poorest]) / 2));
                    }
                } else {
                    let bytes = bytes.min(plain[holder]);
                    shares.remove(key, bytes);
                    plain[holder] -= bytes;
                }
                assert_eq!(shares.used(), plain.iter().sum::<usize>());
                assert!(shares.used() <= TOTAL, "seed {seed}: more than there is");
                assert!(shares.fits(99, (TOTAL - shares.used()) / 2), "a newcomer has half of what is free");
                assert!(shares.held.values().all(|&held| held > 0), "what has nothing is forgotten");
            }
        }
    }

    #[test]
    fn places_of_one_holder_leave_something_for_another_of_its_places_and_half_for_other_holders() {
        for count in [1, 3, 150] {
            let (mut shares, mut allotted) = (shares(), vec![0; count]);
            let mut grows = true;
            while grows {
                grows = false;
                for share in &mut allotted {
                    if *share + 16 <= shares.most_of_share(Some(1), *share) {
                        shares.add(Some(1), 16);
                        *share += 16;
                        grows = true;
                    }
                }
            }
            let equal = TOTAL / (2 * count + 1);
            assert!(
                allotted.iter().all(|share| share.abs_diff(equal) <= 64),
                "{count}: {allotted:?}, not {equal}"
            );
            assert!(shares.held(1) <= TOTAL - shares.used(), "{count}: it has more than is free");
            assert!(shares.most_of_share(Some(1), 0) >= equal / 3 - 64, "{count}: another of its places");
            assert!(shares.most_of_share(Some(2), 0) >= TOTAL / 6, "{count}: another holder");
        }
    }

    #[test]
    fn a_place_is_fuller_than_a_part_where_so_often_as_much_is_more_than_it_may_have() {
        let mut shares = shares();
        let (third, half) = (TOTAL / 3, TOTAL / 6);
        assert!(!shares.is_fuller_than(1, 1, 0, third) && shares.is_fuller_than(1, 1, 0, third + 1));
        assert!(!shares.is_fuller_than(2, 1, 0, half) && shares.is_fuller_than(2, 1, 0, half + 1));
        shares.add(Some(1), third);
        assert!(!shares.is_fuller_than(1, 1, third, third) && shares.is_fuller_than(1, 1, third, third + 1));
        assert!(!shares.is_fuller_than(1, 1, 0, third / 3) && shares.is_fuller_than(1, 1, 0, third / 3 + 1));
        assert!(!shares.is_fuller_than(1, 2, 0, 2 * half * 2 / 3) && shares.is_fuller_than(1, 2, 0, third));
        shares.add(Some(1), TOTAL / 2);
        assert!(
            !shares.is_fuller_than(4, 1, 0, 0) && shares.is_fuller_than(1, 1, 0, 1),
            "it has all that it may"
        );
    }

    #[test]
    fn a_place_is_fuller_than_a_part_as_the_plain_formula_says() {
        for seed in 0..100 {
            let mut random = SmallRng::seed_from_u64(seed);
            let mut shares = shares();
            let mut allotted =
                [(0, 0); 8].map(|_| (random.random_range(0..3), random.random_range(0..TOTAL / 7)));
            allotted.iter().for_each(|&(holder, counted)| shares.add(Some(holder), counted));
            for (holder, counted) in &mut allotted {
                let used_by = |is_meant: &dyn Fn(u32) -> bool| -> usize {
                    let bytes =
                        shares.held.iter().filter(|(holder, _)| is_meant(**holder)).map(|(_, held)| held);
                    bytes.sum()
                };
                let others = used_by(&|other| other != *holder);
                let own_others = used_by(&|other| other == *holder) - *counted;
                // What is free without this share, less what the holder has elsewhere: a third of that is as
                // much as is left beside it.
                let most = TOTAL.saturating_sub(others + 2 * own_others) / 3;
                for parts in [1, 2, 4] {
                    for own in [0, most / parts, most / parts + 1, *counted, random.random_range(0..TOTAL)] {
                        let is_fuller = shares.is_fuller_than(parts, *holder, *counted, own);
                        assert_eq!(is_fuller, parts * own > most, "seed {seed}: {own} of {most}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_in_one_share_counts_once() {
        let mut shares = shares();
        shares.add(Some(1), 1_000);
        shares.add(Some(1), 500);
        shares.add(None, 3_000);
        assert_eq!(shares.most_of_share(Some(1), 1_000), (TOTAL - 3_500 - 500) / 3);
        assert_eq!(shares.most_of_share(None, 3_000), (TOTAL - 1_500) / 3);
        assert_eq!(shares.most_of_share(Some(2), 0), (TOTAL - 4_500) / 3);
        shares.remove(None, 3_000);
        shares.remove(Some(1), 1_500);
        assert_eq!((shares.used(), shares.held.len()), (0, 0));
    }

    #[test]
    fn a_share_counts_for_the_holder_that_it_had_when_it_was_empty() {
        let (mut shares, mut share) = (shares(), Share::default());
        shares.set(&mut share, 1, TOTAL / 2);
        assert!(shares.fits_in(&Share::default(), 2, TOTAL / 4) && !shares.fits_in(&share, 2, 16));
        shares.set(&mut share, 2, TOTAL / 4);
        assert_eq!((shares.held(1), shares.held(2), share.bytes()), (TOTAL / 4, 0, TOTAL / 4));
        shares.set(&mut share, 2, 0);
        shares.set(&mut share, 2, 8);
        assert_eq!((shares.held(1), shares.held(2)), (0, 8));
        shares.free(share);
        assert_eq!(shares.used(), 0);
    }
}
