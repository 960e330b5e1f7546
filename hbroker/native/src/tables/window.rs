//! Recognises messages that come again (§7.4), by the publisher's sequence numbers.
//!
//! As the anti-replay window of IPsec (RFC 4303 §3.4.3), a bit for each of the newest numbers, and what
//! lies below the window counts as seen: exactly once must not become twice. But a node sees only those of
//! a publisher's numbers that are its own, so only the words of bits that have one are kept. Gaps cost
//! nothing then, and a leap far ahead does not push the window past what is still under way.
//!
//! How many publishers are remembered is bounded, and how many words for all of them; the publisher to forget is found by the
//! clock algorithm (Corbató, 1968), which comes near to the least recently used at a constant cost.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use crate::broken::Defect;
use crate::keyed::Keyed;

const WORD_BITS: u64 = u64::BITS as u64;
/// Words of bits kept for each publisher on average, where all that may be remembered are.
const MEAN_WORDS: usize = 16;

/// The sequence numbers seen lately of each publisher.
pub struct DuplicateWindow {
    max_publishers: usize,
    max_words: usize,
    /// Words of all publishers.
    words: usize,
    slots: HashMap<u64, usize, Keyed>,
    windows: Vec<Window>,
    /// The clock's hand: the window to look at next for one to forget.
    hand: usize,
}

struct Window {
    publisher: u64,
    used_lately: bool,
    /// The numbers below this word of bits count as seen.
    floor: u64,
    /// A sequence number is bit `sequence % 64` of word `sequence / 64`.
    words: BTreeMap<u64, u64>,
}

impl DuplicateWindow {
    /// Remembers `max_publishers` (at least one), and of each its `span` newest numbers where there are no
    /// gaps between them; where there are, at least the `span / 64` newest.
    pub fn new(max_publishers: usize, span: usize, seed: u64) -> Self {
        Self {
            max_publishers: max_publishers.max(1),
            max_words: span.div_ceil(WORD_BITS as usize) + 1,
            words: 0,
            slots: HashMap::with_hasher(Keyed::new(seed)),
            windows: Vec::new(),
            hand: 0,
        }
    }

    /// Records a message. False: it was seen before, or is too old to tell.
    pub fn first_seen(&mut self, publisher: u64, sequence: u64) -> bool {
        let slot = match self.slots.get(&publisher) {
            Some(&slot) => slot,
            None => self.admit(publisher),
        };
        let window = &mut self.windows[slot];
        window.used_lately = true;
        let before = window.words.len();
        let is_first = window.record(sequence, self.max_words) || Defect::ForgetsMessageIds.is_present();
        self.words = self.words + window.words.len() - before;
        while self.words > self.max_publishers * MEAN_WORDS + self.max_words {
            let victim = self.choose_victim();
            if victim != slot {
                self.words -= std::mem::take(&mut self.windows[victim].words).len();
            }
        }
        is_first
    }

    /// How many publishers are remembered.
    #[cfg(test)]
    pub fn publishers(&self) -> usize {
        self.windows.len()
    }

    fn admit(&mut self, publisher: u64) -> usize {
        let window = Window { publisher, used_lately: false, floor: 0, words: BTreeMap::new() };
        let slot = if self.windows.len() < self.max_publishers {
            self.windows.push(window);
            self.windows.len() - 1
        } else {
            let slot = self.choose_victim();
            self.slots.remove(&self.windows[slot].publisher);
            self.words -= self.windows[slot].words.len();
            self.windows[slot] = window;
            slot
        };
        self.slots.insert(publisher, slot);
        slot
    }

    fn choose_victim(&mut self) -> usize {
        loop {
            let slot = self.hand;
            self.hand = (self.hand + 1) % self.windows.len();
            if !std::mem::take(&mut self.windows[slot].used_lately) {
                return slot;
            }
        }
    }
}

impl Window {
    fn record(&mut self, sequence: u64, max_words: usize) -> bool {
        let word = sequence / WORD_BITS;
        if word < self.floor {
            return false;
        }
        let bits = self.words.entry(word).or_default();
        let bit = 1 << (sequence % WORD_BITS);
        let is_first = *bits & bit == 0;
        *bits |= bit;
        if self.words.len() > max_words
            && let Some((lowest, _)) = self.words.pop_first()
        {
            self.floor = lowest + 1;
        }
        is_first
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn agrees_with_a_set_within_the_span() {
        let mut random = SmallRng::seed_from_u64(3);
        let (mut window, mut seen) = (DuplicateWindow::new(4, 1_000, 9), HashSet::new());
        let (mut newest, mut duplicates) = ([5_000_u64; 4], 0);
        for _ in 0..100_000 {
            let publisher = random.random_range(0..4_usize);
            let top = &mut newest[publisher];
            let sequence = random.random_range(*top - 980..*top + 20);
            *top = sequence.max(*top);
            let is_first = seen.insert((publisher, sequence));
            assert_eq!(window.first_seen(publisher as u64, sequence), is_first);
            duplicates += usize::from(!is_first);
        }
        assert!((10_000..90_000).contains(&duplicates));
    }

    #[test]
    fn nothing_is_ever_new_twice_and_memory_stays_bounded() {
        let mut random = SmallRng::seed_from_u64(4);
        let (mut window, mut seen) = (DuplicateWindow::new(1, 256, 9), HashSet::new());
        for _ in 0..50_000 {
            let sequence = match random.random_range(0..4) {
                0 => random.random_range(0..2_000),
                1 => random.random(),
                2 => u64::MAX - random.random_range(0..1_000),
                _ => random.random::<u64>() >> random.random_range(0..64),
            };
            if window.first_seen(1, sequence) {
                assert!(seen.insert(sequence));
            }
            assert!(window.windows[0].words.len() <= 5);
        }
        assert!(seen.len() > 100);
    }

    #[test]
    fn a_number_that_was_overtaken_is_new() {
        let mut window = DuplicateWindow::new(1, 640, 9);
        for leap in (0..10).map(|step| 1_000_000 * step) {
            assert!(window.first_seen(1, 5_000_000_000 + leap));
        }
        assert!(window.first_seen(1, 1));
        assert!(!window.first_seen(1, 1));
        assert!(window.first_seen(1, 6_000_000_000));
        assert!(!window.first_seen(1, 1), "it was forgotten, so it counts as seen");
        assert!(window.first_seen(1, 4_000_000_000), "this one was not");
    }

    #[test]
    fn many_liars_with_wide_gaps_share_one_budget() {
        let mut window = DuplicateWindow::new(100, 6_400, 9);
        for step in 0..30_000_u64 {
            assert!(window.first_seen(step % 100, step * 64));
            assert_eq!(window.first_seen(7_777, 1), step == 0, "the busy publisher is remembered");
            let real: usize = window.windows.iter().map(|window| window.words.len()).sum();
            assert!(real == window.words && real <= 100 * MEAN_WORDS + 101);
        }
    }

    #[test]
    fn forgets_the_publisher_not_heard_of_lately() {
        let mut window = DuplicateWindow::new(100, 64, 9);
        for stranger in 0..100_000 {
            assert!(window.first_seen(stranger + 1_000, 1));
            assert_eq!(window.first_seen(1, 1), stranger == 0, "the busy publisher is remembered");
        }
        assert_eq!((window.publishers(), window.slots.len()), (100, 100));
    }
}
