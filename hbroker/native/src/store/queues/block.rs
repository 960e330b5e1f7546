//! Where the messages of a queue are in the log: entries of a number and a position, many in one block.
//!
//! Most numbers follow one another, and positions ascend, so an entry has three bytes or so: the difference
//! of the positions, and whether a number was left out.

use crate::store::record::{put_varint, take_varint};

/// The most entries of a block.
const MOST: u32 = 512;

/// The number of a message in its queue, and the position of its record in the log.
pub type Entry = (u64, u64);

/// Entries that follow one another.
#[derive(Clone, Debug, Default)]
pub struct Block {
    first: u64,
    last: Entry,
    count: u32,
    bytes: Vec<u8>,
}

impl Block {
    /// Adds an entry, which is later than all before.
    pub fn push(&mut self, (number, position): Entry) {
        if self.count == 0 {
            self.first = number;
            put_varint(&mut self.bytes, position);
        } else {
            let (numbers, positions) = (number - self.last.0, position - self.last.1);
            put_varint(&mut self.bytes, positions << 1 | u64::from(numbers != 1));
            if numbers != 1 {
                put_varint(&mut self.bytes, numbers);
            }
        }
        self.last = (number, position);
        self.count += 1;
    }

    pub fn is_full(&self) -> bool {
        self.count >= MOST
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The number of its first entry.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Its entries, without the number of the first.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The entries in the bytes of a block. Ends where the bytes are not valid.
pub fn entries(first: u64, mut bytes: &[u8]) -> impl Iterator<Item = Entry> + '_ {
    let mut last: Option<Entry> = None;
    std::iter::from_fn(move || {
        let difference = take_varint(&mut bytes)?;
        let entry = match last {
            None => (first, difference),
            Some((number, position)) => {
                let numbers = if difference & 1 == 1 { take_varint(&mut bytes)? } else { 1 };
                (number.checked_add(numbers)?, position.checked_add(difference >> 1)?)
            }
        };
        last = Some(entry);
        Some(entry)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_and_take_few_bytes() {
        let all = [(3, 1 << 40), (4, (1 << 40) + 100), (5, (1 << 40) + 100), (9, (1 << 40) + 9_000)];
        let mut block = Block::default();
        all.into_iter().for_each(|entry| block.push(entry));
        assert!(entries(block.first(), block.bytes()).eq(all));
        let mut block = Block::default();
        (1..=u64::from(MOST)).for_each(|number| block.push((number, 110 * number)));
        assert!(block.is_full() && block.bytes().len() <= 2 * MOST as usize, "{}", block.bytes().len());
    }
}
