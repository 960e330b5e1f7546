//! Packet ids for messages to a client (MQTT 5 §2.2.1): never 0, and never one that is in use.
//!
//! Ids are assigned in order. The distance to the next id in use is computed once for each free range, so an
//! id costs the same however many are in use.
//!
//! A session takes its ids from one *block*, an eighth of all ids. If a gateway has died, only the client
//! knows which messages were in flight: it remembers a packet id of `QoS` 2 until PUBREL, and would take
//! another message with that id for a retransmission. So the gateway that resumes such a session takes ids
//! from the next block.

/// How many blocks there are.
pub const BLOCKS: u8 = 8;
/// Packet ids in each.
pub const IN_BLOCK: u16 = u16::MAX / BLOCKS as u16;

/// Assigns the packet ids of one block.
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketIds {
    block: u8,
    /// The last assigned id, counted from 1 in the block; 0: none.
    last: u16,
    /// How many of the following ids are known to be free.
    free: u16,
}

impl PacketIds {
    /// Of this block, modulo the number of blocks.
    pub fn of(block: u8) -> Self {
        Self { block: block % BLOCKS, ..Self::default() }
    }

    pub fn block(&self) -> u8 {
        self.block
    }

    /// An id that is not in use; None: all are in use.
    pub fn next(&mut self, used: impl Iterator<Item = u16>) -> Option<u16> {
        if self.free == 0 {
            let here = used.filter_map(|id| self.offset_of(id));
            let mut ahead: Vec<u16> = here.map(|offset_of| distance(self.last, offset_of)).collect();
            ahead.sort_unstable();
            ahead.dedup();
            let run = ahead
                .iter()
                .enumerate()
                .take_while(|(index, steps)| usize::from(**steps) == index + 1)
                .count();
            let to_next = ahead.get(run).map_or(usize::from(IN_BLOCK) + 1, |steps| usize::from(*steps));
            self.last = following(self.last, run);
            self.free = u16::try_from(to_next - run - 1).ok()?;
        }
        self.free = self.free.checked_sub(1)?;
        self.last = following(self.last, 1);
        Some(self.first() + self.last)
    }

    /// The offset of an id in its block, counted from 1; `None`: it is in another block.
    fn offset_of(&self, id: u16) -> Option<u16> {
        id.checked_sub(self.first()).filter(|offset_of| (1..=IN_BLOCK).contains(offset_of))
    }

    /// The id before the first of the block.
    fn first(&self) -> u16 {
        u16::from(self.block) * IN_BLOCK
    }
}

/// The offset after `steps` more steps. The last offset is followed by 1.
fn following(offset_of: u16, steps: usize) -> u16 {
    match usize::from(offset_of) + steps {
        0 => 0,
        sum => ((sum - 1) % usize::from(IN_BLOCK) + 1) as u16,
    }
}

/// The number of steps from one offset to another, from 1 to `IN_BLOCK`.
fn distance(from: u16, to: u16) -> u16 {
    match to.checked_sub(from) {
        Some(0) => IN_BLOCK,
        Some(steps) => steps,
        None => IN_BLOCK - (from - to),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn an_id_in_use_is_never_given_out() {
        for block in 0..BLOCKS {
            let mut ids = PacketIds::of(block);
            // Ids of other blocks are in nobody's way.
            let mut used: BTreeSet<u16> = [u16::from(block) * IN_BLOCK, u16::MAX].into();
            let first = u16::from(block) * IN_BLOCK + 1;
            let mut random = 1_u32;
            for _ in 0..50_000 {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let id = ids.next(used.iter().copied()).expect("some are free");
                assert!((first..first + IN_BLOCK).contains(&id) && used.insert(id), "{id}");
                // Some stay for ever, most go soon.
                if used.len() > 40 || random >> 31 == 0 {
                    let gone =
                        *used.iter().nth((random >> 8) as usize % used.len()).expect("it is not empty");
                    used.remove(&gone);
                }
            }
        }
    }

    #[test]
    fn when_all_are_in_use_there_is_none() {
        let mut ids = PacketIds { last: 9, ..PacketIds::default() };
        let all: Vec<u16> = (1..=IN_BLOCK).collect();
        assert_eq!(ids.next(all.iter().copied()), None);
        let but_one = all.iter().copied().filter(|id| *id != 5);
        assert_eq!(PacketIds { last: 4, ..PacketIds::default() }.next(but_one), Some(5));
        assert_eq!(PacketIds { last: IN_BLOCK, ..PacketIds::default() }.next([2].into_iter()), Some(1));
    }
}
