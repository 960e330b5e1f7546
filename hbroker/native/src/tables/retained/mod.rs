//! Retained messages (§7.6): for each topic the last message with `retain`, in the bytes in which it was
//! received.
//!
//! ```text
//! engine/owner, core ──> RetainedStore (this file)   offer, read, detach, tidy
//!                          ├─ tree      topics in order, with their messages
//!                          ├─ seek      which topics a reader must look at, for a filter or a region
//!                          ├─ freeing   frees memory step by step
//!                          ├─ cleared   topics that were cleared a short time ago
//!                          └─ journal   what the disk is told, and what it says after a restart
//! ```
//!
//! All workers share one store, under one lock that every message with `retain` takes. So each call does a
//! bounded amount of work, however much is stored:
//!
//! - [`RetainedStore::read`] reads the matching messages in batches.
//! - A region that leaves is detached at once, and freed step by step (`tidy`).
//! - An expired message is skipped until a step removes it.
//! - Detached messages count towards the limit in bytes until they are freed. A message that needs room frees
//!   as much as it needs. Every step frees at least [`OVERHEAD`] bytes, so that is bounded, too. No message
//!   is refused if freeing everything detached would make room.
//!
//! A large message (§7.5) replaces the last one once all its fragments have arrived. Until then it is stored
//! beside the last one, and is dropped first when room is short.

mod cleared;
mod freeing;
pub mod journal;
mod seek;
mod tree;

use std::collections::BTreeMap;

use bytes::Bytes;

use self::cleared::Cleared;
use self::freeing::Dismantled;
pub use self::freeing::Freed;
use self::journal::{Journal, Restoring};
use self::seek::Step;
pub use self::seek::{Wanted, ranges};
use self::tree::{Detached, Tree};
use crate::Micros;
use crate::topic::Region;

/// About how much memory a topic or a fragment takes in addition to its bytes.
const OVERHEAD: usize = 96;
/// How many large messages may be incomplete at once.
const MAX_INCOMPLETE: usize = 256;
/// Steps of tidying with each offer, whether it needs room or not.
const STEPS_EACH: usize = 8;
/// Steps of tidying in one call of [`RetainedStore::tidy`].
const STEPS: usize = 64;
/// The limits of one call of [`RetainedStore::read`]: nodes of the tree that it visits, and fragments and
/// bytes that it returns. (One fragment may have more.)
const MOST_LOOKS: usize = 512;
const MOST_FRAGMENTS: usize = 128;
const MOST_BYTES: usize = 64 << 10;

/// A PUBLISH with `retain`, or one fragment of it, as received.
#[derive(Clone, Copy, Debug)]
pub struct RetainedFragment<'a> {
    /// The topic of the message.
    pub topic: &'a str,
    /// The field `publish` of the Packet: the bytes to store.
    pub field: &'a [u8],
    /// An empty payload (of a message without fragments) clears the topic.
    pub payload_is_empty: bool,
    /// The publisher's id.
    pub publisher: u64,
    /// The sequence number of this message or fragment.
    pub sequence: u64,
    /// When it expires; `Micros::MAX`: never. Of a message that clears a topic: when that may be forgotten.
    pub expires: Micros,
    /// Of a fragment: its index, and the number of fragments.
    pub fragment: Option<(u32, u32)>,
    /// Whether the next run is to have it, if there is a journal.
    pub is_journaled: bool,
}

/// The result of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// It is now the topic's retained message.
    Kept,
    /// The topic now has no retained message.
    Cleared,
    /// More fragments must arrive.
    Incomplete,
    /// It is older than the stored message or than the one that cleared the topic, was received before, or
    /// contradicts itself.
    Ignored,
    /// There is no room. The stored message stays.
    Refused,
}

/// The position of a reader that reads in batches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The next topic, or one before it.
    pub topic: Box<str>,
    /// The message of this topic of which some fragments were read, and how many.
    pub serial: u64,
    pub fragments: u32,
}

