//! Packet ids for what goes to a client (MQTT 5 §2.2.1): never 0, never one that is in use.
//!
//! They are given out one after the other. How far it is to the next one in use is looked up once for each such stretch, so that
//! an id costs nothing however many are in use.
//!
//! A session has its ids out of one *block*, an eighth of all. What was in flight at a gateway that died nobody knows, but the
//! client: it remembers a packet id of `QoS` 2 until PUBREL, and would take another message under it for the one that it had. So whoever
//! resumes such a session goes on with the next block.

/// How many blocks there are.
pub const BLOCKS: u8 = 8;
/// Packet ids in each.
pub const IN_BLOCK: u16 = u16::MAX / BLOCKS as u16;

/// Gives out the packet ids of one block.
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketIds {
    block: u8,
    /// The last one given out, counted from 1 in the block; 0: none was.
    last: u16,
    /// How many that follow are known to be free.
    free: u16,
}

impl PacketIds {
    /// Of this block, modulo their number.
    pub fn of(block: u8) -> Self {
        Self { block: block % BLOCKS, ..Self::default() }
    }

    pub fn block(&self) -> u8 {
        self.block
    }

    /// One that is not in use; None: all are.
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

    /// Where an id is in the block, counted from 1; `None`: it is in another.
    fn offset_of(&self, id: u16) -> Option<u16> {
        id.checked_sub(self.first()).filter(|offset_of| (1..=IN_BLOCK).contains(offset_of))
    }

    /// The one before the block's first.
    fn first(&self) -> u16 {
        u16::from(self.block) * IN_BLOCK
    }
}

/// The place so many steps on; the last is followed by 1.
fn following(offset_of: u16, steps: usize) -> u16 {
    match usize::from(offset_of) + steps {
        0 => 0,
        sum => ((sum - 1) % usize::from(IN_BLOCK) + 1) as u16,
    }
}

/// How many steps it is from one place to another, from 1 to `IN_BLOCK`.
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
