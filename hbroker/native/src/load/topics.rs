//! Messages and bytes by topic, in one interval.
//!
//! A topic gets a slot with its first message in an interval. Whoever meets it again and again keeps a [`Mark`], which says the slot
//! and the interval that it is good in: then to count is an addition. There is an end to the slots, in number and in what the topics' names
//! take: what comes for topics beyond it is counted together, as *the rest*. So the sum is exact whatever strangers publish.
//!
//! The table is open addressing with an end to every search: where there is no place within some steps, a topic is of the rest, too. So
//! topics that were chosen to collide cost no more than others, and gain no more than many topics would, and the hash may be a quick
//! one. Names lie end to end in one text, and what is handed out are columns: they need no further work.

use std::hash::Hasher;

use rustc_hash::FxHasher;

/// Topics that are told apart in one interval, and bytes of their names.
pub const MOST_TOPICS: usize = 10_000;
pub const MOST_NAME_BYTES: usize = 4 << 20;
/// Places of the table: so few are taken that a search ends soon.
const BUCKETS: usize = 32_768;
const MOST_STEPS: usize = 16;
/// Bytes of a name that are in its row.
const HEAD: usize = 32;
/// The slot of all that is not told apart; in the table: there is nothing.
const REST: u16 = 0;

/// What passed: messages, a large one once for each of its parts, and bytes of their payloads; and messages, a large one once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub messages_in: u64,
    pub bytes_in: u64,
    pub messages_out: u64,
    pub bytes_out: u64,
    pub whole_in: u64,
    pub whole_out: u64,
}

/// A topic's slot, and the interval in which it is that; by default of none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    interval: u32,
    slot: u16,
}

/// The table of one worker.
pub struct Topics {
    /// From 1.
    interval: u32,
    buckets: Box<[u16]>,
    /// By slot; the first is the rest's, which has no name.
    rows: Vec<Row>,
    /// By slot, up to the last that has any: so where no message is large this is empty, and rows stay as small as they are.
    later: Vec<Later>,
    names: String,
    /// The slot that was found last: the next message is often of the same topic.
    last: u16,
}

/// A topic, and what passed: one line of the processor's cache, with all of a name that is not long. A node with thousands of topics has
/// most of them in no cache, so that this counts for more than all else.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Row {
    messages_in: u32,
    messages_out: u32,
    bytes_in: u64,
    bytes_out: u64,
    /// Where the name is, and how long.
    start: u32,
    length: u32,
    /// How it begins.
    head: [u8; HEAD],
}

/// Of what a row counts, the parts of large messages that are not the first of theirs.
#[derive(Clone, Copy, Default)]
struct Later {
    fragments_in: u32,
    fragments_out: u32,
}

/// A table as columns, one row for each topic. Numbers are in the order of [`Traffic`]'s fields.
#[derive(Default)]
pub struct Columns {
    pub names: String,
    /// Of each name, and the end of the last.
    pub offsets: Vec<u32>,
    pub numbers: [Vec<u64>; 6],
    pub rest: Traffic,
}

impl Topics {
    pub fn new() -> Self {
        Self {
            interval: 1,
            buckets: vec![REST; BUCKETS].into(),
            rows: vec![Row::default()],
            later: Vec::new(),
            names: String::new(),
            last: REST,
        }
    }

    // Change

    /// The topic's mark, for this interval.
    pub fn mark(&mut self, topic: &str) -> Mark {
        if self.last == REST || !self.is_named(self.last, topic) {
            self.last = self.slot(topic);
        }
        Mark { interval: self.interval, slot: self.last }
    }

    /// Counts messages that were taken over, with so many bytes together.
    pub fn count_in(&mut self, mark: Mark, messages: u32, bytes: u64) {
        let row = &mut self.rows[usize::from(mark.slot)];
        row.messages_in += messages;
        row.bytes_in += bytes;
    }

    /// Counts copies that left.
    pub fn count_out(&mut self, mark: Mark, messages: u32, bytes: u64) {
        let row = &mut self.rows[usize::from(mark.slot)];
        row.messages_out += messages;
        row.bytes_out += bytes;
    }

    /// Says of a message that was counted as taken over that it is a later part of a large one.
    pub fn note_later_in(&mut self, mark: Mark) {
        self.later_of(mark.slot).fragments_in += 1;
    }

    /// Says of copies that were counted that they are later parts of a large message.
    pub fn note_later_out(&mut self, mark: Mark, copies: u32) {
        self.later_of(mark.slot).fragments_out += copies;
    }

    /// An empty table becomes that of the interval after this one's.
    pub fn succeed(&mut self, before: &Self) {
        debug_assert!(self.rows.len() == 1, "it was cleared");
        self.interval = before.interval.checked_add(1).unwrap_or(1);
    }

    pub fn clear(&mut self) {
        self.buckets.fill(REST);
        self.rows.clear();
        self.rows.push(Row::default());
        self.later.clear();
        self.names.clear();
        self.last = REST;
    }