/// The result of reading.
#[derive(Debug, Default)]
pub struct Batch {
    pub pieces: Vec<Piece>,
    /// Where to continue; `None`: everything was read.
    pub rest: Option<Cursor>,
    bytes: usize,
}

/// A retained message, or a fragment of one.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The field `publish` of the Packet.
    pub field: Bytes,
    /// The serial number of its message, and the index of the fragment.
    pub serial: u64,
    pub index: u32,
}

/// The retained messages of a node.
pub struct RetainedStore {
    max_bytes: usize,
    /// The bytes of everything stored, including what is not freed yet.
    bytes: usize,
    now: Micros,
    /// The highest serial number so far.
    serial: u64,
    kept: Tree<RetainedMessage>,
    /// The topics of messages that expire, by time of expiry and serial number.
    expiries: BTreeMap<(Micros, u64), Box<str>>,
    incomplete: Vec<IncompleteMessage>,
    cleared: Cleared,
    /// What is not stored any more and must be freed: runs of topics, and large messages.
    detached: Detached<RetainedMessage>,
    dismantled: Vec<Dismantled>,
    freed: Freed,
    /// `None`: nothing is on disk.
    journal: Option<Box<dyn Journal>>,
    restoring: Option<Restoring>,
    /// Steps of tidying so far.
    steps: usize,
}

struct RetainedMessage {
    is_journaled: bool,
    expires: Micros,
    publisher: u64,
    /// Of fragment 0.
    sequence: u64,
    /// The serial number of its first fragment; those of the other fragments follow. No two fragments in the
    /// store have the same number.
    serial: u64,
    cost: usize,
    fragments: Fragments,
}

/// A run of consecutive topics whose messages were detached from the store.
#[derive(Default)]
pub struct DetachedRun(Detached<RetainedMessage>);

enum Fragments {
    One(Bytes),
    Many(BTreeMap<u32, Bytes>),
}

/// A large message with missing fragments.
struct IncompleteMessage {
    topic: Box<str>,
    publisher: u64,
    /// Of fragment 0.
    sequence: u64,
    count: u32,
    fragments: BTreeMap<u32, Bytes>,
    cost: usize,
}

impl RetainedStore {
    /// An empty store, which never holds more than `max_bytes`, fragments of incomplete messages and overhead
    /// included. `seed`: random and secret.
    pub fn new(max_bytes: usize, seed: u64) -> Self {
        Self {
            max_bytes,
            bytes: 0,
            now: 0,
            serial: 0,
            kept: Tree::new(seed),
            expiries: BTreeMap::new(),
            incomplete: Vec::new(),
            cleared: Cleared::default(),
            detached: Detached::default(),
            dismantled: Vec::new(),
            freed: Freed::default(),
            journal: None,
            restoring: None,
            steps: 0,
        }
    }

    /// Sets the time. Messages that expire by then are treated as absent. Call it before the store is read or
    /// changed.
    pub fn set_time(&mut self, now: Micros) {
        self.now = now;
    }

    // Change

    /// Handles a message that was published with `retain`.
    pub fn offer(&mut self, fragment: RetainedFragment<'_>) -> Offer {
        let offer = self.take(fragment);
        self.submit_journal();
        offer
    }

    fn take(&mut self, fragment: RetainedFragment<'_>) -> Offer {
        drop(self.take_freed());
        self.tidy_by(STEPS_EACH);
        self.steps += self.cleared.expire(self.now, STEPS_EACH);
        let (index, count) = fragment.fragment.unwrap_or((0, 1));
        let sequence = fragment.sequence.wrapping_sub(u64::from(index));
        if index >= count || self.is_stale(&fragment, sequence) {
            return Offer::Ignored;
        }
        if count > 1 {
            return self.offer_fragment(&fragment, sequence, index, count);
        }
        // A later large message stays: this message may have been overtaken by its first fragments.
        self.drop_incomplete(|incomplete| {
            incomplete.is_of(fragment.topic, fragment.publisher) && incomplete.sequence < sequence
        });
        if fragment.payload_is_empty {
            self.remove(fragment.topic);
            self.steps += self.cleared.note(fragment.topic, fragment.publisher, sequence, fragment.expires);
            return Offer::Cleared;
        }
        self.offer_whole(&fragment)
    }

