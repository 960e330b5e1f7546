//! Retained messages (§7.6): the last message with `retain` of each topic, as the bytes in which it came.
//!
//! All workers share one store, under one lock, which every message with `retain` needs. So no call does more than a bounded amount of
//! work, however much is kept: what matches is read by [`RetainedStore::read`] a part at a time; a region that leaves is detached at once,
//! and freed step by step (`tidy`); what has expired is passed over until a step removes it. What waits to be freed still counts against the
//! bound in bytes. A message that needs room frees so much as it needs: every step frees at least [`OVERHEAD`] bytes, so that is bounded, too, and
//! nothing is refused for which freeing all would make room.
//!
//! A large message (§7.5) takes the place of the one before once all its parts have come; until then it waits beside it, and
//! gives way when room is short.

mod cleared;
mod freeing;
mod seek;
mod tree;

use std::collections::BTreeMap;

use bytes::Bytes;

use self::cleared::Cleared;
use self::freeing::Dismantled;
pub use self::freeing::Freed;
use self::seek::Step;
pub use self::seek::{Wanted, ranges};
use self::tree::{Detached, Tree};
use crate::Micros;
use crate::topic::Region;

/// What keeping one topic or one part costs beyond its bytes, about.
const OVERHEAD: usize = 96;
/// Large messages that may wait for parts at once.
const MAX_WAITING: usize = 256;
/// Steps of tidying with each offer, whether it needs room or not.
const STEPS_EACH: usize = 8;
/// Steps of tidying in one call of [`RetainedStore::tidy`].
const STEPS: usize = 64;
/// What one call of [`RetainedStore::read`] looks at, in nodes of the tree, and gives, in parts and bytes. (One part may be larger.)
const MOST_LOOKS: usize = 512;
const MOST_FRAGMENTS: usize = 128;
const MOST_BYTES: usize = 64 << 10;

/// A PUBLISH with `retain`, or one part of it, as it came.
#[derive(Clone, Copy, Debug)]
pub struct RetainedFragment<'a> {
    /// The topic of the message.
    pub topic: &'a str,
    /// The field `publish` of the Packet: the bytes to keep.
    pub field: &'a [u8],
    /// An empty payload (of a message in one part) clears the topic.
    pub payload_is_empty: bool,
    /// The publisher's id.
    pub publisher: u64,
    /// The sequence number of this message or part.
    pub sequence: u64,
    /// When it outlives its expiry; `Micros::MAX`: never. Of one that clears: when that may be forgotten.
    pub expires: Micros,
    /// Of a part: its index and how many there are.
    pub fragment: Option<(u32, u32)>,
}

/// What became of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// It is the topic's retained message now.
    Kept,
    /// The topic has no retained message now.
    Cleared,
    /// More parts must come.
    Incomplete,
    /// It is older than what is kept, or cleared the topic; was there already; or contradicts itself.
    Ignored,
    /// There is no room for it. What was kept before stays.
    Refused,
}

/// Where somebody is who reads a part at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The next topic, or one before it.
    pub topic: Box<str>,
    /// The message of this topic of which parts were read, and how many.
    pub serial: u64,
    pub fragments: u32,
}

/// What was read.
#[derive(Debug, Default)]
pub struct Batch {
    pub pieces: Vec<Piece>,
    /// Where to go on; `None`: that was all.
    pub rest: Option<Cursor>,
    bytes: usize,
}

/// A retained message, or a part of one.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The field `publish` of the Packet.
    pub field: Bytes,
    /// The message that it is of, and which part.
    pub serial: u64,
    pub index: u32,
}

/// The retained messages of a node.
pub struct RetainedStore {
    max_bytes: usize,
    /// Of all that is here, what waits to be freed included.
    bytes: usize,
    now: Micros,
    /// Of the message that was kept last.
    serial: u64,
    kept: Tree<Kept>,
    /// Those that expire, by when and which: the topic.
    mortal: BTreeMap<(Micros, u64), Box<str>>,
    waiting: Vec<Waiting>,
    cleared: Cleared,
    /// What is kept no more, and waits to be freed: runs of topics, and large messages.
    detached: Detached<Kept>,
    dismantled: Vec<Dismantled>,
    freed: Freed,
    /// Steps of tidying so far.
    steps: usize,
}

