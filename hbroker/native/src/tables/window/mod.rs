//! Recognises duplicate messages (§7.4) by the publisher's sequence numbers.
//!
//! It works as the anti-replay window of IPsec (RFC 4303 §3.4.3): a bit for each of the newest numbers, and
//! numbers below the window count as seen. But a node receives only those of a publisher's messages whose
//! topics it owns, so only words with a set bit are stored. Then gaps cost nothing, and a jump in the numbers
//! does not push the window past messages in flight. A run of numbers from the first on without a gap costs
//! nothing either.
//!
//! Both errors are serious: a new message that is taken for a duplicate is lost, and a duplicate that is
//! taken for a new message is delivered twice. So the window of a publisher is wide: a publisher may have to
//! keep messages back while one owner of its topics is unreachable and others are not, and these messages
//! must not fall below the window of that owner.
//!
//! The number of publishers is bounded, and so is the number of words of all publishers. The publisher to
//! forget is found by the clock algorithm (Corbató, 1968), which approximates least recently used at constant
//! cost.
//!
//! The record of a publisher moves to another node with the topics (§5.4), as bits and a floor below which
//! every single number was seen. If a window has lost its oldest bits its floor is of another kind, and does
//! not move: it says nothing of the topics that the other node had before, and new messages of those may
//! still arrive. Numbers between the two floors do not move. Such a number could only be a duplicate if its
//! publisher, which may have 4,096 unacknowledged messages (§7.7), had continued for thousands of words
//! without its acknowledgement.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use hashbrown::HashMap;

use crate::Micros;
use crate::broken::Defect;
use crate::keyed_hash::KeyedHash;

/// How many of a publisher's newest numbers are remembered if there are no gaps between them. With gaps, as
/// many words are.
pub const SPAN: usize = 1 << 20;

const WORD_BITS: u64 = u64::BITS as u64;
/// The average number of words for each publisher, if all that may be remembered are.
const MEAN_WORDS: usize = 16;
/// The newest words of a publisher that an export contains: at least as many messages as may be
/// unacknowledged (§7.7).
const REPORTED_WORDS: usize = 4_096;

/// The record of one publisher's numbers, as it moves to another node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The publisher's id.
    pub publisher: u64,
    /// Every number below this word of 64 was seen.
    pub floor: u64,
    /// (index, bits), ascending, from the floor on.
    pub words: Vec<(u64, u64)>,
}

/// The recent sequence numbers of each publisher.
pub struct DuplicateWindow {
    max_publishers: usize,
    max_words: usize,
    /// The number of words of all publishers.
    words: usize,
    slots: HashMap<u64, usize, KeyedHash>,
    windows: Vec<Window>,
    /// The hand of the clock: the next window to consider for removal.
    hand: usize,
}

struct Window {
    publisher: u64,
    used_lately: bool,
    /// When it was last used.
    touched: Micros,
    /// Every number below this word of bits was seen.
    complete: u64,
    /// Numbers below this word of bits count as seen. At least `complete`; higher if bits were dropped.
    floor: u64,
    /// A sequence number is bit `sequence % 64` of word `sequence / 64`.
    words: BTreeMap<u64, u64>,
}

impl DuplicateWindow {
    /// Remembers `max_publishers` (at least one), and for each its `span` newest numbers if there are no gaps
    /// between them. With gaps, it remembers at least the `span / 64` newest.
    pub fn new(max_publishers: usize, span: usize, seed: u64) -> Self {
        Self {
            max_publishers: max_publishers.max(1),
            max_words: span.div_ceil(WORD_BITS as usize) + 1,
            words: 0,
            slots: HashMap::with_hasher(KeyedHash::new(seed)),
            windows: Vec::new(),
            hand: 0,
        }
    }

    /// Records a message. False: it was seen before, or is too old to tell.
    pub fn first_seen(&mut self, now: Micros, publisher: u64, sequence: u64) -> bool {
        let is_first = self.change(now, publisher, |window, max_words| window.record(sequence, max_words));
        is_first || Defect::ForgetsMessageIds.is_present()
    }