    /// Takes the messages of the topics from `from` up to but not including `to` out; `None`: up to the end.
    /// They are not retained any more. Pass them to [`Self::discard`].
    pub fn detach(&mut self, from: &str, to: Option<&str>) -> DetachedRun {
        let mut run = DetachedRun::default();
        self.kept.take_range(from, to, &mut run.0);
        run
    }

    /// Frees what was detached, step by step.
    pub fn discard(&mut self, run: DetachedRun) {
        self.detached.append(run.0);
    }

    /// Drops the incomplete messages of a region.
    pub fn drop_unfinished(&mut self, region: Region<'_>) {
        self.drop_incomplete(|incomplete| region.holds(&incomplete.topic));
    }

    /// Frees some of what was detached or has expired. Returns whether more is left.
    pub fn tidy(&mut self) -> bool {
        let is_untidy = self.tidy_by(STEPS);
        self.submit_journal();
        is_untidy
    }

    // Read

    /// Reads a batch of messages with serial numbers up to `newest`, in the order of topics, beginning at a
    /// cursor.
    pub fn read(&self, wanted: Wanted<'_>, newest: u64, from: &Cursor) -> Batch {
        let mut batch = Batch::default();
        let most = self.kept.looks() + MOST_LOOKS;
        let mut walk = self.kept.walk(&from.topic);
        while let Some((topic, kept)) = walk.next() {
            if batch.is_full() || self.kept.looks() > most {
                batch.rest = Some(Cursor { topic: topic.into(), ..Cursor::default() });
                break;
            }
            match wanted.step(topic) {
                Step::Found if kept.serial <= newest && kept.expires > self.now => {
                    let first = if kept.serial == from.serial { from.fragments } else { 0 };
                    if let Some(fragments) = batch.take(kept, first) {
                        batch.rest = Some(Cursor { topic: topic.into(), serial: kept.serial, fragments });
                        break;
                    }
                }
                Step::Found | Step::Next => {}
                Step::Seek(target) => walk.seek(&target),
                Step::End => break,
            }
            batch.bytes += topic.len();
        }
        batch
    }

    /// The serial number of the message that was stored last.
    pub fn newest(&self) -> u64 {
        self.serial
    }

    /// How many topics have a retained message, including expired ones that are not removed yet.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether something must be freed.
    pub fn is_untidy(&self) -> bool {
        !self.dismantled.is_empty() || !self.detached.is_empty() || self.next_expired().is_some()
    }

    /// What matches a filter: the topic, and the fields of its fragments end to end.
    #[cfg(test)]
    pub fn found(&self, filter: &str) -> Vec<(String, Vec<u8>)> {
        let wanted = Wanted::Filter(filter);
        let (mut found, mut next): (Vec<(String, Vec<u8>)>, _) = (Vec::new(), Some(wanted.first()));
        let mut last = 0;
        while let Some(cursor) = next {
            let batch = self.read(wanted, u64::MAX, &cursor);
            for piece in batch.pieces {
                if piece.serial != last {
                    let is_it = |kept: &RetainedMessage| kept.serial == piece.serial;
                    let topic = self.kept.walk("").find(|(_, kept)| is_it(kept)).map(|(topic, _)| topic);
                    found.push((topic.unwrap_or_default().to_owned(), Vec::new()));
                    last = piece.serial;
                }
                found.last_mut().expect("there is one").1.extend_from_slice(&piece.field);
            }
            next = batch.rest;
        }
        found
    }

    /// How much was done so far: nodes that were visited, things that were freed.
    #[cfg(test)]
    pub fn work(&self) -> usize {
        self.kept.looks() + self.steps
    }