    /// Adds what another table counted.
    pub fn absorb(&mut self, other: &Self) {
        for (slot, row) in (0..).zip(&other.rows) {
            let own = if slot == REST { REST } else { self.mark(other.name(slot)).slot };
            self.rows[usize::from(own)].add(row);
            if let Some(&Later { fragments_in, fragments_out }) = other.later.get(usize::from(slot)) {
                let later = self.later_of(own);
                later.fragments_in += fragments_in;
                later.fragments_out += fragments_out;
            }
        }
    }

    // Read

    /// Whether a mark is good here and now.
    pub fn knows(&self, mark: Mark) -> bool {
        mark.interval == self.interval
    }

    /// Over all topics.
    pub fn total(&self) -> Traffic {
        let mut total = Traffic::default();
        self.traffic().for_each(|traffic| total.add(&traffic));
        total
    }

    pub fn columns(&self) -> Columns {
        let of = |number: fn(&Traffic) -> u64| self.traffic().skip(1).map(|row| number(&row)).collect();
        Columns {
            names: self.names.clone(),
            offsets: self.rows.iter().map(|row| row.start + row.length).collect(),
            numbers: [
                of(|traffic| traffic.messages_in),
                of(|traffic| traffic.bytes_in),
                of(|traffic| traffic.messages_out),
                of(|traffic| traffic.bytes_out),
                of(|traffic| traffic.whole_in),
                of(|traffic| traffic.whole_out),
            ],
            rest: self.traffic().next().expect("the rest has a row"),
        }
    }

    /// Of each slot.
    fn traffic(&self) -> impl Iterator<Item = Traffic> {
        let later = self.later.iter().copied().chain(std::iter::repeat(Later::default()));
        self.rows.iter().zip(later).map(|(row, later)| row.traffic(later))
    }

    fn later_of(&mut self, slot: u16) -> &mut Later {
        let slot = usize::from(slot);
        if self.later.len() <= slot {
            self.later.resize(slot + 1, Later::default());
        }
        &mut self.later[slot]
    }

    /// The slot of a topic, which gets one if it has none and there is room.
    fn slot(&mut self, topic: &str) -> u16 {
        let mut hasher = FxHasher::default();
        hasher.write(topic.as_bytes());
        let first = hasher.finish() as usize % BUCKETS;
        for bucket in (first..first + MOST_STEPS).map(|bucket| bucket % BUCKETS) {
            match self.buckets[bucket] {
                REST => return self.take(bucket, topic),
                slot if self.is_named(slot, topic) => return slot,
                _ => {}
            }
        }
        REST
    }

    /// Gives a topic a slot, at a place that is free.
    fn take(&mut self, bucket: usize, topic: &str) -> u16 {
        if self.rows.len() > MOST_TOPICS || self.names.len() + topic.len() > MOST_NAME_BYTES {
            return REST;
        }
        let slot = u16::try_from(self.rows.len()).expect("there are fewer slots than that");
        let number = |length: usize| u32::try_from(length).expect("the names are shorter than that");
        let (start, length) = (number(self.names.len()), number(topic.len()));
        let mut row = Row { start, length, ..Row::default() };
        let (head, begin) = (&mut row.head, &topic.as_bytes()[..topic.len().min(HEAD)]);
        head[..begin.len()].copy_from_slice(begin);
        self.rows.push(row);
        self.names.push_str(topic);
        self.buckets[bucket] = slot;
        slot
    }

    fn is_named(&self, slot: u16, topic: &str) -> bool {
        let Row { length, head, .. } = &self.rows[usize::from(slot)];
        let begin = topic.len().min(HEAD);
        *length as usize == topic.len()
            && head[..begin] == topic.as_bytes()[..begin]
            && (topic.len() <= HEAD || self.name(slot) == topic)
    }

    fn name(&self, slot: u16) -> &str {
        let Row { start, length, .. } = self.rows[usize::from(slot)];
        &self.names[start as usize..(start + length) as usize]
    }
}

impl Row {
    fn traffic(&self, later: Later) -> Traffic {
        Traffic {
            messages_in: self.messages_in.into(),
            bytes_in: self.bytes_in,
            messages_out: self.messages_out.into(),
            bytes_out: self.bytes_out,
            whole_in: self.messages_in.saturating_sub(later.fragments_in).into(),
            whole_out: self.messages_out.saturating_sub(later.fragments_out).into(),
        }
    }

    fn add(&mut self, other: &Self) {
        self.messages_in += other.messages_in;
        self.bytes_in += other.bytes_in;
        self.messages_out += other.messages_out;
        self.bytes_out += other.bytes_out;
    }
}

impl Traffic {
    /// Where no message is large.
    #[cfg(test)]
    pub fn of_small(messages_in: u64, bytes_in: u64, messages_out: u64, bytes_out: u64) -> Self {
        Self {
            messages_in,
            bytes_in,
            messages_out,
            bytes_out,
            whole_in: messages_in,
            whole_out: messages_out,
        }
    }

    pub fn add(&mut self, other: &Self) {
        self.messages_in += other.messages_in;
        self.bytes_in += other.bytes_in;
        self.messages_out += other.messages_out;
        self.bytes_out += other.bytes_out;
        self.whole_in += other.whole_in;
        self.whole_out += other.whole_out;
    }
}

const _: () = assert!(size_of::<Row>() == 64);

#[cfg(test)]
mod tests;