    /// Records consecutive messages, from `first` on. False, and none is recorded: not all of them are known
    /// to be new.
    pub fn all_first_seen(&mut self, now: Micros, publisher: u64, first: u64, count: u64) -> bool {
        let Some(last) = first.checked_add(count - 1) else {
            return false;
        };
        self.change(now, publisher, |window, max_words| window.record_all(first, last, max_words))
    }

    /// Reverts the record of a message that was not accepted after all: a retransmission is new. (Unless its
    /// bit was dropped: then it counts as seen.)
    pub fn take_back(&mut self, now: Micros, publisher: u64, sequence: u64) {
        if self.slots.contains_key(&publisher) {
            self.change(now, publisher, |window, max_words| window.take_back(sequence, max_words));
        }
    }

    /// The records of the publishers that were active since `since`, without these `open` ids (publisher,
    /// sequence number), whose messages are to count as new.
    pub fn export(&self, since: Micros, open: impl IntoIterator<Item = (u64, u64)>) -> Vec<Seen> {
        let mut open_of: HashMap<u64, BTreeMap<u64, u64>, KeyedHash> =
            HashMap::with_hasher(*self.slots.hasher());
        for (publisher, sequence) in open {
            *open_of.entry(publisher).or_default().entry(sequence / WORD_BITS).or_default() |= bit(sequence);
        }
        let none = BTreeMap::new();
        let recent = self.windows.iter().filter(|window| window.touched >= since);
        recent.map(|window| window.export(open_of.get(&window.publisher).unwrap_or(&none))).collect()
    }

    /// Adds the record of another node.
    pub fn import(&mut self, now: Micros, seen: &Seen) {
        self.change(now, seen.publisher, |window, max_words| window.import(seen, max_words));
    }

    /// Whether a message was recorded, or is too old to tell.
    pub fn has_seen(&self, publisher: u64, sequence: u64) -> bool {
        self.slots.get(&publisher).is_some_and(|&slot| self.windows[slot].has_seen(sequence))
    }

    /// Whether there is a record of a publisher.
    pub fn knows(&self, publisher: u64) -> bool {
        self.slots.contains_key(&publisher)
    }

    /// How many publishers are remembered.
    #[cfg(test)]
    pub fn publishers(&self) -> usize {
        self.windows.len()
    }

    fn change<R>(&mut self, now: Micros, publisher: u64, act: impl FnOnce(&mut Window, usize) -> R) -> R {
        let slot = match self.slots.get(&publisher) {
            Some(&slot) => slot,
            None => self.admit(publisher),
        };
        let window = &mut self.windows[slot];
        (window.used_lately, window.touched) = (true, now);
        let before = window.words.len();
        let done = act(window, self.max_words);
        self.words = self.words + window.words.len() - before;
        while self.words > self.max_publishers * MEAN_WORDS + self.max_words {
            let victim = self.choose_victim();
            if victim != slot {
                self.words -= std::mem::take(&mut self.windows[victim].words).len();
            }
        }
        done
    }