    /// The bytes of the stored messages, with overhead.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    // Storing

    fn is_stale(&self, fragment: &RetainedFragment<'_>, sequence: u64) -> bool {
        let kept = self.kept.get(fragment.topic).filter(|kept| kept.expires > self.now);
        kept.is_some_and(|kept| kept.publisher == fragment.publisher && sequence <= kept.sequence)
            || self.cleared.is_after(self.now, fragment.topic, fragment.publisher, sequence)
    }

    /// Stores a topic's message. If there is no room, returns it.
    fn keep(&mut self, topic: &str, kept: RetainedMessage) -> Result<(), RetainedMessage> {
        let old = self.kept.get(topic);
        let (replaced, has_expired) = old.map_or((0, false), |old| (old.cost, old.expires <= self.now));
        if has_expired {
            self.remove(topic);
        }
        if !self.make_room(kept.cost, if has_expired { 0 } else { replaced }) {
            return Err(kept);
        }
        let first = self.serial + 1;
        // The new message is on disk before the replaced one is gone.
        if let Some(journal) = self.journal.as_mut().filter(|_| kept.is_journaled) {
            kept.fragments.each(|index, field| journal.add(first + u64::from(index), field));
        }
        self.insert(topic, RetainedMessage { serial: first, ..kept });
        Ok(())
    }

    /// Puts a message with a serial number in place of its topic's last one.
    fn insert(&mut self, topic: &str, kept: RetainedMessage) {
        self.remove(topic);
        // The replaced message may be freed fragment by fragment.
        while self.bytes + kept.cost > self.max_bytes && self.tidy_one() {}
        self.bytes += kept.cost;
        self.serial = self.serial.max(kept.last_serial());
        if kept.expires < Micros::MAX {
            self.expiries.insert((kept.expires, kept.serial), topic.into());
        }
        self.kept.insert(topic.into(), kept);
    }

    fn remove(&mut self, topic: &str) {
        if let Some(message) = self.kept.remove(topic) {
            if let Some(journal) = self.journal.as_mut().filter(|_| message.value.is_journaled) {
                journal.remove(message.value.serial, message.value.last_serial());
            }
            self.free(message);
        }
    }

    fn offer_whole(&mut self, fragment: &RetainedFragment<'_>) -> Offer {
        let kept = RetainedMessage::new(
            fragment,
            fragment.sequence,
            Fragments::One(Bytes::copy_from_slice(fragment.field)),
            fragment.cost(),
        );
        self.keep(fragment.topic, kept).map_or(Offer::Refused, |()| Offer::Kept)
    }

    fn offer_fragment(
        &mut self,
        fragment: &RetainedFragment<'_>,
        sequence: u64,
        index: u32,
        count: u32,
    ) -> Offer {
        let is_it = |incomplete: &IncompleteMessage| {
            incomplete.is_of(fragment.topic, fragment.publisher) && incomplete.sequence == sequence
        };
        let known = self.incomplete.iter().position(is_it).map(|at| self.incomplete.remove(at));
        let is_known = known.is_some();
        let mut incomplete = known.unwrap_or_else(|| IncompleteMessage::new(fragment, sequence, count));
        if incomplete.count != count || incomplete.fragments.contains_key(&index) {
            self.incomplete.push(incomplete);
            return Offer::Ignored;
        }
        if incomplete.fragments.len() + 1 == incomplete.count as usize {
            return self.complete(fragment, incomplete, index);
        }
        let added = fragment.cost() + if is_known { 0 } else { incomplete.cost };
        if self.incomplete.len() >= MAX_INCOMPLETE {
            self.drop_stalest_incomplete();
        }
        if !self.make_room(added, 0) {
            self.dismantled.extend(Some(incomplete).filter(|_| is_known).map(Dismantled::from));
            return Offer::Refused;
        }
        self.bytes += added;
        incomplete.cost += fragment.cost();
        incomplete.fragments.insert(index, Bytes::copy_from_slice(fragment.field));
        self.incomplete.push(incomplete);
        Offer::Incomplete
    }

