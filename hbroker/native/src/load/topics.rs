//! Messages and bytes by topic, in one interval.
//!
//! A topic gets a slot with its first message in an interval. Whoever meets it again and again keeps a [`Mark`], which says the slot
//! and the interval that it is good in: then to count is an addition. There is an end to the slots, in number and in what the topics' names
//! take: what comes for topics beyond it is counted together, as *the rest*. So the sum is exact whatever strangers publish.
//!
//! Names lie end to end in one text with an offset for each, and numbers as records: what is handed out needs no further work.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::keyed::Keyed;

/// Topics that are told apart in one interval, and bytes of their names.
pub const MOST_TOPICS: usize = 10_000;
pub const MOST_NAME_BYTES: usize = 4 << 20;
/// The slot of all that is not told apart.
const REST: u16 = 0;

/// What passed: messages, and bytes of their payloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub messages_in: u64,
    pub bytes_in: u64,
    pub messages_out: u64,
    pub bytes_out: u64,
}

/// A topic's slot, and the interval in which it is that; by default of none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    interval: u32,
    slot: u16,
}

/// The table of one worker.
pub struct Topics {
    hasher: Keyed,
    /// From 1.
    interval: u32,
    index: HashTable<u16>,
    names: String,
    /// Where each name ends; the first is the rest's, which has none.
    ends: Vec<u32>,
    traffic: Vec<Traffic>,
    /// The slot that was found last: the next message is often of the same topic.
    last: u16,
}

/// A table as columns, one row for each topic. Numbers are in the order of [`Traffic`]'s fields.
#[derive(Default)]
pub struct Columns {
    pub names: String,
    /// Of each name, and the end of the last.
    pub offsets: Vec<u32>,
    pub numbers: [Vec<u64>; 4],
    pub rest: Traffic,
}

impl Topics {
    pub fn new(hasher: Keyed) -> Self {
        Self {
            hasher,
            interval: 1,
            index: HashTable::new(),
            names: String::new(),
            ends: vec![0],
            traffic: vec![Traffic::default()],
            last: REST,
        }
    }

    // Change

    /// The topic's mark, for this interval.
    pub fn mark(&mut self, topic: &str) -> Mark {
        if self.last == REST || self.name(self.last) != topic {
            self.last = self.slot(topic);
        }
        Mark { interval: self.interval, slot: self.last }
    }

    /// Counts a message that was taken over.
    pub fn count_in(&mut self, mark: Mark, bytes: usize) {
        let traffic = &mut self.traffic[usize::from(mark.slot)];
        traffic.messages_in += 1;
        traffic.bytes_in += bytes as u64;
    }

    /// Counts a copy that left.
    pub fn count_out(&mut self, mark: Mark, bytes: usize) {
        let traffic = &mut self.traffic[usize::from(mark.slot)];
        traffic.messages_out += 1;
        traffic.bytes_out += bytes as u64;
    }

    /// Empties the table, for the interval after that of `before`.
    pub fn succeed(&mut self, before: &Self) {
        self.clear();
        self.interval = before.interval.checked_add(1).unwrap_or(1);
    }

    pub fn clear(&mut self) {
        self.index.clear();
        self.names.clear();
        self.ends.truncate(1);
        self.traffic.clear();
        self.traffic.push(Traffic::default());
        self.last = REST;
    }

    /// Adds what another table counted.
    pub fn absorb(&mut self, other: &Self) {
        for (slot, traffic) in (0..).zip(&other.traffic) {
            let own = if slot == REST { REST } else { self.mark(other.name(slot)).slot };
            self.traffic[usize::from(own)].add(traffic);
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
        self.traffic.iter().for_each(|traffic| total.add(traffic));
        total
    }

    pub fn columns(&self) -> Columns {
        let of = |number: fn(&Traffic) -> u64| self.traffic[1..].iter().map(number).collect();
        Columns {
            names: self.names.clone(),
            offsets: self.ends.clone(),
            numbers: [
                of(|traffic| traffic.messages_in),
                of(|traffic| traffic.bytes_in),
                of(|traffic| traffic.messages_out),
                of(|traffic| traffic.bytes_out),
            ],
            rest: self.traffic[usize::from(REST)],
        }
    }

    fn slot(&mut self, topic: &str) -> u16 {
        let Self { hasher, index, names, ends, traffic, .. } = self;
        let is_full = ends.len() > MOST_TOPICS || names.len() + topic.len() > MOST_NAME_BYTES;
        let name = |slot: u16| name_in(names, ends, slot).as_bytes();
        let hash = hasher.hash_bytes(topic.as_bytes());
        let is_it = |slot: &u16| name(*slot) == topic.as_bytes();
        if is_full {
            return index.find(hash, is_it).copied().unwrap_or(REST);
        }
        match index.entry(hash, is_it, |slot| hasher.hash_bytes(name(*slot))) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(place) => {
                let slot = u16::try_from(ends.len()).expect("there are fewer slots than that");
                place.insert(slot);
                names.push_str(topic);
                ends.push(u32::try_from(names.len()).expect("the names are shorter than that"));
                traffic.push(Traffic::default());
                slot
            }
        }
    }

    fn name(&self, slot: u16) -> &str {
        name_in(&self.names, &self.ends, slot)
    }
}

/// The name of a slot that is not the rest's.
fn name_in<'a>(names: &'a str, ends: &[u32], slot: u16) -> &'a str {
    let slot = usize::from(slot);
    &names[ends[slot - 1] as usize..ends[slot] as usize]
}

impl Traffic {
    pub fn add(&mut self, other: &Self) {
        self.messages_in += other.messages_in;
        self.bytes_in += other.bytes_in;
        self.messages_out += other.messages_out;
        self.bytes_out += other.bytes_out;
    }
}

#[cfg(test)]
mod tests;