struct Kept {
    expires: Micros,
    publisher: u64,
    /// Of part 0.
    sequence: u64,
    /// Which of all that was ever kept.
    serial: u64,
    cost: usize,
    fragments: Fragments,
}

enum Fragments {
    One(Bytes),
    Many(BTreeMap<u32, Bytes>),
}

/// A large message of which parts are missing.
struct Waiting {
    topic: Box<str>,
    publisher: u64,
    /// Of part 0.
    sequence: u64,
    count: u32,
    fragments: BTreeMap<u32, Bytes>,
    cost: usize,
}

impl RetainedStore {
    /// Keeps nothing yet, and never more than `max_bytes`, parts of unfinished messages and overhead
    /// included. `seed`: random and secret.
    pub fn new(max_bytes: usize, seed: u64) -> Self {
        Self {
            max_bytes,
            bytes: 0,
            now: 0,
            serial: 0,
            kept: Tree::new(seed),
            mortal: BTreeMap::new(),
            waiting: Vec::new(),
            cleared: Cleared::default(),
            detached: Detached::default(),
            dismantled: Vec::new(),
            freed: Freed::default(),
            steps: 0,
        }
    }

    /// What expires by then is there no more. To be called before the store is read or changed.
    pub fn set_time(&mut self, now: Micros) {
        self.now = now;
    }

    // Change

    /// Takes a message that was published with `retain`.
    pub fn offer(&mut self, fragment: RetainedFragment<'_>) -> Offer {
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
        // A later one goes on: what comes here may have been overtaken by its first parts.
        self.drop_waiting(|waiting| {
            waiting.is_of(fragment.topic, fragment.publisher) && waiting.sequence < sequence
        });
        if fragment.payload_is_empty {
            self.remove(fragment.topic);
            self.steps += self.cleared.note(fragment.topic, fragment.publisher, sequence, fragment.expires);
            return Offer::Cleared;
        }
        self.offer_whole(&fragment)
    }

    /// Drops the messages from one topic on up to another, and not with it; `None`: up to the end.
    pub fn drop_range(&mut self, from: &str, to: Option<&str>) {
        self.kept.take_range(from, to, &mut self.detached);
    }

    /// Drops the unfinished messages of a region.
    pub fn drop_unfinished(&mut self, region: Region<'_>) {
        self.drop_waiting(|waiting| region.holds(&waiting.topic));
    }

    /// Frees some of what is kept no more, or has expired. Whether more is left.
    pub fn tidy(&mut self) -> bool {
        self.tidy_by(STEPS)
    }

    // Read

    /// Reads some of what is wanted and was kept under a serial number up to `newest`, in the order of topics, from a place on.
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

    /// The serial number of what was kept last.
    pub fn newest(&self) -> u64 {
        self.serial
    }

    /// Topics that have a retained message, those included that expired and were not removed yet.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether something waits to be freed.
    pub fn is_untidy(&self) -> bool {
        !self.dismantled.is_empty() || !self.detached.is_empty() || self.next_expired().is_some()
    }