    fn admit(&mut self, publisher: u64) -> usize {
        let window = Window {
            publisher,
            used_lately: false,
            touched: 0,
            complete: 0,
            floor: 0,
            words: BTreeMap::new(),
        };
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
    fn has_seen(&self, sequence: u64) -> bool {
        let word = sequence / WORD_BITS;
        word < self.floor || self.words.get(&word).is_some_and(|bits| bits & bit(sequence) != 0)
    }

    fn record(&mut self, sequence: u64, max_words: usize) -> bool {
        let word = sequence / WORD_BITS;
        if word < self.floor {
            return false;
        }
        let bits = self.words.entry(word).or_default();
        let is_first = *bits & bit(sequence) == 0;
        *bits |= bit(sequence);
        if is_full(word, *bits) {
            self.raise();
        }
        self.forget(max_words);
        is_first
    }

    fn record_all(&mut self, first: u64, last: u64, max_words: usize) -> bool {
        let is_seen =
            |(word, bits)| word < self.floor || self.words.get(&word).is_some_and(|seen| seen & bits != 0);
        if words_of(first, last).any(is_seen) {
            return false;
        }
        for (word, bits) in words_of(first, last) {
            *self.words.entry(word).or_default() |= bits;
        }
        self.raise();
        self.forget(max_words);
        true
    }

    fn take_back(&mut self, sequence: u64, max_words: usize) {
        let word = sequence / WORD_BITS;
        let is_told_apart =
            self.complete == self.floor && self.floor.saturating_sub(word) <= max_words as u64;
        if word < self.floor && is_told_apart {
            self.words.extend((word..self.floor).map(|full| (full, u64::MAX)));
            (self.complete, self.floor) = (word, word);
        }
        if let Entry::Occupied(mut bits) = self.words.entry(word) {
            *bits.get_mut() &= !bit(sequence);
            if *bits.get() == 0 {
                bits.remove();
            }
        }
        self.forget(max_words);
    }

    fn import(&mut self, seen: &Seen, max_words: usize) {
        self.complete = self.complete.max(seen.floor);
        if self.floor < self.complete {
            self.floor = self.complete;
            self.words = self.words.split_off(&self.floor);
        }
        for &(word, bits) in seen.words.iter().filter(|(word, _)| *word >= self.floor) {
            *self.words.entry(word).or_default() |= bits;
        }
        self.raise();
        self.forget(max_words);
    }

    /// All that is certain, without the open messages. `open`: words of bits.
    fn export(&self, open: &BTreeMap<u64, u64>) -> Seen {
        let floor = open.keys().next().map_or(self.complete, |&word| word.min(self.complete));
        let reported = (floor..self.complete).map(|word| (word, u64::MAX));
        let reported = reported.rev().take(REPORTED_WORDS).collect::<Vec<_>>().into_iter().rev();
        let known = reported.chain(self.words.iter().map(|(&word, &bits)| (word, bits)));
        let closed = |(word, bits)| (word, bits & !open.get(&word).copied().unwrap_or(0));
        let mut words: Vec<_> = known.map(closed).filter(|&(_, bits)| bits != 0).collect();
        words.drain(..words.len().saturating_sub(REPORTED_WORDS));
        Seen { publisher: self.publisher, floor, words }
    }

    /// Raises the floor past words in which every bit is set. Nothing is lost.
    fn raise(&mut self) {
        while let Some(lowest) = self.words.first_entry()
            && *lowest.key() == self.floor
            && is_full(self.floor, *lowest.get())
        {
            lowest.remove();
            if self.complete == self.floor {
                self.complete += 1;
            }
            self.floor += 1;
        }
    }

    /// If there are too many words, drops the lowest and raises the floor past them.
    fn forget(&mut self, max_words: usize) {
        while self.words.len() > max_words
            && let Some((lowest, _)) = self.words.pop_first()
        {
            self.floor = lowest + 1;
        }
    }
}

/// The words of these numbers, and the bits of the numbers in each.
fn words_of(first: u64, last: u64) -> impl Iterator<Item = (u64, u64)> {
    let (lowest, highest) = (first / WORD_BITS, last / WORD_BITS);
    (lowest..=highest).map(move |word| {
        let from = if word == lowest { u64::MAX << (first % WORD_BITS) } else { u64::MAX };
        let to = if word == highest { u64::MAX >> (WORD_BITS - 1 - last % WORD_BITS) } else { u64::MAX };
        (word, from & to)
    })
}

const fn bit(sequence: u64) -> u64 {
    1 << (sequence % WORD_BITS)
}

/// Whether all numbers of a word were seen. The first number is 1.
const fn is_full(word: u64, bits: u64) -> bool {
    bits | (word == 0) as u64 == u64::MAX
}

#[cfg(test)]
mod tests;
