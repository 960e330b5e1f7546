//! Retained messages (§7.6): the last message with `retain` of each topic, as the bytes in which it came.
//!
//! Topics are kept in the order of their bytes, so that a subtree is one topic and one run behind it, and
//! a filter is searched for only within the subtree that its first levels name. A large message (§7.5)
//! takes the place of the one before once all its parts have come; until then it waits beside it, and
//! gives way when room is short. What outlives its expiry is removed by whoever looks next.

mod cleared;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use self::cleared::Cleared;
use crate::Micros;
use crate::topic::{self, Region};

/// What keeping one topic or one part costs beyond its bytes, about.
const OVERHEAD: usize = 96;
/// Large messages that may wait for parts at once.
const MAX_WAITING: usize = 256;

/// A PUBLISH with `retain`, or one part of it, as it came.
#[derive(Clone, Copy, Debug)]
pub struct RetainedPart<'a> {
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

/// The retained messages of a node.
pub struct RetainedStore {
    max_bytes: usize,
    bytes: usize,
    kept: BTreeMap<Box<str>, Kept>,
    /// The topics of those that expire, the first to do so first.
    mortal: BTreeSet<(Micros, Box<str>)>,
    waiting: Vec<Waiting>,
    cleared: Cleared,
}

struct Kept {
    expires: Micros,
    publisher: u64,
    /// Of part 0.
    sequence: u64,
    parts: Box<[Box<[u8]>]>,
}

/// A large message of which parts are missing.
struct Waiting {
    topic: Box<str>,
    publisher: u64,
    /// Of part 0.
    sequence: u64,
    count: u32,
    parts: BTreeMap<u32, Box<[u8]>>,
    cost: usize,
}