    /// The last fragment has arrived.
    fn complete(
        &mut self,
        fragment: &RetainedFragment<'_>,
        incomplete: IncompleteMessage,
        index: u32,
    ) -> Offer {
        let IncompleteMessage { topic, publisher, sequence, count, mut fragments, cost } = incomplete;
        self.bytes -= cost;
        let cost_of_fragments = cost - cost_of(&topic) + fragment.cost();
        fragments.insert(index, Bytes::copy_from_slice(fragment.field));
        let Err(kept) = self.keep(
            &topic,
            RetainedMessage::new(fragment, sequence, Fragments::Many(fragments), cost_of_fragments),
        ) else {
            return Offer::Kept;
        };
        if let Fragments::Many(mut fragments) = kept.fragments {
            fragments.remove(&index);
            self.bytes += cost;
            self.dismantled
                .push(IncompleteMessage { topic, publisher, sequence, count, fragments, cost }.into());
        }
        Offer::Refused
    }
}

impl RetainedFragment<'_> {
    /// The cost of the fragment alone.
    fn cost(&self) -> usize {
        self.field.len() + OVERHEAD
    }
}

impl Batch {
    fn is_full(&self) -> bool {
        self.pieces.len() >= MOST_FRAGMENTS || self.bytes >= MOST_BYTES
    }

    /// Adds the fragments of a message, beginning at one. If they do not all fit, returns how many were read.
    fn take(&mut self, kept: &RetainedMessage, first: u32) -> Option<u32> {
        match &kept.fragments {
            Fragments::One(field) => self.add(kept.serial, 0, field),
            Fragments::Many(fragments) => {
                for (&index, field) in fragments.range(first..) {
                    if index > first && self.is_full() {
                        return Some(index);
                    }
                    self.add(kept.serial, index, field);
                }
            }
        }
        None
    }

    fn add(&mut self, serial: u64, index: u32, field: &Bytes) {
        self.bytes += field.len();
        self.pieces.push(Piece { field: field.clone(), serial, index });
    }
}

impl Fragments {
    fn each(&self, mut with: impl FnMut(u32, &Bytes)) {
        match self {
            Self::One(field) => with(0, field),
            Self::Many(fragments) => fragments.iter().for_each(|(index, field)| with(*index, field)),
        }
    }
}

impl RetainedMessage {
    /// The number of its last fragment.
    fn last_serial(&self) -> u64 {
        match &self.fragments {
            Fragments::One(_) => self.serial,
            Fragments::Many(fragments) => self.serial + fragments.len().saturating_sub(1) as u64,
        }
    }

    /// A message that has no serial number yet.
    fn new(
        fragment: &RetainedFragment<'_>,
        sequence: u64,
        fragments: Fragments,
        cost_of_fragments: usize,
    ) -> Self {
        let &RetainedFragment { topic, expires, publisher, is_journaled, .. } = fragment;
        let cost = cost_of_topic(topic, expires) + cost_of_fragments;
        Self { is_journaled, expires, publisher, sequence, serial: 0, cost, fragments }
    }
}

impl IncompleteMessage {
    fn new(fragment: &RetainedFragment<'_>, sequence: u64, count: u32) -> Self {
        let &RetainedFragment { topic, publisher, .. } = fragment;
        Self {
            topic: topic.into(),
            publisher,
            sequence,
            count,
            fragments: BTreeMap::new(),
            cost: cost_of(topic),
        }
    }

    fn is_of(&self, topic: &str, publisher: u64) -> bool {
        &*self.topic == topic && self.publisher == publisher
    }
}

fn cost_of(topic: &str) -> usize {
    topic.len() + OVERHEAD
}

/// The cost of a topic's message without its fragments.
fn cost_of_topic(topic: &str, expires: Micros) -> usize {
    cost_of(topic) * if expires < Micros::MAX { 2 } else { 1 }
}

#[cfg(test)]
mod tests;