    /// What matches a filter: the topic, and the fields of its parts end to end.
    #[cfg(test)]
    pub fn found(&self, filter: &str) -> Vec<(String, Vec<u8>)> {
        let wanted = Wanted::Filter(filter);
        let (mut found, mut next): (Vec<(String, Vec<u8>)>, _) = (Vec::new(), Some(wanted.first()));
        let mut last = 0;
        while let Some(cursor) = next {
            let batch = self.read(wanted, u64::MAX, &cursor);
            for piece in batch.pieces {
                if piece.serial != last {
                    let is_it = |kept: &Kept| kept.serial == piece.serial;
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

    /// What was done so far: nodes looked at, things freed.
    #[cfg(test)]
    pub fn work(&self) -> usize {
        self.kept.looks() + self.steps
    }

    /// Bytes of messages held, with the cost of keeping them.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    // Keep

    fn is_stale(&self, fragment: &RetainedFragment<'_>, sequence: u64) -> bool {
        let kept = self.kept.get(fragment.topic).filter(|kept| kept.expires > self.now);
        kept.is_some_and(|kept| kept.publisher == fragment.publisher && sequence <= kept.sequence)
            || self.cleared.is_after(self.now, fragment.topic, fragment.publisher, sequence)
    }

    /// Makes this its topic's message. There is no room: gives it back.
    fn keep(&mut self, topic: &str, kept: Kept) -> Result<(), Kept> {
        let old = self.kept.get(topic);
        let (replaced, has_expired) = old.map_or((0, false), |old| (old.cost, old.expires <= self.now));
        if has_expired {
            self.remove(topic);
        }
        if !self.make_room(kept.cost, if has_expired { 0 } else { replaced }) {
            return Err(kept);
        }
        self.remove(topic);
        // What was there before may be freed part by part.
        while self.bytes + kept.cost > self.max_bytes && self.tidy_one() {}
        self.bytes += kept.cost;
        self.serial += 1;
        let serial = self.serial;
        if kept.expires < Micros::MAX {
            self.mortal.insert((kept.expires, serial), topic.into());
        }
        self.kept.insert(topic.into(), Kept { serial, ..kept });
        Ok(())
    }

    fn remove(&mut self, topic: &str) {
        if let Some(message) = self.kept.remove(topic) {
            self.free(message);
        }
    }

    fn offer_whole(&mut self, fragment: &RetainedFragment<'_>) -> Offer {
        let kept = Kept::new(
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
        let is_it = |waiting: &Waiting| {
            waiting.is_of(fragment.topic, fragment.publisher) && waiting.sequence == sequence
        };
        let known = self.waiting.iter().position(is_it).map(|at| self.waiting.remove(at));
        let is_known = known.is_some();
        let mut waiting = known.unwrap_or_else(|| Waiting::new(fragment, sequence, count));
        if waiting.count != count || waiting.fragments.contains_key(&index) {
            self.waiting.push(waiting);
            return Offer::Ignored;
        }
        if waiting.fragments.len() + 1 == waiting.count as usize {
            return self.complete(fragment, waiting, index);
        }
        let added = fragment.cost() + if is_known { 0 } else { waiting.cost };
        if self.waiting.len() >= MAX_WAITING {
            self.tear_first_waiting();
        }
        if !self.make_room(added, 0) {
            self.dismantled.extend(Some(waiting).filter(|_| is_known).map(Dismantled::from));
            return Offer::Refused;
        }
        self.bytes += added;
        waiting.cost += fragment.cost();
        waiting.fragments.insert(index, Bytes::copy_from_slice(fragment.field));
        self.waiting.push(waiting);
        Offer::Incomplete
    }

    /// Its last part has come.
    fn complete(&mut self, fragment: &RetainedFragment<'_>, waiting: Waiting, index: u32) -> Offer {
        let Waiting { topic, publisher, sequence, count, mut fragments, cost } = waiting;
        self.bytes -= cost;
        let cost_of_fragments = cost - cost_of(&topic) + fragment.cost();
        fragments.insert(index, Bytes::copy_from_slice(fragment.field));
        let Err(kept) =
            self.keep(&topic, Kept::new(fragment, sequence, Fragments::Many(fragments), cost_of_fragments))
        else {
            return Offer::Kept;
        };
        if let Fragments::Many(mut fragments) = kept.fragments {
            fragments.remove(&index);
            self.bytes += cost;
            self.dismantled.push(Waiting { topic, publisher, sequence, count, fragments, cost }.into());
        }
        Offer::Refused
    }
}

impl RetainedFragment<'_> {
    /// Of the part alone.
    fn cost(&self) -> usize {
        self.field.len() + OVERHEAD
    }
}

impl Batch {
    fn is_full(&self) -> bool {
        self.pieces.len() >= MOST_FRAGMENTS || self.bytes >= MOST_BYTES
    }

    /// Takes a message from a part on; how many of its parts were read, where that is not all.
    fn take(&mut self, kept: &Kept, first: u32) -> Option<u32> {
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

impl Kept {
    /// Not counted yet.
    fn new(
        fragment: &RetainedFragment<'_>,
        sequence: u64,
        fragments: Fragments,
        cost_of_fragments: usize,
    ) -> Self {
        let &RetainedFragment { topic, expires, publisher, .. } = fragment;
        let cost = cost_of_topic(topic, expires) + cost_of_fragments;
        Self { expires, publisher, sequence, serial: 0, cost, fragments }
    }
}

impl Waiting {
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

/// Of what is kept for a topic beside its parts.
fn cost_of_topic(topic: &str, expires: Micros) -> usize {
    cost_of(topic) * if expires < Micros::MAX { 2 } else { 1 }
}

#[cfg(test)]
mod tests;