impl RetainedStore {
    /// Keeps nothing yet, and never more than `max_bytes`, parts of unfinished messages and overhead
    /// included.
    pub fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            bytes: 0,
            kept: BTreeMap::new(),
            mortal: BTreeSet::new(),
            waiting: Vec::new(),
            cleared: Cleared::default(),
        }
    }

    /// Removes what has outlived its expiry. To be called before the store is read or changed.
    pub fn expire(&mut self, now: Micros) {
        self.cleared.expire(now);
        while self.mortal.first().is_some_and(|(expires, _)| *expires <= now)
            && let Some((_, topic)) = self.mortal.pop_first()
        {
            self.remove(&topic);
        }
    }

    /// Takes a message that was published with `retain`.
    pub fn offer(&mut self, part: RetainedPart<'_>) -> Offer {
        let (index, count) = part.fragment.unwrap_or((0, 1));
        let sequence = part.sequence.wrapping_sub(u64::from(index));
        if index >= count || self.is_stale(&part, sequence) {
            return Offer::Ignored;
        }
        if count > 1 {
            return self.offer_part(&part, sequence, index, count);
        }
        // A later one goes on: what comes here may have been overtaken by its first parts.
        self.drop_waiting(|waiting| waiting.is_of(part.topic, part.publisher) && waiting.sequence < sequence);
        if part.payload_is_empty {
            self.remove(part.topic);
            self.cleared.note(part.topic, part.publisher, sequence, part.expires);
            return Offer::Cleared;
        }
        self.keep(
            part.topic,
            Kept {
                expires: part.expires,
                publisher: part.publisher,
                sequence,
                parts: Box::new([part.field.into()]),
            },
        )
    }

    /// Visits each message whose topic matches: the topic, and the fields `publish` of its parts, in order.
    pub fn for_each_match<'a>(&'a self, filter: &str, mut visit: impl FnMut(&'a str, &'a [Box<[u8]>])) {
        let named = match filter.find(['+', '#']) {
            Some(wildcard) => filter[..wildcard].strip_suffix('/').unwrap_or_default(),
            None => {
                return self
                    .kept
                    .get_key_value(filter)
                    .into_iter()
                    .for_each(|(topic, kept)| visit(topic, &kept.parts));
            }
        };
        for (topic, parts) in self.below(named) {
            if topic::matches(filter, topic) {
                visit(topic, parts);
            }
        }
    }

    /// The messages at and below a subtree.
    fn below<'a>(&'a self, subtree: &str) -> impl Iterator<Item = (&'a str, &'a [Box<[u8]>])> {
        let at = if subtree.is_empty() { None } else { self.kept.get_key_value(subtree) };
        let (from, to) = run_below(subtree);
        let below =
            self.kept.range::<str, _>((from.as_ref().map(String::as_str), to.as_ref().map(String::as_str)));
        at.into_iter().chain(below).map(|(topic, kept)| (&**topic, &*kept.parts))
    }

    /// The messages of a region.
    pub fn within<'a>(&'a self, region: Region<'a>) -> impl Iterator<Item = (&'a str, &'a [Box<[u8]>])> {
        self.below(region.subtree).filter(move |(topic, _)| region.holds(topic))
    }

    /// Drops the messages of a region; returns how many there were.
    pub fn drop_within(&mut self, region: Region<'_>) -> usize {
        self.drop_waiting(|waiting| region.holds(&waiting.topic));
        let topics: Vec<Box<str>> = self.within(region).map(|(topic, _)| topic.into()).collect();
        for topic in &topics {
            self.remove(topic);
        }
        topics.len()
    }

    /// Topics that have a retained message.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Bytes of messages held, with the cost of keeping them.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn is_stale(&self, part: &RetainedPart<'_>, sequence: u64) -> bool {
        let kept = self.kept.get(part.topic);
        kept.is_some_and(|kept| kept.publisher == part.publisher && sequence <= kept.sequence)
            || self.cleared.is_after(part.topic, part.publisher, sequence)
    }

    fn keep(&mut self, topic: &str, kept: Kept) -> Offer {
        let replaced = self.kept.get(topic).map_or(0, |old| old.cost(topic));
        let cost = kept.cost(topic);
        if !self.make_room(cost, replaced) {
            return Offer::Refused;
        }
        self.remove(topic);
        self.bytes += cost;
        if kept.expires < Micros::MAX {
            self.mortal.insert((kept.expires, topic.into()));
        }
        self.kept.insert(topic.into(), kept);
        Offer::Kept
    }

    fn remove(&mut self, topic: &str) {
        if let Some((topic, kept)) = self.kept.remove_entry(topic) {
            self.bytes -= kept.cost(&topic);
            if kept.expires < Micros::MAX {
                self.mortal.remove(&(kept.expires, topic));
            }
        }
    }

    fn offer_part(&mut self, part: &RetainedPart<'_>, sequence: u64, index: u32, count: u32) -> Offer {
        let is_it =
            |waiting: &Waiting| waiting.is_of(part.topic, part.publisher) && waiting.sequence == sequence;
        let mut waiting = match self.waiting.iter().position(is_it) {
            Some(at) => self.take_waiting(at),
            None => Waiting::new(part, sequence, count),
        };
        let is_new = waiting.count == count && !waiting.parts.contains_key(&index);
        if is_new {
            waiting.parts.insert(index, part.field.into());
            waiting.cost += part.field.len() + OVERHEAD;
        }
        if waiting.parts.len() == waiting.count as usize {
            let parts = waiting.parts.into_values().collect();
            let RetainedPart { topic, publisher, expires, .. } = *part;
            return self.keep(topic, Kept { expires, publisher, sequence, parts });
        }
        if self.waiting.len() >= MAX_WAITING {
            self.take_waiting(0);
        }
        if !self.make_room(waiting.cost, 0) {
            return Offer::Refused;
        }
        self.bytes += waiting.cost;
        self.waiting.push(waiting);
        if is_new { Offer::Incomplete } else { Offer::Ignored }
    }

    /// Makes room for `cost` where `replaced` goes; unfinished messages give way, the one longest without
    /// a new part first.
    fn make_room(&mut self, cost: usize, replaced: usize) -> bool {
        while self.bytes - replaced + cost > self.max_bytes {
            if self.waiting.is_empty() {
                return false;
            }
            self.take_waiting(0);
        }
        true
    }

    fn take_waiting(&mut self, at: usize) -> Waiting {
        let waiting = self.waiting.remove(at);
        self.bytes -= waiting.cost;
        waiting
    }

    fn drop_waiting(&mut self, may_go: impl Fn(&Waiting) -> bool) {
        self.waiting.retain(|waiting| {
            let goes = may_go(waiting);
            if goes {
                self.bytes -= waiting.cost;
            }
            !goes
        });
    }
}

impl Kept {
    fn cost(&self, topic: &str) -> usize {
        let clock = if self.expires < Micros::MAX { topic.len() + OVERHEAD } else { 0 };
        clock + topic.len() + OVERHEAD + self.parts.iter().map(|part| part.len() + OVERHEAD).sum::<usize>()
    }
}

impl Waiting {
    fn new(part: &RetainedPart<'_>, sequence: u64, count: u32) -> Self {
        let (topic, publisher, cost) = (part.topic.into(), part.publisher, part.topic.len() + OVERHEAD);
        Self { topic, publisher, sequence, count, parts: BTreeMap::new(), cost }
    }

    fn is_of(&self, topic: &str, publisher: u64) -> bool {
        &*self.topic == topic && self.publisher == publisher
    }
}

/// The bounds of the topics that begin with the subtree and `/`. (`0` is the byte after `/`.)
fn run_below(subtree: &str) -> (Bound<String>, Bound<String>) {
    if subtree.is_empty() {
        return (Bound::Unbounded, Bound::Unbounded);
    }
    (Bound::Included(format!("{subtree}/")), Bound::Excluded(format!("{subtree}0")))
}

#[cfg(test)]
mod tests;
