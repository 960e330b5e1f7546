//! Messages and bytes by topic, in one interval.
//!
//! The first message of a topic in an interval gives the topic a slot. A caller that counts a topic often
//! keeps a [`TopicSlot`]: the slot, and the interval in which it is valid. Then counting is an addition. The
//! number of slots and the bytes of the topic names are bounded. Messages of further topics are counted
//! together, as *the rest*. So the sum is exact whatever clients publish.
//!
//! The table uses open addressing, and every search has a maximum number of steps. If a search finds no free
//! bucket, the topic belongs to the rest, too. So topics that were chosen to collide cost no more than others
//! and have no more effect than many topics would, and a fast hash is sufficient. Names are stored end to end
//! in one text, and the result has the form of columns, which need no further work.

use std::hash::Hasher;

use rustc_hash::FxHasher;

/// How many topics are counted separately in one interval, and how many bytes their names may have.
pub const MOST_TOPICS: usize = 10_000;
pub const MOST_NAME_BYTES: usize = 4 << 20;
/// The buckets of the table. So few are occupied that a search ends soon.
const BUCKETS: usize = 32_768;
const MOST_STEPS: usize = 16;
/// How many bytes of a name are stored in its row.
const HEAD: usize = 32;
/// The slot of the rest. In the table: an empty bucket.
const REST: u16 = 0;

/// The traffic of a topic. `messages_*` counts each fragment of a large message, `bytes_*` the bytes of
/// payloads, `whole_*` a large message once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub messages_in: u64,
    pub bytes_in: u64,
    pub messages_out: u64,
    pub bytes_out: u64,
    pub whole_in: u64,
    pub whole_out: u64,
}

/// The slot of a topic, and the interval in which it is valid. The default is not valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopicSlot {
    interval: u32,
    slot: u16,
}

/// The table of one worker.
pub struct Topics {
    /// Counts from 1.
    interval: u32,
    buckets: Box<[u16]>,
    /// By slot. The first row is that of the rest and has no name.
    rows: Vec<Row>,
    /// By slot, up to the last slot with later fragments. Without large messages it is empty, and rows stay
    /// small.
    later: Vec<Later>,
    names: String,
    /// The slot that was found last. The next message often has the same topic.
    last: u16,
}

/// A topic and its traffic: one line of the CPU cache, with the whole name if it is short. In a node with
/// thousands of topics most rows are in no cache, so a single access matters more than anything else.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Row {
    messages_in: u32,
    messages_out: u32,
    bytes_in: u64,
    bytes_out: u64,
    /// The position and length of the name.
    start: u32,
    length: u32,
    /// The beginning of the name.
    head: [u8; HEAD],
}

/// How many of a row's messages are fragments of large messages after the first.
#[derive(Clone, Copy, Default)]
struct Later {
    fragments_in: u32,
    fragments_out: u32,
}

/// A table as columns, with one row for each topic. `numbers` is in the order of [`Traffic`]'s fields.
#[derive(Default)]
pub struct Columns {
    pub names: String,
    /// The offset of each name, and the end of the last.
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

    /// The topic's slot in this interval.
    pub fn topic_slot(&mut self, topic: &str) -> TopicSlot {
        if self.last == REST || !self.is_named(self.last, topic) {
            self.last = self.slot(topic);
        }
        TopicSlot { interval: self.interval, slot: self.last }
    }

    /// Counts received messages, with `bytes` in all.
    pub fn count_in(&mut self, topic_slot: TopicSlot, messages: u32, bytes: u64) {
        let row = &mut self.rows[usize::from(topic_slot.slot)];
        row.messages_in += messages;
        row.bytes_in += bytes;
    }

    /// Counts copies that were sent.
    pub fn count_out(&mut self, topic_slot: TopicSlot, messages: u32, bytes: u64) {
        let row = &mut self.rows[usize::from(topic_slot.slot)];
        row.messages_out += messages;
        row.bytes_out += bytes;
    }

    /// Records that a message that was counted by `count_in` is a later fragment of a large message.
    pub fn note_later_in(&mut self, topic_slot: TopicSlot) {
        self.later_of(topic_slot.slot).fragments_in += 1;
    }

    /// Records that copies that were counted by `count_out` are later fragments of a large message.
    pub fn note_later_out(&mut self, topic_slot: TopicSlot, copies: u32) {
        self.later_of(topic_slot.slot).fragments_out += copies;
    }

    /// Makes an empty table that of the next interval after `before`.
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

    /// Adds the counts of another table.
    pub fn absorb(&mut self, other: &Self) {
        for (slot, row) in (0..).zip(&other.rows) {
            let own = if slot == REST { REST } else { self.topic_slot(other.name(slot)).slot };
            self.rows[usize::from(own)].add(row);
            if let Some(&Later { fragments_in, fragments_out }) = other.later.get(usize::from(slot)) {
                let later = self.later_of(own);
                later.fragments_in += fragments_in;
                later.fragments_out += fragments_out;
            }
        }
    }

    // Read

    /// Whether a slot is valid in this table.
    pub fn is_current(&self, topic_slot: TopicSlot) -> bool {
        topic_slot.interval == self.interval
    }

    /// The traffic of all topics.
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

    /// The traffic of each slot.
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

    /// The slot of a topic. A new topic gets one if there is room, and else that of the rest.
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

    /// Gives a topic a slot, in a free bucket.
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
    /// The traffic without large messages.
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
